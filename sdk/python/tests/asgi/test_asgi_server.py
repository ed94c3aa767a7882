"""Real connections to uvicorn: many at once, lost clients, streams, uploads and connections that are kept."""

import asyncio
import contextlib
import json
import logging
import threading
import time

import asgi_server
import httpx
import pytest
from asgi_server import post, serving, until
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

import onceward
from onceward.asgi import IdempotencyMiddleware

CREDENTIAL = ("authorization", b"Bearer sk_7")


class Effects:
    """A handler, `handle`, that counts its runs."""

    def __init__(self, delay=0.0):
        self.count, self.delay = 0, delay

    async def handle(self, request):
        self.count += 1
        count = self.count
        await asyncio.sleep(self.delay)
        return JSONResponse({"run": count, "bytes": len(await request.body())})


@contextlib.contextmanager
def guarded(handler, folder, http="httptools", **settings):
    """Serves one route behind the middleware. Yields the port."""
    app = Starlette(routes=[Route("/charges", handler, methods=["POST"])])
    with onceward.Ledger(folder / "ledger.db") as ledger:
        app.add_middleware(IdempotencyMiddleware, ledger=ledger, **settings)
        with serving(app, http=http) as port:
            yield port


def kind_of(answer):
    return json.loads(answer.body)["type"].rpartition("/")[2]


def test_twenty_equal_requests_have_one_effect(tmp_path):
    effects, answers = Effects(delay=0.3), []
    with guarded(effects.handle, tmp_path) as port:
        clients = [threading.Thread(target=lambda: answers.append(post(port))) for _ in range(20)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert effects.count == 1
    assert {(answer.status, answer.body) for answer in answers} == {(200, b'{"run":1,"bytes":2}')}
    assert sum(answer["idempotent-replayed"] == "true" for answer in answers) == 19


def test_requests_on_one_connection(tmp_path):
    effects = Effects()
    with (
        guarded(effects.handle, tmp_path, request_limit=1000) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"authorization": "Bearer sk_7"}) as http,
    ):
        for number in range(1, 21):
            answers = [http.post("/charges", headers={"idempotency-key": f"k{number}"}) for _ in range(2)]
            assert [answer.json()["run"] for answer in answers] == [number, number]
            assert http.post("/charges", headers={"idempotency-key": "large"}, content=b"x" * 1001).status_code == 413
            assert http.post("/charges").status_code == 400
    assert effects.count == 20


@pytest.mark.parametrize("http", ["httptools", "h11"])
def test_an_upload_in_chunks(tmp_path, http):
    effects = Effects()

    def pieces():
        for _ in range(5):
            yield b"x" * 1000
            time.sleep(0.02)

    headers = {"authorization": "Bearer sk_7", "idempotency-key": "k"}
    with guarded(effects.handle, tmp_path, http=http, request_limit=6000) as port:
        url = f"http://127.0.0.1:{port}/charges"
        assert httpx.post(url, headers=headers, content=pieces()).json() == {"run": 1, "bytes": 5000}
        again = httpx.post(url, headers=headers, content=b"x" * 5000)
        assert (again.json(), again.headers["idempotent-replayed"]) == ({"run": 1, "bytes": 5000}, "true")


def test_a_client_that_goes_away_while_it_uploads_begins_nothing(tmp_path):
    effects = Effects()
    with guarded(effects.handle, tmp_path) as port:
        headers = [CREDENTIAL, ("idempotency-key", b"k")]
        made = asgi_server.connection(port, "POST", "/charges", headers, b"half", length=8)
        time.sleep(0.1)
        made.close()
        time.sleep(0.2)
        assert effects.count == 0
        assert json.loads(post(port).body)["run"] == 1


def test_a_client_that_stops_waiting_for_the_first_leaves_it_alone(tmp_path):
    effects = Effects(delay=0.6)
    with guarded(effects.handle, tmp_path) as port:
        first = threading.Thread(target=lambda: post(port))
        first.start()
        until(lambda: effects.count == 1, "the handler ran")
        headers = [CREDENTIAL, ("content-type", b"application/json"), ("idempotency-key", b"k")]
        asgi_server.connection(port, "POST", "/charges", headers, b"{}").close()
        first.join()
        assert post(port)["idempotent-replayed"] == "true"
    assert effects.count == 1


def test_an_endless_response_is_given_up_after_its_client_is_gone(tmp_path):
    ticks = []

    async def handler(request):
        async def pieces():
            while True:
                ticks.append(1)
                yield b"tick"
                await asyncio.sleep(0.005)

        return StreamingResponse(pieces())

    with guarded(handler, tmp_path, unread_for=0.2, wait=0) as port:
        headers = [CREDENTIAL, ("content-type", b"application/json"), ("idempotency-key", b"k")]
        made = asgi_server.connection(port, "POST", "/charges", headers, b"{}")
        # It goes on as long as the client reads it.
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            assert made.recv(1000)
        made.close()
        until(lambda: kind_of(post(port)) == "in-doubt", "the doubt is reported")
        # The app is cancelled a moment later.
        time.sleep(0.1)
        ended = len(ticks)
        time.sleep(0.1)
        assert len(ticks) == ended


def test_an_app_that_hangs_after_its_client_is_gone_is_cancelled(tmp_path):
    cancelled = threading.Event()

    async def handler(request):
        async def pieces():
            yield b"first"
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        return StreamingResponse(pieces())

    with guarded(handler, tmp_path, unread_for=0.2, wait=0) as port:
        headers = [CREDENTIAL, ("content-type", b"application/json"), ("idempotency-key", b"k")]
        made = asgi_server.connection(port, "POST", "/charges", headers, b"{}")
        assert made.recv(1000)
        made.close()
        assert cancelled.wait(asgi_server.LIMIT)
        assert kind_of(post(port)) == "in-doubt"


def test_the_head_of_a_stream_does_not_wait_for_its_first_piece(tmp_path):
    seen = threading.Event()

    async def handler(request):
        async def pieces():
            assert await asyncio.to_thread(seen.wait, asgi_server.LIMIT)
            yield b"first"

        return StreamingResponse(pieces(), headers={"x-head": "1"})

    with guarded(handler, tmp_path) as port:
        headers = [CREDENTIAL, ("idempotency-key", b"k")]
        made = asgi_server.connection(port, "POST", "/charges", headers, b"{}")
        head = made.recv(10_000)
        assert b"x-head: 1" in head and b"first" not in head
        seen.set()
        assert b"first" in made.recv(10_000)
        made.close()


def test_a_stream_whose_client_is_gone_is_finished_and_replayed(tmp_path):
    async def handler(request):
        async def pieces():
            for _ in range(10):
                yield b"piece"
                await asyncio.sleep(0.03)

        return StreamingResponse(pieces())

    with guarded(handler, tmp_path) as port:
        headers = [CREDENTIAL, ("content-type", b"application/json"), ("idempotency-key", b"k")]
        made = asgi_server.connection(port, "POST", "/charges", headers, b"{}")
        assert made.recv(1000)
        made.close()
        again = post(port)
        assert (again.status, again.body, again["idempotent-replayed"]) == (200, b"piece" * 10, "true")


def test_a_slow_client_slows_the_app_down_and_gets_everything(tmp_path):
    produced = []

    async def handler(request):
        async def pieces():
            for _ in range(400):
                produced.append(1)
                yield b"x" * 65536

        return StreamingResponse(pieces())

    with guarded(handler, tmp_path) as port:
        headers = [CREDENTIAL, ("content-type", b"application/json"), ("idempotency-key", b"k")]
        made = asgi_server.connection(port, "POST", "/charges", headers, b"{}")
        time.sleep(1)
        assert 0 < len(produced) < 300, "the app ran ahead of its client"
        answer = asgi_server.read(made, "POST")
        made.close()
        assert (answer.whole, len(answer.body), len(produced)) == (True, 400 * 65536, 400)
        assert kind_of(post(port)) == "not-kept"


def test_the_server_logs_an_exception_and_its_client_gets_a_problem(tmp_path, caplog):
    async def handler(request):
        raise ValueError("out of paper")

    with caplog.at_level(logging.ERROR), guarded(handler, tmp_path) as port:
        answer = post(port)
        assert (answer.status, kind_of(answer), answer.whole) == (502, "no-answer", True)
        assert kind_of(post(port)) == "in-doubt"
    assert caplog.text.count("ValueError: out of paper") == 1


def test_a_response_does_not_wait_for_background_tasks(tmp_path):
    ended = threading.Event()

    async def handler(request):
        async def mail():
            await asyncio.sleep(0.5)
            ended.set()

        return PlainTextResponse("ok", background=BackgroundTask(mail))

    with guarded(handler, tmp_path) as port:
        assert post(port).body == b"ok"
        assert not ended.is_set()
        assert post(port)["idempotent-replayed"] == "true"
        assert ended.wait(asgi_server.LIMIT)


def test_with_a_causal_window_only_a_lost_answer_is_replayed(tmp_path):
    effects = Effects(delay=0.2)
    with guarded(effects.handle, tmp_path, key_mode="derived", window="causal") as port:

        def run():
            answer = post(port, key=None)
            return json.loads(answer.body)["run"], answer["idempotent-replayed"]

        def delivered_run(expected):
            # The delivery is recorded a moment after the client has the answer.
            time.sleep(0.2)
            assert run() == expected

        delivered_run((1, None))
        delivered_run((2, None))
        time.sleep(0.2)
        headers = [CREDENTIAL, ("content-type", b"application/json")]
        made = asgi_server.connection(port, "POST", "/charges", headers, b"{}")
        until(lambda: effects.count == 3, "the handler ran")
        made.close()
        time.sleep(0.4)
        delivered_run((3, "true"))
        delivered_run((4, None))
