#!/usr/bin/env python3
"""Real clients call an upstream that fails on purpose through the gateway: effects and responses follow the policy.

    tests/http/clients.py --binary target/debug/onceward     every client, every fault, honours_key true and false
    tests/http/clients.py --direct                           the same without a gateway: how often things happen twice

Installs the clients below `target/`. Exits with 1 if a result differs from expectations.py.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import dataclasses
import http.client
import json
import os
import secrets
import shutil
import sys
import threading
import time
import urllib.parse
import uuid

import environment
import expectations
from expectations import CLASSES, DIRECT, EVERY, GATEWAYS, KEYED, PLANNED, WAYS, Way, class_of, rows
from gateway import Gateway
from upstream import Upstream

# Cases mostly wait.
THREADS = 24

# Longer than any planned delay, so that a repeat of a running request gets its response.
WAIT = "10s"


# How often a case that needs a reused connection is tried until it gets one.
KEPT_TRIES = 5


@dataclasses.dataclass(frozen=True)
class Case:
    group: str
    client: str
    fault: str
    honours: bool

    def __str__(self):
        return f"{self.client} · {self.fault} · {self.group} · honours_key {str(self.honours).lower()}"


class Setup:
    """An upstream for a group of cases, and a gateway in front of it if there is a binary."""

    def __init__(self, honours, options=None, binary=None):
        self.upstream = Upstream(honours)
        self.gateway = Gateway(binary, self.upstream.url, options) if binary else None
        self.url = self.gateway.url if binary else self.upstream.url

    def stop(self):
        status, errors = self.gateway.stop() if self.gateway else (0, "")
        self.upstream.stop()
        faults = [f"called without a plan: {call}" for call in self.upstream.unnamed]
        if status != 0 or "panicked" in errors:
            faults.append(f"the gateway ended with {status}: {errors[-2000:]}")
        return faults


def run(setup, client, fault):
    """Runs a client against a fault. Returns what the client got and what the upstream saw."""
    way, key = WAYS.get(fault, Way()), None
    case = f"case-{secrets.token_hex(6)}"
    setup.upstream.plan(case, PLANNED.get(fault, fault))
    # curl makes no keys, and the upstream cannot record the key of a call that does not arrive.
    if client.name == "curl" or (way.connection and client.name in KEYED):
        key = f"order-{uuid.uuid4()}"
    words = f"{case} for {client.name}"
    if fault == "refused":
        setup.upstream.refuse()
    if fault == "reset before":
        setup.upstream.reset_next(1)
    with kept_connections(setup.url) if way.warm else contextlib.nullcontext():
        got = client.call(setup.url, words, key, way.retries, way.timeout)
    if fault == "refused":
        setup.upstream.listen()
    return got, setup.upstream.seen(case), key, case, words


@contextlib.contextmanager
def kept_connections(url):
    """Keeps idle connections from the gateway to the upstream open while a client starts."""
    keep_connections(url)
    is_over = threading.Event()

    def keep():
        while not is_over.wait(0.2):
            with contextlib.suppress(OSError, http.client.HTTPException):
                keep_connections(url)

    keeping = threading.Thread(target=keep)
    keeping.start()
    try:
        yield
    finally:
        is_over.set()
        keeping.join()


def keep_connections(url):
    """Opens connections on every thread of the gateway: it is unknown which thread will serve the next client."""
    host = urllib.parse.urlsplit(url)
    clients = [http.client.HTTPConnection(host.hostname, host.port, timeout=20) for _ in range(2 * os.cpu_count())]
    # All at the same time: each goes to the thread with the fewest connections.
    for client in clients:
        client.connect()
    for client in clients:
        client.request("GET", "/v1/customers")
        client.getresponse().read()
        client.close()


def run_on_kept_connection(setup, client, fault):
    """As `run`, on a reused connection where the fault needs one.

    Connections go to the thread with the fewest, and those of earlier cases may close in between. Then the fault did not
    occur, and the case is run again.
    """
    for _ in range(KEPT_TRIES):
        met = run(setup, client, fault)
        if not WAYS.get(fault, Way()).warm or met[1].reused:
            return met
    return met


def judge(setup, client, case):
    """What is wrong in one case, and what was seen."""
    first, seen, key, name, words = run_on_kept_connection(setup, client, case.fault)
    used = key or next((key for key in seen.keys if key), None)
    again = client.call(setup.url, words, used if client.name in KEYED else None, 0, 20.0)
    after = setup.upstream.seen(name)
    expected = rows(case.fault, case.client, GATEWAYS[case.group], case.honours)
    verdicts = [compare(row, client.name, first, seen, again, after) for row in expected]
    faults = min(verdicts, key=len)
    if client.name in KEYED and len(set(after.keys)) > 1:
        faults = faults + [f"the upstream saw several keys: {after.keys}"]
    if client.name in KEYED and key and set(after.keys) - {key}:
        faults = faults + [f"the key was not passed on unchanged: {after.keys}"]
    if case.fault == "reset after, kept connection" and not seen.reused:
        faults = faults + ["no connection was kept"]
    if case.honours and (None in after.keys or len(set(after.keys)) > 1):
        faults = faults + [f"an upstream that honours keys needs the same one each time: {after.keys}"]
    return faults, (first, seen, again, after)


def compare(row, client, first, seen, again, after):
    faults = []
    if seen.effects != row.effects:
        faults.append(f"{seen.effects} effects, not {row.effects}")
    if seen.calls != row.calls:
        faults.append(f"{seen.calls} calls, not {row.calls}")
    faults += [f"answer: {fault}" for fault in compare_answer(row.final, client, first, None)]
    if after.effects != row.effects_later:
        faults.append(f"{after.effects} effects after one more try, not {row.effects_later}")
    faults += [f"one more try: {fault}" for fault in compare_answer(row.later, client, again, first)]
    return faults


def compare_answer(expected, client, got, before):
    """Compares a response. A client's own retry may get a replay of a response that it never received, so only a later call
    must be marked as a replay."""
    if expected in ("object", "replay"):
        if not got.id or got.status != 200:
            return [f"{got}, not {expected}; {got.text[:300]}"]
        if expected == "replay" and not got.replayed:
            return [f"{got} is not marked as a replay"]
        if expected == "replay" and before.id and before.id != got.id:
            return [f"{got}, not the {before.id} from before"]
        if expected == "object" and before and got.replayed:
            return [f"{got}, not a new one"]
        return []
    if got.error != class_of(client, expected):
        return [f"{got}, not {expected} as {class_of(client, expected)}; {got.text[:300]}"]
    if expected == "doubt":
        return [] if got.in_doubt else [f"{got}, not in doubt; {got.text[:300]}"]
    if expected in ("no answer", "broken off"):
        return [] if got.status is None else [f"{got}, not without an answer"]
    status = int(expected.removesuffix(" kept"))
    if got.status != status or got.in_doubt:
        return [f"{got}, not {expected}; {got.text[:300]}"]
    # A client's own retry already gets the replay of a kept failure, so only later calls are checked.
    if before and got.replayed != expected.endswith(" kept"):
        return [f"{got} is marked wrongly for {expected}"]
    return []


def judge_direct(setup, client, case):
    got, seen, _, _, _ = run(setup, client, case.fault)
    expected = DIRECT[case.fault].get(case.client, DIRECT[case.fault]["*"])
    faults = [] if seen.effects == expected else [f"{seen.effects} effects, not {expected}; the client has {got}"]
    return faults, (got, seen, None, seen)


def everything(arguments, clients):
    """Every case with its setup, and all setups."""
    setups, cases = {}, []
    if arguments.direct:
        for client in clients:
            setups[client] = Setup(honours=False)
            cases += [(Case("direct", client, fault, False), setups[client]) for fault in DIRECT]
        return setups, cases
    for name, group in GATEWAYS.items():
        there = [client for client in group.clients if client in clients]
        for honours in (False, True) if there else ():
            options = ["--profile", group.profile, "--key-mode", group.key_mode, "--tenant", group.tenant]
            options += [*(group.options or ("--wait", WAIT)), *(["--honours-key"] if honours else [])]
            setup = setups[name, honours] = Setup(honours and not group.deceived, options, arguments.binary)
            cases += [(Case(name, client, fault, honours), setup) for client in there for fault in group.faults]
    return setups, cases


def cases_of(clients, direct):
    """How many cases these clients have."""
    if direct:
        return len(clients) * len(DIRECT)
    groups = [(len([client for client in group.clients if client in clients]), group) for group in GATEWAYS.values()]
    return sum(2 * count * len(group.faults) for count, group in groups)


def chosen(arguments, cases):
    return [(case, setup) for case, setup in cases if arguments.only in str(case)]


def run_all(cases, clients, judged):
    """Runs cases concurrently; those that break connections come last, and one after another in each setup."""
    results = {}

    def one(case, setup):
        try:
            results[case] = judged(setup, clients[case.client], case)
        except Exception as error:  # a client that fails to run is a failed case; the others continue
            results[case] = ([f"{type(error).__name__}: {error}"], None)

    alone = collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for case, setup in cases:
            if WAYS.get(case.fault, Way()).connection:
                alone[id(setup)].append((case, setup))
            else:
                pool.submit(one, case, setup)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for group in alone.values():
            pool.submit(lambda group=group: [one(case, setup) for case, setup in group])
    return results


def print_table(results):
    """Prints the number of effects for each fault and client; with a gateway, honours_key false and then true."""
    cells = collections.defaultdict(list)
    for case in sorted(results, key=lambda case: case.honours):
        faults, seen = results[case]
        apart = f" ({case.group})" if case.group in ("acp", "deceived") else ""
        cell = ("FAILED " if faults else "") + (str(seen[3].effects) if seen else "?")
        cells[case.fault, case.client + apart].append(cell)
    columns = sorted({column for _, column in cells})
    lines = [["effects", *columns]]
    for fault in sorted({fault for fault, _ in cells}, key=EVERY.index):
        lines.append([fault, *(" / ".join(cells[fault, column]) or "-" for column in columns)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def duplicates(results):
    """Checks that effects do happen twice without a gateway; otherwise the tests with a gateway prove nothing."""
    lost = {case.client: seen[3].effects for case, (_, seen) in results.items() if case.fault == "lost" and seen}
    twice = {client for client, effects in lost.items() if effects > 1}
    keyless = {client for client in expectations.KEYLESS if DIRECT["lost"].get(client, 2) > 1}
    keyless &= {case.client for case in results}
    return [] if keyless and keyless <= twice else [f"without a gateway, a lost answer has to act twice for {keyless}"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", help="the onceward binary to test")
    parser.add_argument("--direct", action="store_true", help="no gateway: see what happens twice")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--verbose", action="store_true", help="a line for each case")
    parser.add_argument("--installed", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.binary and not arguments.direct:
        parser.error("say --binary PATH, or --direct")
    if not arguments.installed:
        start_inside()
    return tested(arguments, json.loads(arguments.installed))


def start_inside():
    """Starts this program again in the environment that has the clients."""
    python, no_python = environment.python("http")
    programs, no_node = environment.node()
    no_curl = None if shutil.which("curl") else "curl is not installed"
    reasons = {client: no_python for client in CLASSES} | {"stripe-node": no_node, "curl": no_curl}
    absent = {client: reason for client, reason in reasons.items() if reason}
    found = json.dumps({"programs": str(programs), "absent": absent})
    os.execv(python or sys.executable, [str(python or sys.executable), *sys.argv, "--installed", found])


def tested(arguments, installed):
    import drivers

    started = time.monotonic()
    clients = drivers.all_of_them(installed["programs"], installed["absent"])
    setups, cases = everything(arguments, clients)
    results = run_all(chosen(arguments, cases), clients, judge_direct if arguments.direct else judge)
    faults = [fault for setup in setups.values() for fault in setup.stop()]
    if "stripe-node" in clients:
        clients["stripe-node"].close()
    if arguments.direct and not arguments.only and not installed["absent"]:
        faults += duplicates(results)
    for case, (wrong, seen) in results.items():
        if wrong or arguments.verbose:
            print(f"{'FAILED' if wrong else 'ok'}: {case}: {'; '.join(wrong)}")
        if arguments.verbose and seen:
            print(f"    {seen[0]} · {seen[1].effects} effects, {seen[1].calls} calls · then {seen[2]}")
    for fault in faults:
        print(f"FAILED: {fault}")
    print_table(results)
    for client, why in installed["absent"].items():
        print(f"skipped: {client}: {why}")
    failed = sum(bool(wrong) for wrong, _ in results.values()) + len(faults)
    passed, skipped = len(results) + len(faults) - failed, cases_of(installed["absent"], arguments.direct)
    seconds = time.monotonic() - started
    print(f"took {seconds:.0f} s")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not results and not skipped else 0


if __name__ == "__main__":
    sys.exit(main())
