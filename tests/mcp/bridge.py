"""Connects clients over streamable HTTP to a server over stdio: `bridge.py -- COMMAND…`.

Each session of the older protocol versions gets its own process. The newest version has no sessions, so all its requests
share one process, with ids of the bridge, because two clients may use the same id. Headers are not compared with bodies.
"""

import http.server
import itertools
import json
import queue
import re
import signal
import subprocess
import sys
import threading
import urllib.parse
import uuid

MODERN = "2026-07-28"
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

# The errors of the newest protocol version that also have an HTTP status.
STATUSES = {-32700: 400, -32600: 400, -32602: 400, -32020: 400, -32021: 400, -32022: 400, -32601: 404}

# A failed write shows that a client has disconnected.
PULSE = 1.0

# How many processes are started in advance, because starting is slow.
SPARE = 2


class Process:
    """A server over stdio, and the requests that wait for its responses."""

    def __init__(self, command):
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()
        self.waiting = {}
        self.tokens = {}
        self.standalone = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            self.route(json.loads(line))
        with self.lock:
            for one in self.waiting.values():
                one.put(None)

    def route(self, message):
        """Delivers a response to its request, and any other message to the newest request or to the session's own stream."""
        parameters = message.get("params") or {}
        subscription = (parameters.get("_meta") or {}).get(SUBSCRIPTION)
        with self.lock:
            if "method" not in message:
                place = self.waiting.get(message.get("id"))
            elif subscription is not None:
                place = self.waiting.get(subscription)
            elif "progressToken" in parameters:
                place = self.waiting.get(self.tokens.get(parameters["progressToken"]))
            else:
                place = next((one for one in reversed(self.waiting.values()) if not one.listens), self.standalone)
        if place is not None:
            place.put(message)

    def ask(self, message):
        """Sends a request. Returns a queue that gets the messages of the request and its response."""
        place = queue.Queue()
        place.listens = message["method"] == "subscriptions/listen"
        token = ((message.get("params") or {}).get("_meta") or {}).get("progressToken")
        with self.lock:
            self.waiting[message["id"]] = place
            if token is not None:
                self.tokens[token] = message["id"]
        self.send(message)
        return place

    def forget(self, identity):
        with self.lock:
            self.waiting.pop(identity, None)

    def send(self, message):
        with self.lock:
            self.child.stdin.write(json.dumps(message).encode() + b"\n")
            self.child.stdin.flush()

    def end(self):
        self.child.stdin.close()
        try:
            self.child.wait(3)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Bridge:
    def __init__(self, command):
        self.command = command
        self.lock = threading.Lock()
        self.sessions = {}
        self.spare = [Process(command) for _ in range(SPARE)]
        self.numbers = itertools.count(1)
        # A process serves the protocol version of its first request.
        self.modern = self.spare.pop()
        envelope = {VERSION: MODERN, CAPABILITIES: {}}
        discover = {"jsonrpc": "2.0", "id": "bridge", "method": "server/discover", "params": {"_meta": envelope}}
        self.modern.ask(discover).get()
        self.modern.forget("bridge")

    def begin(self):
        with self.lock:
            process = self.spare.pop() if self.spare else Process(self.command)
            self.spare.insert(0, Process(self.command))
            name = uuid.uuid4().hex
            self.sessions[name] = process
        return name, process

    def end(self):
        for process in [self.modern, *self.spare, *self.sessions.values()]:
            process.end()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bridge = None

    def log_message(self, *words):
        """Logs nothing."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self.is_local():
            return self.refuse(403, "Not from here")
        try:
            message = json.loads(body)
        except ValueError:
            return self.refuse(400, "Not JSON", -32700)
        if not isinstance(message, dict):
            return self.refuse(400, "Not one message")
        if self.is_modern(message):
            return self.post_modern(message)
        return self.post_in_session(message)

    def is_local(self):
        origin = self.headers.get("origin")
        hosts = [self.headers.get("host", "")] + ([urllib.parse.urlsplit(origin).netloc] if origin else [])
        return all(re.fullmatch(r"(localhost|127\.0\.0\.1|\[::1\])(:\d+)?", host) for host in hosts)

    def is_modern(self, message):
        if "mcp-session-id" in self.headers:
            return False
        envelope = (message.get("params") or {}).get("_meta") or {}
        return VERSION in envelope or self.headers.get("mcp-protocol-version", "") >= "2026"

    def post_modern(self, message):
        process = self.bridge.modern
        if "id" not in message:
            return self.answer(202)
        theirs = message["id"]
        ours = next(self.bridge.numbers)
        place = process.ask(message | {"id": ours})

        def translated():
            """The messages for a request, with the client's own id; None while there are none."""
            while True:
                try:
                    got = place.get(timeout=PULSE)
                except queue.Empty:
                    yield None
                    continue
                if got is None:
                    return
                meta = (got.get("params") or got.get("result") or {}).get("_meta") or {}
                if SUBSCRIPTION in meta:
                    meta[SUBSCRIPTION] = theirs
                yield got if "method" in got else got | {"id": theirs}
                if "method" not in got:
                    return

        try:
            coming = translated()
            first = next((one for one in coming if one is not None), None)
            if first is not None and "method" not in first:
                code = (first.get("error") or {}).get("code")
                return self.answer(STATUSES.get(code, 200), first)
            self.stream(itertools.chain([first], coming))
        except OSError:
            # In this protocol version a client cancels by disconnecting.
            cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ours}}
            process.send(cancelled)
        finally:
            process.forget(ours)

    def post_in_session(self, message):
        name = self.headers.get("mcp-session-id")
        if name is None and message.get("method") == "initialize":
            name, process = self.bridge.begin()
        elif name is None:
            return self.refuse(400, "Missing session id")
        elif name in self.bridge.sessions:
            process = self.bridge.sessions[name]
        else:
            return self.refuse(404, "Session not found")
        if "id" not in message or "method" not in message:
            process.send(message)
            return self.answer(202)
        place = process.ask(message)
        try:
            self.stream(self.until_answered(place), {"mcp-session-id": name})
        except OSError:
            pass
        finally:
            process.forget(message["id"])

    def until_answered(self, place):
        while (got := place.get()) is not None:
            yield got
            if "method" not in got:
                return

    def do_GET(self):
        process = self.bridge.sessions.get(self.headers.get("mcp-session-id"))
        if process is None:
            return self.refuse(405 if "mcp-session-id" not in self.headers else 404, "No such session")

        def coming():
            while process.child.poll() is None:
                try:
                    yield process.standalone.get(timeout=PULSE)
                except queue.Empty:
                    yield None

        try:
            self.stream(coming())
        except OSError:
            pass

    def do_DELETE(self):
        with self.bridge.lock:
            process = self.bridge.sessions.pop(self.headers.get("mcp-session-id"), None)
        if process is None:
            return self.refuse(404, "No such session")
        process.end()
        return self.answer(200)

    def stream(self, messages, headers=None):
        """Sends events until there are no more, and a comment while there are none."""
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", "connection": "close", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        for message in messages:
            event = ": nothing yet\n\n" if message is None else f"event: message\ndata: {json.dumps(message)}\n\n"
            self.wfile.write(event.encode())
            self.wfile.flush()

    def answer(self, status, message=None):
        body = b"" if message is None else json.dumps(message).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refuse(self, status, why, code=-32600):
        self.answer(status, {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why}})


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    # Sessions come in bursts.
    request_queue_size = 64


def main():
    Handler.bridge = Bridge(sys.argv[sys.argv.index("--") + 1 :])
    listener = Listener(("127.0.0.1", 0), Handler)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    print(f"listens on http://localhost:{listener.server_port}/mcp", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        signal.pause()
    finally:
        Handler.bridge.end()


if __name__ == "__main__":
    main()
