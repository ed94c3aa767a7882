#!/usr/bin/env python3
"""Conversations with and without the gateway, compared byte for byte in both directions.

Only lists of tools with effects may differ, by the gateway's additions.

tests/mcp/byte_exact.py --binary target/debug/onceward
"""

import sys
import threading
import time

import checks
import lossless_json
from checks import is_equal, until
from client import TIMEOUT, parsed
from conversations import C, all_of_them
from sandbox import HERE


def play(sandbox, name, conversation, agent):
    """Plays the client's part. Returns the lines that the client and the server received."""
    said = 0
    for who, line in conversation:
        if who == C:
            agent.send(line)
            continue
        said += bool(line.strip())
        if line.endswith(b"\n"):
            agent.wait_until(lambda: len(messages(agent.lines)) >= said, f"{name}: line {said} of the server")
    agent.close()
    until(lambda: agent.ended, "the end")
    return agent.lines, sandbox.received(agent)


def messages(lines):
    return [line for line in lines if line.strip()]


def compared(name, conversation):
    """A check that plays one conversation twice."""

    def check(sandbox):
        behind = [sys.executable, str(HERE / "scripted_server.py"), name]
        direct = play(sandbox, name, conversation, sandbox.direct(begun=False, behind=behind))
        through = play(sandbox, name, conversation, sandbox.agent(begun=False, behind=behind))
        spoken = [line for who, line in conversation if who != C]
        is_equal(b"".join(direct[0]), b"".join(spoken), "without a gateway the client hears what the server says")
        lists = lists_in(conversation)
        for side, with_us, without_us in (("client", through[0], direct[0]), ("server", through[1], direct[1])):
            is_equal(len(with_us), len(without_us), f"lines that the {side} heard")
            for got, expected in zip(with_us, without_us, strict=True):
                same(side, got, expected, lists)

    check.__name__ = name
    return check


def lists_in(conversation):
    """The ids of requests for lists of tools."""
    asked = [parsed(line) or {} for who, line in conversation if who == C]
    return [message["id"] for message in asked if message.get("method") == "tools/list"]


def same(side, got, expected, lists):
    is_list = side == "client" and (parsed(expected) or {}).get("id") in lists
    # A list to which the gateway adds nothing does not change.
    if not is_list or b"onceward" not in got:
        return is_equal(got[:300] + got[-300:], expected[:300] + expected[-300:], f"the {side} heard")
    got, expected = lossless_json.read(got), lossless_json.read(expected)
    got, expected = lossless_json.without_ours(got), lossless_json.without_ours(expected)
    return is_equal(sorted(got), sorted(expected), f"the {side} heard, in its own words")


def a_call_that_is_cancelled_at_once_is_cancelled_after_it_was_made_or_not_made(sandbox):
    agent = sandbox.agent()
    agent.request("tools/list")
    for number in range(20):
        call = agent.start_call("cancellable", {"note": number})
        agent.notify("notifications/cancelled", {"requestId": call, "reason": "enough"})
    agent.request("ping")
    time.sleep(0.5)
    heard = [parsed(line) for line in sandbox.received(agent)]
    made = [message["id"] for message in heard if message.get("method") == "tools/call"]
    told = [message["params"]["requestId"] for message in heard if message.get("method") == "notifications/cancelled"]
    for call in made:
        assert call in told, f"call {call} was made, and never cancelled"
        order = [message.get("id") or message.get("params", {}).get("requestId") for message in heard]
        is_equal(order.count(call), 2, f"lines about call {call}")
    is_equal([one for one in told if one in made], made, "cancellations of calls that were made")
    is_equal(sandbox.effects(), [], "effects")


def a_server_that_lists_no_tools_is_called_nevertheless(sandbox):
    # It answers only calls.
    answers = "import sys,json\nfor line in sys.stdin:\n m=json.loads(line)\n if m['method']=='tools/call': "
    answers += "print(json.dumps({'jsonrpc':'2.0','id':m['id'],'result':{'content':[]}}),flush=True)"
    for tool in ("get_it", "do_it"):
        agent = sandbox.agent(begun=False, behind=[sys.executable, "-c", answers])
        is_equal(agent.call(tool, timeout=30).get("content"), [], tool)


def the_exit_code_is_the_servers(sandbox):
    for code in (0, 3):
        agent = sandbox.agent(environment={"EXIT_CODE": str(code)})
        is_equal(agent.close(), code, "exit code")


def a_server_that_cannot_be_started_is_reported_on_standard_error(sandbox):
    agent = sandbox.agent(begun=False, behind=["/no/such/server"])
    assert agent.end() != 0
    assert "/no/such/server" in sandbox.errors(), sandbox.errors()


def a_server_that_ends_by_itself_ends_the_gateway(sandbox):
    agent = sandbox.agent(begun=False, behind=["sh", "-c", "echo gone >&2; exit 5"])
    is_equal(agent.end(), 5, "exit code")
    assert "gone" in sandbox.errors(), sandbox.errors()


def what_the_server_writes_to_standard_error_is_passed_on(sandbox):
    agent = sandbox.agent(begun=False, behind=["sh", "-c", "echo hello from stderr >&2; cat > /dev/null"])
    until(lambda: "hello from stderr" in sandbox.errors(), "the server's words")
    is_equal(agent.close(), 0, "exit code")


def a_server_that_closes_its_output_ends_the_conversation(sandbox):
    agent = sandbox.agent(begun=False, behind=["sh", "-c", "echo '{}'; exec 1>&-; sleep 2"])
    until(lambda: agent.ended, "the end of its output", 10)
    is_equal(agent.lines, [b"{}\n"], "lines")


def environment_and_folder_are_those_of_the_client(sandbox):
    agent = sandbox.agent(begun=False, behind=["sh", "-c", "pwd; echo $MINE"], environment={"MINE": "here"})
    until(lambda: agent.ended, "the end")
    is_equal(agent.lines, [f"{sandbox.folder}\n".encode(), b"here\n"], "folder and environment")


def many_small_messages_keep_their_order(sandbox):
    agent = sandbox.agent()
    for number in range(2000):
        agent.notify("notifications/x", {"n": number})
    ids = [agent.start("ping") for _ in range(500)]
    agent.wait(ids[-1])
    heard = [parsed(line)["id"] for line in agent.lines if b'"id"' in line][1:]
    is_equal(heard, ids, "order of answers")
    told = [parsed(line) for line in sandbox.received(agent)]
    told = [message["params"]["n"] for message in told if message.get("method") == "notifications/x"]
    is_equal(told, list(range(2000)), "order of notifications")


def a_client_that_reads_nothing_for_a_while_loses_nothing(sandbox):
    agent = sandbox.agent(begun=False, reads=False)
    ids = []
    def send():
        ids.extend(agent.start_call("read_odd") for _ in range(1000))
    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(TIMEOUT)
    assert not sending.is_alive(), "sending stopped because the answers were not read"
    agent.reading.set()
    agent.wait_until(lambda: len(agent.lines) >= len(ids), "all answers", TIMEOUT * 3)
    is_equal(sorted(parsed(line)["id"] for line in agent.lines), ids, "answers")


if __name__ == "__main__":
    played = [compared(name, conversation) for name, conversation in all_of_them().items()]
    sys.exit(checks.run(played + checks.all_of(globals()), checks.arguments_of(__doc__)))
