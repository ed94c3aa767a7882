"""Runs checks, several at once, and counts them. A check gets a place, and raises when something is wrong."""

import argparse
import concurrent.futures
import inspect
import os
import time
import traceback

from place import Place

# Checks wait more than they work, but each starts processes.
THREADS = 6

# How long anything may take that is bound to happen.
PATIENCE = 20.0


class Skipped(Exception):
    """It cannot run on this machine."""


def run(checks, arguments):
    """Runs them all, and says what came of them. The exit code is 1 if anything failed."""
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
    """The checks among a module's names: what takes a place and nothing else."""
    found = [one for one in names.values() if inspect.isfunction(one) and one.__module__ == names["__name__"]]
    return [one for one in found if list(inspect.signature(one).parameters) == ["place"]]


def name_of(check):
    return check.__name__.replace("_", " ")


def fault_of(check, arguments):
    place = Place(arguments.binary)
    try:
        check(place)
        place.holds_nothing_bad()
    except Skipped as why:
        return why
    except Exception:  # whatever it is, it is what went wrong
        return traceback.format_exc() + place.errors()
    finally:
        place.leave()
    return None


def arguments_of(description, **more):
    """What is on the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the onceward binary to test")
    parser.add_argument("--only", help="only checks whose names contain this")
    parser.add_argument("--verbose", action="store_true", help="name the checks that pass too")
    for name, (kind, default, meaning) in more.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=meaning)
    arguments = parser.parse_args()
    arguments.binary = os.path.abspath(arguments.binary)
    return arguments


def until(holds, what, patience=PATIENCE):
    """Waits for something that is bound to happen."""
    deadline = time.monotonic() + patience
    while not (found := holds()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)
    return found


def is_equal(got, expected, what=""):
    assert got == expected, f"{what}{': ' if what else ''}{got!r} instead of {expected!r}"
