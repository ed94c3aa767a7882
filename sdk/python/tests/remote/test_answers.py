"""Answers that the real server seldom or never gives, and refusals."""

import concurrent.futures
import json
import socket
import threading
import urllib.request

import pytest
from api_server import ApiServer, new_token
from fake_server import WRITTEN, FakeServer, acquired

import onceward

TOKEN = "onceward_0123456789abcdef"


def run(server, key, work=lambda: "made", token=TOKEN, **call):
    with onceward.Ledger(server.url, token=token) as ledger:
        return ledger.call("charge", key=key, **call).run(work)


def must_not_run():
    raise AssertionError("an effect")


def test_a_redirect_is_not_followed(key):
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.settimeout(0.2)
        target = f"http://127.0.0.1:{elsewhere.getsockname()[1]}/v1/begin"
        for status in (301, 302, 307, 308):
            with FakeServer(lambda *_: (status, {"Location": target}, b"")) as server:
                with pytest.raises(onceward.StoreUnavailable, match="redirects"):
                    run(server, key, must_not_run)
                assert len(server.requests) == 1
        with pytest.raises(TimeoutError):
            elsewhere.accept()


def test_a_proxy_of_the_environment_is_not_used(monkeypatch, remote, key):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with onceward.Ledger(remote.store) as ledger:
        assert ledger.call("charge", key=key).run(lambda: "made") == "made"


def test_an_answer_that_is_too_large_is_refused(key):
    chunk = b" " * (65 * 1024 * 1024)
    with FakeServer(lambda *_: (200, {}, chunk)) as server:
        with pytest.raises(onceward.StoreUnavailable, match="bytes"):
            run(server, key, must_not_run)
        assert len(server.requests) == 1


STRANGE = [
    (200, b"<html>hello</html>"),
    (200, b"{}"),
    (200, json.dumps({"key": "another", "decision": "acquired"}).encode()),
    (200, json.dumps({"key": "k", "decision": "granted_later"}).encode()),
    (404, b"not here"),
    (418, b""),
    (201, b"{}"),
]


@pytest.mark.parametrize(("status", "body"), STRANGE)
def test_a_strange_answer_runs_nothing(status, body):
    with FakeServer(lambda *_: (status, {}, body)) as server, pytest.raises(onceward.StoreUnavailable):
        run(server, "k", must_not_run)


def test_an_answer_about_another_key_runs_nothing(key):
    with FakeServer(lambda path, _: acquired("another") if path == "/v1/begin" else WRITTEN) as server:
        with pytest.raises(onceward.StoreUnavailable, match="another key"):
            run(server, key, must_not_run)


def test_the_token_is_sent_and_never_shown(key, caplog):
    def echo(_path, _body):
        return 422, {}, {"type": "/x/invalid", "title": f"Bearer {TOKEN}", "detail": f"{TOKEN} {TOKEN}\nx"}

    with FakeServer(echo) as server:
        ledger = onceward.Ledger(server.url, token=TOKEN)
        with pytest.raises(onceward.InvalidCall) as raised:
            ledger.call("charge", key=key).run(must_not_run)
        assert server.requests[0][2]["authorization"] == f"Bearer {TOKEN}"
    shown = [repr(raised.value), str(raised.value), raised.value.for_model(), repr(vars(raised.value))]
    shown += [repr(ledger), repr(vars(ledger)), repr(ledger._native), caplog.text]
    assert TOKEN not in " ".join(shown)
    assert "(token)" in str(raised.value) and "\n" not in str(raised.value)


def test_work_without_a_record_runs_where_the_server_says_so(key):
    answer = 200, {}, {"key": key, "decision": "unguarded", "downstream_key": "once_v1_y"}
    with FakeServer(lambda *_: answer) as server:
        found = run(server, key, lambda: (onceward.claim().is_guarded, onceward.claim().downstream_key))
        assert found == (False, "once_v1_y")
        with pytest.raises(ValueError, match="bad"):
            run(server, key, lambda: int("bad"))
        assert {path for path, _, _ in server.requests} == {"/v1/begin"}


def test_a_lost_answer_is_asked_for_with_the_same_id_and_a_stale_one_with_a_new_id(key):
    answers = [
        None,
        (500, {}, b""),
        (502, {}, b"bad gateway"),
        (200, {}, {"key": key, "decision": "stale"}),
        acquired(key),
    ]
    with FakeServer(lambda path, _: answers.pop(0) if path == "/v1/begin" else WRITTEN) as server:
        assert run(server, key) == "made"
        ids = [body["claim_id"] for body in server.bodies("/v1/begin")]
    assert len(ids[0]) == 32
    assert ids == [ids[0]] * 4 + [ids[4]] and ids[0] != ids[4]


def test_a_claim_that_is_always_stale_is_given_up(key):
    with FakeServer(lambda *_: (200, {}, {"key": key, "decision": "stale"})) as server:
        with pytest.raises(onceward.Contended):
            run(server, key, must_not_run)
        assert 2 < len(server.requests) < 20


def test_a_store_that_is_down_is_asked_again_a_few_times(key):
    problem = {"type": "/.well-known/onceward/problems/store-down", "title": "The store is unavailable", "status": 503}
    with FakeServer(lambda *_: (503, {"Retry-After": "1"}, problem)) as server:
        with pytest.raises(onceward.StoreUnavailable, match="store is unavailable"):
            run(server, key, must_not_run)
        # Nothing was granted, so there is nothing to give back.
        assert 1 < len(server.requests) < 10


def test_a_long_wait_is_asked_for_in_parts(key):
    in_flight = 200, {}, {"key": key, "decision": "in_flight", "retry_after_ms": 700, "running": True, "attempt": 1}
    answers = [in_flight] * 4 + [acquired(key)]
    with FakeServer(lambda path, _: answers.pop(0) if path == "/v1/begin" else WRITTEN) as server:
        assert run(server, key, wait="2m") == "made"
        begins = server.bodies("/v1/begin")
    assert [begin["wait_ms"] for begin in begins] == [0, 60_000, 60_000, 60_000, 60_000]
    assert len({begin["claim_id"] for begin in begins}) == 5


def test_an_intent_that_may_not_be_tried_yet_is_not_waited_for(key):
    in_flight = 200, {}, {"key": key, "decision": "in_flight", "retry_after_ms": 7000, "running": False, "attempt": 1}
    with FakeServer(lambda *_: in_flight) as server:
        with pytest.raises(onceward.InFlight) as raised:
            run(server, key, must_not_run, wait="1m")
        assert (raised.value.retry_after, len(server.requests)) == (7.0, 1)


OTHER_DECISIONS = [
    ({"decision": "collision"}, onceward.Collision),
    ({"decision": "mixed_use"}, onceward.MixedUse),
    ({"decision": "queued"}, onceward.Queued),
    ({"decision": "dead"}, onceward.Dead),
    ({"decision": "outcome_not_kept", "status": None, "digest": None}, onceward.OutcomeNotKept),
]


@pytest.mark.parametrize(("decision", "kind"), OTHER_DECISIONS)
def test_every_decision_has_its_exception(key, decision, kind):
    with FakeServer(lambda *_: (200, {}, {"key": key, **decision})) as server:
        with pytest.raises(kind) as raised:
            run(server, key, must_not_run)
        assert (raised.value.key, raised.value.store) == (key, server.url)


def test_a_replay_is_read_byte_for_byte(key):
    outcome = {"verdict": "success", "status": 0, "content_type": "application/json", "headers": []}
    for body in ({"text": '"ä"'}, {"base64": "IsOkIg=="}):
        replay = {"key": key, "decision": "replay", "outcome": outcome | {"body": body}, "expires_at": None}
        with FakeServer(lambda *_: (200, {}, replay)) as server:
            assert run(server, key, must_not_run) == "ä"


def test_what_begin_sends_is_what_the_server_needs(key):
    with FakeServer(lambda path, body: acquired(body["key"]) if path == "/v1/begin" else WRITTEN) as server:
        ledger = onceward.Ledger(server.url)

        settings = {"match": ["cents"], "normalise": ["trim"], "max_runtime": 7, "marks_sent": True}

        @ledger.once(operation="charge", key=["invoice"], **settings)
        def charge(invoice: str, cents: int, memo: str) -> None:
            pass

        charge(" 7 ", 100, "secret memo")
        begin, finish = server.bodies("/v1/begin")[0], server.bodies("/v1/finish")[0]
        assert begin.pop("claim_id") and len(begin.pop("key_digest")) == 64
        assert begin == {
            "operation": "charge",
            "key": onceward.key_of(charge, "7", 0, ""),
            "intent": {"/cents": 100},
            "wait_ms": 0,
            "lease_ms": 21_000,
            "marks_sent": True,
            "probes": False,
        }
        assert finish["outcome"]["body"] == {"text": "null"}
        assert all("authorization" not in {name.lower() for name in headers} for _, _, headers in server.requests)


# Real refusals.


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    made = {name: new_token(folder, tenant, scopes) for name, tenant, scopes in [
        ("acme", "acme", "use,read,operate"), ("globex", "globex", "use,read,operate"), ("reader", "acme", "read"),
    ]}  # fmt: skip
    extra = "".join(lines for _, lines in made.values()) + "\n[limits]\nrecords_per_tenant = 40\n"
    server = ApiServer(folder / "server", extra)
    server.tokens = {name: token for name, (token, _) in made.items()}
    yield server
    server.stop()


@pytest.mark.parametrize(("token", "text"), [(None, "needs a token"), ("onceward_wrong", "refuses the token")])
def test_a_missing_or_wrong_token_runs_nothing(guarded_server, key, token, text):
    with pytest.raises(onceward.NotAllowed, match=text) as raised:
        run(guarded_server, key, must_not_run, token=token)
    assert isinstance(raised.value, onceward.StoreUnavailable)
    assert "onceward_wrong" not in str(raised.value)
    assert "Tell the user" in raised.value.for_model()


def test_a_token_without_the_scope_runs_nothing(guarded_server, key):
    with pytest.raises(onceward.NotAllowed, match="`use`"):
        run(guarded_server, key, must_not_run, token=guarded_server.tokens["reader"])


def ledgers_of(server):
    return [onceward.Ledger(server.url, token=server.tokens[name]) for name in ("acme", "globex")]


def test_tenants_do_not_see_each_other(guarded_server, key):
    acme, globex = ledgers_of(guarded_server)
    effects, keys = [], []

    def work(name):
        effects.append(name)
        keys.append(onceward.claim().downstream_key)
        return name

    for _ in range(2):
        assert acme.call("charge", key=key).run(work, "acme") == "acme"
        assert globex.call("charge", key=key).run(work, "globex") == "globex"
    assert effects == ["acme", "globex"]
    assert keys[0] != keys[1]
    assert (acme.get("charge", key).tenant, globex.get("charge", key).tenant) == ("acme", "globex")
    own = f"{key}-own"
    with pytest.raises(onceward.Unknown):
        acme.call("charge", key=own).run(lose)
    assert globex.get("charge", own) is None
    assert own not in {intent.key for intent in globex.list(limit=200)}
    with pytest.raises(onceward.InvalidCall, match="absent"):
        globex.resolve("charge", own, happened=True, version=2)
    assert acme.get("charge", own).status == "in_doubt"


def lose():
    raise onceward.Unknown("lost")


def test_a_tenant_cannot_end_the_claim_of_another(guarded_server, key):
    acme, globex = ledgers_of(guarded_server)
    both = threading.Barrier(2)

    def work(name):
        both.wait(10)
        return name

    other = threading.Thread(target=lambda: globex.call("charge", key=key).run(work, "globex"))
    other.start()
    assert acme.call("charge", key=key).run(work, "acme") == "acme"
    other.join(20)
    assert globex.call("charge", key=key).run(must_not_run) == "globex"


def test_a_tenant_over_its_quota_runs_nothing(guarded_server, key):
    globex = onceward.Ledger(guarded_server.url, token=guarded_server.tokens["globex"])
    effects = []
    with pytest.raises(onceward.QuotaReached, match="quota"):
        for number in range(60):
            globex.call("quota", key=f"{key}-{number}").run(effects.append, number)
    assert len(effects) < 41
    # Recorded keys keep working.
    assert globex.call("quota", key=f"{key}-0").run(must_not_run) is None


def test_an_intent_that_is_too_large_is_refused(remote, key):
    with pytest.raises(onceward.InvalidCall, match="413"):
        remote.call("large", key=key, intent={"text": "x" * 1_100_000}).run(must_not_run)


def test_a_list_shows_all_pages(own_server):
    with onceward.Ledger(own_server.url) as ledger:

        @ledger.once(operation="many", key=["n"])
        def many(n: int) -> int:
            return n

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert list(pool.map(many, range(450))) == list(range(450))
        for limit, count in ((None, 450), (449, 449), (200, 200), (1, 1), (0, 0), (5000, 450)):
            listed = ledger.list(limit=limit)
            assert len(listed) == len({one.key for one in listed}) == count, limit
        assert len(ledger.list()) == 50 and ledger.list(state="in_doubt", limit=None) == []


def test_a_server_that_names_the_same_page_again_is_not_asked_for_ever(key):
    intent = {"operation": "a", "key": key, "tenant": "default", "state": "done", "attempts": 1, "version": 1,
              "created_at": "2026-11-16T08:03:00.000Z"}  # fmt: skip
    with FakeServer(lambda *_: (200, {}, {"intents": [intent], "next": "1"})) as server:
        with onceward.Ledger(server.url, token=TOKEN) as ledger:
            assert len(ledger.list(limit=None)) == 2


def test_two_intents_with_one_derived_key_are_a_collision(remote, key):
    """As `keys` of 128 bits would, once in a lifetime of the universe: a server sees the digest of each."""
    call = remote.call("collides", intent={"n": key})
    assert call.run(lambda: "mine") == "mine"
    body = {"operation": "collides", "key": call.key, "intent": {"n": key}, "key_digest": "ab" * 32, "claim_id": key}
    request = urllib.request.Request(
        f"{remote.store}/v1/begin", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["decision"] == "collision"


def test_names_are_checked_before_anything_is_sent(remote):
    for operation, key in (("", ""), ("a", ""), ("a", "k" * 100_000)):
        for look in (lambda: remote.get(operation, key), lambda: remote.resolve(operation, key, happened=False, version=1)):
            with pytest.raises(onceward.InvalidCall, match="empty|at most 255"):
                look()
