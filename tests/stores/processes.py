"""Processes of real servers in a temporary folder of their own: started, watched, paused, killed, and removed at the end."""

import contextlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import watchdog

# How long a server may take to start, to recover or to stop on a busy machine.
START_SECONDS = 60.0

# Between two looks at a server that starts. Short, because every test run waits for it.
LOOK_SECONDS = 0.02

# Below the ports of outgoing connections (from 32768 on Linux), so that none of them takes the port of a server that is down.
PORTS = range(15000, 32000)
PORT_ATTEMPTS = 200

# For the databases of all tests at once, several times over.
MEMORY_NEEDED = 4 << 30

# The end of a log that shows why a server did not start.
LOG_CHARACTERS = 3000


class Failed(Exception):
    """A server or one of its tools did not do what it should."""


def in_memory():
    """A folder in memory, if there is room and no other one is named: servers that sync to the disk would slow down every other
    test. What they keep has to outlive their processes, and not the machine."""
    if named := os.environ.get("ONCEWARD_TEST_SERVERS"):
        return named
    memory = pathlib.Path("/dev/shm")
    has_room = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > MEMORY_NEEDED
    return memory if has_room else None


class Home:
    """A temporary folder, the servers that live in it, and a watchdog that ends them if this process dies. Leave it with
    `close` or as a context manager."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="onceward-stores-", dir=in_memory())).resolve()
        # PostgreSQL does not run as root, and its user has to pass through this folder.
        self.folder.chmod(0o711)
        self.lock, self.servers, self.ports, self.is_closing = threading.RLock(), [], set(), False
        self.watchdog = subprocess.Popen(
            [sys.executable, watchdog.__file__, str(self.folder)], stdin=subprocess.PIPE, text=True, start_new_session=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def port(self):
        """A free port of the loopback interface that no other server of this home has."""
        for _ in range(PORT_ATTEMPTS):
            port = random.choice(PORTS)
            with self.lock, socket.socket() as listener:
                # A port in TIME_WAIT is free for a server, which sets this option too.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with contextlib.suppress(OSError):
                    listener.bind(("127.0.0.1", port))
                    if port not in self.ports:
                        self.ports.add(port)
                        return port
        raise Failed("no free port")

    def place(self, name, owner=None):
        """A new folder for a server, which only its user can read."""
        folder = self.folder / name
        folder.mkdir(mode=0o700)
        if owner:
            shutil.chown(folder, owner, owner)
        return folder

    def watch(self, process, number):
        with self.lock:
            if started := watchdog.start_time(process.pid):
                self.watchdog.stdin.write(f"+{process.pid} {started} {int(number)}\n")
                self.watchdog.stdin.flush()

    def close(self):
        """Ends every server and removes every file."""
        with self.lock:
            servers, self.servers, self.is_closing = self.servers, [], True
        for server in reversed(servers):
            server.send_end()
        for server in reversed(servers):
            server.end()
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError, ValueError):
            self.watchdog.stdin.write("done\n")
            self.watchdog.stdin.close()
        self.watchdog.wait(START_SECONDS)


class Server:
    """A server that keeps its folder and its port when it is started again. Subclasses say how."""

    # Ends the server without waiting for its clients.
    fast_signal = signal.SIGTERM
    # Ends it as fast as is possible without leaving something behind outside of its folder.
    end_signal = signal.SIGKILL
    # The user that it runs as, if not this process's.
    user = None

    def __init__(self, home, name):
        self.home, self.name, self.process = home, name, None
        self.folder = home.place(name, self.user)
        self.port = home.port()
        self.log = home.folder / f"{name}.log"
        with home.lock:
            home.servers.append(self)

    def command(self):
        raise NotImplementedError

    def is_ready(self):
        raise NotImplementedError

    def start(self):
        """Starts the server and waits until it is ready."""
        if self.is_running():
            raise Failed(f"{self.name} runs already")
        with self.home.lock:
            if self.home.is_closing:
                raise Failed(f"{self.name} is not started any more")
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    [str(part) for part in self.command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                    start_new_session=True, env=clean_environment(), **as_user(self.user),
                )
            self.home.watch(self.process, self.end_signal)
        self.wait_for(self.is_ready, "ready")
        return self

    def wait_for(self, holds, what):
        """Waits until something holds that takes the server's work."""
        deadline = time.monotonic() + START_SECONDS
        while not holds():
            if not self.is_running():
                raise Failed(f"{self.name} ended with {self.process.poll()} before it was {what}:\n{self.last_log()}")
            if self.home.is_closing or time.monotonic() > deadline:
                raise Failed(f"{self.name} is not {what}:\n{self.last_log()}")
            time.sleep(LOOK_SECONDS)

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        if self.is_running():
            self.process.send_signal(number)

    def stop(self):
        """Stops the server in order, without waiting for its clients to leave."""
        self.signal(self.fast_signal)
        self.waited()

    def kill(self):
        """Kills every process of the server at once, as a crash would."""
        self.pause()
        family = self.family()
        for pid in family:
            watchdog.send(pid, signal.SIGKILL)
        self.waited()
        # On a busy machine, the parent's end is seen before that of its children.
        deadline = time.monotonic() + START_SECONDS
        while any(has_memory(pid) for pid in family):
            if time.monotonic() > deadline:
                raise Failed(f"processes of {self.name} do not end after a kill")
            time.sleep(LOOK_SECONDS)

    def restart(self):
        """Stops the server if it runs, and starts it on the same port with the same data."""
        self.stop()
        return self.start()

    def pause(self):
        """Stops every process of the server until `resume`: connections stay open and nothing is answered."""
        stopped = set()
        # The parent first: it starts no further process after that. Twice, for one that it started meanwhile.
        for pid in self.family() + self.family():
            if pid not in stopped:
                watchdog.send(pid, signal.SIGSTOP)
                stopped.add(pid)

    def resume(self):
        for pid in reversed(self.family()):
            watchdog.send(pid, signal.SIGCONT)

    def family(self):
        """Every process of the server."""
        return watchdog.family(self.process.pid) if self.is_running() else []

    def waited(self):
        if self.process is not None:
            try:
                self.process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                raise Failed(f"{self.name} does not end:\n{self.last_log()}") from None

    def send_end(self):
        """Begins to end the server for good: its data are not needed any more."""
        self.resume()
        self.signal(self.end_signal)

    def end(self):
        try:
            self.waited()
        except Failed as error:
            print(error, file=sys.stderr)
            self.kill()

    def last_log(self):
        try:
            return self.log.read_text(errors="replace")[-LOG_CHARACTERS:]
        except OSError:
            return ""


def has_memory(pid):
    """Whether a process has not ended. One that only waits for its parent has no program any more."""
    return pathlib.Path(f"/proc/{pid}/exe").exists()


def as_user(user):
    """Options of subprocess that run a command as another user, if this process may do that."""
    if user is None or os.geteuid() != 0:
        return {}
    return {"user": user, "group": user, "extra_groups": []}


def clean_environment():
    """The environment of servers and of their tools: no variable that says which server, user or password to use."""
    dropped = ("PG", "REDIS", "ONCEWARD")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


def run(command, user=None, environment=None, folder="/"):
    """Runs a tool to its end and returns its output."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=START_SECONDS,
        cwd=folder, env=clean_environment() | (environment or {}), check=False, **as_user(user),
    )
    if done.returncode:
        raise Failed(f"{pathlib.Path(str(command[0])).name} ended with {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout.rstrip("\n")
