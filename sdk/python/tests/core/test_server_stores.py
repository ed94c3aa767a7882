"""Ledgers in PostgreSQL and Redis, which other processes and machines share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator

import onceward
import pytest

# Longer than a busy machine takes.
WAIT_SECONDS = 60


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=True)


def needed(name: str, program: str) -> str:
    """The URL of a server that the test command has started."""
    url = os.environ.get(name)
    if not url or not shutil.which(program):
        pytest.skip(f"{name} names no server, or {program} is missing")
    return url


@pytest.fixture
def postgres() -> Iterator[str]:
    """A database of its own."""
    server, name = needed("ONCEWARD_TEST_POSTGRES", "psql"), f"python_{uuid.uuid4().hex}"
    run("psql", server, "-X", "-q", "-c", f"CREATE DATABASE {name}")
    yield f"{server.rpartition('/')[0]}/{name}"
    run("psql", server, "-X", "-q", "-c", f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def redis() -> str:
    """A prefix of its own."""
    return f"{needed('ONCEWARD_TEST_REDIS', 'true')}?prefix=python_{uuid.uuid4().hex}"


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param)


CALL = """
import sys, onceward
with onceward.Ledger(sys.argv[1]) as ledger:
    @ledger.once(operation="greet", key=["name"], wait="20s")
    def greet(name: str) -> str:
        return f"{name} from {sys.argv[2]}"
    print(greet("ada"))
"""


def test_processes_share_a_ledger_in_a_server(url: str) -> None:
    run(os.environ.get("ONCEWARD", "onceward"), "migrate", "--store", url)
    said = [run(sys.executable, "-c", CALL, url, process).stdout.strip() for process in ("first", "second")]
    assert said == ["ada from first", "ada from first"]


def test_a_ledger_that_was_not_made_is_refused_and_says_what_to_run(url: str) -> None:
    with pytest.raises(onceward.StoreUnavailable, match="onceward migrate"):
        onceward.Ledger(url)


def test_a_server_that_is_down_is_told_without_the_password() -> None:
    with pytest.raises(onceward.StoreUnavailable) as caught:
        onceward.Ledger("postgres://shop:hunter2@127.0.0.1:1/app?timeout=1")
    assert "hunter2" not in str(caught.value)


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
