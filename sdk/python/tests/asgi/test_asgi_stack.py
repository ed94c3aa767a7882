"""What passes the middleware untouched, and other apps around it and inside."""

import asyncio
import contextlib
import contextvars
import time

import httpx
import pytest
from asgi_client import Effects, client, keyed, kind_of, starlette
from asgi_server import until
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute

import onceward
from onceward.asgi import IdempotencyMiddleware


OTHER = contextvars.ContextVar("other", default="unset")


def test_other_scopes_and_methods_get_the_very_same_objects(ledger):
    seen = []

    async def app(*given):
        seen.append(given)

    async def receive():
        raise AssertionError("it was read")

    async def send(message):
        raise AssertionError("it was answered")

    async def main():
        guard = IdempotencyMiddleware(app, ledger=ledger)
        scopes = [{"type": "lifespan"}, {"type": "websocket", "path": "/"}]
        methods = ("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE")
        scopes += [{"type": "http", "method": method} for method in methods]
        for scope in scopes:
            before = dict(scope)
            await guard(scope, receive, send)
            assert scope == before
            assert all(got is given for got, given in zip(seen[-1], (scope, receive, send), strict=True))
        assert len(seen) == len(scopes)

    asyncio.run(main())


def test_lifespan_and_websockets_work(ledger):
    events = []

    @contextlib.asynccontextmanager
    async def lifespan(app):
        events.append("start")
        yield {"pool": 7}
        events.append("stop")

    async def socket(websocket):
        await websocket.accept()
        await websocket.send_text(await websocket.receive_text())
        await websocket.close()

    async def handler(request):
        return PlainTextResponse(str(request.state.pool) + request.state.onceward_claim.key)

    routes = [Route("/charges", handler, methods=["POST"]), WebSocketRoute("/socket", socket)]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.add_middleware(IdempotencyMiddleware, ledger=ledger)
    with TestClient(app, headers={"authorization": "Bearer sk_7"}) as http:
        assert http.post("/charges", headers=keyed()).text == "7k"
        with http.websocket_connect("/socket") as connected:
            connected.send_text("hello")
            assert connected.receive_text() == "hello"
    assert events == ["start", "stop"]


def test_a_request_that_passes_costs_next_to_nothing(ledger):
    async def app(scope, receive, send):
        pass

    async def microseconds(target):
        scope, best = {"type": "http", "method": "GET", "path": "/"}, float("inf")
        for _ in range(20):
            began = time.perf_counter()
            for _ in range(1000):
                await target(scope, None, None)
            best = min(best, (time.perf_counter() - began) * 1000)
        return best

    async def main():
        # A debug build, on a busy machine.
        assert await microseconds(IdempotencyMiddleware(app, ledger=ledger)) - await microseconds(app) < 10

    asyncio.run(main())


def test_a_guarded_method_in_small_letters_does_not_pass(ledger):
    effects = Effects()

    async def main():
        async with client(starlette(effects.handle, ledger)) as http:
            answer = await http.send(http.build_request("POST", "/charges"), auth=None)
            assert kind_of(answer) == "key-missing"
            request = http.build_request("POST", "/charges", headers=keyed())
            request.method = "post"
            assert kind_of(await http.send(request)) == "bad-request"

    asyncio.run(main())
    assert effects.count == 0


def test_a_path_limits_it_and_an_encoded_slash_does_not_go_around_it(ledger):
    seen = []

    async def app(scope, receive, send):
        seen.append((scope["path"], "onceward.claim" in scope))
        await PlainTextResponse("ok")(scope, receive, send)

    async def main():
        async with client(IdempotencyMiddleware(app, ledger=ledger, path="/v1/*")) as http:
            for path, is_guarded in (("/login", False), ("/v1/charges", True), ("/v1%2Fcharges", True), ("/v2", False)):
                assert (await http.post(path, headers=keyed())).text == "ok"
                assert seen[-1][1] is is_guarded, path

    asyncio.run(main())


def test_two_middlewares_guard_a_request_once_and_mounted_apps_stay_apart(ledger):
    effects = Effects()

    def part():
        app = Starlette(routes=[Route("/charges", effects.handle, methods=["POST"])])
        app.add_middleware(IdempotencyMiddleware, ledger=ledger)
        return app

    app = Starlette(routes=[Mount("/eu", part()), Mount("/us", part())])

    async def main():
        for outer in (IdempotencyMiddleware(app, ledger=ledger), app):
            async with client(outer) as http:
                for path, run in (("/eu/charges", 1), ("/us/charges", 2), ("/eu/charges", 1)):
                    assert (await http.post(path, headers=keyed())).json() == {"run": run}

    asyncio.run(main())
    assert {intent.operation for intent in ledger.list()} == {"POST /eu/charges", "POST /us/charges"}
    assert effects.count == 2


def test_it_works_between_other_middlewares(ledger):
    async def handler(request):
        OTHER.set("inside")
        return StreamingResponse(iter([request.state.user, "x" * 2000]), headers={"x-other": OTHER.get()})

    async def name_user(request, call_next):
        request.state.user = OTHER.get()
        return await call_next(request)

    app = Starlette(routes=[Route("/charges", handler, methods=["POST"])])
    app.add_middleware(BaseHTTPMiddleware, dispatch=name_user)
    app.add_middleware(GZipMiddleware)
    app.add_middleware(IdempotencyMiddleware, ledger=ledger, tenant=lambda request: request.state.user)
    app.add_middleware(GZipMiddleware)
    app.add_middleware(BaseHTTPMiddleware, dispatch=name_user)

    async def main():
        OTHER.set("outside")
        async with client(app) as http:
            answers = [await http.post("/charges", headers=keyed()) for _ in range(2)]
        for answer in answers:
            assert (answer.status_code, answer.text) == (200, "outside" + "x" * 2000)
            assert (answer.headers["content-encoding"], answer.headers["x-other"]) == ("gzip", "inside")
        assert "idempotent-replayed" in answers[1].headers

    asyncio.run(main())


def test_extensions_that_would_bypass_it_are_hidden_and_trailers_are_passed_on(ledger):
    async def app(scope, receive, send):
        assert set(scope["extensions"]) == {"http.response.trailers", "tls"}
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": b"body"})
        await send({"type": "http.response.trailers", "headers": [(b"x-sum", b"7")]})

    async def asked(extensions):
        scope = {"type": "http", "method": "POST", "path": "/", "client": ["127.0.0.1", 1], "extensions": extensions}
        scope["headers"] = [(b"authorization", b"Bearer sk_7"), (b"idempotency-key", b"k")]
        sent, received = [], [{"type": "http.request"}]

        async def receive():
            return received.pop() if received else await asyncio.sleep(60)

        async def send(message):
            sent.append(message)

        await IdempotencyMiddleware(app, ledger=ledger)(scope, receive, send)
        return sent

    async def main():
        names = ("http.response.trailers", "http.response.pathsend", "http.response.zerocopysend", "tls")
        first = await asked({name: {} for name in names})
        assert first[0]["trailers"] is True
        trailers = dict(first[-1]["headers"])
        assert trailers[b"x-sum"] == b"7" and b"idempotency-expires" in trailers
        repeat = await asked(None)
        assert b"".join(message.get("body", b"") for message in repeat) == b"body"
        assert "trailers" not in repeat[0]
        assert repeat[-1] == {"type": "http.response.body", "body": b"", "more_body": False}

    asyncio.run(main())


@pytest.mark.parametrize("is_mounted", [True, False])
def test_a_path_is_that_of_the_apps_own_routes_wherever_it_is_mounted(ledger, is_mounted):
    """A proxy that takes a prefix away (`--root-path`), or a mount, must not turn the guard off."""
    effects = Effects()
    app = Starlette(routes=[Route("/charges", effects.handle, methods=["POST"])])
    app.add_middleware(IdempotencyMiddleware, ledger=ledger, path="/charges", tenant="fixed:a")
    if is_mounted:
        app = Starlette(routes=[Mount("/api", app)])

    async def main():
        transport = httpx.ASGITransport(app, root_path="" if is_mounted else "/api")
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as http:
            answers = [await http.post("/api/charges", headers=keyed()) for _ in range(2)]
        assert [answer.json() for answer in answers] == [{"run": 1}] * 2

    asyncio.run(main())
    assert effects.count == 1


def test_a_client_that_goes_away_is_not_an_error_for_middleware_outside(ledger):
    async def handler(request):
        await asyncio.sleep(0.05)
        return PlainTextResponse("done")

    async def outside(request, call_next):
        return await call_next(request)

    app = Starlette(routes=[Route("/charges", handler, methods=["POST"])])
    app.add_middleware(IdempotencyMiddleware, ledger=ledger, tenant="fixed:a")
    app.add_middleware(BaseHTTPMiddleware, dispatch=outside)
    messages, sent = [{"type": "http.request", "body": b"", "more_body": False}], []

    async def receive():
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    headers = [(name.encode(), value.encode()) for name, value in keyed().items()]
    scope = {"type": "http", "method": "POST", "path": "/charges", "query_string": b"", "headers": headers}
    asyncio.run(app(scope, receive, send))
    # Starlette's middleware adds an empty piece of its own.
    assert {message["type"] for message in sent} == {"http.response.start", "http.response.body"}
    assert sent[0]["status"] == 499
    # Nothing ran if the client was gone before the handler was called: the claim is given back, beside the loop.
    until(lambda: {one.status for one in ledger.list()} <= {"done", "open"}, "the claim ended")


def test_a_header_names_the_tenant_only_from_peers_that_are_named(ledger):
    """The address is what the server reports: with `--forwarded-allow-ips '*'` a client chooses it."""
    with pytest.raises(onceward.InvalidCall, match="only if trusted_peers says from whom"):
        IdempotencyMiddleware(PlainTextResponse("x"), ledger=ledger, tenant="header:X-Tenant")
    IdempotencyMiddleware(PlainTextResponse("x"), ledger=ledger, tenant="header:X-Tenant", trusted_peers=["10.0.0.1"])
