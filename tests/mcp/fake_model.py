"""A scripted model: /v1/messages on this machine, for tests of agents without a real model.

Its next turn depends only on the number of its turns in the conversation that it receives. So an agent that retries gets the
same turn, and an agent that restarts goes through the same turns.
"""

import http.server
import itertools
import json
import threading

# The prefix that Claude's agents give the tools of a server called mail.
PREFIX = "mcp__mail__"


def call(tool, arguments=None):
    """A part of a turn: the model calls a tool."""
    return {"type": "tool_use", "name": tool, "input": arguments or {}}


def say(text):
    return {"type": "text", "text": text}


class FakeModel:
    """Serves until it is closed. A script is a list of turns, and a turn a list of parts."""

    def __init__(self, script):
        self.script = script
        self.asked = []
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def turn(self, request):
        """The turn for a request."""
        if not tools_of(request):
            # Agents also send requests of their own, for example for a title.
            return [say("A conversation")]
        messages = request["messages"]
        with self.lock:
            self.asked.append(request)
            spoken = sum(message["role"] == "assistant" for message in messages)
            parts = self.script[spoken] if spoken < len(self.script) else [say("That is all.")]
            return [self.numbered(part) for part in parts]

    def numbered(self, part):
        """Every call has a new id, as with a real model."""
        if part["type"] == "text":
            return part
        return part | {"name": PREFIX + part["name"], "id": f"toolu_{next(self.numbers):024}"}

    def tools(self):
        """The server's tools in the last request."""
        return tools_of(self.asked[-1])

    def told(self):
        """The results of its calls in the last conversation, in order: the texts, and whether each was an error."""
        blocks = [block for message in self.asked[-1]["messages"] for block in blocks_of(message)]
        return [(text_of(block), bool(block.get("is_error"))) for block in blocks if block["type"] == "tool_result"]


def tools_of(request):
    names = [tool.get("name", "") for tool in request.get("tools", [])]
    return [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]


def blocks_of(message):
    content = message["content"]
    return content if isinstance(content, list) else [say(content)]


def text_of(block):
    content = block.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def events(about, parts):
    """A turn as the stream of events that clients of the API read. Each needs a new id."""
    reason = "tool_use" if any(part["type"] == "tool_use" for part in parts) else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = about | {"type": "message", "role": "assistant", "content": [], "usage": usage}
    yield {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}}
    for index, part in enumerate(parts):
        if part["type"] == "text":
            empty, delta = part | {"text": ""}, {"type": "text_delta", "text": part["text"]}
        else:
            empty, delta = part | {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(part["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    yield {"type": "message_stop"}


def handler_of(model):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_HEAD(self):
            self.answer(200, "application/json", b"")

        def do_GET(self):
            self.answer(404, "application/json", b"{}")

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path.split("?")[0] != "/v1/messages":
                return self.answer(200, "application/json", b'{"input_tokens":1}')
            request = json.loads(body)
            parts = model.turn(request)
            about = {"id": f"msg_{next(model.numbers):024}", "model": request.get("model")}
            if not request.get("stream"):
                whole = next(events(about, parts))["message"] | {"content": parts, "stop_reason": "end_turn"}
                return self.answer(200, "application/json", json.dumps(whole).encode())
            lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(about, parts)]
            return self.answer(200, "text/event-stream", "".join(lines).encode())

        def answer(self, status, kind, body):
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:
                # The agent was killed in the meantime.
                pass

    return Handler
