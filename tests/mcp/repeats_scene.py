"""The same agent on every transport: one server over stdio, one over HTTP, and an aggregate of servers.

A check takes a scene; `on` makes one check for each transport and protocol version.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from checks import TIMEOUT, until
from client import ENVELOPE, IDENTITY, MODERN, Client, NoResponse
from results import MARK, about, without_ours
from sandbox import HERE, without_settings

OLD = "2025-11-25"
STDIO, HTTP, SEVERAL = "stdio", "http", "several"
SERVER = [sys.executable, str(HERE / "repeats_server.py")]
HTTP_SERVER = [sys.executable, str(HERE / "repeats_http_server.py")]
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
BOTH = "application/json, text/event-stream"


class Scene:
    """A ledger, a server with a state, and the gateways and agents that a check starts."""

    def __init__(self, sandbox, kind, version):
        self.sandbox, self.kind, self.version = sandbox, kind, version
        self.processes, self.gateway = [], None
        sandbox.more["STATE_FILE"] = str(sandbox.folder / "state-of-server")
        self.configure()

    def configure(self, mcp="", server="", tools=""):
        """Writes the configuration of the gateway, of the server, and of its tools by name."""
        command = f"command = {json.dumps(SERVER)}\n" if self.kind == SEVERAL else ""
        text = f"[mcp]\n{mcp}\n[mcp.server.fixture]\n{command}{server}\n"
        for name, said in (tools or {}).items():
            text += f"[mcp.server.fixture.tool.{name}]\n{said}\n"
        text += f"[mcp.server.other]\n{command}\n" if self.kind == SEVERAL else ""
        self.sandbox.configure(text)

    def command(self, session=None):
        folder, more = self.sandbox.folder, ["--session", session] if session else []
        if self.kind == SEVERAL:
            return [self.sandbox.binary, "mcp", "--store", folder / "ledger.db", "--config", folder / "settings.toml", *more]
        return self.sandbox.command(session, behind=SERVER)

    def agent(self, session=None, info=None, version=None, mortal=False):
        """A client that is ready to call. A mortal one is a process that a test can kill without its gateway."""
        info, version = info or IDENTITY, version or self.version
        if self.kind == HTTP:
            return HttpAgent(self, session, info, version)
        self.sandbox.started += 1
        command = self.command(session)
        command = [sys.executable, HERE / "client.py", "--", *command] if mortal else command
        environment = without_settings() | self.sandbox.environment()
        prefix = "fixture__" if self.kind == SEVERAL else ""
        agent = PipeAgent(command, environment, self.sandbox, version=version, info=info, prefix=prefix, mortal=mortal)
        self.sandbox.clients.append(agent)
        agent.begin()
        agent.request("tools/list")
        return agent

    def address(self):
        """The address of the gateway, which is started if it does not run."""
        if not self.gateway or self.gateway.poll() is not None:
            if not self.processes:
                self.upstream = self.started(HTTP_SERVER)[1]
            settings = ["--config", self.sandbox.folder / "settings.toml", "--listen", "127.0.0.1:0"]
            command = [self.sandbox.binary, "mcp", "--store", self.sandbox.folder / "ledger.db", "--server", "fixture"]
            self.gateway, line = self.started([*command, *settings, "--upstream", self.upstream])
            self.port = int(line.rsplit(":", 1)[1].split("/")[0])
        return self.port

    def started(self, command):
        """Starts a process. Returns it and its first line."""
        with open(self.sandbox.folder / "errors", "ab") as errors:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=without_settings() | self.sandbox.environment(),
            )
        self.processes.append(process)
        return process, process.stdout.readline().decode().strip()

    def kill_gateway(self, agent):
        """Kills the gateway of an agent with -9."""
        if self.kind == HTTP:
            self.gateway.kill()
            self.gateway.wait()
        else:
            agent.kill_gateway()

    def let_go(self, name):
        """Lets calls continue that hold for the name."""
        (self.sandbox.folder / f"state-of-server.{name}").touch()

    def effects(self, tool=None):
        return len(self.sandbox.effects(tool))

    def acted(self, times, tool=None):
        until(lambda: self.effects(tool) >= times, f"{times} effects")

    def state(self, name):
        with open(self.sandbox.folder / "state-of-server") as file:
            return json.load(file).get(name)

    def listed(self):
        """The intents of the ledger as JSON."""
        command = [self.sandbox.binary, "list", "--store", str(self.sandbox.folder / "ledger.db"), "--json"]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True).stdout

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


class PipeAgent(Client):
    """A client over stdio with its own gateway."""

    def __init__(self, command, environment, sandbox, info, prefix, mortal, **more):
        self.info, self.prefix = info, prefix
        super().__init__(command, environment, sandbox.folder, sandbox.folder / "errors", **more)
        self.gateway = self.process.pid
        if mortal:
            self.gateway = json.loads(self.wait_until(lambda: self.lines, "the gateway's pid")[0])["pid"]

    def begin(self):
        if self.version == MODERN:
            return self.request("server/discover")
        about = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": self.info}
        answer = self.request("initialize", about)
        self.notify("notifications/initialized")
        return answer

    def start(self, method, params=None, identity=None):
        params = dict(params or {})
        if self.version == MODERN:
            params["_meta"] = {CLIENT_INFO: self.info} | params.get("_meta", {})
        return super().start(method, params, identity)

    def start_call(self, tool, arguments=None, meta=None, identity=None, **more):
        return super().start_call(self.prefix + tool, arguments, meta, identity, **more)

    def result(self, call):
        """The result of a call that was started."""
        answer = self.wait(call)
        assert "result" in answer, answer
        return answer["result"]

    def is_answered(self, call):
        return bool(self.answers_to(call))

    def cancel(self, call, reason=None):
        self.notify("notifications/cancelled", {"requestId": call} | ({"reason": reason} if reason else {}))

    def tools(self):
        listed = self.request("tools/list")["result"]["tools"]
        return {tool["name"].removeprefix(self.prefix): tool for tool in listed}

    def die(self):
        """Kills the client with SIGKILL; its gateway sees the closed pipe."""
        self.kill()
        until(lambda: not is_running(self.gateway), "the end of a gateway whose client is gone", 60)

    def kill_gateway(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.gateway, signal.SIGKILL)
        if self.gateway == self.process.pid:
            self.process.wait(TIMEOUT)
        until(lambda: not is_running(self.gateway), "the end of the gateway")

    def sweep(self):
        if self.gateway != self.process.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.gateway, signal.SIGKILL)
        super().sweep()


class HttpAgent:
    """A client of the gateway over streamable HTTP. Every call has its own connection."""

    def __init__(self, scene, session, info, version):
        self.scene, self.session, self.info, self.version = scene, session, info, version
        self.numbers, self.header = iter(range(1, 10_000)), {}
        port = scene.address()
        if version == MODERN:
            self.ask(port, "server/discover")
        else:
            about = {"protocolVersion": version, "capabilities": {}, "clientInfo": info}
            headers, _ = self.ask(port, "initialize", about)
            self.header = {"Mcp-Session-Id": headers["Mcp-Session-Id"], "MCP-Protocol-Version": version}
            self.tell("notifications/initialized")
        self.tools()

    def message(self, method, params=None):
        params = dict(params or {})
        if self.version == MODERN:
            params["_meta"] = ENVELOPE | {CLIENT_INFO: self.info} | params.get("_meta", {})
        return {"jsonrpc": "2.0", "method": method, "params": params}

    def ask(self, port, method, params=None):
        call = HttpCall(port, self.message(method, params) | {"id": next(self.numbers)}, self.header)
        answer = call.answer()
        return call.headers, answer

    def tell(self, method, params=None):
        HttpCall(self.scene.port, self.message(method, params), self.header).ended()

    def tools(self):
        return {tool["name"]: tool for tool in self.ask(self.scene.port, "tools/list")[1]["result"]["tools"]}

    def start_call(self, tool, arguments=None, meta=None):
        meta = ({"onceward/session": self.session} if self.session else {}) | (meta or {})
        params = {"name": tool, "arguments": arguments or {}} | ({"_meta": meta} if meta else {})
        return HttpCall(self.scene.port, self.message("tools/call", params) | {"id": next(self.numbers)}, self.header)

    def call(self, tool, arguments=None, meta=None):
        return self.result(self.start_call(tool, arguments, meta))

    def result(self, call):
        answer = call.answer()
        assert "result" in answer, answer
        return answer["result"]

    def is_answered(self, call):
        return call.is_over.is_set()

    def cancel(self, call, reason=None):
        about = {"requestId": call.message["id"]} | ({"reason": reason} if reason else {})
        self.tell("notifications/cancelled", about)

    def close(self):
        pass


class HttpCall:
    """A POST request whose response is read in a thread."""

    def __init__(self, port, message, headers):
        self.message, self.is_over, self.headers = message, threading.Event(), {}
        self.text, self.fault = "", None
        body = json.dumps(message)
        head = {"Content-Type": "application/json", "Accept": BOTH, "Mcp-Method": message["method"]} | headers
        if ENVELOPE.keys() <= message["params"].get("_meta", {}).keys():
            head["MCP-Protocol-Version"] = MODERN
            head |= {"Mcp-Name": message["params"]["name"]} if "name" in message["params"] else {}
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.request("POST", "/mcp", body, head)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            response = self.connection.getresponse()
            self.headers = response.headers
            self.text = response.read().decode()
        except (OSError, http.client.HTTPException, AttributeError, ValueError) as fault:
            self.fault = fault
        self.is_over.set()

    def ended(self):
        if not self.is_over.wait(60):
            raise NoResponse(f"no answer to {self.message}")
        if self.fault:
            raise NoResponse(f"no answer to {self.message}: {self.fault!r}")
        self.connection.close()
        return self.text

    def messages(self):
        """The messages of the response, each with the id of its event, if it has one."""
        found, event = [], None
        text = self.ended()
        if not text.startswith(("id:", "data:", "event:", ":", "retry:")):
            return [(None, json.loads(text))]
        for line in text.splitlines():
            event = line[4:] if line.startswith("id: ") else event
            if line.startswith("data: ") and line[6:].strip():
                found.append((event, json.loads(line[6:])))
        return found

    def answer(self):
        found = [message for _, message in self.messages() if message.get("id") == self.message["id"]]
        assert len(found) == 1, self.text
        return found[0]

    def drop(self):
        """Closes the connection, as when a client disconnects."""
        with contextlib.suppress(OSError, AttributeError):
            self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.is_over.wait(TIMEOUT)
        self.connection.close()


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ran(result):
    """A new result, exactly as the server sent it."""
    assert not result.get("isError"), result
    assert not about(result), result
    assert not any(block.get("text", "").startswith(MARK) for block in result["content"]), result
    return result["content"][0]["text"]


def replayed(result, of=None):
    """A stored result, marked for programs and for models."""
    assert not result.get("isError"), result
    assert about(result).get("replayed") is True, f"not a replay: {result}"
    assert any(block.get("text", "").startswith(MARK) for block in result["content"]), result
    if of is not None:
        assert without_ours(result)["content"] == without_ours(of)["content"], f"{result} is not {of}"


def doubted(result):
    """The result says that the outcome is unknown."""
    assert result.get("isError") is True, result
    assert about(result).get("state") == "in_doubt", result
    return " ".join(block.get("text", "") for block in result["content"])


def told_once(result):
    """The result says that the outcome is unknown and that the next equal call runs."""
    words = doubted(result).lower()
    assert "call it again" in words or "call again" in words or "same call again" in words, words
    assert "do not call it again" not in words and "do not make this call again" not in words, words


EVERY = [(kind, version) for kind in (STDIO, HTTP, SEVERAL) for version in (OLD, MODERN)]
# One protocol version of each generation.
MAIN = [(STDIO, OLD), (HTTP, OLD), (SEVERAL, MODERN)]
INITIALIZED = [(kind, OLD) for kind in (STDIO, HTTP, SEVERAL)]
DISCOVERED = [(kind, MODERN) for kind in (STDIO, HTTP, SEVERAL)]
PIPES = [(STDIO, OLD), (SEVERAL, MODERN)]


def on(where, into):
    """Makes a check for each transport and adds it to a list."""

    def add(check):
        for kind, version in where:
            into.append(made(check, kind, version))
        return check

    return add


def made(check, kind, version):
    def checked(sandbox):
        scene = Scene(sandbox, kind, version)
        try:
            check(scene)
        finally:
            scene.end()

    checked.__name__ = f"{check.__name__} · {kind} · {version}"
    return checked


def wait(seconds):
    """Sleeps, where there is no event to wait for."""
    time.sleep(seconds)
