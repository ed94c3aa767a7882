"""Delivers entries to functions: each once, whatever the functions raise, and however couriers end."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import signal
import threading
import time
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Optional, TypedDict
from uuid import UUID

import onceward
import pydantic
import pytest
import scene
from onceward import NOT_FOUND, InvalidCall, Ledger


def status(ledger: Ledger, key: str, operation: str = "mail") -> str:
    found = ledger.get(operation, key)
    assert found is not None
    return found.status


def test_each_entry_is_delivered_once(ledger: Ledger, effects: scene.Effects) -> None:
    keys = []

    @ledger.deliver("mail")
    def send(letter: dict[str, str]) -> str:
        claim = onceward.claim()
        keys.append((claim.key, claim.downstream_key, claim.attempt, claim.intent.partition("#")[0]))
        effects.add(letter["to"])
        return f"sent to {letter['to']}"

    for number in range(20):
        for _ in range(3):
            ledger.enqueue("mail", {"to": f"u{number}"}, key=f"k{number}")
    ledger.courier().run(until_idle=True)
    ledger.courier().run(until_idle=True)
    assert effects.count() == 20 and effects.repeated() == {}
    assert ledger.enqueue("mail", {"to": "u7"}, key="k7", result=str).result == "sent to u7"
    assert len({key for _, key, _, _ in keys}) == 20 and {(attempt, name) for _, _, attempt, name in keys} == {(1, "mail")}
    assert all(downstream.startswith("once_v1_") for _, downstream, _, _ in keys)


def test_async_functions_deliver_in_the_event_loop(ledger: Ledger, effects: scene.Effects) -> None:
    async def send(to: str) -> None:
        assert asyncio.get_running_loop() is loops[-1]
        await asyncio.sleep(0.01)
        effects.add(f"{to} {onceward.claim().key}")

    loops: list[object] = []

    async def main(first: int) -> None:
        loops.append(asyncio.get_running_loop())
        for number in range(first, first + 10):
            await ledger.enqueue_async("mail", f"u{number}", key=f"k{number}")
        await ledger.courier({"mail": send}).run_async(until_idle=True)

    asyncio.run(main(0))
    asyncio.run(main(10))
    assert sorted(effects.all()) == sorted(f"u{n} k{n}" for n in range(20))
    ledger.enqueue("mail", "last")
    courier = ledger.courier({"mail": lambda to: effects.add(to)})
    courier.run(until_idle=True)
    assert effects.count("last") == 1


def test_event_loops_on_several_threads_share_the_work(ledger: Ledger, effects: scene.Effects) -> None:
    async def send(number: int) -> None:
        await asyncio.sleep(0.001)
        effects.add(number)

    for number in range(60):
        ledger.enqueue("mail", number)
    threads = [threading.Thread(target=lambda: ledger.courier({"mail": send}).run(until_idle=True)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    scene.wait_until(lambda: all(one.status == "done" for one in ledger.list(limit=None)))
    assert effects.count() == 60 and effects.repeated() == {}


def test_a_courier_in_the_background_delivers_what_is_queued_meanwhile(ledger: Ledger, effects: scene.Effects) -> None:
    with ledger.courier({"mail": effects.add}):
        ledger.enqueue("mail", "a")
        scene.wait_until(lambda: effects.count("a") == 1)
        ledger.enqueue("mail", "b")
        scene.wait_until(lambda: effects.count("b") == 1)
    ledger.enqueue("mail", "c")
    time.sleep(0.3)
    assert effects.all() == ["a", "b"]

    async def send(name: str) -> None:
        effects.add(name)

    async def main() -> None:
        async with ledger.courier({"mail": send}):
            await ledger.enqueue_async("mail", "d")
            while effects.count() < 4:
                await asyncio.sleep(0.01)

    asyncio.run(main())
    assert effects.repeated() == {}


class CardDeclined(Exception):
    pass


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "on_error", "expected", "attempts"),
    [
        (onceward.NotSent("refused"), "classify", "dead", 2),
        (onceward.Refused("busy"), "classify", "dead", 2),
        (onceward.Permanent("no such customer"), "classify", "done", 1),
        (onceward.Unknown("no answer"), "classify", "in_doubt", 1),
        (TimeoutError("slow"), "classify", "in_doubt", 1),
        (KeyError("x"), "classify", "in_doubt", 1),
        (KeyError("x"), "retry", "dead", 2),
        (KeyError("x"), "keep", "done", 1),
        (KeyError("x"), "doubt", "in_doubt", 1),
        (CardDeclined("x"), {CardDeclined: "keep"}, "done", 1),
        (ConnectionRefusedError("x"), {ConnectionRefusedError: "retry"}, "dead", 2),
        (SystemExit(1), "retry", "in_doubt", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value)[:12],
)
def test_an_exception_says_what_became_of_the_effect(
    memory: Ledger, is_async: bool, error: BaseException, on_error: Any, expected: str, attempts: int
) -> None:
    tried = []

    def send(_payload: object) -> None:
        tried.append(1)
        raise error

    async def send_async(payload: object) -> None:
        send(payload)

    memory.deliver("mail", on_error=on_error)(send_async if is_async else send)
    memory.enqueue("mail", 1, key="a", max_attempts=2)
    courier = memory.courier()
    end = time.monotonic() + 20
    while status(memory, "a") == "queued":
        assert time.monotonic() < end
        if is_async and isinstance(error, SystemExit):
            with pytest.raises(SystemExit):
                courier.run(until_idle=True)
        else:
            courier.run(until_idle=True)
        time.sleep(0.02)
    assert (status(memory, "a"), len(tried)) == (expected, attempts)
    if expected == "done":
        assert isinstance(memory.enqueue("mail", 1, key="a").error, onceward.Failed)


def test_a_retry_has_the_same_downstream_key(memory: Ledger) -> None:
    keys = []

    def send(_payload: object) -> str:
        keys.append((onceward.claim().downstream_key, onceward.claim().attempt))
        if len(keys) < 3:
            raise onceward.Unknown("no answer")
        return "sent"

    memory.enqueue("mail", 1, key="a", in_doubt="retry")
    with memory.courier({"mail": send}):
        scene.wait_until(lambda: status(memory, "a") == "done", 20)
    assert [attempt for _, attempt in keys] == [1, 2, 3] and len({key for key, _ in keys}) == 1


def test_a_key_can_be_passed_on_as_it_is(memory: Ledger) -> None:
    keys = []
    memory.deliver("mail", passes_key=True)(lambda _payload: keys.append(onceward.claim().downstream_key))
    memory.enqueue("mail", 1, key="invoice-7")
    memory.courier().run(until_idle=True)
    assert keys == ["invoice-7"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_probe_settles_a_doubt_before_another_attempt(memory: Ledger, is_async: bool) -> None:
    happened: dict[str, list[int]] = {"sent": [], "asked": []}

    def send(number: int) -> str:
        happened["sent"].append(number)
        raise onceward.Unknown("no answer") if happened["sent"].count(number) == 1 else AssertionError("sent twice")

    def find(number: int) -> object:
        happened["asked"].append(number)
        assert onceward.claim().probe_first
        if happened["asked"].count(number) == 1:
            raise ConnectionError("the provider is down")
        return f"found {number}"

    async def send_async(number: int) -> str:
        return send(number)

    async def find_async(number: int) -> object:
        return find(number)

    memory.deliver("mail", probe=find_async if is_async else find)(send_async if is_async else send)
    memory.enqueue("mail", 7, key="a", in_doubt="probe")
    end = time.monotonic() + 20
    while status(memory, "a") != "done" and time.monotonic() < end:
        memory.courier().run(until_idle=True)
        time.sleep(0.02)
    assert memory.enqueue("mail", 7, key="a").result == "found 7"
    assert happened == {"sent": [7], "asked": [7, 7]}


def test_what_a_probe_does_not_find_is_sent_after_the_settle_time(memory: Ledger) -> None:
    sent = []

    @memory.deliver("mail", probe=lambda _number: NOT_FOUND, settle="200ms")
    def send(number: int) -> None:
        sent.append(time.monotonic())
        if len(sent) == 1:
            raise onceward.Unknown("no answer")

    memory.enqueue("mail", 7, key="a", in_doubt="probe")
    with memory.courier():
        scene.wait_until(lambda: status(memory, "a") == "done", 20)
    assert len(sent) == 2 and sent[1] - sent[0] >= 0.2


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: float


class Extra(TypedDict):
    note: str


class Model(pydantic.BaseModel):
    day: date
    cents: Decimal
    to: str = pydantic.Field(alias="recipient")


@dataclasses.dataclass
class Everything:
    name: str
    count: int
    ratio: float
    day: date
    moment: datetime
    cents: Decimal
    id: UUID
    colour: Colour
    data: bytes
    point: Point
    pair: tuple[int, str]
    days: list[date]
    prices: dict[str, Decimal]
    maybe: Optional[date]
    either: "int | Decimal"
    kind: Literal["a", "b"]
    extra: Extra
    model: Model


def test_a_payload_comes_back_as_the_annotated_type(memory: Ledger) -> None:
    given = Everything(
        "ada", 10**30, 1.0, date(2026, 11, 19), datetime(2026, 11, 19, 9, 30, 0, 500_000, timezone.utc), Decimal("19.9"),
        UUID(int=7), Colour.RED, b"\x00\xff", Point(1, 2.5), (1, "x"), [date(2026, 1, 1)], {"a": Decimal("0.5")}, None,
        Decimal("2.5"), "b", {"note": "n"}, Model(day=date(2026, 1, 1), cents=Decimal("1.5"), recipient="bob"),
    )  # fmt: skip
    got = []

    @memory.deliver("mail")
    def send(letter: Everything) -> None:
        got.append(letter)

    memory.enqueue("mail", given)
    memory.courier().run(until_idle=True)
    assert got == [given] and type(got[0].point) is Point and type(got[0].ratio) is float


def test_a_payload_of_another_type_is_dead_at_once_and_does_not_stop_its_neighbours(memory: Ledger) -> None:
    got = []

    @memory.deliver("mail")
    def send(letter: Model) -> None:
        got.append(letter.to)

    memory.enqueue("mail", {"secret": "hunter2"}, key="poison")
    memory.enqueue("mail", Model(day=date(2026, 1, 1), cents=Decimal(1), recipient="ada"), key="good")
    memory.courier().run(until_idle=True)
    assert (status(memory, "poison"), status(memory, "good"), got) == ("dead", "done", ["ada"])
    error = memory.get("mail", "poison").error  # type: ignore[union-attr]
    assert error is not None and "payload" in error and "hunter2" not in error


def test_a_result_that_cannot_be_kept_is_done_all_the_same(memory: Ledger, effects: scene.Effects) -> None:
    def send(name: str) -> object:
        effects.add(name)
        return object()

    memory.enqueue("mail", "a", key="a")
    for _ in range(2):
        memory.courier({"mail": send}).run(until_idle=True)
    assert effects.all() == ["a"]
    assert isinstance(memory.enqueue("mail", "a", key="a").error, onceward.OutcomeNotKept)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"concurrency": True}, {"max_runtime": "x"}, {"on_error": "maybe"}])
def test_wrong_settings_are_refused(memory: Ledger, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall):
        memory.deliver("mail", **wrong)(lambda _payload: None)
        memory.courier().run(until_idle=True)


def test_wrong_functions_are_refused(memory: Ledger) -> None:
    async def sleeps(_payload: object) -> None: ...

    for wrong in (lambda: None, lambda _a, _b: None, 7):
        with pytest.raises(InvalidCall):
            memory.courier({"mail": wrong})  # type: ignore[dict-item]
    with pytest.raises(InvalidCall, match="probe"):
        memory.deliver("mail", probe=lambda _payload: None)(sleeps)
    with pytest.raises(InvalidCall, match="async with"):
        memory.courier({"mail": sleeps}).__enter__()
    with pytest.raises(InvalidCall, match="function"):
        memory.courier()
    memory.deliver("mail")(lambda _payload: None)
    with pytest.raises(InvalidCall, match="already"):
        memory.deliver("mail")(lambda _payload: None)
    with memory.courier() as courier, pytest.raises(InvalidCall, match="running"):
        courier.run()
    with pytest.raises(InvalidCall, match="store itself"):
        onceward.Ledger("http://127.0.0.1:1").courier({"mail": lambda _payload: None}).run()


def test_a_courier_that_stops_waits_for_its_attempts(memory: Ledger, effects: scene.Effects) -> None:
    begun = threading.Event()

    def send(name: str) -> None:
        begun.set()
        time.sleep(0.3)
        effects.add(name)

    memory.enqueue("mail", "a", key="a")
    courier = memory.courier({"mail": send})
    stopper = threading.Thread(target=lambda: (begun.wait(), courier.stop()))
    stopper.start()
    courier.run()
    stopper.join()
    assert effects.all() == ["a"] and status(memory, "a") == "done"


def test_a_cancelled_courier_waits_for_its_attempts(memory: Ledger, effects: scene.Effects) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def send(name: str) -> None:
            begun.set()
            await asyncio.sleep(0.3)
            effects.add(name)

        task = asyncio.ensure_future(memory.courier({"mail": send}).run_async())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    memory.enqueue("mail", "a", key="a")
    asyncio.run(main())
    assert effects.all() == ["a"] and status(memory, "a") == "done"


RUNNING = """
import asyncio, os, signal, sys, time, onceward, scene
store, path, how = sys.argv[1:4]
effects = scene.Effects(path)
ledger = onceward.Ledger(store)

@ledger.deliver("mail", concurrency=4)
def send(number: int) -> None:
    time.sleep(0.002)
    effects.add(number)

async def send_async(number: int) -> None:
    await asyncio.sleep(0.002)
    effects.add(number)

courier = ledger.courier({"mail": send_async}) if how == "async" else ledger.courier()
signal.signal(signal.SIGTERM, lambda *_: courier.stop())
print("began", flush=True)
try:
    courier.run()
except KeyboardInterrupt:
    print("interrupted", flush=True)
print("ended", flush=True)
"""


@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize(("sent", "said"), [(signal.SIGTERM, "ended\n"), (signal.SIGINT, "interrupted\nended\n")])
def test_a_signal_ends_a_courier_cleanly(
    ledger: Ledger, store: str, effects: scene.Effects, how: str, sent: signal.Signals, said: str
) -> None:
    for number in range(400):
        ledger.enqueue("mail", number)
    process = scene.start(RUNNING, store, effects.path, how)
    assert process.stdout is not None and process.stdout.readline() == "began\n"
    scene.wait_until(lambda: effects.count() > 0)
    process.send_signal(sent)
    out, err = process.communicate(timeout=scene.PROGRAM_SECONDS)
    assert (out, err, process.returncode) == (said, "", 0)
    done = len(ledger.list(state="done", limit=None))
    assert done == effects.count() and effects.repeated() == {} and not ledger.list(state="in_doubt")
    assert done + len(ledger.list(state="queued", limit=None)) == 400


def test_a_program_that_forgets_its_courier_ends(ledger: Ledger, store: str, effects: scene.Effects) -> None:
    code = """
    import sys, onceward, scene
    ledger = onceward.Ledger(sys.argv[1])
    courier = ledger.courier({"mail": scene.Effects(sys.argv[2]).add}).__enter__()
    ledger.enqueue("mail", "a")
    scene.wait_until(lambda: scene.Effects(sys.argv[2]).count() == 1)
    """
    scene.check(code, store, effects.path)
    assert effects.count() == 1


def test_a_forked_child_has_couriers_of_its_own(ledger: Ledger, store: str, effects: scene.Effects) -> None:
    code = """
    import os, sys, onceward, scene
    ledger, effects = onceward.Ledger(sys.argv[1]), scene.Effects(sys.argv[2])
    courier = ledger.courier({"mail": effects.add})
    with courier:
        ledger.enqueue("mail", "parent")
        scene.wait_until(lambda: effects.count("parent") == 1)
        child = os.fork()
        if child == 0:
            courier.stop()
            own = ledger.courier({"note": effects.add})
            ledger.enqueue("note", "child")
            own.run(until_idle=True)
            os._exit(0 if effects.count("child") == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        ledger.enqueue("mail", "after")
        scene.wait_until(lambda: effects.count("after") == 1)
    """
    scene.check(code, store, effects.path, options=scene.QUIET_FORKS)
    assert sorted(effects.all()) == ["after", "child", "parent"]


@pytest.mark.parametrize("how", ["sync", "async"])
def test_couriers_that_are_killed_repeat_nothing_and_lose_nothing(
    ledger: Ledger, store: str, effects: scene.Effects, how: str
) -> None:
    entries, kills = 600, 2 * scene.ROUNDS
    for number in range(entries):
        ledger.enqueue("mail", number, key=str(number))
    for _ in range(kills):
        process = scene.start(RUNNING, store, effects.path, how)
        assert process.stdout is not None and process.stdout.readline() == "began\n"
        before = effects.count()
        scene.wait_until(lambda: effects.count() > before + 10, 30)
        process.kill()
        process.communicate()
    process = scene.start(RUNNING, store, effects.path, how)
    scene.wait_until(lambda: not ledger.list(state="queued") and not ledger.list(state="running"), 60)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=scene.PROGRAM_SECONDS)[1] == ""
    assert effects.repeated() == {}
    doubts = {int(one.key) for one in ledger.list(state="in_doubt", limit=None)}
    # Each of the killed couriers was in some attempts.
    assert 0 < len(doubts) <= kills * 32
    assert {int(name) for name in effects.all()} | doubts == set(range(entries))
    assert len(ledger.list(state="done", limit=None)) == entries - len(doubts)
