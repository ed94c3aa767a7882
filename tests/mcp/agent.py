#!/usr/bin/env python3
"""The example agent with the real loop of the Claude Agent SDK and a scripted model: whatever the model repeats and whatever is
killed, each mail is sent once.

tests/mcp/agent.py --binary target/debug/onceward
"""

import concurrent.futures
import inspect
import json
import shutil
import subprocess
import sys
import time
import traceback

import checks
import install
from checks import is_equal, name_of
from fake_model import FakeModel, call, say
from results import MARK
from agent_sandbox import AgentSandbox

# The limit for all cases together, after installation. An agent takes three seconds of processor time, most of them to start;
# the rest is for busy machines.
LIMIT = 180

# Agents are heavy.
THREADS = 3

MAIL = {"to": "bob@example.com", "subject": "Invoice 17", "body": "Please pay invoice 17 by Friday."}
SEND = call("send_email", MAIL)
SENT = "Sent to bob@example.com."
DONE = say("The email was sent.")


def the_agent_sends_a_mail_and_hears_of_it(sandbox):
    with FakeModel([[SEND], [DONE]]) as model:
        is_equal(sandbox.work(model, "run-1"), DONE["text"], "said")
        is_equal(model.told(), [(SENT, False)], "told")
    is_equal(sandbox.sent(), [MAIL], "sent")


def a_model_that_calls_three_times_in_one_trace_sends_once(sandbox):
    with FakeModel([[SEND, SEND], [SEND], [DONE]]) as model:
        sandbox.work(model, "run-1")
        (first, _), *others = model.told()
    is_equal(sandbox.sent(), [MAIL], "sent")
    is_equal(first, SENT, "told")
    is_equal(len(others), 2, "repeats")
    for text, failed in others:
        is_replay(text, failed)


def a_model_that_sees_only_structured_results_learns_that_one_is_stored(sandbox):
    sandbox.with_typed_mail()
    with FakeModel([[SEND], [SEND], [DONE]]) as model:
        sandbox.work(model, "run-1")
        (first, failed), (second, again) = model.told()
    is_equal((json.loads(first), failed, again), ({"receipt": "r-1"}, False, False), "told")
    told = json.loads(second)
    is_equal(told.pop("receipt"), "r-1", "the stored result")
    assert told.pop("onceward").startswith(f"{MARK} This call was done") and not told, second
    is_equal(sandbox.sent(), [MAIL], "sent")


def without_the_gateway_that_model_sends_three_mails(sandbox):
    sandbox.without_gateway()
    with FakeModel([[SEND, SEND], [SEND], [DONE]]) as model:
        sandbox.work(model, "run-1")
        is_equal(model.told(), [(SENT, False)] * 3, "told")
    is_equal(sandbox.sent(), [MAIL] * 3, "sent")


def an_agent_that_is_killed_before_it_hears_and_started_again_sends_once(sandbox):
    with FakeModel([[SEND], [DONE]]) as model:
        sandbox.kill_agent(sandbox.begun(model, "run-1"))
        is_equal(model.told(), [], "told before it died")
        is_equal(sandbox.work(model, "run-1"), DONE["text"], "said")
        [(text, failed)] = model.told()
    is_replay(text, failed)
    is_equal(sandbox.sent(), [MAIL], "sent")


def without_the_gateway_a_killed_agent_sends_two_mails(sandbox):
    sandbox.without_gateway()
    with FakeModel([[SEND], [DONE]]) as model:
        sandbox.kill_agent(sandbox.begun(model, "run-1"))
        sandbox.work(model, "run-1")
    is_equal(sandbox.sent(), [MAIL] * 2, "sent")


def when_the_gateway_dies_too_the_model_learns_of_the_doubt_and_can_look_it_up(sandbox):
    with FakeModel([[SEND], [call("list_sent")], [say("It was sent before.")]]) as model:
        sandbox.kill_all(sandbox.begun(model, "run-1"))
        is_equal(model.told(), [], "told before it died")
        sandbox.work(model, "run-1")
        (doubt, failed), (seen, _) = model.told()
    assert failed and "It is unknown whether send_email took effect" in doubt, doubt
    assert MAIL["subject"] in seen, seen
    is_equal(sandbox.sent(), [MAIL], "sent")


def another_run_sends_its_own_mail_and_the_first_run_started_again_sends_none(sandbox):
    # Without sessions only time tells calls apart: here, after a second.
    sandbox.configure('[mcp]\necho = "1s"\n')
    with FakeModel([[SEND], [DONE]]) as model:
        for run in ("run-1", "run-2"):
            sandbox.work(model, run)
            is_equal(model.told(), [(SENT, False)], f"told in {run}")
        time.sleep(1)
        sandbox.work(model, "run-1")
        [(text, failed)] = model.told()
    is_replay(text, failed)
    is_equal(sandbox.sent(), [MAIL] * 2, "sent")


def a_run_that_is_started_again_and_words_its_mail_differently_sends_once(sandbox):
    with FakeModel([[SEND], [DONE]]) as model:
        sandbox.work(model, "run-1")
        is_equal(model.told(), [(SENT, False)], "told")
        model.script = [[call("send_email", MAIL | {"body": "Kindly pay invoice 17."})], [DONE]]
        sandbox.work(model, "run-1")
        [(text, failed)] = model.told()
    is_replay(text, failed)
    is_equal(sandbox.sent(), [MAIL], "sent")


def an_intended_repeat_is_sent_and_its_retry_is_not(sandbox):
    again = call("send_email", MAIL | {"onceward_repeat": 2})
    with FakeModel([[SEND], [again], [again], [DONE]]) as model:
        sandbox.work(model, "run-1")
        first, second, (text, failed) = model.told()
    is_equal([first, second], [(SENT, False)] * 2, "told")
    is_replay(text, failed)
    is_equal(sandbox.sent(), [MAIL] * 2, "sent")


def the_model_asks_what_became_of_its_call(sandbox):
    about = {"tool": "send_email", "arguments": MAIL}
    status = "onceward_status"
    with FakeModel([[call(status, about)], [SEND], [call(status, about)], [call(status)], [DONE]]) as model:
        sandbox.work(model, "run-1")
        assert status in model.tools(), model.tools()
        (before, _), sent, (after, _), (all_calls, _) = model.told()
    is_equal(sent, (SENT, False), "told")
    # Claude's agents show the model the structured part of a result, if there is one.
    assert "unknown_call" in before, before
    assert '"done"' in after and "send_email" in after, after
    assert '"done"' in all_calls and "send_email" in all_calls, all_calls


def is_replay(text, failed):
    """The first result, and the notice that it is a stored one."""
    assert not failed, text
    assert text.startswith(SENT), text
    assert f"{MARK} This call was done" in text, text


class Clock:
    """How much time is left."""

    def __init__(self, limit):
        self.end = time.monotonic() + limit

    def left(self):
        return max(self.end - time.monotonic(), 0.1)


def cases():
    names = globals().values()
    return [one for one in names if inspect.isfunction(one) and list(inspect.signature(one).parameters) == ["sandbox"]]


def loop_of(python):
    """Why the loop, a program that comes with the SDK, cannot run here; or None."""
    bundled = list(python.parent.parent.glob("lib/*/site-packages/claude_agent_sdk/_bundled/claude"))
    program = bundled[0] if bundled else shutil.which("claude")
    if not program:
        return "the SDK came without its program"
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the SDK's program cannot run: {error}"
    return None if done.returncode == 0 else f"the SDK's program cannot run: {done.stderr.strip()[-300:]}"


def fault_of(case, arguments, python, clock):
    sandbox = AgentSandbox(arguments.binary, python, clock)
    try:
        case(sandbox)
    except Exception:  # an exception of any kind is a failure
        return traceback.format_exc() + sandbox.errors()
    finally:
        sandbox.leave()
    return None


def main():
    arguments = checks.arguments_of(__doc__)
    chosen = [case for case in cases() if not arguments.only or arguments.only in name_of(case)]
    python, missing = install.python("claude")
    missing = missing or loop_of(python)
    if missing:
        for case in chosen:
            print(f"skipped: {name_of(case)}: {missing}")
        print(f"0 passed, 0 failed, {len(chosen)} skipped")
        return 0
    clock = Clock(LIMIT)
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        faults = list(pool.map(lambda case: fault_of(case, arguments, python, clock), chosen))
    for case, fault in zip(chosen, faults, strict=True):
        if fault:
            print(f"FAILED: {name_of(case)}\n{fault}")
        elif arguments.verbose:
            print(f"passed: {name_of(case)}")
    failed = sum(bool(fault) for fault in faults)
    print(f"{len(chosen) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
