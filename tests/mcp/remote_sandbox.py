"""A server over streamable HTTP, a gateway in front of it, and a client of the gateway."""

import contextlib
import http.client
import json
import pathlib
import subprocess
import sys

SERVER = pathlib.Path(__file__).resolve().parent / "remote_server.py"
BOTH = "application/json, text/event-stream"


class Remote:
    """A server, a gateway in front of it, and a client of the gateway."""

    def __init__(self, sandbox, *options):
        self.sandbox, self.options, self.gateway = sandbox, options, None
        self.server = self.started([sys.executable, str(SERVER)])
        self.upstream = self.server.stdout.readline().decode().strip()
        self.numbers = iter(range(1, 1000))
        self.start_gateway()

    def start_gateway(self):
        command = [self.sandbox.binary, "mcp", "--store", self.sandbox.folder / "ledger.db", "--server", "remote", *self.options]
        if (self.sandbox.folder / "settings.toml").exists():
            command += ["--config", self.sandbox.folder / "settings.toml"]
        self.gateway = self.started([*map(str, command), "--upstream", self.upstream, "--listen", "127.0.0.1:0"])
        line = self.gateway.stdout.readline().decode()
        self.port = int(line.rsplit(":", 1)[1].split("/")[0])

    def started(self, command):
        errors = open(self.sandbox.folder / "errors", "ab")
        environment = {**self.sandbox.environment(), "PATH": "/usr/bin:/bin", "RECEIVED_FILE": str(self.received_file())}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment)

    def received_file(self):
        return self.sandbox.folder / "received"

    def received(self):
        if not self.received_file().exists():
            return []
        return [json.loads(line) for line in self.received_file().read_text().splitlines()]

    def post(self, message, timeout=20, headers=None, path="/mcp"):
        """The status, the headers and the messages of the response."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        head = {"Content-Type": "application/json", "Accept": BOTH, **(headers or {})}
        try:
            # A gateway may refuse a large body, and close, before it has read all of it.
            with contextlib.suppress(BrokenPipeError):
                connection.request("POST", path, body, head)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if "event-stream" in response.headers.get("Content-Type", ""):
            data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
            return response.status, response.headers, [json.loads(one) for one in data]
        return response.status, response.headers, [json.loads(text)] if text.startswith("{") else [text]

    def message(self, tool, arguments):
        params = {"name": tool, "arguments": arguments}
        return {"jsonrpc": "2.0", "id": next(self.numbers), "method": "tools/call", "params": params}

    def call(self, tool="send_email", timeout=20, headers=None, **arguments):
        message = self.message(tool, arguments)
        _, _, messages = self.post(message, timeout, headers)
        answers = [one for one in messages if one.get("id") == message["id"]]
        assert len(answers) == 1, messages
        return answers[0]["result"]

    def effects(self):
        return len(self.sandbox.effects())

    def end(self):
        for process in (self.gateway, self.server):
            process.kill()
            process.wait()


def with_remote(check):
    """A check that gets a server and a gateway in front of it."""

    def checked(sandbox):
        remote = Remote(sandbox)
        try:
            check(remote)
        finally:
            remote.end()

    checked.__name__, checked.__module__ = check.__name__, check.__module__
    return checked


def swallowed(work):
    try:
        work()
    except (OSError, http.client.HTTPException, AssertionError):
        pass
