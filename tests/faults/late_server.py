#!/usr/bin/env python3
"""The MCP fixture server over HTTP, with a charge that can take effect late and a tool that looks for the charge."""

import http.server
import json
import os
import pathlib
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "mcp"))

import remote_server  # noqa: E402

remote_server.TOOLS += [
    {"name": "charge", "inputSchema": {"type": "object"}},
    {"name": "find_charge", "annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}},
]


class Late(remote_server.Server):
    def call(self, message, tool, arguments):
        if tool == "find_charge":
            answer = {"found": is_charged(arguments.get("invoice"))}
            content = [{"type": "text", "text": json.dumps(answer)}]
            return self.answer(message, {"content": content, "structuredContent": answer})
        time.sleep(arguments.get("before_ms", 0) / 1000)
        return super().call(message, tool, arguments)


def is_charged(invoice):
    try:
        with open(os.environ["COUNT_FILE"]) as file:
            done = [json.loads(line) for line in file]
    except OSError:
        return False
    return any(one["tool"] == "charge" and one["arguments"].get("invoice") == invoice for one in done)


if __name__ == "__main__":
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Late)
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    server.serve_forever()
