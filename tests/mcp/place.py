"""A folder with a ledger, a configuration and the fixture server's files, and the gateways that are started in it."""

import json
import os
import pathlib
import sys
import tempfile

from client import Client

HERE = pathlib.Path(__file__).resolve().parent
SERVER = [sys.executable, str(HERE / "server.py")]

# Every tool of the fixture is one that reaches other people.
OUTWARD = '[mcp.server.fixture]\nrepeats = "outward"\n'


class Place:
    def __init__(self, binary):
        self.binary = binary
        self.own = tempfile.TemporaryDirectory(prefix="onceward-mcp-")
        self.folder = pathlib.Path(self.own.name)
        self.clients = []
        self.started = 0
        self.more = {}

    def offer(self, **tools):
        """Further tools of the fixture servers, by their names."""
        self.more["MORE_TOOLS"] = json.dumps(tools)

    def configure(self, text):
        """What `onceward.toml` says. It is found only by its flag: the working directory is elsewhere."""
        (self.folder / "settings.toml").write_text(text)

    def environment(self):
        return {
            "COUNT_FILE": str(self.folder / "effects"),
            "RECEIVED_FILE": str(self.folder / f"received-{self.started}"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
        } | self.more

    def command(self, session=None, server="fixture", options=(), behind=SERVER):
        """How a user starts the gateway before a server."""
        command = [self.binary, "mcp", "--store", self.folder / "ledger.db"]
        command += ["--session", session] if session else []
        command += ["--server", server] if server else []
        if (self.folder / "settings.toml").exists():
            command += ["--config", self.folder / "settings.toml"]
        return [str(part) for part in [*command, *options, "--", *behind]]

    def agent(self, session=None, options=(), behind=SERVER, begun=True, environment=None, **more):
        """A client with a gateway of its own, ready to call."""
        return self.open(self.command(session, options=options, behind=behind), begun, environment, **more)

    def direct(self, begun=True, environment=None, behind=SERVER, **more):
        """A client without a gateway."""
        return self.open(behind, begun, environment, **more)

    def open(self, command, begun=True, environment=None, folder=None, **more):
        self.started += 1
        whole = without_settings() | self.environment() | (environment or {})
        client = Client(command, whole, folder or self.folder, self.folder / "errors", **more)
        client.received = self.folder / f"received-{self.started}"
        self.clients.append(client)
        if begun:
            client.begin()
        return client

    def effects(self, tool=None):
        """What was done, in order."""
        try:
            lines = (self.folder / "effects").read_text().splitlines()
        except OSError:
            return []
        done = [json.loads(line) for line in lines]
        return [one for one in done if tool in (None, one["tool"])]

    def received(self, client):
        """Every line that a client's server got, as bytes."""
        try:
            return client.received.read_bytes().splitlines(keepends=True)
        except OSError:
            return []

    def all_errors(self):
        """All that was written to standard error."""
        try:
            return (self.folder / "errors").read_text(errors="replace")
        except OSError:
            return ""

    def errors(self):
        """The last of what was written to standard error: enough to show when a check fails."""
        return self.all_errors()[-4000:]

    def holds_nothing_bad(self):
        said = self.all_errors()
        place = said.find("panicked")
        assert place < 0, said[max(0, place - 1000) : place + 1000]

    def leave(self):
        for client in self.clients:
            client.sweep()
        self.own.cleanup()


def without_settings():
    """Nothing of ours comes in from the outside."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
