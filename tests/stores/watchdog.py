#!/usr/bin/env python3
"""Ends servers and removes their folder when the process that started them dies, however it dies: watchdog.py FOLDER

Standard input says which processes belong to it: `+PID START SIGNAL` for a new one, `done` when nothing is left to do. An end
without `done` means that the owner is gone.
"""

import os
import pathlib
import shutil
import signal
import sys
import time

# A server that does not obey its own signal within this time is killed. Nothing that it writes is needed any more.
OBEY_SECONDS = 3.0


def start_time(pid):
    """When a process started, in ticks since boot, or None if it has ended. Tells it from a later one of the same number."""
    try:
        state, *fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # The 22nd field of proc(5); the third is the first behind the name.
    return None if state in "ZX" else int(fields[18])


def family(pid):
    """A process and every process below it, parents first."""
    children = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def send(pid, number):
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def end(servers):
    """Ends servers, given as {pid: (start time, signal)}."""
    alive = lambda: [pid for pid, (started, _) in servers.items() if start_time(pid) == started]  # noqa: E731
    for pid in alive():
        for one in family(pid):
            send(one, signal.SIGCONT)
        send(pid, servers[pid][1])
    deadline = time.monotonic() + OBEY_SECONDS
    while (left := alive()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        for one in family(pid):
            send(one, signal.SIGKILL)


def main():
    folder, servers = pathlib.Path(sys.argv[1]), {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for line in sys.stdin:
        if line.strip() == "done":
            return
        pid, started, number = map(int, line[1:].split())
        servers[pid] = (started, number)
    end(servers)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
