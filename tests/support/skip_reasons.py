"""Prints why tests were skipped: `skip_reasons.py RESULTS.xml`, a file that `ctest --output-junit` wrote.

ctest names the skipped tests only; the reason is in what each of them printed.
"""

import re
import sys
import xml.etree.ElementTree

# GoogleTest prints "FILE:LINE: Skipped", then the reason in one or more lines, then "[  SKIPPED ]".
GTEST_REASON = re.compile(r"^\S.*: Skipped\n(.*?)^\[  SKIPPED \]", re.MULTILINE | re.DOTALL)


def reason_of(test):
    if test.get("status") == "disabled":
        return "disabled in its source"
    output = test.findtext("system-out") or ""
    found = GTEST_REASON.search(output)
    reason = " ".join((found.group(1) if found else output).split())
    return reason or "it gave no reason"


def main():
    tests = xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase")
    skipped = [t for t in tests if t.get("status") in ("notrun", "disabled")]
    if skipped:
        print("Skipped, and why:")
    for test in skipped:
        print(f"  {test.get('name')}: {reason_of(test)}")
    if skipped:
        print()


if __name__ == "__main__":
    main()
