#!/usr/bin/env python3
"""Measures guarded calls of the Python package beside idemkit and CTRLRun, round by round, and writes docs/benchmarks-python.md.

sdk/python/benchmarks/compare.py --package FOLDER --peers PYTHON [--rounds 5] [--seconds 2]

FOLDER has the package with a release build (tests/python/assemble.py), PYTHON is an interpreter with requirements.txt installed.
Needs redis-server.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs" / "benchmarks-python.md"

# Name, what it is, whether its repeats get the result.
PEERS = {
    "onceward-file": ("Onceward, a file, threads", True),
    "onceward-file-async": ("Onceward, a file, async", True),
    "onceward-memory": ("Onceward, memory", True),
    "idemkit-redis": ("idemkit, Redis (appendfsync always)", True),
    "idemkit-memory": ("idemkit, memory", True),
    "ctrlrun-sqlite": ("CTRLRun, SQLite", False),
}
CALLERS = (1, 16)


class Worker:
    def __init__(self, peer, callers, python, folder, environment):
        folder.mkdir()
        command = [python, HERE / "worker.py", peer, folder, callers]
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.process.stdout.readline() == "ready\n", f"{peer} did not start"

    def measure(self, command, seconds):
        self.process.stdin.write(f"{command} {seconds}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


class Redis:
    """A server of our own, which syncs every write as a ledger does."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        options = ["--port", self.port, "--bind", "127.0.0.1", "--dir", folder, "--appendonly", "yes", "--save", ""]
        command = ["redis-server", *map(str, options), "--appendfsync", "always"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("redis-server did not start")

    def cpu(self):
        """Seconds of processor time that the server has used."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def import_time(python, environment):
    """Milliseconds that importing the package adds, the median of several starts."""

    def once(code):
        start = time.perf_counter()
        subprocess.run([python, "-c", code], env=environment, check=True)
        return (time.perf_counter() - start) * 1e3

    return statistics.median(once("import onceward") - once("pass") for _ in range(9))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--package", type=pathlib.Path, required=True)
    parser.add_argument("--peers", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    if not shutil.which("redis-server"):
        sys.exit("redis-server is not installed")
    with tempfile.TemporaryDirectory(prefix="onceward-bench-") as folder:
        folder = pathlib.Path(folder)
        redis = Redis(folder)
        environment = os.environ | {
            "PYTHONPATH": str(given.package.absolute()),
            "REDIS_URL": f"redis://127.0.0.1:{redis.port}/0",
        }
        try:
            results = {callers: rounds(callers, given, folder, environment, redis) for callers in CALLERS}
            started = import_time(given.peers, environment)
        finally:
            redis.process.terminate()
            redis.process.wait(10)
    PAGE.write_text(page(results, started, given))
    print(PAGE.read_text())


def rounds(callers, given, folder, environment, redis):
    """Every peer in every round, so that a slow moment of the machine meets all of them."""
    workers = {
        peer: Worker(peer, callers, given.peers, folder / f"{peer}-{callers}", environment) for peer in PEERS
    }
    found = {peer: {"pairs": [], "replays": []} for peer in PEERS}
    for number in range(given.rounds):
        print(f"round {number + 1} of {given.rounds}, {callers} callers", file=sys.stderr)
        for peer, (_, replays) in PEERS.items():
            for command in ("pairs", "replays") if replays else ("pairs",):
                cpu = redis.cpu()
                measured = workers[peer].measure(command, given.seconds)
                if peer.endswith("redis"):
                    measured["cpu"] += redis.cpu() - cpu
                found[peer][command].append(measured)
    for worker in workers.values():
        worker.end()
    return found


def row(peer, measured, reference):
    name, replays = PEERS[peer]
    rate = [one["count"] / one["lasted"] for one in measured["pairs"]]
    cpu = statistics.median(one["cpu"] / max(one["count"], 1) * 1e6 for one in measured["pairs"])
    ratio = statistics.median(ours / theirs for ours, theirs in zip(reference, rate, strict=True))
    replay = f"{statistics.median(one['p50_us'] for one in measured['replays']):.1f} µs" if replays else "raises"
    return f"| {name} | {statistics.median(rate):,.0f} | {ratio:.1f} × | {cpu:,.0f} µs | {replay} |"


def page(results, started, given):
    text = [
        "# Python: benchmarks",
        "",
        f"Measured on {datetime.date.today()} with Python {platform.python_version()} on {os.cpu_count()} cores by",
        f"`sdk/python/benchmarks/compare.py`: {given.rounds} interleaved rounds of {given.seconds:g} s. A pair is one guarded call:",
        "claim, a function that only returns, and its result of about 230 bytes kept. Ratios are medians of the rounds' own ratios.",
        "Processor time includes the Redis server. A file and Redis sync every write to the disk; CTRLRun uses its defaults, which",
        "do not (`synchronous=NORMAL`), and refuses repeats instead of replaying the result.",
        "",
    ]
    for callers, found in results.items():
        reference = [one["count"] / one["lasted"] for one in found["onceward-file"]["pairs"]]
        text += [
            f"## {callers} caller{'s' if callers > 1 else ''} at once",
            "",
            "| library | pairs/s | Onceward (file, threads) is | processor time a pair | a repeat, p50 |",
            "|---|--:|--:|--:|--:|",
            *(row(peer, measured, reference) for peer, measured in found.items()),
            "",
        ]
    text.append(f"Importing the package takes {started:.0f} ms.")
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    main()
