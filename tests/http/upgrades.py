#!/usr/bin/env python3
"""Connections that upgrade their protocol through the gateway: real WebSockets, and upgrades that must be refused.

tests/http/upgrades.py --binary target/debug/onceward
"""

import contextlib
import http.client
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import checks
import guide
import environment
from certificates import Certificates
from checks import is_equal, until
from gateway import Gateway

skipped = environment.enter()
if not skipped:
    import websockets.exceptions
    from websockets.http11 import Response
    from websockets.datastructures import Headers
    from websockets.sync.client import connect
    from websockets.sync.server import serve

# Larger than any buffer on the way.
LARGE = 8 * 1024 * 1024

# How long the gateway waits for running connections after SIGTERM.
GRACE = 30.0


class Server:
    """A real WebSocket server. The path says what it does with a connection."""

    def __init__(self):
        self.closed = {}
        self.requests = []
        options = {"process_request": self.refuse, "select_subprotocol": self.choose, "max_size": None}
        self.server = serve(self.handle, "127.0.0.1", 0, **options)
        self.port = self.server.socket.getsockname()[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def refuse(self, connection, request):
        self.requests.append(request)
        if request.path.startswith("/refused/"):
            status = int(request.path.rsplit("/", 1)[1])
            return Response(status, "So", Headers({"X-Why": "told", "Content-Length": "3"}), b"no\n")
        return None

    def choose(self, connection, offered):
        return "a" if "a" in offered else None

    def handle(self, connection):
        path = connection.request.path
        try:
            if path == "/push":
                for number in range(1000):
                    connection.send(f"event {number}")
                connection.close(4001, "enough")
            for message in connection:
                connection.send(message)
        except websockets.exceptions.ConnectionClosed:
            pass
        self.closed[path] = connection.close_code


@contextlib.contextmanager
def gateway(*options):
    server = Server()
    with Gateway(BINARY, f"http://127.0.0.1:{server.port}", options) as started:
        yield started, server


def socket_to(started, path, **options):
    return connect(started.url.replace("http", "ws", 1) + path, max_size=None, proxy=None, **options)


def messages_come_back_as_they_were():
    with gateway() as (started, _), socket_to(started, "/echo") as client:
        for message in ("text", "", b"\x00\xff", "é" * 1000, b""):
            client.send(message)
            is_equal(client.recv(timeout=checks.TIMEOUT), message)


def a_large_message_comes_through_both_ways():
    with gateway() as (started, _), socket_to(started, "/echo") as client:
        message = bytes(range(256)) * (LARGE // 256)
        client.send(message)
        assert client.recv(timeout=checks.TIMEOUT) == message, "it came back as something else"


def what_the_server_sends_unasked_arrives_in_order_and_so_does_its_close_code():
    with gateway() as (started, _), socket_to(started, "/push") as client:
        is_equal([client.recv(timeout=checks.TIMEOUT) for _ in range(1000)], [f"event {n}" for n in range(1000)])
        try:
            client.recv(timeout=checks.TIMEOUT)
        except websockets.exceptions.ConnectionClosed as closed:
            is_equal((closed.rcvd.code, closed.rcvd.reason), (4001, "enough"))
        else:
            raise AssertionError("it is still open")


def the_close_code_of_the_client_reaches_the_server():
    with gateway() as (started, server):
        with socket_to(started, "/echo") as client:
            client.close(4007, "bye")
        until(lambda: server.closed.get("/echo") == 4007, "the close code at the server")


def a_client_that_is_gone_is_gone_at_the_server_too():
    with gateway() as (started, server), socket_to(started, "/echo") as client:
        client.socket.shutdown(socket.SHUT_RDWR)
        until(lambda: server.closed.get("/echo") == 1006, "the end at the server")


def a_server_that_is_gone_is_gone_at_the_client_too():
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(checks.TIMEOUT)

    def cut():
        connection, _ = listener.accept()
        head = connection.recv(65536)
        assert b"pgrade: tunnel" in head, head
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: tunnel\r\n\r\nfirst words")
        time.sleep(0.3)
        connection.close()

    threading.Thread(target=cut, daemon=True).start()
    head = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: tunnel\r\n\r\n"
    with Gateway(BINARY, f"http://127.0.0.1:{listener.getsockname()[1]}") as started, raw(started, head) as client:
        heard = everything(client)
    assert b" 101 " in heard and heard.endswith(b"first words"), heard


def the_request_is_the_clients_and_says_for_whom_it_is():
    headers = {"X-Mine": "1", "Authorization": "Bearer sk_7"}
    with gateway() as (started, server):
        with socket_to(started, "/echo?a=b", subprotocols=["b", "a"], additional_headers=headers) as client:
            is_equal(client.subprotocol, "a")
        seen = server.requests[0]
        is_equal((seen.path, seen.headers["X-Mine"], seen.headers["Authorization"]), ("/echo?a=b", "1", "Bearer sk_7"))
        is_equal((seen.headers["X-Forwarded-For"], seen.headers["Upgrade"]), ("127.0.0.1", "websocket"))


def a_refusal_is_passed_back_as_it_is():
    with gateway() as (started, _):
        for status in (200, 401, 426, 503):
            try:
                with socket_to(started, f"/refused/{status}"):
                    raise AssertionError("it was let in")
            except websockets.exceptions.InvalidStatus as refused:
                got = refused.response
                is_equal((got.status_code, got.headers["X-Why"], got.body), (status, "told", b"no\n"))


def many_are_open_at_once():
    with gateway() as (started, _), contextlib.ExitStack() as open_now:
        clients = [open_now.enter_context(socket_to(started, "/echo")) for _ in range(100)]
        for number, client in enumerate(clients):
            client.send(str(number))
        is_equal([client.recv(timeout=checks.TIMEOUT) for client in clients], [str(n) for n in range(100)])


def over_tls_too():
    with tempfile.TemporaryDirectory() as folder:
        known = Certificates(folder)
        with gateway("--tls-chain", known.chain, "--tls-key", known.key) as (started, _):
            with socket_to(started, "/echo", ssl=known.client()) as client:
                client.send("hidden")
                is_equal(client.recv(timeout=checks.TIMEOUT), "hidden")


def another_version_of_http_is_not_a_way_around_the_guard():
    """Nothing would check keys inside a connection that was upgraded to HTTP/2."""
    for offered, passed in (("h2c", None), ("HTTP/2.0", None), ("TLS/1.0", None), ("h2c, websocket", "websocket")):
        upstream = Plain()
        head = (
            "GET /v1/x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
            f"Upgrade: {offered}\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
        )
        with Gateway(BINARY, upstream.url) as started, raw(started, head) as client:
            assert b" 200 " in client.recv(65536)
        headers = upstream.seen[0]
        is_equal((headers.get("upgrade"), headers.get("http2-settings")), (passed, None))


def a_guarded_request_stays_what_it_is():
    upstream = Plain()
    guarded = (
        "POST /v1/charges HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Authorization: Bearer sk_7\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\n{}"
    )
    with Gateway(BINARY, upstream.url) as started:
        for _ in range(2):
            with raw(started, guarded) as client:
                assert b" 200 " in client.recv(65536)
    is_equal([(headers.get("upgrade"), headers.get("connection")) for headers in upstream.seen], [(None, None)])


def who_changes_the_protocol_without_being_asked_has_not_answered():
    upstream = Plain(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
    with Gateway(BINARY, upstream.url) as started:
        for method, extra in (("GET", ""), ("POST", "Authorization: Bearer sk_7\r\nIdempotency-Key: k\r\n")):
            head = f"{method} /v1/charges HTTP/1.1\r\nHost: localhost\r\n{extra}Content-Length: 0\r\n\r\n"
            with raw(started, head) as client:
                heard = client.recv(65536)
                assert heard.startswith(b"HTTP/1.1 502 ") and b"no-answer" in heard, heard


def a_stop_waits_for_open_connections_and_accepts_no_more():
    with gateway() as (started, _), socket_to(started, "/echo") as client:
        started.process.send_signal(signal.SIGTERM)
        until(lambda: refuses(started), "new connections are refused")
        client.send("still here")
        is_equal(client.recv(timeout=checks.TIMEOUT), "still here")
        before = time.monotonic()
        client.close()
        is_equal(started.process.wait(checks.TIMEOUT), 0)
        assert time.monotonic() - before < 5, "it did not end when the last one had"


def a_stop_does_not_wait_for_ever():
    with gateway() as (started, _), socket_to(started, "/echo") as client:
        before = time.monotonic()
        started.process.send_signal(signal.SIGTERM)
        is_equal(started.process.wait(GRACE + checks.TIMEOUT), 0)
        assert GRACE - 1 < time.monotonic() - before, "it was cut before its time"
        try:
            client.recv(timeout=checks.TIMEOUT)
        except websockets.exceptions.ConnectionClosed:
            return
        raise AssertionError("it is still open")


def the_example_of_the_guide_talks_both_ways():
    server = Server()
    addresses = {"127.0.0.1:9000": f"127.0.0.1:{server.port}", "127.0.0.1:8080": "127.0.0.1:0"}
    start, _ = guide.commands("Websockets", addresses)
    with tempfile.TemporaryDirectory() as folder, Gateway(BINARY, None, folder=folder, command=start) as started:
        _, talk = guide.commands("Websockets", {"127.0.0.1:8080": started.url.removeprefix("http://")})
        # The Python environment that has the client.
        assert talk[0] == "python3", talk
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen([sys.executable, *talk[1:]], **pipes) as client:
            late = threading.Timer(checks.TIMEOUT, client.kill)
            late.start()
            client.stdin.write(b"to and fro\n")
            client.stdin.flush()
            printed = b""
            # It prints received messages after this sign.
            while b"< to and fro" not in printed:
                more = client.stdout.read1()
                assert more, f"it ended: {printed}"
                printed += more
            late.cancel()
            # It ends when its input ends.
            client.stdin.close()
            is_equal(client.wait(checks.TIMEOUT), 0)
    is_equal([request.path for request in server.requests], ["/events"])


class Plain:
    """Answers every request with the same bytes and records its headers."""

    def __init__(self, answer=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"):
        self.answer, self.seen = answer, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        stream = connection.makefile("rb")
        while stream.readline():
            headers = http.client.parse_headers(stream)
            stream.read(int(headers.get("content-length", 0)))
            self.seen.append(headers)
            connection.sendall(self.answer)


@contextlib.contextmanager
def raw(started, text):
    host, port = started.url.split("//")[1].split(":")
    with socket.create_connection((host, int(port)), timeout=checks.TIMEOUT) as connection:
        connection.sendall(text.encode())
        yield connection


def everything(connection):
    heard = b""
    while more := connection.recv(65536):
        heard += more
    return heard


def refuses(started):
    try:
        with raw(started, ""):
            return False
    except OSError:
        return True


CHECKS = [
    a_stop_does_not_wait_for_ever,
    a_stop_waits_for_open_connections_and_accepts_no_more,
    messages_come_back_as_they_were,
    a_large_message_comes_through_both_ways,
    what_the_server_sends_unasked_arrives_in_order_and_so_does_its_close_code,
    the_close_code_of_the_client_reaches_the_server,
    a_client_that_is_gone_is_gone_at_the_server_too,
    a_server_that_is_gone_is_gone_at_the_client_too,
    the_request_is_the_clients_and_says_for_whom_it_is,
    a_refusal_is_passed_back_as_it_is,
    many_are_open_at_once,
    over_tls_too,
    another_version_of_http_is_not_a_way_around_the_guard,
    a_guarded_request_stays_what_it_is,
    who_changes_the_protocol_without_being_asked_has_not_answered,
    the_example_of_the_guide_talks_both_ways,
]

if __name__ == "__main__":
    BINARY = checks.binary(__doc__)
    sys.exit(checks.run(CHECKS, skipped))
