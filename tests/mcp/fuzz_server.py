#!/usr/bin/env python3
"""A server that answers everything, records its input, and sends given frames before each response.

The file PLAY_FILE has the frames: a line of base64 for each request that has an id.
"""

import base64
import json
import os
import sys

SCHEMA = {"type": "object", "properties": {}}
TOOLS = [
    {"name": "send_email", "inputSchema": SCHEMA},
    {"name": "look", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}},
]


def main():
    heard = open(os.environ["RECEIVED_FILE"], "ab", buffering=0)
    plays = []
    if "PLAY_FILE" in os.environ:
        with open(os.environ["PLAY_FILE"], "rb") as file:
            plays = [base64.b64decode(line) for line in file]
    turn = 0
    for line in sys.stdin.buffer:
        heard.write(line)
        message = understood(line)
        if message is None:
            continue
        if message["method"] == "tools/call" and turn < len(plays):
            play = plays[turn].replace(b'"@ID@"', json.dumps(message["id"]).encode())
            sys.stdout.buffer.write(play)
            turn += 1
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result(message)}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def understood(line):
    """A request that needs a response, or None."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("method"), str) or message.get("id") is None:
        return None
    return message


def result(message):
    if message["method"] == "initialize":
        about = {"name": "fuzz", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": about}
    if message["method"] == "tools/list":
        return {"tools": TOOLS}
    return {"content": [{"type": "text", "text": "done"}]}


if __name__ == "__main__":
    main()
