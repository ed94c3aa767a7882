"""Uses the package as a program of a user would. Needs nothing but Python and the package."""

import asyncio
import concurrent.futures
import dataclasses
import os
import sys
from datetime import date

import onceward

ledger = onceward.Ledger("use.db")
effects = []


@dataclasses.dataclass
class Receipt:
    number: int
    day: date


@ledger.once(operation="charge", key=["invoice"], match=["cents"], tier="payment", wait="20s")
def charge(invoice: str, cents: int, memo: str = "") -> Receipt:
    effects.append(invoice)
    return Receipt(len(effects), date(2026, 11, 18))


@ledger.once(operation="greet", key=["name"], wait="20s")
async def greet(name: str) -> str:
    effects.append(name)
    await asyncio.sleep(0.05)
    return f"hello {name}"


async def greetings() -> list[str]:
    return await asyncio.gather(*(greet("ada") for _ in range(10)))


def main() -> None:
    first = charge("i-1", 100, memo="a")
    assert charge("i-1", 100, memo="b") == first and isinstance(first, Receipt), first
    try:
        charge("i-1", 200)
        raise AssertionError("another amount was accepted")
    except onceward.Mismatch as error:
        assert "i-1" not in error.for_model()
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        receipts = list(pool.map(lambda _: charge("i-2", 100), range(10)))
    assert all(receipt == receipts[0] for receipt in receipts), receipts
    assert asyncio.run(greetings()) == ["hello ada"] * 10
    assert asyncio.run(greetings()) == ["hello ada"] * 10
    assert effects == ["i-1", "i-2", "ada"], effects
    if hasattr(os, "fork"):
        in_a_child()
    print(f"{len(effects)} effects, {ledger.stats()['replayed']} repeats")


def in_a_child() -> None:
    child = os.fork()
    if child == 0:
        # Another process: the ledger is opened again.
        code = 0 if charge("i-1", 100).number == 1 and len(effects) == 3 else 1
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert charge("i-1", 100).number == 1


if __name__ == "__main__":
    sys.exit(main())
