"""Ledgers in PostgreSQL and Redis, which other processes and machines share."""

from __future__ import annotations

import sys

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
