"""Callers that give up on async tools, and async tools that are called at once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
import shop

import onceward
from onceward.testing import Cause, InvalidCheck, Kind, Once, Provider, Verdict


def test_a_caller_may_give_up_at_every_step(kit: Once) -> None:
    report = kit(shop.held_async, 42, effect="shop.pay_async").given_up_at_every_step()
    assert {str(line.scenario): (str(line.verdict), line.replayed, line.held) for line in report.lines[1:]} == {
        "given up before the claim is written": ("once", 1, 0),
        "given up after the claim is written": ("once", 1, 0),
        "given up before the effect": ("held", 0, 2),
        "given up after the effect": ("once", 0, 2),
        "given up before the outcome is written": ("once", 2, 0),
        "given up after the outcome is written": ("once", 2, 0),
    }
    assert all(line.results[0].kind == "interrupted" for line in report.lines[1:])


def test_all_scenarios_of_an_async_tool(kit: Once) -> None:
    report = kit(shop.held_async, 42, effect="shop.pay_async").check()
    assert len(report.lines) == 17
    first_words = [str(line.scenario).split()[0] for line in report.lines]
    assert first_words == ["called"] * 3 + ["the"] * 2 + ["given"] * 6 + ["killed"] * 6


def test_an_unguarded_async_tool_happens_again(kit: Once) -> None:
    report = kit(shop.unguarded_async, 42, effect="shop.pay_async").report()
    assert {str(line.verdict) for line in report.lines[1:]} == {"AGAIN"}
    assert {line.cause for line in report.violations} == {Cause.NO_LEDGER}
    assert report.verdict("given up after the effect") is Verdict.AGAIN


def test_calls_at_once_are_tasks_of_one_loop(kit: Once) -> None:
    report = kit(shop.held_async, 42, effect="shop.pay_async").at_once(5)
    assert (report.lines[1].happened, report.lines[1].refused) == (1, 4)

    async def in_one_loop() -> str:
        loop = asyncio.get_running_loop()
        loops = loop.__dict__.setdefault("seen", set()) if hasattr(loop, "__dict__") else set()
        loops.add(asyncio.current_task())
        await asyncio.sleep(0.02)
        if len(loops) == 5:
            raise RuntimeError("five tasks")
        return await shop.held_async(42)

    # A lambda that returns a coroutine is an async tool too.
    report = kit(lambda: in_one_loop(), effect="shop.pay_async").settings(at_once=5).report(Kind.AT_ONCE)
    assert {result.error for result in report.lines[1].results} == {"RuntimeError: five tasks"}


def test_a_tool_that_swallows_its_cancellation_is_found(kit: Once) -> None:
    async def tool(invoice: int) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            return await shop.held_async(invoice)
        return await shop.pay_async(invoice)

    report = kit(tool, 42, effect="shop.pay_async").report(Kind.GIVEN_UP)
    assert report.verdict("given up after the effect") is Verdict.AGAIN


def test_a_blocking_effect_in_an_async_tool_ends_before_the_caller_notices(kit: Once) -> None:
    @shop.ledger.once(operation="blocking", key=["invoice"], tier="payment")
    async def tool(invoice: int) -> str:
        receipt = shop.pay(invoice)
        await asyncio.sleep(0)
        return receipt

    report = kit(tool, 42, effect="shop.pay").given_up_at_every_step()
    line = next(line for line in report.lines if str(line.scenario) == "given up before the effect")
    assert (line.happened, line.held) == (1, 2)


def test_an_effect_in_a_thread_can_be_given_up(kit: Once) -> None:
    @shop.ledger.once(operation="thread", key=["invoice"], tier="payment")
    async def tool(invoice: int) -> str:
        return await asyncio.to_thread(shop.pay, invoice)

    kit(tool, 42, effect="shop.pay").given_up_at_every_step()


def test_the_provider_has_async_methods(kit: Once) -> None:
    async def tool(provider: Provider) -> Any:
        call = shop.ledger.call("charge", key="1", tier="payment", in_doubt="retry")

        async def work() -> Any:
            return await provider.act_with_key_async("charge", onceward.claim().downstream_key)

        return await call.run_async(work)

    async def unguarded(provider: Provider) -> Any:
        return await provider.act_async("charge")

    kit(tool, kit.provider).report(Kind.LOST_ANSWER, Kind.GIVEN_UP).assert_once().assert_held(0)
    assert not kit(unguarded, kit.provider).report(Kind.REPEATS).is_once


def test_a_check_runs_inside_a_running_loop(kit: Once) -> None:
    async def test() -> None:
        kit(shop.held_async, 42, effect="shop.pay_async").three_times()
        kit(shop.held, 42, effect="shop.pay").three_times()

    asyncio.run(test())


def test_only_async_tools_can_be_given_up(kit: Once) -> None:
    with pytest.raises(InvalidCheck, match="only calls of async tools"):
        kit(shop.held, 42, effect="shop.pay").given_up_at_every_step()
