#!/usr/bin/env python3
"""Malformed and hostile requests over raw sockets: no panic, no 5xx from the gateway, no effect.

tests/http/malformed.py --binary target/debug/onceward
"""

import argparse
import collections
import concurrent.futures
import re
import socket
import struct
import sys
import threading
import time

from corpus import BODY, CORPUS, ONCE, post
from frames import FRAMES, request
from gateway import Gateway
from upstream import Upstream

MODES = {
    "required": ("--key-mode", "required"),
    "optional": ("--key-mode", "optional"),
    "derived": ("--key-mode", "derived"),
}

# How long a response may take before it counts as missing.
TIMEOUT = 5.0

# The memory limit of a gateway, whatever it receives; half a gigabyte of zeros is among it.
MOST_MEMORY = 250 * 1024 * 1024

# The valid request from which the entries are made. It is served, so an entry is refused for its fault alone.
GOOD = {
    "length": lambda named: named(post()),
    "chunks": lambda named: named(
        post(b"c\r\n" + BODY + b"\r\n0\r\n\r\n", length=False, extra=("Transfer-Encoding: chunked",))
    ),
    "frames": request(),
}

Answer = collections.namedtuple("Answer", "statuses closed frames")


class Canary:
    """A server that the gateway must never call."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.calls = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            self.calls += 1
            connection.close()


def naming(number, canary, upstream):
    """A function that puts an entry's own names into its bytes."""
    names = {"PLACE": f"/v1/charges/{number}", "KEY": f"key-{number}", "CANARY": str(canary), "UPSTREAM": str(upstream)}

    def named(value):
        for name, real in names.items():
            value = (
                value.replace(name.encode(), real.encode()) if isinstance(value, bytes) else value.replace(name, real)
            )
        return value

    return named


def talk(address, data, end):
    """Sends the bytes and reads until the gateway closes or is silent."""
    with socket.create_connection(address, timeout=TIMEOUT) as connection:
        try:
            connection.sendall(data)
            if end == "half":
                connection.shutdown(socket.SHUT_WR)
            if end == "reset":
                time.sleep(0.1)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return Answer((), True, False)
        except OSError:
            pass  # the gateway refused before it read everything; its response may still be there
        heard, closed = listen(connection)
    if heard[:5] != b"HTTP/" and heard:
        return Answer((), closed, True)
    return Answer(tuple(int(status) for status in re.findall(rb"(?m)^HTTP/1\.[01] (\d{3})", heard)), closed, False)


def listen(connection):
    """The bytes received, and whether the gateway closed. After a response, a short silence is the end."""
    heard = b""
    connection.settimeout(TIMEOUT)
    while True:
        try:
            more = connection.recv(65536)
        except TimeoutError:
            return heard, False
        except OSError:
            return heard, True
        if not more:
            return heard, True
        heard += more
        connection.settimeout(0.3)


def judge(entry, answer, arrived):
    """What is wrong with the result of an entry."""
    faults = []
    if any(status >= 500 for status in answer.statuses):
        faults.append(f"answered {answer.statuses}")
    if entry.expect == ONCE:
        if len(arrived) > 1:
            faults.append(f"arrived {len(arrived)} times")
        if entry.read_as is not None and any(request.body != entry.read_as for request in arrived):
            faults.append(f"arrived as {arrived[0].body[:100]}")
        return faults
    if arrived:
        faults.append(f"reached the upstream: {[(request.method, request.path[:60]) for request in arrived]}")
    if any(status < 400 and status != 100 for status in answer.statuses):
        faults.append(f"answered {answer.statuses}")
    if entry.statuses and answer.statuses[:1] and answer.statuses[0] not in entry.statuses:
        faults.append(f"answered {answer.statuses}, not {entry.statuses}")
    if entry.statuses and not answer.statuses:
        faults.append(f"closed without {entry.statuses}")
    if not answer.statuses and not answer.closed and not answer.frames and not entry.silent:
        faults.append("neither answered nor closed")
    return faults


def run_mode(binary, mode, canary):
    """Runs the entries of a mode. Returns their faults by name."""
    upstream = Upstream(honours=False)
    gateway = Gateway(binary, upstream.url, ("--tenant", "authorization", "--allow-host", "gateway", *MODES[mode]))
    address = ("127.0.0.1", int(gateway.url.rsplit(":", 1)[1]))
    entries = [entry for entry in CORPUS + FRAMES if mode in entry.modes]

    def one(number, entry):
        named = naming(number, canary.port, upstream.port)
        data = entry.data(named) if callable(entry.data) else named(entry.data)
        return [talk(address, data, entry.end) for _ in range(entry.times)][0]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(len(entries)), entries))
    # Requests that the gateway passed on may still be in flight.
    time.sleep(0.5)
    faults = {}
    for number, (entry, answer) in enumerate(zip(entries, answers, strict=True)):
        ours = re.compile(rf"/v1/charges/{number}\b")
        arrived = [request for request in upstream.requests if ours.search(request.path)]
        faults[f"{mode}: {entry.name}"] = judge(entry, answer, arrived)
    faults[f"{mode}: afterwards"] = afterwards(gateway, upstream, address)
    status, errors = gateway.stop()
    upstream.stop()
    if status != 0 or "panicked" in errors:
        faults[f"{mode}: afterwards"].append(f"the gateway ended with {status}: {errors[-2000:]}")
    return faults


def afterwards(gateway, upstream, address):
    """What is wrong with the gateway afterwards: hidden requests arrived, it does not serve, or it uses too much memory."""
    hidden = [request for request in upstream.requests if "smuggled" in request.path]
    faults = [f"arrived: {request.path} with {request.header('idempotency-key')}" for request in hidden]
    faults += [f"arrived, and was no request: {what}" for what in upstream.broken]
    for name, make in GOOD.items():
        before = len(upstream.requests)
        good = make(naming(f"good-{name}", 0, 0))
        answers = [talk(address, good, "wait") for _ in range(2)]
        if any(answer.statuses != (200,) and not answer.frames for answer in answers):
            faults.append(f"a good request ({name}) is not served: {answers}")
        if [request.body for request in upstream.requests[before:]] != [BODY]:
            faults.append(f"a good request ({name}) arrived {len(upstream.requests) - before} times")
    memory = resident(gateway.process.pid)
    if memory > MOST_MEMORY:
        faults.append(f"the gateway has {memory // 1024 // 1024} MB")
    return faults


def resident(pid):
    """Resident bytes of a process: the peak, where the system reports it."""
    try:
        with open(f"/proc/{pid}/status") as status:
            found = re.search(r"VmHWM:\s+(\d+) kB", status.read())
        return int(found.group(1)) * 1024 if found else 0
    except OSError:
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, help="the onceward binary to test")
    arguments = parser.parse_args()
    canary = Canary()
    faults = {}
    for mode in MODES:
        faults |= run_mode(arguments.binary, mode, canary)
    if canary.calls:
        faults["the canary"] = [f"the canary server was called {canary.calls} times"]
    for name, wrong in faults.items():
        if wrong:
            print(f"FAILED: {name}: {'; '.join(wrong)}")
    failed = sum(bool(wrong) for wrong in faults.values())
    print(f"{len(faults) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
