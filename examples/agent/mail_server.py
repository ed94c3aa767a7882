"""A minimal mail server for agents: it sends every mail that it is asked to send, as often as it is asked.

MCP over stdin and stdout, one message a line. Sent mail is appended to the file that OUTBOX names, one line each. With
DELAY, in seconds, the answer comes that long after the mail has gone.
"""

import json
import os
import pathlib
import sys
import time

OUTBOX = pathlib.Path(os.environ.get("OUTBOX", "outbox.jsonl"))
DELAY = float(os.environ.get("DELAY", "0"))

TEXT = {"type": "string"}
MAIL = {"to": TEXT, "subject": TEXT, "body": TEXT}
TOOLS = [
    {
        "name": "send_email",
        "description": "Sends an email.",
        "inputSchema": {"type": "object", "properties": MAIL, "required": ["to", "subject"]},
    },
    {
        "name": "list_sent",
        "description": "Lists the emails that were sent.",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    },
]


def send_email(arguments):
    mail = {"to": arguments["to"], "subject": arguments["subject"], "body": arguments.get("body", "")}
    with OUTBOX.open("a") as outbox:
        outbox.write(json.dumps(mail) + "\n")
    # The mail is out. An agent that dies now does not get the answer.
    time.sleep(DELAY)
    return f"Sent to {mail['to']}."


def list_sent(arguments):
    return OUTBOX.read_text() if OUTBOX.exists() else "Nothing was sent."


CALLED = {"send_email": send_email, "list_sent": list_sent}


def initialize(params):
    version = params.get("protocolVersion", "2025-11-25")
    return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "mail", "version": "1"}}


def call(params):
    try:
        text, failed = CALLED[params["name"]](params.get("arguments") or {}), False
    except KeyError as missing:
        text, failed = f"There is no {missing}; nothing was sent.", True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


ANSWERED = {
    "initialize": initialize,
    "ping": lambda params: {},
    "tools/list": lambda params: {"tools": TOOLS},
    "tools/call": call,
}

for line in sys.stdin:
    message = json.loads(line)
    method, identity = message.get("method"), message.get("id")
    if method is None or identity is None:
        continue
    reply = {"jsonrpc": "2.0", "id": identity}
    if method in ANSWERED:
        reply["result"] = ANSWERED[method](message.get("params") or {})
    else:
        # Clients of the newest protocol version try server/discover first. This error tells them to use initialize.
        reply["error"] = {"code": -32601, "message": f"Method not found: {method}"}
    print(json.dumps(reply), flush=True)
