#!/usr/bin/env python3
"""An MCP server over stdio that counts its effects and can misbehave. It needs only Python.

It supports protocol versions with and without `initialize`, unless SPEAKS limits it to `legacy` or `modern`. It does not
answer the method in SILENT_ON, and stops reading after the request `fixture/deaf`. Every received line goes to the file
RECEIVED_FILE unchanged; every effect is a line in COUNT_FILE, written before the response.
"""

import json
import os
import sys
import threading
import time

from tools import TOOLS, Refused, run

VERSIONS = ("2026-07-28", "2025-11-25", "2025-06-18")
MODERN = "2026-07-28"
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
IDENTITY = {"name": "fixture", "version": "1.0"}
CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}

# Members of every list in the newest protocol version.
CACHED = {"ttlMs": 0, "cacheScope": "private"}

# The size of a page of tools, when the client's cursor asks for pages.
PAGE = 5

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
UNSUPPORTED_VERSION = -32022

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Server:
    def __init__(self):
        self.writing = threading.Lock()
        self.asked = {}
        self.cancelled = {}
        self.questions = 0
        self.tasks = {}
        self.listening = []
        self.received = open(os.environ["RECEIVED_FILE"], "ab", buffering=0) if "RECEIVED_FILE" in os.environ else None

    def serve(self):
        """Reads until the client closes. Running calls are aborted then, unless LINGER is set."""
        for line in sys.stdin.buffer:
            if self.received:
                self.received.write(line)
            if line.strip():
                self.take(line)
        if "LINGER" not in os.environ:
            os._exit(int(os.environ.get("EXIT_CODE", "0")))

    def take(self, line):
        try:
            message = json.loads(line)
        except ValueError:
            return self.say({"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "no JSON"}})
        if not isinstance(message, dict) or ("method" in message and not isinstance(message["method"], str)):
            return self.say({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no request"}})
        if "method" not in message:
            return self.hear_answer(message)
        if "id" not in message:
            return self.hear_notification(message)
        if message["method"] != "tools/call":
            return self.answer(message)
        self.cancelled[json.dumps(message["id"])] = threading.Event()
        lingers = "LINGER" in os.environ
        return threading.Thread(target=self.answer, args=(message,), daemon=not lingers).start()

    def hear_answer(self, message):
        """Receives the client's response to a request of this server."""
        waiting = self.asked.pop(message.get("id"), None)
        if waiting:
            waiting[1].update(message)
            waiting[0].set()

    def hear_notification(self, message):
        if message["method"] == "notifications/cancelled":
            event = self.cancelled.get(json.dumps((message.get("params") or {}).get("requestId")))
            if event:
                event.set()
            identity = (message.get("params") or {}).get("requestId")
            self.listening = [one for one in self.listening if one != identity]

    def answer(self, message):
        params = message.get("params") or {}
        modern = (params.get("_meta") or {}).get(VERSION_KEY) == MODERN
        identity = message["id"]
        try:
            result = self.result(message["method"], params, identity, modern)
        except Refused as refused:
            return self.say({"jsonrpc": "2.0", "id": identity, "error": refused.error})
        except Exception as error:  # invalid arguments
            return self.say({"jsonrpc": "2.0", "id": identity, "error": {"code": -32603, "message": repr(error)}})
        if result is None:
            return None
        if isinstance(result, str):
            return self.write(f'{{"jsonrpc":"2.0","id":{json.dumps(identity)},"result":{result}}}\n'.encode())
        if modern:
            result = {"resultType": "complete"} | result
        return self.say({"jsonrpc": "2.0", "id": identity, "result": result})

    def result(self, method, params, identity, modern):
        """The response as an object or a text, or None if the request gets none."""
        cached = CACHED if modern else {}
        if refused := strange(method, modern):
            raise refused
        if method == os.environ.get("SILENT_ON"):
            return None
        if method == "fixture/deaf":
            time.sleep(60)
        if method == "subscriptions/listen":
            self.listening.append(identity)
            about = {"notifications": params["notifications"], "_meta": {SUBSCRIPTION: identity}}
            return self.notify("notifications/subscriptions/acknowledged", about)
        if method == "fixture/change":
            return self.change(modern)
        if method == "initialize":
            wanted = params.get("protocolVersion")
            version = wanted if wanted in VERSIONS[1:] else VERSIONS[1]
            return {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": IDENTITY}
        if method == "server/discover":
            meta = {"io.modelcontextprotocol/serverInfo": IDENTITY}
            return {"supportedVersions": list(VERSIONS), "capabilities": CAPABILITIES, "_meta": meta} | CACHED
        if method == "tools/list" and "NO_LIST" in os.environ:
            raise Refused(-32603, "the list is not to be had")
        if method == "tools/list":
            return cached | page(params.get("cursor"))
        if method == "tools/call":
            return self.call(params, identity, modern)
        if method in FIXED:
            return (cached if method in LISTS else {}) | FIXED[method]
        if method in ("tasks/get", "tasks/result", "tasks/cancel"):
            return self.task(method, params)
        raise Refused(METHOD_NOT_FOUND, f"no method {method}")

    def change(self, modern):
        """Announces that its tools have changed: to every client, or to subscribers."""
        for to in [{"_meta": {SUBSCRIPTION: identity}} for identity in self.listening] if modern else [{}]:
            self.notify("notifications/tools/list_changed", to)
        return {}

    def call(self, params, identity, modern):
        name = params.get("name")
        if name not in TOOLS:
            raise Refused(INVALID_PARAMS, f"no tool {name}")
        return run(self, name, params, json.dumps(identity), modern)

    def task(self, method, params):
        """The state of a task. An unknown task is an error."""
        task = self.tasks.get(params.get("taskId"))
        if not task:
            raise Refused(INVALID_PARAMS, "no such task")
        if method == "tasks/result":
            task["ended"].wait(10)
            related = {"io.modelcontextprotocol/related-task": {"taskId": params["taskId"]}}
            return task["result"] | {"_meta": related}
        return task["state"]

    def ask(self, method, params, timeout=10):
        """Sends the client a request and waits for its response."""
        self.questions += 1
        identity = f"question-{self.questions}"
        waiting = (threading.Event(), {})
        self.asked[identity] = waiting
        self.say({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
        if not waiting[0].wait(timeout):
            return {"error": {"code": 0, "message": "no answer in time"}}
        return waiting[1]

    def notify(self, method, params):
        self.say({"jsonrpc": "2.0", "method": method, "params": params})

    def say(self, message):
        self.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def write(self, line):
        with self.writing:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError:
                pass  # the client is gone; effects continue


def strange(method, modern):
    """The error of a server that does not support the client's protocol generation."""
    speaks = os.environ.get("SPEAKS")
    if speaks == "legacy" and (modern or method == "server/discover"):
        return Refused(METHOD_NOT_FOUND, f"no method {method}")
    if speaks == "modern" and method == "initialize":
        return Refused(UNSUPPORTED_VERSION, "no such version", {"supported": [MODERN]})
    return Refused(INVALID_PARAMS, "no envelope") if speaks == "modern" and not modern else None


def page(cursor):
    """All the tools, or one page of them. The first page is asked for with the cursor `pages`."""
    tools = [{"name": name, **about} for name, about in TOOLS.items()]
    if cursor is None:
        return {"tools": tools}
    start = 0 if cursor == "pages" else int(cursor)
    more = {"nextCursor": str(start + PAGE)} if start + PAGE < len(tools) else {}
    return {"tools": tools[start : start + PAGE]} | more


LISTS = ("resources/list", "resources/templates/list", "prompts/list", "resources/read")

# Requests with a constant result.
FIXED = {
    "ping": {},
    "logging/setLevel": {},
    "resources/subscribe": {},
    "resources/unsubscribe": {},
    "resources/list": {"resources": [{"uri": "memo://1", "name": "memo", "mimeType": "text/plain"}]},
    "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "memo://{id}", "name": "memos"}]},
    "resources/read": {"contents": [{"uri": "memo://1", "mimeType": "text/plain", "text": "Zürich \u2028 \U0001f600"}]},
    "prompts/list": {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "Greet them."}}]},
    "completion/complete": {"completion": {"values": ["one", "two"], "total": 2, "hasMore": False}},
}


if __name__ == "__main__":
    Server().serve()
