#!/usr/bin/env python3
"""Real clients through the gateway to an upstream that fails on purpose: effects and answers are what the policy says.

    tests/http/clients.py --binary target/debug/onceward     every client, every fault, honours_key true and false
    tests/http/clients.py --direct                           the same without a gateway: how often things happen twice

Installs the clients by name below `target/tests-http/`. Exits with 1 if anything is not as written in expectations.py.
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
import sys
import threading
import time
import urllib.parse
import uuid

import expectations
import install
from expectations import CLASSES, DIRECT, EVERY, GATEWAYS, KEYED, PLANNED, WAYS, Way, class_of, rows
from gateway import Gateway
from upstream import Upstream

# Cases wait more than they work.
THREADS = 24

# Longer than any planned delay, so that a repeat of running work gets its answer.
WAIT = "10s"


# How often a case that needs a kept connection is tried until it meets one.
KEPT_TRIES = 5


@dataclasses.dataclass(frozen=True)
class Case:
    group: str
    client: str
    fault: str
    honours: bool

    def __str__(self):
        return f"{self.client} · {self.fault} · {self.group} · honours_key {str(self.honours).lower()}"


class Place:
    """Where a group of cases runs: an upstream of its own, and a gateway before it, or none."""

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


def run(place, client, fault):
    """Lets a client meet a fault, and says what happened at both ends."""
    way, key = WAYS.get(fault, Way()), None
    case = f"case-{secrets.token_hex(6)}"
    place.upstream.plan(case, PLANNED.get(fault, fault))
    # curl has no key of its own making, and a call that does not arrive leaves no trace of one.
    if client.name == "curl" or (way.connection and client.name in KEYED):
        key = f"order-{uuid.uuid4()}"
    words = f"{case} for {client.name}"
    if fault == "refused":
        place.upstream.refuse()
    if fault == "reset before":
        place.upstream.reset_next(1)
    with kept_connections(place.url) if way.warm else contextlib.nullcontext():
        got = client.call(place.url, words, key, way.retries, way.timeout)
    if fault == "refused":
        place.upstream.listen()
    return got, place.upstream.seen(case), key, case, words


@contextlib.contextmanager
def kept_connections(url):
    """Connections of the gateway are kept for a client, however long it takes to start."""
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
    """Every thread of the gateway has connections of its own, and whose the next client gets nobody knows."""
    host = urllib.parse.urlsplit(url)
    clients = [http.client.HTTPConnection(host.hostname, host.port, timeout=20) for _ in range(2 * os.cpu_count())]
    # All at once: each goes to the thread that has the fewest.
    for client in clients:
        client.connect()
    for client in clients:
        client.request("GET", "/v1/customers")
        client.getresponse().read()
        client.close()


def run_on_kept_connection(place, client, fault):
    """As `run`, on a connection that the gateway kept where the fault needs one.

    Connections go to the thread with the fewest, and those of earlier cases may close in between. Then the case did not take
    place, and is tried anew.
    """
    for _ in range(KEPT_TRIES):
        met = run(place, client, fault)
        if not WAYS.get(fault, Way()).warm or met[1].reused:
            return met
    return met


def judge(place, client, case):
    """The faults of one case, and what was seen."""
    first, seen, key, name, words = run_on_kept_connection(place, client, case.fault)
    used = key or next((key for key in seen.keys if key), None)
    again = client.call(place.url, words, used if client.name in KEYED else None, 0, 20.0)
    after = place.upstream.seen(name)
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
    """The client's own tries may end in a replay of what it has not seen yet, so only a later one has to be marked."""
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
    # A client's own second try already gets the replay of a kept failure, so this speaks of later ones.
    if before and got.replayed != expected.endswith(" kept"):
        return [f"{got} is marked wrongly for {expected}"]
    return []


def judge_direct(place, client, case):
    got, seen, _, _, _ = run(place, client, case.fault)
    expected = DIRECT[case.fault].get(case.client, DIRECT[case.fault]["*"])
    faults = [] if seen.effects == expected else [f"{seen.effects} effects, not {expected}; the client has {got}"]
    return faults, (got, seen, None, seen)


def everything(arguments, clients):
    """Every case with its place, and the places."""
    places, cases = {}, []
    if arguments.direct:
        for client in clients:
            places[client] = Place(honours=False)
            cases += [(Case("direct", client, fault, False), places[client]) for fault in DIRECT]
        return places, cases
    for name, group in GATEWAYS.items():
        there = [client for client in group.clients if client in clients]
        for honours in (False, True) if there else ():
            options = ["--profile", group.profile, "--key-mode", group.key_mode, "--tenant", group.tenant]
            options += [*(group.options or ("--wait", WAIT)), *(["--honours-key"] if honours else [])]
            place = places[name, honours] = Place(honours and not group.deceived, options, arguments.binary)
            cases += [(Case(name, client, fault, honours), place) for client in there for fault in group.faults]
    return places, cases


def chosen(arguments, cases):
    return [(case, place) for case, place in cases if arguments.only in str(case)]


def run_all(cases, clients, judged):
    """Cases side by side; those that break connections one after another in their place, after all others."""
    results = {}

    def one(case, place):
        try:
            results[case] = judged(place, clients[case.client], case)
        except Exception as error:  # a client that dies is a failed case, and the others go on
            results[case] = ([f"{type(error).__name__}: {error}"], None)

    alone = collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for case, place in cases:
            if WAYS.get(case.fault, Way()).connection:
                alone[id(place)].append((case, place))
            else:
                pool.submit(one, case, place)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for group in alone.values():
            pool.submit(lambda group=group: [one(case, place) for case, place in group])
    return results


def print_table(results):
    """Effects for each fault and client; with a gateway, honours_key false and then true."""
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
    """What the direct mode has to show, or the zeros of the other mode mean nothing."""
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
    """Starts over in the environment in which the clients are installed."""
    python, missing = install.python()
    packages = {client: client.removesuffix("-python").split()[0] for client in CLASSES}
    absent = {client: "pip could not install it" for client, package in packages.items() if package in missing}
    node, why = install.node()
    absent |= {"stripe-node": why} if why else {}
    absent |= {"curl": install.curl()} if install.curl() else {}
    found = json.dumps({"node": str(node), "absent": absent})
    os.execv(python, [str(python), *sys.argv, "--installed", found])


def tested(arguments, installed):
    import callers

    started = time.monotonic()
    clients = callers.all_of_them(installed["node"], installed["absent"])
    places, cases = everything(arguments, clients)
    results = run_all(chosen(arguments, cases), clients, judge_direct if arguments.direct else judge)
    faults = [fault for place in places.values() for fault in place.stop()]
    if "stripe-node" in clients:
        clients["stripe-node"].close()
    if arguments.direct and not arguments.only:
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
    passed, skipped, seconds = len(results) + len(faults) - failed, len(installed["absent"]), time.monotonic() - started
    print(f"took {seconds:.0f} s")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not results else 0


if __name__ == "__main__":
    sys.exit(main())
