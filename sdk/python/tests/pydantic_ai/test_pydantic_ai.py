"""Guarded tools of pydantic-ai, in runs of a real agent with a scripted model."""

import asyncio
import importlib
import pathlib
import re
import subprocess
import sys
import threading
import time
import types
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

import pydantic_ai
import pytest
from pydantic import AliasChoices, BaseModel, Field
from pydantic_ai import Agent, FunctionToolset, Tool
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import BinaryContent, ModelResponse, TextPart, ToolCallPart, ToolReturn
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from typing_extensions import NotRequired, TypedDict

import onceward
from onceward.pydantic_ai import BadArguments, OnceToolset, by_conversation, by_run, once

ROOT = pathlib.Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "python" / "pydantic_ai_agent.py"
GUIDE = ROOT / "docs" / "guides" / "pydantic-ai.md"
ORDER_FULL = {"id": "a", "currency": "EUR", "note": ""}
CALL = {"invoice": "inv-7", "cents": 1999, "memo": "thanks"}
KEYED = {"charge": once(key=["invoice"])}
PAYMENT = {"charge": once(key=["invoice"], match=["cents"], tier="payment")}


@dataclass
class Bank:
    """A provider that counts what it charges."""

    charged: list = field(default_factory=list)
    keys: list = field(default_factory=list)
    fails: Exception | None = None
    returns: object = None
    delay: float = 0.0

    async def charge(self, invoice: str, cents: int, memo: str) -> object:
        self.charged.append((invoice, cents))
        self.keys.append(onceward.claim().downstream_key)
        await asyncio.sleep(self.delay)
        if self.fails:
            raise self.fails
        return self.returns or f"receipt {len(self.charged)}"


@pytest.fixture
def ledger():
    with onceward.Ledger("memory:") as opened:
        yield opened


@pytest.fixture
def bank():
    return Bank()


def scripted(*turns):
    """A model that makes these calls, a list for each response. Every call has a new id."""

    def model(messages, _info):
        turn = sum(message.kind == "response" for message in messages)
        if turn >= len(turns):
            return ModelResponse(parts=[TextPart("Done.")])
        return ModelResponse(parts=[ToolCallPart("charge", args) for args in turns[turn]])

    return FunctionModel(model)


def agent_of(ledger, tool, *turns, guarded=KEYED, agent=None, toolset=None, **options):
    inner = FunctionToolset([tool], **(toolset or {}))
    return Agent(scripted(*turns), toolsets=[OnceToolset(inner, ledger, guarded, **options)], **(agent or {}))


def told(result):
    """The results of the calls, in order."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return [(part.outcome, part.content) for part in parts if part.part_kind == "tool-return"]


def test_a_model_that_repeats_itself_charges_once(ledger, bank):
    reworded = CALL | {"memo": "many thanks"}
    result = agent_of(ledger, bank.charge, [CALL], [CALL], [reworded]).run_sync("Charge.")
    assert told(result) == [("success", "receipt 1")] * 3
    assert len(bank.charged) == 1


def test_without_the_guard_that_model_charges_three_times(ledger, bank):
    def charge(invoice: str, cents: int, memo: str) -> str:
        bank.charged.append(invoice)
        return "receipt"

    agent_of(ledger, charge, [CALL], [CALL], [CALL], guarded={}).run_sync("Charge.")
    assert len(bank.charged) == 3


def test_equal_calls_in_one_response_charge_once(ledger, bank):
    bank.delay = 0.2
    result = agent_of(ledger, bank.charge, [CALL, CALL, CALL]).run_sync("Charge.")
    assert told(result) == [("success", "receipt 1")] * 3
    assert len(bank.charged) == 1


def test_two_runs_two_milliseconds_apart_charge_once(ledger, bank):
    bank.delay = 0.2
    agent = agent_of(ledger, bank.charge, [CALL])

    async def late():
        await asyncio.sleep(0.002)
        return await agent.run("Charge.")

    async def main():
        return await asyncio.gather(agent.run("Charge."), late())

    first, second = asyncio.run(main())
    assert told(first) == told(second) == [("success", "receipt 1")]
    assert len(bank.charged) == 1


def test_a_plain_function_runs_once_and_has_its_claim(ledger):
    keys = []

    def charge(invoice: str, cents: int, memo: str) -> str:
        assert threading.current_thread() is not threading.main_thread()
        keys.append(onceward.claim().downstream_key)
        return "receipt"

    agent_of(ledger, charge, [CALL], [CALL]).run_sync("Charge.")
    assert len(keys) == 1


def test_another_amount_is_a_mismatch(ledger, bank):
    result = agent_of(ledger, bank.charge, [CALL], [CALL | {"cents": 1}], guarded=PAYMENT).run_sync("Charge.")
    (_, first), (outcome, text) = told(result)
    assert (first, outcome) == ("receipt 1", "failed") and "with other details" in text
    assert len(bank.charged) == 1


def test_a_key_can_be_a_function_and_still_has_fields_that_must_agree(ledger, bank):
    guarded = {"charge": once(key=lambda args: args["invoice"].upper(), match=["cents"])}
    turns = [CALL], [CALL | {"invoice": "INV-7", "memo": "?"}], [CALL | {"cents": 1}]
    result = agent_of(ledger, bank.charge, *turns, guarded=guarded).run_sync("Charge.")
    assert [outcome for outcome, _ in told(result)] == ["success", "success", "failed"]
    assert len(bank.charged) == 1


def test_a_call_that_takes_longer_than_the_tool_may_is_a_doubt(ledger, bank):
    bank.delay = 30
    result = agent_of(ledger, bank.charge, [CALL], [CALL], toolset={"timeout": 0.05}).run_sync("Charge.")
    (first, text), (second, repeated) = told(result)
    assert (first, second) == ("failed", "failed")
    assert "Timed out" in text and "unknown whether charge took effect" in text
    assert "a person has to check it" in repeated
    assert len(bank.charged) == 1


def test_a_run_that_is_cancelled_leaves_a_doubt(ledger, bank):
    bank.delay = 30
    agent = agent_of(ledger, bank.charge, [CALL])

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(agent.run("Charge."), 0.3)
        return await agent.run("Charge.")

    [(outcome, text)] = told(asyncio.run(main()))
    assert outcome == "failed" and "a person has to check it" in text
    assert len(bank.charged) == 1


def test_a_run_past_its_deadline_leaves_a_doubt(ledger, bank):
    bank.delay = 30
    agent = agent_of(ledger, bank.charge, [CALL])
    with pytest.raises(pydantic_ai.exceptions.RunTimedOut):
        agent.run_sync("Charge.", timeout=0.3)
    until_in_doubt(ledger)
    [(outcome, text)] = told(agent.run_sync("Charge."))
    assert outcome == "failed" and "a person has to check it" in text
    assert len(bank.charged) == 1


def until_in_doubt(ledger):
    for _ in range(100):
        if ledger.list(state="in_doubt"):
            return
        time.sleep(0.02)
    raise AssertionError(ledger.list())


def test_a_model_retry_without_a_tier_is_released(ledger, bank):
    bank.fails = ModelRetry("no such invoice")
    agent = agent_of(ledger, bank.charge, [CALL])
    [(outcome, _)] = told(agent.run_sync("Charge."))
    bank.fails = None
    assert outcome == "retried"
    assert told(agent.run_sync("Charge.")) == [("success", "receipt 2")]


def test_a_model_retry_with_a_tier_is_a_doubt_and_does_not_ask_for_a_retry(ledger, bank):
    bank.fails = ModelRetry("no such invoice")
    result = agent_of(ledger, bank.charge, [CALL], [CALL], guarded=PAYMENT).run_sync("Charge.")
    (first, text), (second, _) = told(result)
    assert (first, second) == ("failed", "failed") and "no such invoice" in text and "unknown whether" in text
    assert len(bank.charged) == 1


def payment(**settings):
    return {"charge": once(key=["invoice"], tier="payment", **settings)}


def caused(cause):
    error = ModelRetry("the bank was not reached")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "guarded"),
    [
        (BadArguments("no such invoice"), PAYMENT),
        (caused(onceward.NotSent()), PAYMENT),
        (ModelRetry("no such invoice"), payment(on_error={ModelRetry: "retry"})),
        (ModelRetry("no such invoice"), payment(marks_sent=True)),
    ],
    ids=["BadArguments", "from NotSent", "on_error", "before sent"],
)
def test_a_model_retry_that_says_that_nothing_was_done_is_released(ledger, bank, error, guarded):
    bank.fails = error
    agent = agent_of(ledger, bank.charge, [CALL], guarded=guarded)
    [(outcome, text)] = told(agent.run_sync("Charge."))
    assert outcome == "retried" and error.message in str(text)
    bank.fails = None
    assert told(agent.run_sync("Charge.")) == [("success", "receipt 2")]


def test_a_model_retry_after_sent_is_a_doubt(ledger, bank):
    async def charge(invoice: str, cents: int, memo: str) -> str:
        await onceward.claim().sent_async()
        bank.charged.append(invoice)
        raise ModelRetry("no such invoice")

    guarded = {"charge": once(key=["invoice"], marks_sent=True)}
    result = agent_of(ledger, charge, [CALL], [CALL], guarded=guarded).run_sync("Charge.")
    assert [outcome for outcome, _ in told(result)] == ["failed", "failed"]
    assert len(bank.charged) == 1


def test_an_args_validator_refuses_before_anything_is_recorded(ledger, bank):
    def validate(_ctx, invoice: str, cents: int, memo: str) -> None:
        raise ModelRetry("no such invoice")

    inner = FunctionToolset()
    inner.add_function(bank.charge, args_validator=validate)
    Agent(scripted([CALL]), toolsets=[OnceToolset(inner, ledger, PAYMENT)]).run_sync("Charge.")
    assert ledger.list() == [] and bank.charged == []


def test_a_failed_tool_with_a_tier_is_a_doubt_and_without_one_released(ledger, bank):
    bank.fails = ToolFailed("the bank said no")
    [(_, text)] = told(agent_of(ledger, bank.charge, [CALL], guarded=PAYMENT).run_sync("Charge."))
    assert "the bank said no" in text and "unknown whether" in text
    other = CALL | {"invoice": "inv-8"}
    result = agent_of(ledger, bank.charge, [other], [other]).run_sync("Charge.")
    assert told(result) == [("failed", "the bank said no")] * 2
    assert len(bank.charged) == 3


def test_an_exception_ends_the_run_and_the_next_run_hears_of_the_doubt(ledger, bank):
    bank.fails = ConnectionResetError("connection reset by peer")
    agent = agent_of(ledger, bank.charge, [CALL])
    with pytest.raises(ConnectionResetError):
        agent.run_sync("Charge.")
    [(outcome, text)] = told(agent.run_sync("Charge."))
    assert outcome == "failed" and "a person has to check it" in text
    assert len(bank.charged) == 1


def test_with_retry_the_next_call_acts_with_the_same_downstream_key(ledger, bank):
    bank.fails = ModelRetry("timed out")
    agent = agent_of(ledger, bank.charge, [CALL], guarded={"charge": once(key=["invoice"], in_doubt="retry")})
    [(outcome, _)] = told(agent.run_sync("Charge."))
    assert outcome == "retried", "the model may try again"
    bank.fails = None
    assert told(agent.run_sync("Charge.")) == [("success", "receipt 2")]
    assert len(set(bank.keys)) == 1


def test_a_call_that_needs_approval_runs_once_it_is_approved(ledger):
    charged = []

    def charge(ctx: pydantic_ai.RunContext, invoice: str, cents: int, memo: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        charged.append(invoice)
        return "receipt"

    options = {"output_type": [str, DeferredToolRequests]}
    agent = agent_of(ledger, charge, [CALL], guarded=PAYMENT, agent=options)
    asked = agent.run_sync("Charge.")
    assert charged == [] and len(asked.output.approvals) == 1
    approved = DeferredToolResults(approvals={call.tool_call_id: True for call in asked.output.approvals})
    agent.run_sync(message_history=asked.all_messages(), deferred_tool_results=approved)
    assert charged == ["inv-7"]


def test_a_call_that_is_left_to_another_program_is_not_left_to_it_twice(ledger, bank):
    bank.fails = CallDeferred()
    agent = agent_of(ledger, bank.charge, [CALL], agent={"output_type": [str, DeferredToolRequests]})
    assert len(agent.run_sync("Charge.").output.calls) == 1
    [(outcome, _)] = told(agent.run_sync("Charge."))
    assert outcome == "failed" and len(bank.charged) == 1


class Receipt(BaseModel):
    number: int = Field(serialization_alias="no")


@pytest.mark.parametrize(
    ("returned", "kept"),
    [
        (Receipt(number=7), {"no": 7}),
        ({"a": [1, None, "ü"]}, {"a": [1, None, "ü"]}),
        (ToolReturn(return_value=Receipt(number=7), content="a note", metadata={"x": 1}), {"no": 7}),
        (["seen", BinaryContent(data=b"abc", media_type="image/png")], None),
    ],
    ids=["model", "json", "ToolReturn", "image"],
)
def test_a_repeat_reads_to_the_model_as_the_first_result(ledger, bank, returned, kept):
    bank.returns = returned
    result = agent_of(ledger, bank.charge, [CALL], [CALL]).run_sync("Charge.")
    parts = [part for message in result.all_messages() for part in message.parts]
    first, second = (part for part in parts if part.part_kind == "tool-return")
    assert first.model_response_str() == second.model_response_str() and first.metadata == second.metadata
    assert [file.data for file in first.files] == [file.data for file in second.files]
    assert kept is None or second.content == kept
    notes = [part.content for part in parts if part.part_kind == "user-prompt"]
    assert notes.count("a note") == (2 if isinstance(returned, ToolReturn) else 0)
    assert len(bank.charged) == 1


def test_a_session_for_each_run_or_conversation(ledger, bank):
    agent = agent_of(ledger, bank.charge, [CALL], [CALL], session=by_run)
    agent.run_sync("Charge.", run_id="run-1")
    agent.run_sync("Charge.", run_id="run-1")
    agent.run_sync("Charge.", run_id="run-2")
    assert len(bank.charged) == 2
    agent = agent_of(ledger, bank.charge, [CALL], session=by_conversation)
    agent.run_sync("Charge.", conversation_id="c-1")
    agent.run_sync("Charge.", conversation_id="c-1")
    assert len(bank.charged) == 3


def test_a_key_function_is_bound_to_its_session(ledger, bank):
    guarded = {"charge": once(key=lambda args: args["invoice"], match=["cents"], operation="billing.charge")}
    agent = agent_of(ledger, bank.charge, [CALL], [CALL | {"cents": 1}], guarded=guarded, session=by_run)
    for run_id in ("run-1", "run-1", "run-2"):
        (_, first), (outcome, text) = told(agent.run_sync("Charge.", run_id=run_id))
        assert first.startswith("receipt") and outcome == "failed" and text.startswith("charge was already called")
    assert len(bank.charged) == 2


def test_a_session_that_the_caller_sets(ledger, bank):
    agent = agent_of(ledger, bank.charge, [CALL], session=True)
    [(outcome, _)] = told(agent.run_sync("Charge."))
    assert outcome == "failed" and bank.charged == [], "no session is set"
    for name in ("run-1", "run-1", "run-2"):
        with onceward.session(name):
            agent.run_sync("Charge.")
    assert len(bank.charged) == 2


def test_tools_that_are_not_named_are_not_guarded(ledger, bank):
    looked = []

    def look_up(invoice: str) -> str:
        looked.append(invoice)
        return "open"

    inner = FunctionToolset([look_up, bank.charge])
    agent = Agent(TestModel(), toolsets=[OnceToolset(inner, ledger, KEYED)])
    agent.run_sync("Charge.")
    agent.run_sync("Charge.")
    assert len(looked) == 2 and len(bank.charged) == 1


@pytest.mark.parametrize(
    ("guarded", "reason"),
    [
        ({"chrage": once(key=["invoice"])}, "no such tool"),
        ({"charge": once(key=["bill"])}, "no argument `bill`"),
        ({"charge": once(key=["invoice"], match=["/total/cents"])}, "no argument `total`"),
    ],
)
def test_a_name_that_does_not_exist_is_refused_before_the_model_is_asked(ledger, bank, guarded, reason):
    with pytest.raises(onceward.InvalidCall, match=reason):
        agent_of(ledger, bank.charge, [CALL], guarded=guarded).run_sync("Charge.")


@pytest.mark.parametrize(
    "wrong",
    [{"key": "invoice"}, {"key": []}, {"key": ["invoice"], "teir": "payment"}, {"key": str, "match": "cents"}],
)
def test_a_wrong_setting_is_refused(wrong):
    with pytest.raises(onceward.InvalidCall):
        once(**wrong)


def test_a_wrong_setting_is_refused_when_the_toolset_is_made(ledger, bank):
    with pytest.raises(onceward.InvalidCall, match="gold"):
        OnceToolset(FunctionToolset([bank.charge]), ledger, {"charge": once(key=["invoice"], tier="gold")})


ORDER = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "currency": {"type": "string", "default": "EUR"}, "note": {"default": ""}},
}


@pytest.mark.parametrize(
    ("key", "schema", "first", "second", "effects"),
    [
        # The schema's default, and the function's where the schema has none.
        (["invoice", "currency"], {"currency": {"default": "USD"}}, {}, {"currency": "USD"}, 1),
        (["invoice", "currency"], {"currency": {}}, {}, {"currency": "EUR"}, 1),
        (["invoice", "currency"], {"currency": {}}, {}, {"currency": "USD"}, 2),
        (lambda args: f"{args['invoice']} {args['currency']}", {"currency": {}}, {}, {"currency": "EUR"}, 1),
        # In objects that are part of the key.
        (["/order/currency"], {"order": ORDER}, {"order": {}}, {"order": {"currency": "EUR", "note": "x"}}, 1),
        (["order"], {"order": {"$ref": "#/$defs/Order"}}, {"order": {"id": "a"}}, {"order": ORDER_FULL}, 1),
        (["orders"], {"orders": {"items": ORDER}}, {"orders": [{"id": "a"}]}, {"orders": [ORDER_FULL]}, 1),
        (["order"], {"order": ORDER}, {"order": {"id": "a"}}, {"order": {"id": "a", "currency": "USD"}}, 2),
    ],
)
def test_an_argument_that_is_left_out_is_its_default(ledger, key, schema, first, second, effects):
    done = []

    async def charge(invoice: str, currency: str = "EUR", client: object = object(), **others: object) -> str:
        done.append(others)
        return "receipt"

    properties = {"invoice": {"type": "string"}, **schema}
    described = {"type": "object", "properties": properties, "$defs": {"Order": ORDER}}
    tool = Tool.from_schema(charge, "charge", "Charges.", described)
    calls = [{"invoice": "inv-7", **one} for one in (first, second)]
    result = agent_of(ledger, tool, *[[call] for call in calls], guarded={"charge": once(key=key)}).run_sync("Charge.")
    assert told(result) == [("success", "receipt")] * 2
    assert len(done) == effects and done[0] == {name: value for name, value in first.items() if name != "currency"}


def test_the_log_does_not_contain_keys_or_arguments(tmp_path, bank, caplog):
    bank.fails = ModelRetry("no answer for secret-inv-7")
    guarded = {"charge": once(key=lambda args: f"secret-{args['invoice']}", tier="payment")}
    with onceward.Ledger(tmp_path / "ledger.db") as ledger:
        agent_of(ledger, bank.charge, [CALL], [CALL], guarded=guarded).run_sync("Charge.")
    ours = [record.getMessage() for record in caplog.records if record.name == "onceward"]
    assert len(ours) == 1 and "is in doubt" in ours[0] and "inv-7" not in ours[0]


def test_a_ledger_that_cannot_be_used_is_reported_and_nothing_runs(bank):
    ledger = onceward.Ledger("memory:")
    agent = agent_of(ledger, bank.charge, [CALL])
    agent.run_sync("Charge.")
    ledger.close()
    [(outcome, text)] = told(agent.run_sync("Charge."))
    assert outcome == "failed" and "Nothing happened" in text
    assert len(bank.charged) == 1


def test_a_missing_framework_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    monkeypatch.delitem(sys.modules, "onceward.pydantic_ai")
    with pytest.raises(ImportError, match="pip install 'pydantic-ai-slim>=2.66'"):
        importlib.import_module("onceward.pydantic_ai")


def test_a_framework_that_is_too_old_is_named(monkeypatch):
    monkeypatch.delattr(pydantic_ai.exceptions, "ToolFailed")
    monkeypatch.setattr(pydantic_ai, "__version__", "1.0.0")
    monkeypatch.delitem(sys.modules, "onceward.pydantic_ai")
    with pytest.raises(ImportError, match="1.0.0 is installed"):
        importlib.import_module("onceward.pydantic_ai")


def test_the_example_charges_once():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == ["success: receipt 1"] * 3
    assert done.stdout.splitlines()[3].startswith("failed: charge was already called")
    assert done.stdout.splitlines()[4] == "charged: [('inv-7', 1999)]"


class GuideBank:
    def __init__(self):
        self.charged = []

    async def charge(self, invoice, cents, idempotency_key):
        self.charged.append(invoice)
        return "receipt"

    async def look_up(self, invoice):
        return "open"


def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    guide = types.ModuleType("guide")
    guide.bank, guide.model = GuideBank(), TestModel()
    exec("\n".join(blocks), guide.__dict__)
    for _ in range(2):
        guide.agent.run_sync("Charge.")
    assert len(guide.bank.charged) == 1


def test_arguments_that_are_not_part_of_the_key_may_be_anything(ledger):
    charged = []

    def charge(invoice: str, when: datetime, tags: set[str] = set()) -> str:
        charged.append(invoice)
        return "receipt"

    call = {"invoice": "inv-7", "when": "2026-01-01T10:00:00"}
    assert told(agent_of(ledger, charge, [call], [call]).run_sync("Charge.")) == [("success", "receipt")] * 2
    assert charged == ["inv-7"]
    # The model is told about a value that cannot be part of a key, and the run goes on.
    by_time = {"charge": once(key=["when"], operation="by_time")}
    ((outcome, text),) = told(agent_of(ledger, charge, [call], guarded=by_time).run_sync("Charge."))
    assert outcome == "failed" and "its arguments cannot be used. Nothing happened" in text and len(charged) == 1


@pytest.mark.parametrize("found", [None, "", 5])
def test_a_tenant_that_is_not_found_never_means_the_default_tenant(ledger, bank, found):
    result = agent_of(ledger, bank.charge, [CALL], tenant=lambda ctx: found).run_sync("Charge.")
    assert [outcome for outcome, _ in told(result)] == ["failed"]
    assert bank.charged == [] and ledger.list() == []


@pytest.mark.parametrize("empty", ["session", "tenant"])
def test_an_empty_session_or_tenant_is_refused(ledger, bank, empty):
    with pytest.raises(onceward.InvalidCall, match="not empty"):
        agent_of(ledger, bank.charge, **{empty: ""})


def test_a_tool_that_is_hidden_for_a_step_does_not_end_the_run(ledger, bank):
    async def only_first(ctx, definition):
        return definition if ctx.run_step == 1 else None

    toolset = FunctionToolset([Tool(bank.charge, prepare=only_first)])
    agent = Agent(scripted([CALL]), toolsets=[OnceToolset(toolset, ledger, KEYED)])
    assert agent.run_sync("Charge.").output == "Done." and len(bank.charged) == 1


def test_a_key_function_that_finds_no_key_is_refused_in_a_session_too(ledger, bank):
    for session in (None, "run-1"):
        agent = agent_of(ledger, bank.charge, [CALL], guarded={"charge": once(key=lambda args: "")}, session=session)
        assert [outcome for outcome, _ in told(agent.run_sync("Charge."))] == ["failed"] and bank.charged == []


class Refund(BaseModel):
    """What a function gets whose fields the model sees as arguments."""

    model_config = {"populate_by_name": True}

    invoice: str
    currency: str = "EUR"
    account: str = Field("main", alias="accountId")


@dataclass
class RefundLine:
    invoice: str
    currency: str = "EUR"


class RefundDict(TypedDict):
    invoice: str
    currency: NotRequired[str]


@pytest.mark.parametrize("kind", [Refund, RefundLine, RefundDict])
def test_a_function_with_one_model_is_known_by_the_fields_of_the_model(ledger, kind):
    """The framework shows the model these fields, and gives the function one argument."""
    acted = []

    def charge(refund) -> str:
        acted.append(refund)
        return f"receipt {len(acted)}"

    charge.__annotations__["refund"] = kind
    calls = [{"invoice": "a"}, {"invoice": "b"}, {"invoice": "a"}, {"invoice": "a", "currency": "USD"}]
    guarded = {"charge": once(key=["invoice"], match=["currency"])}
    result = agent_of(ledger, charge, *([call] for call in calls), guarded=guarded).run_sync("Charge.")
    assert [outcome for outcome, _ in told(result)] == ["success", "success", "success", "failed"]
    assert [content for _, content in told(result)][:3] == ["receipt 1", "receipt 2", "receipt 1"]
    assert len(acted) == 2


def test_a_function_with_one_model_has_one_intent_with_and_without_a_default(ledger):
    acted = []

    def charge(refund: Refund) -> str:
        acted.append(refund)
        return "receipt"

    calls = [{"invoice": "a"}, {"invoice": "a", "currency": "EUR", "accountId": "main"}, {"invoice": "a", "accountId": "b"}]
    guarded = {"charge": once(key=["invoice", "currency", "accountId"])}
    agent_of(ledger, charge, *([call] for call in calls), guarded=guarded).run_sync("Charge.")
    assert [one.account for one in acted] == ["main", "b"]


def test_an_argument_with_another_name_for_the_model_is_part_of_the_key(ledger):
    acted = []

    def charge(
        invoice: Annotated[str, Field(alias="invoiceId")], currency: Annotated[str, Field(alias="theCurrency")] = "EUR"
    ) -> str:
        acted.append((invoice, currency))
        return "receipt"

    calls = [
        {"invoiceId": "a"},
        {"invoiceId": "b"},
        {"invoiceId": "a", "theCurrency": "EUR"},
        {"invoiceId": "a", "theCurrency": "USD"},
    ]
    guarded = {"charge": once(key=["invoiceId", "theCurrency"])}
    agent_of(ledger, charge, *([call] for call in calls), guarded=guarded).run_sync("Charge.")
    assert acted == [("a", "EUR"), ("b", "EUR"), ("a", "USD")]


def test_an_argument_that_cannot_be_found_in_a_call_is_refused(ledger):
    acted = []

    def charge(invoice: Annotated[str, Field(validation_alias=AliasChoices("invoiceId", "id"))]) -> str:
        acted.append(invoice)
        return "receipt"

    guarded = {"charge": once(key=["invoiceId"])}
    with pytest.raises(onceward.InvalidCall, match="charge gets no argument `invoiceId`"):
        agent_of(ledger, charge, [{"invoiceId": "a"}], guarded=guarded).run_sync("Charge.")
    assert acted == []


@pytest.mark.parametrize("tier", ["payment", None])
def test_an_error_of_a_guarded_call_inside_the_tool_does_not_say_that_nothing_happened(ledger, bank, tier):
    @ledger.once(operation="log", key=["invoice"], session=True)
    def log(invoice):
        raise AssertionError("no session is set")

    async def charge(invoice: str, cents: int, memo: str) -> str:
        bank.charged.append(invoice)
        log(invoice)
        return "receipt"

    guarded = {"charge": once(key=["invoice"], tier=tier)}
    ((outcome, text),) = told(agent_of(ledger, charge, [CALL], guarded=guarded).run_sync("Charge."))
    assert outcome == "failed" and ("Nothing happened" in text) == (tier is None)
    assert ("unknown whether charge took effect" in text) == (tier is not None)
