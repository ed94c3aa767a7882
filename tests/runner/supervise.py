"""Runs one command of the test run and leaves nothing behind: no process, no mount, no temporary file.

Usage: supervise.py FOLDER SECONDS COMMAND...

FOLDER gets `log` (the output), `status` (JSON) and, while the command runs, `tmp` (its TMPDIR). The supervisor ends every
process that the command started when the command ends, when SECONDS have passed, on SIGINT, SIGTERM or SIGHUP, and when
the test runner dies. It is a subreaper, so processes that moved to sessions of their own remain its descendants.
"""

import ctypes
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time

# linux/prctl.h
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36

STOP = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}

# A killed process is gone within moments, unless the kernel waits for a disk.
KILL_SECONDS = 10

# The exit code of timeout(1).
TIMED_OUT = 124


def adopt_orphans():
    """Orphans among the descendants become children of this process. Only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def stop_with_parent():
    """Sends this process a SIGTERM when its parent dies, even if the parent is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def descendants():
    """Every living process below this one, as {pid: command name}."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat=,comm="], capture_output=True, text=True, check=False)
    rows = [line.split(None, 3) for line in listed.stdout.splitlines()]
    children, names = {}, {}
    for pid, parent, state, name in (row for row in rows if len(row) == 4):
        children.setdefault(int(parent), []).append(int(pid))
        if not state.startswith("Z") and name != "ps":
            names[int(pid)] = name
    found, waiting = {}, [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found |= {pid: names[pid] for pid in below if pid in names}
        waiting += below
    return found


def end_descendants():
    """Kills every process below this one and returns the command names of the first ones found."""
    first = found = descendants()
    deadline = time.monotonic() + KILL_SECONDS
    while found and time.monotonic() < deadline:
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
        reap()
        found = descendants()
    return sorted(first.values())


def reap(child=None):
    """Collects every child that has ended. Returns the wait status of `child` if it is among them."""
    ended = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if child is not None and pid == child:
            ended = status


def remove(folder):
    """Removes a folder, and unmounts first what a killed test has left mounted in it."""
    try:
        mounts = [line.split()[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        mounts = []
    for mount in mounts:
        if mount.startswith(f"{folder}/"):
            subprocess.run(["umount", "-l", mount], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def wait(child, seconds):
    """The exit code of the command: its own, or why it was ended."""
    deadline = time.monotonic() + seconds
    while True:
        received = signal.sigtimedwait(STOP | {signal.SIGCHLD}, max(0, deadline - time.monotonic()))
        if received is None:
            return TIMED_OUT
        if received.si_signo in STOP:
            return 128 + received.si_signo
        status = reap(child)
        if status is not None:
            return os.waitstatus_to_exitcode(status)


def start(command, folder):
    """Starts the command in a session of its own, with default signals and a temporary folder of its own."""
    tmp = folder / "tmp"
    tmp.mkdir()
    with (folder / "log").open("wb") as log:
        return os.posix_spawnp(
            command[0],
            command,
            os.environ | {"TMPDIR": str(tmp)},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, log.fileno(), 2),
            ],
            setsid=True,
            setsigmask=[],
            # Python ignores SIGPIPE, and a shell's background job SIGINT; tests expect neither.
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )


def main():
    parent, (folder, seconds, *command) = os.getppid(), sys.argv[1:]
    folder = pathlib.Path(folder)
    # Blocked before the first child, so that no signal is lost; `wait` receives them.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP | {signal.SIGCHLD})
    adopt_orphans()
    stop_with_parent()
    try:
        code = wait(start(command, folder), float(seconds))
    except OSError as error:
        (folder / "log").write_text(f"{command[0]}: {error}\n")
        code = 127
    left = end_descendants()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    remove(folder / "tmp")
    status = {"code": code, "cpu": used.ru_utime + used.ru_stime, "left": left}
    (folder / "status").write_text(json.dumps(status))
    if os.getppid() != parent:
        # The runner is gone, and with it the process that would have removed this folder and the one around it.
        remove(folder)
        try:
            folder.parent.rmdir()
        except OSError:
            pass


if __name__ == "__main__":
    main()
