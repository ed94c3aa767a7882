"""Cancelled tasks, closed coroutines and closed loops: no claim is lost, and no work that has not begun is in doubt."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import onceward
import pytest
import scene
from onceward import AlreadyDone, Ledger
from onceward._native import NativeClaim


def settled(ledger: Ledger, operation: str, key: str) -> str:
    """The state of an intent once nothing is written any more; `new` without a record."""
    states: list[str] = []

    def is_stable() -> bool:
        seen = ledger.get(operation, key)
        states.append("new" if seen is None else seen.status)
        return states[-1] != "running" and states[-3:].count(states[-1]) == 3

    scene.wait_until(is_stable)
    return states[-1]


def again(pay: Callable[[int], Coroutine[Any, Any, int]], n: int) -> int:
    """Calls it once more. What was given back may still be on its way to the disk."""
    return asyncio.run(onceward.options(pay, wait="20s")(n))


@pytest.mark.parametrize("steps", range(8))
def test_a_start_that_is_cancelled_leaves_no_doubt(ledger: Ledger, effects: scene.Effects, steps: int) -> None:
    """Cancels after each number of steps of the loop: before, while and after the claim is written."""

    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        effects.add(n)
        return n

    async def main(n: int) -> bool:
        task = asyncio.ensure_future(pay(n))
        for _ in range(steps):
            await asyncio.sleep(0 if steps < 4 else 0.0005)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return False
        return True

    for n in range(10 * scene.ROUNDS):
        is_done = asyncio.run(main(n))
        state = settled(ledger, "pay", onceward.key_of(pay, n))
        assert effects.count(n) == (state == "done"), (n, state)
        assert state in ("new", "open", "done") and (state == "done" or not is_done)
        assert again(pay, n) == n and effects.count(n) == 1


def test_a_task_that_is_cancelled_when_its_claim_is_there_gives_it_back(ledger: Ledger) -> None:
    """Cancels after the loop has the claim and before the task goes on: the task never sees the claim."""
    ran: list[int] = []

    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        ran.append(n)
        return n

    async def main(n: int) -> asyncio.Future[Any] | None:
        """The future of the claim; None if the claim was there at once, so that there was no future."""
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(pay(n))
        make, pending = loop.create_future, []

        def create_future() -> asyncio.Future[Any]:
            pending.append(make())
            # The first callback of the future: the task is woken by the last one.
            pending[-1].add_done_callback(lambda _: task.cancel())
            return pending[-1]

        loop.create_future = create_future  # type: ignore[method-assign]
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return None if n in ran else pending[0]

    seen = 0
    for n in range(30):
        future = asyncio.run(main(n))
        if future is not None:
            seen += 1
            assert isinstance(future.result(), NativeClaim)
            assert settled(ledger, "pay", onceward.key_of(pay, n)) == "open"
        if seen == 5:
            return
    pytest.fail(f"only {seen} of 30 claims came later")


@pytest.mark.parametrize("in_doubt", ["hold", "retry"])
def test_work_that_is_cancelled_is_in_doubt(ledger: Ledger, in_doubt: str) -> None:
    began: list[int] = []
    cleaned: list[int] = []

    @ledger.once(operation="pay", key=["n"], in_doubt=in_doubt)  # type: ignore[arg-type]
    async def pay(n: int) -> int:
        began.append(n)
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            cleaned.append(n)
        return n

    async def main(n: int) -> None:
        task = asyncio.ensure_future(pay(n))
        while n not in began:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.sleep(0)
        # A second one, while the first is being recorded.
        if n % 2:
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    for n in range(4):
        asyncio.run(main(n))
        assert settled(ledger, "pay", onceward.key_of(pay, n)) == "in_doubt"
    assert cleaned.count(0) == 1

    async def limited() -> None:
        await asyncio.wait_for(pay(7), 0.5)

    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(limited())
    assert settled(ledger, "pay", onceward.key_of(pay, 7)) == "in_doubt"


def test_a_finish_that_is_cancelled_is_recorded(ledger: Ledger, effects: scene.Effects) -> None:
    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> str:
        effects.add(n)
        # Cancelled from here on: the work is done.
        asyncio.get_running_loop().call_soon(tasks[n].cancel)
        return f"paid {n}"

    tasks: dict[int, asyncio.Task] = {}

    async def main(n: int) -> None:
        tasks[n] = asyncio.ensure_future(pay(n))
        # A finish that is written at once leaves nothing to cancel.
        with contextlib.suppress(asyncio.CancelledError):
            await tasks[n]

    for n in range(10):
        asyncio.run(main(n))
        assert settled(ledger, "pay", onceward.key_of(pay, n)) == "done"
        assert asyncio.run(pay(n)) == f"paid {n}" and effects.count(n) == 1
    assert any(task.cancelled() for task in tasks.values())


def test_blocks_can_be_cancelled(ledger: Ledger) -> None:
    began: list[int] = []

    async def main(n: int) -> None:
        async with ledger.begin("pay", key=f"k{n}"):
            began.append(n)
            await asyncio.sleep(30)

    async def cancelled(n: int) -> None:
        task = asyncio.ensure_future(main(n))
        while not began:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled(1))
    assert settled(ledger, "pay", "k1") == "in_doubt"


def test_a_coroutine_that_is_closed_in_its_work_is_in_doubt(ledger: Ledger) -> None:
    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> None:
        await asyncio.sleep(30)

    async def block(n: int) -> None:
        async with ledger.begin("pay", key=f"k{n}"):
            await asyncio.sleep(30)

    async def main(how: str) -> None:
        running = asyncio.ensure_future(asyncio.sleep(0.05))
        coroutines = [pay(1), block(1)] if how == "close" else [pay(2), block(2)]
        tasks = []
        for coroutine in coroutines:
            waiting = coroutine.send(None)
            while not waiting.done():
                await asyncio.sleep(0.001)
            # Now it waits in its work.
            tasks.append(coroutine.send(None))
        if how == "close":
            for coroutine in coroutines:
                coroutine.close()
        del coroutine
        coroutines.clear()
        gc.collect()
        await running
        for task in tasks:
            task.cancel()

    unraisable: list[object] = []
    sys.unraisablehook = unraisable.append
    try:
        asyncio.run(main("close"))
        asyncio.run(main("drop"))
    finally:
        sys.unraisablehook = sys.__unraisablehook__
    assert unraisable == []
    for n in (1, 2):
        assert settled(ledger, "pay", onceward.key_of(pay, n)) == "in_doubt"
        assert settled(ledger, "pay", f"k{n}") == "in_doubt"


def test_a_coroutine_that_is_closed_before_its_claim_leaves_no_doubt(ledger: Ledger) -> None:
    ran: list[int] = []

    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        ran.append(n)
        return n

    async def main(n: int) -> None:
        coroutine = pay(n)
        with contextlib.suppress(StopIteration):
            coroutine.send(None)
        coroutine.close()
        await asyncio.sleep(0.01 * (n % 3))

    for n in range(9):
        asyncio.run(main(n))
        # On a busy machine the claim may be there at once: then the work is done before the first pause, or the whole call is.
        assert settled(ledger, "pay", onceward.key_of(pay, n)) in (("done",) if n in ran else ("new", "open"))
        assert again(pay, n) == n


def test_a_loop_that_is_closed_while_a_start_is_pending_leaves_no_doubt(ledger: Ledger) -> None:
    ran: list[int] = []

    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        ran.append(n)
        return n

    for n in range(6 * scene.ROUNDS):
        loop = asyncio.new_event_loop()
        task = loop.create_task(pay(n))
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            del task
            gc.collect()
        # A claim that was there at once let the work run, and its end is recorded although the loop has gone.
        expected = ("done",) if n in ran else ("new", "open")
        assert settled(ledger, "pay", onceward.key_of(pay, n)) in expected
        assert again(pay, n) == n and ran.count(n) == 1


def test_a_context_that_ends_elsewhere_does_not_matter(ledger: Ledger) -> None:
    async def stream():
        async with ledger.begin("pay", key="a") as claim:
            yield 1
            claim.finish("done")

    async def main() -> None:
        generator = stream()
        assert await asyncio.ensure_future(anext_of(generator)) == 1
        with pytest.raises(StopAsyncIteration):
            await asyncio.ensure_future(anext_of(generator))

    asyncio.run(main())
    with pytest.raises(AlreadyDone) as caught, ledger.begin("pay", key="a"):
        pass
    assert caught.value.value == "done"


async def anext_of(generator):
    return await generator.__anext__()


def test_a_wait_that_is_cancelled_does_not_touch_the_owner(ledger: Ledger) -> None:
    began: list[int] = []

    @ledger.once(operation="pay", key=["n"])
    async def pay(n: int) -> int:
        began.append(n)
        await asyncio.sleep(0.3)
        return n

    async def main() -> int:
        owner = asyncio.ensure_future(pay(1))
        while not began:
            await asyncio.sleep(0.001)
        waiting = [asyncio.ensure_future(onceward.options(pay, wait="20s")(1)) for _ in range(10)]
        await asyncio.sleep(0.02)
        for task in waiting[::2]:
            task.cancel()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results[::2]] == [asyncio.CancelledError] * 5
        assert results[1::2] == [1] * 5
        return await owner

    assert asyncio.run(main()) == 1
