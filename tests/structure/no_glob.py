"""Fails where a CMake file lists its sources by file(GLOB): a file that is added or removed would not be noticed.

    no_glob.py SOURCE_DIR            prints one line a breach as FILE:LINE; exit 0 without a breach, 1 with one
"""

import os
import pathlib
import re
import sys

GLOB = re.compile(r"^[^#\n]*\bfile\s*\(\s*GLOB", re.IGNORECASE | re.MULTILINE)


def cmake_files(source_dir):
    for folder, folders, names in os.walk(source_dir):
        folders[:] = sorted(f for f in folders if f not in {"build", "runs"} and not f.startswith("."))
        for name in sorted(names):
            if name == "CMakeLists.txt" or name.endswith((".cmake", ".cmake.in")):
                yield pathlib.Path(folder) / name


def main():
    source_dir = pathlib.Path(sys.argv[1])
    files = list(cmake_files(source_dir))
    found = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        for match in GLOB.finditer(text):
            line = text.count("\n", 0, match.end()) + 1
            found.append(f"{path.relative_to(source_dir)}:{line}: list the files instead of file(GLOB)")
    print("\n".join(found) if found else f"no file(GLOB) in {len(files)} CMake files")
    sys.exit(1 if found or not files else 0)


if __name__ == "__main__":
    main()
