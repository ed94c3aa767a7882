"""SIGTERM, a second SIGTERM, and the end of the grace period while a guarded call runs."""

import signal
import time
import sys

from checks import is_equal, until
from crashes import is_running
from results import is_fresh, is_replay, is_state
from sandbox import SERVER
from upstream import Upstream
from fault_sandbox import api, call, charge, elapsed, is_cut, outcome, request

# How long a gateway waits for running requests after the first signal, as its code says. Its end may take seconds more.
GRACE = 30
SOON = 20

MAIL = {"to": "ada@example.org"}


def refuses_connections(process):
    try:
        request(process.url, path="/", timeout=5)
    except OSError:
        return True
    return False


def in_flight(sandbox, *options):
    """A gateway with one request whose effect has happened and whose response has not come."""
    upstream = Upstream(sandbox, holding=True)
    gateway = sandbox.gateway(upstream, *options)
    client = sandbox.later(charge, gateway, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    return upstream, gateway, client


def is_held(sandbox, upstream):
    """The intent is in doubt and stays so for a client of the next gateway, which sends nothing again."""
    is_equal(sandbox.state(), "in_doubt")
    again = charge(sandbox.gateway(upstream), "k", amount=1)
    assert again.status == 409 and again.problem(), again
    is_equal(sandbox.state(), "in_doubt")
    is_equal(len(upstream.requests), 1, "requests")


def a_stopping_gateway_delivers_and_records_running_requests(sandbox):
    upstream, gateway, client = in_flight(sandbox)
    gateway.term()
    until(lambda: refuses_connections(gateway), "the end of listening")
    assert gateway.is_running() and not client.done()
    upstream.let_go()
    is_equal(outcome(client).status, 200)
    is_equal(gateway.wait(SOON), 0, "exit code")
    is_equal(sandbox.state(), "done")
    replay = charge(sandbox.gateway(upstream), "k", amount=1)
    is_equal((replay.status, replay.body), (200, outcome(client).body))
    is_equal(len(upstream.requests), 1, "requests")


def a_stopping_gateway_finishes_the_requests_of_disconnected_clients(sandbox):
    upstream, gateway, _ = in_flight(sandbox)
    gone = sandbox.later(charge, gateway, "left", timeout=1, amount=2)
    until(lambda: upstream.has(2), "the second effect")
    is_cut(outcome(gone))
    gateway.term()
    until(lambda: refuses_connections(gateway), "the end of listening")
    upstream.let_go()
    is_equal(gateway.wait(SOON), 0, "exit code")
    is_equal({one["state"] for one in sandbox.intents()}, {"done"})


def a_second_signal_ends_a_gateway_at_once_and_leaves_a_doubt(sandbox):
    upstream, gateway, client = in_flight(sandbox)
    gateway.term()
    until(lambda: refuses_connections(gateway), "the end of listening")
    gateway.term()
    is_equal(gateway.wait(SOON), 0, "exit code")
    is_cut(outcome(client))
    upstream.let_go()
    is_held(sandbox, upstream)


def the_end_of_the_grace_period_ends_a_gateway_and_leaves_a_doubt(sandbox):
    upstream, gateway, client = in_flight(sandbox)
    gateway.term()
    took, code = elapsed(lambda: gateway.wait(GRACE + SOON))
    is_equal(code, 0, "exit code")
    assert took > GRACE - 2, f"it waited for {took:.1f} s only"
    is_cut(outcome(client))
    assert "in doubt" in gateway.errors(), gateway.errors()
    upstream.let_go()
    is_held(sandbox, upstream)


SERVE = """
[gateway]
listen = "127.0.0.1:0"
[[gateway.route]]
upstream = "{url}"
tenant = "fixed:acme"
[api]
listen = "127.0.0.1:0"
"""


def a_server_with_both_surfaces_ends_after_a_second_signal(sandbox):
    upstream = Upstream(sandbox, holding=True)
    server = sandbox.serve(SERVE.format(url=upstream.url))
    client = sandbox.later(charge, server, "k", amount=1)
    until(lambda: upstream.has(1), "the effect")
    server.term()
    until(lambda: refuses_connections(server), "the end of listening")
    server.term()
    is_equal(server.wait(SOON), 0, "exit code")
    is_cut(outcome(client))
    is_equal(sandbox.state(), "in_doubt")


def a_server_that_stops_keeps_the_claims_that_it_has_handed_out(sandbox):
    configuration = '[api]\nlisten = "127.0.0.1:0"\n'
    server = sandbox.serve(configuration)
    begun = api(server, "begin", operation="op", key="k").json()
    is_equal(begun["decision"], "acquired")
    # A caller that waits for the intent gets a response before the end, and does not get the claim.
    # The connection of the first call may take a moment to close.
    time.sleep(0.5)
    before = server.descriptors()
    waiting = sandbox.later(api, server, "begin", operation="op", key="k", wait_ms=60_000)
    until(lambda: server.descriptors() > before, "the waiting caller")
    # Its connection is there; now the request.
    time.sleep(0.5)
    server.term()
    is_equal(server.wait(SOON), 0, "exit code")
    is_equal(outcome(waiting).json()["decision"], "in_flight")
    is_equal(sandbox.state(), "running")
    server = sandbox.serve(configuration)
    done = {"verdict": "success", "status": 200, "content_type": "text/plain", "body": {"text": "done"}}
    finished = api(server, "finish", operation="op", key="k", fence=begun["fence"], outcome=done).json()
    is_equal(finished["result"], "written")
    is_equal(sandbox.state(), "done")


def a_stopping_mcp_gateway_delivers_and_records_running_calls(sandbox):
    agent = sandbox.agent()
    first = agent.start_call("send_email", MAIL | {"delay_ms": 1500})
    until(sandbox.effects, "the effect")
    agent.process.send_signal(signal.SIGTERM)
    is_fresh(agent.wait(first)["result"])
    agent.end(SOON)
    is_equal(sandbox.state(), "done")
    is_replay(sandbox.agent().call("send_email", MAIL | {"delay_ms": 1500}))
    is_equal(len(sandbox.effects()), 1, "effects")


def ended_in_doubt(sandbox, agent, identity):
    """The client gets the in-doubt result before the gateway ends, and the doubt holds."""
    is_state(agent.wait(identity)["result"], "in_doubt")
    agent.end(SOON)
    is_equal(sandbox.state(), "in_doubt")
    is_state(sandbox.agent().call("send_email", MAIL | {"delay_ms": 60_000}), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def a_second_signal_ends_an_mcp_gateway_which_tells_its_client(sandbox):
    agent = sandbox.agent()
    first = agent.start_call("send_email", MAIL | {"delay_ms": 60_000})
    until(sandbox.effects, "the effect")
    agent.process.send_signal(signal.SIGTERM)
    agent.process.send_signal(signal.SIGINT)
    ended_in_doubt(sandbox, agent, first)


def an_mcp_gateway_waits_ten_seconds_for_running_calls_and_tells_its_client(sandbox):
    agent = sandbox.agent()
    first = agent.start_call("send_email", MAIL | {"delay_ms": 60_000})
    until(sandbox.effects, "the effect")
    agent.process.send_signal(signal.SIGTERM)
    took, _ = elapsed(lambda: agent.wait(first, 30))
    assert took > 8, f"it waited for {took:.1f} s only"
    ended_in_doubt(sandbox, agent, first)


def a_server_that_ignores_signals_ends_with_its_killed_gateway_and_leaves_a_doubt(sandbox):
    # Only SIGKILL ends it, as without a gateway.
    deaf = ["sh", "-c", "echo $$ > server.pid; trap '' TERM; exec \"$@\"", "sh", *SERVER]
    agent = sandbox.agent(behind=deaf)
    agent.start_call("send_email", MAIL | {"delay_ms": 60_000})
    until(sandbox.effects, "the effect")
    server = int((sandbox.folder / "server.pid").read_text())
    agent.process.send_signal(signal.SIGTERM)
    agent.process.send_signal(signal.SIGTERM)
    agent.kill()
    until(lambda: not is_running(server), "the end of the server")
    is_equal(sandbox.state(), "in_doubt")


def a_streamed_answer_that_a_second_signal_cuts_off_is_in_doubt(sandbox):
    server = sandbox.remote()
    gateway = sandbox.mcp_over_http(server)
    client = sandbox.later(call, gateway, how="slow", delay_ms=60_000)
    until(sandbox.effects, "the effect")
    gateway.term()
    until(lambda: refuses_connections(gateway), "the end of listening")
    gateway.term()
    is_equal(gateway.wait(SOON), 0, "exit code")
    left_in_doubt(sandbox, server, client, how="slow", delay_ms=60_000)


def a_stopping_mcp_gateway_over_http_delivers_and_records_running_calls(sandbox):
    server = sandbox.remote()
    gateway = sandbox.mcp_over_http(server)
    client = sandbox.later(call, gateway, delay_ms=1500)
    until(sandbox.effects, "the effect")
    gateway.term()
    is_fresh(outcome(client))
    is_equal(gateway.wait(SOON), 0, "exit code")
    is_equal(sandbox.state(), "done")
    is_replay(call(sandbox.mcp_over_http(server), delay_ms=1500))
    is_equal(len(sandbox.effects()), 1, "effects")


def left_in_doubt(sandbox, server, client, **arguments):
    is_cut(outcome(client))
    is_equal(sandbox.state(), "in_doubt")
    is_state(call(sandbox.mcp_over_http(server), **arguments), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def a_second_signal_ends_an_mcp_gateway_over_http_and_leaves_a_doubt(sandbox):
    server = sandbox.remote()
    gateway = sandbox.mcp_over_http(server)
    client = sandbox.later(call, gateway, how="hang")
    until(sandbox.effects, "the effect")
    gateway.term()
    until(lambda: refuses_connections(gateway), "the end of listening")
    gateway.term()
    is_equal(gateway.wait(SOON), 0, "exit code")
    left_in_doubt(sandbox, server, client, how="hang")


def the_end_of_the_grace_period_ends_an_mcp_gateway_over_http_and_leaves_a_doubt(sandbox):
    server = sandbox.remote()
    gateway = sandbox.mcp_over_http(server)
    client = sandbox.later(call, gateway, delay_ms=50_000)
    until(sandbox.effects, "the effect")
    gateway.term()
    took, code = elapsed(lambda: gateway.wait(GRACE + SOON))
    is_equal(code, 0, "exit code")
    assert took > GRACE - 2, f"it waited for {took:.1f} s only"
    left_in_doubt(sandbox, server, client, delay_ms=50_000)


# Writes a line for its effect. `polite` exits with 0 on SIGTERM; `deaf` ignores it.
COMMAND = """
import os, signal, sys, time
how, file = sys.argv[1:]
ends = []
signal.signal(signal.SIGTERM, {"polite": lambda *_: ends.append(1), "deaf": signal.SIG_IGN, "plain": signal.SIG_DFL}[how])
with open(file, "a") as effects:
    effects.write("{}\\n".replace("{}", '{"tool": "job"}'))
deadline = time.monotonic() + (2 if how == "deaf" else 60)
while not ends and time.monotonic() < deadline:
    time.sleep(0.02)
print("ended", len(ends))
"""


def command(sandbox, how):
    return sys.executable, "-c", COMMAND, how, str(sandbox.folder / "effects")


def a_command_that_exits_with_0_on_a_signal_is_done(sandbox):
    run = sandbox.run("k", *command(sandbox, "polite"))
    until(sandbox.effects, "the effect")
    run.term()
    is_equal((run.wait(SOON), run.output()), (0, "ended 1"))
    is_equal(sandbox.state(), "done")
    again = sandbox.run("k", *command(sandbox, "polite"))
    is_equal((again.wait(SOON), again.output(), len(sandbox.effects())), (0, "ended 1", 1))


def a_command_that_a_signal_ends_is_in_doubt(sandbox):
    run = sandbox.run("k", *command(sandbox, "plain"))
    until(sandbox.effects, "the effect")
    run.term()
    is_equal(run.wait(SOON), 128 + signal.SIGTERM)
    is_equal(sandbox.state(), "in_doubt")
    assert "in doubt" in run.errors() and "onceward resolve" in run.errors(), run.errors()
    again = sandbox.run("k", *command(sandbox, "plain"))
    is_equal((again.wait(SOON), len(sandbox.effects())), (76, 1))


def a_command_that_ignores_signals_runs_to_its_end_and_is_done(sandbox):
    run = sandbox.run("k", *command(sandbox, "deaf"))
    until(sandbox.effects, "the effect")
    run.term()
    run.term()
    is_equal(run.wait(SOON), 0)
    is_equal(sandbox.state(), "done")
