"""Which probe results count, what the results for a call in doubt say, and the arguments of the gateway's own tool."""

import json
import time

from checks import all_of, is_equal, until
from crashes import INVOICE, PROBE, killed
from edge_cases import run
from results import about, is_fresh, is_state
from sandbox import OUTWARD

MAIL = {"to": "ada@example.org", "subject": "Hello"}
STATUS = "onceward_status"


def nothing_found_is_not_believed_while_the_call_may_still_act(sandbox):
    sandbox.configure(PROBE.replace(', after = "500ms"', "") + 'max_runtime = "2s"\n')
    arguments = INVOICE | {"before_ms": 1500}
    killed(sandbox, "charge", arguments, after_effect=False)
    again = sandbox.agent()
    result = again.call("charge", arguments)
    is_state(result, "in_doubt")
    assert "too early for find_charge" in result["content"][0]["text"], result

    def settled():
        time.sleep(0.2)
        result = again.call("charge", arguments)
        return None if about(result).get("state") == "in_doubt" else result

    begun = time.monotonic()
    is_fresh(until(settled, "an answer that is settled"))
    assert time.monotonic() - begun > 1.5, "it was believed too early"
    is_equal(len(sandbox.effects()), 1, "effects")


def the_result_of_a_probe_is_reported_verbatim(sandbox):
    sandbox.configure(PROBE)
    killed(sandbox, "charge", INVOICE | {"delay_ms": 3000})
    again = sandbox.agent()
    for _ in range(2):
        result = again.call("charge", INVOICE | {"delay_ms": 3000})
        assert "took effect: find_charge found it" in result["content"][0]["text"], result
        is_equal((result.get("isError"), result.get("structuredContent")), (None, None), "of another tool's structure")
    is_equal(len(sandbox.effects()), 1, "effects")


def settled_by_hand(sandbox, note, *more):
    """A call of a tool with an output schema that is left in doubt, resolved by hand, and made again."""
    agent = sandbox.agent()
    doubt = agent.call("typed", {"note": note})
    # The gateway records the delivery as it ends; later, that write could come between the steps of `resolve`.
    agent.close()
    is_state(doubt, "in_doubt")
    assert "--value" in doubt["content"][0]["text"], doubt
    intent = ("--operation", "mcp:fixture/typed", "--key", about(doubt)["key"])
    run(sandbox, "resolve", *intent, "--happened", *more)
    return sandbox.agent().call("typed", {"note": note})


def a_result_that_was_resolved_by_hand_is_an_error_or_fits_its_schema(sandbox):
    sandbox.configure(OUTWARD)
    # Clients refuse a result without structured content, unless it is an error.
    without = settled_by_hand(sandbox, "a")
    is_equal(without.get("isError"), True, str(without))
    assert "took effect" in without["content"][0]["text"] and "only because" in without["content"][1]["text"], without
    given = settled_by_hand(sandbox, "b", "--value", '{"receipt":"r-7"}')
    is_equal((given.get("isError"), given.get("structuredContent")), (None, {"receipt": "r-7"}), str(given))
    is_equal(len(sandbox.effects()), 2, "effects")


def a_tool_that_may_be_called_again_sets_the_last_value(sandbox):
    agent = sandbox.agent()
    for value in ("A", "B"):
        # Two concurrent calls have one effect.
        twice = [agent.start_call("put", {"value": value, "delay_ms": 100}) for _ in range(2)]
        results = [agent.wait(one)["result"] for one in twice]
        is_equal([bool(about(result).get("replayed")) for result in results].count(True), 1, "replays")
    time.sleep(1.1)
    is_fresh(agent.call("put", {"value": "A", "delay_ms": 100}))
    is_equal([one["arguments"]["value"] for one in sandbox.effects()], ["A", "B", "A"], "what was set")
    agent = sandbox.agent(session="s")
    for _ in range(2):
        is_fresh(agent.call("put", {"value": "A"}))


def the_status_is_asked_for_in_every_way_that_models_ask(sandbox):
    sandbox.configure('[mcp.server.fixture.tool.charge]\nkey = ["/customer", "/invoice"]\nmatch = ["/amount"]\n')
    agent = sandbox.agent()
    agent.call("charge", INVOICE)
    key = about(agent.call("charge", INVOICE))["key"]
    for asked in (
        {"tool": "charge", "arguments": INVOICE},
        {"tool": "charge", "arguments": json.dumps(INVOICE)},
        {"tool": "charge", "key": key},
        {"tool": "charge", "key": key, "arguments": {}},
    ):
        result = agent.call(STATUS, asked)
        is_equal((result["isError"], result["structuredContent"]["state"]), (False, "done"), str(asked))
    for asked, word in (
        ({"key": key}, "tool"),
        ({"tool": 7}, "tool"),
        ({"tool": "charge", "key": 7}, "key"),
        ({"tool": "charge", "arguments": "invoice i-1"}, "arguments"),
    ):
        result = agent.call(STATUS, asked)
        is_equal(result["isError"], True, str(asked))
        text = result["content"][0]["text"]
        assert word in text and text.startswith("No call was looked up"), text
    is_equal(len(sandbox.effects()), 1, "effects")


CHECKS = all_of(globals())
