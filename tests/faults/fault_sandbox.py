"""A folder with a ledger, and the gateways, APIs, MCP gateways and commands that a check starts in it."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

from sandbox import Sandbox, without_settings

# How long a process may take to start on a busy machine.
STARTUP = 30.0

REMOTE_SERVER = [sys.executable, str(pathlib.Path(__file__).resolve().parent / "late_server.py")]


class FaultSandbox(Sandbox):
    """A sandbox for MCP over stdio, extended by every other surface."""

    def __init__(self, binary):
        super().__init__(binary)
        self.ledger = self.folder / "ledger.db"
        self.processes = []
        self.upstreams = []
        self.clean_up = []
        self.pool = concurrent.futures.ThreadPoolExecutor(32)

    def configure(self, text):
        (self.folder / "settings.toml").write_text(text)
        return self.folder / "settings.toml"

    def command(self, *arguments, **more):
        """The command line of the MCP gateway on this sandbox's ledger."""
        command = super().command(*arguments, **more)
        command[command.index("--store") + 1] = str(self.ledger)
        return command

    def start(self, *arguments, environment=None):
        """Starts the binary on the ledger."""
        return self.spawn([self.binary, *arguments, "--store", self.ledger], environment)

    def spawn(self, command, environment=None):
        whole = without_settings() | self.environment() | (environment or {})
        process = Process([str(part) for part in command], whole, self.folder)
        self.processes.append(process)
        return process

    def gateway(self, upstream, *options, environment=None):
        """A gateway that is started from the command line."""
        process = self.start(
            "gateway", "--upstream", upstream.url, "--listen", "127.0.0.1:0", "--tenant", "fixed:acme", *options,
            environment=environment,
        )
        process.url = process.address("gateway")
        return process

    def serve(self, configuration, environment=None):
        """Serves a configuration: `url` is the address of its gateway, `api` that of its API."""
        process = self.start("serve", "--config", self.configure(configuration), environment=environment)
        process.api = process.address("api") if "[api]" in configuration else None
        process.url = process.address("gateway") if "[gateway]" in configuration else None
        return process

    def remote(self, environment=None):
        """An MCP server over HTTP, which outlives every gateway in front of it."""
        process = self.spawn([*REMOTE_SERVER], environment)
        process.url = process.line()
        return process

    def mcp_over_http(self, server, *options, environment=None):
        """An MCP gateway in front of a server that speaks HTTP."""
        if (self.folder / "settings.toml").exists():
            options = ("--config", self.folder / "settings.toml", *options)
        process = self.start(
            "mcp", "--server", "fixture", "--upstream", server.url, "--listen", "127.0.0.1:0", *options,
            environment=environment,
        )
        process.url = process.address("mcp")
        return process

    def run(self, key, *command, options=(), environment=None):
        """Starts `onceward run` and does not wait for it."""
        arguments = ["run", "--operation", "job", "--key", key, *options, "--store", self.ledger, "--", *command]
        return self.spawn([self.binary, *arguments], environment)

    def ask(self, *arguments):
        """Runs a command to its end. Returns its exit code, output and errors."""
        command = [str(part) for part in [self.binary, *arguments, "--store", self.ledger]]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, env=without_settings(), timeout=STARTUP)
        return done.returncode, done.stdout, done.stderr

    def intents(self):
        """Every intent of the ledger, read by another process."""
        code, said, errors = self.ask("list", "--json")
        assert code == 0, f"list ended with {code}: {errors}"
        return json.loads(said)["intents"]

    def intent(self):
        """The only intent."""
        found = self.intents()
        assert len(found) == 1, found
        return found[0]

    def state(self):
        return self.intent()["state"]

    def later(self, work, *arguments, **more):
        """Runs a function in a thread."""
        return self.pool.submit(work, *arguments, **more)

    def errors(self):
        said = [process.errors() for process in self.processes]
        return super().errors() + "\n".join(text[-4000:] for text in said if text)

    def has_no_panic(self):
        for process in self.processes:
            assert "panicked" not in process.errors(), process.errors()
        super().has_no_panic()

    def leave(self):
        for upstream in self.upstreams:
            upstream.close()
        for process in self.processes:
            process.sweep()
        self.pool.shutdown(wait=False)
        for undo in self.clean_up:
            undo()
        super().leave()


class Process:
    """A process in a session of its own."""

    numbers = iter(range(1, 1_000_000))

    def __init__(self, command, environment, folder):
        self.log = folder / f"errors-{next(self.numbers)}"
        with open(self.log, "wb") as errors:
            self.child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment, cwd=folder,
                start_new_session=True,
            )
        self.command = command
        self.lines, self.ended = [], False
        self.changed = threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.child.stdout:
            with self.changed:
                self.lines.append(line.decode(errors="replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def line(self, holds=lambda line: True):
        """The first line of its output that matches."""
        with self.changed:
            found = self.changed.wait_for(lambda: self.ended or any(map(holds, self.lines)), STARTUP)
            fitting = [line for line in self.lines if holds(line)]
        assert found and fitting, f"{' '.join(self.command)} said {self.lines} and {self.errors()}"
        return fitting[0]

    def address(self, name):
        line = self.line(lambda line: f"onceward {name} listens on" in line)
        return re.search(r"(https?://\S+)", line).group(1).rstrip("/")

    def output(self):
        with self.changed:
            assert self.changed.wait_for(lambda: self.ended, STARTUP), "its output has no end"
            return "\n".join(self.lines)

    def signal(self, sign):
        self.child.send_signal(sign)

    def term(self):
        self.signal(signal.SIGTERM)

    def kill(self):
        """Kills this process and none of its children."""
        self.signal(signal.SIGKILL)
        self.child.wait(STARTUP)

    def wait(self, seconds):
        """Waits for its end. Returns the exit code."""
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.command[1]} did not end within {seconds} s: {self.errors()}") from None

    def stop(self):
        self.term()
        return self.wait(20)

    def is_running(self):
        return self.child.poll() is None

    def processor_time(self):
        """Seconds of processor time so far."""
        with open(f"/proc/{self.child.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.child.pid}/fd"))

    def limit_descriptors(self, more):
        """Limits the process to this many more descriptors than it has now; without a number, lifts the limit."""
        _, hard = resource.prlimit(self.child.pid, resource.RLIMIT_NOFILE)
        # The limit is on descriptor numbers, and free ones may lie below the highest.
        most = hard if more is None else self.descriptors() + more
        resource.prlimit(self.child.pid, resource.RLIMIT_NOFILE, (most, hard))

    def errors(self):
        try:
            return self.log.read_text(errors="replace")
        except OSError:
            return ""

    def sweep(self):
        """Ends the process and its children, which share its session."""
        for sign in (signal.SIGCONT, signal.SIGKILL):
            try:
                os.killpg(self.child.pid, sign)
            except (ProcessLookupError, PermissionError):
                pass
        self.child.wait(STARTUP)
        self.child.stdout.close() if self.ended else None


class Answer:
    """An answer to an HTTP request."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def problem(self):
        """The name of the problem type, or None."""
        if "problem+json" not in self.headers.get("Content-Type", ""):
            return None
        return self.json().get("type", "").rsplit("/", 1)[-1]

    def __repr__(self):
        return f"{self.status} {dict(self.headers)} {self.body[:400]}"


def request(url, method="GET", path="/", body=None, headers=None, timeout=60):
    """One request on a connection of its own."""
    to = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(to.hostname, to.port, timeout=timeout)
    try:
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read())
    finally:
        connection.close()


def charge(process, key, timeout=60, **body):
    """A guarded request through a gateway."""
    headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
    return request(process.url, "POST", "/v1/charges", json.dumps(body), headers, timeout)


def api(process, verb, timeout=60, **body):
    """A call of the API."""
    return request(process.api, "POST", f"/v1/{verb}", json.dumps(body), {"Content-Type": "application/json"}, timeout)


def is_ready(process):
    return request(process.url or process.api, path="/.well-known/onceward/ready" if process.url else "/readyz").status == 200


def call(process, tool="send_email", timeout=60, number=iter(range(1, 1_000_000)), **arguments):
    """A call of a tool through an MCP gateway over HTTP: the result."""
    message = {"jsonrpc": "2.0", "id": next(number), "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    answer = request(process.url, "POST", "/mcp", json.dumps(message), headers, timeout)
    text = answer.body.decode()
    if "event-stream" in answer.headers.get("Content-Type", ""):
        text = [line[6:] for line in text.splitlines() if line.startswith("data: ")][-1]
    message = json.loads(text)
    assert "result" in message, answer
    return message["result"]


def outcome(future, seconds=60):
    """The result of a call that was started with `later`: a response, or the error of its connection."""
    try:
        return future.result(seconds)
    except (OSError, http.client.HTTPException) as error:
        return error


def is_cut(result):
    """A client whose connection ended without a response."""
    assert isinstance(result, (OSError, http.client.HTTPException)), f"{result!r} instead of a connection that was cut"


def elapsed(work):
    """Runs a function. Returns the seconds that it took and its result."""
    started = time.monotonic()
    result = work()
    return time.monotonic() - started, result
