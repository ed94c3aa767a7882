"""A model that says what it was told to: turn after turn, calls of tools, then that it is done. It keeps the results."""

import http.server
import json
import threading


class FakeModel:
    """`turns` is a list of turns, each a list of calls as (name of a tool, arguments)."""

    def __init__(self, turns):
        self.turns = turns
        self.results = []
        model = self

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
                if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
                    return self.answer(200, "application/json", b'{"input_tokens":1}')
                events = model.turn(json.loads(body))
                lines = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
                return self.answer(200, "text/event-stream", lines.encode())

            def answer(self, status, kind, body):
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def turn(self, request):
        """What it says next. Which turn it is, the conversation tells."""
        messages = request.get("messages", [])
        contents = [message["content"] for message in messages if isinstance(message.get("content"), list)]
        blocks = [block for content in contents for block in content]
        self.results = [block for block in blocks if block.get("type") == "tool_result"]
        past = sum(message["role"] == "assistant" for message in messages)
        offered = any(tool["name"].startswith("mcp__") for tool in request.get("tools", []))
        calls = self.turns[past] if offered and past < len(self.turns) else []
        said = [self.call(past, place, name, arguments) for place, (name, arguments) in enumerate(calls)]
        if not said:
            said = [({"type": "text", "text": ""}, {"type": "text_delta", "text": "done"})]
        start = {"id": f"msg_{past}", "type": "message", "role": "assistant", "content": []}
        start["model"] = request.get("model")
        usage = {"input_tokens": 1, "output_tokens": 1}
        yield {"type": "message_start", "message": start | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
        for index, (block, delta) in enumerate(said):
            yield {"type": "content_block_start", "index": index, "content_block": block}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        why = "tool_use" if calls else "end_turn"
        yield {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": usage}
        yield {"type": "message_stop"}

    def call(self, turn, place, name, arguments):
        """A call of a tool. Its id is new each time, as a model's is."""
        block = {"type": "tool_use", "id": f"toolu_{turn}_{place}", "name": f"mcp__mail__{name}", "input": {}}
        return block, {"type": "input_json_delta", "partial_json": json.dumps(arguments)}

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
