"""Incidents in which agents acted twice, each with and without the guard: without it, the test sees two effects."""

import asyncio
import json
import pathlib
import signal
import subprocess
import sys

import pytest
from agents import RunConfig, Runner, RunState, function_tool
from conftest import PAYMENT, agent, call, outputs, run

import onceward
from onceward.openai_agents import once

PROGRAM = pathlib.Path(__file__).with_name("crashing_agent.py")
IN_DOUBT = onceward.InDoubt(operation="charge").for_model()
# Longer than any test needs on a busy machine.
SECONDS = 60

with_and_without = pytest.mark.parametrize(("is_guarded", "effects"), [(False, 2), (True, 1)])


def tool_of(bank, ledger, is_guarded, **options):
    return function_tool(once(ledger, **PAYMENT)(bank.charge) if is_guarded else bank.charge, **options)


@with_and_without
def test_two_equal_calls_in_one_response_act_once(bank, ledger, is_guarded, effects):
    bank.delay = 0.05
    told = run([[call(), call()]], tool_of(bank, ledger, is_guarded))
    assert len(bank.charged) == effects
    if is_guarded:
        assert told == ["receipt 1", "receipt 1"]


@with_and_without
def test_two_runs_two_milliseconds_apart_act_once(bank, ledger, is_guarded, effects):
    bank.delay = 0.05
    tool = tool_of(bank, ledger, is_guarded)

    async def both():
        async def later(seconds):
            await asyncio.sleep(seconds)
            return outputs(await Runner.run(agent([call()], [tool]), "Pay it."))

        return await asyncio.gather(later(0), later(0.002))

    told = asyncio.run(both())
    assert len(bank.charged) == effects
    if is_guarded:
        assert told == [["receipt 1"], ["receipt 1"]]


@with_and_without
def test_a_call_that_the_model_makes_again_under_a_new_id_acts_once(bank, ledger, is_guarded, effects):
    run([call(id="a"), call(id="b")], tool_of(bank, ledger, is_guarded))
    assert len(bank.charged) == effects


@with_and_without
def test_a_call_that_outlasts_the_limit_is_not_silently_run_again(bank, ledger, is_guarded, effects):
    """As in langgraph#7417: the client gives up, and the model is asked again."""
    bank.delay = SECONDS
    told = run([call(), call()], tool_of(bank, ledger, is_guarded, timeout=1))
    assert len(bank.charged) == effects
    assert told[0] == "Tool 'charge' timed out after 1 seconds."
    assert (told[1] == IN_DOUBT) is is_guarded


@with_and_without
def test_a_run_that_is_given_up_and_started_again_acts_once(bank, ledger, is_guarded, effects):
    bank.delay = SECONDS
    tool = tool_of(bank, ledger, is_guarded)

    async def give_up():
        first = asyncio.create_task(Runner.run(agent([call()], [tool]), "Pay it."))
        while not bank.charged:
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(first, 0.05)
        bank.delay = 0
        return outputs(await Runner.run(agent([call()], [tool]), "Pay it."))

    told = asyncio.run(give_up())
    assert len(bank.charged) == effects
    assert (told == [IN_DOUBT]) is is_guarded


@with_and_without
def test_a_memo_in_other_words_is_the_same_charge(bank, ledger, is_guarded, effects):
    """crewAI#5802: a model that is asked again words its arguments differently."""
    told = run([call(memo="thanks"), call(memo="Thank you for your order!")], tool_of(bank, ledger, is_guarded))
    assert len(bank.charged) == effects
    assert told[1] == f"receipt {effects}"


@with_and_without
def test_another_amount_for_the_same_invoice_is_refused(bank, ledger, is_guarded, effects):
    told = run([call(), call(cents=2499)], tool_of(bank, ledger, is_guarded))
    assert len(bank.charged) == effects
    assert (told[1] == onceward.Mismatch(operation="charge").for_model()) is is_guarded


@with_and_without
def test_a_lost_answer_is_not_retried_blindly(bank, ledger, is_guarded, effects):
    bank.fails = [ConnectionError("connection reset by peer")]
    told = run([call(), call()], tool_of(bank, ledger, is_guarded))
    assert len(bank.charged) == effects
    assert ("try again" in told[0]) is not is_guarded


@with_and_without
def test_a_state_that_is_resumed_twice_acts_once(bank, ledger, is_guarded, effects):
    """As in langgraph#8464: the approved call runs again when the same state is resumed again."""
    tool = tool_of(bank, ledger, is_guarded, needs_approval=True)

    async def twice():
        config = RunConfig(group_id="conversation-1")
        waiting = await Runner.run(agent([call()], [tool]), "Pay it.", run_config=config)
        saved = waiting.to_state().to_json()
        for _ in range(2):
            made = agent([], [tool])
            state = await RunState.from_json(made, saved)
            state.approve(state.get_interruptions()[0])
            yield outputs(await Runner.run(made, state, run_config=config))

    async def collected():
        return [one async for one in twice()]

    told = asyncio.run(collected())
    assert len(bank.charged) == effects
    assert told == [["receipt 1"], [f"receipt {effects}"]]


# Processes that are killed.


def process(folder, *words):
    # The program imports the helpers that are beside it.
    command = [sys.executable, PROGRAM, folder, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.parametrize(("guard", "effects"), [("unguarded", 2), ("guarded", 1)])
@pytest.mark.parametrize("dies", ["inside", "after"])
def test_a_killed_agent_that_resumes_from_its_state_acts_once(tmp_path, guard, effects, dies):
    started = process(tmp_path, "start", guard, "never")
    assert started.returncode == 0, started.stderr
    killed = process(tmp_path, "resume", guard, dies)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len((tmp_path / "charges").read_text().splitlines()) == 1
    resumed = process(tmp_path, "resume", guard, "never")
    assert resumed.returncode == 0, resumed.stderr
    assert len((tmp_path / "charges").read_text().splitlines()) == effects
    # A result that was recorded is replayed. A charge that was interrupted may have happened.
    is_in_doubt = guard == "guarded" and dies == "inside"
    assert json.loads(resumed.stdout) == [IN_DOUBT if is_in_doubt else "paid"]
