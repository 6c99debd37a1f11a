"""Tries what the README and docs/first-run.md show:  readme_test.py BUILD_DIR [Readme.test_NAME]

Conventions of these pages:
  ```LANGUAGE FILE    the block is that file: of the checkout, then it is a part of it; otherwise it is written first
  ```console          lines that begin with "$ " are run by bash, one after the other, in one folder that looks like a
                      checkout; a backslash at the end continues a line, "# exit code N" asks for that code, not 0.
                      Other lines are output: they come in this order, spaces do not count, "..." is any text
  ```console hosts    its commands are started together, here with an address and a port of this host
  other blocks        are not run
Needs nothing but Python's standard library. Exit code 77: skipped, and the reason is printed.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "tests/support"))
import ctest_main  # noqa: E402
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build/release").resolve()
README = (SOURCE / "README.md").read_text(encoding="utf-8")
FIRST_RUN = (SOURCE / "docs/first-run.md").read_text(encoding="utf-8")
PROGRAM = BUILD / "bin/mantissa"
EXAMPLE = BUILD / "tests/library_example"
LIMIT_S = 100  # of one command

BLOCK = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "MANTISSA_PLUGIN_PATH")

# What no text of the checkout has, so that the test needs no other data: 60 kB of words.
TEXT = "".join(f"In the beginning was line {n}, and line {n * n % 97} came after it.\n" for n in range(1000))


# --- the README ---


def blocks(language, name="", page=README):
    return [text for lang, file, text in BLOCK.findall(page) if lang == language and file == name]


def commands(console):
    """[(command, exit code, expected lines)] of a console block."""
    found = []
    for line in console.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            code = re.search(r"# exit code (\d+)$", line)
            found.append((line[2:], int(code[1]) if code else 0, []))
        else:
            found[-1][2].append(line)
    return found


def table(first_heading):
    """The rows of the one table whose first column is called so, as lists of cells."""
    rows = re.search(rf"^\| {first_heading} \|[^\n]*\n\|[- |]+\|\n((?:\|[^\n]*\|\n)+)", README, re.MULTILINE)[1]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows.splitlines()]


def first_column(first_heading):
    return [row[0].strip("`| ") for row in table(first_heading)]


# --- a folder that looks like a checkout, and commands in it ---


def checkout(folder):
    folder = pathlib.Path(folder)
    shutil.copytree(SOURCE / "configs", folder / "configs")
    (folder / "plugin_api").symlink_to(SOURCE / "plugin_api")
    text = folder / "build/data/kjv.txt"
    text.parent.mkdir(parents=True)
    text.write_text(TEXT, encoding="utf-8")
    for _, name, block in BLOCK.findall(README + FIRST_RUN):
        if name and name != "hosts" and not (SOURCE / name).exists():
            (folder / name).write_text(block, encoding="utf-8")
    return folder


def environment():
    clean = {key: value for key, value in os.environ.items() if key not in RANK_VARIABLES}
    return clean | {"PATH": f"{PROGRAM.parent}:{clean['PATH']}", "LC_ALL": "C.UTF-8"}


def start(command, folder, **variables):
    # In a process group of its own, so that a command which hangs is ended with its children.
    return subprocess.Popen(["bash", "-c", command], cwd=folder, env=environment() | variables, text=True,
                            errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, start_new_session=True)


def finish(process):
    """(exit code, output)"""
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return "none, it hung", process.communicate()[0]
    return process.returncode, output


def run(command, folder, **variables):
    return finish(start(command, folder, **variables))


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def missing_line(expected, output):
    """The first line of `expected` that does not follow the ones before it in `output`; None if all do."""
    lines = iter(" ".join(line.split()) for line in output.splitlines())
    for line in expected:
        pattern = re.escape(" ".join(line.split())).replace(re.escape("..."), ".*").replace(r".*\ ", r".* ?")
        if line.strip() != "..." and not any(re.fullmatch(pattern, shown) for shown in lines):
            return line
    return None


def run_folder(folder):
    (found,) = folder.glob("runs/*/*")
    return found


def metrics(folder):
    rows = (run_folder(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row) for row in rows]


class Readme(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        os.umask(0o022)  # a plugin in a folder that others may write to is refused
        temporary = tempfile.TemporaryDirectory(prefix="mantissa-readme-")
        self.addCleanup(temporary.cleanup)
        self.folder = checkout(temporary.name)

    def need(self, program):
        if not program.exists():
            self.skipTest(f"{program} is not built")

    def expect_success(self, command, **variables):
        code, output = run(command, self.folder, **variables)
        self.assertEqual(code, 0, f"$ {command}\n{output}")
        return output

    # --- what needs no program ---

    def test_NamedBlocks_OfFilesOfTheCheckout_ShowThem(self):
        shown = [(name, text) for _, name, text in BLOCK.findall(README) if name and (SOURCE / name).is_file()]
        self.assertIn("configs/quickstart.toml", [name for name, _ in shown])
        for name, text in shown:
            self.assertIn(text, (SOURCE / name).read_text(encoding="utf-8"), f"the README shows another {name}")

    def test_Links_ToFiles_LeadSomewhere(self):
        for page in ["README.md", *sorted(str(page.relative_to(SOURCE)) for page in SOURCE.glob("docs/*.md"))]:
            text = BLOCK.sub("", (SOURCE / page).read_text(encoding="utf-8"))
            links = re.findall(r"\]\(([^)#:]+)\)", text)
            if page == "README.md":
                self.assertIn("docs/architecture.svg", links)
            broken = [link for link in links if not ((SOURCE / page).parent / link).exists()]
            self.assertEqual(broken, [], f"in {page}")

    def test_ExitCodes_InTheTable_AreThoseOfTheProgram(self):
        source = (SOURCE / "host/base/error.h").read_text(encoding="utf-8")
        codes = re.search(r"enum class ExitCode[^{]*\{(.*?)\}", source, re.DOTALL)[1]
        self.assertEqual(first_column("exit code"), re.findall(r"= (\d+)", codes))

    # --- commands ---

    def expect_console_blocks(self, page):
        self.need(PROGRAM)
        tried = [command for block in blocks("console", page=page) for command in commands(block)]
        self.assertGreater(len(tried), 8)
        for command, wanted_code, expected in tried:
            with self.subTest(command):
                code, output = run(command, self.folder)
                self.assertEqual(code, wanted_code, output)
                self.assertIsNone(missing_line(expected, output), f"is shown, but not printed. Printed was:\n{output}")

    def test_ConsoleBlocks_RunInOrder_DoWhatIsShown(self):
        self.expect_console_blocks(README)

    def test_FirstRun_ConsoleBlocksInOrder_DoWhatIsShown(self):
        self.expect_console_blocks(FIRST_RUN)
        (rows,) = self.folder.glob("runs/part/*/metrics.jsonl")
        clipped = [json.loads(row)["grad_norm_clipped"] for row in rows.read_text(encoding="utf-8").splitlines()]
        self.assertLessEqual(max(clipped), 0.25 * (1 + 1e-5))

    def test_HostsBlock_OnThisHost_TrainsTogether(self):
        self.need(PROGRAM)
        (block,) = blocks("console", "hosts")
        block = re.sub(r"MASTER_ADDR=\S+", "MASTER_ADDR=127.0.0.1", block)
        block = re.sub(r"MASTER_PORT=\S+", f"MASTER_PORT={free_port()}", block)
        ranks = [start(command, self.folder) for command, _, _ in commands(block)]
        self.assertEqual(len(ranks), 2)
        for rank, (code, output) in enumerate([finish(process) for process in ranks]):
            self.assertEqual(code, 0, f"rank {rank}: {output}")
        events = (run_folder(self.folder) / "events.jsonl").read_text(encoding="utf-8").splitlines()
        self.assertEqual(json.loads(events[0])["world_size"], 2)

    # --- the plugin ---

    def compile_plugin(self, extra=""):
        (command,) = [c for block in blocks("console") for c, _, _ in commands(block) if c.startswith("gcc ")]
        if not shutil.which("gcc"):
            self.skipTest("gcc is not installed")
        self.expect_success(command.replace("gcc ", f"gcc {extra} ", 1))
        (library,) = self.folder.glob("*.so")
        return library

    def test_Plugin_CompiledAsShown_HasNoWarningsAndOneSymbol(self):
        library = self.compile_plugin("-Wall -Wextra -Wpedantic -Wshadow -Werror")
        symbols = self.expect_success(f"nm -D --defined-only {library.name}").split()
        self.assertEqual(symbols[1:], ["T", "mts_precision_entry_v1"])
        lines = [line for line in blocks("c", "spike_clip.c")[0].splitlines() if line]
        self.assertLessEqual(len(lines), 30, "the heading says 30 lines")

    def test_Plugin_InAShortRun_ClipsASpike(self):
        self.need(PROGRAM)
        library = self.compile_plugin()
        self.assertIn("spike_clip", self.expect_success(f"mantissa plugin info ./{library.name}"))
        # The limit clips nothing, so only the plugin itself can; a rate this high makes norms jump.
        self.expect_success(f"mantissa train configs/quickstart.toml --set precision.plugin=./{library.name} "
                            "--set clip.max_norm=1e9 --set log.every=1 --set optimizer.lr=0.3")
        rows = metrics(self.folder)
        usual = 0.0
        for row in rows:
            limit = min(2 * usual, 1e9) if usual > 0 else 1e9
            clipped = min(row["grad_norm"], limit)
            self.assertAlmostEqual(row["grad_norm_clipped"] / clipped, 1, delta=1e-5, msg=row)
            usual = 0.9 * usual + 0.1 * clipped if usual > 0 else clipped
        self.assertTrue(any(row["clip_coef"] < 0.999 for row in rows), "no step was clipped: the test shows nothing")
        plugins = json.loads((run_folder(self.folder) / "plugins.json").read_text(encoding="utf-8"))
        self.assertEqual(plugins[0]["id"], "spike_clip")

    # --- tables ---

    def test_KeyTable_ComparedWithConfigShow_IsCompleteWithDefaults(self):
        self.need(PROGRAM)
        documented = {key.strip("`| "): default.strip("`") for key, default, _ in table("key")}
        self.assertGreater(len(documented), 40)
        # Together these have every key that can be set.
        any_model = '[run]\nname = "a"\nsteps = 1\n[precision]\nplugin = "a"\n'
        common = '[model]\nkind = "gpt"\n[data]\npath = "a.txt"\n' + any_model
        needed = {
            "norm": common + f'sha256 = "{"0" * 64}"\n[clip]\nmax_norm = 1\n[sample]\n',
            "rows": any_model + '[model]\nkind = "mlp"\n[data]\nkind = "generated"\n',
            "value": common + '[clip]\nvalue = 1\n[optimizer]\nkind = "sgd"\n[schedule]\nkind = "linear"\n',
        }
        shown = {}
        for name, text in needed.items():
            (self.folder / f"{name}.toml").write_text(text, encoding="utf-8")
            extra = "--set model.init=a.safetensors" if name == "norm" else ""
            for line in self.expect_success(f"mantissa config show {name}.toml {extra}").splitlines():
                setting, origin = line.rsplit(" # ", 1)
                key, value = setting.split(" = ", 1)
                is_default = origin.strip() == "default"
                if is_default or key not in shown:
                    shown[key] = value.strip() if is_default else None
        self.assertEqual(sorted(documented), sorted(shown))
        for key, default in documented.items():
            real = shown[key]
            if default in ("required", "unset"):
                self.assertIsNone(real, f"{key} has a default, {real}")
            elif real is not None:
                parsed = [tomllib.loads(f"x = {text}")["x"] for text in (default, real)]
                self.assertEqual(*parsed, f"default of {key}")
            else:
                self.assertIn(key, ("optimizer.kind", "schedule.kind"), f"{key}: its default was not compared")

    def test_RunFolderTables_ComparedWithARun_AreComplete(self):
        self.need(PROGRAM)
        self.expect_success("mantissa train configs/quickstart.toml --set run.steps=6 --set train.eval_every=3")
        self.assertEqual(sorted(first_column("file")), sorted(f.name for f in run_folder(self.folder).iterdir()))
        rows = metrics(self.folder)
        self.assertEqual(first_column("name"), list(rows[-1]), "metrics.jsonl has other numbers, or in another order")
        self.assertEqual([row["step"] for row in rows if "val_loss" in row], [2, 5])

    # --- the library ---

    def test_LibraryExample_OnOneAndTwoRanks_Learns(self):
        self.need(EXAMPLE)
        for world_size in (1, 2):
            with self.subTest(world_size=world_size):
                job = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
                ranks = [start(str(EXAMPLE), self.folder, RANK=str(rank), **job) for rank in range(world_size)]
                results = [finish(process) for process in ranks]
                self.assertEqual([code for code, _ in results], [0] * world_size, results)
                losses = [float(loss) for loss in re.findall(r"loss (\S+)", results[0][1])]
                self.assertEqual(len(losses), 6)
                self.assertLess(losses[-1], 0.2 * losses[0])


if __name__ == "__main__":
    ctest_main.main()
