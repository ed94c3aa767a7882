#!/usr/bin/env python3
"""Slow clients, and more connections than allowed: the gateway begins nothing for them, and other clients are served.

tests/http/slow_clients.py --binary target/debug/onceward
"""

import contextlib
import socket
import sys
import tempfile
import threading
import time

import checks
from certificates import Certificates
from checks import is_equal, until
from frames import END_HEADERS, GOOD, HEADERS, PREFACE, SETTINGS, frame, header, request
from gateway import Gateway
from upstream import Upstream

# How long the gateway waits for the headers of a request, and for the next request on a connection.
HEADERS_WITHIN = 30.0

# How long it waits for a body here.
BODY_WITHIN = 1.0

# The delay that a busy machine may add.
LATE = 15.0

HEAD = b"POST /v1/charges HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sk_7\r\nIdempotency-Key: k\r\n"
GOOD_GET = b"GET /v1/charges HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextlib.contextmanager
def gateway(more=""):
    upstream = Upstream(honours=False)
    route = f'[[gateway.route]]\nupstream = "{upstream.url}"\nbody_timeout = "{BODY_WITHIN:.0f}s"\n'
    with Gateway(BINARY, None, configuration=more + route) as started:
        yield started, upstream
    upstream.stop()


def connected(started):
    return socket.create_connection(("127.0.0.1", int(started.url.rsplit(":", 1)[1])), timeout=HEADERS_WITHIN + LATE)


def heard(connection):
    """Everything that arrives until the gateway closes."""
    data = b""
    try:
        while more := connection.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


def a_body_that_never_comes_is_a_408_and_nothing_is_begun():
    with gateway() as (started, upstream):
        for part, length in ((b"", b"Content-Length: 2\r\n\r\n"), (b"1\r\n{\r\n", b"Transfer-Encoding: chunked\r\n\r\n")):
            with connected(started) as client:
                before = time.monotonic()
                client.sendall(HEAD + length + part)
                told = heard(client)
                took = time.monotonic() - before
            assert told.startswith(b"HTTP/1.1 408 ") and b"problems/too-slow" in told, told
            assert BODY_WITHIN * 0.9 < took < BODY_WITHIN + LATE, took
        is_equal(len(upstream.requests), 0)
        with connected(started) as client:
            client.sendall(HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\n{}")
            assert heard(client).startswith(b"HTTP/1.1 200 ")
        is_equal(len(upstream.requests), 1)


def a_body_that_comes_byte_by_byte_is_not_waited_for_either():
    with gateway() as (started, upstream), connected(started) as client:
        client.sendall(HEAD + b"Content-Length: 1000\r\n\r\n")
        stop = threading.Event()

        def drip():
            with contextlib.suppress(OSError):
                while not stop.wait(0.1):
                    client.sendall(b"x")

        threading.Thread(target=drip, daemon=True).start()
        told = client.recv(65536)
        stop.set()
        assert told.startswith(b"HTTP/1.1 408 "), told
        is_equal(len(upstream.requests), 0)


def a_stream_whose_body_never_comes_leaves_the_others_alone():
    with gateway() as (started, upstream), connected(started) as client:
        block = b"".join(header(name, {":path": "/v1/1", "idempotency-key": "one"}.get(name, value)) for name, value in GOOD)
        client.sendall(PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, block))
        served = request({":path": "/v1/2", "idempotency-key": "two"})(lambda value: value)
        # The same connection, another stream.
        again = served[len(PREFACE) + 9 :].replace((1).to_bytes(4), (3).to_bytes(4))
        client.sendall(again)
        until(lambda: [one.path for one in upstream.requests] == ["/v1/2"], "the other stream at the upstream")
        until(lambda: b"too-slow" in client.recv(65536), "the problem of the first")
        is_equal([one.path for one in upstream.requests], ["/v1/2"])


def is_closed_in_time(client, first=b"", drip=None):
    """Checks that the gateway closes a connection that sends only this, neither too early nor too late."""
    before = time.monotonic()
    client.sendall(first)
    if drip:
        stop = threading.Event()

        def more():
            with contextlib.suppress(OSError):
                while not stop.wait(2):
                    client.sendall(drip)

        threading.Thread(target=more, daemon=True).start()
    told = heard(client)
    took = time.monotonic() - before
    if drip:
        stop.set()
    assert HEADERS_WITHIN * 0.9 < took < HEADERS_WITHIN + LATE, f"closed after {took:.1f} s, with {told[:100]}"
    return told


def who_says_nothing_is_let_go():
    with gateway() as (started, _), connected(started) as client:
        is_equal(is_closed_in_time(client), b"")


def a_client_that_sends_half_an_http2_preface_is_disconnected():
    with gateway() as (started, _), connected(started) as client:
        is_closed_in_time(client, PREFACE[:10])


def headers_that_never_end_are_not_waited_for():
    with gateway() as (started, upstream), connected(started) as client:
        is_closed_in_time(client, b"POST /v1/charges HTTP/1.1\r\nHost: localhost\r\n", drip=b"X-A: b\r\n")
        is_equal(len(upstream.requests), 0)


def an_idle_connection_is_closed_after_a_while():
    with gateway() as (started, _), connected(started) as client:
        assert is_closed_in_time(client, GOOD_GET).startswith(b"HTTP/1.1 200 ")


def who_says_nothing_inside_tls_is_let_go():
    with tempfile.TemporaryDirectory() as folder:
        known = Certificates(folder)
        tls = f'tls = {{ chain = "{known.chain}", key = "{known.key}" }}\n'
        with gateway(tls) as (started, _), connected(started) as plain:
            with known.client().wrap_socket(plain, server_hostname="localhost") as client:
                is_closed_in_time(client)


def who_does_not_greet_with_tls_is_let_go():
    with tempfile.TemporaryDirectory() as folder:
        known = Certificates(folder)
        tls = f'tls = {{ chain = "{known.chain}", key = "{known.key}" }}\n'
        with gateway(tls) as (started, _), connected(started) as client:
            before = time.monotonic()
            heard(client)
            assert time.monotonic() - before < HEADERS_WITHIN - 1, "it was waited for too long"


def more_connections_than_allowed_wait_their_turn():
    with gateway("max_connections = 3\n") as (started, upstream):
        # The connection of the readiness request may not be closed yet.
        held = [connected(started) for _ in range(3)]
        for client in held:
            client.sendall(GOOD_GET)
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        with connected(started) as waiting:
            waiting.sendall(GOOD_GET)
            waiting.settimeout(1)
            try:
                raise AssertionError(f"it was let in: {waiting.recv(65536)}")
            except TimeoutError:
                pass
            is_equal(len(upstream.requests), 3)
            held.pop().close()
            waiting.settimeout(checks.TIMEOUT)
            assert waiting.recv(65536).startswith(b"HTTP/1.1 200 ")
            # Accepted connections are served as before.
            held[0].sendall(GOOD_GET)
            assert held[0].recv(65536).startswith(b"HTTP/1.1 200 ")
        for client in held:
            client.close()


CHECKS = [
    who_says_nothing_is_let_go,
    a_client_that_sends_half_an_http2_preface_is_disconnected,
    headers_that_never_end_are_not_waited_for,
    an_idle_connection_is_closed_after_a_while,
    who_says_nothing_inside_tls_is_let_go,
    who_does_not_greet_with_tls_is_let_go,
    a_body_that_never_comes_is_a_408_and_nothing_is_begun,
    a_body_that_comes_byte_by_byte_is_not_waited_for_either,
    a_stream_whose_body_never_comes_leaves_the_others_alone,
    more_connections_than_allowed_wait_their_turn,
]

if __name__ == "__main__":
    BINARY = checks.binary(__doc__)
    sys.exit(checks.run(CHECKS))
