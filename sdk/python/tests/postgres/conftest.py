"""A database with a ledger and a shop, for each test."""

from __future__ import annotations

import pathlib
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "core")]
try:
    import onceward  # noqa: F401
except ImportError:
    sys.path.insert(0, str(HERE.parents[1] / "python"))

from servers import migrate, postgres, run  # noqa: E402, F401


@pytest.fixture
def database(postgres: str) -> str:  # noqa: F811
    """The URL of a database with a ledger, and with a table of invoices."""
    migrate(postgres)
    run("psql", postgres, "-X", "-q", "-c", "CREATE TABLE public.invoice (name text)")
    return postgres
