"""What clients and people do around a call: signals, ids used twice, the other generation, the command line."""

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
from deaths import is_running
from judge import about, is_fresh, is_replay, is_state
from place import OUTWARD

MAIL = {"to": "ada@example.org", "subject": "Hello"}


def stopped_by(place, sign):
    """A gateway that is told to stop in mid-call, as clients do."""
    arguments = MAIL | {"delay_ms": 1500}
    agent = place.agent()
    agent.start_call("send_email", arguments)
    until(place.effects, "the effect")
    agent.process.send_signal(sign)
    agent.end()
    result = place.agent().call("send_email", arguments)
    if about(result).get("replayed") is not True:
        is_state(result, "in_doubt")
    is_equal(len(place.effects()), 1, "effects")


def a_gateway_that_is_terminated_in_mid_call_leaves_a_result_or_a_doubt(place):
    stopped_by(place, signal.SIGTERM)


def a_gateway_that_is_interrupted_in_mid_call_leaves_a_result_or_a_doubt(place):
    stopped_by(place, signal.SIGINT)


def no_server_is_left_behind(place):
    script = f"echo $$ > {place.folder}/pid; exec cat > /dev/null"
    for way in ("close", signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        agent = place.agent(begun=False, behind=["sh", "-c", script])
        until(lambda: (place.folder / "pid").exists() and (place.folder / "pid").read_text().strip(), "the server")
        pid = int((place.folder / "pid").read_text())
        (place.folder / "pid").unlink()
        if way == "close":
            agent.close()
        else:
            agent.process.send_signal(way)
            agent.end()
        until(lambda pid=pid: not is_running(pid), f"the server's end after {way}", 10)


def an_error_after_a_cancellation_proves_nothing(place):
    place.configure(OUTWARD)
    agent = place.agent()
    first = agent.start_call("stopped", MAIL)
    until(place.effects, "the effect")
    agent.notify("notifications/cancelled", {"requestId": first})
    time.sleep(0.5)
    result = agent.call("stopped", MAIL | {}, patience=30)
    is_state(result, "in_doubt", "attempt_unknown")
    is_state(agent.call("stopped", MAIL, patience=30), "in_doubt")
    is_equal(len(place.effects()), 1, "effects")


def two_calls_with_one_id_never_swap_their_results(place):
    place.configure(OUTWARD)
    agent = place.agent()
    slow, quick = {"bytes": 1, "delay_ms": 600}, {"bytes": 2, "delay_ms": 100}
    agent.start_call("big", slow, identity="same")
    time.sleep(0.1)
    agent.start_call("big", quick, identity="same")
    agent.wait_until(lambda: len(agent.answers_to("same")) == 2, "both answers")
    time.sleep(0.3)
    is_equal(agent.call("big", slow)["content"][0]["text"], "x", "the slow one's result")
    is_equal(agent.call("big", quick)["content"][0]["text"], "xx", "the quick one's result")
    is_equal(len(place.effects()), 2, "effects")


def an_id_that_was_answered_may_be_used_again(place):
    agent = place.agent()
    for number in range(3):
        agent.start_call("big", {"bytes": number + 1}, identity="same")
        agent.wait_until(lambda count=number + 1: len(agent.answers_to("same")) == count, "its answer")
    texts = [answer["result"]["content"][0]["text"] for answer in agent.answers_to("same")]
    is_equal(texts, ["x", "xx", "xxx"], "results")


def a_repeat_in_the_newest_generation_says_its_type(place):
    first = place.agent().call("send_email", MAIL)
    assert "resultType" not in first, first
    again = place.agent(version=MODERN).call("send_email", MAIL)
    is_replay(again)
    is_equal(again.get("resultType"), "complete", "what a client of 2026-07-28 must find")
    is_equal(len(place.effects()), 1, "effects")


def every_generation_is_guarded(place):
    for number, version in enumerate(("2025-06-18", "2025-11-25", MODERN)):
        agent = place.agent(version=version)
        first = agent.call("send_email", MAIL | {"subject": version})
        is_fresh(first)
        is_replay(agent.call("send_email", MAIL | {"subject": version}), first)
        is_equal(len(place.effects()), number + 1, version)


def run(place, *words):
    done = subprocess.run(
        [place.binary, *words, "--store", place.folder / "ledger.db"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=place.folder,
    )
    assert done.returncode == 0, f"{words}: {done.stdout} {done.stderr}"
    return done.stdout


def calls_show_in_the_list_and_their_arguments_do_not(place):
    place.agent().call("send_email", MAIL | {"subject": "SECRET-7"})
    listed = run(place, "list")
    assert "mcp:fixture/send_email" in listed, listed
    assert "SECRET-7" not in listed + run(place, "list", "--json"), listed


def doubtful(place, tool):
    """A call in doubt, by its operation and key."""
    result = place.agent().call(tool, {"once": True})
    is_state(result, "in_doubt")
    return ("--operation", f"mcp:fixture/{tool}", "--key", about(result)["key"])


def a_person_says_that_it_happened(place):
    intent = doubtful(place, "crash_after")
    run(place, "resolve", *intent, "--happened")
    result = place.agent().call("crash_after", {"once": True})
    is_equal(bool(result.get("isError")), False, str(result))
    is_equal(len(place.effects()), 1, "effects")


def a_person_says_that_it_did_not_happen(place):
    intent = doubtful(place, "crash_after")
    run(place, "resolve", *intent, "--did-not-happen")
    is_fresh(place.agent().call("crash_after", {"once": True}))
    is_equal(len(place.effects()), 2, "effects: the person was wrong, and it is as they said")


def the_doubt_names_the_command_that_settles_it(place):
    place.configure(OUTWARD)
    text = json.dumps(place.agent().call("crash_after", {}))
    for words in ("onceward resolve", "mcp:fixture/crash_after", "--happened", "--did-not-happen"):
        assert words in text, text


def a_ledger_that_cannot_be_reached_stops_calls_and_not_reads(place):
    (place.folder / "ledger.db").mkdir()
    agent = place.agent()
    is_fresh(agent.call("read_inbox"))
    is_state(agent.call("send_email", MAIL), "ledger_down")
    is_equal(place.effects(), [], "effects")


@contextlib.contextmanager
def full_errors(place):
    """Standard error is a pipe that is full, and that nobody reads."""
    errors = place.folder / "errors"
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


def a_full_pipe_for_errors_stops_neither_calls_nor_the_end(place):
    (place.folder / "ledger.db").mkdir()
    with full_errors(place):
        agent = place.agent()
        for _ in range(3):
            assert agent.call("send_email", MAIL).get("isError") is True
            agent.call("read_inbox")
        agent.process.terminate()
        agent.end()
    is_equal(place.effects(), [], "effects")


def a_ledger_that_is_stuck_holds_reads_up_once(place):
    agent = place.agent()
    agent.request("tools/list")
    is_fresh(agent.call("send_email", MAIL))
    other = sqlite3.connect(place.folder / "ledger.db", isolation_level=None)
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


# A server that lists its tools when nobody waits for that any more, and then says so.
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


def answers_to_the_gateway_itself_reach_no_client_however_late(place):
    agent = place.agent(behind=[sys.executable, "-c", LATE])
    is_fresh(agent.call("act"))
    agent.wait_until(lambda: any(b"notifications/late" in line for line in agent.lines), "the late answer")
    strange = [line[:80] for line in agent.lines if b"onceward-" in line]
    is_equal(strange, [], "answers to nobody")


CHECKS = all_of(globals())
