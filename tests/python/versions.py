#!/usr/bin/env python3
"""Imports and uses the package with every Python from 3.10 on that this machine has, and runs the tests that depend most on Python's
own signals, event loops and threads with each of them but this one, which runs all tests.

tests/python/versions.py --package target/tests/python-package --binary target/debug/onceward
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "packages"))

import install  # noqa: E402
import interpreters  # noqa: E402
import suite  # noqa: E402

# About ten seconds of processor time for each version.
TESTS = ("test_courier*.py", "test_cancel.py", "test_enqueue.py", "test_interrupts.py", "test_unproven_ends.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=pathlib.Path, required=True, help="the folder with the package")
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the onceward binary")
    given = parser.parse_args()
    found = interpreters.every()
    # They wait more than they compute.
    with concurrent.futures.ThreadPoolExecutor(len(found)) as pool:
        ends = list(pool.map(lambda one: of_version(*one, given), found.items()))
    for text, _ in ends:
        print(text)
    passed, failed, skipped = (sum(counts[place] for _, counts in ends) for place in range(3))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def of_version(minor, path, given):
    """What is printed for one version, and how many checks passed, failed and were skipped."""
    text, counts = use(minor, path, given)
    if minor == sys.version_info.minor or counts[1]:
        return text, counts
    more, tested = core_tests(minor, path, given)
    return f"{text}\n{more}", tuple(map(sum, zip(counts, tested)))


def use(minor, path, given):
    environment = os.environ | {"PYTHONPATH": str(given.package.absolute())}
    with tempfile.TemporaryDirectory() as folder:
        command = [path, "-X", "dev", "-W", "error::ResourceWarning", str(HERE / "use.py")]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"FAILED: Python 3.{minor}, code {done.returncode}\n{done.stdout}{done.stderr}", (0, 1, 0)
    return f"Python 3.{minor}: {done.stdout.strip()}", (1, 0, 0)


def core_tests(minor, path, given):
    python, missing = install.python_of_version(minor, path)
    if missing:
        return f"skipped: Python 3.{minor}: {missing}", (0, 0, 1)
    files = sorted(file for pattern in TESTS for file in (suite.SUITES / "core").glob(pattern))
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.xml"
        command = [python, *suite.PYTEST, f"--junitxml={report}", *files]
        done = subprocess.run(
            command, cwd=folder, env=suite.variables(given), capture_output=True, text=True, check=False
        )
        counts, reasons = suite.read(report)
    lines = [f"Python 3.{minor}: {counts[0]} tests passed", *(f"skipped: {reason}" for reason in reasons)]
    if done.returncode:
        counts = (counts[0], counts[1] or 1, counts[2])
        lines.append(f"FAILED: Python 3.{minor}\n{done.stdout}{done.stderr}")
    return "\n".join(lines), counts


if __name__ == "__main__":
    sys.exit(main())
