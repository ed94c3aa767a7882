"""Runs checks, several at once, and counts them. A check is a function that raises when something is wrong."""

import argparse
import concurrent.futures
import os
import time
import traceback

# Checks wait more than they work.
THREADS = 12

# How long anything may take that is bound to happen.
PATIENCE = 20.0


def run(checks, skipped=None):
    """Runs them all, and says what came of them. The exit code is 1 if anything failed."""
    if skipped:
        print(f"skipped: {skipped}")
        print(f"0 passed, 0 failed, {len(checks)} skipped")
        return 0
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        faults = list(pool.map(fault_of, checks))
    for check, fault in zip(checks, faults, strict=True):
        if fault:
            print(f"FAILED: {check.__name__.replace('_', ' ')}\n{fault}")
    failed = sum(bool(fault) for fault in faults)
    print(f"{len(checks) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


def fault_of(check):
    try:
        check()
    except Exception:  # whatever it is, it is what went wrong
        return traceback.format_exc()
    return None


def binary(description):
    """The binary that is named on the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the onceward binary to test")
    return os.path.abspath(parser.parse_args().binary)


def until(holds, what):
    """Waits for something that is bound to happen."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def is_equal(got, expected):
    assert got == expected, f"{got!r} instead of {expected!r}"
