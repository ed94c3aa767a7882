"""Servers and ledgers for the tests."""

import uuid

import pytest
from api_server import ApiServer
from cutting_proxy import CuttingProxy

import onceward


@pytest.fixture(autouse=True)
def _no_token(monkeypatch):
    monkeypatch.delenv("ONCEWARD_TOKEN", raising=False)


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """One server for all tests that do not stop it."""
    started = ApiServer(tmp_path_factory.mktemp("server"))
    yield started
    started.stop()


@pytest.fixture
def own_server(tmp_path):
    """A server that the test may stop."""
    started = ApiServer(tmp_path / "server")
    yield started
    started.stop()


@pytest.fixture
def key():
    """A key that no other test has."""
    return f"key-{uuid.uuid4()}"


@pytest.fixture(params=["file", "http"])
def ledger(request, tmp_path):
    """The same ledger in a file and behind HTTP."""
    store = tmp_path / "ledger.db" if request.param == "file" else request.getfixturevalue("server").url
    with onceward.Ledger(store) as opened:
        yield opened


@pytest.fixture
def remote(server):
    with onceward.Ledger(server.url) as opened:
        yield opened


@pytest.fixture
def proxy(server):
    """A connection to the server that can be cut."""
    started = CuttingProxy(server.port)
    yield started
    started.close()
