"""The MCP conformance suite against our fixture server, directly and through the gateway: the results must not differ.

Each scenario is compared check by check, in order, including informative ones. The direct results must be equal to
`conformance/expected.txt`, so that a fixture that gets worse cannot hide a fault of the gateway. The gateway has no
configuration, which is the most common use.

The suite only takes URLs. With --stdio a bridge connects it to the fixture over stdio, and another bridge to the gateway in
front of the fixture. The bridge's own shortcomings are in the expected results.
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

import install

HERE = pathlib.Path(__file__).resolve().parent
EXPECTED = HERE / "conformance" / "expected.txt"
STABLE = "0.1.16"
ALPHA = "0.2.0-alpha.12"

# The runs, each with the suite's version and options. The requirements of 2026-07-28 are every scenario of that protocol
# version, and those of the tasks extension.
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
TIMEOUT = 150

# How long a server may take to print its address.
START = 30

# A folder of results is called `server-SCENARIO-TIME`.
RESULT = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")


class Started:
    """A server whose first line has the address on which it listens."""

    def __init__(self, command, folder):
        folder.mkdir()
        self.errors = folder / "errors"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdout=subprocess.PIPE, stderr=errors, env=environment(), cwd=folder
            )
        # A server that prints nothing is killed, which closes its pipe.
        killer = threading.Timer(START, self.process.kill)
        killer.start()
        line = self.process.stdout.readline().decode()
        killer.cancel()
        if "listens on " not in line:
            self.end()
            raise RuntimeError(f"{command[0]} did not start: {line}{self.said()[-2000:]}")
        # The suite requires the host name instead of the IP address.
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
    """The environment without Onceward's settings and without proxies."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
    kept = {name: value for name, value in kept.items() if not name.lower().endswith("_proxy")}
    return kept


def results(suite, options, url, folder):
    """The results of each scenario's checks, in order."""
    folder.mkdir(parents=True)
    command = [*suite, "server", "--url", url, *options, "-o", str(folder)]
    with (folder / "output").open("wb") as output:
        try:
            subprocess.run(command, stdout=output, stderr=output, env=environment(), timeout=TIMEOUT, check=False)
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
    """Every run, directly and through the gateway at the same time, each with its own server."""
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
    """The expected direct results of the fixture, by run and scenario."""
    listed = collections.defaultdict(lambda: collections.defaultdict(list))
    for line in EXPECTED.read_text().splitlines():
        if line and not line.startswith("#"):
            run, scenario, check, status = line.split()
            listed[run][scenario].append((check, status))
    return listed


def write_expected(listed, direct):
    """Writes the results of these runs to the list of expected ones. A person has to review the change."""
    lines = ["# Made by conformance.py --write: which run, scenario and check comes to what, without a gateway."]
    for run, scenarios in direct.items():
        listed[run] = {scenario: bare(checks) for scenario, checks in scenarios.items()}
    for run, scenarios in sorted(listed.items()):
        for scenario, checks in sorted(scenarios.items()):
            lines += [f"{run} {scenario} {check} {status}" for check, status in checks]
    EXPECTED.write_text("\n".join(lines) + "\n")


def bare(checks):
    """Checks without their messages, which contain times and ports."""
    return [(check, status) for check, status, _ in checks]


def difference(what, wanted, got):
    """The checks that are in only one of two lists."""
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
    """Whether the gateway (or the bridge to it) still runs and has not panicked."""
    if gateway.lives() and "panicked" not in gateway.said():
        return True
    print(f"FAILED: the gateway came to harm\n{gateway.said()[-2000:]}")
    return False


def recorded(binary, ledger, came):
    """Whether calls are in the ledger: a gateway that only forwards messages would otherwise pass.

    Records of delivered calls may be deleted; a failed call stays, open for another attempt.
    """
    if not any("tools-call-error" in scenarios for scenarios in came.values()):
        return True
    command = [binary, "list", "--store", str(ledger), "--limit", "1000", "--json"]
    told = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=TIMEOUT, check=False)
    if "/test_error_handling" in told.stdout:
        return True
    print(f"FAILED: a call that must be in the ledger is not\n{told.stdout}{told.stderr}")
    return False


def over_http(start, gateway, python):
    """A fixture, and a gateway in front of a second fixture."""
    fixture = [python, HERE / "conformance_server.py"]
    direct = start("fixture", fixture)
    behind = start("fixture-behind", fixture)
    return direct, start("gateway-before", [*gateway, "--upstream", behind.url, "--listen", "127.0.0.1:0"])


def over_stdio(start, gateway, python, folder):
    """A bridge to fixtures, and a bridge to gateways in front of fixtures."""
    warm = folder / "warm"
    start("fixture", [python, HERE / "conformance_server.py", "--warm", warm])
    bridge = [sys.executable, HERE / "bridge.py", "--"]
    fixture = [sys.executable, HERE / "conformance_stdio.py", warm]
    direct = start("bridge", [*bridge, *fixture])
    return direct, start("bridge-before", [*bridge, *gateway, "--", *fixture])


def in_place(arguments, python, suites):
    """Starts the servers, runs the suite and stops the servers."""
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
    """Prints and counts the scenarios that cannot run."""
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
    python, why_no_python = install.python("mcp2")
    suites, why = {}, {}
    for run in runs:
        suite, missing = install.conformance_suite(offered[run][0])
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
