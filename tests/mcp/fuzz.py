#!/usr/bin/env python3
"""Malformed frames in both directions: the gateway survives, no valid frame is lost, and no call bypasses the guard.

tests/mcp/fuzz.py --binary target/debug/onceward --cases 2000 --seed 1
"""

import base64
import collections
import concurrent.futures
import json
import random
import sys

import checks
import parsers
from client import NoResponse, parsed
from mutations import spoilt, written
from sandbox import HERE, Sandbox

# The number of cases for one gateway. After them it must still serve.
ROUND = 100

BEHIND = [sys.executable, str(HERE / "fuzz_server.py")]
GUARDED = "send_email"

# The gateway's own errors that are allowed for a malformed frame.
REFUSALS = (-32700, -32600, -32602)


def frames(number):
    """Valid frames, to be mutated."""
    arguments = {"to": f"mark-{number}", "n": 1.5}
    call = {"jsonrpc": "2.0", "id": f"frame-{number}", "method": "tools/call"}
    guarded = written(call | {"params": {"name": GUARDED, "arguments": arguments}})
    keyed = {"name": GUARDED, "arguments": arguments, "_meta": {"onceward/key": f"key-{number}", "progressToken": 1}}
    return (
        guarded,
        guarded,
        guarded,
        written(call | {"params": keyed}),
        written(call | {"params": {"name": "look", "arguments": arguments}}),
        written({"jsonrpc": "2.0", "id": f"frame-{number}", "method": "ping"}),
        written({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}),
        written({"jsonrpc": "2.0", "id": f"frame-{number}", "result": {"roots": []}}),
        written({"jsonrpc": "2.0", "id": f"frame-{number}", "method": "tools/list"}),
    )


def from_the_client(sandbox, seed, count):
    """Sends malformed frames, each twice, and checks what the server received."""
    chance = random.Random(f"client {seed}")
    agent = sandbox.agent(behind=BEHIND)
    agent.request("tools/list")
    sent = []
    for number in range(count):
        frame = spoilt(chance, chance.choice(frames(number)))
        for _ in range(2):
            agent.send(frame + b"\n")
        sent.append(frame)
        if number % 10 == 9:
            agent.request("ping")
    faults = []
    lines = [line for frame in sent for line in frame.split(b"\n")]
    ids = collections.Counter(key_of(line) for line in lines)
    agent.request("ping")
    for line in lines:
        message = request_in(line)
        if message and ids[key_of(line)] == 1:
            try:
                agent.wait_until(lambda message=message: agent.answers_to(message["id"]), "an answer", 5)
            except NoResponse:
                faults.append(f"never answered: {line!r}")
    faults += around_the_guard(sandbox.received(agent), sent)
    faults += own_errors(agent)
    served = agent.call(GUARDED, {"to": "after all that"})
    if served.get("isError"):
        faults.append(f"it no longer serves: {served}")
    return faults + ended(agent)


def key_of(line):
    return json.dumps((parsed(line) or {}).get("id"))


def request_in(line):
    """A request that every parser reads the same way, and that must be answered."""
    message = parsed(line)
    if not message or not isinstance(message.get("method"), str) or not parsers.is_clean(line):
        return None
    return message if "result" not in message and "error" not in message else None


def around_the_guard(received, sent):
    """Calls of the guarded tool that bypassed the guard."""
    faults = []
    times = collections.Counter()
    for line in received:
        called = [arguments for name, arguments in parsers.calls(line) if name == GUARDED]
        if called and not parsers.is_plain_call(line):
            faults.append(f"reached the server: {line!r}")
        elif called:
            message = json.loads(line)
            # Marks identify the frames. A frame that lost its mark may be equal to another one.
            times[json.dumps([message["params"].get("arguments"), key_in(message)], sort_keys=True)] += 1
    for what, count in times.items():
        if count > 1:
            faults.append(f"reached the server {count} times: {what}")
    return faults


def key_in(message):
    meta = message["params"].get("_meta")
    return meta.get("onceward/key") if isinstance(meta, dict) else None


def own_errors(agent):
    """Errors must be those of JSON-RPC. The server itself never returns one."""
    errors = [message["error"] for line in agent.lines if (message := parsed(line)) and "error" in message]
    return [f"an odd error: {error}" for error in errors if error.get("code") not in REFUSALS]


def from_the_server(sandbox, seed, count):
    """Lets the server send malformed frames before each response; every valid one must arrive."""
    chance = random.Random(f"server {seed}")
    plays = []
    for number in range(count):
        plays.append(b"".join(spoilt(chance, chance.choice(spoken(number))) + b"\n" for _ in range(2)))
    file = sandbox.folder / "plays"
    file.write_bytes(b"".join(base64.b64encode(play) + b"\n" for play in plays))
    agent = sandbox.agent(behind=BEHIND, environment={"PLAY_FILE": str(file)})
    agent.request("tools/list")
    faults = []
    for number in range(count):
        identity = f"call-{number}"
        tool = GUARDED if number % 3 else "look"
        agent.start_call(tool, {"to": f"mark-{number}"}, identity=identity)
        try:
            agent.wait(identity, 5)
        except NoResponse:
            faults.append(f"call {number} was never answered; the server said {plays[number]!r}")
    agent.request("ping")
    heard = collections.Counter(line.rstrip(b"\r\n") for line in agent.lines)
    for number, play in enumerate(plays):
        for line in play.split(b"\n"):
            if must_pass(line) and not heard[line.rstrip(b"\r")]:
                faults.append(f"lost on the way to the client: {line!r}")
    for number in range(count):
        answered = len(agent.answers_to(f"call-{number}"))
        spoken_twice = b"@ID@" in plays[number]
        if answered != 1 and not spoken_twice:
            faults.append(f"call {number} was answered {answered} times")
    return faults + ended(agent)


def spoken(number):
    """Valid frames of a server. `@ID@` is the id of the call that it is about to answer."""
    done = {"content": [{"type": "text", "text": f"early {number}"}]}
    answer = written({"jsonrpc": "2.0", "id": "@ID@", "result": done})
    return (
        written({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": number}}),
        written({"jsonrpc": "2.0", "id": f"ask-{number}", "method": "sampling/createMessage", "params": {"n": number}}),
        written({"jsonrpc": "2.0", "id": f"unknown-{number}", "result": done}),
        answer if number % 2 else written({"jsonrpc": "2.0", "method": "x", "params": done}),
    )


def must_pass(line):
    """A valid message of the server that is not a response to a call."""
    message = parsed(line)
    if not message or b"@ID@" in line or not isinstance(message.get("method"), str):
        return False
    return parsers.is_clean(line) or ("id" not in message and parsers.is_clean(written(message | {"id": 1})))


def ended(agent):
    code = agent.close()
    return [f"it ended with {code}"] if code else []


def main():
    more = {"cases": (int, 1000, "how many frames are spoilt at least, in rounds of 200"), "seed": (int, 1, "where chance begins")}
    arguments = checks.arguments_of(__doc__, **more)
    rounds = [
        (direction, f"{arguments.seed}/{number}")
        for number in range(-(-arguments.cases // (2 * ROUND)))
        for direction in (from_the_client, from_the_server)
    ]

    def one(entry):
        direction, seed = entry
        sandbox = Sandbox(arguments.binary)
        try:
            faults = direction(sandbox, seed, ROUND)
            sandbox.has_no_panic()
        except Exception as error:
            faults = [f"{type(error).__name__}: {error} {sandbox.errors()}"]
        finally:
            sandbox.leave()
        return [f"FAILED: {direction.__name__.replace('_', ' ')}, round {seed}: {fault}" for fault in faults]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        faults = [fault for some in pool.map(one, rounds) for fault in some]
    for fault in faults:
        print(fault[:1200])
    cases = len(rounds) * ROUND
    print(f"{max(0, cases - len(faults))} passed, {len(faults)} failed, 0 skipped")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
