"""Runs checks concurrently and counts them. A check gets a sandbox and raises an exception when it fails."""

import argparse
import concurrent.futures
import inspect
import os
import time
import traceback

from sandbox import Sandbox

# Checks mostly wait, but each starts processes.
THREADS = 6

# A limit for events that must happen, also on a busy machine.
TIMEOUT = 20.0


class Skipped(Exception):
    """The check cannot run on this machine."""


def run(checks, arguments):
    """Runs all checks and prints the results. Returns the exit code, which is 1 if a check failed."""
    checks = [check for check in checks if not arguments.only or arguments.only in name_of(check)]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        faults = list(pool.map(lambda check: fault_of(check, arguments), checks))
    for check, fault in zip(checks, faults, strict=True):
        if isinstance(fault, Skipped):
            print(f"SKIPPED: {name_of(check)}: {fault}")
        elif fault:
            print(f"FAILED: {name_of(check)}\n{fault}")
        elif arguments.verbose:
            print(f"passed: {name_of(check)}")
    skipped = sum(isinstance(fault, Skipped) for fault in faults)
    failed = sum(bool(fault) for fault in faults) - skipped
    print(f"{len(checks) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def all_of(names):
    """The checks among a module's names: functions that take a sandbox and nothing else."""
    found = [one for one in names.values() if inspect.isfunction(one) and one.__module__ == names["__name__"]]
    return [one for one in found if list(inspect.signature(one).parameters) == ["sandbox"]]


def name_of(check):
    return check.__name__.replace("_", " ")


def fault_of(check, arguments):
    sandbox = Sandbox(arguments.binary)
    try:
        check(sandbox)
        sandbox.has_no_panic()
    except Skipped as why:
        return why
    except Exception:  # an exception of any kind is a failure
        return traceback.format_exc() + sandbox.errors()
    finally:
        sandbox.leave()
    return None


def arguments_of(description, **more):
    """The arguments from the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the onceward binary to test")
    parser.add_argument("--only", help="only checks whose names contain this")
    parser.add_argument("--verbose", action="store_true", help="name the checks that pass too")
    for name, (kind, default, meaning) in more.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=meaning)
    arguments = parser.parse_args()
    arguments.binary = os.path.abspath(arguments.binary)
    return arguments


def until(holds, what, timeout=TIMEOUT):
    """Waits until a condition holds and returns its value; fails if it does not hold in time."""
    deadline = time.monotonic() + timeout
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)
    return found


def is_equal(got, expected, what=""):
    assert got == expected, f"{what}{': ' if what else ''}{got!r} instead of {expected!r}"
