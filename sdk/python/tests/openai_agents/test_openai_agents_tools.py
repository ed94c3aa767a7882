"""Guarded functions under `function_tool`, in runs of a real agent with a scripted model."""

import asyncio
import dataclasses
import inspect
import sys
import time

import pytest
from agents import RunContextWrapper, Runner, ToolOutputText, UserError, default_tool_error_function, function_tool
from agents.tool_context import ToolContext
from conftest import CHARGE, PAYMENT, agent, call, outputs, run
from pydantic import BaseModel

import onceward
from onceward.openai_agents import once, tell_model, tell_timeout

TRY_AGAIN = default_tool_error_function(None, Exception())
IN_DOUBT = onceward.InDoubt(operation="charge").for_model()


def guarded(bank, ledger, tool=None, **settings):
    return function_tool(once(ledger, **(PAYMENT | settings))(bank.charge), **(tool or {}))


def function_of(bank):
    """The bank behind a function: without a key, all arguments count, and a method has an object besides them."""

    async def charge(invoice: str, cents: int, memo: str) -> str:
        return await bank.charge(invoice, cents, memo)

    return charge


def test_a_repeat_gets_the_stored_result(bank, ledger):
    assert run([call(), call()], guarded(bank, ledger)) == ["receipt 1", "receipt 1"]
    assert len(bank.charged) == 1 and bank.keys[0] is not None


def test_the_log_does_not_contain_keys_or_arguments(bank, ledger, caplog):
    bank.fails = [TimeoutError("no answer for secret-inv-7")]
    run([call(), call()], guarded(bank, ledger, key=lambda invoice, **_: f"secret-{invoice}"))
    ours = [record.getMessage() for record in caplog.records if record.name == "onceward"]
    assert len(ours) == 2 and ours[0].endswith(": TimeoutError") and "is in doubt" in ours[1]
    assert "inv-7" not in "".join(ours) and "secret" not in "".join(ours)


def test_another_invoice_is_another_intent(bank, ledger):
    assert run([call(), call(invoice="inv-8")], guarded(bank, ledger)) == ["receipt 1", "receipt 2"]


def test_the_tool_looks_to_the_model_as_it_did(bank, ledger):
    plain = function_tool(bank.charge)
    tool = guarded(bank, ledger)
    assert (tool.name, tool.description) == (plain.name, plain.description)
    assert tool.params_json_schema == plain.params_json_schema


@pytest.mark.parametrize("takes_context", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
def test_functions_of_every_kind_are_guarded(ledger, takes_context, is_async):
    ran = []

    def plain(invoice: str, cents: int = 5, *, memo: str = "") -> str:
        ran.append((invoice, cents, memo))
        return "paid"

    def with_context(ctx: RunContextWrapper[str], invoice: str, cents: int = 5, *, memo: str = "") -> str:
        return plain(invoice, cents, memo=f"{ctx.context} {memo}")

    function = with_context if takes_context else plain

    async def plain_async(invoice: str, cents: int = 5, *, memo: str = "") -> str:
        return plain(invoice, cents, memo=memo)

    async def with_context_async(ctx: ToolContext[str], invoice: str, cents: int = 5, *, memo: str = "") -> str:
        return with_context(ctx, invoice, cents, memo=memo)

    if is_async:
        function = with_context_async if takes_context else plain_async
    guard = once(ledger, operation="charge", key=["invoice"])(function)
    assert inspect.iscoroutinefunction(guard) is is_async
    tool = function_tool(guard, name_override="charge")
    assert list(tool.params_json_schema["properties"]) == ["invoice", "cents", "memo"]
    assert run([call(), call(memo="again")], tool, context="ctx") == ["paid", "paid"]
    assert ran == [("inv-7", 1999, "ctx thanks" if takes_context else "thanks")]


def test_a_guarded_function_can_be_called_without_an_agent(bank, ledger):
    charge = once(ledger, **PAYMENT)(bank.charge)

    async def twice():
        return [await charge("inv-7", 1999, memo="a"), await charge(invoice="inv-7", cents=1999, memo="b")]

    assert asyncio.run(twice()) == ["receipt 1", "receipt 1"]


# Sessions and tenants.


def test_without_a_key_all_arguments_count_in_one_group(bank, ledger):
    tool = function_tool(once(ledger, operation="charge")(function_of(bank)))
    for group in ("1", "2", "1"):
        run([call()], tool, group=group)
    run([call(memo="other words")], tool, group="1")
    assert len(bank.charged) == 3


def test_a_key_names_the_intent_in_every_run(bank, ledger):
    for group in ("1", "2", None):
        run([call()], guarded(bank, ledger), group=group)
    assert len(bank.charged) == 1


@pytest.mark.parametrize("key", [["invoice"], lambda invoice, **_: f"key-{invoice}"])
@pytest.mark.parametrize("session", [True, lambda ctx: ctx.context])
def test_a_key_can_be_bound_to_a_session(bank, ledger, key, session):
    tool = guarded(bank, ledger, key=key, session=session)
    for conversation in ("1", "2", "1"):
        run([call()], tool, group=conversation, context=conversation)
    assert len(bank.charged) == 2


def test_a_key_of_ones_own_in_a_session_still_has_arguments_that_must_agree(bank, ledger):
    tool = guarded(bank, ledger, key=lambda invoice, **_: invoice, session="order-17")
    assert run([call(), call(cents=1)], tool)[1] == onceward.Mismatch(operation="charge").for_model()


def test_the_session_of_the_caller_outranks_the_group(bank, ledger):
    tool = guarded(bank, ledger, session=True)
    for group in ("1", "2"):
        with onceward.session("order-17"):
            run([call()], tool, group=group)
    assert len(bank.charged) == 1


def test_a_run_without_a_session_is_reported(bank, ledger, caplog):
    (told,) = run([call()], function_tool(once(ledger, operation="charge")(function_of(bank))))
    assert told == "charge was not carried out: the program did not name a session. Nothing happened. Tell the user."
    assert "RunConfig(group_id=...)" in caplog.text
    assert bank.charged == []


def test_tenants_do_not_share_intents(bank, ledger):
    for user in ("ada", "bob", "ada"):
        run([call()], guarded(bank, ledger, tenant=lambda ctx: ctx.context), context=user)
    assert len(bank.charged) == 2


def test_an_empty_tenant_is_not_the_default_tenant(bank, ledger, caplog):
    (told,) = run([call()], guarded(bank, ledger, tenant=lambda ctx: ""))
    assert told == onceward.InvalidCall(operation="charge").for_model()
    assert "not empty" in caplog.text and bank.charged == []
    for settings in ({"tenant": ""}, {"session": ""}):
        with pytest.raises(onceward.InvalidCall, match="not empty"):
            guarded(bank, ledger, **settings)


def test_a_key_of_ones_own_is_the_key_in_the_ledger(bank, ledger):
    run([call()], guarded(bank, ledger, key=lambda invoice, **_: invoice))
    assert ledger.get("charge", "inv-7").status == "done"


# What the model is told.


@pytest.mark.parametrize("handler", [{}, {"failure_error_function": None}, {"failure_error_function": tell_model}])
def test_a_decision_is_told_whatever_the_tool_does_with_failures(bank, ledger, handler):
    told = run([call(), call(cents=1)], guarded(bank, ledger, tool=handler))
    assert told == ["receipt 1", onceward.Mismatch(operation="charge").for_model()]


@pytest.mark.parametrize("handler", [{}, {"failure_error_function": None}])
def test_a_lost_answer_does_not_become_try_again(bank, ledger, handler):
    bank.fails = [TimeoutError("no answer")]
    told = run([call(), call()], guarded(bank, ledger, tool=handler))
    assert told[0].startswith("It is unknown whether charge took effect. Do not call it again")
    assert told[1] == IN_DOUBT
    assert TRY_AGAIN not in told and len(bank.charged) == 1


def test_a_lost_answer_that_may_be_retried_is_told_so(bank, ledger):
    bank.fails = [TimeoutError("no answer")]
    told = run([call(), call()], guarded(bank, ledger, in_doubt="retry"))
    assert told == [onceward.OwnerUnknown(operation="charge").for_model(), "receipt 2"]
    assert bank.keys == [bank.keys[0]] * 2


def test_a_failure_that_did_nothing_is_handled_by_the_framework(bank, ledger):
    bank.fails = [onceward.NotSent("connection refused")]
    assert run([call(), call()], guarded(bank, ledger)) == [TRY_AGAIN, "receipt 2"]
    bank.fails = [onceward.NotSent("connection refused")]
    with pytest.raises(UserError) as failed:
        run([call(invoice="inv-8")], guarded(bank, ledger, tool={"failure_error_function": None}))
    assert isinstance(failed.value.__cause__, onceward.NotSent)


def test_errors_can_be_raised(bank, ledger):
    tool = guarded(bank, ledger, errors="raise", tool={"failure_error_function": None})
    with pytest.raises(UserError) as failed:
        run([call(), call(cents=1)], tool)
    assert isinstance(failed.value.__cause__, onceward.Mismatch)


def test_raised_errors_reach_the_model_through_tell_model(bank, ledger):
    charge = ledger.once(operation="charge", key=["invoice"], match=["cents"])(bank.charge)
    told = run([call(), call(cents=1)], function_tool(charge, failure_error_function=tell_model))
    assert told == ["receipt 1", onceward.Mismatch(operation="charge").for_model()]
    # Without it, the framework tells the model to try again.
    assert run([call(cents=1)], function_tool(charge)) == [TRY_AGAIN]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError("no answer"), "It is unknown whether charge took effect. Do not call it again with other"),
        (onceward.NotSent("connection refused"), "charge failed. If it is called again, its arguments must stay"),
    ],
)
@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_tell_model_does_not_say_try_again_about_other_exceptions(bank, ledger, error, text):
    bank.fails = [error]
    charge = ledger.once(operation="charge", key=["invoice"])(bank.charge)
    (told,) = run([call()], function_tool(charge, failure_error_function=tell_model))
    assert told.startswith(text)


def test_the_model_reads_the_name_of_the_tool(bank, ledger):
    tool = guarded(bank, ledger, operation="billing.v2", tool={"name_override": "pay"})
    told = run([call("pay", **CHARGE), call("pay", **(CHARGE | {"cents": 1}))], tool)
    assert told[1] == onceward.Mismatch(operation="pay").for_model()


def test_a_time_out_of_the_tool_leaves_a_doubt_that_the_model_is_told_about(bank, ledger):
    bank.delay = 60
    options = {"timeout": 1, "timeout_error_function": tell_timeout}
    told = run([call(), call()], guarded(bank, ledger, tool=options))
    assert told[0].startswith("It is unknown whether charge took effect: it got no answer in time.")
    assert told[1] == IN_DOUBT
    assert len(bank.charged) == 1


def test_what_a_person_settles_is_what_the_model_reads(bank, ledger):
    bank.fails = [TimeoutError("no answer")]
    run([call()], guarded(bank, ledger))
    (doubt,) = ledger.list(state="in_doubt")
    ledger.resolve("charge", doubt.key, happened=True, result="receipt 99")
    assert run([call()], guarded(bank, ledger)) == ["receipt 99"]


def test_a_probe_settles_a_doubt(bank, ledger):
    asked = []

    async def probe(**arguments):
        asked.append(arguments)
        return "receipt of the bank"

    bank.fails = [TimeoutError("no answer")]
    told = run([call(), call()], guarded(bank, ledger, probe=probe))
    assert told[1] == "receipt of the bank"
    assert (asked, len(bank.charged)) == ([CHARGE], 1)


# Results.


class Receipt(BaseModel):
    number: int
    lines: tuple[str, ...]


@dataclasses.dataclass
class Slip:
    number: int


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        (dict, {"a": [1, None]}),
        (Receipt, Receipt(number=1, lines=("x",))),
        (Slip, Slip(7)),
        (ToolOutputText, ToolOutputText(text="paid")),
        (str | None, None),
        (list[Receipt], [Receipt(number=1, lines=())]),
    ],
)
def test_results_come_back_as_they_were(ledger, kind, result):
    ran = []

    def charge(invoice: str) -> kind:
        ran.append(invoice)
        return result

    tool = function_tool(once(ledger, operation="charge", key=["invoice"])(charge))
    told = run([call("charge"), call("charge")], tool)
    assert told == [result, result] and type(told[1]) is type(result)
    assert len(ran) == 1


def test_a_result_that_cannot_be_kept_is_not_run_again(ledger):
    ran = []

    def charge(invoice: str):
        ran.append(invoice)
        return Slip(7)

    told = run([call(), call()], function_tool(once(ledger, operation="charge", key=["invoice"])(charge)))
    assert told == [Slip(7), onceward.OutcomeNotKept(operation="charge").for_model()]
    assert len(ran) == 1


# Mistakes.


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"key": ["invioce"]}, "no argument `invioce`; did you mean `invoice`"),
        ({"key": ["invoice"], "match": ["price"]}, "no argument `price`"),
        ({"key": "invoice"}, "list of arguments"),
        ({"key": []}, "list of arguments"),
        ({"key": ["invoice"], "tier": "payment"}, "needs operation="),
        ({"key": ["invoice"], "in_doubt": "probe"}, "needs probe"),
        ({"key": ["invoice"], "kay": 1}, "unknown settings: kay"),
        ({"key": ["invoice"], "errors": "ignore"}, "tell"),
    ],
)
def test_wrong_settings_are_refused_at_set_up(bank, ledger, settings, text):
    with pytest.raises(onceward.InvalidCall, match=text):
        once(ledger, **settings)(bank.charge)


def test_the_order_of_the_decorators_matters(bank, ledger):
    with pytest.raises(onceward.InvalidCall, match="below @function_tool"):
        once(ledger, **PAYMENT)(function_tool(bank.charge))


def test_a_sync_function_may_take_its_time(ledger):
    """It runs in a thread, so that equal calls wait for it without blocking the loop."""
    ran = []

    @function_tool
    @once(ledger, operation="charge", key=["invoice"])
    def charge(invoice: str) -> str:
        ran.append(invoice)
        time.sleep(0.1)
        return "paid"

    made = agent([[call(), call(), call()]], [charge])
    assert outputs(asyncio.run(Runner.run(made, "Pay it."))) == ["paid"] * 3
    assert len(ran) == 1


def test_two_functions_of_one_name_do_not_share_their_intents(ledger):
    def named(module):
        def send(to: str) -> str:
            return f"{module} {to}"

        send.__module__, send.__qualname__ = module, "send"
        return function_tool(name_override=module)(once(ledger, key=["to"])(send))

    assert run([call("mail", to="x")], named("mail")) == ["mail x"]
    assert run([call("sms", to="x")], named("sms")) == ["sms x"]
    assert {one.operation for one in ledger.list()} == {"mail.send", "sms.send"}

    def local(to: str) -> str:
        return to

    with pytest.raises(onceward.InvalidCall, match="has no lasting name: say operation="):
        once(ledger, key=["to"])(local)


def test_a_key_function_that_finds_no_key_is_refused_in_a_session_too(bank, ledger):
    for session in (None, "order-17"):
        (said,) = run([call()], guarded(bank, ledger, key=lambda **_: "", session=session))
        assert "its arguments cannot be used" in said and bank.charged == []


def test_a_doubt_is_told_on_every_version_of_python(ledger):
    class OldError(TimeoutError):
        """Python 3.10 has no notes."""

        add_note = None

    def refund(i: int) -> str:
        """Refunds."""
        raise OldError("no answer")

    guarded_tool = function_tool(failure_error_function=tell_model)(
        ledger.once(operation="refund", key=["i"], tier="payment")(refund)
    )
    (said,) = run([call("refund", i=1)], guarded_tool)
    assert said.startswith("It is unknown whether refund took effect.")


def test_a_method_needs_a_key_because_its_object_is_not_part_of_one(bank, ledger):
    with pytest.raises(onceward.InvalidCall, match="is a method, and without key= its object"):
        once(ledger, operation="charge", session="run")(bank.charge)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("tier", ["payment", None])
def test_an_error_of_a_guarded_call_inside_the_tool_does_not_say_that_nothing_happened(bank, ledger, tier, is_async):
    @ledger.once(operation="log", key=["invoice"], session=True)
    def log(invoice):
        raise AssertionError("no session is set")

    def charge(invoice: str, cents: int, memo: str) -> str:
        bank.charged.append(invoice)
        log(invoice)

    async def charge_async(invoice: str, cents: int, memo: str) -> str:
        charge(invoice, cents, memo)

    charge_async.__name__ = "charge"
    tool = function_tool(once(ledger, **(PAYMENT | {"tier": tier}))(charge_async if is_async else charge))
    (told,) = run([call()], tool)
    assert ("Nothing happened" in told) == (tier is None)
    assert ("unknown whether charge took effect" in told) == (tier is not None)
