"""Tools of protocol version 2026-07-28 that return a request for input and are called again with the answers."""

import hashlib
import hmac
import json
import secrets

from conformance_offers import form, text
from mcp.shared.exceptions import MCPError

INVALID_PARAMS = -32602
SECRET = secrets.token_bytes(16)
ROOTS = {"method": "roots/list", "params": {}}


def sampling(words):
    asked = {"role": "user", "content": text(words)}
    return {"method": "sampling/createMessage", "params": {"messages": [asked], "maxTokens": 50}}


def capabilities(ctx):
    """The client's capabilities in this request."""
    return (ctx.params.get("_meta") or {}).get("io.modelcontextprotocol/clientCapabilities") or {}


def sealed(**state):
    """A signed state that the client returns unchanged. The number makes each one unique."""
    plain = json.dumps({**state, "once": secrets.token_hex(8)})
    return json.dumps({"plain": plain, "seal": seal(plain)})


def opened(state):
    try:
        whole = json.loads(state)
        if hmac.compare_digest(whole["seal"], seal(whole["plain"])):
            return json.loads(whole["plain"])
    except (ValueError, TypeError, KeyError):
        pass
    raise MCPError(INVALID_PARAMS, "The request state is not one of ours")


def seal(plain):
    return hmac.new(SECRET, plain.encode(), hashlib.sha256).hexdigest()


def asks(requests, state=None):
    carried = {} if state is None else {"requestState": state}
    return {"resultType": "input_required", "inputRequests": requests, **carried}


def done(words):
    return {"resultType": "complete", "content": [text(words)]}


def round_of(ctx):
    """The answers and the state of this call."""
    state = ctx.params.get("requestState")
    return ctx.params.get("inputResponses") or {}, None if state is None else opened(state)


def once(requests, words, stateful=False):
    """A tool that asks all its questions at once until it has all answers."""

    async def tool(ctx, given):
        answers, state = round_of(ctx)
        if set(requests) <= set(answers) and (state or not stateful):
            return done(words(answers))
        return asks(requests, sealed(asked=sorted(requests)) if stateful else None)

    return tool


async def two_rounds(ctx, given):
    answers, state = round_of(ctx)
    if state and state["round"] == 1 and "step1" in answers:
        name = answers["step1"]["content"]["name"]
        return asks({"step2": form("Your colour?", "color")}, sealed(round=2, name=name))
    if state and state["round"] == 2 and "step2" in answers:
        return done(f"{state['name']} likes {answers['step2']['content']['color']}")
    return asks({"step1": form("Your name?", "name")}, sealed(round=1))


async def asks_what_is_possible(ctx, given):
    answers, _ = round_of(ctx)
    possible = {"elicitation": form("Your value?", "value"), "sampling": sampling("Say something")}
    requests = {f"ask_{name}": request for name, request in possible.items() if name in capabilities(ctx)}
    if answers or not requests:
        return done(f"Answered: {', '.join(sorted(answers))}")
    return asks(requests, sealed())


NAME = {"user_name": form("Your name?", "name")}
SAMPLE = {"sample_request": sampling("What is the capital of France?")}
CONFIRM = {"confirm": form("Is that right?", "ok", "boolean")}
SEVERAL = {**NAME, "greeting": sampling("Greet the user"), "client_roots": ROOTS}

TOOLS = {
    "test_input_required_result_elicitation": once(NAME, lambda got: f"Hello, {got['user_name']['content']['name']}!"),
    "test_input_required_result_sampling": once(SAMPLE, lambda got: f"It said {got['sample_request']['content']['text']}"),
    "test_input_required_result_list_roots": once(
        {"roots_request": ROOTS}, lambda got: f"{len(got['roots_request']['roots'])} roots"
    ),
    "test_input_required_result_request_state": once(CONFIRM, lambda got: "state-ok", stateful=True),
    "test_input_required_result_multiple_inputs": once(SEVERAL, lambda got: f"{len(got)} answers", stateful=True),
    "test_input_required_result_multi_round": two_rounds,
    "test_input_required_result_tampered_state": once(CONFIRM, lambda got: "state-ok", stateful=True),
    "test_input_required_result_capabilities": asks_what_is_possible,
}
