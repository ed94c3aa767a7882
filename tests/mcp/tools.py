"""The fixture server's tools: their annotations and functions.

An effect is one line in COUNT_FILE, written before the response. Every tool takes `before_ms`, a pause before its effect, and
`delay_ms`, a pause between the effect and the response; DELAY_MS is the default of the latter. MORE_TOOLS holds further tools
as JSON, by name; each has an effect.
"""

import json
import os
import threading
import time

TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def tool(description, properties=None, required=(), **more):
    schema = {"type": "object", "properties": {"delay_ms": NUMBER, "before_ms": NUMBER} | (properties or {})}
    schema |= {"required": list(required)} if required else {}
    return {"description": description, "inputSchema": schema} | more


MAIL = {"to": TEXT, "subject": TEXT}
CHARGE = {"customer": TEXT, "invoice": TEXT, "amount": NUMBER, "memo": TEXT}
READS = {"annotations": {"readOnlyHint": True}}
RECEIPT = {"type": "object", "properties": {"receipt": TEXT}, "required": ["receipt"]}

TOOLS = {
    "send_email": tool("Sends an email.", MAIL, ("to",)),
    "charge": tool("Charges a customer.", CHARGE, ("customer", "invoice", "amount")),
    "read_inbox": tool("Counts what was sent.", **READS),
    "list_things": tool("Counts what was done."),
    "find_charge": tool("Whether an invoice was charged.", {"invoice": TEXT}),
    "misnamed": tool("Acts, and says that it reads.", **READS),
    "get_nothing": tool("Acts, and is named as if it read."),
    "fail": tool("Acts, and says that it failed.", {"times": NUMBER}),
    "refuse": tool("Answers with an error of JSON-RPC."),
    "crash_before": tool("Dies before it acts.", {"once": {"type": "boolean"}}),
    "crash_after": tool("Acts, and dies before it answers.", {"once": {"type": "boolean"}}),
    "slow": tool("Acts late, whatever it is told.", {"note": TEXT}),
    "cancellable": tool("Stops when it is told to, without an answer and without acting."),
    "stopped": tool("Acts at once, and answers with an error when it is told to stop."),
    "put": tool("Sets a thing to a value.", {"value": TEXT}, annotations={"idempotentHint": True}),
    "typed": tool("Acts, and dies before it answers with what it promises.", {"note": TEXT}, outputSchema=RECEIPT),
    "progress": tool("Tells how far it is, and acts.", {"steps": NUMBER}),
    "ask": tool("Wants something answered first.", {"what": TEXT}),
    "sample": tool("Asks the client's model, and acts.", {"prompt": TEXT}),
    "elicit": tool("Asks the user, and acts.", {"what": TEXT}),
    "roots": tool("Asks the client for its folders, and acts."),
    "big": tool("Gives back as many bytes as it is asked for, and acts.", {"bytes": NUMBER}),
    "odd": tool("Answers with odd but legal JSON, and acts."),
    "read_odd": tool("Answers with odd but legal JSON.", **READS),
    "task": tool("Acts in its own time.", {"what": TEXT}, execution={"taskSupport": "optional"}),
}

TOOLS |= json.loads(os.environ.get("MORE_TOOLS", "{}"))

# Unordered and escaped keys, numbers that no float can hold, unusual spaces.
ODD = (
    r'{ "isError" : false ,"content":[{"text":"\u005a\u00fcrich \ud83d\ude00 \/ \u2028","type":"text"}],'
    r'"structuredContent":{"zeta":1.0,"alpha":1.00,"big":123456789012345678901234567890,"small":-0.0,'
    r'"huge":1E+400,"e":1e2,"\u0061\u0062":[ ],"nested":{ "b":1 , "a":2 }},"unknown":{"later":null}}'
)


class Refused(Exception):
    """A response that is a JSON-RPC error."""

    def __init__(self, code, message, data=None):
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({"data": data} if data is not None else {})


def act(name, arguments):
    """Records an effect, with one write, so that servers in several processes can share the file."""
    line = json.dumps({"tool": name, "arguments": arguments}, sort_keys=True).encode() + b"\n"
    if "COUNT_FILE" not in os.environ:
        return
    file = os.open(os.environ["COUNT_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line)
    os.close(file)


def acts():
    """All effects so far."""
    try:
        with open(os.environ["COUNT_FILE"]) as file:
            return [json.loads(line) for line in file]
    except (OSError, KeyError):
        return []


def text(words, **more):
    return {"content": [{"type": "text", "text": words}]} | more


def run(server, name, params, identity, modern):
    """Runs one call. A tool without a function has an effect and returns the count."""
    arguments = params.get("arguments") or {}
    own = OWN.get(name)
    if own:
        return own(server, Call(name, params, arguments, identity, modern))
    wait(arguments.get("before_ms"))
    act(name, arguments)
    wait(arguments.get("delay_ms", os.environ.get("DELAY_MS")))
    return text(f"{name}: done, {len(acts())} in all")


def wait(milliseconds):
    if milliseconds:
        time.sleep(float(milliseconds) / 1000)


class Call:
    def __init__(self, name, params, arguments, identity, modern):
        self.name, self.params, self.arguments = name, params, arguments
        self.identity, self.modern = identity, modern

    def act(self):
        wait(self.arguments.get("before_ms"))
        act(self.name, self.arguments)
        wait(self.arguments.get("delay_ms", os.environ.get("DELAY_MS")))


def read(server, call):
    wait(call.arguments.get("delay_ms"))
    return text(f"{len(acts())} so far")


def find_charge(server, call):
    invoice = call.arguments.get("invoice")
    found = [one for one in acts() if one["tool"] == "charge" and one["arguments"].get("invoice") == invoice]
    answer = {"found": bool(found), "times": len(found)}
    return text(json.dumps(answer), structuredContent=answer)


def fail(server, call):
    """Fails a given number of times, or always."""
    call.act()
    before = len([one for one in acts() if one["tool"] == call.name])
    failing = before <= call.arguments.get("times", before)
    return text(f"attempt {before}", isError=True) if failing else text(f"attempt {before}")


def fail_structured(server, call):
    """Fails with a structured reason."""
    call.act()
    return text("it took too long", isError=True, structuredContent={"reason": "a time-out"})


def unlisted(server, call):
    """Violates its output schema with an additional member."""
    call.act()
    return text("done", structuredContent={"number": 1, "onceward": "not listed"})


def refuse(server, call):
    call.act()
    raise Refused(-32000, "not today", {"why": "closed"})


def crash(server, call):
    """Exits during the call; with `once`, the next call is served."""
    marker = os.environ.get("COUNT_FILE", "count") + ".crashed"
    if call.arguments.get("once") and os.path.exists(marker):
        call.act()
        return text(f"{call.name}: done, {len(acts())} in all")
    with open(marker, "w"):
        pass
    if call.name != "crash_before":
        call.act()
    os._exit(9)


def slow(server, call):
    wait(call.arguments.get("delay_ms"))
    act(call.name, call.arguments)
    return text("late, but done")


def cancellable(server, call):
    if server.cancelled[call.identity].wait(float(call.arguments.get("delay_ms", 5000)) / 1000):
        return None
    act(call.name, call.arguments)
    return text("it was not stopped")


def stopped(server, call):
    """Fails like the older Python SDK: the response does not say whether the tool had an effect."""
    act(call.name, call.arguments)
    if server.cancelled[call.identity].wait(float(call.arguments.get("delay_ms", 5000)) / 1000):
        raise Refused(0, "Request cancelled")
    return text("it was not stopped")


def progress(server, call):
    token = (call.params.get("_meta") or {}).get("progressToken")
    steps = int(call.arguments.get("steps", 3))
    for step in range(1, steps + 1):
        wait(call.arguments.get("delay_ms"))
        if token is not None:
            told = {"progressToken": token, "progress": step, "total": steps, "message": f"step {step}"}
            server.notify("notifications/progress", told)
    act(call.name, call.arguments)
    return text(f"{steps} steps")


def ask(server, call):
    """Requires input first, as the newest protocol version asks clients."""
    responses = call.params.get("inputResponses")
    if not responses:
        schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
        question = {"mode": "form", "message": "Really?", "requestedSchema": schema}
        requests = {"sure": {"method": "elicitation/create", "params": question}}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": "state-1"}
    call.act()
    return text(f"answered {json.dumps(responses, sort_keys=True)} for {call.params.get('requestState')}")


def sample(server, call):
    prompt = {"role": "user", "content": {"type": "text", "text": call.arguments.get("prompt", "Hello")}}
    answer = server.ask("sampling/createMessage", {"messages": [prompt], "maxTokens": 10})
    call.act()
    return text(f"the model said {json.dumps(answer.get('result', {}).get('content'))}")


def elicit(server, call):
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = server.ask("elicitation/create", {"message": "What is your name?", "requestedSchema": schema})
    call.act()
    return text(f"the user said {json.dumps(answer.get('result'), sort_keys=True)}")


def roots(server, call):
    answer = server.ask("roots/list", {})
    call.act()
    return text(f"the client has {json.dumps(answer.get('result'), sort_keys=True)}")


def big(server, call):
    call.act()
    return text("x" * int(call.arguments.get("bytes", 1)))


def odd(server, call):
    if call.name == "odd":
        call.act()
    return ODD


def task(server, call):
    """A task when the client asks for one: a handle at once, the result later."""
    if "task" not in call.params:
        call.act()
        return text("done at once")
    name = f"task-{os.getpid()}-{len(server.tasks) + 1}"
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = {"taskId": name, "status": "working", "createdAt": moment, "lastUpdatedAt": moment, "ttl": 60000}
    entry = {"state": state | {"pollInterval": 50}, "ended": threading.Event(), "result": {}}
    server.tasks[name] = entry

    def finish():
        call.act()
        entry["result"] = text("done as a task")
        entry["state"]["status"] = "completed"
        entry["ended"].set()

    threading.Thread(target=finish, daemon=True).start()
    return {"task": dict(entry["state"])}


OWN = {
    "read_inbox": read,
    "list_things": read,
    "find_charge": find_charge,
    "fail": fail,
    "fail_structured": fail_structured,
    "send_unlisted": unlisted,
    "refuse": refuse,
    "crash_before": crash,
    "crash_after": crash,
    "typed": crash,
    "slow": slow,
    "cancellable": cancellable,
    "stopped": stopped,
    "progress": progress,
    "ask": ask,
    "sample": sample,
    "elicit": elicit,
    "roots": roots,
    "big": big,
    "odd": odd,
    "read_odd": odd,
    "task": task,
}
