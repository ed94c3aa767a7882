#!/usr/bin/env python3
"""Structured results through the gateway: new ones unchanged, stored ones with a notice that real clients accept.

tests/mcp/structured.py --binary target/debug/onceward
"""

import json
import subprocess
import sys

import install
from checks import Skipped, is_equal
from clients import TIMEOUT, call, play, run
from results import NOTICE, is_fresh, is_replay, listed_by_server, notice, without_ours
from sandbox import HERE, SERVER

TO = {"to": "ada"}
TOOLS = ("send_receipt", "send_count", "send_counts")
# The schema of a map has no named members, so the gateway can add none.
NOTED = ("send_receipt", "send_count")
CALLS = [(tool, TO) for tool in TOOLS for _ in range(2)]


def server(name):
    python, missing = install.python(name)
    if missing:
        raise Skipped(missing)
    return [str(python), str(HERE / "structured_server.py")]


def python_client(sandbox, client, command, calls=CALLS):
    tools, *outcomes = play(sandbox, client, [{"tools": True}, *(call(*one) for one in calls)], command)
    return tools, outcomes


def typescript_client(sandbox, client, command, calls=CALLS):
    programs, missing = install.node()
    if missing:
        raise Skipped(missing)
    sandbox.started += 1
    done = subprocess.run(
        [programs / "node", HERE / "structured_client.mjs", programs.parent.parent, client, *command],
        input=json.dumps(calls),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=install.path_with(programs) | sandbox.environment(),
        cwd=sandbox.folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tools, *outcomes = json.loads(done.stdout)
    return tools["tools"], outcomes


def a_stored_result_says_so_where_its_schema_allows_it(sandbox, client):
    player, name = PAIRS[client]
    behind = server(name)
    listed, direct = player(sandbox, client, behind)
    (sandbox.folder / "effects").unlink()
    tools, outcomes = player(sandbox, client, sandbox.command(behind=behind))
    is_equal([listed_by_server(tool) for tool in tools if tool["name"] in TOOLS], listed)
    for at, (tool, _) in enumerate(CALLS):
        outcome = outcomes[at]
        assert "result" in outcome, f"{client} did not take what {tool} gave: {outcome}"
        if at % 2 == 0:
            is_fresh(outcome["result"])
            # The counter of the direct server has increased twice as often.
            is_equal(shape(outcome["result"]), shape(direct[at]["result"]), tool)
            continue
        is_replay(outcome["result"], outcomes[at - 1]["result"])
        is_equal(bool(notice(outcome["result"])), tool in NOTED, f"a notice of {tool}")
    is_equal(len(sandbox.effects()), len(TOOLS), "effects")


# The driver of each client, and its server.
PAIRS = {
    "mcp1": (python_client, "mcp1"),
    "mcp2": (python_client, "mcp2"),
    "fastmcp": (python_client, "fastmcp"),
    "sdk": (typescript_client, "mcp1"),
    "client": (typescript_client, "fastmcp"),
}


def shape(result):
    """A result with every number replaced by the same one."""
    if isinstance(result, dict):
        return {name: shape(value) for name, value in result.items()}
    if isinstance(result, list):
        return [shape(one) for one in result]
    if isinstance(result, str):
        return "".join("0" if one.isdigit() else one for one in result)
    return 0 if isinstance(result, int) else result


def it_checks_what_it_gets_against_what_was_listed(sandbox, client):
    """Proves that the client validates results; otherwise the other checks prove nothing."""
    promise = {"type": "object", "properties": {"number": {"type": "integer"}}, "additionalProperties": False}
    tool = {"inputSchema": {"type": "object"}, "outputSchema": promise}
    sandbox.more = {"MORE_TOOLS": json.dumps({"send_unlisted": tool})}
    player, _ = PAIRS[client]
    _, (outcome,) = player(sandbox, client, SERVER, [("send_unlisted", {})])
    assert "error" in outcome, outcome


def an_unwrapped_value_stays_the_same(sandbox, client):
    """fastmcp returns the value inside a structured result."""
    steps = [{"value": tool, "arguments": TO} for tool in TOOLS for _ in range(2)]
    first, second, count, again, counts, counts_again = play(sandbox, client, steps, sandbox.command(behind=server("fastmcp")))
    is_equal((count, again), (2, 2), "a plain value")
    is_equal((counts, counts_again), ({"ada": 3}, {"ada": 3}), "a map")
    is_equal((first["number"], second["number"]), (1, 1), "an object")
    assert first.get(NOTICE) is None and "was not repeated" in second[NOTICE], (first, second)


def a_failure_that_may_have_acted_says_so_in_its_structured_part(sandbox, client):
    # The fixture's tool has no output schema but returns an object.
    sandbox.configure('[mcp.server.fixture.tool.fail_structured]\ntier = "payment"\n')
    sandbox.more = {"MORE_TOOLS": json.dumps({"fail_structured": {"inputSchema": {"type": "object"}}})}
    (outcome,) = play(sandbox, client, [call("fail_structured")])
    result = outcome["result"]
    assert "may have taken effect" in notice(result), result
    is_equal(without_ours(result)["structuredContent"], {"reason": "a time-out"})


def cases():
    check = a_stored_result_says_so_where_its_schema_allows_it
    found = [(f"{client} · {check.__name__.replace('_', ' ')}", check, client) for client in PAIRS]
    for check, client in (
        (it_checks_what_it_gets_against_what_was_listed, "mcp1"),
        (it_checks_what_it_gets_against_what_was_listed, "mcp2"),
        (it_checks_what_it_gets_against_what_was_listed, "sdk"),
        (it_checks_what_it_gets_against_what_was_listed, "client"),
        (an_unwrapped_value_stays_the_same, "fastmcp"),
        (a_failure_that_may_have_acted_says_so_in_its_structured_part, "mcp1"),
    ):
        found.append((f"{client} · {check.__name__.replace('_', ' ')}", check, client))
    return found


if __name__ == "__main__":
    sys.exit(run(cases(), __doc__))
