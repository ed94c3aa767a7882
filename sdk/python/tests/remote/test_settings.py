"""Where the server is, which token it gets, and which settings it owns."""

import logging
import subprocess
import sys

import pytest
from api_server import ApiServer, eventually, new_token

import onceward

SERVER_SETTINGS = {
    "tier": "payment",
    "in_doubt": "hold",
    "retention": "7d",
    "tombstone": "1d",
    "dedup": "10m",
    "honours_key_for": "1h",
    "store_down": "open",
    "keep_limit": "1MiB",
}


@pytest.mark.parametrize("setting", SERVER_SETTINGS)
def test_a_setting_of_the_server_is_refused_at_decoration(remote, setting):
    given = {setting: SERVER_SETTINGS[setting]}
    with pytest.raises(onceward.InvalidCall) as raised:
        remote.once(operation="POST /v1", key=["a"], **given)(lambda a: None)
    assert setting in str(raised.value)
    assert '[operation."POST /v1"]' in str(raised.value)
    with pytest.raises(onceward.InvalidCall, match=r"\[operation\.charge\]"):
        remote.call("charge", key="k", **given)


def test_a_deadline_is_refused_because_the_api_has_none(remote):
    with pytest.raises(onceward.InvalidCall, match="no effect"):
        remote.once(operation="charge", key=["a"], deadline="1h")(lambda a: None)


def test_settings_of_the_client_are_accepted(remote, key):
    @remote.once(
        operation="all",
        key=["a"],
        match=["b"],
        normalise=["trim"],
        allow_volatile=True,
        max_runtime=5,
        wait="1s",
        on_error="doubt",
        marks_sent=True,
        probe=lambda a, b: onceward.NOT_FOUND,
    )
    def act(a: str, b: str) -> str:
        return "made"

    assert act(key, " x ") == act(key, "x") == "made"


@pytest.mark.parametrize("operation", ["pay", "no-tier"])
def test_an_error_without_a_class_is_a_doubt(remote, key, operation):
    """The client cannot see whether the server's operation has a tier, so the stricter reading holds."""
    with pytest.raises(ValueError, match="bad") as raised:
        remote.call(operation, key=key).run(lambda: int("bad"))
    assert remote.get(operation, key).status == "in_doubt"
    if hasattr(raised.value, "__notes__"):
        assert "in doubt" in raised.value.__notes__[0]


def test_the_policy_of_the_server_counts(remote, key):
    remote.call("tiny", key=key).run(lambda: "more than sixteen bytes")
    with pytest.raises(onceward.OutcomeNotKept):
        remote.call("tiny", key=key).run(lambda: None)
    assert remote.call("pay", key=key).run(lambda: 1) == 1
    expires = remote.get("pay", key).record["record"]["expires_at"]
    assert (onceward_moment(expires) - remote.get("pay", key).recorded_at).days in (29, 30)


def onceward_moment(text):
    from datetime import datetime

    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def test_a_doubt_is_probed_where_the_server_says_so(remote, key):
    effects, asked = [], []

    def probe():
        asked.append(1)
        return {1: onceward.NOT_FOUND, 2: "it is there"}[len(asked)]

    def lose():
        effects.append(1)
        raise onceward.Unknown("lost")

    call = remote.call("probed", key=key, probe=probe)
    for _ in range(2):
        with pytest.raises(onceward.Unknown):
            call.run(lose)
    assert call.run(effects.append) == "it is there"
    assert (len(effects), len(asked)) == (2, 2)
    held = remote.call("held", key=key, probe=probe)
    with pytest.raises(onceward.Unknown):
        held.run(lose)
    with pytest.raises(onceward.InDoubt):
        held.run(lose)
    assert len(asked) == 2


def test_streams_need_the_store_itself(remote, key):
    with pytest.raises(onceward.InvalidCall, match="no streams.*open the store itself: a file, postgres://… or redis://…"):
        remote.consume_event("billing", key, 1).run(lambda: None)


def test_the_tenant_is_that_of_the_token(remote, server, key):
    with pytest.raises(onceward.InvalidCall, match="token"):
        onceward.Ledger(server.url, tenant="acme")
    with pytest.raises(onceward.InvalidCall, match="token"):
        remote.once(operation="x", key=["a"], tenant="acme")(lambda a: None)
    act = remote.once(operation="x", key=["a"])(lambda a: None)
    for call in (
        lambda: remote.call("x", key=key, tenant="acme").run(lambda: None),
        lambda: onceward.options(act, tenant="acme")(key),
        lambda: remote.get("x", key, tenant="acme"),
        lambda: remote.list(tenant="acme"),
        lambda: remote.resolve("x", key, happened=True, tenant="acme", version=1),
    ):
        with pytest.raises(onceward.InvalidCall, match="token"):
            call()


WRONG_URLS = [
    "http://",
    "https://",
    "http://user:hunter2@127.0.0.1:1",
    "http://127.0.0.1:1/?token=hunter2",
    "http://127.0.0.1:1/#hunter2",
    "http://127.0.0.1:99999",
    "http://a b",
]


@pytest.mark.parametrize("url", WRONG_URLS)
def test_a_wrong_url_is_refused_and_not_repeated(url):
    with pytest.raises(onceward.InvalidCall) as raised:
        onceward.Ledger(url)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "h2c://127.0.0.1:1", "ws://127.0.0.1:1"])
def test_other_schemes_are_not_servers(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((onceward.StoreUnavailable, onceward.InvalidCall)):
        onceward.Ledger(url, token="onceward_x")


def test_a_path_in_front_of_the_api_is_kept(key):
    from fake_server import WRITTEN, FakeServer, acquired

    with FakeServer(lambda path, _: acquired(key) if path == "/base/v1/begin" else WRITTEN) as server:
        for url in (f"{server.url}/base", f"{server.url}/base/"):
            with onceward.Ledger(url) as ledger:
                assert ledger.call("charge", key=key).run(lambda: "made") == "made"


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("locked")
    token, lines = new_token(folder, "acme", "use,read,operate")
    server = ApiServer(folder / "server", lines)
    server.token = token
    yield server
    server.stop()


@pytest.mark.parametrize("how", ["itself", "env:", "default"])
def test_the_token_comes_from_the_caller_or_a_variable(locked, key, monkeypatch, how):
    given = None
    if how == "itself":
        given = locked.token
    elif how == "env:":
        monkeypatch.setenv("BILLING_TOKEN", locked.token)
        given = "env:BILLING_TOKEN"
    else:
        monkeypatch.setenv("ONCEWARD_TOKEN", locked.token)
    with onceward.Ledger(locked.url, token=given) as ledger:
        assert ledger.call("charge", key=key).run(lambda: "made") == "made"
        assert locked.token not in f"{ledger!r} {vars(ledger)}"


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "env:", "env:NOT_SET_ANYWHERE", "ä", 7])
def test_a_token_that_cannot_be_one_is_refused(server, token):
    with pytest.raises(onceward.InvalidCall) as raised:
        onceward.Ledger(server.url, token=token)
    assert "break" not in str(raised.value) and "words" not in str(raised.value)


def test_a_file_takes_no_token(tmp_path):
    for given in ({"token": "onceward_x"}, {"ca": "ca.pem"}):
        with pytest.raises(onceward.InvalidCall, match="behind HTTP"):
            onceward.Ledger(tmp_path / "ledger.db", **given)


@pytest.mark.parametrize("happened", [True, False])
def test_the_command_in_the_error_settles_the_doubt(locked, monkeypatch, happened):
    monkeypatch.setenv("ONCEWARD_TOKEN", locked.token)
    key = f"it's \"quoted\" $HOME {happened}"
    ledger = onceward.Ledger(locked.url)
    call = ledger.call("charge", key=key)

    def lose():
        raise onceward.Unknown("lost")

    with pytest.raises(onceward.Unknown):
        call.run(lose)
    with pytest.raises(onceward.InDoubt) as raised:
        call.run(lose)
    assert locked.token not in str(raised.value)
    lines = [line.strip() for line in str(raised.value).splitlines()[1:]]
    assert lines[0] == raised.value.settle
    # The interpreter of this test, whatever the machine calls it.
    command = lines[0 if happened else 1].replace("python3", sys.executable, 1)
    subprocess.run(["sh", "-c", command], check=True, timeout=60)
    assert ledger.get("charge", key).status == ("done" if happened else "open")


def test_a_window_that_the_server_keeps_too_briefly_is_warned_of(remote, key, caplog):
    caplog.set_level(logging.WARNING, "onceward")
    name = f"digest {key}"

    @remote.once(operation=name, key=["user"], window={"of": "/on", "every": "month"})
    def digest(user: str, on: str) -> None:
        pass

    digest("ann", "2026-11-15T12:00:00Z")
    assert eventually(lambda: "set retention" in caplog.text)
    assert f'[operation."{name}"]' in caplog.text

    @remote.once(operation="pay", key=["user"], window={"of": "/on", "every": "day"})
    def pay(user: str, on: str) -> None:
        pass

    caplog.clear()
    pay(key, "2026-11-15T12:00:00Z")
    assert "retention" not in caplog.text
