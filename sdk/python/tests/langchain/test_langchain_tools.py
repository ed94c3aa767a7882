"""Guarded tools of LangChain agents and of ToolNode: which calls are the same, and what the model is told."""

import asyncio
import datetime
from typing import Annotated, Any

import pytest
from conftest import CHARGE, RULES, THREAD, agent, answers, call, graph_of, run, turn
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, Tool, ToolException, tool
from langgraph.prebuilt import ToolNode

import onceward
from onceward.langchain import OnceMiddleware

RECEIPT = '{"receipt": 1}'
CallId = Annotated[str, InjectedToolCallId]


def once(bank, guard, *turns, is_async=False, tools=None, **options):
    return run(agent(turns, tools or [tool("charge")(bank.charge)], guard, **options), is_async=is_async)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_repeat_gets_the_stored_result_under_its_own_call_id(bank, ledger, is_async):
    guard = OnceMiddleware(ledger, RULES)
    told = once(bank, guard, turn(call(id="a")), turn(call(id="b")), is_async=is_async)
    assert len(bank.charged) == 1
    assert [(one.content, one.tool_call_id, one.status, one.name) for one in told] == [
        (RECEIPT, "a", "success", "charge"),
        (RECEIPT, "b", "success", "charge"),
    ]
    assert len({one.id for one in told}) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_node_replays_too(bank, ledger, is_async):
    guard = OnceMiddleware(ledger, RULES)
    hooks = {"wrap_tool_call": guard.wrap_tool_call, "awrap_tool_call": guard.awrap_tool_call}
    graph = graph_of(ToolNode([tool("charge")(bank.charge)], **hooks))
    for name in ("a", "b"):
        state = {"messages": [turn(call(id=name))]}
        state = asyncio.run(graph.ainvoke(state, THREAD)) if is_async else graph.invoke(state, THREAD)
        assert [(one.content, one.tool_call_id) for one in answers(state)] == [(RECEIPT, name)]
    assert len(bank.charged) == 1


def test_another_invoice_is_another_intent(bank, ledger):
    told = once(bank, OnceMiddleware(ledger, RULES), turn(call(id="a")), turn(call(id="b", invoice=43)))
    assert [one.content for one in told] == [RECEIPT, '{"receipt": 2}']


def test_arguments_count_as_the_tool_gets_them(bank, ledger):
    guard = OnceMiddleware(ledger, {"charge": {"key": ["customer", "invoice", "memo"]}})
    given = {name: value for name, value in CHARGE.items() if name != "memo"}
    first = {"name": "charge", "args": given | {"invoice": "42"}, "id": "a"}
    second = {"name": "charge", "args": given | {"memo": ""}, "id": "b"}
    once(bank, guard, turn(first), turn(second))
    assert len(bank.charged) == 1


def test_tools_without_a_rule_pass_untouched(bank, ledger):
    asked = []

    @tool
    def look_up(invoice: int) -> str:
        """Looks up an invoice."""
        asked.append(invoice)
        return "unpaid"

    guard = OnceMiddleware(ledger, RULES)
    turns = [turn(call("look_up", id=name, invoice=42)) for name in "ab"]
    once(bank, guard, *turns, tools=[look_up, tool("charge")(bank.charge)])
    assert asked == [42, 42]
    assert ledger.list() == []


def test_the_downstream_key_is_there(bank, ledger):
    once(bank, OnceMiddleware(ledger, RULES), turn(call()))
    assert bank.keys[0] is not None


# Sessions.


def test_without_a_key_all_arguments_count_in_one_thread(bank, ledger):
    guard = OnceMiddleware(ledger, {"charge": {}})
    for thread in ("1", "2", "1"):
        made = agent([turn(call())], [tool("charge")(bank.charge)], guard)
        run(made, {"configurable": {"thread_id": thread}})
    assert len(bank.charged) == 2


def test_a_key_names_the_intent_in_every_thread(bank, ledger):
    guard = OnceMiddleware(ledger, RULES)
    for thread in ("1", "2"):
        run(agent([turn(call())], [tool("charge")(bank.charge)], guard), {"configurable": {"thread_id": thread}})
    assert len(bank.charged) == 1


@pytest.mark.parametrize("key", [["invoice"], lambda invoice, **_: f"invoice-{invoice}"])
def test_a_key_can_be_bound_to_the_session(bank, ledger, key):
    guard = OnceMiddleware(ledger, {"charge": {"key": key, "session": True}})
    for thread in ("1", "2", "1"):
        run(agent([turn(call())], [tool("charge")(bank.charge)], guard), {"configurable": {"thread_id": thread}})
    assert len(bank.charged) == 2


def test_a_key_of_ones_own_in_a_session_still_has_arguments_that_must_agree(bank, ledger):
    rule = {"key": lambda invoice, **_: f"invoice-{invoice}", "match": ["amount"], "session": True}
    told = once(bank, OnceMiddleware(ledger, {"charge": rule}), turn(call()), turn(call(id="b", amount=1)))
    assert told[1].content == onceward.Mismatch(operation="charge").for_model()


def test_a_key_of_ones_own_is_the_key_in_the_ledger(bank, ledger):
    guard = OnceMiddleware(ledger, {"charge": {"key": lambda invoice, **_: f"invoice-{invoice}", "match": ["amount"]}})
    told = once(bank, guard, turn(call()), turn(call(id="b", memo="again")), turn(call(id="c", amount=1)))
    assert [one.status for one in told] == ["success", "success", "error"]
    assert len(bank.charged) == 1
    assert ledger.get("charge", "invoice-42").status == "done"


def test_a_session_given_outright_outranks_the_thread(bank, ledger):
    guard = OnceMiddleware(ledger, {"charge": {}}, session="order-17")
    for thread in ("1", "2"):
        run(agent([turn(call())], [tool("charge")(bank.charge)], guard), {"configurable": {"thread_id": thread}})
    assert len(bank.charged) == 1


def test_the_session_of_the_caller_outranks_the_thread(bank, ledger):
    guard = OnceMiddleware(ledger, {"charge": {}})
    for thread in ("1", "2"):
        with onceward.session("order-17"):
            run(agent([turn(call())], [tool("charge")(bank.charge)], guard), {"configurable": {"thread_id": thread}})
    assert len(bank.charged) == 1


def test_a_run_without_a_session_is_a_mistake_of_the_program(bank, ledger):
    with pytest.raises(onceward.SessionRequired, match="thread_id"):
        run(agent([turn(call())], [tool("charge")(bank.charge)], OnceMiddleware(ledger, {"charge": {}})), {})
    assert bank.charged == []


def test_tenants_do_not_share_intents(bank, ledger):
    rule = RULES["charge"] | {"tenant": lambda request: request.runtime.config["configurable"]["user"]}
    for user in ("ada", "bob", "ada"):
        config = {"configurable": {"thread_id": "1", "user": user}}
        run(agent([turn(call())], [tool("charge")(bank.charge)], OnceMiddleware(ledger, {"charge": rule})), config)
    assert len(bank.charged) == 2


def test_an_empty_tenant_is_not_the_default_tenant(bank, ledger):
    guard = OnceMiddleware(ledger, {"charge": RULES["charge"] | {"tenant": lambda request: ""}})
    with pytest.raises(onceward.InvalidCall, match="not empty"):
        once(bank, guard, turn(call()))
    for rule in ({"tenant": ""}, {"session": ""}):
        with pytest.raises(onceward.InvalidCall, match="not empty"):
            OnceMiddleware(ledger, {"charge": rule})
    assert bank.charged == []


# What the model is told.


@pytest.mark.parametrize("is_async", [False, True])
def test_an_intent_in_doubt_is_told_to_the_model(bank, ledger, is_async):
    bank.fails = [TimeoutError("no answer")]
    guard = OnceMiddleware(ledger, RULES)
    with pytest.raises(TimeoutError):
        once(bank, guard, turn(call()), is_async=is_async)
    (told,) = once(bank, guard, turn(call(id="b")), is_async=is_async)
    assert (told.status, told.tool_call_id) == ("error", "b")
    assert told.content == onceward.InDoubt(operation="charge").for_model()
    assert len(bank.charged) == 1


def test_the_model_reads_the_name_of_the_tool_and_not_that_of_the_operation(bank, ledger):
    guard = OnceMiddleware(ledger, {"charge": RULES["charge"] | {"operation": "billing.charge.v2"}})
    told = once(bank, guard, turn(call()), turn(call(id="b", amount=1)))[1]
    assert told.content == onceward.Mismatch(operation="charge").for_model()
    assert [one.operation for one in ledger.list()] == ["billing.charge.v2"]


def test_errors_can_be_raised_instead(bank, ledger):
    guard = OnceMiddleware(ledger, RULES, errors="raise")
    with pytest.raises(onceward.Mismatch):
        once(bank, guard, turn(call()), turn(call(id="b", amount=1)))
    assert len(bank.charged) == 1


@pytest.mark.parametrize(
    ("settings", "text"), [({}, "a person has to check it"), ({"in_doubt": "retry"}, "same call again")]
)
def test_a_failure_that_the_framework_hides_does_not_become_try_again(bank, ledger, settings, text):
    bank.fails = [TimeoutError("no answer")]
    guard = OnceMiddleware(ledger, {"charge": RULES["charge"] | settings})
    node = ToolNode([tool("charge")(bank.charge)], handle_tool_errors=True, wrap_tool_call=guard.wrap_tool_call)
    (told,) = answers(graph_of(node).invoke({"messages": [turn(call())]}, THREAD))
    assert text in told.content and "fix your mistakes" not in told.content
    assert (told.status, told.tool_call_id) == ("error", "call-1")


def test_a_failure_that_did_nothing_is_told_as_the_framework_tells_it(bank, ledger):
    bank.fails = [onceward.NotSent("connection refused")]
    guard = OnceMiddleware(ledger, RULES)
    node = ToolNode([tool("charge")(bank.charge)], handle_tool_errors=True, wrap_tool_call=guard.wrap_tool_call)
    graph = graph_of(node)
    (told,) = answers(graph.invoke({"messages": [turn(call())]}, THREAD))
    assert "connection refused" in told.content
    (told,) = answers(graph.invoke({"messages": [turn(call())]}, THREAD))
    assert told.content == '{"receipt": 2}'


def test_a_call_with_wrong_arguments_leaves_no_trace(bank, ledger):
    told = once(bank, OnceMiddleware(ledger, RULES), turn(call(amount="much")), turn(call(id="b")))
    assert [one.status for one in told] == ["error", "success"]
    assert len(bank.charged) == 1


def test_a_tool_that_reports_its_failure_has_failed(ledger):
    ran = []

    @tool
    def charge(customer: str, invoice: int, amount: int, tool_call_id: CallId) -> Any:
        """Charges a customer."""
        ran.append(invoice)
        return ToolMessage("the card was declined", tool_call_id=tool_call_id, status="error")

    rules = {"charge": {"key": ["invoice"]}}
    told = once(None, OnceMiddleware(ledger, rules), turn(call()), turn(call(id="b")), tools=[charge])
    assert [(one.content, one.tool_call_id) for one in told] == [
        ("the card was declined", "call-1"),
        ("the card was declined", "b"),
    ]
    assert len(ran) == 2
    rules = {"charge": {"key": ["invoice"], "tier": "payment", "operation": "payment"}}
    told = once(None, OnceMiddleware(ledger, rules), turn(call()), turn(call(id="b")), tools=[charge])
    assert "unknown whether charge took effect" in told[0].content
    assert told[1].content == onceward.InDoubt(operation="charge").for_model()
    assert len(ran) == 3


def test_a_kept_failure_is_told_again(ledger):
    ran = []

    @tool
    def charge(customer: str, invoice: int, amount: int, memo: str) -> str:
        """Charges a customer."""
        ran.append(invoice)
        raise ToolException("the account is closed")

    charge.handle_tool_error = True
    guard = OnceMiddleware(ledger, {"charge": {"key": ["invoice"], "on_error": {ToolException: "keep"}}})
    told = once(None, guard, turn(call()), turn(call(id="b")), tools=[charge])
    assert [one.content for one in told] == ["the account is closed", onceward.Failed(operation="charge").for_model()]
    assert len(ran) == 1


def test_a_tool_of_one_text_can_be_guarded(bank, ledger):
    sent = []
    mail = Tool(name="mail", description="Sends.", func=lambda text: sent.append(text) or f"sent {text}")
    for rule in ({}, {"key": ["tool_input"], "operation": "named"}):
        sent.clear()
        turns = [turn(call("mail", id=str(n), __arg1=text)) for n, text in enumerate(["a", "b", "a"])]
        told = run(agent(turns, [mail], OnceMiddleware(ledger, {"mail": rule})))
        assert [one.content for one in told] == ["sent a", "sent b", "sent a"] and sent == ["a", "b"]


def test_an_async_tool_in_a_sync_run_leaves_no_doubt(bank, ledger):
    @tool
    async def pay(invoice: int) -> str:
        """Pays."""
        bank.charged.append(invoice)
        return "paid"

    guard = OnceMiddleware(ledger, {"pay": {"key": ["invoice"], "tier": "payment"}})
    with pytest.raises(NotImplementedError):
        run(agent([turn(call("pay", invoice=1))], [pay], guard))
    assert ledger.list() == []
    (told,) = run(agent([turn(call("pay", invoice=1))], [pay], guard), is_async=True)
    assert told.content == "paid" and bank.charged == [1]


def test_a_thread_whose_id_is_zero_is_a_session(bank, ledger):
    guard = OnceMiddleware(ledger, {"charge": {}})
    for _ in range(2):
        run(agent([turn(call())], [tool("charge")(bank.charge)], guard), {"configurable": {"thread_id": 0}})
    assert len(bank.charged) == 1


def test_an_argument_that_cannot_be_part_of_a_key_is_told(bank, ledger):
    @tool
    def book(at: datetime.datetime) -> str:
        """Books."""
        bank.charged.append(at)
        return "booked"

    turns = [turn(call("book", at="2026-01-01T10:00:00"))]
    (told,) = run(agent(turns, [book], OnceMiddleware(ledger, {"book": {"key": ["at"]}})))
    assert "its arguments cannot be used. Nothing happened" in told.content and bank.charged == []


def test_a_key_function_that_finds_no_key_is_refused_in_a_session_too(bank, ledger):
    for session in (False, True):
        rule = {"key": lambda **_: "", "session": session}
        with pytest.raises(onceward.InvalidCall, match="empty text"):
            once(bank, OnceMiddleware(ledger, {"charge": rule}), turn(call()))
    assert bank.charged == []


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("tier", ["payment", None])
def test_an_error_of_a_guarded_call_inside_the_tool_does_not_say_that_nothing_happened(bank, ledger, tier, is_async):
    @ledger.once(operation="log", key=["invoice"])
    def log(invoice):
        with onceward.Ledger("memory:") as closed:
            pass
        closed.call("log", key="k").run(print)

    @tool
    def charge(customer: str, invoice: int, amount: int, memo: str = "") -> str:
        """Charges a customer."""
        bank.charged.append(invoice)
        log(invoice)

    guard = OnceMiddleware(ledger, {"charge": RULES["charge"] | {"tier": tier}})
    (told,) = once(bank, guard, turn(call()), tools=[charge], is_async=is_async)
    assert told.status == "error" and ("Nothing happened" in told.content) == (tier is None)
    assert ("unknown whether charge took effect" in told.content) == (tier is not None)
