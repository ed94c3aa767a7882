"""Runs test cases in the environment that has the clients of PostgreSQL and Redis, and counts them for the test command."""

import importlib.util
import os
import pathlib
import sys
import time
import unittest

import servers

CLIENTS = ("psycopg", "asyncpg", "redis")
PACKAGES = pathlib.Path(__file__).resolve().parents[1] / "packages"


def enter():
    """Goes on in the Python that has the clients, or ends the program if it or a server cannot be had."""
    if lacking := sorted({servers.missing(part) for part in servers.PARTS} - {None}):
        skip(f"{', '.join(lacking)} is not installed")
    if all(importlib.util.find_spec(name) for name in CLIENTS):
        return
    sys.path.insert(0, str(PACKAGES))
    import install

    python, why = install.python("stores")
    if why:
        skip(why)
    os.execv(python, [str(python), *sys.argv])


def skip(why):
    print(f"skipped: {why}\n0 passed, 0 failed, 1 skipped", flush=True)
    sys.exit(0)


class Timed(unittest.TextTestResult):
    """Prints how long each test took."""

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test):
        print(f"{time.monotonic() - self.began:6.1f} s  {test}", flush=True)
        super().stopTest(test)


def main():
    """Runs the tests of the calling program: all, or those that its arguments name."""
    done = unittest.main(exit=False, testRunner=unittest.TextTestRunner(resultclass=Timed, verbosity=0)).result
    failed, skipped = len(done.failures) + len(done.errors), len(done.skipped)
    for _, why in done.skipped:
        print(f"skipped: {why}")
    print(f"{max(0, done.testsRun - failed - skipped)} passed, {failed} failed, {skipped} skipped", flush=True)
    sys.exit(bool(failed))
