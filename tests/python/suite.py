#!/usr/bin/env python3
"""Runs one suite of the Python package with pytest, in the environment of its framework.

tests/python/suite.py core --package target/tests/python-package --binary target/debug/onceward
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "packages"))

import install  # noqa: E402

SUITES = HERE.parents[1] / "sdk" / "python" / "tests"

PYTEST = ("-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider")

# Suites that need nothing but the package itself share an environment.
ENVIRONMENTS = {"guide": "sdk-core", "remote": "sdk-core", "pytest_plugin": "sdk-pytest"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", help="a folder in sdk/python/tests")
    parser.add_argument("--package", type=pathlib.Path, required=True, help="the folder with the package")
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the onceward binary")
    parser.add_argument("options", nargs="*", help="options of pytest, after --")
    given = parser.parse_args()
    python, missing = install.python(environment_of(given.suite))
    if missing:
        print(f"skipped: {missing}\n0 passed, 0 failed, 1 skipped")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        command = [python, *PYTEST, f"--junitxml={report}", *given.options]
        done = subprocess.run([*command, SUITES / given.suite], env=variables(given), cwd=folder, check=False)
        return totals(report, done.returncode)


def environment_of(suite):
    return ENVIRONMENTS.get(suite, f"sdk-{suite.replace('_', '-')}")


def variables(given):
    package, binary = given.package.absolute(), given.binary.absolute()
    own = {"PYTHONPATH": str(package), "ONCEWARD": str(binary)}
    # The command `onceward` is the one that is tested.
    return os.environ | own | {"PATH": f"{binary.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def totals(report, code):
    """Prints the totals as all test programs do."""
    (passed, failed, skipped), reasons = read(report)
    for reason in reasons:
        print(f"skipped: {reason}")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return code or (0 if report.exists() else 1)


def read(report):
    """How many tests passed, failed and were skipped, and why."""
    if not report.exists():
        return (0, 1, 0), []
    suite = xml.etree.ElementTree.parse(report).getroot().find("testsuite")
    every, errors, failures, skipped = (int(suite.get(name)) for name in ("tests", "errors", "failures", "skipped"))
    marks = [(case.get("name"), case.find("skipped")) for case in suite.iter("testcase")]
    reasons = [f"{name}: {mark.get('message')}" for name, mark in marks if mark is not None]
    failed = errors + failures
    return (every - failed - skipped, failed, skipped), reasons


if __name__ == "__main__":
    sys.exit(main())
