"""Guarded nodes of LangGraph graphs: retries, resumption from checkpoints, and what their results become."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from typing import Annotated, Any, Literal, TypedDict

import pytest
from conftest import THREAD
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from langgraph.types import Command, RetryPolicy, Send, interrupt
from pydantic import BaseModel

import onceward
from onceward.langchain import once_node

RETRY = RetryPolicy(max_attempts=3, initial_interval=0.01, jitter=False)
SECONDS = 60


class State(TypedDict, total=False):
    invoice: int
    amount: int
    receipt: Any
    turns: int
    messages: Annotated[list, add_messages]


class Slip(BaseModel):
    number: int


def graph_of(node, saver=None, retry=None, schema=State):
    made = StateGraph(schema).add_node("charge", node, retry_policy=retry)
    return made.add_edge(START, "charge").add_edge("charge", END).compile(checkpointer=saver)


def paying(bank):
    def charge(state: State) -> dict:
        return {"receipt": bank.charge("c7", state["invoice"], state["amount"])["receipt"]}

    return charge


ORDER = {"invoice": 42, "amount": 1999}


@pytest.mark.parametrize(("is_guarded", "effects"), [(False, 2), (True, 1)])
def test_a_retry_policy_does_not_repeat_an_effect_whose_answer_was_lost(bank, ledger, is_guarded, effects):
    bank.fails = [ConnectionError("connection reset by peer")]
    node = once_node(ledger, operation="charge")(paying(bank)) if is_guarded else paying(bank)
    graph = graph_of(node, InMemorySaver(), RETRY)
    if is_guarded:
        with pytest.raises(onceward.InDoubt):
            graph.invoke(ORDER, THREAD, durability="sync")
    else:
        graph.invoke(ORDER, THREAD, durability="sync")
    assert len(bank.charged) == effects


def test_a_retry_policy_may_retry_with_the_same_key_downstream(bank, ledger):
    bank.fails = [ConnectionError("connection reset by peer")]
    node = once_node(ledger, operation="charge", in_doubt="retry")(paying(bank))
    assert graph_of(node, InMemorySaver(), RETRY).invoke(ORDER, THREAD, durability="sync")["receipt"] == 2
    assert bank.keys[0] is not None and bank.keys == [bank.keys[0]] * 2


def test_a_retry_policy_retries_work_that_did_nothing(bank, ledger):
    bank.fails = [onceward.NotSent("connection refused")]
    node = once_node(ledger, operation="charge", tier="payment")(paying(bank))
    assert graph_of(node, InMemorySaver(), RETRY).invoke(ORDER, THREAD, durability="sync")["receipt"] == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_settled_doubt_lets_the_graph_go_on(bank, ledger, is_async):
    bank.fails = [TimeoutError("no answer")]
    charge = paying(bank)

    async def charge_async(state: State) -> dict:
        return charge(state)

    graph = graph_of(once_node(ledger, operation="charge")(charge_async if is_async else charge), InMemorySaver())

    def invoke(state):
        return asyncio.run(graph.ainvoke(state, THREAD, durability="sync")) if is_async else graph.invoke(state, THREAD, durability="sync")

    with pytest.raises(TimeoutError):
        invoke(ORDER)
    with pytest.raises(onceward.InDoubt) as doubt:
        invoke(None)
    ledger.resolve("charge", doubt.value.key, happened=True, result={"receipt": 99})
    assert invoke(None)["receipt"] == 99
    assert len(bank.charged) == 1


@pytest.mark.parametrize(("is_guarded", "effects"), [(False, 2), (True, 1)])
def test_a_node_whose_result_did_not_reach_the_checkpoint_is_replayed(bank, ledger, is_guarded, effects):
    """The node fails after the effect, so that the run resumes before it."""
    charge = paying(bank)
    guarded = once_node(ledger, operation="charge")(charge)
    fails = [RuntimeError("out of memory")]

    def node(state: State, config: RunnableConfig) -> dict:
        update = guarded(state, config=config) if is_guarded else charge(state)
        if fails:
            raise fails.pop()
        return update

    graph = graph_of(node, InMemorySaver())
    with pytest.raises(RuntimeError):
        graph.invoke(ORDER, THREAD, durability="sync")
    assert graph.invoke(None, THREAD, durability="sync")["receipt"] == effects
    assert len(bank.charged) == effects


@pytest.mark.parametrize(("is_guarded", "effects"), [(False, 2), (True, 1)])
def test_a_guarded_function_in_a_node_that_asks_a_person_acts_once(bank, ledger, is_guarded, effects):
    """langgraph#8464: what comes before an interrupt runs again when the run resumes."""
    charge = ledger.once(operation="charge", key=["invoice"])(bank.charge) if is_guarded else bank.charge

    def node(state: State) -> dict:
        receipt = charge(customer="c7", invoice=state["invoice"], amount=state["amount"])
        return {"receipt": [receipt["receipt"], interrupt("Ship it?")]}

    graph = graph_of(node, InMemorySaver())
    assert graph.invoke(ORDER, THREAD, durability="sync")["__interrupt__"]
    assert graph.invoke(Command(resume="yes"), THREAD, durability="sync")["receipt"] == [effects, "yes"]
    assert len(bank.charged) == effects


def test_a_guarded_node_may_ask_a_person_before_it_acts(bank, ledger):
    @once_node(ledger, operation="charge", tier="payment", on_error="doubt")
    def node(state: State) -> dict:
        answer = interrupt("Pay it?")
        return {"receipt": [answer, bank.charge("c7", state["invoice"], state["amount"])["receipt"]]}

    graph = graph_of(node, InMemorySaver())
    assert graph.invoke(ORDER, THREAD, durability="sync")["__interrupt__"]
    assert graph.invoke(Command(resume="yes"), THREAD, durability="sync")["receipt"] == ["yes", 1]


@pytest.mark.parametrize(("is_guarded", "effects"), [(False, 3), (True, 2)])
def test_time_travel_replays_the_first_answer_and_a_fork_asks_again(bank, ledger, is_guarded, effects):
    def decide(state: State) -> dict:
        answer = interrupt("Pay it?")
        return {"receipt": [bank.charge("c7", state["invoice"], state["amount"])["receipt"], answer]}

    node = once_node(ledger, operation="decide")(decide) if is_guarded else decide
    graph = graph_of(node, InMemorySaver())
    graph.invoke(ORDER, THREAD, durability="sync")
    first = graph.invoke(Command(resume="yes"), THREAD, durability="sync")
    before = [one for one in graph.get_state_history(THREAD) if one.next == ("charge",)][-1].config
    # LangGraph itself gives the node its first answer.
    again = graph.invoke(Command(resume="no"), before, durability="sync")
    assert (first["receipt"][1], again["receipt"][1]) == ("yes", "yes")
    fork = graph.update_state(before, ORDER)
    assert graph.invoke(None, fork, durability="sync")["__interrupt__"]
    assert graph.invoke(Command(resume="no"), THREAD, durability="sync")["receipt"][1] == "no"
    assert len(bank.charged) == effects


def test_the_next_pass_through_a_node_runs(bank, ledger):
    @once_node(ledger, operation="charge")
    def charge(state: State) -> dict:
        bank.charge("c7", state["invoice"], state["amount"])
        return {"turns": state.get("turns", 0) + 1}

    made = StateGraph(State).add_node("charge", charge).add_edge(START, "charge")
    made.add_conditional_edges("charge", lambda state: END if state["turns"] == 3 else "charge")
    assert made.compile(checkpointer=InMemorySaver()).invoke(ORDER, THREAD, durability="sync")["turns"] == 3
    assert len(bank.charged) == 3


def test_a_key_of_the_state_names_the_intent_in_every_run(bank, ledger):
    node = once_node(ledger, operation="charge", key=["invoice"], match=["amount"])(paying(bank))
    for thread in ("1", "2"):
        assert graph_of(node).invoke(ORDER, {"configurable": {"thread_id": thread}})["receipt"] == 1
    with pytest.raises(onceward.Mismatch):
        graph_of(node).invoke(ORDER | {"amount": 1})
    assert graph_of(node).invoke(ORDER | {"invoice": 43})["receipt"] == 2


@pytest.mark.parametrize("key", [["invoice"], lambda state: f"invoice-{state['invoice']}"])
def test_a_key_of_the_state_can_be_bound_to_the_thread(bank, ledger, key):
    node = once_node(ledger, operation="charge", key=key, session=True)(paying(bank))
    configs = [{"configurable": {"thread_id": thread}} for thread in ("1", "2", "1")]
    assert [graph_of(node).invoke(ORDER, config)["receipt"] for config in configs] == [1, 2, 1]


def test_the_state_may_be_a_model(bank, ledger):
    class Order(BaseModel):
        invoice: int
        amount: int
        receipt: int = 0

    @once_node(ledger, operation="charge", key=["invoice"])
    def charge(state: Order) -> dict:
        return {"receipt": bank.charge("c7", state.invoice, state.amount)["receipt"]}

    for _ in range(2):
        assert graph_of(charge, schema=Order).invoke(Order(**ORDER))["receipt"] == 1


def test_the_decorator_of_the_ledger_works_on_a_node(bank, ledger):
    @ledger.once(operation="charge", key=["/state/invoice"])
    def charge(state: State) -> dict:
        return {"receipt": bank.charge("c7", state["invoice"], state["amount"])["receipt"]}

    for _ in range(2):
        assert graph_of(charge, retry=RETRY).invoke(ORDER)["receipt"] == 1
    assert len(bank.charged) == 1


def test_a_node_still_gets_what_its_signature_asks_for(ledger):
    seen = []

    @once_node(ledger, operation="charge")
    def charge(state: State, config: RunnableConfig, runtime: Runtime) -> dict:
        seen.append((config["configurable"]["thread_id"], runtime.store))
        return {"receipt": 1}

    graph_of(charge, InMemorySaver()).invoke(ORDER, THREAD, durability="sync")
    assert seen == [("conversation-1", None)]


# Results.


def replayed(ledger, result, returns=dict):
    """What the graph gets from a node that runs, and from the same node when it is replayed."""
    ran = []

    def node(state: State) -> returns:
        ran.append(state)
        return result() if callable(result) else result

    guarded = once_node(ledger, operation="charge", key=["invoice"])(node)
    found = [guarded(ORDER, config={}) for _ in range(2)]
    assert len(ran) == 1
    return found


@pytest.mark.parametrize(
    "result",
    [
        None,
        {"receipt": {"lines": [1, 2.5, None, True, "ü"]}},
        {"messages": [AIMessage("paid", id="m1", tool_calls=[{"name": "x", "args": {"a": 1}, "id": "c"}])]},
        {"messages": [HumanMessage([{"type": "text", "text": "hi"}])]},
        {"messages": [ToolMessage("x", tool_call_id="c", artifact=[1])]},
        Command(goto="ship", update={"messages": [AIMessage("paid")], "receipt": 7}),
        Command(goto=["ship", "mail"], graph=Command.PARENT),
        Command(update={"receipt": 7}),
    ],
)
def test_results_come_back_as_they_were(ledger, result):
    first, again = replayed(ledger, result)
    assert again == first == result and type(again) is type(result)
    if isinstance(result, dict) and "messages" in result:
        assert [type(one) for one in again["messages"]] == [type(one) for one in result["messages"]]


@pytest.mark.parametrize(
    "result",
    [
        {"receipt": object()},
        {"receipt": (1, 2)},
        {"messages": [ToolMessage("x", tool_call_id="c", artifact=(1, 2))]},
        {"messages": [ToolMessage("x", tool_call_id="c", artifact=Slip(number=1))]},
        Command(goto=Send("ship", {})),
        {"onceward:kind": "message"},
    ],
)
def test_a_result_that_would_come_back_as_something_else_is_not_kept(ledger, result):
    with pytest.raises(onceward.OutcomeNotKept):
        replayed(ledger, result)


def test_a_replayed_command_leads_the_graph_to_the_same_node(bank, ledger):
    @once_node(ledger, operation="charge", key=["invoice"])
    def charge(state: State) -> Command[Literal["ship"]]:
        return Command(goto="ship", update={"receipt": bank.charge("c7", 42, 1999)["receipt"]})

    made = StateGraph(State).add_node("charge", charge).add_node("ship", lambda state: {"turns": 1})
    graph = made.add_edge(START, "charge").compile()
    for _ in range(2):
        state = graph.invoke(ORDER)
        assert (state["receipt"], state["turns"]) == (1, 1)


# Mistakes.


@pytest.mark.parametrize("config", [{}, {"configurable": {}}])
def test_a_node_without_a_key_needs_a_checkpointer(bank, ledger, config):
    with pytest.raises(onceward.SessionRequired, match="checkpointer"):
        graph_of(once_node(ledger, operation="charge")(paying(bank))).invoke(ORDER, config)
    assert bank.charged == []


@pytest.mark.parametrize("key", ["invoice", []])
def test_a_key_that_names_nothing_is_refused(ledger, key):
    with pytest.raises(onceward.InvalidCall, match="list of fields"):
        once_node(ledger, operation="charge", key=key)


def test_a_field_that_the_state_does_not_have_is_refused(bank, ledger):
    node = once_node(ledger, operation="charge", key=["order"])(paying(bank))
    with pytest.raises(onceward.InvalidCall, match="no field `order`"):
        graph_of(node).invoke(ORDER)
    assert bank.charged == []


# A process that is killed.

PROGRAM = """
    import os, pathlib, signal, sys
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph
    from typing import TypedDict
    import onceward
    from onceward.langchain import once_node

    folder, step, dies = pathlib.Path(sys.argv[1]), *sys.argv[2:]
    State = TypedDict("State", {"invoice": int, "receipt": str})
    ledger = onceward.Ledger(folder / "ledger.db")

    @once_node(ledger, operation="charge")
    def charge(state: State) -> dict:
        with open(folder / "charges", "a") as charges:
            charges.write("charge\\n")
        if dies == "inside":
            os.kill(os.getpid(), signal.SIGKILL)
        return {"receipt": "r-17"}

    def node(state: State, config: RunnableConfig) -> dict:
        update = charge(state, config=config)
        if dies == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return update

    with SqliteSaver.from_conn_string(str(folder / "checkpoints.db")) as saver:
        graph = StateGraph(State).add_node("charge", node).add_edge(START, "charge").add_edge("charge", END)
        config = {"configurable": {"thread_id": "1"}}
        given = {"invoice": 42} if step == "start" else None
        try:
            print(graph.compile(checkpointer=saver).invoke(given, config, durability="sync")["receipt"])
        except onceward.InDoubt:
            print("in doubt")
"""


@pytest.mark.parametrize(("dies", "said"), [("inside", "in doubt"), ("after", "r-17")])
def test_a_killed_graph_that_resumes_from_its_checkpoint_acts_once(tmp_path, dies, said):
    def process(*words):
        command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(tmp_path), *words]
        return subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=SECONDS, check=False)

    assert process("start", dies).returncode == -signal.SIGKILL
    resumed = process("resume", "never")
    assert (resumed.stdout.strip(), resumed.returncode) == (said, 0), resumed.stderr
    assert (tmp_path / "charges").read_text() == "charge\n"


def test_methods_nodes_that_take_anything_and_async_objects_can_be_nodes(ledger):
    ran = []

    class Shop:
        @once_node(ledger, operation="method")
        def ship(self, state: State) -> dict:
            ran.append("method")
            return {"receipt": 1}

    @once_node(ledger, operation="any")
    def any_arguments(state: State, **others) -> dict:
        ran.append("any")
        return {"receipt": 1}

    class Node:
        async def __call__(self, state: State) -> dict:
            ran.append("object")
            return {"receipt": 1}

    for node in (Shop().ship, any_arguments):
        assert graph_of(node, InMemorySaver()).invoke(ORDER, THREAD, durability="sync")["receipt"] == 1
    node = once_node(ledger, operation="object")(Node())
    assert asyncio.run(graph_of(node, InMemorySaver()).ainvoke(ORDER, THREAD, durability="sync"))["receipt"] == 1
    assert ran == ["method", "any", "object"] and {one.status for one in ledger.list()} == {"done"}


@pytest.mark.parametrize("found", [None, "", 7])
def test_a_key_function_that_finds_no_key_is_refused(bank, ledger, found):
    """It would be one intent for every state."""
    node = once_node(ledger, operation="charge", key=lambda state: found)(paying(bank))
    with pytest.raises(onceward.InvalidCall, match="key= returned"):
        graph_of(node).invoke(ORDER)
    assert bank.charged == []


@pytest.mark.parametrize("durability", [None, "async", "exit"])
def test_a_node_without_a_key_needs_checkpoints_that_are_there_before_it_acts(bank, ledger, durability):
    """With LangGraph's default, a crash can lose the checkpoint by which the node is known."""
    graph = graph_of(once_node(ledger, operation="charge")(paying(bank)), InMemorySaver())
    with pytest.raises(onceward.InvalidCall, match='must run with durability="sync"'):
        graph.invoke(ORDER, THREAD, durability=durability)
    assert bank.charged == []
