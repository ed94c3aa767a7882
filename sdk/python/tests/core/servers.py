"""Ledgers in the servers that the test command has started."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator

import pytest

# Longer than a busy machine takes.
WAIT_SECONDS = 60


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=True)


def migrate(url: str) -> None:
    """Makes the ledger."""
    run(os.environ.get("ONCEWARD", "onceward"), "migrate", "--store", url)


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


@pytest.fixture
def server(url: str) -> str:
    """A ledger in a server."""
    migrate(url)
    return url
