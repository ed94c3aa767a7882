"""Whose requests with a name are: another account gets neither the stored answer nor a request that is sent for it unseen."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable
from typing import Any

import httpx
import onceward
import onceward.httpx
import onceward.requests
import pytest
import requests


ACCOUNTS = ("Bearer sk_acme", "Bearer sk_other")


@pytest.fixture(params=["httpx", "async httpx", "requests"])
def post_as(request: pytest.FixtureRequest, api: Any, ledger: onceward.Ledger) -> Callable[..., Any]:
    """One POST with these headers: returns the JSON of the answer."""

    def with_httpx(headers: dict[str, str], **settings: Any) -> Any:
        with httpx.Client(transport=onceward.httpx.Transport(ledger, honours_key=True, **settings)) as client:
            return client.post(f"{api.url}/charges", json={"cents": 5}, headers=headers).json()

    def with_async_httpx(headers: dict[str, str], **settings: Any) -> Any:
        async def main() -> Any:
            transport = onceward.httpx.Transport(ledger, honours_key=True, **settings)
            async with httpx.AsyncClient(transport=transport) as client:
                return (await client.post(f"{api.url}/charges", json={"cents": 5}, headers=headers)).json()

        return asyncio.run(main())

    def with_requests(headers: dict[str, str], **settings: Any) -> Any:
        with requests.Session() as session:
            session.mount("http://", onceward.requests.Adapter(ledger, honours_key=True, **settings))
            return session.post(f"{api.url}/charges", json={"cents": 5}, headers=headers).json()

    api.honours_key = False
    return {"httpx": with_httpx, "async httpx": with_async_httpx, "requests": with_requests}[request.param]


@pytest.mark.parametrize("header", ["Authorization", "X-Api-Key", "Stripe-Account", "OpenAI-Organization"])
def test_another_account_does_not_get_the_stored_answer(
    api: Any, ledger: onceward.Ledger, store: str, post_as: Callable[..., Any], header: str
) -> None:
    with onceward.intent("invoice-7"):
        assert post_as({header: ACCOUNTS[0]}) == post_as({header: ACCOUNTS[0]}) == {"id": "ch_1", "object": "charge"}
        with pytest.raises(onceward.Mismatch, match="tenant=") as caught:
            post_as({header: ACCOUNTS[1]})
        with pytest.raises(onceward.Mismatch):
            post_as({})
    assert len(api.effects) == 1
    assert "sk_" not in str(caught.value)
    ledger.close()
    for file in pathlib.Path(store).parent.iterdir():
        assert b"sk_acme" not in file.read_bytes() and b"sk_other" not in file.read_bytes()


def test_each_tenant_has_intents_of_its_own(api: Any, ledger: onceward.Ledger, post_as: Callable[..., Any]) -> None:
    accounts = {"Bearer sk_acme": "acme", "Bearer sk_other": "other"}
    with onceward.intent("invoice-7"):
        for _ in range(2):
            for number, account in enumerate(ACCOUNTS, 1):
                answer = post_as(
                    {"Authorization": account}, tenant=lambda request: accounts[str(request.headers["Authorization"])]
                )
                assert answer["id"] == f"ch_{number}"
        # A credential that was replaced is that of the same tenant.
        assert post_as({"Authorization": "Bearer new"}, tenant="acme")["id"] == "ch_1"
        with pytest.raises(onceward.InvalidCall, match="tenant"):
            post_as({"Authorization": "Bearer new"}, tenant=lambda _request: None)
        # The tenant is known, and the account is not.
        with pytest.raises(onceward.Mismatch):
            post_as({"Authorization": "Bearer new", "Stripe-Account": "acct_2"}, tenant="acme")
    assert sorted(one.tenant for one in ledger.list()) == ["acme", "other"] and len(api.effects) == 2


def test_headers_that_name_an_account_are_part_of_the_tenant(
    api: Any, ledger: onceward.Ledger, post_as: Callable[..., Any]
) -> None:
    with onceward.intent("invoice-7"):
        for _ in range(2):
            for number in (1, 2):
                headers = {"Authorization": "Bearer sk_platform", "X-Shop": f"shop {number}"}
                assert post_as(headers, identity_headers=["X-Shop"])["id"] == f"ch_{number}"
        # Without one it is a third.
        assert post_as({"Authorization": "Bearer sk_platform"}, identity_headers=["x-shop"])["id"] == "ch_3"
        with pytest.raises(onceward.Mismatch):
            post_as({"Authorization": "Bearer sk_other", "X-Shop": "shop 1"}, identity_headers=["X-Shop"])
    assert len(api.effects) == 3 and all("shop" not in one.tenant for one in ledger.list())


@pytest.mark.parametrize("credential", ["Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln", "AWS4-HMAC-SHA256 Credential=a"])
def test_a_credential_that_changes_needs_a_tenant(api: Any, post_as: Callable[..., Any], credential: str) -> None:
    with onceward.intent("invoice-7"):
        with pytest.raises(onceward.InvalidCall, match="tenant="):
            post_as({"Authorization": credential})
        assert not api.requests
        assert post_as({"Authorization": credential}, tenant="acme")["id"] == "ch_1"
    # Without a name, nothing is kept, and nothing is asked.
    assert post_as({"Authorization": credential})["id"] == "ch_2"


def test_with_a_tenant_a_credential_may_be_replaced_after_a_refusal(api: Any, post_as: Callable[..., Any]) -> None:
    for tenant in (None, "acme"):
        api.plan[:] = ["401"]
        with onceward.intent("invoice-7"):
            assert "error" in post_as({"Authorization": "Bearer old"}, tenant=tenant)
            if tenant is None:
                with pytest.raises(onceward.Mismatch, match="tenant="):
                    post_as({"Authorization": "Bearer new"})
            else:
                assert post_as({"Authorization": "Bearer new"}, tenant=tenant)["id"] == "ch_1"


@pytest.mark.parametrize(
    "wrong",
    [{"tenant": ""}, {"tenant": "authorization"}, {"tenant": "header:X-Account"}, {"tenant": 7}]
    + [{"identity_headers": "X-Shop"}, {"identity_headers": ["a b"]}],
)
def test_settings_that_do_not_say_whose_a_request_is_are_refused(ledger: onceward.Ledger, wrong: dict[str, Any]) -> None:
    for client in (onceward.httpx.Transport, onceward.requests.Adapter):
        with pytest.raises(onceward.InvalidCall):
            client(ledger, **wrong)
    behind_http = onceward.Ledger("http://127.0.0.1:1", token="t")
    for given in ({"tenant": "acme"}, {"identity_headers": ["X-Shop"]}):
        with pytest.raises(onceward.InvalidCall, match="token"):
            onceward.httpx.Transport(behind_http, **given)
