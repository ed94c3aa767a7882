"""Incidents in which agents acted twice, each with and without the guard: without it, the test sees two effects."""

import asyncio
import json
import pathlib
import signal
import subprocess
import sys
import threading

import pytest
from conftest import CHARGE, RULES, THREAD, agent, answers, ask, call, graph_of, run, turn
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

import onceward
from onceward.langchain import OnceMiddleware

PROGRAM = pathlib.Path(__file__).with_name("crashing_agent.py")
IN_DOUBT = onceward.InDoubt(operation="charge").for_model()
# Longer than any test needs on a busy machine.
SECONDS = 60

with_and_without = pytest.mark.parametrize(("is_guarded", "effects"), [(False, 2), (True, 1)])
sync_and_async = pytest.mark.parametrize("is_async", [False, True])


def middleware(ledger, is_guarded, **settings):
    return [OnceMiddleware(ledger, {"charge": RULES["charge"] | settings})] if is_guarded else []


@with_and_without
@pytest.mark.parametrize("is_cancellable", [False, True])
def test_a_call_that_outlasts_the_client_is_not_silently_run_again(bank, ledger, is_guarded, effects, is_cancellable):
    """langgraph#7417: the client gives up, and the run starts again from its checkpoint."""
    bank.delay = 0 if is_cancellable else 0.5
    guard, saver = middleware(ledger, is_guarded), InMemorySaver()

    async def slow_charge(customer: str, invoice: int, amount: int, memo: str) -> dict:
        """Charges a customer, and waits for the answer."""
        result = bank.charge(customer, invoice, amount)
        await asyncio.sleep(0.5)
        return result

    # A function that is not async goes on in its thread when the run is cancelled.
    tools = [tool("charge")(slow_charge if is_cancellable else bank.charge)]

    async def give_up():
        made = agent([turn(call())], tools, *guard, checkpointer=saver)
        run = asyncio.create_task(made.ainvoke(*ask()))
        await asyncio.to_thread(bank.has_charged.wait, SECONDS)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(run, 0.05)
        return await agent([], tools, *guard, checkpointer=saver).ainvoke(None, THREAD)

    (told,) = answers(asyncio.run(give_up()))
    assert len(bank.charged) == effects
    is_in_doubt = is_guarded and is_cancellable
    assert told.content == (IN_DOUBT if is_in_doubt else f'{{"receipt": {effects}}}')


@with_and_without
def test_a_run_that_another_worker_takes_over_too_early_acts_once(bank, ledger, is_guarded, effects):
    """langgraph#7417 again: the first worker is still alive, and both finish."""
    bank.delay = 0.5
    guard, tools, results = middleware(ledger, is_guarded), [tool("charge")(bank.charge)], {}

    def work(name):
        results[name] = run(agent([turn(call(id=name))], tools, *guard))

    first = threading.Thread(target=work, args=("first",))
    first.start()
    assert bank.has_charged.wait(SECONDS)
    work("second")
    first.join(SECONDS)
    assert len(bank.charged) == effects
    assert {name: told[0].tool_call_id for name, told in results.items()} == {"first": "first", "second": "second"}
    if is_guarded:
        assert {told[0].content for told in results.values()} == {'{"receipt": 1}'}


@with_and_without
@sync_and_async
def test_a_resumed_tool_node_does_not_repeat_the_tools_that_were_done(bank, ledger, is_guarded, effects, is_async):
    """langgraph#8464: one tool of a turn asks a person; when the run resumes, the whole node runs again."""

    @tool
    def ask_person(question: str) -> str:
        """Asks a person."""
        return interrupt(question)

    wraps = {}
    if is_guarded:
        guard = OnceMiddleware(ledger, RULES)
        wraps = {"wrap_tool_call": guard.wrap_tool_call, "awrap_tool_call": guard.awrap_tool_call}
    node = ToolNode([tool("charge")(bank.charge), ask_person], **wraps)
    graph = StateGraph(MessagesState).add_node("tools", node).add_edge(START, "tools").add_edge("tools", END)
    made = graph.compile(checkpointer=InMemorySaver())
    state = {"messages": [turn(call(), call("ask_person", id="b", question="Ship it?"))]}

    def invoke(given):
        return asyncio.run(made.ainvoke(given, THREAD)) if is_async else made.invoke(given, THREAD)

    assert invoke(state)["__interrupt__"]
    told = answers(invoke(Command(resume="yes")))
    assert len(bank.charged) == effects
    assert {one.tool_call_id: one.content for one in told} == {"call-1": f'{{"receipt": {effects}}}', "b": "yes"}


@with_and_without
@sync_and_async
def test_two_equal_calls_in_one_turn_act_once(bank, ledger, is_guarded, effects, is_async):
    bank.delay = 0.05
    made = agent([turn(call(id="a"), call(id="b"))], [tool("charge")(bank.charge)], *middleware(ledger, is_guarded))
    told = run(made, is_async=is_async)
    assert len(bank.charged) == effects
    assert [one.tool_call_id for one in told] == ["a", "b"]
    if is_guarded:
        assert [one.content for one in told] == ['{"receipt": 1}'] * 2


@with_and_without
def test_two_runs_two_milliseconds_apart_act_once(bank, ledger, is_guarded, effects):
    """A double click, or a scheduler that overlaps: two runs of the same conversation."""
    bank.delay = 0.05
    guard, tools = middleware(ledger, is_guarded), [tool("charge")(bank.charge)]

    async def both():
        async def later(id, seconds):
            await asyncio.sleep(seconds)
            return answers(await agent([turn(call(id=id))], tools, *guard).ainvoke(*ask()))

        return await asyncio.gather(later("a", 0), later("b", 0.002))

    told = [(one.content, one.tool_call_id) for pair in asyncio.run(both()) for one in pair]
    assert len(bank.charged) == effects
    if is_guarded:
        assert told == [('{"receipt": 1}', "a"), ('{"receipt": 1}', "b")]


@with_and_without
def test_a_call_that_the_model_makes_again_under_a_new_id_acts_once(bank, ledger, is_guarded, effects):
    turns = [turn(call(id="a")), turn(call(id="b"))]
    run(agent(turns, [tool("charge")(bank.charge)], *middleware(ledger, is_guarded)))
    assert len(bank.charged) == effects


def test_a_waiting_call_that_has_waited_long_enough_is_told_to_come_back(bank, ledger):
    bank.delay = 1.5
    tools, guard = [tool("charge")(bank.charge)], middleware(ledger, True, wait="20ms")
    first = threading.Thread(target=run, args=(agent([turn(call())], tools, *guard),))
    first.start()
    assert bank.has_charged.wait(SECONDS)
    (told,) = run(agent([turn(call(id="b"))], tools, *guard))
    first.join(SECONDS)
    assert told.status == "error" and "already running" in told.content
    assert len(bank.charged) == 1


@with_and_without
def test_a_memo_in_other_words_is_the_same_charge(bank, ledger, is_guarded, effects):
    """crewAI#5802: a model that is asked again words its arguments differently."""
    turns = [turn(call(id="a", memo="thanks")), turn(call(id="b", memo="Thank you for your order!"))]
    run(agent(turns, [tool("charge")(bank.charge)], *middleware(ledger, is_guarded)))
    assert len(bank.charged) == effects


@with_and_without
def test_another_amount_for_the_same_invoice_is_refused(bank, ledger, is_guarded, effects):
    turns = [turn(call(id="a")), turn(call(id="b", amount=2499))]
    told = run(agent(turns, [tool("charge")(bank.charge)], *middleware(ledger, is_guarded)))
    assert len(bank.charged) == effects
    if is_guarded:
        assert (told[1].status, told[1].content) == ("error", onceward.Mismatch(operation="charge").for_model())


@with_and_without
def test_a_lost_answer_is_not_retried_blindly(bank, ledger, is_guarded, effects):
    bank.fails = [ConnectionError("connection reset by peer")]
    guard = middleware(ledger, is_guarded)
    with pytest.raises(ConnectionError):
        run(agent([turn(call())], [tool("charge")(bank.charge)], *guard))
    (told,) = run(agent([turn(call())], [tool("charge")(bank.charge)], *guard))
    assert len(bank.charged) == effects
    assert told.content == (IN_DOUBT if is_guarded else '{"receipt": 2}')


def test_a_retry_of_a_lost_answer_brings_the_same_key_to_the_bank(bank, ledger):
    bank.fails = [ConnectionError("connection reset by peer")]
    guard = middleware(ledger, True, in_doubt="retry")
    with pytest.raises(ConnectionError):
        run(agent([turn(call())], [tool("charge")(bank.charge)], *guard))
    run(agent([turn(call())], [tool("charge")(bank.charge)], *guard))
    assert bank.keys[0] is not None and bank.keys == [bank.keys[0]] * 2


# Processes that are killed.


def process(folder, *words):
    # The program imports the helpers that are beside it.
    command = [sys.executable, PROGRAM, folder, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def charges(folder):
    return (folder / "charges").read_text().splitlines()


@pytest.mark.parametrize(("guard", "effects"), [("unguarded", 2), ("guarded", 1)])
@pytest.mark.parametrize("dies", ["inside", "after"])
def test_a_killed_agent_that_resumes_from_its_checkpoint_acts_once(tmp_path, guard, effects, dies):
    killed = process(tmp_path, "start", guard, dies)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(charges(tmp_path)) == 1
    resumed = process(tmp_path, "resume", guard, "never")
    assert resumed.returncode == 0, resumed.stderr
    assert len(charges(tmp_path)) == effects
    ((content, status, id),) = json.loads(resumed.stdout)
    # A result that was recorded is replayed. A charge that was interrupted may have happened.
    is_in_doubt = guard == "guarded" and dies == "inside"
    assert (content, status, id) == ((IN_DOUBT, "error", "call-1") if is_in_doubt else ("paid", "success", "call-1"))


def test_a_killed_agent_goes_on_once_a_person_has_settled_the_doubt(tmp_path):
    process(tmp_path, "start", "guarded", "inside")
    with onceward.Ledger(tmp_path / "ledger.db") as ledger:
        (doubt,) = [one for one in ledger.list() if one.operation == "charge"]
        # The owner is gone: the next call finds the doubt, and so does a person who looks.
        assert ledger.get("charge", doubt.key).status == "in_doubt"
        ledger.resolve("charge", doubt.key, happened=True, result="paid, says the bank")
    resumed = process(tmp_path, "resume", "guarded", "never")
    assert json.loads(resumed.stdout) == [["paid, says the bank", "success", "call-1"]]
    assert len(charges(tmp_path)) == 1


def test_the_arguments_of_a_charge_are_not_in_what_the_model_is_told(bank, ledger):
    bank.fails = [TimeoutError("no answer")]
    node = ToolNode(
        [tool("charge")(bank.charge)],
        handle_tool_errors=True,
        wrap_tool_call=OnceMiddleware(ledger, RULES).wrap_tool_call,
    )
    for _ in range(2):
        (told,) = answers(graph_of(node).invoke({"messages": [turn(call())]}, THREAD))
        assert told.status == "error"
        assert not any(str(value) in told.content for value in CHARGE.values())
