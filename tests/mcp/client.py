#!/usr/bin/env python3
"""An MCP client over stdio that works with lines, so that it sees and can send any bytes. It needs only Python.

As a program it is an agent that a test can kill: it starts the command in a session of its own, prints its pid, sends the
lines from standard input, and waits.

tests/mcp/client.py -- COMMAND …
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

# A limit for events that must happen, also on a busy machine.
TIMEOUT = 20.0

MODERN = "2026-07-28"
IDENTITY = {"name": "line-client", "version": "1"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": IDENTITY,
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}},
}


class NoResponse(AssertionError):
    """An expected message did not come in time."""


class Client:
    def __init__(
        self, command, environment=None, folder=None, errors=None, version="2025-11-25", answers=None, reads=True
    ):
        """`answers` has the results for the server's own requests, by method. Without `reads`, reading starts later."""
        self.errors = errors
        self.version = version
        self.answers = answers or {}
        self.lines = []
        self.ended = False
        self.changed = threading.Condition()
        self.reading = threading.Event()
        if reads:
            self.reading.set()
        self.last = 0
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(errors, "ab") if errors else subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            bufsize=0,
            start_new_session=True,
        )
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    def listen(self):
        pieces = []
        self.reading.wait()
        while more := self.process.stdout.read(1 << 20):
            pieces.append(more)
            if b"\n" not in more:
                continue
            *whole, rest = b"".join(pieces).split(b"\n")
            pieces = [rest]
            with self.changed:
                self.lines += [line + b"\n" for line in whole]
                self.changed.notify_all()
            for line in whole:
                self.answer(line)
        with self.changed:
            self.lines += [rest] if (rest := b"".join(pieces)) else []
            self.ended = True
            self.changed.notify_all()

    def answer(self, line):
        """Answers a request of the server."""
        message = parsed(line)
        method = (message or {}).get("method")
        if not isinstance(method, str) or "id" not in message or method not in self.answers:
            return
        result = self.answers[message["method"]]
        result = result(message) if callable(result) else result
        if result is not None:
            self.say({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def send(self, line):
        """Sends bytes as they are."""
        self.process.stdin.write(line)

    def say(self, message):
        try:
            self.send(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        except OSError:
            pass  # the process is gone; `wait` reports that

    def begin(self):
        """The handshake, in protocol versions that have one."""
        if self.version == MODERN:
            return self.request("server/discover")
        capabilities = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {}}
        about = {"protocolVersion": self.version, "capabilities": capabilities, "clientInfo": IDENTITY}
        result = self.request("initialize", about)
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return result

    def start(self, method, params=None, identity=None):
        """Sends a request and returns its id."""
        if identity is None:
            self.last += 1
            identity = self.last
        params = dict(params or {})
        if self.version == MODERN:
            params["_meta"] = ENVELOPE | params.get("_meta", {})
        self.say({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
        return identity

    def start_call(self, tool, arguments=None, meta=None, identity=None, **more):
        params = {"name": tool, "arguments": arguments or {}} | ({"_meta": meta} if meta else {}) | more
        return self.start("tools/call", params, identity)

    def request(self, method, params=None, timeout=TIMEOUT):
        return self.wait(self.start(method, params), timeout)

    def call(self, tool, arguments=None, meta=None, timeout=TIMEOUT, **more):
        """Calls a tool and returns its result."""
        answer = self.wait(self.start_call(tool, arguments, meta, **more), timeout)
        assert "result" in answer, f"{tool}: {answer}"
        return answer["result"]

    def notify(self, method, params=None):
        self.say({"jsonrpc": "2.0", "method": method} | ({"params": params} if params is not None else {}))

    def answers_to(self, identity):
        found = []
        for line in list(self.lines):
            message = parsed(line)
            if message and "method" not in message and "id" in message and message["id"] == identity:
                found.append(message)
        return found

    def wait(self, identity, timeout=TIMEOUT):
        """Waits for the response to a request."""
        return self.wait_until(lambda: self.answers_to(identity), f"an answer to {identity}", timeout)[0]

    def wait_until(self, holds, what, timeout=TIMEOUT):
        deadline = time.monotonic() + timeout
        with self.changed:
            while not (found := holds()):
                left = deadline - time.monotonic()
                if left <= 0 or self.ended:
                    raise NoResponse(f"{what}: {'it ended' if self.ended else 'not in time'}; heard {self.lines[-3:]}")
                self.changed.wait(left)
        return found

    def messages(self, method):
        """The server's own requests and notifications of one method."""
        said = [parsed(line) for line in list(self.lines)]
        return [message for message in said if message and message.get("method") == method]

    def close(self, timeout=TIMEOUT):
        """Ends as clients do: closes standard input and waits. Returns the exit code."""
        try:
            self.process.stdin.close()
        except OSError:
            pass
        return self.end(timeout)

    def end(self, timeout=TIMEOUT):
        """Waits until the process ends by itself. One that does not is killed, which is a failure."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NoResponse("it did not end") from None

    def kill(self, sign=signal.SIGKILL):
        """Kills this process and none of its children."""
        if self.process.poll() is None:
            self.process.send_signal(sign)
            self.process.wait(TIMEOUT)

    def sweep(self):
        """Ends the process and its children, which share its session."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self.process.wait(TIMEOUT)
        self.reading.set()
        try:
            self.process.stdin.close()
        except OSError:
            pass
        # A server that survives has the pipe too; then the reading thread keeps it.
        self.listener.join(2)
        if not self.listener.is_alive():
            self.process.stdout.close()


def parsed(line):
    """The JSON object of a line, or None."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def agent(command):
    """Starts the command in a session of its own, passes standard input to it, and waits to be killed."""
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    print(json.dumps({"pid": started.pid}), flush=True)

    def pass_on():
        for line in started.stdout:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    threading.Thread(target=pass_on, daemon=True).start()
    for line in sys.stdin.buffer:
        started.stdin.write(line)
        started.stdin.flush()
    started.wait()


if __name__ == "__main__":
    agent(sys.argv[sys.argv.index("--") + 1 :])
