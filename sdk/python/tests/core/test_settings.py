"""Settings of an operation: names that are checked, matches, normalisers, windows, sessions and tenants."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from typing import Any

import onceward
import pytest
from onceward import InvalidCall, Ledger, Mismatch, SessionRequired, key_of


def charge(customer: str, invoice: int, amount: float = 0, memo: str = "") -> str:
    return f"{customer} {invoice} {amount} {memo}"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"key": ["custmer"]}, "did you mean `customer`"),
        ({"key": ["/custmer/id"]}, "did you mean `customer`"),
        ({"match": ["amont"]}, "did you mean `amount`"),
        ({"window": {"of": "memmo", "every": "day"}, "key": ["customer"]}, "did you mean `memo`"),
        ({"key": ["zzz"]}, "no argument `zzz`$"),
        ({"key": []}, "names nothing"),
        ({"key": "customer"}, r"key=\['customer'\]"),
        ({"match": "amount"}, r"match=\['amount'\]"),
        ({"normalise": "trim"}, r"normalise=\['trim'\]"),
        ({"key": ["customer", "customer"]}, "twice|more than once|repeat"),
        ({"key": ["customer"], "match": ["customer"]}, "already"),
        ({"key": ["customer"], "normalise": ["upper"]}, "upper"),
        ({"teir": "payment"}, "unknown settings: teir"),
        ({"tier": "payments"}, "payments"),
        ({"in_doubt": "probe"}, "needs probe="),
        ({"in_doubt": "hold", "probe": charge}, "asked only with"),
        ({"on_error": "ignore"}, "on_error is"),
        ({"on_error": {"ValueError": "retry"}}, "not a class of exceptions"),
        ({"on_error": {ValueError: "ignore"}}, "ValueError is"),
        ({"on_error": 3}, "a word, or a dict"),
        ({"retention": -1}, "not negative"),
        ({"retention": float("nan")}, "not negative"),
        ({"wait": "soon"}, "soon"),
        ({"session": ""}, "not empty"),
        ({"session": 3}, "session= is"),
        ({"tenant": ""}, "not empty"),
        ({"key": ["customer"], "window": {"of": "now", "every": "day"}}, "allow_now"),
        ({"key": ["customer"], "window": {"of": "memo", "every": "fortnight"}}, "fortnight"),
        ({"key": ["customer"], "window": {"of": "memo", "every": "day", "zone": "Mars/Base"}}, "Mars/Base"),
        ({"key": lambda **named: "k", "window": {"of": "memo", "every": "day"}}, "window= needs"),
        ({"key": lambda **named: "k", "normalise": ["trim"]}, "normalise= needs"),
        ({"key": lambda **named: "k", "match": ["/memo/id"]}, "whole arguments"),
    ],
)
def test_mistakes_are_told_when_the_function_is_decorated(memory: Ledger, settings: dict, says: str) -> None:
    with pytest.raises(InvalidCall, match=says):
        memory.once(operation="charge", **settings)(charge)


def test_mistakes_are_told_without_a_decorator_too(memory: Ledger) -> None:
    for settings in ({"teir": "payment"}, {"match": ["/a"]}, {"window": {"of": "/a", "every": "day"}}, {"tenant": ""}):
        with pytest.raises(InvalidCall):
            memory.call("charge", key="k", **settings)
    with pytest.raises(InvalidCall):
        memory.call("charge", key="k", session="")
    with pytest.raises(InvalidCall):
        memory.call("charge").run(lambda: 1)
    with pytest.raises(InvalidCall):
        Ledger("memory:", tenant="")


@pytest.mark.parametrize("name", ["timestamp", "nonce", "request_id", "attempt", "toolCallId", "created_at"])
def test_a_volatile_name_is_refused(memory: Ledger, name: str) -> None:
    names: dict = {}
    exec(f"def send(to, {name}): return to", names)
    with pytest.raises(InvalidCall, match="volatile|retry"):
        memory.once(operation="send", key=["to", name])(names["send"])
    with pytest.raises(InvalidCall, match="volatile|retry"):
        memory.once(operation="send")(names["send"])
    memory.once(operation="send", key=["to"])(names["send"])
    memory.once(operation="send", key=["to", name], allow_volatile=True)(names["send"])


def test_the_key_leaves_the_rest_out_and_a_match_must_agree(memory: Ledger) -> None:
    pay = memory.once(operation="charge", key=["customer", "invoice"], match=["amount"])(charge)
    first = pay("c", 1, 5, "thanks")
    assert pay("c", 1, 5, "reworded") == first
    with pytest.raises(Mismatch):
        pay("c", 1, 6)
    assert pay("c", 2, 6) != first
    without_key = memory.once(operation="whole", match=["amount"])(charge)
    without_key("c", 1, 5)
    with pytest.raises(Mismatch):
        without_key("c", 1, 6)


def test_a_key_may_point_into_an_argument(memory: Ledger) -> None:
    def ship(order: dict) -> str:
        return str(order["note"])

    guarded = memory.once(operation="ship", key=["/order/id"], match=["/order/weight"])(ship)
    assert guarded({"id": 1, "weight": 2, "note": "a"}) == guarded({"id": 1, "weight": 2, "note": "b"}) == "a"
    with pytest.raises(Mismatch):
        guarded({"id": 1, "weight": 3, "note": "b"})
    with pytest.raises(InvalidCall):
        guarded({"weight": 2})


def test_a_function_can_make_the_key(memory: Ledger) -> None:
    guarded = memory.once(operation="a", key=lambda customer, invoice, **rest: f"{customer}-{invoice}")(charge)
    assert guarded("c", 1, memo="x") == guarded("c", 1, memo="y")
    assert key_of(guarded, "c", 1) == "c-1"
    matched = memory.once(operation="b", key=lambda *args, **rest: "k", match=["amount"])(charge)
    assert matched("c", 1, 5) == matched("d", 2, 5)
    with pytest.raises(Mismatch):
        matched("c", 1, 6)
    for wrong in (None, 3, b"k"):
        with pytest.raises(InvalidCall, match="a key is a str"):
            memory.once(operation="c", key=lambda *args, wrong=wrong: wrong)(charge)("c", 1)

    def at(now: int) -> int:
        return now

    assert memory.once(operation="d", key=lambda now: "k")(at)(1) == 1
    assert memory.once(operation="d", key=lambda now: "k")(at)(2) == 1, "an argument called now is like any other"


def test_normalisers_make_spellings_equal(memory: Ledger) -> None:
    def send(to: str) -> None: ...

    exact = memory.once(operation="send")(send)
    loose = memory.once(operation="send", normalise=["trim", "case", "nfc"])(send)
    assert key_of(exact, "Jose\u0301") != key_of(exact, "José"), "NFD and NFC are different texts"
    assert key_of(loose, " JOSE\u0301 ") == key_of(loose, "josé")


def test_a_window_is_one_for_each_day(memory: Ledger) -> None:
    def digest(user: int, at: datetime) -> None: ...

    berlin = {"of": "at", "every": "day", "zone": "Europe/Berlin"}
    for settings in ({"key": ["user"]}, {}, {"key": ["/user"]}):
        guarded = memory.once(operation="digest", window=berlin, **settings)(digest)
        morning = datetime(2026, 11, 15, 6, tzinfo=timezone.utc)
        assert key_of(guarded, 7, morning) == key_of(guarded, 7, morning + timedelta(hours=9))
        assert key_of(guarded, 7, morning) != key_of(guarded, 7, morning + timedelta(hours=17))
        assert key_of(guarded, 7, morning) != key_of(guarded, 8, morning)
    now = memory.once(operation="digest", key=["user"], window={"of": "now", "every": "day", "allow_now": True})(digest)
    assert key_of(now, 7, morning) != key_of(memory.once(operation="digest", key=["user"])(digest), 7, morning)


def test_sessions_are_part_of_the_key(memory: Ledger) -> None:
    calls: list[str] = []

    def greet(name: str) -> int:
        calls.append(name)
        return len(calls)

    from_caller = memory.once(operation="greet", session=True)(greet)
    with pytest.raises(SessionRequired):
        from_caller("Ana")
    with onceward.session("one"):
        assert onceward.current_session() == "one"
        assert [from_caller("Ana"), from_caller("Ana")] == [1, 1]
        with onceward.session("two"):
            assert from_caller("Ana") == 2
        assert from_caller("Ana") == 1
    assert onceward.current_session() is None and len(calls) == 2
    assert onceward.options(from_caller, session="one")("Ana") == 1
    fixed = memory.once(operation="greet", session="one")(greet)
    assert fixed("Ana") == 1
    computed = memory.once(operation="greet", session=lambda name: "two" if name == "Ana" else "")(greet)
    assert computed("Ana") == 2
    with pytest.raises(SessionRequired):
        computed("Bo")
    for wrong in ("", None, 3):
        with pytest.raises(InvalidCall), onceward.session(wrong):  # type: ignore[arg-type]
            pass
    with onceward.session("one"):
        assert memory.call("greet", intent={"name": "Ana"}, fields=["name"], session=True).key == key_of(fixed, "Ana")


def test_each_task_has_its_own_session(memory: Ledger) -> None:
    @memory.once(operation="greet", session=True)
    async def greet(name: str) -> str:
        await asyncio.sleep(0.001)
        return str(onceward.current_session())

    async def one(session: str) -> str:
        with onceward.session(session):
            return await greet("Ana")

    async def main() -> list[str]:
        return await asyncio.gather(*[one(f"s{n}") for n in range(20)])

    assert asyncio.run(main()) == [f"s{n}" for n in range(20)]


def test_a_session_may_end_in_another_context() -> None:
    import contextvars

    def inside():
        with onceward.session("one"):
            yield

    generator = inside()
    contextvars.copy_context().run(next, generator)
    generator.close()


def test_tenants_do_not_see_each_other(memory: Ledger) -> None:
    def pay(invoice: int, owner: object = "acme") -> str:
        return f"{invoice} of {owner}"

    by_argument = memory.once(operation="pay", key=["invoice"], tenant=lambda invoice, owner="acme": owner)(pay)
    assert by_argument(1) == "1 of acme" and by_argument(1, "bob") == "1 of bob"
    key = key_of(by_argument, 1)
    assert memory.get("pay", key) is None and memory.get("pay", key, tenant="bob") is not None
    assert [one.tenant for one in memory.list(tenant="acme")] == ["acme"]
    for nothing in ("", None, 3):
        with pytest.raises(InvalidCall, match="tenant"):
            by_argument(1, nothing)
    assert len(memory.list()) == 2, "no tenant is not the default tenant"
    fixed = memory.once(operation="pay", key=["invoice"], tenant="carol")(pay)
    assert fixed(1, "x") == "1 of x"
    assert onceward.options(fixed, tenant="acme")(1) == "1 of acme"


def test_a_ledger_has_a_tenant_of_its_own(store: str) -> None:
    with Ledger(store, tenant="acme") as acme, Ledger(store) as other:
        acme.call("pay", key="k").run(lambda: 1)
        assert other.get("pay", "k") is None and other.call("pay", key="k").run(lambda: 2) == 2
        assert acme.call("pay", key="k").run(lambda: 3) == 1
        assert [one.tenant for one in acme.list()] == ["acme"]


def test_durations_are_numbers_texts_or_timedeltas(memory: Ledger) -> None:
    for retention in (7200, 7200.0, "2h", timedelta(hours=2)):
        call = memory.call("keep", key=f"{retention!r}", retention=retention)
        call.run(lambda: 1)
        seen = memory.get("keep", f"{retention!r}")
        assert seen is not None and seen.record["record"]["terms"]["retention"] == 7_200_000


@pytest.mark.parametrize("setting", ["key", "match", "normalise"])
def test_an_iterator_is_refused_where_a_list_is_expected(memory: Ledger, setting: str) -> None:
    """It is empty after its first use: what `match` names would not be compared."""
    names = {"key": "invoice", "match": "cents", "normalise": "trim"}
    given: dict[str, Any] = {"key": ["invoice"], setting: (name for name in [names[setting]])}
    with pytest.raises(onceward.InvalidCall, match=f"{setting}= is a list"):
        memory.once(operation="pay", **given)(lambda invoice, cents: None)
    for collection in (list, tuple, set, dict.fromkeys):
        given[setting] = collection([names[setting]])
        memory.once(operation="pay", **given)(lambda invoice, cents: None)


def test_the_name_of_an_operation_is_a_text(memory: Ledger) -> None:
    with pytest.raises(InvalidCall, match="the name of an operation is a str, not int"):
        memory.once(operation=5, key=["invoice"])(charge)  # type: ignore[call-overload]
    with pytest.raises(InvalidCall, match="the name of an operation is a str, not int"):
        memory.call(5, key="k").run(charge, "c", 1)  # type: ignore[arg-type]
