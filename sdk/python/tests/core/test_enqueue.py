"""Queues intents: ten calls make one entry, and a caller learns how it stands."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import time
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import onceward
import pytest
import scene
from onceward import Enqueued, InvalidCall, InvalidValue, Ledger, Mismatch


@dataclasses.dataclass
class Letter:
    to: str
    day: date
    cents: Decimal


def test_ten_calls_make_one_entry(ledger: Ledger) -> None:
    answers = [ledger.enqueue("mail", {"to": "ada"}, key="welcome-7") for _ in range(10)]
    assert [one.created for one in answers] == [True] + [False] * 9
    assert {(one.state, one.key, one.is_done, one.result, one.error) for one in answers} == {
        ("queued", "welcome-7", False, None, None)
    }
    assert [one.status for one in ledger.list()] == ["queued"]
    assert answers[0].intent.startswith("mail#") and "welcome-7" not in repr(answers[0])


def test_ten_threads_and_ten_tasks_make_one_entry(ledger: Ledger) -> None:
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        made = list(pool.map(lambda _: ledger.enqueue("mail", "hello").created, range(10)))

    async def main() -> list[Enqueued]:
        return await asyncio.gather(*[ledger.enqueue_async("mail", "hello") for _ in range(10)])

    assert sum(made) == 1 and not any(one.created for one in asyncio.run(main()))
    assert len(ledger.list()) == 1


def test_another_process_meets_the_same_entry(ledger: Ledger, store: str) -> None:
    code = """
    import sys, onceward
    print(onceward.Ledger(sys.argv[1]).enqueue("mail", {"to": "ada"}, key=["to"]).created)
    """
    assert [scene.check(code, store).strip() for _ in range(2)] == ["True", "False"]
    assert not ledger.enqueue("mail", {"to": "ada"}, key=["to"]).created


def test_the_same_key_with_another_payload_is_a_mismatch(memory: Ledger) -> None:
    memory.enqueue("mail", {"to": "ada"}, key="a")
    with pytest.raises(Mismatch):
        memory.enqueue("mail", {"to": "bob"}, key="a")


def test_fields_make_the_key_and_match_fields_must_agree(memory: Ledger) -> None:
    def queue(**letter: object) -> Enqueued:
        return memory.enqueue("mail", letter, key=["to"], match=["cents"])

    assert queue(to="ada", cents=5, text="Hello").created
    assert not queue(to="ada", cents=5, text="Hi!").created
    assert queue(to="bob", cents=5, text="Hi!").created
    with pytest.raises(Mismatch):
        queue(to="ada", cents=6, text="Hello")


def test_a_payload_follows_the_rules_of_arguments(memory: Ledger) -> None:
    first = memory.enqueue("mail", Letter("ada", date(2026, 11, 19), Decimal("19.90")))
    again = memory.enqueue("mail", {"to": "ada", "day": "2026-11-19", "cents": "19.9"})
    assert first.created and not again.created and first.key == again.key
    moment = datetime(2026, 11, 19, 10, tzinfo=timezone(timedelta(hours=1)))
    assert memory.enqueue("mail", moment).created and not memory.enqueue("mail", "2026-11-19T09:00:00Z").created
    for refused in ({1, 2}, object(), float("nan"), datetime(2026, 11, 19), {"a": [object()]}):
        with pytest.raises(InvalidValue):
            memory.enqueue("mail", refused)
    # The whole payload is kept, so the rule holds for fields that are not part of the key.
    with pytest.raises(InvalidValue):
        memory.enqueue("mail", {"to": "eve", "client": object()}, key=["to"])
    assert len(memory.list()) == 2


def test_tenants_and_sessions_are_apart(memory: Ledger) -> None:
    assert memory.enqueue("mail", "x", tenant="a").created and memory.enqueue("mail", "x", tenant="b").created
    for name in ("one", "two"):
        with onceward.session(name):
            assert memory.enqueue("greet", "x", session=True).created
            assert not memory.enqueue("greet", "x", session=True).created
    with pytest.raises(onceward.SessionRequired):
        memory.enqueue("greet", "x", session=True)
    with pytest.raises(InvalidCall):
        memory.enqueue("greet", "x", key="a", session="one")


def test_the_options_are_written_into_the_entry(memory: Ledger) -> None:
    memory.enqueue(
        "mail", "x", key="a", delay="1h", deliver_within=timedelta(days=1), priority="high", keep_payload=True,
        max_attempts=3, in_doubt="retry", tier="email",
    )  # fmt: skip
    record = memory.get("mail", "a").record["record"]  # type: ignore[union-attr]
    assert record["terms"]["max_attempts"] == 3 and record["terms"]["in_doubt"] == "retry"
    assert record["entry"] == {"priority": "high", "deliver_within": 86_400_000, "keeps_payload": True}
    due = record["state"]["queued"]["due"] / 1000 - time.time()
    assert 3500 < due < 3700


@pytest.mark.parametrize(
    "wrong",
    [
        {"delay": -1}, {"delay": "soon"}, {"deliver_within": "x"}, {"priority": "urgent"}, {"max_attempts": 0},
        {"max_attempts": True}, {"key": 7}, {"key": [7]}, {"key": "a", "match": ["to"]}, {"tier": "gold"}, {"key": ""},
        {"colour": "red"},
    ],
)  # fmt: skip
def test_wrong_options_are_refused_and_nothing_is_queued(memory: Ledger, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall):
        memory.enqueue("mail", {"to": "ada"}, **wrong)
    assert memory.list() == []


def test_a_payload_that_is_too_large_is_refused(memory: Ledger) -> None:
    with pytest.raises(InvalidCall, match="at most"):
        memory.enqueue("mail", "x" * 9_000_000)


def test_a_direct_call_of_a_queued_intent_does_not_run(memory: Ledger) -> None:
    memory.enqueue("mail", "x", key="a")
    call = memory.call("mail", key="a", intent="x")
    with pytest.raises(onceward.Queued):
        call.run(lambda: pytest.fail("must not run"))


def test_an_intent_that_is_done_answers_with_its_result(memory: Ledger) -> None:
    assert memory.call("mail", key="a", intent="x").run(lambda: "sent") == "sent"
    answer = memory.enqueue("mail", "x", key="a", result=str)
    assert (answer.created, answer.state, answer.result, answer.is_done) == (False, "done", "sent", True)
    unreadable = memory.enqueue("mail", "x", key="a", result=date)
    assert isinstance(unreadable.error, onceward.Unreadable) and unreadable.is_done

    def declined() -> str:
        raise onceward.Permanent("no such customer")

    with pytest.raises(onceward.Permanent):
        memory.call("mail", key="b", intent="x").run(declined)
    failed = memory.enqueue("mail", "x", key="b").error
    assert isinstance(failed, onceward.Failed) and "no such customer" in failed.reason


def test_an_intent_in_doubt_or_under_way_is_told_so(memory: Ledger) -> None:
    with memory.begin("mail", key="a", intent="x"):
        assert memory.enqueue("mail", "x", key="a").state == "running"

    def lost() -> None:
        raise onceward.Unknown("no answer")

    with pytest.raises(onceward.Unknown):
        memory.call("mail", key="b", intent="x").run(lost)
    assert memory.enqueue("mail", "x", key="b").state == "in_doubt"


def test_a_ledger_that_was_closed_queues_nothing(store: str) -> None:
    ledger = Ledger(store)
    ledger.close()
    with pytest.raises(onceward.StoreUnavailable):
        ledger.enqueue("mail", "x")


def test_a_guarded_function_and_an_entry_are_one_intent_where_their_keys_have_the_same_fields(memory: Ledger) -> None:
    payload = {"to": "ada", "body": "hello"}

    @memory.once(operation="mail", key=["to"])
    def mail(to: str, body: str) -> str:
        return "sent"

    mail(**payload)
    assert memory.enqueue("mail", payload, key=["to"], result=str).result == "sent"

    @memory.once(operation="note", key=lambda to, body: to)
    def note(to: str, body: str) -> str:
        return "noted"

    note(**payload)
    with pytest.raises(onceward.Mismatch):
        memory.enqueue("note", payload, key="ada")

    @memory.once(operation="call", key=lambda to, body: to, match=["to", "body"])
    def call(to: str, body: str) -> str:
        return "called"

    call(**payload)
    assert memory.enqueue("call", payload, key="ada", result=str).result == "called"


def test_a_forked_child_queues_too(ledger: Ledger, store: str) -> None:
    code = """
    import os, sys, onceward
    ledger = onceward.Ledger(sys.argv[1])
    assert ledger.enqueue("mail", "from the parent").created
    child = os.fork()
    if child == 0:
        done = ledger.enqueue("mail", "from the child").created and not ledger.enqueue("mail", "from the parent").created
        os._exit(0 if done else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not ledger.enqueue("mail", "from the child").created
    """
    scene.check(code, store, options=scene.QUIET_FORKS)
    assert len(ledger.list(state="queued")) == 2
