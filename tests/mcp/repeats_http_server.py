#!/usr/bin/env python3
"""The tools of `repeats_server.py` over streamable HTTP, in both protocol generations. It prints its address, and ends with its stdin."""

import contextlib
import http.server
import json
import sys
import threading
import time

import repeats_server
from server import CACHED, CAPABILITIES, IDENTITY, VERSIONS
from tools import Refused

# Sessions and ids of calls that were cancelled.
CANCELLED = set()
# The events after an event, by its id.
EVENTS = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        event = self.headers.get("Last-Event-ID")
        if event not in EVENTS:
            return self.whole(405)
        deadline = time.monotonic() + repeats_server.TIMEOUT
        while not repeats_server.is_let_go("stream") and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.stream([EVENTS[event]])

    def do_DELETE(self):
        self.whole(200)

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        method, params = message.get("method"), message.get("params") or {}
        session = self.headers.get("Mcp-Session-Id")
        if method == "notifications/cancelled":
            CANCELLED.add((session, json.dumps(params["requestId"])))
        if "id" not in message:
            return self.whole(202)
        modern = "io.modelcontextprotocol/protocolVersion" in (params.get("_meta") or {})
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            known = lambda: (session, json.dumps(message["id"])) in CANCELLED  # noqa: E731
            answer |= {"result": self.result(method, params, modern, known)}
        except Refused as refused:
            answer |= {"error": refused.error}
        except repeats_server.Lost:
            self.close_connection = True
            return None
        if answer.get("result", ...) is None:
            time.sleep(repeats_server.TIMEOUT)
            return None
        if modern and "result" in answer:
            answer["result"] = {"resultType": "complete"} | answer["result"]
        if (params.get("arguments") or {}).get("sse"):
            name = f"{session}-{message['id']}-{time.monotonic_ns()}"
            told = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "soon"}}
            EVENTS[f"{name}-1"] = (f"{name}-2", answer)
            return self.stream([(f"{name}-1", told), (f"{name}-2", answer)])
        more = {"Mcp-Session-Id": f"s-{time.monotonic_ns()}"} if method == "initialize" else {}
        return self.whole(200, answer, more)

    def result(self, method, params, modern, is_cancelled):
        if method == "initialize":
            return {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "serverInfo": IDENTITY}
        if method == "server/discover":
            return {"supportedVersions": list(VERSIONS), "capabilities": CAPABILITIES} | CACHED
        if method == "tools/list":
            return (CACHED if modern else {}) | {"tools": repeats_server.listed()}
        if method == "tools/call":
            return repeats_server.call(params.get("name"), params.get("arguments") or {}, is_cancelled)
        return {}

    def whole(self, status, message=None, headers=None):
        body = json.dumps(message).encode() if message else b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if body:
            self.send_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.write(body)

    def stream(self, told):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for name, message in told:
            self.write(f"id: {name}\ndata: {json.dumps(message)}\n\n".encode())
        self.close_connection = True

    def write(self, data):
        with contextlib.suppress(OSError):
            self.wfile.write(data)
            self.wfile.flush()


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
