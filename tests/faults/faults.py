#!/usr/bin/env python3
"""Faults around the real binary: signals, disks, descriptors, clocks, schemas, servers that outlive their gateway. No effect
happens twice, no effect is lost, and every process ends.

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
from fault_sandbox import FaultSandbox  # noqa: E402

import clocks  # noqa: E402
import descriptors  # noqa: E402
import disks  # noqa: E402
import forgotten_keys  # noqa: E402
import orphaned_servers  # noqa: E402
import recording  # noqa: E402
import schemas  # noqa: E402
import signals  # noqa: E402
import stopped_gateways  # noqa: E402

# Checks mostly wait: a grace period takes 30 seconds.
THREADS = 24

# The longest first.
MODULES = (signals, stopped_gateways, recording, disks, orphaned_servers, forgotten_keys, descriptors, clocks, schemas)


def fault_of(check, binary):
    """Runs a check. Returns what went wrong, if anything, and how long it took."""
    started, sandbox = time.monotonic(), FaultSandbox(binary)
    fault = None
    try:
        check(sandbox)
        sandbox.has_no_panic()
    except checks.Skipped as why:
        fault = why
    except Exception:  # an exception of any kind is a failure
        fault = traceback.format_exc() + sandbox.errors()
    try:
        sandbox.leave()
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
