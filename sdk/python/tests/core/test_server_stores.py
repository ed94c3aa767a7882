"""Ledgers in PostgreSQL and Redis, which other processes and machines share."""

from __future__ import annotations

import copy
import pickle
import sys
import uuid

import onceward
import pytest
from servers import migrate, run

CALL = """
import sys, onceward
with onceward.Ledger(sys.argv[1]) as ledger:
    @ledger.once(operation="greet", key=["name"], wait="20s")
    def greet(name: str) -> str:
        return f"{name} from {sys.argv[2]}"
    print(greet("ada"))
"""


def test_processes_share_a_ledger_in_a_server(url: str) -> None:
    migrate(url)
    said = [run(sys.executable, "-c", CALL, url, process).stdout.strip() for process in ("first", "second")]
    assert said == ["ada from first", "ada from first"]


def test_a_ledger_that_was_not_made_is_refused_and_says_what_to_run(url: str) -> None:
    with pytest.raises(onceward.StoreUnavailable, match="onceward migrate"):
        onceward.Ledger(url)


def test_a_server_that_is_down_is_told_without_the_password() -> None:
    with pytest.raises(onceward.StoreUnavailable) as caught:
        onceward.Ledger("postgres://shop:hunter2@127.0.0.1:1/app?timeout=1")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgres://shop:hunter2@127.0.0.1:1/app?timeout=1", "redis://:hunter2@127.0.0.1:1/0?timeout=1"])
def test_an_error_carries_no_password(url: str) -> None:
    with pytest.raises(onceward.StoreUnavailable) as caught:
        onceward.Ledger(url)
    assert caught.value.store.startswith(url.partition("://")[0]) and "127.0.0.1" in caught.value.store
    for shown in (caught.value.store, repr(vars(caught.value)), pickle.dumps(caught.value), repr(copy.copy(caught.value))):
        assert "hunter2" not in str(shown)


def test_a_ledger_and_its_doubts_are_shown_without_the_password(postgres: str) -> None:
    migrate(postgres)
    password = postgres.partition("@")[0].rpartition(":")[2]
    with onceward.Ledger(postgres) as ledger:
        assert password not in repr(ledger) and "…@" in repr(ledger)

        def lose() -> None:
            raise TimeoutError

        call = ledger.call(f"pay-{uuid.uuid4().hex}", key="a", in_doubt="hold")
        with pytest.raises(TimeoutError):
            call.run(lose)
        with pytest.raises(onceward.InDoubt) as caught:
            call.run(lose)
    for shown in (str(caught.value), caught.value.settle, caught.value.store, str(pickle.dumps(caught.value))):
        assert password not in shown
    assert "--store=" in str(caught.value) and "127.0.0.1" in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["postgres://user:hunter2@127.0.0.1:1/db", "redis://:hunter2@127.0.0.1:1", "redis:/:hunter2@127.0.0.1"],
)
def test_no_exception_shows_the_password_of_a_store(url: str) -> None:
    with pytest.raises(onceward.StoreUnavailable) as raised:
        onceward.Ledger(url)
    error = raised.value
    shown = [str(error), repr(error), error.store, error.for_model(), repr(vars(error))]
    assert "hunter2" not in "\n".join(shown)
