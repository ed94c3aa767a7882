"""The policy for every fault, as data: the calls and effects of the upstream, the client's final result, and the result of
one more call with the same key.

Results are `object` (a new success), `replay` (the kept success), `doubt` (409: the outcome is unknown and an operator has to
resolve it), `no answer` (the client timed out), `broken off` (in the middle of a response), or a status, with `kept` if it is
the replay of a kept failure.
"""

import dataclasses

KEYED = ("stripe-python", "stripe-node", "curl")
STRIPE = ("stripe-python", "stripe-node")
KEYLESS = ("openai", "openai responses", "openai stream", "anthropic")


@dataclasses.dataclass(frozen=True)
class Row:
    calls: int
    effects: int
    final: str
    later: str
    effects_later: int


@dataclasses.dataclass(frozen=True)
class Gateway:
    """One configuration of the gateway, and the clients that use it."""

    profile: str
    key_mode: str
    tenant: str
    clients: tuple
    faults: tuple
    # Whether the upstream ignores keys although the gateway is configured with `honours_key`.
    deceived: bool = False
    options: tuple = ()


@dataclasses.dataclass(frozen=True)
class Way:
    """The settings of a client in a case."""

    retries: int = 2
    # Long, so that a busy machine causes no time-outs.
    timeout: float = 20.0
    # The fault affects connections, so these cases run alone, after the others.
    connection: bool = False
    # A harmless request runs first, so that there is an idle connection to reuse.
    warm: bool = False


WAYS = {
    "slow": Way(timeout=1.5),
    "slow, given up": Way(timeout=1.5, retries=0),
    "refused": Way(retries=0, connection=True),
    "reset before": Way(connection=True),
    "reset after, kept connection": Way(connection=True, warm=True),
    # The client has a long time-out, and the gateway a short one.
    "slow for the gateway": Way(),
    # The client times out on the first attempt, and its retries are answered with 409 in flight.
    "slow, not waited for": Way(timeout=1.5, retries=8),
}

# Cases whose names differ from the fault's.
PLANNED = {
    "slow, given up": "slow",
    "refused": "ok",
    "reset before": "ok",
    "reset after, kept connection": "reset after",
    "slow for the gateway": "slow",
    "slow, not waited for": "slow",
}

FAULTS = (
    "ok",
    "500",
    "502",
    "503",
    "503 later",
    "504",
    "409",
    "402",
    "429",
    "reset after",
    "lost",
    "slow",
    "slow, given up",
    "refused",
    "reset before",
    "reset after, kept connection",
)
ACP = ("ok", "500", "500 clean", "502", "503 later", "lost")
EVERY = (*FAULTS, "slow for the gateway", "slow, not waited for", "500 clean")

GATEWAYS = {
    "stripe": Gateway("stripe", "required", "authorization", STRIPE, FAULTS),
    "ietf": Gateway("ietf", "required", "authorization", ("curl",), FAULTS),
    "acp": Gateway("acp", "required", "authorization", ("curl",), ACP),
    "derived": Gateway("ietf", "derived", "authorization", KEYLESS, FAULTS),
    "impatient": Gateway(
        "stripe", "required", "authorization", KEYED, ("slow for the gateway",), options=("--timeout", "1s")
    ),
    "impatient, derived": Gateway(
        "ietf", "derived", "authorization", KEYLESS, ("slow for the gateway",), options=("--timeout", "1s")
    ),
    "not waiting": Gateway(
        "stripe", "required", "authorization", STRIPE, ("slow, not waited for",), options=("--wait", "200ms")
    ),
    "not waiting, derived": Gateway(
        "ietf", "derived", "authorization", KEYLESS, ("slow, not waited for",), options=("--wait", "200ms")
    ),
    # `honours_key` is a promise about the upstream. Where the upstream breaks it, effects happen twice; these cases show it.
    "deceived": Gateway("ietf", "required", "authorization", ("curl",), ("502", "lost"), deceived=True),
}

DONE = Row(1, 1, "object", "replay", 1)
# The upstream said that nothing happened: the key is free again, and the client's own retry succeeds.
FREED = Row(2, 1, "object", "replay", 1)
# The same, but this client does not retry.
FREED_UNTRIED = {status: Row(1, 0, status, "object", 1) for status in ("409", "429")}
# The outcome is unknown and the upstream honours the key: the gateway sends it again, and the upstream replays.
ASKED_AGAIN = Row(2, 1, "object", "replay", 1)
# The outcome is unknown and a second request could act twice: the client's retry gets 409 and stops.
HELD = Row(1, 1, "doubt", "doubt", 1)
# No response came at all, so the gateway answers itself, and says that a retry does not help.
HELD_AT_ONCE = Row(1, 1, "502", "doubt", 1)


def rows(case, client, gateway, honours):
    """The allowed rows. There is more than one only where the network decides."""
    profile = gateway.profile
    if gateway.deceived and honours:
        return [Row(2, 2, "object", "replay", 2)]
    unknown = ASKED_AGAIN if honours else HELD
    # curl does not read the gateway's advice on retries.
    unanswered = ASKED_AGAIN if honours else HELD if client == "curl" else HELD_AT_ONCE
    if case in ("ok", "slow"):
        return [DONE]
    if case == "slow, given up":
        # The client disconnected; the call continued, and its outcome was kept.
        return [Row(1, 1, "no answer", "replay", 1)]
    if case == "500" and profile == "acp":
        # ACP forbids keeping a 500, and a 500 does not prove that nothing happened: it is held, unless the upstream honours
        # the key. Then the gateway sends it again, and the upstream replays its 500.
        return [Row(3, 1, "500", "500", 1) if honours else HELD]
    if case == "500 clean":
        return [FREED if honours else Row(1, 0, "doubt", "doubt", 0)]
    if case == "500":
        return [Row(1, 1, "500", "500 kept", 1)]
    if case == "402":
        return [Row(1, 0, "402", "402 kept", 0)]
    if case == "409":
        # curl does not retry on 409.
        return [FREED_UNTRIED["409"] if client == "curl" else FREED]
    if case == "429":
        # Stripe's clients do not retry on 429.
        return [FREED_UNTRIED["429"] if client in STRIPE else FREED]
    if case == "503 later":
        return [FREED]
    if case in ("502", "503", "504"):
        return [unknown]
    if case == "lost" and client == "openai stream":
        # The headers and some words had arrived, so no client retries.
        return [Row(1, 1, "broken off", "object" if honours else "doubt", 1)]
    if case in ("reset after", "reset after, kept connection", "lost"):
        return [unanswered]
    if case == "slow for the gateway":
        return [dataclasses.replace(unanswered, final="504") if unanswered == HELD_AT_ONCE else unanswered]
    if case == "slow, not waited for":
        # In flight is a 409 that asks for retries, one of which gets the response.
        return [DONE]
    if case == "refused":
        return [Row(0, 0, "502", "object", 1)]
    if case == "reset before":
        # The connection existed for a moment. If the gateway saw its end before it sent a byte, nothing has happened, and
        # the next attempt succeeds; otherwise the outcome is unknown.
        return [DONE] if honours else [DONE, dataclasses.replace(unanswered, calls=0, effects=0, effects_later=0)]
    raise KeyError(case)


# Without a gateway, with an upstream that ignores keys: the effects after the client's own retries. The gateway exists to
# prevent numbers above one.
DIRECT = {
    "ok": {"*": 1},
    "500": {"*": 2},
    "502": {"*": 2},
    "503": {"*": 2},
    "503 later": {"*": 1},
    "504": {"*": 2},
    "409": {"*": 1, "curl": 0},
    "402": {"*": 0},
    "429": {"*": 1, "stripe-python": 0, "stripe-node": 0},
    "reset after": {"*": 2},
    # Stripe's clients do not retry once the headers of a response have arrived, and no client retries in the middle of a
    # stream. The caller gets an error and no id.
    "lost": {"*": 2, "stripe-python": 1, "stripe-node": 1, "openai stream": 1},
    "slow": {"*": 2},
    "slow, given up": {"*": 1},
    "reset before": {"*": 1},
    "reset after, kept connection": {"*": 2},
}

# The class of the exception for each result that is not a success.
CLASSES = {
    "stripe-python": {
        "402": "CardError",
        "429": "RateLimitError",
        "no answer": "APIConnectionError",
        "*": "APIError",
    },
    "stripe-node": {
        "402": "StripeCardError",
        "429": "StripeRateLimitError",
        "no answer": "StripeConnectionError",
        "*": "StripeAPIError",
    },
    "openai": {
        "402": "APIStatusError",
        "409": "ConflictError",
        "doubt": "ConflictError",
        "429": "RateLimitError",
        "no answer": "APITimeoutError",
        "broken off": "APIConnectionError",
        "*": "InternalServerError",
    },
    "anthropic": {
        "402": "APIStatusError",
        "409": "ConflictError",
        "doubt": "ConflictError",
        "429": "RateLimitError",
        "504": "GatewayTimeoutError",
        "no answer": "APITimeoutError",
        "*": "InternalServerError",
    },
    "curl": {"no answer": "Timeout", "*": "Status"},
}
CLASSES["openai responses"] = CLASSES["openai"]
CLASSES["openai stream"] = CLASSES["openai"]


def class_of(client, answer):
    by_answer = CLASSES[client]
    return by_answer.get(answer.removesuffix(" kept"), by_answer["*"])
