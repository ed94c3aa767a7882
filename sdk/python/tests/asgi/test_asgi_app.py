"""What an app sees of the middleware: its claim, its tenant, and the settings."""

import asyncio
import json

import pytest
from asgi_client import Effects, client, keyed, kind_of, starlette
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse

import onceward
from onceward.asgi import IdempotencyMiddleware


def test_a_handler_gets_its_claim_in_every_way(ledger):
    app = FastAPI()
    app.add_middleware(IdempotencyMiddleware, ledger=ledger)

    @app.post("/async")
    async def in_async(request: Request):
        claim = onceward.claim()
        assert request.state.onceward_claim is claim is request.scope["onceward.claim"]
        assert (claim.key, claim.attempt, claim.is_guarded, claim.probe_first) == ("k", 1, True, False)
        assert "POST /async#" in repr(claim)
        await claim.sent_async()
        return claim.downstream_key

    @app.post("/thread")
    def in_thread():
        onceward.claim().sent()
        return onceward.claim().downstream_key

    @app.post("/dependency")
    async def as_dependency(claim: onceward.Claim = Depends(onceward.claim)):  # noqa: B008
        return await asyncio.create_task(asyncio.sleep(0, onceward.claim().downstream_key))

    with TestClient(app, headers={"authorization": "Bearer sk_7"}) as http:
        keys = set()
        for path in ("/async", "/thread", "/dependency"):
            first, second = (http.post(path, headers=keyed()) for _ in range(2))
            assert first.status_code == 200 and first.json().startswith("once_v1_"), first.text
            assert second.headers["idempotent-replayed"] == "true" and second.json() == first.json()
            keys.add(first.json())
    assert len(keys) == 3


def test_without_a_claim_there_is_an_error_and_none_is_left_behind(ledger):
    async def handler(request):
        return PlainTextResponse(onceward.claim().key)

    async def main():
        async with client(starlette(handler, ledger, key_mode="optional"), raises=True) as http:
            assert (await http.post("/charges", headers=keyed())).text == "k"
            with pytest.raises(onceward.InvalidCall):
                onceward.claim()
            for method in ("GET", "POST"):
                with pytest.raises(onceward.InvalidCall):
                    await http.request(method, "/charges")

    asyncio.run(main())


def test_a_run_without_a_record_says_so(tmp_path, ledger):
    async def handler(request):
        claim = onceward.claim()
        return JSONResponse([claim.is_guarded, claim.attempt])

    app = starlette(handler, ledger, operation={"store_down": "open"})

    async def main():
        async with client(app) as http:
            assert (await http.post("/charges", headers=keyed("a"))).json() == [True, 1]
            (tmp_path / "ledger.db").unlink()
            assert (await http.post("/charges", headers=keyed("b"))).json() == [False, 1]

    asyncio.run(main())


def test_an_attempt_after_a_doubt_has_the_same_downstream_key(ledger):
    seen = []

    async def handler(request):
        seen.append((onceward.claim().downstream_key, onceward.claim().attempt))
        return PlainTextResponse("", 502 if len(seen) == 1 else 200)

    async def main():
        async with client(starlette(handler, ledger, honours_key=True)) as http:
            statuses = [(await http.post("/charges", headers=keyed())).status_code for _ in range(3)]
            assert statuses == [502, 200, 200]

    asyncio.run(main())
    assert seen == [(seen[0][0], 1), (seen[0][0], 2)]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_of_the_request_names_the_tenant(ledger, is_async):
    def tenant(request):
        assert isinstance(request, Request)
        return request.headers.get("x-user")

    async def async_tenant(request):
        await asyncio.sleep(0)
        return tenant(request)

    effects = Effects()
    app = starlette(effects.handle, ledger, tenant=async_tenant if is_async else tenant)

    async def main():
        async with client(app) as http:
            for user, run in (("ann", 1), ("bob", 2), ("ann", 1)):
                answer = await http.post("/charges", headers=keyed() | {"x-user": user})
                assert answer.json() == {"run": run}
            refused = await http.post("/charges", headers=keyed())
            assert (refused.status_code, kind_of(refused)) == (401, "no-credential")

    asyncio.run(main())
    assert effects.count == 2
    assert {intent.tenant for intent in ledger.list()} == {"ann", "bob"}


def test_an_error_of_the_tenant_function_is_raised_and_nothing_runs(ledger):
    effects = Effects()

    async def main():
        async with client(starlette(effects.handle, ledger, tenant=lambda request: 1 / 0), raises=True) as http:
            with pytest.raises(ZeroDivisionError):
                await http.post("/charges", headers=keyed())

    asyncio.run(main())
    assert effects.count == 0


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"profile": "other"}, "other"),
        ({"key_mode": "maybe"}, "maybe"),
        ({"tenant": "acme"}, "tenant"),
        ({"tenant": "whoami:/me#/id"}, "whoami"),
        ({"methods": []}, "methods"),
        ({"methods": ["post"]}, "upper case"),
        ({"wait": "soon"}, "soon"),
        ({"window": 60}, "derived"),
        ({"in_flight_status": 404}, "409"),
        ({"refusals": [200]}, "refusals"),
        ({"request_limit": "65MiB"}, "64MiB"),
        ({"path": "v1"}, "path"),
        ({"operation": {"in_doubt": "probe"}}, "probe"),
        ({"operation": {"retries": 3}}, "retries"),
        ({"key_format": "pattern:("}, "key_format"),
    ],
)
def test_wrong_settings_are_refused(ledger, settings, text):
    with pytest.raises(onceward.InvalidCall, match=text):
        IdempotencyMiddleware(Effects(), ledger=ledger, **settings)


def test_a_ledger_behind_http_is_refused():
    with onceward.Ledger("http://127.0.0.1:43999") as ledger, pytest.raises(onceward.InvalidCall, match="behind HTTP"):
        IdempotencyMiddleware(Effects(), ledger=ledger)


def test_a_ledger_that_moves_is_followed(ledger):
    effects = Effects()

    async def main():
        async with client(starlette(effects.handle, ledger)) as http:
            await http.post("/charges", headers=keyed())
            first, ledger._native = ledger._native, type(ledger._native)("memory:")
            assert (await http.post("/charges", headers=keyed())).json() == {"run": 2}
            ledger._native = first
            assert (await http.post("/charges", headers=keyed())).json() == {"run": 1}

    asyncio.run(main())


def test_a_closed_ledger_raises_and_nothing_runs(ledger):
    effects = Effects()
    app = starlette(effects.handle, ledger)
    ledger.close()

    async def main():
        async with client(app, raises=True) as http:
            with pytest.raises(onceward.StoreUnavailable):
                await http.post("/charges", headers=keyed())

    asyncio.run(main())
    assert effects.count == 0


def test_the_problem_documents_are_json(ledger):
    async def main():
        async with client(starlette(Effects().handle, ledger, profile="stripe")) as http:
            answer = await http.post("/charges")
            assert answer.headers["content-type"] == "application/problem+json"
            assert json.loads(answer.content)["error"]["type"] == "idempotency_error"

    asyncio.run(main())
