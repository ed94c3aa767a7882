"""Calls without a decorator: blocks, messages, events, waiting, probes, nested calls, and looking at intents."""

from __future__ import annotations

import asyncio
import contextvars
import pathlib
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import onceward
import pytest
import scene
from onceward import NOT_FOUND, AlreadyDone, InDoubt, InFlight, InvalidCall, Ledger, NotSent, OutOfOrder, Unknown


def test_a_block_runs_once(memory: Ledger) -> None:
    with memory.begin("pay", key="a") as claim:
        assert onceward.claim() is claim and claim.attempt == 1 and claim.is_guarded
        assert claim.downstream_key.startswith("once_v1_") and claim.key == "a" and "pay#" in repr(claim)
        claim.finish({"receipt": 1})
    with pytest.raises(AlreadyDone) as caught, memory.begin("pay", key="a"):
        raise AssertionError("must not run")
    assert caught.value.value == {"receipt": 1} and caught.value.key == "a" and caught.value.intent.startswith("pay#")
    with pytest.raises(InvalidCall):
        onceward.claim()
    with memory.begin("pay", key="b"):
        pass
    with pytest.raises(AlreadyDone) as caught, memory.begin("pay", key="b"):
        pass
    assert caught.value.value is None


def test_an_async_block_runs_once(memory: Ledger) -> None:
    async def main() -> object:
        async with memory.begin("pay", key="a") as claim:
            claim.finish(5)
        with pytest.raises(AlreadyDone) as caught:
            async with memory.begin("pay", key="a"):
                raise AssertionError("must not run")
        return caught.value.value

    assert asyncio.run(main()) == 5


def test_a_block_that_raises_is_classified(memory: Ledger) -> None:
    for key, error, expected in [("a", NotSent("x"), "open"), ("b", Unknown("x"), "in_doubt")]:
        with pytest.raises(type(error)), memory.begin("pay", key=key):
            raise error
        assert memory.get("pay", key).status == expected  # type: ignore[union-attr]

    async def main() -> None:
        with pytest.raises(Unknown):
            async with memory.begin("pay", key="c"):
                raise Unknown("x")

    asyncio.run(main())
    assert memory.get("pay", "c").status == "in_doubt"  # type: ignore[union-attr]


def test_a_block_may_end_in_another_context(memory: Ledger) -> None:
    def inside():
        with memory.begin("pay", key="a") as claim:
            claim.finish(1)
            yield

    generator = inside()
    contextvars.copy_context().run(next, generator)
    assert next(generator, "end") == "end"
    assert memory.call("pay", key="a").run(lambda: 2) == 1


def test_a_block_that_was_not_entered_cannot_be_left(memory: Ledger) -> None:
    with pytest.raises(InvalidCall):
        memory.begin("pay", key="a").__exit__(None, None, None)


def test_a_block_asks_its_probe_before_it_runs(memory: Ledger) -> None:
    answers: list[object] = []

    def probe() -> object:
        assert onceward.claim().probe_first
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def attempt() -> str:
        with memory.begin("pay", key="a", probe=probe) as claim:
            claim.finish("ran")
            raise Unknown("x")

    with pytest.raises(Unknown):
        attempt()
    answers[:] = [ValueError("down"), NOT_FOUND, "found it"]
    with pytest.raises(InDoubt):
        attempt()
    with pytest.raises(Unknown):
        attempt()
    for _ in range(2):
        with pytest.raises(AlreadyDone) as caught:
            attempt()
        assert caught.value.value == "found it"
    assert answers == []


def test_an_async_block_asks_its_probe_before_it_runs(memory: Ledger) -> None:
    async def probe() -> str:
        return "found it"

    async def main() -> object:
        with pytest.raises(Unknown):
            async with memory.begin("pay", key="a", probe=probe):
                raise Unknown("x")
        with pytest.raises(AlreadyDone) as caught:
            async with memory.begin("pay", key="a", probe=probe):
                raise AssertionError("must not run")
        return caught.value.value

    assert asyncio.run(main()) == "found it"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_probe_settles_a_doubt(memory: Ledger, is_async: bool) -> None:
    runs: list[int] = []
    answers: list[object] = []

    def probe(invoice: int) -> object:
        assert invoice == 1 and onceward.claim().probe_first
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def probe_async(invoice: int) -> object:
        return probe(invoice)

    def pay(invoice: int) -> str:
        runs.append(invoice)
        if len(runs) < 3:
            raise Unknown("no answer")
        return "ran"

    async def pay_async(invoice: int) -> str:
        return pay(invoice)

    def call() -> object:
        return asyncio.run(guarded(1)) if is_async else guarded(1)

    guarded = memory.once(operation="pay", probe=probe_async if is_async else probe)(pay_async if is_async else pay)
    with pytest.raises(Unknown):
        call()
    for wrong in (ValueError("the service is down"), NotSent("cannot reach it")):
        answers[:] = [wrong]
        with pytest.raises(InDoubt) as caught:
            call()
        assert caught.value.__cause__ is wrong and caught.value.operation == "pay" and len(runs) == 1
    answers[:] = [NOT_FOUND]
    with pytest.raises(Unknown):
        call()
    assert len(runs) == 2
    answers[:] = ["found it"]
    assert call() == "found it" and call() == "found it" and len(runs) == 2 and answers == []


def test_an_async_probe_needs_an_async_function(memory: Ledger) -> None:
    async def probe(invoice: int) -> object:
        return NOT_FOUND

    def pay(invoice: int) -> None: ...

    with pytest.raises(InvalidCall, match="probe cannot be async"):
        memory.once(operation="pay", probe=probe)(pay)

    def sneaky() -> object:
        return probe(1)

    call = memory.call("pay", key="a", probe=sneaky)
    with pytest.raises(Unknown):
        call.run(lambda: (_ for _ in ()).throw(Unknown("x")))
    with pytest.raises(InDoubt):
        call.run(lambda: 1)
    assert memory.get("pay", "a").status == "in_doubt"  # type: ignore[union-attr]


def test_a_doubt_is_held_or_retried(memory: Ledger) -> None:
    def lost() -> None:
        raise Unknown("no answer")

    keys: list[str] = []

    def work() -> int:
        keys.append(onceward.claim().downstream_key)
        return onceward.claim().attempt

    for in_doubt in ("hold", "retry"):
        with pytest.raises(Unknown):
            memory.call("pay", key=in_doubt, in_doubt=in_doubt).run(lost)
    for _ in range(2):
        with pytest.raises(InDoubt) as caught:
            memory.call("pay", key="hold").run(work)
    assert caught.value.since is not None and abs(caught.value.since.timestamp() - time.time()) < 60
    assert memory.call("pay", key="retry", in_doubt="retry").run(work) == 2
    assert len(keys) == 1


def test_repeats_wait_or_are_told_that_it_runs(memory: Ledger) -> None:
    began, may_end = threading.Event(), threading.Event()

    @memory.once(operation="pay")
    def pay(invoice: int) -> str:
        began.set()
        assert may_end.wait(20)
        return "paid"

    first = threading.Thread(target=pay, args=(1,))
    first.start()
    assert began.wait(20)
    with pytest.raises(InFlight) as caught:
        pay(1)
    assert caught.value.retry_after > 0
    start = time.monotonic()
    with pytest.raises(InFlight):
        onceward.options(pay, wait=0.2)(1)
    assert 0.15 < time.monotonic() - start < 5
    threading.Timer(0.1, may_end.set).start()
    assert onceward.options(pay, wait="20s")(1) == "paid"
    first.join()


def test_waiting_callers_are_told_that_the_owner_failed(memory: Ledger) -> None:
    began, may_end = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    @memory.once(operation="pay", wait="20s")
    def pay(invoice: int, error: object = None) -> str:
        raise AssertionError("replaced below")

    def work() -> None:
        began.set()
        assert may_end.wait(20)
        raise NotSent("no route")

    def repeat() -> None:
        try:
            memory.call("pay", key="a", wait="20s").run(work)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat) for _ in range(3)]
    threads[0].start()
    assert began.wait(20)
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.1)
    may_end.set()
    for thread in threads:
        thread.join()
    kinds = sorted(type(error).__name__ for error in errors)
    assert kinds == ["NotSent", "OwnerFailed", "OwnerFailed"]
    assert "no route" in next(error.reason for error in errors if isinstance(error, onceward.OwnerFailed))


def test_a_message_is_handled_once(memory: Ledger) -> None:
    handled: list[str] = []
    for _ in range(3):
        memory.consume("orders", "m1").run(handled.append, "m1")
    memory.consume("orders", "m2").run(handled.append, "m2")
    memory.consume("refunds", "m1").run(handled.append, "other")
    assert handled == ["m1", "m2", "other"]


def test_events_are_handled_in_order(memory: Ledger) -> None:
    handled: list[int] = []

    def event(number: int) -> int | None:
        def handle() -> int:
            handled.append(number)
            return number

        return memory.consume_event("billing", "order-17", number, result=int).run(handle)

    with pytest.raises(OutOfOrder) as caught:
        event(2)
    assert (caught.value.expected, caught.value.given) == (1, 2)
    assert [event(1), event(2), event(1), event(2), event(3)] == [1, 2, 1, 2, 3]
    with pytest.raises(OutOfOrder):
        event(5)
    assert handled == [1, 2, 3]


def test_nested_calls_have_claims_of_their_own(memory: Ledger) -> None:
    seen: list[str] = []

    @memory.once(operation="inner")
    def inner(n: int) -> str:
        seen.append(onceward.claim().intent)
        return onceward.claim().downstream_key

    @memory.once(operation="outer")
    def outer(n: int) -> list[str]:
        before = onceward.claim().downstream_key
        result = [inner(n), inner(n)]
        assert onceward.claim().downstream_key == before
        return [before, *result]

    first = outer(1)
    assert outer(1) == first and len(set(first)) == 2 and len(seen) == 1


@pytest.mark.parametrize("how", ["sync", "async", "task", "thread", "block", "other ledger"])
def test_a_call_inside_of_itself_is_refused_instead_of_waiting_for_itself(tmp_path: pathlib.Path, how: str) -> None:
    with Ledger(tmp_path / "a.db") as ledger, Ledger(tmp_path / "a.db") as other:

        @ledger.once(operation="pay", key=["n"], wait="30s")
        def pay(n: int) -> int:
            if how == "other ledger":
                return other.call("pay", intent={"n": n}, fields=["n"], wait="30s", result=int).run(pay, n)
            return pay(n)

        @ledger.once(operation="pay", key=["n"], wait="30s")
        async def pay_async(n: int) -> int:
            if how == "thread":
                return await asyncio.to_thread(pay, n)
            return await (asyncio.create_task(pay_async(n)) if how == "task" else pay_async(n))

        def in_block() -> None:
            with ledger.begin("pay", key="k"), ledger.begin("pay", key="k", wait="30s"):
                pass

        begun = time.monotonic()
        with pytest.raises(onceward.InvalidCall, match="is called inside of itself"):
            if how == "block":
                in_block()
            elif how in ("sync", "other ledger"):
                pay(1)
            else:
                asyncio.run(pay_async(1))
        assert time.monotonic() - begun < 10


def test_calls_inside_of_others_with_one_name_are_not_calls_of_themselves(memory: Ledger) -> None:
    with Ledger("memory:") as other:

        @memory.once(operation="count", key=["n"], tenant=lambda n, tenant="default": tenant)
        def count(n: int, tenant: str = "default") -> int:
            return 0 if n == 0 else 1 + count(n - 1)

        @other.once(operation="count", key=["n"])
        def count_elsewhere(n: int) -> int:
            return count(n)

        assert count_elsewhere(3) == 3
        assert memory.call("count", key="a").run(count, 5, tenant="acme") == 5


def test_what_a_guarded_call_has_started_may_call_it_once_it_has_ended(memory: Ledger) -> None:
    @memory.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        async def later() -> int:
            await asyncio.sleep(0.1)
            return await pay(n)

        tasks.append(asyncio.create_task(later()))
        return n

    tasks: list[asyncio.Task[int]] = []

    async def main() -> None:
        assert await pay(1) == 1
        assert await tasks[0] == 1

    asyncio.run(main())


def test_a_claim_says_the_same_key_on_every_attempt(memory: Ledger) -> None:
    keys: list[tuple[int, str]] = []

    @memory.once(operation="pay")
    def pay(invoice: int) -> None:
        keys.append((onceward.claim().attempt, onceward.claim().downstream_key))
        raise NotSent("x")

    for invoice in (1, 1, 2):
        with pytest.raises(NotSent):
            pay(invoice)
    assert [attempt for attempt, _ in keys] == [1, 2, 1]
    assert keys[0][1] == keys[1][1] != keys[2][1]


def test_intents_can_be_listed_and_settled(memory: Ledger) -> None:
    for key in ("a", "b", "c"):
        with pytest.raises(Unknown):
            memory.call("pay", key=key).run(lambda: (_ for _ in ()).throw(Unknown("no answer")))
    memory.call("pay", key="d").run(lambda: 1)
    assert {one.key for one in memory.list(state="in_doubt")} == {"a", "b", "c"}
    assert len(memory.list(limit=2)) == 2 and len(memory.list()) == 4
    seen = memory.get("pay", "a")
    assert seen is not None and seen.attempts == 1 and seen.doubt_since is not None
    assert "no answer" in (seen.error or "")
    memory.resolve("pay", "a", happened=True, result={"receipt": 7}, by="ops", note="seen at the bank")
    assert memory.call("pay", key="a").run(lambda: 2) == {"receipt": 7}
    memory.resolve("pay", "b", happened=False)
    assert memory.call("pay", key="b").run(lambda: 2) == 2
    memory.resolve("pay", "c", happened=True, result=b"raw", result_type=bytes)
    assert memory.call("pay", key="c", result=bytes).run(lambda: b"again") == b"raw"
    for wrong in ("nothing", "d"):
        with pytest.raises(InvalidCall):
            memory.resolve("pay", wrong, happened=False)
    with pytest.raises(InvalidCall):
        memory.list(state="lost")
    assert memory.get("pay", "nothing") is None


def test_a_list_is_as_long_as_it_has_to_be(memory: Ledger) -> None:
    for n in range(450):
        memory.call("pay", key=f"k{n}").run(lambda: None)
    for limit in (0, 1, 199, 200, 201, 400, 449, 450, 1000):
        listed = memory.list(limit=limit)
        assert len({one.key for one in listed}) == len(listed) == min(limit, 450)
    with pytest.raises((ValueError, OverflowError)):
        memory.list(limit=-1)


def test_a_doubt_that_has_changed_is_not_settled(memory: Ledger) -> None:
    with pytest.raises(Unknown):
        memory.call("pay", key="a").run(lambda: (_ for _ in ()).throw(Unknown("x")))
    version = memory.get("pay", "a").version  # type: ignore[union-attr]
    with pytest.raises(InvalidCall, match="not settled"):
        memory.resolve("pay", "a", happened=True, version=version - 1)
    with pytest.raises(InvalidCall, match="cannot be kept"):
        memory.resolve("pay", "a", happened=True, result=object(), version=version)
    memory.resolve("pay", "a", happened=True, version=version)


def test_a_closed_ledger_says_so(store: str) -> None:
    ledger = Ledger(store)
    call = ledger.call("pay", key="a")
    ledger.close()
    ledger.close()
    for use in (lambda: call.run(lambda: 1), lambda: ledger.get("pay", "a"), ledger.list, ledger.stats):
        with pytest.raises(onceward.StoreUnavailable, match="closed"):
            use()


LATE_OWNER = """
import asyncio, sys, onceward, scene
ledger = onceward.Ledger(sys.argv[1])

@ledger.once(operation="pay", key=["invoice"], in_doubt="retry", max_runtime=0.2)
async def pay(invoice: int) -> str:
    scene.Effects(sys.argv[2]).add(f"first {invoice}")
    print("began", flush=True)
    await asyncio.sleep(30)
    return "first"

async def main():
    try:
        await pay(int(sys.argv[3]))
    except onceward.ClaimLost as error:
        if hasattr(asyncio.current_task(), "cancelling"):
            assert asyncio.current_task().cancelling() == 0
        await asyncio.sleep(0.01)
        print("lost", error.operation, flush=True)

asyncio.run(main())
"""


def test_a_claim_that_another_caller_may_take_over_is_lost(ledger: Ledger, store: str, effects: scene.Effects) -> None:
    @ledger.once(operation="pay", key=["invoice"], in_doubt="retry", max_runtime=0.2)
    def pay(invoice: int) -> str:
        effects.add(f"second {invoice}")
        return "second"

    def taken_over(invoice: int) -> bool:
        first = scene.start(LATE_OWNER, store, effects.path, invoice)
        assert first.stdout is not None and first.stdout.readline() == "began\n"
        first.send_signal(signal.SIGSTOP)
        # A process that was stopped in the middle of a write keeps others waiting until it goes on.
        going_on = threading.Timer(3, first.send_signal, [signal.SIGCONT])
        going_on.start()
        time.sleep(0.8)
        try:
            result = attempt(pay, invoice)
        finally:
            is_late = going_on.is_alive()
            going_on.cancel()
            first.send_signal(signal.SIGCONT)
        if not is_late or result is None:
            first.kill()
            first.communicate()
            return False
        out, err = first.communicate(timeout=20)
        assert (first.returncode, out, err) == (0, "lost pay\n", "")
        assert effects.count(f"first {invoice}") == effects.count(f"second {invoice}") == 1
        return True

    assert any(taken_over(invoice) for invoice in range(5))


def attempt(pay: Callable[[int], str], invoice: int) -> str | None:
    try:
        return pay(invoice)
    except onceward.Error:
        return None


@pytest.mark.parametrize("number", [-1, 2**63, True, "1", 1.0, None])
def test_a_number_that_is_not_one_of_an_item_is_refused(memory: Ledger, number: Any) -> None:
    with pytest.raises(InvalidCall, match="the number of an item is"):
        memory.consume_event("billing", "account-7", number)
    assert memory.list() == []


def test_a_stream_that_is_not_a_text_and_a_negative_limit_are_refused(memory: Ledger) -> None:
    with pytest.raises(InvalidCall, match="item= is a stream and a number"):
        memory.call("billing", item="a1")  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="a stream is a str, not int"):
        memory.consume_event("billing", 7, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="limit= is a number of intents"):
        memory.list(limit=-1)
