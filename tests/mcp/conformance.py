"""The MCP conformance suite against our own fixture server, once directly and once through the gateway: nothing may differ.

Each scenario is compared check by check, in order, what is only informative included. And what comes directly has to be what
`conformance/expected.txt` says, in both directions, so that a fixture that gets worse cannot hide what the gateway breaks.
The gateway has no configuration, as most people run it.

The suite only takes addresses. With --stdio there is a bridge before the fixture, and before the gateway before the fixture,
which both are on standard input and output then. What the bridge itself falls short of is in the list of what is expected.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

import conformance_install as install

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE / "conformance" / "expected.txt"
STABLE = "0.1.16"
ALPHA = "0.2.0-alpha.12"

# What is run, by version of the suite and what it is told. The requirements of 2026-07-28 are every scenario of that
# generation, and the tasks extension's.
RUNS = {
    "stable": (STABLE, ["--suite", "active"]),
    "stable-pending": (STABLE, ["--suite", "pending"]),
    "alpha-2025-11-25": (ALPHA, ["--suite", "all", "--spec-version", "2025-11-25"]),
    "alpha-2026-07-28": (ALPHA, ["--requirements", "2026-07-28"]),
}
STDIO_RUNS = {
    "stdio-2025-11-25": (ALPHA, ["--suite", "all", "--spec-version", "2025-11-25"]),
    "stdio-2026-07-28": (ALPHA, ["--requirements", "2026-07-28"]),
}

# A run takes 30 s at most on an idle machine.
PATIENCE = 150

# How long a server may take to say where it listens.
START = 30

# A folder of results is called `server-SCENARIO-TIME`.
RESULT = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


class Started:
    """A server that says on its first line where it listens. It is ended by its own id."""

    def __init__(self, command, folder):
        folder.mkdir()
        self.errors = folder / "errors"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdout=subprocess.PIPE, stderr=errors, env=environment(), cwd=folder
            )
        # A server that never speaks is ended, and its pipe with it.
        patience = threading.Timer(START, self.process.kill)
        patience.start()
        line = self.process.stdout.readline().decode()
        patience.cancel()
        if "listens on " not in line:
            self.end()
            raise RuntimeError(f"{command[0]} did not start: {line}{self.said()[-2000:]}")
        # The suite wants the name, not the address.
        self.url = line.split("listens on ")[1].strip().replace("127.0.0.1", "localhost")

    def said(self):
        return self.errors.read_text(errors="replace")

    def lives(self):
        return self.process.poll() is None

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment():
    """Nothing of ours comes in from the outside, and nothing that stays on this machine goes through a proxy."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
    kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1"}


def results(suite, options, url, folder):
    """What each scenario's checks came to, in their order."""
    folder.mkdir(parents=True)
    command = [*suite, "server", "--url", url, *options, "-o", str(folder)]
    with (folder / "output").open("wb") as output:
        try:
            subprocess.run(command, stdout=output, stderr=output, env=environment(), timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            output.write(b"\nnot done in time\n")
    found = {}
    if not any(folder.glob("*/checks.json")):
        print(f"nothing came of {' '.join(command)}\n{(folder / 'output').read_text(errors='replace')[-2000:]}")
    for file in sorted(folder.glob("*/checks.json")):
        checks = json.loads(file.read_text())
        found[RESULT.fullmatch(file.parent.name)[1]] = [(check["id"], check["status"], said(check)) for check in checks]
    return found


def said(check):
    return check.get("errorMessage") or ""


def run_all(folder, suites, direct, gateway):
    """Every run, directly and through the gateway at the same time, each with a server of its own."""
    runs = RUNS | STDIO_RUNS
    came = {"direct": {}, "gateway": {}}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for run, suite in suites.items():
            options = runs[run][1]
            first = pool.submit(results, suite, options, direct.url, folder / "direct" / run)
            second = pool.submit(results, suite, options, gateway.url, folder / "gateway" / run)
            came["direct"][run], came["gateway"][run] = first.result(), second.result()
    return came


def expected():
    """What the fixture comes to directly, by run and scenario."""
    listed = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in EXPECTED.read_text().splitlines():
        if line and not line.startswith("#"):
            run, scenario, check, status = line.split()
            listed[run][scenario].append((check, status))
    return listed


def write_expected(listed, direct):
    """Makes the list anew, as far as it was run. A person has to read what changed."""
    lines = ["# Made by conformance.py --write: which run, scenario and check comes to what, without a gateway."]
    for run, scenarios in direct.items():
        listed[run] = {scenario: bare(checks) for scenario, checks in scenarios.items()}
    for run, scenarios in sorted(listed.items()):
        for scenario, checks in sorted(scenarios.items()):
            lines += [f"{run} {scenario} {check} {status}" for check, status in checks]
    EXPECTED.write_text("\n".join(lines) + "\n")


def bare(checks):
    """Checks without what they said, which has times and ports in it."""
    return [(check, status) for check, status, _ in checks]


def difference(what, wanted, got):
    """Which checks are only in one of two lists; or nothing, if they are the same."""
    if bare(wanted) == bare(got):
        return []
    missing = collections.Counter(bare(wanted)) - collections.Counter(bare(got))
    surplus = collections.Counter(bare(got)) - collections.Counter(bare(wanted))
    words = {(check, status): text for check, status, text in got}
    lines = [f"  {what}: no longer {check} {status}" for check, status in missing.elements()]
    lines += [f"  {what}: now {check} {status} {words[check, status]}" for check, status in surplus.elements()]
    return lines or [f"  {what}: the same checks in another order"]


def faults(listed, direct, gateway):
    """What is wrong with one scenario."""
    if not listed:
        return ["  it is not in the list of what is expected"]
    wanted = [(check, status, "") for check, status in listed]
    return difference("directly", wanted, direct) + difference("through the gateway", direct, gateway)


def judge(listed, came, run):
    passed = failed = 0
    direct, gateway = came["direct"][run], came["gateway"][run]
    for scenario in sorted({*listed[run], *direct, *gateway}):
        wrong = faults(listed[run].get(scenario), direct.get(scenario, []), gateway.get(scenario, []))
        if wrong:
            print(f"FAILED: {run} {scenario}", *wrong, sep="\n")
        passed, failed = passed + (not wrong), failed + bool(wrong)
    return passed, failed


def unharmed(gateway):
    """The gateway lived through it all. Before a bridge, this is the bridge, with what its gateways said."""
    if gateway.lives() and "panicked" not in gateway.said():
        return True
    print(f"FAILED: the gateway came to harm\n{gateway.said()[-2000:]}")
    return False


def recorded(binary, ledger, came):
    """Calls went by way of the ledger: a gateway that only passes everything on would look just as good.

    What was done and delivered may be forgotten; a tool that failed stays, as free to be tried again.
    """
    if not any("tools-call-error" in scenarios for scenarios in came.values()):
        return True
    command = [binary, "list", "--store", str(ledger), "--limit", "1000", "--json"]
    told = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=PATIENCE, check=False)
    if "/test_error_handling" in told.stdout:
        return True
    print(f"FAILED: a call that must be in the ledger is not\n{told.stdout}{told.stderr}")
    return False


def over_http(start, gateway, python):
    """A fixture, and a gateway before another one."""
    fixture = [python, HERE / "conformance_server.py"]
    direct = start("fixture", fixture)
    behind = start("fixture-behind", fixture)
    return direct, start("gateway-before", [*gateway, "--upstream", behind.url, "--listen", "127.0.0.1:0"])


def over_stdio(start, gateway, python, folder):
    """A bridge to fixtures, and a bridge to gateways before fixtures."""
    warm = folder / "warm"
    start("fixture", [python, HERE / "conformance_server.py", "--warm", warm])
    bridge = [sys.executable, HERE / "bridge.py", "--"]
    fixture = [sys.executable, HERE / "conformance_stdio.py", warm]
    direct = start("bridge", [*bridge, *fixture])
    return direct, start("bridge-before", [*bridge, *gateway, "--", *fixture])


def in_place(arguments, python, suites):
    """Starts what is needed, runs everything and ends what was started."""
    with tempfile.TemporaryDirectory(prefix="onceward-conformance-") as own:
        folder = pathlib.Path(own)
        gateway = [arguments.binary, "mcp", "--store", folder / "ledger.db"]
        started = []

        def start(name, command):
            started.append(Started(command, folder / name))
            return started[-1]

        try:
            if arguments.stdio:
                direct, before = over_stdio(start, gateway, python, folder)
            else:
                direct, before = over_http(start, gateway, python)
            came = run_all(folder, suites, direct, before)
            return came, [unharmed(before), recorded(arguments.binary, folder / "ledger.db", came["gateway"])]
        finally:
            for one in reversed(started):
                one.end()


def skip(listed, runs, why):
    """Says loudly what was not looked at, and counts it."""
    count = sum(len(listed[run]) for run in runs)
    for run in runs:
        print(f"SKIPPED: {run}, {len(listed[run])} scenarios: {why[run]}")
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=os.path.abspath, help="the onceward binary to test")
    parser.add_argument("--only", help="only runs whose names contain this: " + ", ".join(RUNS | STDIO_RUNS))
    parser.add_argument("--stdio", action="store_true", help="on standard input and output, behind a bridge")
    parser.add_argument("--write", action="store_true", help="make the expected list anew")
    arguments = parser.parse_args()
    offered = STDIO_RUNS if arguments.stdio else RUNS
    runs = [run for run in offered if not arguments.only or arguments.only in run]
    python, why_no_python = install.python()
    suites, why = {}, {}
    for run in runs:
        suite, missing = install.suite(offered[run][0])
        if why_no_python or missing:
            why[run] = why_no_python or missing
        else:
            suites[run] = suite
    listed = expected()
    skipped = skip(listed, why, why)
    passed = failed = 0
    if suites:
        came, well = in_place(arguments, python, suites)
        if arguments.write:
            write_expected(listed, came["direct"])
            listed = expected()
        for run in suites:
            some_passed, some_failed = judge(listed, came, run)
            passed, failed = passed + some_passed, failed + some_failed
        passed, failed = passed + sum(well), failed + well.count(False)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
