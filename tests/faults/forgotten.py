"""The provider forgets keys: `retry` holds while it knows the key, and becomes `hold` afterwards."""

import time

from checks import is_equal, until
from judge import is_fresh, is_state
from upstream import Upstream
from world import call, charge

# How long the provider knows a key, in seconds: counted from the first time that it was sent, and it has to last for the
# attempt too. A machine that is too slow for the first is given the second.
MEMORIES = (3, 15)
RUNTIME = 0.5

GATEWAY = """
[operation.short]
max_runtime = "500ms"
in_doubt = "retry"
honours_key_for = "{memory}s"
[gateway]
listen = "127.0.0.1:0"
[[gateway.route]]
upstream = "{url}"
tenant = "fixed:acme"
operation = "short"
honours_key = true
wait = "0s"
"""
MCP = """
[mcp.server.fixture.tool.{tool}]
max_runtime = "500ms"
in_doubt = "retry"
honours_key_for = "{memory}s"
key_argument = "key"
wait = "0s"
"""


class TooSlow(Exception):
    """The second attempt came when the key was forgotten."""


def patiently(check):
    """A check that gets a memory, and a longer one if this machine was too slow."""

    def checked(place):
        try:
            check(place, MEMORIES[0])
        except TooSlow:
            check(place, MEMORIES[1])

    checked.__name__, checked.__module__ = check.__name__, check.__module__
    return checked


def is_in_time(first, memory):
    if time.monotonic() - first > memory - RUNTIME:
        raise TooSlow


def forget(first, memory):
    """Waits until an attempt that begins now would end when the key is forgotten."""
    time.sleep(max(0, first + memory - RUNTIME + 0.1 - time.monotonic()))


@patiently
def a_gateway_retries_while_the_key_is_known_and_holds_afterwards(place, memory):
    upstream, key = Upstream(place, honours=True, holding=True), f"k{memory}"
    configuration = GATEWAY.format(url=upstream.url, memory=memory)
    gateway = place.serve(configuration)
    place.later(charge, gateway, key, amount=1)
    until(lambda: upstream.has(1), "the effect")
    first = time.monotonic()
    gateway.kill()
    # The second attempt begins while the key is known, and goes on until it is not.
    gateway = place.serve(configuration)
    second = place.later(charge, gateway, key, amount=1)
    until(lambda: second.done() or len(upstream.requests) == 2, "the second attempt")
    is_in_time(first, memory)
    is_equal(upstream.requests, [key, key])
    gateway.kill()
    forget(first, memory)
    # The provider may have forgotten the key by the time that a third attempt would be over.
    gateway = place.serve(configuration)
    is_equal(charge(gateway, key, amount=1).status, 409)
    states = [(one["state"], one["when_in_doubt"]) for one in place.intents()]
    is_equal(set(states), {("in_doubt", "retry")})
    is_equal(upstream.requests, [key, key])


def a_gateway_that_loses_the_answer_after_the_key_was_forgotten_holds(place):
    upstream = Upstream(place, honours=True, holding=True)
    gateway = place.serve(GATEWAY.format(url=upstream.url, memory=MEMORIES[0]))
    client = place.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    # The attempt itself lasts for longer than the provider remembers. Then its answer is lost.
    forget(time.monotonic(), MEMORIES[0])
    upstream.is_closed = True
    upstream.let_go()
    lost = client.result(20)
    assert lost.status in (502, 504), lost
    upstream.is_closed = False
    is_equal(charge(gateway, "k", amount=1).status, 409)
    is_equal((place.state(), upstream.requests), ("in_doubt", ["k"]))


@patiently
def an_mcp_gateway_retries_while_the_key_is_known_and_holds_afterwards(place, memory):
    place.configure(MCP.format(tool="send_email", memory=memory))
    server, before = place.remote(), len(place.effects())
    arguments = {"how": "hang", "to": str(memory)}
    gateway = place.mcp_over_http(server)
    place.later(call, gateway, **arguments)
    until(lambda: len(place.effects()) == before + 1, "the effect")
    first = time.monotonic()
    gateway.kill()
    gateway = place.mcp_over_http(server)
    second = place.later(call, gateway, **arguments)
    until(lambda: second.done() or len(place.effects()) == before + 2, "the second attempt")
    is_in_time(first, memory)
    keys = [one["arguments"]["key"] for one in place.effects()[before:]]
    assert len(keys) == 2 and keys[0] == keys[1], keys
    gateway.kill()
    forget(first, memory)
    gateway = place.mcp_over_http(server)
    is_state(call(gateway, **arguments), "in_doubt")
    is_equal({one["state"] for one in place.intents()}, {"in_doubt"})
    is_equal(len(place.effects()), before + 2, "effects")


def an_mcp_gateway_over_stdio_holds_after_the_key_was_forgotten(place):
    place.configure(MCP.format(tool="crash_after", memory=MEMORIES[0]))
    arguments = {"once": True}
    is_state(place.agent(session="s").call("crash_after", arguments), "in_doubt")
    forget(time.monotonic(), MEMORIES[0])
    is_state(place.agent(session="s").call("crash_after", arguments), "in_doubt")
    is_equal(len(place.effects()), 1, "effects")
    # Another call begins its own memory.
    is_fresh(place.agent(session="s").call("send_email", {"to": "ada@example.org"}))
