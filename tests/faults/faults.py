#!/usr/bin/env python3
"""Faults around the real binary: signals, disks, descriptors, clocks, schemas, servers that outlive their gateway. No effect
happens twice, none is lost, and every process ends.

tests/faults/faults.py --binary target/debug/onceward [--only WORDS] [--verbose]
"""

import concurrent.futures
import pathlib
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "mcp"))

import checks  # noqa: E402
from world import World  # noqa: E402

import clocks  # noqa: E402
import descriptors  # noqa: E402
import disks  # noqa: E402
import forgotten  # noqa: E402
import outlived  # noqa: E402
import recording  # noqa: E402
import schemas  # noqa: E402
import signals  # noqa: E402
import stopped  # noqa: E402

# Checks wait far more than they work: a grace period takes 30 seconds.
THREADS = 24

# The longest first.
MODULES = (signals, stopped, recording, disks, outlived, forgotten, descriptors, clocks, schemas)


def fault_of(check, binary):
    """Runs a check. Returns what went wrong, if anything, and how long it took."""
    started, world = time.monotonic(), World(binary)
    fault = None
    try:
        check(world)
        world.holds_nothing_bad()
    except checks.Skipped as why:
        fault = why
    except Exception:  # whatever it is, it is what went wrong
        fault = traceback.format_exc() + world.errors()
    try:
        world.leave()
    except Exception:
        fault = fault or traceback.format_exc()
    return fault, time.monotonic() - started


def main():
    arguments = checks.arguments_of(__doc__)
    every = [check for module in MODULES for check in checks.all_of(vars(module))]
    every = [check for check in every if not arguments.only or arguments.only in checks.name_of(check)]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        ended = list(pool.map(lambda check: fault_of(check, arguments.binary), every))
    skipped = failed = 0
    for check, (fault, seconds) in zip(every, ended, strict=True):
        if isinstance(fault, checks.Skipped):
            skipped += 1
            print(f"SKIPPED: {checks.name_of(check)}: {fault}")
        elif fault:
            failed += 1
            print(f"FAILED: {checks.name_of(check)}\n{fault}")
        elif arguments.verbose:
            print(f"passed in {seconds:.1f} s: {checks.name_of(check)}")
    print(f"{len(every) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
