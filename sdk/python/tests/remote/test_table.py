"""The same behaviour on a ledger in a file and behind HTTP."""

import asyncio
import dataclasses
import threading
from datetime import datetime, timezone

import pytest

import onceward


class Effects:
    """Counts what happened."""

    def __init__(self):
        self.count = 0

    def happen(self, result=None):
        self.count += 1
        return result


@pytest.fixture
def effects():
    return Effects()


def test_a_repeat_gets_the_result_of_the_first_run(ledger, key, effects):
    @ledger.once(operation="email", key=["to"])
    def send(to: str, body: str) -> str:
        return effects.happen(f"sent {body} under {onceward.claim().downstream_key}")

    first = send(key, "hello")
    assert send(key, "hello again") == first
    assert effects.count == 1
    assert "once_v1_" in first


def test_an_async_function_runs_once(ledger, key, effects):
    @ledger.once(operation="email", key=["to"])
    async def send(to: str) -> dict[str, int]:
        await asyncio.sleep(0)
        return effects.happen({"number": effects.count})

    async def twice():
        return [await send(key), await send(key)]

    assert asyncio.run(twice()) == [{"number": 0}, {"number": 0}]
    assert effects.count == 1


def test_other_arguments_that_must_agree_are_a_mismatch(ledger, key, effects):
    @ledger.once(operation="charge", key=["invoice"], match=["cents"], normalise=["number"])
    def charge(invoice: str, cents: int | str) -> str:
        return effects.happen("charged")

    assert charge(key, 100) == charge(key, "100.0")
    with pytest.raises(onceward.Mismatch) as raised:
        charge(key, 200)
    assert (raised.value.operation, raised.value.key) == ("charge", onceward.key_of(charge, key, 100))
    assert key not in str(raised.value)
    assert effects.count == 1


def test_a_match_field_that_is_absent_differs_from_null(ledger, key, effects):
    def pay(**given):
        return ledger.call("refund", intent={"id": key, **given}, fields=["/id"], match=["/cents"]).run(effects.happen)

    pay()
    pay()
    with pytest.raises(onceward.Mismatch):
        pay(cents=None)
    assert effects.count == 1


def test_with_a_key_of_its_own_the_fields_of_the_recipe_must_agree(ledger, key, effects):
    @ledger.once(operation="book", key=["room"], match=["price"])
    def book(room: int, price: int) -> int:
        return effects.happen(room)

    booked = onceward.options(book, key=key)
    assert booked(1, 10) == booked(1, 10) == 1
    for room, price in [(2, 10), (1, 11)]:
        with pytest.raises(onceward.Mismatch):
            booked(room, price)
    assert effects.count == 1


def test_a_session_makes_another_intent(ledger, key, effects):
    @ledger.once(operation="note", key=["text"], session=True)
    def note(text: str) -> int:
        return effects.happen(effects.count)

    results = []
    for session in ("one", "two", "one"):
        with onceward.session(session):
            results.append(note(key))
    assert results == [0, 1, 0]
    with pytest.raises(onceward.SessionRequired):
        note(key)


def test_keys_are_the_same_everywhere(ledger, tmp_path):
    def sends(on):
        return on.once(operation="email", key=["to"], window={"of": "/at", "every": "day"})(lambda to, at: None)

    at = datetime(2026, 11, 15, 12, tzinfo=timezone.utc)
    with onceward.Ledger(tmp_path / "other.db") as other:
        assert onceward.key_of(sends(ledger), "ann", at) == onceward.key_of(sends(other), "ann", at)


def test_a_whole_intent_makes_the_key(ledger, key, effects):
    def run(intent):
        return ledger.call("order", intent=intent).run(effects.happen, "ordered")

    assert run({"id": key, "items": [1, 2.5, None, "ä"]}) == run({"items": [1, 2.5, None, "ä"], "id": key})
    assert effects.count == 1
    run({"id": key, "items": []})
    assert effects.count == 2


@dataclasses.dataclass
class Receipt:
    number: int
    at: datetime


def test_results_come_back_in_their_type(ledger, key, effects):
    at = datetime(2026, 11, 15, tzinfo=timezone.utc)

    @ledger.once(operation="receipt", key=["of"])
    def receipt(of: str) -> Receipt:
        return effects.happen(Receipt(7, at))

    assert receipt(key) == receipt(key) == Receipt(7, at)
    assert effects.count == 1


def test_a_result_that_cannot_be_kept_is_done_all_the_same(ledger, key, effects):
    def run():
        return ledger.call("object", key=key).run(lambda: effects.happen(object()))

    run()
    with pytest.raises(onceward.OutcomeNotKept):
        run()
    assert effects.count == 1
    assert ledger.get("object", key).status == "done"


def test_a_large_result_is_done_and_not_kept(ledger, key, effects):
    # More than the keep limit of 256 KiB and more than a request may have.
    for size in (300_000, 1_100_000):
        run = ledger.call("large", key=f"{key}-{size}").run
        assert len(run(effects.happen, "x" * size)) == size
        with pytest.raises(onceward.OutcomeNotKept):
            run(effects.happen, "")
    assert effects.count == 2


FAILURES = [
    (onceward.NotSent("refused"), "open", None),
    (onceward.Refused("later", retry_after=60), "open", onceward.InFlight),
    (onceward.Permanent("declined"), "done", onceward.Failed),
    (onceward.Unknown("lost"), "in_doubt", onceward.InDoubt),
    (TimeoutError("timed out"), "in_doubt", onceward.InDoubt),
    (KeyboardInterrupt(), "in_doubt", onceward.InDoubt),
]


@pytest.mark.parametrize(("error", "state", "next_call"), FAILURES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_failure_ends_the_claim(ledger, key, effects, error, state, next_call, is_async):
    def fail():
        effects.happen()
        raise error

    async def fail_async():
        fail()

    def run():
        call = ledger.call("fails", key=key)
        return asyncio.run(call.run_async(fail_async)) if is_async else call.run(fail)

    with pytest.raises(type(error)):
        run()
    assert ledger.get("fails", key).status == state
    with pytest.raises(next_call or type(error)) as raised:
        run()
    assert effects.count == (1 if next_call else 2)
    if next_call is onceward.InFlight:
        assert 50 < raised.value.retry_after <= 60
    if next_call is onceward.Failed:
        assert "declined" in raised.value.reason


WORDS = [("retry", "open"), ("doubt", "in_doubt"), ("keep", "done"), ({ValueError: "retry"}, "open")]


@pytest.mark.parametrize(("on_error", "state"), WORDS)
def test_on_error_says_what_an_error_means(ledger, key, on_error, state):
    with pytest.raises(ValueError, match="bad"):
        ledger.call("judged", key=key, on_error=on_error).run(lambda: int("bad"))
    assert ledger.get("judged", key).status == state


def test_a_block_is_entered_once(ledger, key, effects):
    with ledger.begin("block", key=key) as claim:
        claim.finish(effects.happen("made"))
        assert claim.attempt == 1
    with pytest.raises(onceward.AlreadyDone) as raised, ledger.begin("block", key=key):
        effects.happen()
    assert (raised.value.value, effects.count) == ("made", 1)


def test_an_async_block_is_entered_once(ledger, key, effects):
    async def enter():
        async with ledger.begin("block", key=key) as claim:
            claim.finish(effects.happen("made"))

    asyncio.run(enter())
    with pytest.raises(onceward.AlreadyDone):
        asyncio.run(enter())
    assert effects.count == 1


def test_a_message_is_consumed_once(ledger, key, effects):
    for _delivery in range(2):
        ledger.consume("orders", key).run(effects.happen)
    assert effects.count == 1
    assert ledger.get("consume:orders", key).status == "done"


def test_a_crash_before_sent_leaves_no_doubt(ledger, key, effects):
    def stop_before():
        raise onceward.Unknown("before")

    def stop_after():
        onceward.claim().sent()
        raise onceward.Unknown("after")

    call = ledger.call("marked", key=key, marks_sent=True)
    for work, state in [(stop_before, "open"), (stop_after, "in_doubt")]:
        with pytest.raises(onceward.Unknown):
            call.run(work)
        assert ledger.get("marked", key).status == state


def test_a_person_settles_a_doubt(ledger, key, effects):
    def lose():
        raise onceward.Unknown("lost")

    for happened, expected in [(True, "it is there"), (False, "made")]:
        call = ledger.call("settled", key=f"{key}-{happened}")
        with pytest.raises(onceward.Unknown):
            call.run(lose)
        with pytest.raises(onceward.InDoubt) as raised:
            call.run(effects.happen)
        assert raised.value.since is not None
        ledger.resolve("settled", call.key, happened=happened, result="it is there", by="ana", note="looked")
        assert call.run(effects.happen, "made") == expected
    assert effects.count == 1
    with pytest.raises(onceward.InvalidCall, match="not settled"):
        ledger.resolve("settled", call.key, happened=True, version=1)


def test_intents_are_listed_and_shown(ledger, key):
    name = f"listed {key}/ä"
    for number in range(3):
        ledger.call(name, key=f"{key}/{number}").run(lambda: None)
    listed = [intent for intent in ledger.list(state="done", limit=200) if intent.operation == name]
    assert sorted(intent.key for intent in listed) == [f"{key}/{number}" for number in range(3)]
    shown = ledger.get(name, f"{key}/1")
    assert (shown.status, shown.attempts, shown.tenant, shown.doubt_since) == ("done", 1, "default", None)
    assert abs((datetime.now(timezone.utc) - shown.recorded_at).total_seconds()) < 60
    assert ledger.get(name, "never") is None
    with pytest.raises(onceward.InvalidCall, match="unknown state"):
        ledger.list(state="finished")


def test_decisions_are_counted(ledger, key):
    before = ledger.stats()
    for _ in range(3):
        ledger.call("counted", key=key).run(lambda: None)
    after = ledger.stats()
    assert [after[name] - before[name] for name in ("acquired", "replayed", "unguarded")] == [1, 2, 0]


def test_of_many_threads_one_runs(ledger, key, effects):
    results, release = [], threading.Event()

    def work():
        release.wait(10)
        return effects.happen("made")

    def call():
        results.append(ledger.call("threads", key=key, wait="20s").run(work))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    release.set()
    for thread in threads:
        thread.join(20)
    assert (results, effects.count) == (["made"] * 8, 1)


def test_a_mistake_in_a_call_is_refused_before_anything_runs(ledger, key, effects):
    for call in [
        ledger.call("", key=key),
        ledger.call("x", key="k" * 300),
        ledger.call("x"),
        ledger.call("x", intent={"a": 1}, fields=["/b"]),
    ]:
        with pytest.raises(onceward.InvalidCall):
            call.run(effects.happen)
    assert effects.count == 0


def test_a_closed_ledger_runs_nothing(ledger, key, effects):
    ledger.close()
    with pytest.raises(onceward.StoreUnavailable):
        ledger.call("closed", key=key).run(effects.happen)
    assert effects.count == 0
