"""Runs checks concurrently and counts them. A check is a function that raises an exception when it fails."""

import argparse
import concurrent.futures
import os
import time
import traceback

# Checks mostly wait.
THREADS = 12

# A limit for events that must happen, also on a busy machine.
TIMEOUT = 20.0


def run(checks, skipped=None):
    """Runs all checks and prints the results. Returns the exit code, which is 1 if a check failed."""
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
    except Exception:  # an exception of any kind is a failure
        return traceback.format_exc()
    return None


def binary(description):
    """The path of the binary from the command line."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the onceward binary to test")
    return os.path.abspath(parser.parse_args().binary)


def until(holds, what):
    """Waits until a condition holds, and fails if it does not hold in time."""
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)


def is_equal(got, expected):
    assert got == expected, f"{got!r} instead of {expected!r}"
