"""Guarded Temporal activities. There is no Temporal server here: the worker of Temporal's SDK gets its tasks from a
stand-in for its Rust core, and one test uses Temporal's `ActivityEnvironment`."""

import asyncio
import dataclasses
import datetime
import importlib
import pathlib
import re
import subprocess
import sys
import types

import pytest
import temporalio.exceptions
from activity_core import LIMIT, Bank, Core, attempts, outcome, play, refusal
from temporalio import activity
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

import onceward
from onceward.temporal import OnceInterceptor, once

ROOT = pathlib.Path(__file__).resolve().parents[4]
EXAMPLE = ROOT / "examples" / "python" / "temporal_activity.py"
GUIDE = ROOT / "docs" / "guides" / "temporal.md"


@pytest.fixture
def ledger():
    with onceward.Ledger("memory:") as opened:
        yield opened


@pytest.fixture
def bank():
    return Bank()


@pytest.fixture(params=["charge", "charge_in_thread"], ids=["async", "thread"])
def name(request):
    return request.param


def test_a_second_attempt_gets_the_result_of_the_first(ledger, bank, name):
    assert attempts(ledger, bank, name, 3) == ["receipt 1"] * 3
    assert len(bank.charged) == 1


def test_without_the_guard_each_attempt_acts(ledger, bank):
    charged = []

    @activity.defn
    async def charge(invoice: str) -> None:
        charged.append(invoice)

    async def main():
        async with Core(ledger, [charge], {}) as core:
            for attempt in (1, 2):
                await core.attempt("charge", "inv-7", attempt=attempt)

    asyncio.run(main())
    assert len(charged) == 2


@pytest.mark.parametrize("other", [{"activity_id": "2"}, {"run_id": "run-2"}, {"workflow_id": "w" * 900}])
def test_another_execution_is_another_intent(ledger, bank, other):
    async def scenario(core):
        return [await core.attempt("charge", "inv-7", 1999), await core.attempt("charge", "inv-7", 1999, **other)]

    assert play(ledger, bank, scenario) == ["receipt 1", "receipt 2"]


def test_another_namespace_is_another_intent(ledger, bank):
    async def scenario(core):
        first = await core.attempt("charge", "inv-7", 1999)
        core.namespace = "other"
        return [first, await core.attempt("charge", "inv-7", 1999)]

    assert play(ledger, bank, scenario) == ["receipt 1", "receipt 2"]


def test_two_attempts_two_milliseconds_apart_act_once(ledger, bank, name):
    bank.delay = 0.5

    async def scenario(core):
        _, first = await core.start(name, "inv-7", 1999)
        await asyncio.sleep(0.002)
        while not bank.charged:
            await asyncio.sleep(0.002)
        second = await core.attempt(name, "inv-7", 1999, attempt=2)
        return await outcome(first), second, await core.attempt(name, "inv-7", 1999, attempt=3)

    first, second, third = play(ledger, bank, scenario)
    assert first == third == "receipt 1"
    assert refusal(second) == ("InFlight", True)
    assert second.application_failure_info.next_retry_delay.ToTimedelta().total_seconds() >= 1
    assert len(bank.charged) == 1


def test_an_attempt_after_a_time_out_waits_for_the_one_that_still_runs(ledger, bank):
    bank.delay = 0.5

    async def scenario(core):
        _, first = await core.start("charge", "inv-7", 1999)
        while not bank.charged:
            await asyncio.sleep(0.002)
        # Temporal has given the first attempt up and does not read its result.
        return await core.attempt("charge", "inv-7", 1999, attempt=2)

    assert play(ledger, bank, scenario, once(wait="20s")) == "receipt 1"
    assert len(bank.charged) == 1


@pytest.mark.parametrize("on_error", ["classify", "retry"])
def test_a_cancelled_activity_is_cancelled_for_temporal_and_a_doubt_for_the_ledger(ledger, bank, name, on_error):
    bank.delay = 30

    async def scenario(core):
        token, ended = await core.start(name, "inv-7", 1999)
        while not core.heartbeats:
            await asyncio.sleep(0.01)
        core.cancel(token)
        return await outcome(ended), await core.attempt(name, "inv-7", 1999, attempt=2)

    cancelled, second = play(ledger, bank, scenario, once(on_error=on_error))
    assert cancelled.HasField("canceled_failure_info")
    assert refusal(second) == ("InDoubt", False)
    assert len(bank.charged) == 1


def test_a_cancellation_before_anything_was_sent_is_not_a_doubt(ledger, bank, name):
    bank.delay = 30

    async def scenario(core):
        token, ended = await core.start(name, "inv-7", 1999)
        while not core.heartbeats:
            await asyncio.sleep(0.01)
        core.cancel(token)
        await outcome(ended)
        bank.delay = 0
        return await core.attempt(name, "inv-7", 1999, attempt=2)

    assert play(ledger, bank, scenario, once(marks_sent=True, tier="payment")) == "receipt 2"


@pytest.mark.parametrize(
    ("error", "settings"),
    [
        (ValueError("no such invoice"), {"tier": "payment"}),
        (ConnectionResetError("connection reset by peer"), {}),
        (ApplicationError("the bank timed out", next_retry_delay=None), {}),
        (onceward.Unknown("no answer"), {}),
    ],
    ids=["a tier", "evidence", "ApplicationError", "unknown"],
)
def test_a_failure_that_may_have_acted_is_not_tried_again(ledger, bank, name, error, settings):
    bank.fails = error
    first, second = attempts(ledger, bank, name, 2, once(**settings))
    assert refusal(first) == refusal(second) == ("InDoubt", False)
    assert "is in doubt" in first.message and "is in doubt" in second.message
    assert first.cause.application_failure_info.type == type(error).__name__ or isinstance(error, ApplicationError)
    assert len(bank.charged) == 1
    [doubt] = ledger.list(state="in_doubt")
    ledger.resolve(doubt.operation, doubt.key, happened=True, result="receipt of the bank")
    assert attempts(ledger, bank, name, 1, once(**settings)) == ["receipt of the bank"]
    assert len(bank.charged) == 1


def from_not_sent():
    error = ApplicationError("the bank was not reached")
    error.__cause__ = onceward.NotSent("connection refused")
    return error


@pytest.mark.parametrize(
    ("error", "settings"),
    [
        (ValueError("no such invoice"), {}),
        (onceward.NotSent("connection refused"), {"tier": "payment"}),
        (from_not_sent(), {"tier": "payment"}),
        (ValueError("closed"), {"tier": "payment", "on_error": {ValueError: "retry"}}),
    ],
    ids=["no tier", "NotSent", "from NotSent", "on_error"],
)
def test_a_failure_that_did_nothing_is_raised_unchanged_and_tried_again(ledger, bank, name, error, settings):
    bank.fails = error

    async def scenario(core):
        first = await core.attempt(name, "inv-7", 1999)
        bank.fails = None
        return first, await core.attempt(name, "inv-7", 1999, attempt=2)

    first, second = play(ledger, bank, scenario, once(**settings))
    assert "InDoubt" not in first.application_failure_info.type and not first.application_failure_info.non_retryable
    assert second == "receipt 2" and len(set(bank.keys)) == 1


def test_with_retry_the_next_attempt_acts_with_the_same_downstream_key(ledger, bank, name):
    bank.fails = TimeoutError("timed out")

    async def scenario(core):
        first = await core.attempt(name, "inv-7", 1999)
        bank.fails = None
        return first, await core.attempt(name, "inv-7", 1999, attempt=2)

    first, second = play(ledger, bank, scenario, once(in_doubt="retry"))
    assert refusal(first) == ("TimeoutError", True)
    assert second == "receipt 2" and len(set(bank.keys)) == 1


def test_a_final_failure_is_kept(ledger, bank):
    bank.fails = onceward.Permanent("the card is blocked")
    first, second = attempts(ledger, bank, "charge", 2, once(tier="payment"))
    assert first.application_failure_info.type == "Permanent"
    assert refusal(second) == ("Failed", False)
    assert len(bank.charged) == 1


def test_an_activity_that_completes_elsewhere_is_not_started_twice(ledger):
    started = []

    @activity.defn
    async def charge() -> None:
        started.append(1)
        activity.raise_complete_async()

    async def main():
        async with Core(ledger, [charge], {charge: once()}) as core:
            _, ended = await core.start("charge")
            assert (await asyncio.wait_for(ended, LIMIT)).HasField("will_complete_async")
            return await core.attempt("charge", attempt=2)

    assert refusal(asyncio.run(main())) == ("InDoubt", False)
    assert len(started) == 1


def test_a_key_of_arguments_holds_over_workflows_and_another_amount_is_a_mismatch(ledger, bank):
    async def scenario(core):
        first = await core.attempt("charge", "inv-7", 1999)
        same = await core.attempt("charge", "inv-7", 1999, workflow_id="order-2", run_id="run-9")
        return first, same, await core.attempt("charge", "inv-7", 1, workflow_id="order-3")

    for guard in (
        once(key=["invoice"], match=["cents"]),
        once(key=lambda invoice, cents: invoice.upper(), match=["cents"], operation="by_function"),
    ):
        bank.charged.clear()
        first, same, other = play(ledger, bank, scenario, guard)
        assert first == same == "receipt 1"
        assert refusal(other) == ("Mismatch", False)
        assert len(bank.charged) == 1


@dataclasses.dataclass
class Receipt:
    number: int


def test_a_repeat_has_the_type_of_the_first_result(ledger):
    """In Temporal's own test environment."""
    charged = []

    @activity.defn
    async def charge(invoice: str) -> Receipt:
        charged.append(invoice)
        return Receipt(len(charged))

    class LastInterceptor(ActivityInboundInterceptor):
        def __init__(self):
            pass

        async def execute_activity(self, input):
            return await input.fn(*input.args)

    chain = OnceInterceptor(ledger, {charge: once()}).intercept_activity(LastInterceptor())

    async def main():
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, activity_type="charge")
        given = ExecuteActivityInput(charge, ["inv-7"], None, {})
        return [await environment.run(chain.execute_activity, given) for _ in range(2)]

    assert asyncio.run(main()) == [Receipt(1), Receipt(1)]
    assert len(charged) == 1


def test_a_ledger_that_cannot_be_used_is_tried_again_and_nothing_runs(bank):
    ledger = onceward.Ledger("memory:")
    guard = once()

    async def scenario(core):
        await core.attempt("charge", "inv-7", 1999)
        ledger.close()
        return await core.attempt("charge", "inv-7", 1999, attempt=2)

    assert refusal(play(ledger, bank, scenario, guard)) == ("StoreUnavailable", True)
    assert len(bank.charged) == 1


def test_a_killed_worker_leaves_a_doubt(tmp_path, bank):
    script = f"""
import asyncio, os, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import activity_core, onceward
bank = activity_core.Bank()
bank.begin = lambda invoice: os._exit(9)
activity_core.attempts(onceward.Ledger(sys.argv[1]), bank, "charge", 1)
"""
    store = tmp_path / "ledger.db"
    assert subprocess.run([sys.executable, "-c", script, store], check=False, timeout=60).returncode == 9
    with onceward.Ledger(store) as ledger:
        [second] = attempts(ledger, bank, "charge", 1)
    assert refusal(second) == ("InDoubt", False) and "onceward resolve" in second.message
    assert bank.charged == []


@pytest.mark.parametrize(
    "wrong",
    [{"key": "invoice"}, {"key": []}, {"match": ["cents"]}, {"key": str, "match": "cents"}, {"teir": "payment"}],
)
def test_a_wrong_setting_is_refused(wrong):
    with pytest.raises(onceward.InvalidCall):
        once(**wrong)


@activity.defn(name="pay")
async def pay(invoice: str, cents: int) -> str:
    return "receipt"


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"tier": "gold"}, "gold"),
        ({"key": ["invoice"], "match": ["cent"]}, "no argument `cent`; did you mean `cents`"),
        ({"key": ["invoce"]}, "no argument `invoce`"),
        ({"key": lambda invoice, cents: invoice, "match": ["cent"]}, "no argument `cent`"),
    ],
)
def test_a_wrong_name_is_refused_when_the_interceptor_is_made(ledger, wrong, reason):
    with pytest.raises(onceward.InvalidCall, match=reason):
        OnceInterceptor(ledger, {pay: once(**wrong)})


def test_an_activity_that_is_named_by_a_text_is_checked_at_its_call(ledger):
    async def main():
        guarded = {"pay": once(key=["invoice"], match=["cent"])}
        async with Core(ledger, [pay], guarded) as core:
            return await core.attempt("pay", "inv-7", 1999)

    assert refusal(asyncio.run(main())) == ("InvalidCall", False)
    with pytest.raises(onceward.InvalidCall, match="gold"):
        OnceInterceptor(ledger, {"pay": once(tier="gold")})


def test_a_function_that_is_not_an_activity_is_refused(ledger):
    with pytest.raises(onceward.InvalidCall, match="not an activity"):
        OnceInterceptor(ledger, {len: once()})


def test_a_missing_framework_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "temporalio", None)
    monkeypatch.delitem(sys.modules, "onceward.temporal")
    with pytest.raises(ImportError, match="pip install 'temporalio>=1.12'"):
        importlib.import_module("onceward.temporal")


def test_a_framework_that_is_too_old_is_named(monkeypatch):
    monkeypatch.delattr(temporalio.exceptions, "ApplicationErrorCategory")
    monkeypatch.delitem(sys.modules, "onceward.temporal")
    with pytest.raises(ImportError, match="1.12 or later"):
        importlib.import_module("onceward.temporal")


def test_the_example_charges_each_invoice_once():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "inv-7, attempt 1: receipt for inv-7",
        "inv-7, attempt 2: receipt for inv-7",
        "inv-8, attempt 1: InDoubt, no further attempt",
        "inv-8, attempt 2: InDoubt, no further attempt",
        "charged: ['inv-7', 'inv-8']",
    ]


class GuideBank:
    def __init__(self):
        self.charged = []

    async def charge(self, invoice, cents, idempotency_key):
        self.charged.append(invoice)
        return "receipt"


def test_the_code_of_the_guide_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    guide = types.ModuleType("guide")
    guide.bank = GuideBank()
    exec("\n".join(blocks), guide.__dict__)

    async def main():
        async with Core(guide.ledger, [guide.charge], guide.by_invoice.guarded) as core:
            return [await core.attempt("charge", "inv-7", 1999, workflow_id=name) for name in ("order-1", "order-2")]

    assert asyncio.run(main()) == ["receipt"] * 2
    assert len(guide.bank.charged) == 1
    error = ApplicationError("?", type="InDoubt")
    ended = ActivityError("?", **dict.fromkeys(("scheduled_event_id", "started_event_id"), 1), identity="",
                          activity_type="charge", activity_id="1", retry_state=None)
    ended.__cause__ = error
    assert guide.is_in_doubt(ended)


def test_arguments_that_are_not_part_of_the_key_may_be_anything(ledger):
    charged = []

    @activity.defn
    async def charge(invoice: str, at: datetime.datetime) -> str:
        charged.append(invoice)
        return "receipt"

    async def main(guard):
        async with Core(ledger, [charge], {charge: guard}) as core:
            return [await core.attempt("charge", "inv-7", "2026-01-01T10:00:00", attempt=n) for n in (1, 2)]

    assert asyncio.run(main(once(key=["invoice"]))) == ["receipt"] * 2 and charged == ["inv-7"]
    # A key that cannot be made never can: the attempt is not retried.
    refused = asyncio.run(main(once(key=["at"], operation="by_time")))
    assert refusal(refused[0]) == ("InvalidValue", False) and len(charged) == 1
