"""Fails where a test was skipped that should have run: ``skips.py REPORT.xml...`` (junit).

A skip passes only if its reason begins with "allowed:", so that a missing package or tool cannot hide tests from CI.
"""

import sys
from xml.etree import ElementTree


def main(reports: list[str]) -> int:
    ran, wrong = 0, 0
    for report in reports:
        try:
            cases = list(ElementTree.parse(report).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            print(f"{report}: no report of a test run: {error}")
            return 1
        for case in cases:
            ran += 1
            for skipped in case.iter("skipped"):
                reason = skipped.get("message") or ""
                if skipped.get("type") == "pytest.xfail" or reason.startswith(("allowed:", "Skipped: allowed:")):
                    continue
                wrong += 1
                print(f"skipped: {case.get('classname')}::{case.get('name')}: {reason}")
    print(f"{ran} tests reported, {wrong} skipped without leave")
    return 1 if wrong or not ran else 0


sys.exit(main(sys.argv[1:]))
