"""A folder with a ledger, a configuration and the fixture server's files, and the gateways that are started in it."""

import json
import os
import pathlib
import sys
import tempfile

from client import Client

HERE = pathlib.Path(__file__).resolve().parent
SERVER = [sys.executable, str(HERE / "server.py")]

# Declares that every tool of the fixture reaches other people.
OUTWARD = '[mcp.server.fixture]\nrepeats = "outward"\n'


class Sandbox:
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
        """Writes the configuration. The gateway finds it only through its flag, because the working directory is elsewhere."""
        (self.folder / "settings.toml").write_text(text)

    def environment(self):
        return {
            "COUNT_FILE": str(self.folder / "effects"),
            "RECEIVED_FILE": str(self.folder / f"received-{self.started}"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        } | self.more

    def command(self, session=None, server="fixture", options=(), behind=SERVER):
        """The command line with which a user starts the gateway in front of a server."""
        command = [self.binary, "mcp", "--store", self.folder / "ledger.db"]
        command += ["--session", session] if session else []
        command += ["--server", server] if server else []
        if (self.folder / "settings.toml").exists():
            command += ["--config", self.folder / "settings.toml"]
        return [str(part) for part in [*command, *options, "--", *behind]]

    def agent(self, session=None, options=(), behind=SERVER, begun=True, environment=None, **more):
        """A client with its own gateway, ready to call."""
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
        """The effects in order."""
        try:
            lines = (self.folder / "effects").read_text().splitlines()
        except OSError:
            return []
        done = [json.loads(line) for line in lines]
        return [one for one in done if tool in (None, one["tool"])]

    def received(self, client):
        """Every line that a client's server received, as bytes."""
        try:
            return client.received.read_bytes().splitlines(keepends=True)
        except OSError:
            return []

    def all_errors(self):
        """Everything that was written to standard error."""
        try:
            return (self.folder / "errors").read_text(errors="replace")
        except OSError:
            return ""

    def errors(self):
        """The end of standard error, to print when a check fails."""
        return self.all_errors()[-4000:]

    def has_no_panic(self):
        said = self.all_errors()
        sandbox = said.find("panicked")
        assert sandbox < 0, said[max(0, sandbox - 1000) : sandbox + 1000]

    def leave(self):
        for client in self.clients:
            client.sweep()
        self.own.cleanup()


def without_settings():
    """The environment without Onceward's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ONCEWARD_")}
