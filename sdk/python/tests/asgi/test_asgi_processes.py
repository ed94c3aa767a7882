"""Servers in processes of their own: killed, stopped, forked, and several on one ledger."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import asgi_server
import pytest
from asgi_server import bound_socket, post, send, until

import onceward

PROGRAM = pathlib.Path(__file__).with_name("asgi_payments.py")
OPERATION = "POST /charges"


class Shop:
    """A listener that stays while its servers come and go."""

    def __init__(self, folder):
        self.listener = bound_socket()
        self.listener.listen(128)
        self.listener.set_inheritable(True)
        self.port = self.listener.getsockname()[1]
        self.ledger, self.effects = folder / "shop.db", folder / "effects"
        self.servers = []

    def start(self, *more):
        command = [sys.executable, PROGRAM, str(self.listener.fileno()), self.ledger, self.effects, *more]
        # A group of its own, so that forked servers end too.
        server = subprocess.Popen(command, pass_fds=[self.listener.fileno()], start_new_session=True)
        self.servers.append(server)
        return server

    def is_ready(self):
        return send(self.port, "GET", "/ready").status == 200

    def charged(self):
        return [line.split()[0] for line in self.effects.read_text().splitlines()] if self.effects.exists() else []

    def close(self):
        for server in self.servers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()
        self.listener.close()


@pytest.fixture
def shop(tmp_path):
    with contextlib.closing(Shop(tmp_path)) as shop:
        yield shop


def problem(answer):
    return answer.status, answer["content-type"], json.loads(answer.body)["type"].rpartition("/")[2]


def test_a_request_of_a_killed_server_is_in_doubt_and_does_not_run_again(shop):
    server = shop.start()
    assert shop.is_ready()
    headers = [("content-type", b"application/json"), ("idempotency-key", b"k")]
    lost = asgi_server.connection(shop.port, "POST", "/charges?delay=60", headers, b"{}")
    until(lambda: shop.charged() == ["k"], "the handler ran")
    server.kill()
    server.wait()
    lost.close()

    shop.start()
    assert shop.is_ready()
    for _ in range(3):
        answer = post(shop.port, "/charges?delay=60")
        assert problem(answer) == (409, "application/problem+json", "in-doubt")
        assert answer["x-should-retry"] == "false"
    assert post(shop.port, key="other").status == 200
    assert shop.charged() == ["k", "other"]

    with onceward.Ledger(shop.ledger, tenant="shop") as ledger:
        assert [intent.key for intent in ledger.list(state="in_doubt")] == ["k"]
        ledger.resolve(OPERATION, "k", happened=True, result={"pid": 7})
    answer = post(shop.port, "/charges?delay=60")
    assert (answer.status, json.loads(answer.body), answer["idempotent-replayed"]) == (200, {"pid": 7}, "true")
    assert shop.charged() == ["k", "other"]


def test_a_server_that_is_stopped_answers_its_running_requests(shop):
    server = shop.start()
    assert shop.is_ready()
    answers = []
    client = threading.Thread(target=lambda: answers.append(post(shop.port, "/charges?delay=0.7")))
    client.start()
    until(lambda: shop.charged() == ["k"], "the handler ran")
    server.send_signal(signal.SIGTERM)
    client.join()
    assert answers[0].status == 200
    server.wait(asgi_server.LIMIT)
    shop.start()
    again = post(shop.port, "/charges?delay=0.7")
    assert (again.body, again["idempotent-replayed"]) == (answers[0].body, "true")
    assert shop.charged() == ["k"]


@pytest.mark.parametrize("way", ["two servers", "forked servers"])
def test_twenty_equal_requests_to_several_processes_have_one_effect(shop, way):
    if way == "two servers":
        shop.start()
        shop.start()
    else:
        shop.start("3")
    seen = set()
    until(lambda: seen.add(send(shop.port, "GET", "/ready").body) or len(seen) > 1, "several processes answer")
    answers = []
    clients = [
        threading.Thread(target=lambda: answers.append(post(shop.port, "/charges?delay=0.3"))) for _ in range(20)
    ]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
    assert sum(answer["idempotent-replayed"] == "true" for answer in answers) == 19
    assert shop.charged() == ["k"]
