#!/usr/bin/env python3
"""A server over stdio with a state and a log of every effect. `repeats_http_server.py` serves the same tools over streamable HTTP.

STATE_FILE holds the state as JSON and survives the server; COUNT_FILE gets a line for every effect before the response.
Every tool takes these arguments:
- `hold`: after the effect, wait until the file `STATE_FILE.NAME` is there.
- `hold_each`: the same for the file `STATE_FILE.NAME-N`, where N is the number of calls that held for the name so far.
- `delay_ms`: wait that long after the effect.
- `lost`: after the first call's effect, exit without a response (stdio), or close the connection without one (HTTP).
- `stops`: with `hold`, stop without a response when the call is cancelled.
- `sse` (HTTP): respond with an event stream, whose events have ids and can be requested again with Last-Event-ID.
"""

import contextlib
import fcntl
import json
import os
import time

from server import CACHED, Server
from tools import Refused, act, text

# How long a call waits for its file.
TIMEOUT = 60

READS = {"annotations": {"readOnlyHint": True}}
AGAIN = {"annotations": {"idempotentHint": True}}


class Lost(Exception):
    """The call took effect, and its response is lost."""


@contextlib.contextmanager
def state():
    """The state, written back at the end. Several servers can share the file."""
    with open(os.environ["STATE_FILE"], "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        held = json.loads(file.read() or "{}")
        yield held
        file.truncate(0)
        file.write(json.dumps(held))


def set_value(held, arguments):
    held.setdefault("values", {})[arguments["name"]] = arguments["value"]
    return f"{arguments['name']} is {arguments['value']}"


def get_value(held, arguments):
    return str(held.get("values", {}).get(arguments["name"]))


def create(held, arguments):
    entities = held.setdefault("entities", [])
    if arguments["name"] in entities:
        raise ValueError("it exists already")
    entities.append(arguments["name"])
    return f"created {arguments['name']}"


def delete(held, arguments):
    held.setdefault("entities", []).remove(arguments["name"])
    return f"deleted {arguments['name']}"


def push(held, arguments):
    held.setdefault("items", []).append(arguments["item"])
    return f"{len(held['items'])} items"


def pop(held, arguments):
    return held.setdefault("items", []).pop(0)


def press(held, arguments):
    held["row"] = held.get("row", 0) + 1
    return f"row {held['row']}"


def stage(held, arguments):
    held["staged"] = arguments["content"]
    return "staged"


def commit(held, arguments):
    commits = held.setdefault("commits", [])
    commits.append([arguments["message"], held.pop("staged")])
    return f"commit {len(commits)}"


def run_command(held, arguments):
    """Supports `cat NAME` and `write NAME TEXT`; other commands do not change the state."""
    words = arguments["command"].split()
    if words[0] == "write":
        held.setdefault("values", {})[words[1]] = words[2]
    return str(held.get("values", {}).get(words[1])) if words[0] == "cat" else f"ran {arguments['command']}"


def connect(held, arguments):
    CONNECTED.append(arguments["to"])
    return f"connected to {arguments['to']}"


def ask_connection(held, arguments):
    """Works only in a process that has connected."""
    return f"asked {CONNECTED[-1]}"


def count(held, arguments):
    held["sent"] = held.get("sent", 0) + 1
    return f"done, {held['sent']} in all"


CONNECTED = []

# The function and the annotations of each tool.
TOOLS = {
    "set_value": (set_value, {}),
    "put_value": (set_value, AGAIN),
    "get_value": (get_value, READS),
    "create_entity": (create, {}),
    "delete_entity": (delete, {}),
    "push_item": (push, {}),
    "pop": (pop, {}),
    "press_key": (press, {}),
    "stage": (stage, {}),
    "commit": (commit, {}),
    "run_command": (run_command, {}),
    "connect": (connect, {}),
    "ask_connection": (ask_connection, {}),
    "send_email": (count, {}),
    "create_issue": (count, {}),
    "close_issue": (count, {}),
}


# Some clients drop arguments that are not in the schema.
PROPERTIES = {"name": {"type": "string"}, "value": {"type": "string"}, "delay_ms": {"type": "number"}}


def listed():
    schema = {"type": "object", "properties": PROPERTIES}
    return [{"name": name, "inputSchema": schema} | said for name, (_, said) in TOOLS.items()]


def is_let_go(name):
    return os.path.exists(f"{os.environ['STATE_FILE']}.{name}")


def held_for(held, arguments):
    """The name of the file that a call waits for, or None."""
    if "hold_each" not in arguments:
        return arguments.get("hold")
    name, numbers = arguments["hold_each"], held.setdefault("held", {})
    numbers[name] = numbers.get(name, 0) + 1
    return f"{name}-{numbers[name]}"


def call(name, arguments, is_cancelled):
    """The result of a call, or None if it was stopped."""
    if name not in TOOLS:
        raise Refused(-32602, f"unknown tool {name}")
    with state() as held:
        try:
            said = TOOLS[name][0](held, arguments)
        except (KeyError, IndexError, ValueError) as error:
            return text(f"failed: {error}", isError=True)
        if "readOnlyHint" not in TOOLS[name][1].get("annotations", {}):
            act(name, arguments)
        is_lost = "lost" in arguments and not held.get("lost", {}).get(arguments["lost"])
        if is_lost:
            held.setdefault("lost", {})[arguments["lost"]] = True
        hold = held_for(held, arguments)
    if is_lost:
        raise Lost
    deadline = time.monotonic() + TIMEOUT
    while hold and time.monotonic() < deadline:
        if is_let_go(hold):
            break
        if "stops" in arguments and is_cancelled():
            return None
        time.sleep(0.01)
    time.sleep(arguments.get("delay_ms", 0) / 1000)
    return text(said)


class Stdio(Server):
    """The fixture server with other tools."""

    def result(self, method, params, identity, modern):
        if method == "tools/list":
            return (CACHED if modern else {}) | {"tools": listed()}
        if method == "tools/call":
            cancelled = self.cancelled[json.dumps(identity)].is_set
            try:
                return call(params.get("name"), params.get("arguments") or {}, cancelled)
            except Lost:
                os._exit(9)
        return super().result(method, params, identity, modern)


if __name__ == "__main__":
    Stdio().serve()
