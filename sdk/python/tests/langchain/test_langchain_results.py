"""Guarded tools of LangChain agents: their results, and the rest of the framework."""

import dataclasses
import logging
from decimal import Decimal
from typing import Annotated, Any

import pytest
from conftest import CHARGE, RULES, THREAD, agent, answers, ask, call, run, turn
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt

import onceward
from onceward.langchain import OnceMiddleware

RECEIPT = '{"receipt": 1}'
CallId = Annotated[str, InjectedToolCallId]
RESULTS = ["paid", "", None, 7, [1, "x"], {"ü": [True]}, Decimal("1.50"), ("a", 1), {"due": Decimal(2)}]
PROBES = [({"receipt": 5}, '{"receipt": 5}', 1), (onceward.NOT_FOUND, '{"receipt": 2}', 2)]


def once(bank, guard, *turns, is_async=False, tools=None, **options):
    return run(agent(turns, tools or [tool("charge")(bank.charge)], guard, **options), is_async=is_async)


# Results.


def test_content_and_artifact_come_back_as_they_were(ledger):
    ran = []

    @tool(response_format="content_and_artifact")
    def charge(customer: str, invoice: int, amount: int, memo: str) -> Any:
        """Charges a customer."""
        ran.append(invoice)
        return [{"type": "text", "text": "paid"}], {"receipt": {"number": 17, "lines": [1, None, "x"]}}

    first, again = once(None, OnceMiddleware(ledger, RULES), turn(call()), turn(call(id="b")), tools=[charge])
    assert again.content == first.content == [{"type": "text", "text": "paid"}]
    assert again.artifact == first.artifact == {"receipt": {"number": 17, "lines": [1, None, "x"]}}
    assert (len(ran), again.tool_call_id) == (1, "b")


def test_content_that_is_not_json_is_kept_as_its_text_beside_an_artifact(ledger):
    @tool(response_format="content_and_artifact")
    def charge(customer: str, invoice: int, amount: int) -> Any:
        """Charges a customer."""
        return Decimal("19.99"), [1]

    told = once(None, OnceMiddleware(ledger, RULES), turn(call()), turn(call(id="b")), tools=[charge])
    assert [(one.content, one.artifact) for one in told] == [("19.99", [1])] * 2


def test_the_model_is_told_about_a_mismatch_of_a_tool_with_an_artifact(ledger):
    @tool(response_format="content_and_artifact")
    def charge(customer: str, invoice: int, amount: int, memo: str) -> Any:
        """Charges a customer."""
        return "paid", None

    turns = [turn(call()), turn(call(id="b", amount=1))]
    told = once(None, OnceMiddleware(ledger, RULES), *turns, tools=[charge])
    assert [one.status for one in told] == ["success", "error"]


@pytest.mark.parametrize("result", RESULTS)
def test_every_repeat_reads_the_same(ledger, result):
    @tool
    def charge(customer: str, invoice: int, amount: int, memo: str) -> Any:
        """Charges a customer."""
        return result

    plain = run(agent([turn(call())], [charge]))
    told = once(None, OnceMiddleware(ledger, RULES), turn(call()), turn(call(id="b")), tools=[charge])
    assert [one.content for one in told] == [plain[0].content] * 2
    assert ledger.stats()["replayed"] == 1


def test_a_message_comes_back_without_its_id(ledger):
    @tool
    def charge(customer: str, invoice: int, amount: int, tool_call_id: CallId) -> Any:
        """Charges a customer."""
        return ToolMessage("paid", tool_call_id=tool_call_id, id="receipt", artifact=[1], additional_kwargs={"a": 1})

    told = once(None, OnceMiddleware(ledger, RULES), turn(call()), turn(call(id="b")), tools=[charge])
    # With the same id, the second message would have replaced the first.
    assert [one.tool_call_id for one in told] == ["call-1", "b"]
    assert [(one.content, one.artifact, one.additional_kwargs) for one in told] == [("paid", [1], {"a": 1})] * 2


def test_a_result_that_cannot_be_kept_is_not_run_again(ledger):
    ran = []

    @tool(response_format="content_and_artifact")
    def charge(customer: str, invoice: int, amount: int, memo: str) -> Any:
        """Charges a customer."""
        ran.append(invoice)
        return "paid", object()

    told = once(None, OnceMiddleware(ledger, RULES), turn(call()), turn(call(id="b")), tools=[charge])
    assert (told[0].content, told[1].content) == ("paid", onceward.OutcomeNotKept(operation="charge").for_model())
    assert len(ran) == 1


def test_what_a_person_settles_is_what_the_model_reads(bank, ledger):
    bank.fails = [TimeoutError("no answer")]
    guard = OnceMiddleware(ledger, RULES)
    with pytest.raises(TimeoutError):
        once(bank, guard, turn(call()))
    (doubt,) = ledger.list(state="in_doubt")
    ledger.resolve("charge", doubt.key, happened=True, result={"receipt": 99})
    assert [one.content for one in once(bank, guard, turn(call(id="b")))] == ['{"receipt": 99}']
    assert len(bank.charged) == 1


@pytest.mark.parametrize(("found", "expected", "charges"), PROBES)
def test_a_probe_settles_a_doubt(bank, ledger, found, expected, charges):
    asked = []

    def probe(**arguments):
        asked.append(arguments)
        return found

    bank.fails = [TimeoutError("no answer")]
    guard = OnceMiddleware(ledger, {"charge": RULES["charge"] | {"probe": probe}})
    with pytest.raises(TimeoutError):
        once(bank, guard, turn(call()))
    assert [one.content for one in once(bank, guard, turn(call()))] == [expected]
    assert (asked, len(bank.charged)) == ([CHARGE], charges)


# Together with the rest of the framework.


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_retries_of_other_middleware_do_not_repeat_the_effect(bank, ledger, is_first, is_async):
    bank.fails = [ConnectionError("connection reset")]
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    guard = OnceMiddleware(ledger, RULES)
    order = [guard, retry] if is_first else [retry, guard]
    (told,) = run(agent([turn(call())], [tool("charge")(bank.charge)], *order), is_async=is_async)
    assert len(bank.charged) == 1
    assert told.status == "error" and "unknown whether" in told.content and "try again" not in told.content


def test_injected_arguments_are_injected_and_are_not_part_of_the_intent(ledger):
    seen = []

    @tool
    async def charge(customer: str, invoice: int, amount: int, memo: str, runtime: ToolRuntime) -> str:
        """Charges a customer."""
        seen.append((len(runtime.state["messages"]), runtime.tool_call_id))
        return "paid"

    guard = OnceMiddleware(ledger, {"charge": {}})
    once(None, guard, turn(call()), turn(call(id="b")), tools=[charge], is_async=True)
    assert seen == [(2, "call-1")]


def test_a_tool_that_is_a_class_is_guarded(ledger):
    ran = []

    class Charge(BaseTool):
        name: str = "charge"
        description: str = "Charges a customer."

        def _run(self, customer: str, invoice: int, amount: int, memo: str) -> str:
            ran.append(invoice)
            return "paid"

    for is_async in (False, True):
        turns = [turn(call()), turn(call(id="b"))]
        told = once(None, OnceMiddleware(ledger, RULES), *turns, tools=[Charge()], is_async=is_async)
        assert [one.content for one in told] == ["paid", "paid"]
    assert len(ran) == 1


def test_a_tool_with_a_json_schema_is_guarded(ledger):
    """As the tools of MCP servers are."""
    ran = []

    async def charge(**arguments):
        ran.append(arguments)
        return "paid", None

    text = {"type": "string"}
    properties = {"customer": text, "invoice": {"type": "integer"}, "memo": text, "currency": text | {"default": "EUR"}}
    schema = {"type": "object", "properties": properties}
    form = "content_and_artifact"
    made = StructuredTool(name="charge", description="", args_schema=schema, coroutine=charge, response_format=form)
    # An argument that is left out has its default, or is null.
    guard = OnceMiddleware(ledger, {"charge": {"key": ["customer", "invoice", "memo", "currency"]}})
    given = [{"customer": "c7", "invoice": 42}, {"customer": "c7", "invoice": 42, "currency": "EUR"}]
    turns = [turn({"name": "charge", "args": one, "id": str(number)}) for number, one in enumerate(given)]
    told = run(agent(turns, [made], guard), is_async=True)
    assert [one.content for one in told] == ["paid", "paid"]
    assert ran == [{"customer": "c7", "invoice": 42}]


def test_an_interrupt_before_the_effect_asks_the_person_and_then_acts_once(bank, ledger):
    @tool
    def charge(customer: str, invoice: int, amount: int, memo: str) -> str:
        """Charges a customer."""
        if interrupt("May I?") != "yes":
            return "refused"
        return str(bank.charge(customer, invoice, amount))

    guard = OnceMiddleware(ledger, {"charge": RULES["charge"] | {"on_error": {Exception: "doubt"}}})
    made = agent([turn(call()), turn(call(id="b"))], [charge], guard, checkpointer=InMemorySaver())
    state = made.invoke(*ask())
    assert [one.value for one in state["__interrupt__"]] == ["May I?"]
    told = answers(made.invoke(Command(resume="yes"), THREAD))
    assert [one.content for one in told] == ["{'receipt': 1}"] * 2
    assert len(bank.charged) == 1


# Mistakes at set-up.


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"chagre": {"key": ["invoice"]}}, "unknown tools: chagre; did you mean charge"),
        ({"charge": {"key": ["invioce"]}}, "no argument `invioce`; did you mean `invoice`"),
        ({"charge": {"key": ["invoice"], "match": ["price"]}}, "no argument `price`"),
        ({"charge": {"key": "invoice"}}, "list of arguments"),
        ({"charge": {"key": []}}, "list of arguments"),
        ({"charge": {"kay": ["invoice"]}}, "unknown settings: kay"),
        ({"charge": {"key": ["invoice"], "in_doubt": "probe"}}, "needs probe"),
        ({"move": {"key": ["to"]}}, "returns a Command"),
    ],
)
def test_wrong_rules_are_refused_at_set_up(bank, ledger, rules, text):
    @tool
    def move(to: str) -> Command[Any] | str:
        """Moves on."""
        return Command(goto=to)

    with pytest.raises(onceward.InvalidCall, match=text):
        OnceMiddleware(ledger, rules, tools=[tool("charge")(bank.charge), move])


def test_a_misspelled_rule_is_reported_at_the_first_call(bank, ledger, caplog):
    with caplog.at_level(logging.WARNING, "onceward"):
        once(bank, OnceMiddleware(ledger, {"chagre": {"key": ["invoice"]}}), turn(call()))
    assert "unknown tools: chagre; did you mean charge?" in caplog.text


def test_a_command_that_no_annotation_shows_is_not_run_again(ledger):
    ran = []

    @tool
    def charge(customer: str, invoice: int, amount: int, tool_call_id: CallId) -> Any:
        """Charges a customer."""
        ran.append(invoice)
        return Command(update={"messages": [ToolMessage("paid", tool_call_id=tool_call_id)]})

    told = once(None, OnceMiddleware(ledger, RULES), turn(call()), turn(call(id="b")), tools=[charge])
    assert [one.content for one in told] == ["paid", onceward.OutcomeNotKept(operation="charge").for_model()]
    assert len(ran) == 1


def test_a_tool_that_other_middleware_adds_later_does_not_run_unguarded(bank, ledger):
    class Adds(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            return handler(dataclasses.replace(request, tool=tool("charge")(bank.charge)))

    guard = OnceMiddleware(ledger, RULES)
    (told,) = run(agent([turn(call())], [], guard, Adds()))
    assert (told.status, bank.charged) == ("error", [])
    (told,) = run(agent([turn(call())], [], Adds(), OnceMiddleware(ledger, RULES)))
    assert (told.content, len(bank.charged)) == (RECEIPT, 1)


def test_a_model_that_says_nothing_changes_nothing(bank, ledger):
    assert run(agent([AIMessage("hello")], [tool("charge")(bank.charge)], OnceMiddleware(ledger, RULES))) == []
