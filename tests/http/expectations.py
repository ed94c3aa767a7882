"""What the policy says about every fault, as data: how often the upstream is called, how often it acts, what the client
has in the end, and what a person gets who tries once more with the same key.

The words for an answer: `object` (a success that is new), `replay` (the kept success), `doubt` (409: nobody knows
whether it happened, and a person has to say), `no answer` (in time), `broken off` (in the middle of an answer), or a
status, with `kept` if it is the replay of a kept failure.
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
    """One way to run the gateway, and who calls through it."""

    profile: str
    key_mode: str
    tenant: str
    clients: tuple
    faults: tuple
    # Whether the upstream forgets keys although the gateway was told that it honours them.
    deceived: bool = False
    options: tuple = ()


@dataclasses.dataclass(frozen=True)
class Way:
    """How a client is told to call in a case."""

    retries: int = 2
    # Generous, so that a busy machine makes no time-out of its own.
    timeout: float = 20.0
    # The connection itself fails, so these cases run alone, after the others.
    connection: bool = False
    # A harmless request goes ahead, so that a connection is kept for the next one.
    warm: bool = False


WAYS = {
    "slow": Way(timeout=1.5),
    "slow, given up": Way(timeout=1.5, retries=0),
    "refused": Way(retries=0, connection=True),
    "reset before": Way(connection=True),
    "reset after, kept connection": Way(connection=True, warm=True),
    # The client has all the time in the world, and the gateway has not.
    "slow for the gateway": Way(),
    # The client gives up on the first try, and finds its next ones told to come back.
    "slow, not waited for": Way(timeout=1.5, retries=8),
}

# Cases whose name is not that of the fault.
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
    # `honours_key` is a promise about the upstream. Where it is broken, things happen twice, and these cases see it.
    "deceived": Gateway("ietf", "required", "authorization", ("curl",), ("502", "lost"), deceived=True),
}

DONE = Row(1, 1, "object", "replay", 1)
# The other side said that nothing was done: the key is free again, and the client's own next try does it.
FREED = Row(2, 1, "object", "replay", 1)
# As before, but this client does not try again by itself.
FREED_UNTRIED = {status: Row(1, 0, status, "object", 1) for status in ("409", "429")}
# Nobody knows, and the other side honours the key: it is asked again, and answers from its memory.
ASKED_AGAIN = Row(2, 1, "object", "replay", 1)
# Nobody knows, and asking again could do it twice: the client's next try is told so, and stops.
HELD = Row(1, 1, "doubt", "doubt", 1)
# There was no answer at all, so the gateway says so itself, and at once that no further try helps.
HELD_AT_ONCE = Row(1, 1, "502", "doubt", 1)


def rows(case, client, gateway, honours):
    """The rows of which one has to come true. There is more than one only where the network decides."""
    profile = gateway.profile
    if gateway.deceived and honours:
        return [Row(2, 2, "object", "replay", 2)]
    unknown = ASKED_AGAIN if honours else HELD
    # curl does not read what the gateway says about further tries.
    unanswered = ASKED_AGAIN if honours else HELD if client == "curl" else HELD_AT_ONCE
    if case in ("ok", "slow"):
        return [DONE]
    if case == "slow, given up":
        # The client went away; the call went on, and its answer was kept.
        return [Row(1, 1, "no answer", "replay", 1)]
    if case == "500" and profile == "acp":
        # ACP forbids keeping a 500, and a 500 does not prove that nothing happened: it is held, unless the upstream honours
        # the key. Then it is asked again, and remembers its 500.
        return [Row(3, 1, "500", "500", 1) if honours else HELD]
    if case == "500 clean":
        return [FREED if honours else Row(1, 0, "doubt", "doubt", 0)]
    if case == "500":
        return [Row(1, 1, "500", "500 kept", 1)]
    if case == "402":
        return [Row(1, 0, "402", "402 kept", 0)]
    if case == "409":
        # curl does not try again on 409.
        return [FREED_UNTRIED["409"] if client == "curl" else FREED]
    if case == "429":
        # Stripe's clients leave 429 to the caller.
        return [FREED_UNTRIED["429"] if client in STRIPE else FREED]
    if case == "503 later":
        return [FREED]
    if case in ("502", "503", "504"):
        return [unknown]
    if case == "lost" and client == "openai stream":
        # The head and some words were there, so no client tries again by itself.
        return [Row(1, 1, "broken off", "object" if honours else "doubt", 1)]
    if case in ("reset after", "reset after, kept connection", "lost"):
        return [unanswered]
    if case == "slow for the gateway":
        return [dataclasses.replace(unanswered, final="504") if unanswered == HELD_AT_ONCE else unanswered]
    if case == "slow, not waited for":
        # In flight is a 409 that asks for further tries, one of which gets the answer.
        return [DONE]
    if case == "refused":
        return [Row(0, 0, "502", "object", 1)]
    if case == "reset before":
        # The connection was there for a moment. If the gateway saw its end before it sent a byte, nothing has happened,
        # and the next try does it; otherwise nobody can know.
        return [DONE] if honours else [DONE, dataclasses.replace(unanswered, calls=0, effects=0, effects_later=0)]
    raise KeyError(case)


# What happens without a gateway, to an upstream that ignores keys: the effects after the client's own tries.
# One more than once is what the gateway is for.
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
    # Stripe's clients do not try again once the head of an answer was there, and nobody does in the middle of a stream.
    # The caller has an error, and no id.
    "lost": {"*": 2, "stripe-python": 1, "stripe-node": 1, "openai stream": 1},
    "slow": {"*": 2},
    "slow, given up": {"*": 1},
    "reset before": {"*": 1},
    "reset after, kept connection": {"*": 2},
}

# The class of the exception for each answer that is no success.
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
