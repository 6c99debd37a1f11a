"""Reads the #include lines of host/ and fails where a room includes what it must not see.

    include_rules.py SOURCE_DIR      prints one line a breach as FILE:LINE: WHAT; exit 0 without a breach, 1 with one

A room is a folder of host/. It includes itself and rooms of a lower level. A public header (host/include) counts as a
part of the room that implements it.
Needs nothing but Python's standard library.
"""

import pathlib
import re
import sys

LEVELS = [
    ["base"],
    ["config", "comm", "data", "weights"],
    ["fsdp"],
    ["model", "grad"],
    ["optim"],
    ["plugin"],
    ["checkpoint"],
    ["train"],
    ["report"],
    ["cli"],
]
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}

# report hears what train does, and must not reach into how.
ONLY_HEADERS = {("report", "train"): {"train/events.h"}}

# The rooms that implement the public headers.
PUBLIC_HEADERS = {
    "mantissa/world.h": "comm",
    "mantissa/unit.h": "fsdp",
    "mantissa/fully_shard.h": "fsdp",
    "mantissa/clip.h": "grad",
}

TORCH_ROOMS = {"comm", "fsdp", "grad", "optim", "model", "data", "weights", "train"}

# What from outside is for some rooms only: the first pattern that matches an include decides.
RESERVED = [
    ("c10d, Gloo and NCCL", re.compile(r"torch/csrc/distributed/|gloo/|nccl"), {"comm"}),
    ("torch/torch.h and torch/nn.h (they cost 15 s a file: include single headers)",
     re.compile(r"torch/(torch|nn|all)\.h$"), set()),
    ("LibTorch", re.compile(r"(torch|ATen|c10|caffe2)/"), TORCH_ROOMS),
    ("Boost.DLL", re.compile(r"boost/dll\b"), {"plugin"}),
    ("the plugin ABI", re.compile(r"mantissa/precision\.h"), {"plugin"}),
    ("toml++", re.compile(r"toml\+\+/|toml\.hpp$"), {"config"}),
    ("CLI11", re.compile(r"CLI/"), {"cli"}),
    ("spdlog and fmt", re.compile(r"(spdlog|fmt)/"), {"base"}),
]

TOKEN = re.compile(
    r"""(?P<skip> R"(?P<mark>[^()\\\s"]{0,16})\(.*?\)(?P=mark)"   # a raw string may hold a whole program
      | //[^\n]* | /\*.*?\*/
      | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' )
      | ^[ \t]*\#[ \t]*(?:include|include_next|import)\b(?P<rest>[^\n]*)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
NAMED = re.compile(r"""\s*(?:/\*.*?\*/\s*)*(?:"(?P<own>[^"]+)"|<(?P<outside>[^>]+)>)""")


def includes(text):
    """Yields (line, how, name) of every include; `how` is 'own' ("..."), 'outside' (<...>) or 'unreadable'."""
    for token in TOKEN.finditer(text):
        if token.group("rest") is None:
            continue
        line = text.count("\n", 0, token.start()) + 1
        named = NAMED.match(token.group("rest"))
        if named is None:
            yield line, "unreadable", token.group("rest").strip()
        elif named.group("own") is not None:
            yield line, "own", named.group("own")
        else:
            yield line, "outside", named.group("outside")


def levels_below(room):
    return " ".join(r for rooms in LEVELS[:LEVEL_OF[room]] for r in rooms) or "nothing"


def room_of_header(name):
    """The room that the header `name`, written from host/, belongs to; None if it is not one of ours."""
    if name in PUBLIC_HEADERS:
        return PUBLIC_HEADERS[name]
    folder = name.split("/")[0]
    return folder if folder in LEVEL_OF and "/" in name else None


def room_of_file(path):
    """The room of a source file, `path` being relative to host/; None if it is in no room."""
    return room_of_header(path.as_posix().removeprefix("include/"))


def fault_between_rooms(room, target, name):
    if target == room:
        return None
    if LEVEL_OF[target] >= LEVEL_OF[room]:
        return f"{room} includes {name}, but may include only: {room} {levels_below(room)}"
    allowed = ONLY_HEADERS.get((room, target))
    if allowed and name not in allowed:
        return f"{room} includes {name}, but of {target} it may include only: {' '.join(sorted(allowed))}"
    return None


def fault_of(host, room, how, name):
    """What is wrong with this include in `room`, or None."""
    if how == "unreadable":
        return f"#include {name}: write the file's name, so that the rules can be checked"
    for what, pattern, rooms in RESERVED:
        if pattern.match(name):
            if room in rooms:
                return None
            return f"{room} includes {name}, but {what} is for: {' '.join(sorted(rooms)) or 'tests only'}"
    target = room_of_header(name)
    if target:
        return fault_between_rooms(room, target, name)
    if how == "own" and not (host / name).is_file():
        return f'#include "{name}": no such file in host/; write own headers from there ("room/file.h"), others in <>'
    if name.startswith("mantissa/"):
        return f"{name} is no public header: PUBLIC_HEADERS of include_rules.py lists them"
    return None


def source_files(host):
    return sorted(p for p in host.rglob("*") if p.suffix in {".h", ".hpp", ".c", ".cpp", ".cc", ".inc"})


def breaches(source_dir):
    """All breaches below `source_dir`/host, as 'FILE:LINE: WHAT'."""
    host = pathlib.Path(source_dir) / "host"
    found = []
    for path in source_files(host):
        place = path.relative_to(source_dir)
        room = room_of_file(path.relative_to(host))
        if room is None:
            found.append(f"{place}:1: in no room: LEVELS and PUBLIC_HEADERS of include_rules.py list the rooms")
            continue
        text = path.read_text(encoding="utf-8").replace("\\\n", "  ")
        for line, how, name in includes(text):
            fault = fault_of(host, room, how, name)
            if fault:
                found.append(f"{place}:{line}: {fault}")
    return found


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if not source_files(pathlib.Path(sys.argv[1]) / "host"):
        sys.exit(f"{sys.argv[1]}/host has no source files: name the folder of the checkout")
    found = breaches(sys.argv[1])
    print("\n".join(found) if found else "no breach of the include rules")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
