"""A ledger for each test."""

import pytest

import onceward


@pytest.fixture
def ledger(tmp_path):
    with onceward.Ledger(tmp_path / "ledger.db") as ledger:
        yield ledger
