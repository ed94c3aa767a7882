"""The decorator: what it keeps of a function, and which calls are the same intent."""

from __future__ import annotations

import asyncio
import functools
import inspect

import onceward
import pytest
from onceward import InvalidCall, Ledger, key_of


def test_signature_name_and_annotations_are_kept(memory: Ledger) -> None:
    def pay(invoice: int, /, cents: int = 5, *, note: str = "") -> str:
        """Pays."""
        return "paid"

    guarded = memory.once(operation="pay")(pay)
    assert inspect.signature(guarded) == inspect.signature(pay)
    assert guarded.__wrapped__ is pay  # type: ignore[attr-defined]
    assert (guarded.__name__, guarded.__doc__, guarded.__module__) == ("pay", "Pays.", __name__)
    assert guarded.__annotations__ == pay.__annotations__
    assert onceward.guarded(guarded).function is pay
    assert not inspect.iscoroutinefunction(guarded)


def test_the_first_call_runs_and_repeats_get_its_result(memory: Ledger) -> None:
    calls: list[int] = []

    @memory.once(operation="pay")
    def pay(invoice: int) -> list[int]:
        calls.append(invoice)
        return [invoice, len(calls)]

    assert [pay(1), pay(1), pay(invoice=1), pay(2)] == [[1, 1], [1, 1], [1, 1], [2, 2]]
    assert calls == [1, 2]
    assert memory.stats()["acquired"] == 2 and memory.stats()["replayed"] == 2


def test_an_async_function_stays_one(memory: Ledger) -> None:
    calls: list[int] = []

    @memory.once(operation="pay")
    async def pay(invoice: int) -> int:
        await asyncio.sleep(0)
        calls.append(invoice)
        return len(calls)

    async def main() -> list[int]:
        return [await pay(1), await pay(1), await pay(2)]

    assert inspect.iscoroutinefunction(pay)
    assert asyncio.run(main()) == [1, 1, 2]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("f(1)", "f(1, 5)"),
        ("f(1)", "f(1, cents=5)"),
        ("f(1, 5, note='x')", "f(1, note='x', cents=5)"),
        ("f(1, 5.0)", "f(1, 5)"),
    ],
)
def test_the_way_of_passing_an_argument_does_not_matter(memory: Ledger, left: str, right: str) -> None:
    def pay(invoice: int, /, cents: float = 5, *, note: str = "") -> str:
        return "paid"

    f = functools.partial(key_of, memory.once(operation="pay")(pay))
    assert eval(left) == eval(right)
    assert eval(left) != f(1, 6) and eval(left) != f(2)


def test_wrong_arguments_are_a_type_error_and_nothing_runs(memory: Ledger) -> None:
    @memory.once(operation="pay")
    def pay(invoice: int, /, *, note: str) -> None:
        raise AssertionError("must not run")

    for arguments, named in [((), {}), ((1, 2), {"note": "x"}), ((), {"invoice": 1, "note": "x"}), ((1,), {"x": 1})]:
        with pytest.raises(TypeError):
            pay(*arguments, **named)  # type: ignore[arg-type]
    assert memory.list() == []


def test_parameters_may_have_any_name(memory: Ledger) -> None:
    def odd(_0: int, _d0: int, /, _wanted: int, bind: int = 3, *, name: int = 4, value: int = 5, __0: int = 6) -> None:
        """Names that a wrapper might use itself."""

    def odder(___n: int, /, _1: int, *_2: int, **_3: int) -> None: ...

    keys = {key_of(memory.once(operation="odd")(odd), 1, 2, 3, name=n) for n in range(4)}
    assert len(keys) == 4
    guarded = memory.once(operation="odder", key=["___n", "_1", "_2", "_3", "_9"])(odder)
    assert len({key_of(guarded, 1, 2, *rest, _9=9) for rest in [(), (3,), (3, 4)]}) == 3
    assert key_of(guarded, 1, 2, _9=9) != key_of(guarded, 1, 2, _9=9, _8=8), "_3 is in the key, with all that it holds"


def test_the_rest_of_the_arguments_can_be_in_the_key(memory: Ledger) -> None:
    def send(to: str, *lines: str, **headers: str) -> None: ...

    with pytest.raises(InvalidCall, match="takes any arguments"):
        memory.once(operation="send")(send)
    by_lines = memory.once(operation="send", key=["to", "lines"])(send)
    assert key_of(by_lines, "a", "x") != key_of(by_lines, "a", "y")
    assert key_of(by_lines, "a", "x", subject="1") == key_of(by_lines, "a", "x", subject="2")
    by_header = memory.once(operation="send", key=["to", "subject"])(send)
    assert key_of(by_header, "a", subject="1") != key_of(by_header, "a", subject="2")
    with pytest.raises(InvalidCall):
        by_header("a")
    by_headers = memory.once(operation="send", key=["to", "headers"])(send)
    assert key_of(by_headers, "a", x="1") != key_of(by_headers, "a", x="1", y="2")


def test_methods_class_methods_and_static_methods(memory: Ledger) -> None:
    class Bank:
        calls: list[str] = []

        @memory.once(operation="pay", key=["invoice"])
        def pay(self, invoice: int) -> str:
            self.calls.append("pay")
            return f"paid {invoice}"

        @memory.once(operation="audit", key=["year"])
        @classmethod
        def audit(cls, year: int) -> str:
            return f"{cls.__name__} {year}"

        @classmethod
        @memory.once(operation="close", key=["year"])
        def close(cls, year: int) -> str:
            return f"{cls.__name__} {year}"

        @memory.once(operation="ping")
        @staticmethod
        def ping(host: str) -> str:
            Bank.calls.append("ping")
            return host

        @memory.once(operation="later", key=["invoice"])
        async def later(self, invoice: int) -> int:
            return invoice

    bank = Bank()
    assert [bank.pay(1), Bank().pay(1), bank.pay(2)] == ["paid 1", "paid 1", "paid 2"]
    assert [bank.audit(1), Bank.audit(1), Bank.close(2), bank.close(2)] == ["Bank 1"] * 2 + ["Bank 2"] * 2
    assert [bank.ping("a"), Bank.ping("a")] == ["a", "a"]
    assert Bank.calls == ["pay", "pay", "ping"]
    assert asyncio.run(bank.later(3)) == 3
    assert key_of(bank.pay, 1) == key_of(Bank.pay, bank, 1) != key_of(bank.pay, 2)
    assert key_of(Bank.audit, 1) != key_of(Bank.audit, 2)
    assert onceward.options(bank.pay, key="mine")(1) == "paid 1"
    assert memory.get("pay", "mine") is not None


def test_callable_objects_and_partials(memory: Ledger) -> None:
    class Sender:
        sent = 0

        def __call__(self, to: str) -> int:
            self.sent += 1
            return self.sent

    class Later:
        async def __call__(self, to: str) -> str:
            return to

    send = memory.once(operation="send", key=["to"])(Sender())
    assert [send("a"), send("a"), send("b")] == [1, 1, 2]
    later = memory.once(operation="later", key=["to"])(Later())
    assert inspect.iscoroutinefunction(later) and asyncio.run(later("x")) == "x"
    with pytest.raises(InvalidCall, match="operation="):
        memory.once(Sender())


def test_arguments_that_a_partial_holds_are_part_of_the_intent(memory: Ledger) -> None:
    def pay(account: str, invoice: int, *, cents: int) -> str:
        return f"{account} {invoice} {cents}"

    def of(account: str, cents: int = 1):
        return memory.once(operation="pay")(functools.partial(functools.partial(pay, account), cents=cents))

    assert of("a")(7) == "a 7 1"
    assert of("b")(7) == "b 7 1", "another account is another intent"
    assert of("a", 2)(7) == "a 7 2"
    assert of("a")(7, cents=2) == "a 7 2"
    assert of("a")(7) == "a 7 1" and memory.stats()["replayed"] == 2


def test_generators_are_refused(memory: Ledger) -> None:
    def lines(n: int):
        yield n

    async def later(n: int):
        yield n

    class Lines:
        def __call__(self, n: int):
            yield n

    for one in (lines, later, functools.partial(lines, 1), Lines()):
        with pytest.raises(InvalidCall, match="generator"):
            memory.once(operation="lines")(one)


def test_a_tier_needs_the_name_of_the_operation(memory: Ledger) -> None:
    def pay(invoice: int) -> None: ...

    with pytest.raises(InvalidCall, match="operation="):
        memory.once(tier="payment")(pay)
    memory.once(tier="payment", operation="pay")(pay)


def test_names_of_nested_functions_do_not_last(memory: Ledger) -> None:
    def pay(invoice: int) -> None: ...

    with pytest.raises(InvalidCall, match="no lasting name"):
        memory.once(pay)
    with pytest.raises(InvalidCall, match="no lasting name"):
        memory.once()(lambda invoice: None)
    guarded = memory.once(at_the_top)
    assert onceward.guarded(guarded).name == f"{__name__}.at_the_top"


def at_the_top(invoice: int) -> None: ...


def test_a_second_guard_of_the_same_operation_is_refused(memory: Ledger) -> None:
    def pay(invoice: int) -> int:
        return invoice

    guarded = memory.once(operation="pay")(pay)
    with pytest.raises(InvalidCall, match="guarded already"):
        memory.once(operation="pay")(guarded)
    assert memory.once(operation="outer")(guarded)(3) == 3


def test_a_function_that_returns_an_awaitable_is_told(memory: Ledger) -> None:
    async def later(invoice: int) -> int:
        return invoice

    @memory.once(operation="pay")
    def pay(invoice: int):
        return later(invoice)

    with pytest.raises(TypeError, match="awaitable"):
        pay(1)
    assert memory.list(state="in_doubt") == []

    @memory.once(operation="start")
    async def start(invoice: int):
        return asyncio.ensure_future(later(invoice))

    with pytest.raises(TypeError, match="awaitable"):
        asyncio.run(start(1))
    assert [one.operation for one in memory.list(state="in_doubt")] == ["start"], "the task may still act"


def test_something_that_is_not_guarded_is_told(memory: Ledger) -> None:
    for use in (onceward.guarded, onceward.options, key_of):
        with pytest.raises(InvalidCall, match="not guarded"):
            use(at_the_top)


def test_options_do_not_skip_a_decorator_above_the_guard(memory: Ledger) -> None:
    checked: list[int] = []

    def allowed(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(n: int) -> Any:
            checked.append(n)
            return function(n)

        return wrapper

    @allowed
    @memory.once(operation="pay", key=["n"])
    def pay(n: int) -> int:
        return n

    with pytest.raises(InvalidCall, match="decorators above @ledger.once, which options"):
        onceward.options(pay, wait="1s")(1)
    assert pay(2) == 2 and checked == [2]


def test_options_apply_to_one_call(memory: Ledger) -> None:
    @memory.once(operation="pay")
    def pay(invoice: int) -> int:
        """Pays."""
        return invoice

    mine = onceward.options(pay, key="mine", tenant="acme")
    assert mine(1) == 1 and (mine.__name__, mine.__doc__) == ("pay", "Pays.")
    assert memory.get("pay", "mine") is None and memory.get("pay", "mine", tenant="acme") is not None
    with pytest.raises(onceward.Mismatch):
        mine(2)
    assert pay(2) == 2
    with pytest.raises(InvalidCall, match="not guarded"):
        onceward.options(mine, key="other")

    @memory.once(operation="later")
    async def later(invoice: int) -> int:
        return invoice

    assert inspect.iscoroutinefunction(onceward.options(later, key="a"))
    assert asyncio.run(onceward.options(later, key="a", wait=0.5)(1)) == 1
    for wrong in ({"tenant": ""}, {"session": ""}, {"wait": -1}):
        with pytest.raises(InvalidCall):
            onceward.options(pay, **wrong)(1)  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="key is empty"):
        onceward.options(pay, key="")(1)
