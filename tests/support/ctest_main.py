"""Runs the tests of a script for ctest: quiet unless one fails; exit code 77 and the reasons alone if all are skipped."""

import io
import sys
import unittest


def main():
    """Of __main__, with the tests that sys.argv[2:] names."""
    report = io.StringIO()
    runner = unittest.TextTestRunner(stream=report, verbosity=2)
    result = unittest.main(argv=[sys.argv[0], *sys.argv[2:]], exit=False, testRunner=runner).result
    if result.wasSuccessful() and result.testsRun == len(result.skipped):
        print("; ".join(reason for _, reason in result.skipped))  # nothing else: it is shown as the reason
        sys.exit(77)
    print(report.getvalue())
    sys.exit(not result.wasSuccessful())
