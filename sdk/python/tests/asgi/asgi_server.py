"""A real server in a thread, and a client with one connection for each request, which it may close at any moment."""

import contextlib
import http.client
import os
import random
import socket
import threading
import time
from dataclasses import dataclass

import uvicorn

# Only a failing test waits this long.
LIMIT = 20.0

PORTS = range(43000, 44000)


def bound_socket():
    """A socket on a free port of this machine."""
    for port in random.Random(os.getpid() + time.monotonic_ns()).sample(PORTS, len(PORTS)):
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return listener
        listener.close()
    raise OSError("no port is free")


@contextlib.contextmanager
def serving(app, **options):
    """Serves an app with uvicorn. Yields the port."""
    listener = bound_socket()
    options = {"lifespan": "off", "log_config": None, "access_log": False, "timeout_graceful_shutdown": 5} | options
    server = uvicorn.Server(uvicorn.Config(app, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started, "the server started")
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(LIMIT)
        listener.close()


def until(holds, what):
    deadline = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True

    def __getitem__(self, name):
        return self.headers.get(name.lower())


def connection(port, method, path, headers, body, length=None):
    """A connection on which a request was sent."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"host: localhost"]
    lines += [name.encode() + b": " + value for name, value in headers]
    lines.append(f"content-length: {len(body) if length is None else length}".encode())
    made = socket.create_connection(("127.0.0.1", port), timeout=LIMIT)
    made.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        # A server that refuses a request may not read it.
        made.sendall(body)
    return made


def read(made, method, seen=lambda _: None):
    """Reads the response. `seen` gets each piece."""
    answer = http.client.HTTPResponse(made, method=method)
    answer.begin()
    headers = {name.lower(): value for name, value in answer.getheaders()}
    body, whole = b"", True
    try:
        while piece := answer.read1(1 << 16):
            seen(piece)
            body += piece
        announced = headers.get("content-length")
        whole = announced is None or method == "HEAD" or len(body) == int(announced)
    except (http.client.HTTPException, OSError):
        whole = False
    return Response(answer.status, headers, body, whole)


def send(port, method, path, headers=(), body=b"", length=None, seen=lambda _: None):
    """Sends a request and reads the whole response."""
    made = connection(port, method, path, headers, body, length)
    with contextlib.closing(made):
        return read(made, method, seen)


def post(port, path="/charges", key="k", body=b"{}", **more):
    """A guarded request of one customer."""
    headers = [("authorization", b"Bearer sk_7"), ("content-type", b"application/json")]
    headers += [] if key is None else [("idempotency-key", key.encode())]
    return send(port, "POST", path, headers, body, **more)
