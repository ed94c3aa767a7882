"""Uses of the package that a type checker must accept, and mistakes that it must find. The tests run mypy and pyright
on this file; it is not run itself. `assert_type` says that parameters and results are kept. A line that ends in
`# error` must be reported."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import TYPE_CHECKING

import onceward
from onceward import NOT_FOUND, Ledger

if TYPE_CHECKING:
    from typing_extensions import assert_type

ledger = Ledger("memory:", tenant="acme")


@ledger.once
def bare(n: int, /, *, note: str = "") -> str:
    return note * n


@ledger.once(operation="pay", key=["invoice"], match=["cents"], tier="payment", wait="20s", retention=timedelta(days=3))
def pay(invoice: int, cents: int = 0, *, memo: str | None = None) -> dict[str, int]:
    return {"invoice": invoice, "cents": cents}


@ledger.once(operation="later", on_error={ValueError: "keep", OSError: "retry"}, session=True, tenant=lambda n: f"t{n}")
async def later(n: int) -> list[str]:
    return [str(n)]


@ledger.once(operation="probed", probe=lambda n: NOT_FOUND, window={"of": "n", "every": "day"})
def probed(n: int) -> None: ...


class Bank:
    @ledger.once(operation="close")
    def close(self, year: int) -> bool:
        return True

    @ledger.once(operation="open")
    async def open(self, year: int) -> bool:
        return True


def accepted() -> None:
    assert_type(bare(1, note="x"), str)
    assert_type(pay(1, 2, memo=None), dict[str, int])
    assert_type(Bank().close(2026), bool)
    assert_type(onceward.options(pay, key="k", wait=timedelta(seconds=1))(1, cents=2), dict[str, int])
    assert_type(onceward.options(bare, session="s")(3), str)
    assert_type(onceward.key_of(pay, 1, cents=2), str)
    assert_type(ledger.call("a", key="k").run(pay, 1), dict[str, int])
    assert_type(ledger.consume("orders", "m1").run(functools.partial(bare, 1)), str)
    assert_type(onceward.claim().downstream_key, str)
    assert_type(ledger.get("a", "k"), "onceward.Intent | None")
    assert_type(ledger.list(state="in_doubt"), "list[onceward.Intent]")
    with ledger.begin("a", key="k") as claim:
        assert_type(claim, onceward.BlockClaim)
        claim.finish({"any": "thing"})
    try:
        pay(1)
    except onceward.InDoubt as error:
        assert_type(error.settle, str)
    except onceward.InFlight as error:
        assert_type(error.retry_after, float)
    raise onceward.Refused("busy", retry_after=3)


async def accepted_async() -> None:
    assert_type(await later(1), list[str])
    assert_type(await onceward.options(later, key="k")(1), list[str])
    assert_type(await Bank().open(2026), bool)
    assert_type(await ledger.call("a", key="k").run_async(later, 1), list[str])
    async with ledger.begin("a", key="k", tier="email") as claim:
        await claim.sent_async()
    assert_type(await ledger.enqueue_async("a", [1], key=["/0"], priority="low"), onceward.Enqueued)


def queued() -> None:
    assert_type(ledger.enqueue("a", {"b": 1}, key="k", delay="1h", tier="email").created, bool)


def refused() -> None:
    bare("one")  # error
    bare(1, note=2)  # error
    bare(n=1)  # error
    pay(1, memos="x")  # error
    onceward.options(pay, key="k")("one")  # error
    onceward.options(pay, key=7)(1)  # error
    onceward.key_of(pay, "one")  # error
    Bank().close("2026")  # error
    ledger.once(operation="a", tier="gold")(bare)  # error
    ledger.once(operation="a", in_doubt="guess")(bare)  # error
    ledger.once(operation="a", teir="payment")(bare)  # error
    ledger.call("a", key="k", wait=[])  # error
    ledger.enqueue("a", 1, key=7)  # error
    ledger.enqueue("a", 1, priority="urgent")  # error
    ledger.resolve("a", "k")  # error
    Ledger(7)  # error


@ledger.deliver("a", on_error={TimeoutError: "doubt"}, concurrency=3)
def deliver(payload: dict[str, int]) -> str:
    return str(payload["a"])


def delivered() -> None:
    assert_type(deliver({"a": 1}), str)
    assert_type(ledger.courier(), onceward.Courier)
    ledger.courier({"a": deliver}).run(until_idle=True)
    ledger.courier({"a": 7})  # error
    ledger.deliver("a", on_error="maybe")(deliver)  # error
    deliver(1)  # error
