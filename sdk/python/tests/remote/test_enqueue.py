"""Queues intents on a server. Its answers are written down here, because the ones of the API are what is expected of them."""

from __future__ import annotations

import asyncio
import datetime
from typing import Any

import onceward
import pytest
from fake_server import FakeServer


def answering(answer: dict[str, Any]) -> FakeServer:
    return FakeServer(lambda _path, _body: (200, {}, answer))


def test_an_entry_is_sent_as_the_api_reads_it() -> None:
    with answering({"result": "enqueued", "key": "a", "state": "queued"}) as server:
        ledger = onceward.Ledger(server.url, token="secret")
        payload = {"to": "ada", "day": datetime.date(2026, 11, 19)}
        answer = ledger.enqueue(
            "mail", payload, key="a", delay=60, deliver_within="1d", priority="low", keep_payload=True
        )
        asyncio.run(ledger.enqueue_async("mail", [1], session="s"))
        first, second = server.bodies("/v1/enqueue")
        headers = {name.lower(): value for name, value in server.requests[0][2].items()}
    assert headers["authorization"] == "Bearer secret"
    assert (answer.created, answer.state, answer.key) == (True, "queued", "a") and answer.intent.startswith("mail#")
    assert first == {
        "operation": "mail", "key": "a", "payload": {"to": "ada", "day": "2026-11-19"}, "delay": "60000ms",
        "deliver_within": "1d", "priority": "low", "keep_payload": True,
    }  # fmt: skip
    assert second == {"operation": "mail", "payload": [1], "session": "s"}


def test_an_entry_that_is_done_has_its_result() -> None:
    outcome = {"verdict": "success", "status": 0, "content_type": "application/json", "body": {"text": '"2026-11-19"'}}
    done = {"result": "already_enqueued", "key": "k", "state": "done", "outcome": outcome, "expires_at": None}
    with answering(done) as server:
        answer = onceward.Ledger(server.url).enqueue("mail", "x", result=datetime.date)
    assert (answer.created, answer.is_done, answer.key) == (False, True, "k")
    assert answer.result == datetime.date(2026, 11, 19)
    with answering({"result": "already_enqueued", "key": "k", "state": "done"}) as server:
        assert isinstance(onceward.Ledger(server.url).enqueue("mail", "x").error, onceward.OutcomeNotKept)


def test_a_mismatch_is_raised() -> None:
    with answering({"result": "mismatch", "key": "k"}) as server, pytest.raises(onceward.Mismatch):
        onceward.Ledger(server.url).enqueue("mail", "x", key="k")


def test_a_lost_answer_is_asked_for_again() -> None:
    answers = [None, (503, {}, {}), (200, {}, {"result": "already_enqueued", "key": "k", "state": "queued"})]
    with FakeServer(lambda _path, _body: answers.pop(0)) as server:
        assert onceward.Ledger(server.url).enqueue("mail", "x", key="k").state == "queued"
        assert len(server.bodies("/v1/enqueue")) == 3 and len({str(one) for one in server.bodies("/v1/enqueue")}) == 1


@pytest.mark.parametrize(
    "wrong", [{"key": ["to"]}, {"max_attempts": 3}, {"tenant": "a"}, {"tier": "email"}, {"in_doubt": "retry"}]
)
def test_what_the_server_decides_is_refused_here(wrong: dict[str, Any]) -> None:
    with answering({}) as server:
        with pytest.raises(onceward.InvalidCall):
            onceward.Ledger(server.url).enqueue("mail", {"to": "ada"}, **wrong)
        assert server.requests == []


def test_an_answer_that_is_not_one_of_the_api_does_not_count() -> None:
    with answering({"result": "perhaps"}) as server, pytest.raises(onceward.StoreUnavailable):
        onceward.Ledger(server.url).enqueue("mail", "x", key="k")
