"""What an exception says about the effect, and what becomes of the claim."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import pathlib
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import timedelta
from typing import Any

import onceward
import pytest
import scene
from onceward import Failed, InDoubt, InFlight, Ledger, NotSent, Permanent, Refused, Unknown

# What an intent is after an attempt that ended like this.
RELEASED, KEPT, IN_DOUBT = "open", "done", "in_doubt"


def status_after(
    ledger: Ledger, error: BaseException, *, sent: bool = False, is_async: bool = False, **settings: Any
) -> str:
    """Runs a function that raises, checks that the caller gets this very error, and returns the state of the intent."""

    def work() -> None:
        if sent:
            onceward.claim().sent()
        raise error

    async def work_async() -> None:
        if sent:
            await onceward.claim().sent_async()
        raise error

    key = f"k{len(ledger.list(limit=200))}"
    call = ledger.call("work", key=key, marks_sent=sent, **settings)
    with pytest.raises(BaseException) as caught:
        if is_async:
            asyncio.run(call.run_async(work_async))
        else:
            call.run(work)
    assert caught.value is error
    seen = ledger.get("work", key)
    assert seen is not None
    return seen.status


@pytest.mark.parametrize("is_async", [False, True])
def test_failures_with_a_class(memory: Ledger, is_async: bool) -> None:
    for on_error in ("classify", "retry", "doubt", "keep"):
        for tier in (None, "payment"):
            settings = {"on_error": on_error, "tier": tier, "is_async": is_async}
            assert status_after(memory, NotSent("no route"), **settings) == RELEASED
            assert status_after(memory, Refused("busy"), **settings) == RELEASED
            assert status_after(memory, Permanent("declined"), **settings) == KEPT
            assert status_after(memory, Unknown("no answer"), **settings) == IN_DOUBT


def test_a_permanent_failure_is_raised_to_every_repeat(memory: Ledger) -> None:
    calls: list[int] = []

    @memory.once(operation="pay")
    def pay(invoice: int) -> int:
        calls.append(invoice)
        raise Permanent("card declined")

    with pytest.raises(Permanent):
        pay(1)
    for _ in range(2):
        with pytest.raises(Failed) as caught:
            pay(1)
    assert "card declined" in caught.value.reason and calls == [1]
    assert (caught.value.operation, caught.value.key) == ("pay", onceward.key_of(pay, 1))
    assert caught.value.intent.startswith("pay#")


@pytest.mark.parametrize("retry_after", [30, 30.0, timedelta(seconds=30)])
def test_a_refusal_says_when_to_try_again(memory: Ledger, retry_after: object) -> None:
    @memory.once(operation="pay")
    def pay(invoice: int) -> int:
        raise Refused("busy", retry_after=retry_after)  # type: ignore[arg-type]

    with pytest.raises(Refused):
        pay(1)
    with pytest.raises(InFlight) as caught:
        pay(1)
    assert 25 < caught.value.retry_after <= 30


@pytest.mark.parametrize("retry_after", [None, 0, -5, float("nan"), "soon", object()])
def test_a_refusal_with_a_useless_time_can_be_tried_again_at_once(memory: Ledger, retry_after: object) -> None:
    assert status_after(memory, Refused("busy", retry_after=retry_after)) == RELEASED  # type: ignore[arg-type]


def test_the_most_specific_class_counts(memory: Ledger) -> None:
    on_error = {Exception: "doubt", OSError: "keep", ConnectionError: "retry", KeyboardInterrupt: "retry"}

    class Lost(ConnectionResetError): ...

    class Mixed(ValueError, ConnectionError): ...

    cases = [
        (ValueError("x"), IN_DOUBT),
        (OSError("x"), KEPT),
        (ConnectionError("x"), RELEASED),
        (Lost("x"), RELEASED),
        (Mixed("x"), RELEASED),
        (KeyboardInterrupt(), RELEASED),
        (NotSent("x"), RELEASED),
        (Permanent("x"), KEPT),
        (Unknown("x"), IN_DOUBT),
    ]
    for error, expected in cases:
        assert status_after(memory, error, on_error=on_error) == expected, error
    assert status_after(memory, NotSent("x"), on_error={NotSent: "doubt"}) == IN_DOUBT
    assert status_after(memory, ValueError("x"), on_error={OSError: "keep"}) == RELEASED
    assert status_after(memory, ValueError("x"), on_error={OSError: "keep"}, tier="email") == IN_DOUBT


def test_an_interrupt_is_a_doubt(memory: Ledger) -> None:
    for error in (KeyboardInterrupt(), SystemExit(3), GeneratorExit(), asyncio.CancelledError()):
        assert status_after(memory, error) == IN_DOUBT


def test_the_chain_of_an_error_can_only_add_doubt(memory: Ledger) -> None:
    def chained(error: BaseException, *, cause: BaseException | None = None, context: BaseException | None = None):
        error.__context__ = context
        if cause is not None:
            error.__cause__ = cause
        return error

    assert status_after(memory, ValueError("bad")) == RELEASED
    assert status_after(memory, chained(ValueError("bad"), cause=TimeoutError("timed out"))) == IN_DOUBT
    assert status_after(memory, chained(ValueError("bad"), context=TimeoutError())) == IN_DOUBT
    assert status_after(memory, chained(ValueError("bad"), cause=Unknown("hm"))) == IN_DOUBT
    assert status_after(memory, chained(ValueError("bad"), cause=NotSent("hm")), tier="email") == IN_DOUBT
    assert status_after(memory, chained(NotSent("bad"), cause=TimeoutError("timed out"))) == RELEASED
    assert status_after(memory, chained(ValueError("bad"), context=KeyError())) == RELEASED
    assert status_after(memory, KeyError()) == IN_DOUBT, "an error without a message says nothing"
    loop = ValueError("bad")
    loop.__context__ = chained(KeyError("x"), context=loop)
    assert status_after(memory, loop) == RELEASED
    deep: BaseException = TimeoutError("timed out")
    for level in range(50):
        deep = chained(ValueError(f"level {level}"), cause=deep)
    assert status_after(memory, deep) == IN_DOUBT
    for level in range(1000):
        deep = chained(ValueError(f"level {level}"), cause=deep)
    assert status_after(memory, deep) == IN_DOUBT, "what was not looked at is unknown"


def test_the_class_of_an_error_is_evidence(memory: Ledger) -> None:
    lost_connections = (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)
    for base in (*lost_connections, TimeoutError, EOFError, InterruptedError):
        lost = type("PaymentError", (base,), {})
        assert status_after(memory, lost("sorry")) == IN_DOUBT, base
        assert status_after(memory, lost("sorry"), on_error="retry") == RELEASED
    assert status_after(memory, ConnectionRefusedError("sorry")) == RELEASED


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 has exception groups")
def test_a_group_with_an_unknown_member_is_a_doubt(memory: Ledger) -> None:
    class Lost(Exception): ...

    group = ExceptionGroup  # noqa: F821
    plain = [ValueError(f"bad {n}") for n in range(30)]
    assert status_after(memory, group("several", plain)) == RELEASED
    assert status_after(memory, group("several", [*plain, Unknown("hm")])) == IN_DOUBT
    assert status_after(memory, group("several", [group("inner", [*plain, Unknown("hm")])])) == IN_DOUBT
    assert status_after(memory, group("several", [*plain, TimeoutError("timed out")])) == IN_DOUBT
    assert status_after(memory, group("several", [Lost("x")]), on_error={Lost: "doubt"}) == IN_DOUBT
    assert status_after(memory, group("several", [NotSent("x")]), tier="email") == IN_DOUBT, (
        "other tasks of the group were cancelled, perhaps in the middle"
    )


def test_every_disposition_agrees_with_its_vector(memory: Ledger) -> None:
    vectors = json.loads((scene.ROOT / "spec/vectors/errors.json").read_text())["dispositions"]
    errors = {"not_sent": NotSent("x"), "final": Permanent("x"), "unknown": Unknown("x")}
    for case in vectors:
        kind = case["class"]
        if isinstance(kind, str):
            error: BaseException = errors[kind]
        elif "refused" in kind:
            error = Refused("x", retry_after=(kind["refused"]["retry_after"] or 0) / 1000)
        else:
            error = ValueError("Read timed out" if kind["unclassified"]["evidence"] else "boom")
        tier = "payment" if case["tier_declared"] else None
        found = status_after(memory, error, sent=case["marked_sent"], on_error=case["on_error"], tier=tier)
        expected = {"keep": KEPT, "doubt": IN_DOUBT}.get(str(case["expect"]), RELEASED)
        assert found == expected, case["name"]


def test_a_message_that_is_not_text_does_not_hide_the_error(memory: Ledger) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert status_after(memory, ValueError("bad name \udcff")) == RELEASED
    assert status_after(memory, ValueError("x" * 5_000_000)) == RELEASED
    assert status_after(memory, Silent()) == IN_DOUBT, "an error without a message says nothing"

    class Odd(Exception):
        exceptions = 7

    assert status_after(memory, Odd("odd")) == RELEASED


def test_a_note_says_what_became_of_the_intent(memory: Ledger) -> None:
    error = Unknown("no answer")
    status_after(memory, error)
    retried = Unknown("no answer")
    status_after(memory, retried, in_doubt="retry")
    if sys.version_info >= (3, 11):
        assert "in doubt" in error.__notes__[0] and "held" in error.__notes__[0]
        assert "held" not in retried.__notes__[0]


def test_a_crash_before_sent_leaves_no_doubt(ledger: Ledger, store: str, effects: scene.Effects) -> None:
    code = """
    import os, sys, onceward
    ledger = onceward.Ledger(sys.argv[1])
    def work():
        if sys.argv[2] == "after":
            onceward.claim().sent()
        os._exit(7)
    ledger.call("print", key=sys.argv[2], marks_sent=True).run(work)
    """
    for when in ("before", "after"):
        assert scene.run(code, store, when).returncode == 7
    assert ledger.call("print", key="before", marks_sent=True).run(lambda: 5) == 5
    with pytest.raises(InDoubt):
        ledger.call("print", key="after", marks_sent=True).run(lambda: 5)


def test_sent_can_be_marked_in_async_code(memory: Ledger) -> None:
    @memory.once(operation="print", marks_sent=True)
    async def label(parcel: int) -> int:
        if parcel == 2:
            await onceward.claim().sent_async()
        raise ValueError("bad")

    async def main(parcel: int) -> None:
        with pytest.raises(ValueError):
            await label(parcel)

    asyncio.run(main(1))
    asyncio.run(main(2))
    assert [one.status for one in memory.list()] in ([IN_DOUBT, RELEASED], [RELEASED, IN_DOUBT])


def test_a_store_that_is_down_stops_the_work_or_lets_it_run(tmp_path: pathlib.Path) -> None:
    store = tmp_path / "onceward.db"
    ledger = Ledger(store)
    calls: list[bool] = []

    def work() -> int:
        calls.append(onceward.claim().is_guarded)
        if len(calls) == 3:
            raise ValueError("bad")
        return len(calls)

    ledger.call("pay", key="a").run(work)
    for name in os.listdir(tmp_path):
        os.unlink(tmp_path / name)
    with pytest.raises(onceward.StoreUnavailable):
        ledger.call("pay", key="b").run(work)
    assert ledger.call("pay", key="c", store_down="open").run(work) == 2
    with pytest.raises(ValueError):
        ledger.call("pay", key="c", store_down="open").run(work)
    assert asyncio.run(ledger.call("pay", key="d", store_down="open").run_async(as_async(work))) == 4
    assert calls == [True, False, False, False] and ledger.stats()["unguarded"] == 3


def as_async(work):
    async def later():
        return work()

    return later


def test_a_failure_that_cannot_be_recorded_does_not_hide_the_error(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from onceward import _failures

    def broken(*arguments: object) -> None:
        raise RuntimeError("classify is broken")

    monkeypatch.setattr(_failures, "classify", broken)
    with caplog.at_level(logging.WARNING, "onceward"), pytest.raises(ValueError, match="the work"):
        ledger.call("pay", key="a").run(lambda: (_ for _ in ()).throw(ValueError("the work")))
    assert "could not be recorded" in caplog.text
    scene.wait_until(lambda: ledger.get("pay", "a").status == IN_DOUBT)  # type: ignore[union-attr]


def named(name: str, text: str, *bases: type[Exception]) -> Exception:
    """An error of a package that is not installed here."""
    made: Exception = type(name, bases or (Exception,), {})(text)
    return made


LOST = [
    named("ClientPayloadError", "Response payload is not completed"),
    named("ConnectionClosedError", "no close frame received or sent"),
    named("StreamReset", "<StreamReset stream_id:1, error_code:2>"),
    named("InterfaceError", "connection is closed"),
    named("APIConnectionError", "Unexpected error communicating with Stripe."),
    named("ClientError", "An error occurred (InternalFailure) when calling the SendEmail operation"),
    named("CardError", "it is derived", named("APIConnectionError", "").__class__),
    ssl.SSLError("[SSL] record layer failure"),
    OSError(errno.EIO, "Input/output error"),
    BrokenProcessPool("A process in the process pool was terminated abruptly"),
    subprocess.CalledProcessError(-9, ["send"]),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_work_that_was_cut_off_is_in_doubt_without_a_tier(memory: Ledger, error: Exception) -> None:
    assert status_after(memory, error) == IN_DOUBT
    wrapped = ValueError("it failed")
    wrapped.__cause__ = error
    assert status_after(memory, wrapped) == IN_DOUBT


@pytest.mark.parametrize(
    "error", [ssl.SSLCertVerificationError("bad"), subprocess.CalledProcessError(1, ["send"]), OSError(errno.ENOENT, "no file")]
)
def test_work_that_failed_as_a_whole_is_not_in_doubt_without_a_tier(memory: Ledger, error: Exception) -> None:
    assert status_after(memory, error) == RELEASED


def test_an_unreadable_result_is_not_shown(memory: Ledger) -> None:
    import decimal

    memory.call("kept", key="k").run(lambda: "hunter2-token")
    with pytest.raises(onceward.Unreadable) as caught:
        memory.call("kept", key="k", result=decimal.Decimal).run(lambda: decimal.Decimal(1))
    error = caught.value
    assert "hunter2" not in str(error) and "hunter2" not in error.reason and error.__cause__ is None
    assert error.result_json == b'"hunter2-token"'


@pytest.mark.parametrize("failure", [NotSent("no route"), Refused("busy")])
@pytest.mark.parametrize("how", ["sync", "async", "block", "thread"])
def test_what_a_guarded_call_inside_says_proves_nothing_about_the_work_around_it(
    memory: Ledger, how: str, failure: Exception
) -> None:
    charged: list[int] = []

    @memory.once(operation="mail", key=["order"])
    def mail(order: int) -> None:
        raise type(failure)(*failure.args)

    @memory.once(operation="order", key=["order"], tier="payment")
    def order(order: int) -> None:
        charged.append(order)
        if how == "thread":
            with ThreadPoolExecutor() as pool:
                return pool.submit(mail, order).result()
        if how == "block":
            with memory.begin("mail", key="m"):
                raise type(failure)(*failure.args)
        mail(order)

    @memory.once(operation="order", key=["order"], tier="payment")
    async def order_async(order: int) -> None:
        charged.append(order)
        mail(order)

    for expected in (type(failure), InDoubt):
        with pytest.raises(expected):
            asyncio.run(order_async(1)) if how == "async" else order(1)  # type: ignore[func-returns-value]
    assert charged == [1]
    assert {one.operation: one.status for one in memory.list()} == {"order": IN_DOUBT, "mail": RELEASED}


def test_the_work_around_a_guarded_call_can_say_that_nothing_happened(memory: Ledger) -> None:
    @memory.once(operation="mail", key=["order"])
    def mail(order: int) -> None:
        raise NotSent("no route")

    def raised_anew() -> None:
        try:
            mail(1)
        except NotSent as error:
            raise NotSent("nothing was done before the mail") from error

    assert pytest.raises(NotSent, memory.call("order", key="a", tier="payment").run, raised_anew)
    assert pytest.raises(NotSent, memory.call("order", key="b", tier="payment", on_error={NotSent: "retry"}).run, mail, 1)
    assert {one.status for one in memory.list()} == {RELEASED}


def test_an_exception_that_takes_no_attributes_is_recorded(memory: Ledger) -> None:
    class Sealed(Exception):
        def __setattr__(self, name: str, value: object) -> None:
            raise ZeroDivisionError("sealed")

    def work() -> None:
        raise Sealed("no answer")

    with pytest.raises((Sealed, ZeroDivisionError)):
        memory.call("work", key="k", tier="payment").run(work)
    assert [one.status for one in memory.list()] == [IN_DOUBT]


def test_one_exception_that_is_raised_again_and_again_speaks_for_each_call(memory: Ledger) -> None:
    """As a constant of a module, or one that a test double keeps."""
    unreachable = NotSent("no route")

    def work() -> None:
        raise unreachable

    for _ in range(3):
        with pytest.raises(NotSent):
            memory.call("work", key="k", tier="payment").run(work)
    assert [one.status for one in memory.list()] == [RELEASED]
