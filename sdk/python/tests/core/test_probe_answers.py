"""What a probe may answer: that nothing was found, or a result of the function. Everything else leaves the doubt."""

from __future__ import annotations

import asyncio
import copy
import pathlib
import pickle
from typing import Any

import onceward
import pytest
from onceward import NOT_FOUND, InDoubt, Ledger, NotFound


def test_there_is_one_not_found() -> None:
    assert NotFound() is NOT_FOUND and copy.deepcopy(NOT_FOUND) is NOT_FOUND
    assert pickle.loads(pickle.dumps(NOT_FOUND)) is NOT_FOUND


def paid_after(memory: Ledger, answer: Any, annotation: Any, is_async: bool) -> list[str]:
    """Calls a function that fails in doubt at first, and then once more."""
    ran: list[str] = []

    def act(n: int) -> Any:
        ran.append("ran")
        if len(ran) == 1:
            raise ConnectionResetError("no answer")
        return "paid"

    async def act_async(n: int) -> Any:
        return act(n)

    function: Any = act_async if is_async else act
    function.__annotations__["return"] = annotation
    pay: Any = memory.once(operation="pay", tier="payment", probe=lambda n: answer)(function)
    with pytest.raises(ConnectionResetError):
        asyncio.run(pay(1)) if is_async else pay(1)
    ran.append(asyncio.run(pay(1)) if is_async else pay(1))
    return ran


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("answer", [NOT_FOUND, NotFound, NotFound()])
def test_not_found_in_every_form_lets_the_work_run(memory: Ledger, answer: Any, is_async: bool) -> None:
    assert paid_after(memory, answer, str, is_async) == ["ran", "ran", "paid"]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("answer", "annotation"),
    [(None, str), (False, str), (False, int), (5, str), ([], "str | None"), (None, Any), (True, None), ("x", int)],
)
def test_an_answer_that_is_not_a_result_leaves_the_doubt(
    memory: Ledger, answer: Any, annotation: Any, is_async: bool
) -> None:
    with pytest.raises(InDoubt, match="the probe failed") as caught:
        paid_after(memory, answer, annotation, is_async)
    assert isinstance(caught.value.__cause__, TypeError) and "not a result of pay" in str(caught.value.__cause__)
    assert [one.status for one in memory.list()] == ["in_doubt"]


class Receipt:
    """A result that is never kept."""


@pytest.mark.parametrize(
    ("answer", "annotation"),
    [("paid", str), (None, "str | None"), (None, None), ("paid", Any), (False, bool), (Receipt(), Receipt), (1, float)],
)
def test_a_result_of_the_function_settles_the_doubt(memory: Ledger, answer: Any, annotation: Any) -> None:
    assert paid_after(memory, answer, annotation, False) == ["ran", answer]
    assert [one.status for one in memory.list()] == ["done"]


def test_a_function_that_is_not_async_runs_once_in_run_async(memory: Ledger) -> None:
    ran: list[int] = []

    def effect() -> str:
        ran.append(1)
        return "done"

    async def main() -> list[str]:
        call: Any = memory.call("op", key="k").run_async
        return [await call(effect), await call(effect)]

    assert asyncio.run(main()) == ["done", "done"] and ran == [1]


def test_a_call_that_may_not_be_tried_yet_is_not_called_running(memory: Ledger) -> None:
    @memory.once(operation="pay", key=["n"])
    def pay(n: int) -> None:
        raise onceward.Refused("busy", retry_after=30)

    with pytest.raises(onceward.Refused):
        pay(1)
    with pytest.raises(onceward.InFlight, match="may not be tried again yet; ask again in") as caught:
        pay(1)
    assert not caught.value.is_running and 25 < caught.value.retry_after <= 30
    assert "is already running" not in caught.value.for_model() and "Wait 30 s" in caught.value.for_model()


def test_settling_by_key_never_means_the_doubt_of_another_tenant(memory: Ledger) -> None:
    @memory.once(operation="transfer", key=lambda ref, who: ref, tenant=lambda ref, who: who, tier="payment")
    def transfer(ref: str, who: str) -> str:
        raise ConnectionResetError("no answer")

    for who in ("default", "acme"):
        with pytest.raises(ConnectionResetError):
            transfer("r-17", who)
    with pytest.raises(onceward.InvalidCall, match="another tenant has an intent of transfer with this key in doubt"):
        memory.resolve("transfer", "r-17", happened=True, result="found")
    assert len(memory.list(state="in_doubt")) == 2
    (acme,) = [doubt for doubt in memory.list(state="in_doubt") if doubt.tenant == "acme"]
    memory.resolve(acme, happened=True, result="found")
    assert transfer("r-17", "acme") == "found"
    assert [doubt.tenant for doubt in memory.list(state="in_doubt")] == ["default"]
    with pytest.raises(onceward.InvalidCall, match="not settled"):
        memory.resolve(acme, happened=False)
    with pytest.raises(onceward.InvalidCall, match="has its own key, tenant and version"):
        memory.resolve(acme, happened=True, tenant="acme")  # type: ignore[call-overload]
    memory.resolve("transfer", "r-17", happened=True, result="x")
    assert memory.list(state="in_doubt") == []


def test_a_doubt_that_is_settled_without_a_result_is_done_and_not_kept(memory: Ledger) -> None:
    def failing(n: int) -> Any:
        raise ConnectionResetError("no answer")

    for operation, annotation in (("typed", str), ("optional", "str | None"), ("free", Any)):
        failing.__annotations__["return"] = annotation
        pay: Any = memory.once(operation=operation, key=["n"], tier="payment")(failing)
        with pytest.raises(ConnectionResetError):
            pay(1)
        (doubt,) = memory.list(state="in_doubt")
        memory.resolve(doubt, happened=True)
        if operation == "typed":
            with pytest.raises(onceward.OutcomeNotKept, match="was settled without a result"):
                pay(1)
        else:
            assert pay(1) is None


def test_the_command_that_settles_works_in_every_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Ledger("l.db") as ledger:

        @ledger.once(operation="pay", key=["n"], tier="payment")
        def pay(n: int) -> None:
            raise ConnectionResetError("no answer")

        with pytest.raises(ConnectionResetError):
            pay(1)
        with pytest.raises(InDoubt) as caught:
            pay(1)
    assert f"--store={tmp_path}/l.db" in caught.value.settle and caught.value.store == f"{tmp_path}/l.db"
