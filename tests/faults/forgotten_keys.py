"""The provider forgets keys: `retry` applies while it knows the key, and `hold` afterwards."""

import time

from checks import is_equal, until
from results import is_fresh, is_state
from upstream import Upstream
from fault_sandbox import call, charge

# How long the provider knows a key, in seconds from the first time that it was sent; the second attempt has to fit in. A
# machine that is too slow for the first value gets the second.
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
    """The second attempt came after the provider had forgotten the key."""


def patiently(check):
    """A check that runs with a short memory of the provider, and with a longer one if this machine was too slow."""

    def checked(sandbox):
        try:
            check(sandbox, MEMORIES[0])
        except TooSlow:
            check(sandbox, MEMORIES[1])

    checked.__name__, checked.__module__ = check.__name__, check.__module__
    return checked


def is_in_time(first, memory):
    if time.monotonic() - first > memory - RUNTIME:
        raise TooSlow


def forget(first, memory):
    """Waits until an attempt that begins now would end after the key is forgotten."""
    time.sleep(max(0, first + memory - RUNTIME + 0.1 - time.monotonic()))


@patiently
def a_gateway_retries_while_the_key_is_known_and_holds_afterwards(sandbox, memory):
    upstream, key = Upstream(sandbox, honours=True, holding=True), f"k{memory}"
    configuration = GATEWAY.format(url=upstream.url, memory=memory)
    gateway = sandbox.serve(configuration)
    sandbox.later(charge, gateway, key, amount=1)
    until(lambda: upstream.has(1), "the effect")
    first = time.monotonic()
    gateway.kill()
    # The second attempt begins while the provider knows the key and ends after it has forgotten it.
    gateway = sandbox.serve(configuration)
    second = sandbox.later(charge, gateway, key, amount=1)
    until(lambda: second.done() or len(upstream.requests) == 2, "the second attempt")
    is_in_time(first, memory)
    is_equal(upstream.requests, [key, key])
    gateway.kill()
    forget(first, memory)
    # The provider may forget the key before a third attempt would end.
    gateway = sandbox.serve(configuration)
    is_equal(charge(gateway, key, amount=1).status, 409)
    states = [(one["state"], one["when_in_doubt"]) for one in sandbox.intents()]
    is_equal(set(states), {("in_doubt", "retry")})
    is_equal(upstream.requests, [key, key])


def a_gateway_that_loses_the_answer_after_the_key_was_forgotten_holds(sandbox):
    upstream = Upstream(sandbox, honours=True, holding=True)
    gateway = sandbox.serve(GATEWAY.format(url=upstream.url, memory=MEMORIES[0]))
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    # The attempt takes longer than the provider remembers the key. Then its response is lost.
    forget(time.monotonic(), MEMORIES[0])
    upstream.is_closed = True
    upstream.let_go()
    lost = client.result(20)
    assert lost.status in (502, 504), lost
    upstream.is_closed = False
    is_equal(charge(gateway, "k", amount=1).status, 409)
    is_equal((sandbox.state(), upstream.requests), ("in_doubt", ["k"]))


@patiently
def an_mcp_gateway_retries_while_the_key_is_known_and_holds_afterwards(sandbox, memory):
    sandbox.configure(MCP.format(tool="send_email", memory=memory))
    server, before = sandbox.remote(), len(sandbox.effects())
    arguments = {"how": "hang", "to": str(memory)}
    gateway = sandbox.mcp_over_http(server)
    sandbox.later(call, gateway, **arguments)
    until(lambda: len(sandbox.effects()) == before + 1, "the effect")
    first = time.monotonic()
    gateway.kill()
    gateway = sandbox.mcp_over_http(server)
    second = sandbox.later(call, gateway, **arguments)
    until(lambda: second.done() or len(sandbox.effects()) == before + 2, "the second attempt")
    is_in_time(first, memory)
    keys = [one["arguments"]["key"] for one in sandbox.effects()[before:]]
    assert len(keys) == 2 and keys[0] == keys[1], keys
    gateway.kill()
    forget(first, memory)
    gateway = sandbox.mcp_over_http(server)
    is_state(call(gateway, **arguments), "in_doubt")
    is_equal({one["state"] for one in sandbox.intents()}, {"in_doubt"})
    is_equal(len(sandbox.effects()), before + 2, "effects")


def an_mcp_gateway_over_stdio_holds_after_the_key_was_forgotten(sandbox):
    sandbox.configure(MCP.format(tool="crash_after", memory=MEMORIES[0]))
    arguments = {"once": True}
    is_state(sandbox.agent(session="s").call("crash_after", arguments), "in_doubt")
    forget(time.monotonic(), MEMORIES[0])
    is_state(sandbox.agent(session="s").call("crash_after", arguments), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")
    # Another call has its own period.
    is_fresh(sandbox.agent(session="s").call("send_email", {"to": "ada@example.org"}))
