"""How requests end: exceptions, missing responses, background tasks, cancelled calls."""

import asyncio
import collections
import contextlib
import json
import random
import threading
import time

import pytest
from asgi_client import Effects, client, keyed, kind_of, starlette
from fastapi import BackgroundTasks, FastAPI, HTTPException
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

import onceward
from onceward._claim import settled
from onceward._native import NativeHttpGuard
from onceward.asgi import IdempotencyMiddleware


def test_an_exception_is_raised_and_leaves_a_doubt(ledger):
    async def handler(request):
        raise ValueError("out of paper")

    async def main():
        app = starlette(handler, ledger)
        async with client(app) as http:
            first = await http.post("/charges", headers=keyed())
            assert (first.status_code, kind_of(first), "paper" in first.text) == (502, "no-answer", False)
            again = await http.post("/charges", headers=keyed())
            assert (again.status_code, kind_of(again)) == (409, "in-doubt")
        async with client(app, raises=True) as http:
            with pytest.raises(ValueError, match="out of paper"):
                await http.post("/charges", headers=keyed("other"))

    asyncio.run(main())
    assert all(intent.status == "in_doubt" and "out of paper" in intent.error for intent in ledger.list())


def test_responses_of_exception_handlers_inside_are_kept(ledger):
    app, runs = FastAPI(), []
    app.add_middleware(IdempotencyMiddleware, ledger=ledger)

    @app.exception_handler(KeyError)
    async def on_key_error(request, error):
        return JSONResponse({"error": str(error)}, 500)

    @app.post("/{kind}")
    async def handler(kind: str):
        runs.append(kind)
        if kind == "key":
            raise KeyError("missing")
        raise HTTPException(402, "no money")

    async def main():
        async with client(app) as http:
            for kind, status in (("key", 500), ("http", 402)):
                first, second = [await http.post(f"/{kind}", headers=keyed()) for _ in range(2)]
                assert (first.status_code, second.status_code, second.text) == (status, status, first.text)
                assert second.headers["idempotent-replayed"] == "true"

    asyncio.run(main())
    assert runs == ["key", "http"]


@pytest.mark.parametrize("failure", [onceward.NotSent("no route to host"), onceward.Refused("closed")])
def test_a_handler_that_proves_that_nothing_happened_runs_again(ledger, failure):
    runs = []

    async def handler(request):
        runs.append(1)
        if len(runs) == 1:
            raise failure
        return PlainTextResponse("done")

    async def main():
        async with client(starlette(handler, ledger)) as http:
            first = await http.post("/charges", headers=keyed())
            assert (first.status_code, kind_of(first), first.headers["retry-after"]) == (502, "unreachable", "1")
            assert (await http.post("/charges", headers=keyed())).text == "done"

    asyncio.run(main())


async def silent(scope, receive, send):
    pass


async def head_only(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def too_short(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
    await send({"type": "http.response.body", "body": b"short"})


async def too_long(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"longer"})


async def bad_header(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"a\nb")]})
    await send({"type": "http.response.body", "body": b""})


async def cancelled(scope, receive, send):
    raise asyncio.CancelledError


@pytest.mark.parametrize("app", [silent, head_only, too_short, too_long, bad_header, cancelled])
def test_an_app_without_a_whole_response_leaves_a_doubt(ledger, app):
    async def main():
        async with client(IdempotencyMiddleware(app, ledger=ledger)) as http:
            if app is cancelled:
                with pytest.raises(asyncio.CancelledError):
                    await http.post("/charges", headers=keyed())
            else:
                answer = await http.post("/charges", headers=keyed())
                assert (answer.status_code, kind_of(answer)) == (502, "no-answer") or app is head_only
            assert kind_of(await http.post("/charges", headers=keyed())) == "in-doubt"

    asyncio.run(main())


def test_a_stream_that_is_longer_than_announced_is_cut_off(ledger):
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"300000")]})
        for _ in range(4):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
            await asyncio.sleep(0.01)

    async def main():
        async with client(IdempotencyMiddleware(app, ledger=ledger), raises=True) as http:
            with pytest.raises(RuntimeError, match="ended before it was complete"):
                await http.post("/charges", headers=keyed())
            assert kind_of(await http.post("/charges", headers=keyed())) == "in-doubt"

    asyncio.run(main())


@pytest.mark.parametrize(("begins", "kind"), [(False, "unreachable"), (True, "no-answer")])
def test_a_call_that_is_dropped_did_nothing_unless_it_had_begun(ledger, begins, kind):
    guard = NativeHttpGuard(ledger._native, "{}", "{}", False)
    headers = [(b"authorization", b"Bearer sk_7"), (b"idempotency-key", b"k")]

    async def main():
        loop = asyncio.get_running_loop()
        exchange = guard.judge("POST", ["/charges"], b"/charges", b"", headers, None, False)
        exchange.start()
        assert await settled(exchange.feed(loop, b"", False))
        call = await settled(exchange.next(loop))
        if begins:
            call.begin()
        del call
        response = await settled(exchange.next(loop))
        body, _, _ = await settled(response.next(loop))
        assert json.loads(body)["type"].endswith(kind)

    asyncio.run(main())
    assert ledger.list()[0].status == ("in_doubt" if begins else "open")


def test_messages_out_of_order_are_refused(ledger):
    async def app(scope, receive, send):
        with pytest.raises(RuntimeError):
            await send({"type": "http.response.body", "body": b""})
        with pytest.raises(RuntimeError):
            await send({"type": "http.response.push", "path": "/x", "headers": []})
        await send({"type": "http.response.start", "status": 200, "headers": [[b"x-a", b"b"]]})
        with pytest.raises(RuntimeError):
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": memoryview(b"ok")})
        with pytest.raises(RuntimeError):
            await send({"type": "http.response.body", "body": b""})
        assert await receive() == {"type": "http.request", "body": b"{}", "more_body": False}
        assert await receive() == {"type": "http.disconnect"}

    async def main():
        async with client(IdempotencyMiddleware(app, ledger=ledger), raises=True) as http:
            answer = await http.post("/charges", headers=keyed(), content=b"{}")
            assert (answer.text, answer.headers["x-a"]) == ("ok", "b")

    asyncio.run(main())


def test_background_tasks_run_after_the_response_and_only_once(ledger):
    app, done = FastAPI(), []
    app.add_middleware(IdempotencyMiddleware, ledger=ledger)

    @app.post("/{kind}")
    async def handler(kind: str, tasks: BackgroundTasks):
        def mail():
            (intent,) = [one for one in ledger.list() if one.operation == f"POST /{kind}"]
            done.append((kind, intent.status, onceward.claim().key))
            if kind == "fails":
                raise OSError("no mail")

        tasks.add_task(mail)
        return "ok"

    async def main():
        async with client(app) as http:
            for kind in ("works", "fails"):
                answers = [await http.post(f"/{kind}", headers=keyed()) for _ in range(2)]
                assert [answer.text for answer in answers] == ['"ok"', '"ok"']
                assert answers[1].headers["idempotent-replayed"] == "true"

    asyncio.run(main())
    assert done == [("works", "done", "k"), ("fails", "done", "k")]


def test_a_cancelled_call_runs_to_its_end_and_the_retry_gets_the_response(ledger):
    effects = Effects(delay=0.3)

    async def main():
        async with client(starlette(effects.handle, ledger)) as http:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(http.post("/charges", headers=keyed()), 0.1)
            again = await http.post("/charges", headers=keyed())
            assert (again.json(), again.headers["idempotent-replayed"]) == ({"run": 1}, "true")

    asyncio.run(main())
    assert effects.count == 1


def test_a_call_that_is_cancelled_after_its_response_finishes_its_background_tasks(ledger):
    done = []

    async def handler(request):
        async def mail():
            await asyncio.sleep(0.3)
            done.append("mail")

        return PlainTextResponse("ok", background=BackgroundTask(mail))

    async def main():
        async with client(starlette(handler, ledger)) as http:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(http.post("/charges", headers=keyed()), 0.15)
            assert (await http.post("/charges", headers=keyed())).text == "ok"
            await asyncio.sleep(0.3)

    asyncio.run(main())
    assert done == ["mail"]


def test_an_error_after_the_call_was_cancelled_is_logged(ledger, caplog):
    async def handler(request):
        await asyncio.sleep(0.2)
        raise ValueError("too late")

    async def main():
        async with client(starlette(handler, ledger)) as http:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(http.post("/charges", headers=keyed()), 0.1)
            assert kind_of(await http.post("/charges", headers=keyed())) == "in-doubt"

    asyncio.run(main())
    assert "too late" in caplog.text


def test_a_loop_that_ends_in_mid_request_leaves_a_doubt(ledger):
    begun = threading.Event()

    async def handler(request):
        begun.set()
        await asyncio.sleep(60)

    async def main():
        async with client(starlette(handler, ledger)) as http:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(http.post("/charges", headers=keyed()), 0.3)

    asyncio.run(main())
    assert begun.is_set()
    deadline = time.monotonic() + 10
    while ledger.list()[0].status != "in_doubt" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ledger.list()[0].status == "in_doubt"


def test_a_repeat_that_stops_waiting_leaves_the_first_alone(ledger):
    effects = Effects(delay=0.4)

    async def main():
        async with client(starlette(effects.handle, ledger)) as http:
            first = asyncio.ensure_future(http.post("/charges", headers=keyed()))
            await asyncio.sleep(0.1)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(http.post("/charges", headers=keyed()), 0.1)
            assert (await first).json() == {"run": 1}

    asyncio.run(main())
    assert effects.count == 1


def test_a_handler_is_not_told_that_its_client_went_away(ledger):
    async def handler(request):
        return JSONResponse(await request.is_disconnected())

    async def main():
        async with client(starlette(handler, ledger)) as http:
            assert (await http.post("/charges", headers=keyed())).json() is False

    asyncio.run(main())


def test_twenty_equal_requests_have_one_effect(ledger):
    effects = Effects(status=201, delay=0.2)

    async def main():
        async with client(starlette(effects.handle, ledger)) as http:
            answers = await asyncio.gather(*(http.post("/charges", headers=keyed(), json={}) for _ in range(20)))
        assert {(answer.status_code, answer.text) for answer in answers} == {(201, '{"run":1}')}
        assert sum("idempotent-replayed" in answer.headers for answer in answers) == 19

    asyncio.run(main())
    assert effects.count == 1


def test_calls_that_are_cancelled_at_any_moment_have_one_effect_each(ledger):
    moments, runs = random.Random(7), collections.Counter()

    async def handler(request):
        runs[onceward.claim().key] += 1
        await asyncio.sleep(moments.random() * 0.01)

        async def pieces():
            for piece in range(3):
                yield f"piece {piece}"
                await asyncio.sleep(moments.random() * 0.005)

        return StreamingResponse(pieces())

    async def insist(http, key):
        for attempt in range(100):
            limit = moments.random() * 0.1 if attempt < 10 else 20
            with contextlib.suppress(asyncio.TimeoutError):
                answer = await asyncio.wait_for(http.post("/charges", headers=keyed(key)), limit)
                if answer.status_code == 200:
                    return answer.text
                # A call that was cancelled before its handler began has given its claim back.
                assert kind_of(answer) == "attempt-failed"
        raise AssertionError("no answer")

    async def main():
        async with client(starlette(handler, ledger)) as http:
            texts = await asyncio.gather(*(insist(http, f"k{number % 50}") for number in range(100)))
            assert set(texts) == {"piece 0piece 1piece 2"}
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    assert len(runs) == 50 and set(runs.values()) == {1}
    assert {intent.status for intent in ledger.list(limit=100)} == {"done"}
