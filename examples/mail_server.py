"""A mail server for agents, as small as they come: it sends whatever it is told, as often as it is told.

MCP over stdin and stdout, with no dependencies. Mail goes to the file that OUTBOX names, one line for each.
"""

import json
import os
import sys
import time

OUTBOX = os.environ.get("OUTBOX", "outbox.txt")

TOOLS = [
    {
        "name": "send_email",
        "description": "Sends an email.",
        "inputSchema": {
            "type": "object",
            "properties": {"to": {"type": "string"}, "subject": {"type": "string"}, "body": {"type": "string"}},
            "required": ["to", "subject"],
        },
    },
    {
        "name": "list_sent",
        "description": "Lists the emails that were sent.",
        "inputSchema": {"type": "object", "properties": {}},
    },
]


def call(name, arguments):
    if name == "list_sent":
        return open(OUTBOX).read() if os.path.exists(OUTBOX) else "nothing"
    with open(OUTBOX, "a") as outbox:
        outbox.write(f"to {arguments['to']}: {arguments['subject']}\n")
    # The mail is out. Whoever dies now does not hear of it.
    time.sleep(float(os.environ.get("DELAY", "0")))
    return f"sent to {arguments['to']}"


def answer(method, params):
    if method == "initialize":
        version = params.get("protocolVersion", "2025-11-25")
        info = {"name": "mail", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = call(params["name"], params.get("arguments", {}))
        return {"content": [{"type": "text", "text": text}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "method" not in message or "id" not in message:
        continue
    result = answer(message["method"], message.get("params", {}))
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
