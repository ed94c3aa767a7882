"""Unusual behaviour of clients and users around a call: signals, duplicate ids, the other protocol generation, the command line."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

from checks import all_of, is_equal, until
from client import MODERN
from crashes import is_running
from results import about, is_fresh, is_replay, is_state
from sandbox import OUTWARD

MAIL = {"to": "ada@example.org", "subject": "Hello"}


def stopped_by(sandbox, sign):
    """A gateway that gets a signal during a call, as clients send it."""
    arguments = MAIL | {"delay_ms": 1500}
    agent = sandbox.agent()
    agent.start_call("send_email", arguments)
    until(sandbox.effects, "the effect")
    agent.process.send_signal(sign)
    agent.end()
    result = sandbox.agent().call("send_email", arguments)
    if about(result).get("replayed") is not True:
        is_state(result, "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def a_gateway_that_is_terminated_in_mid_call_leaves_a_result_or_a_doubt(sandbox):
    stopped_by(sandbox, signal.SIGTERM)


def a_gateway_that_is_interrupted_in_mid_call_leaves_a_result_or_a_doubt(sandbox):
    stopped_by(sandbox, signal.SIGINT)


def no_server_is_left_behind(sandbox):
    script = f"echo $$ > {sandbox.folder}/pid; exec cat > /dev/null"
    for way in ("close", signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        agent = sandbox.agent(begun=False, behind=["sh", "-c", script])
        until(lambda: (sandbox.folder / "pid").exists() and (sandbox.folder / "pid").read_text().strip(), "the server")
        pid = int((sandbox.folder / "pid").read_text())
        (sandbox.folder / "pid").unlink()
        if way == "close":
            agent.close()
        else:
            agent.process.send_signal(way)
            agent.end()
        until(lambda pid=pid: not is_running(pid), f"the server's end after {way}", 10)


def an_error_after_a_cancellation_proves_nothing(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent()
    first = agent.start_call("stopped", MAIL)
    until(sandbox.effects, "the effect")
    agent.notify("notifications/cancelled", {"requestId": first})
    time.sleep(0.5)
    result = agent.call("stopped", MAIL | {}, timeout=30)
    is_state(result, "in_doubt", "attempt_unknown")
    is_state(agent.call("stopped", MAIL, timeout=30), "in_doubt")
    is_equal(len(sandbox.effects()), 1, "effects")


def two_calls_with_one_id_never_swap_their_results(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent()
    slow, quick = {"bytes": 1, "delay_ms": 600}, {"bytes": 2, "delay_ms": 100}
    agent.start_call("big", slow, identity="same")
    time.sleep(0.1)
    agent.start_call("big", quick, identity="same")
    agent.wait_until(lambda: len(agent.answers_to("same")) == 2, "both answers")
    time.sleep(0.3)
    is_equal(agent.call("big", slow)["content"][0]["text"], "x", "the slow one's result")
    is_equal(agent.call("big", quick)["content"][0]["text"], "xx", "the quick one's result")
    is_equal(len(sandbox.effects()), 2, "effects")


def an_id_that_was_answered_may_be_used_again(sandbox):
    agent = sandbox.agent()
    for number in range(3):
        agent.start_call("big", {"bytes": number + 1}, identity="same")
        agent.wait_until(lambda count=number + 1: len(agent.answers_to("same")) == count, "its answer")
    texts = [answer["result"]["content"][0]["text"] for answer in agent.answers_to("same")]
    is_equal(texts, ["x", "xx", "xxx"], "results")


def a_repeat_in_the_newest_generation_says_its_type(sandbox):
    first = sandbox.agent().call("send_email", MAIL)
    assert "resultType" not in first, first
    again = sandbox.agent(version=MODERN).call("send_email", MAIL)
    is_replay(again)
    is_equal(again.get("resultType"), "complete", "what a client of 2026-07-28 must find")
    is_equal(len(sandbox.effects()), 1, "effects")


def every_generation_is_guarded(sandbox):
    for number, version in enumerate(("2025-06-18", "2025-11-25", MODERN)):
        agent = sandbox.agent(version=version)
        first = agent.call("send_email", MAIL | {"subject": version})
        is_fresh(first)
        is_replay(agent.call("send_email", MAIL | {"subject": version}), first)
        is_equal(len(sandbox.effects()), number + 1, version)


def run(sandbox, *words):
    done = subprocess.run(
        [sandbox.binary, *words, "--store", sandbox.folder / "ledger.db"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=sandbox.folder,
    )
    assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    return done.stdout


def calls_show_in_the_list_and_their_arguments_do_not(sandbox):
    sandbox.agent().call("send_email", MAIL | {"subject": "SECRET-7"})
    listed = run(sandbox, "list")
    assert "mcp:fixture/send_email" in listed, listed
    assert "SECRET-7" not in listed + run(sandbox, "list", "--json"), listed


def doubtful(sandbox, tool):
    """A call in doubt, by its operation and key."""
    agent = sandbox.agent()
    result = agent.call(tool, {"once": True})
    # The gateway records the delivery as it ends; later, that write could come between the steps of `resolve`.
    agent.close()
    is_state(result, "in_doubt")
    return ("--operation", f"mcp:fixture/{tool}", "--key", about(result)["key"])


def a_person_says_that_it_happened(sandbox):
    intent = doubtful(sandbox, "crash_after")
    run(sandbox, "resolve", *intent, "--happened")
    result = sandbox.agent().call("crash_after", {"once": True})
    is_equal(bool(result.get("isError")), False, str(result))
    is_equal(len(sandbox.effects()), 1, "effects")


def a_person_says_that_it_did_not_happen(sandbox):
    intent = doubtful(sandbox, "crash_after")
    run(sandbox, "resolve", *intent, "--did-not-happen")
    is_fresh(sandbox.agent().call("crash_after", {"once": True}))
    is_equal(len(sandbox.effects()), 2, "effects: the person was wrong, and it is as they said")


def the_doubt_names_the_command_that_settles_it(sandbox):
    sandbox.configure(OUTWARD)
    text = json.dumps(sandbox.agent().call("crash_after", {}))
    for words in ("onceward resolve", "mcp:fixture/crash_after", "--happened", "--did-not-happen"):
        assert words in text, text


def a_ledger_that_cannot_be_reached_stops_calls_and_not_reads(sandbox):
    (sandbox.folder / "ledger.db").mkdir()
    agent = sandbox.agent()
    is_fresh(agent.call("read_inbox"))
    is_state(agent.call("send_email", MAIL), "ledger_down")
    is_equal(sandbox.effects(), [], "effects")


@contextlib.contextmanager
def full_errors(sandbox):
    """Standard error is a full pipe without a reader."""
    errors = sandbox.folder / "errors"
    os.mkfifo(errors)
    full = os.open(errors, os.O_RDWR | os.O_NONBLOCK)
    try:
        for piece in (b"x" * 4096, b"x"):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(full, piece)
        yield
    finally:
        os.close(full)
        errors.unlink()


def a_full_pipe_for_errors_stops_neither_calls_nor_the_end(sandbox):
    (sandbox.folder / "ledger.db").mkdir()
    with full_errors(sandbox):
        agent = sandbox.agent()
        for _ in range(3):
            assert agent.call("send_email", MAIL).get("isError") is True
            agent.call("read_inbox")
        agent.process.terminate()
        agent.end()
    is_equal(sandbox.effects(), [], "effects")


def a_ledger_that_is_stuck_holds_reads_up_once(sandbox):
    agent = sandbox.agent()
    agent.request("tools/list")
    is_fresh(agent.call("send_email", MAIL))
    other = sqlite3.connect(sandbox.folder / "ledger.db", isolation_level=None)
    other.execute("begin immediate")
    stuck = agent.start_call("send_email", MAIL | {"subject": "another"})
    agent.call("read_inbox")
    begun = time.monotonic()
    for _ in range(3):
        agent.call("read_inbox")
    took = time.monotonic() - begun
    other.execute("rollback")
    other.close()
    is_fresh(agent.wait(stuck)["result"])
    assert took < 2, f"three reads took {took:.1f} s"


# A server that lists its tools after the request has timed out, and then reports that.
LATE = """
import json, sys, threading
def say(**message): print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)
def late(identity):
    say(id=identity, result={"tools": [{"name": "act", "description": "x" * 9000, "inputSchema": {"type": "object"}}]})
    say(method="notifications/late")
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "tools/list":
        threading.Timer(6, late, [message["id"]]).start()
    elif message.get("method") == "initialize":
        say(id=message["id"], result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": "late", "version": "1"}})
    elif "id" in message:
        say(id=message["id"], result={"content": []})
"""


def answers_to_the_gateway_itself_reach_no_client_however_late(sandbox):
    agent = sandbox.agent(behind=[sys.executable, "-c", LATE])
    is_fresh(agent.call("act"))
    agent.wait_until(lambda: any(b"notifications/late" in line for line in agent.lines), "the late answer")
    strange = [line[:80] for line in agent.lines if b"onceward-" in line]
    is_equal(strange, [], "answers without a request")


CHECKS = all_of(globals())
