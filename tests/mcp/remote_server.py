#!/usr/bin/env python3
"""A fixture server over streamable HTTP without dependencies, so that it can misbehave.

POST /mcp takes one message. `send_email` writes a line to COUNT_FILE before it responds. Its argument `how` selects the
response: json (the default), sse, late (after `delay_ms`), cut (the stream breaks off before the result), ended (the stream
ends in order before the result, and no event has an id), polled (the stream ends, and a GET with Last-Event-ID gets the result
after `later_ms`), slow (a stream with a pause of `delay_ms`), open (a stream that stays open after the result until the
client closes it, which a file next to COUNT_FILE records), gone (status 404 before the effect), error (status 500 after it),
moved (status 307), slash (a redirect to itself), refused (an error with status 400, after the effect), hang (no response),
nan (with NaN in it), odd (status 500 with a result), packed (gzip, unless the request refuses it).
"""

import gzip
import http.server
import json
import os
import threading
import time

TOOLS = [
    {"name": "send_email", "inputSchema": {"type": "object", "properties": {"to": {"type": "string"}}}},
    {"name": "look", "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}},
    {"name": "get_wiped", "annotations": {"readOnlyHint": False}, "inputSchema": {"type": "object"}},
]
# Further tools, as in tools.py.
TOOLS += [{"name": name} | tool for name, tool in json.loads(os.environ.get("MORE_TOOLS", "{}")).items()]
# The tools of a guest: the same name, but another tool.
GUEST_TOOLS = [{"name": "get_wiped", "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}}]
LOCK = threading.Lock()
# The results for a GET with Last-Event-ID, by the id of the event.
POLLED = {}
CANCELLED = []


class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        event = self.headers.get("Last-Event-ID")
        if event is None:
            return self.whole(405, b"")
        self.stream_head()
        deadline = time.monotonic() + 10
        while event not in POLLED and time.monotonic() < deadline:
            time.sleep(0.02)
        self.event(POLLED[event], identity=event + "-2")
        self.end()

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        message = json.loads(body)
        with open(os.environ["RECEIVED_FILE"], "a") as received:
            head = {name.lower(): value for name, value in self.headers.items()}
            received.write(json.dumps({"path": self.path, "head": head, "body": body.decode()}) + "\n")
        method, params = message.get("method"), message.get("params", {})
        if "id" not in message:
            if method == "notifications/cancelled":
                CANCELLED.append(params["requestId"])
            return self.whole(202, b"")
        if method == "initialize":
            info = {"name": "remote", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
            return self.answer(message, result, session="s-1")
        who = self.headers.get("Authorization")
        if who == "Bearer bad":
            return self.whole(401, b"{}")
        tools = GUEST_TOOLS if who == "Bearer guest" else TOOLS
        if method == "tools/list" and params.get("numbered"):
            self.stream_head()
            self.event({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}}, identity="l-1", retry=250)
            return self.end()
        if method == "tools/list" and params.get("open"):
            return self.left_open({"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})
        if method == "tools/list":
            odd = {"_meta": {"share": float("nan")}} if params.get("nan") else {}
            return self.answer(message, {"tools": tools} | odd, sse=params.get("sse", False))
        if method != "tools/call":
            return self.answer(message, {})
        self.call(message, params["name"], params.get("arguments", {}))

    def call(self, message, tool, arguments):
        how = arguments.get("how", "json")
        if how == "slash":
            self.send_response(307)
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/mcp/")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if how in ("gone", "moved"):
            return self.whole(404 if how == "gone" else 307, b'{"why":"' + how.encode() + b'"}')
        if tool != "look":
            with LOCK, open(os.environ["COUNT_FILE"], "a") as effects:
                effects.write(json.dumps({"tool": tool, "arguments": arguments}) + "\n")
        time.sleep(arguments.get("delay_ms", 0) / 1000 if how != "slow" else 0)
        result = {"content": [{"type": "text", "text": f"done {tool}"}]}
        if how == "nan":
            result["structuredContent"] = {"ratio": float("nan")}
            return self.answer(message, result)
        if how == "packed" and "gzip" in self.headers.get("Accept-Encoding", "gzip"):
            packed = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
            return self.whole(200, packed, encoding="gzip")
        if how == "error":
            return self.whole(500, b"out of order")
        if how == "odd":
            return self.whole(500, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())
        if how == "refused":
            error = {"code": -32603, "message": "not today"}
            return self.whole(400, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
        if how == "hang":
            time.sleep(30)
        if how in ("json", "late", "packed"):
            return self.answer(message, result)
        if how == "open":
            return self.left_open({"jsonrpc": "2.0", "id": message["id"], "result": result})
        self.stream_head()
        self.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}})
        if how == "slow":
            time.sleep(arguments.get("delay_ms", 0) / 1000)
        if how == "pings":
            # Comments keep the stream alive until the file exists.
            while not os.path.exists(os.environ["COUNT_FILE"] + ".go"):
                self.chunk(b": ping\n\n")
                time.sleep(0.05)
        if how == "cut":
            self.close_connection = True
            return self.wfile.flush()
        if how == "ended":
            return self.end()
        if how == "polled":
            event = f"e-{message['id']}"
            self.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, identity=event, retry=50)
            self.end()
            time.sleep(arguments.get("later_ms", 200) / 1000)
            POLLED[event] = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            return None
        self.event({"jsonrpc": "2.0", "id": message["id"], "result": result}, identity="last")
        return self.end()

    def left_open(self, answer):
        """Responds and waits until the client closes."""
        self.stream_head()
        self.event(answer)
        self.connection.settimeout(30)
        if self.connection.recv(1) == b"":
            with LOCK, open(os.environ["COUNT_FILE"] + ".left", "a") as left:
                left.write("left\n")
        self.close_connection = True

    def answer(self, message, result, session=None, sse=False):
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        if sse:
            self.stream_head()
            self.event(reply)
            return self.end()
        return self.whole(200, json.dumps(reply).encode(), session)

    def whole(self, status, body, session=None, encoding=None):
        self.send_response(status)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.send_header("Content-Length", str(len(body)))
        if body:
            self.send_header("Content-Type", "application/json")
        if session:
            self.send_header("Mcp-Session-Id", session)
        if status == 307:
            self.send_header("Location", "/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def stream_head(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, message, identity=None, retry=None):
        text = (f"id: {identity}\n" if identity else "") + (f"retry: {retry}\n" if retry else "")
        self.chunk(f"event: message\n{text}data: {json.dumps(message)}\n\n".encode())

    def end(self):
        self.chunk(b"")

    def chunk(self, data):
        try:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        except OSError:
            pass


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    server.serve_forever()
