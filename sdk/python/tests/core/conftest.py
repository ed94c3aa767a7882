"""Fixtures of the core tests. Without an installed package, they use the one in this repository."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
try:
    import onceward
except ImportError:
    sys.path.insert(0, str(HERE.parents[1] / "python"))
    import onceward

import scene  # noqa: E402
from servers import postgres, redis, server, url  # noqa: E402, F401


@pytest.fixture
def store(tmp_path: pathlib.Path) -> str:
    """The path of a ledger that does not exist yet."""
    return str(tmp_path / "onceward.db")


@pytest.fixture
def ledger(store: str) -> Iterator[onceward.Ledger]:
    """A ledger in a file."""
    with onceward.Ledger(store) as opened:
        yield opened


@pytest.fixture
def memory() -> Iterator[onceward.Ledger]:
    """A ledger in memory, for tests that need no file."""
    with onceward.Ledger("memory:") as opened:
        yield opened


@pytest.fixture
def effects(tmp_path: pathlib.Path) -> scene.Effects:
    """Effects that survive a kill."""
    return scene.Effects(tmp_path / "effects")
