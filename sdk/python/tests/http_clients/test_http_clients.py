"""httpx and requests with a transport that retries: the same key on every attempt, and no attempt that could act twice."""

from __future__ import annotations

import asyncio
import pathlib
import re
import socket
import time
from collections.abc import Callable
from typing import Any

import httpx
import onceward
import onceward.httpx
import onceward.requests
import pytest
import requests
import scene
import stripe

GUIDE = pathlib.Path(__file__).resolve().parents[4] / "docs" / "guides" / "python-http-clients.md"

# One POST with each client: returns status and JSON.


def with_httpx(ledger: onceward.Ledger | None, url: str, body: Any = None, **settings: Any) -> tuple[int, Any]:
    with httpx.Client(transport=onceward.httpx.Transport(ledger, **settings)) as client:
        answer = client.post(f"{url}/charges", json=body or {"cents": 5})
        return answer.status_code, answer.json()


def with_async_httpx(ledger: onceward.Ledger | None, url: str, body: Any = None, **settings: Any) -> tuple[int, Any]:
    async def main() -> tuple[int, Any]:
        async with httpx.AsyncClient(transport=onceward.httpx.Transport(ledger, **settings)) as client:
            answer = await client.post(f"{url}/charges", json=body or {"cents": 5})
            return answer.status_code, answer.json()

    return asyncio.run(main())


def with_requests(ledger: onceward.Ledger | None, url: str, body: Any = None, **settings: Any) -> tuple[int, Any]:
    with requests.Session() as session:
        session.mount("http://", onceward.requests.Adapter(ledger, **settings))
        answer = session.post(f"{url}/charges", json=body or {"cents": 5})
        return answer.status_code, answer.json()


EVERY = pytest.mark.parametrize("post", [with_httpx, with_async_httpx, with_requests])
Post = Callable[..., tuple[int, Any]]
LOST = (httpx.RequestError, requests.RequestException)


@EVERY
@pytest.mark.parametrize("failures", [["lost"], ["504", "lost"], ["429"], ["503", "502"]])
def test_where_keys_are_honoured_every_attempt_has_one_key_and_there_is_one_effect(
    api: Any, ledger: onceward.Ledger, post: Post, failures: list[str]
) -> None:
    api.plan[:] = failures
    assert post(None, api.url, honours_key=True)[0] == 200
    assert len(api.effects) == 1 and len(api.requests) == len(failures) + 1
    assert len(set(api.keys)) == 1 and api.keys[0]
    # Another request has another key.
    post(None, api.url, honours_key=True)
    assert len(set(api.keys)) == 2


@EVERY
@pytest.mark.parametrize("failure", ["lost", "504", "503", "408"])
def test_where_keys_are_not_honoured_what_may_have_happened_is_not_sent_again(api: Any, post: Post, failure: str) -> None:
    api.honours_key, api.plan = False, [failure]
    if failure == "lost":
        with pytest.raises(LOST):
            post(None, api.url)
    else:
        assert post(None, api.url)[0] == int(failure)
    assert len(api.requests) == 1


@EVERY
def test_a_refusal_is_tried_again_when_the_api_says_so(api: Any, post: Post) -> None:
    api.honours_key, api.plan = False, ["503+1"]
    began = time.monotonic()
    assert post(None, api.url)[0] == 200
    assert time.monotonic() - began >= 1 and len(api.effects) == 1
    api.plan = ["429"] * 9
    assert post(None, api.url, max_attempts=3, base="1ms")[0] == 429
    assert len(api.requests) == 2 + 3
    api.plan = ["503+30"]
    assert post(None, api.url, deadline="2s")[0] == 503


@EVERY
def test_what_was_not_sent_is_tried_again(api: Any, post: Post) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(LOST):
        post(None, f"http://127.0.0.1:{port}", max_attempts=2, base="1ms")
    assert post(None, api.url)[0] == 200


@EVERY
def test_a_named_intent_is_carried_out_once_and_a_repeat_gets_the_answer(api: Any, ledger: onceward.Ledger, post: Post) -> None:
    api.plan[:] = ["lost", "cut"]
    for _ in range(3):
        with onceward.intent("invoice-7"):
            assert post(ledger, api.url, honours_key=True) == (200, {"id": "ch_1", "object": "charge"})
    assert len(api.effects) == 1 and len(api.requests) == 3 and len(set(api.keys)) == 1
    with onceward.intent("invoice-7"), pytest.raises(onceward.Mismatch):
        post(ledger, api.url, {"cents": 6}, honours_key=True)
    with onceward.intent("invoice-8"):
        assert post(ledger, api.url, honours_key=True)[1]["id"] == "ch_2"
    assert "secret" not in str([one.record for one in ledger.list()])


@EVERY
def test_a_named_intent_that_may_have_happened_is_held_where_keys_are_not_honoured(
    api: Any, ledger: onceward.Ledger, post: Post
) -> None:
    api.honours_key, api.plan = False, ["lost"]
    with onceward.intent("invoice-7"):
        with pytest.raises(LOST):
            post(ledger, api.url)
        with pytest.raises(onceward.InDoubt):
            post(ledger, api.url)
    assert len(api.effects) == len(api.requests) == 1


@EVERY
def test_a_named_intent_that_was_refused_is_free_again(api: Any, ledger: onceward.Ledger, post: Post) -> None:
    api.honours_key, api.plan = False, ["429"]
    with onceward.intent("invoice-7"):
        assert post(ledger, api.url, max_attempts=1)[0] == 429
        assert post(ledger, api.url)[0] == 200
        assert post(ledger, api.url)[0] == 200
    assert len(api.effects) == 1
    # A final failure is the answer of this intent.
    api.plan = ["402"]
    with onceward.intent("invoice-8"):
        assert post(ledger, api.url)[0] == post(ledger, api.url)[0] == 402


@pytest.mark.parametrize("client", ["httpx", "requests"])
def test_a_key_survives_a_killed_process(api: Any, ledger: onceward.Ledger, store: str, client: str) -> None:
    code = """
    import os, sys, onceward, httpx, requests, onceward.httpx, onceward.requests
    store, url, client = sys.argv[1:4]
    ledger = onceward.Ledger(store)
    # It dies while it waits for its second attempt.
    with onceward.intent("invoice-7"):
        if client == "httpx":
            transport = onceward.httpx.Transport(ledger, honours_key=True, base="60s", cap="60s")
            httpx.Client(transport=transport).post(f"{url}/charges", json={"cents": 5})
        else:
            session = requests.Session()
            session.mount("http://", onceward.requests.Adapter(ledger, honours_key=True, base="60s", cap="60s"))
            session.post(f"{url}/charges", json={"cents": 5})
    """
    api.plan[:] = ["lost"] * 3
    process = scene.start(code, store, api.url, client)
    scene.wait_until(lambda: len(api.requests) >= 1, 30)
    process.kill()
    process.communicate()
    api.plan.clear()
    with onceward.intent("invoice-7"):
        answer = (with_httpx if client == "httpx" else with_requests)(ledger, api.url, honours_key=True)
    assert answer == (200, {"id": "ch_1", "object": "charge"})
    assert len(set(api.keys)) == 1 and len(api.effects) == 1


def test_safe_methods_have_no_key_and_the_header_that_names_an_intent_is_not_sent(api: Any, ledger: onceward.Ledger) -> None:
    with httpx.Client(transport=onceward.httpx.Transport(ledger, honours_key=True)) as client:
        api.plan[:] = ["503"]
        assert client.get(api.url).status_code == 200
        for _ in range(2):
            client.post(api.url, headers={"Onceward-Intent": "a"}, json=1)
    assert api.keys[:2] == [None, None] and len(api.requests) == 3
    assert all("onceward-intent" not in {name.lower() for name in headers} for _, headers, _ in api.requests)


def test_the_client_of_stripe_charges_once(api: Any, ledger: onceward.Ledger) -> None:
    session = requests.Session()
    session.mount("http://", onceward.requests.Adapter(ledger, honours_key=True))
    client = stripe.StripeClient(
        "sk_test_x", base_addresses={"api": api.url}, http_client=stripe.RequestsClient(session=session), max_network_retries=0
    )
    api.plan[:] = ["lost", "503"]
    for _ in range(2):
        with onceward.intent("invoice-7"):
            assert client.v1.charges.create({"amount": 1999, "currency": "eur"}).id == "ch_1"
    assert len(api.effects) == 1 and len(set(api.keys)) == 1 and len(api.requests) == 3


def test_a_budget_keeps_an_outage_from_being_amplified(api: Any) -> None:
    with httpx.Client(transport=onceward.httpx.Transport(base="1ms", cap="1ms", deadline="200ms", max_attempts=4)) as client:
        api.plan[:] = ["429"] * 200
        for _ in range(20):
            assert client.post(api.url, json=1).status_code == 429
    # Ten saved retries, a fifth of the first attempts, and one a second.
    assert len(api.requests) <= 20 + 10 + 4 + 6


def test_every_block_of_the_guide_runs(api: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 3
    api.plan[:] = ["lost", "503"]
    names: dict[str, Any] = {"api": api.url}
    for block in blocks:
        exec(block, names)
    assert len(api.effects) == 4 and None not in api.keys
    assert [(one.tenant, one.status) for one in names["ledger"].list()] == [
        (tenant, "done") for tenant in ("shop-2", "shop-1", "default", "default")
    ]
