"""Ends of work that prove nothing about the effect: the request was sent, and there is no answer that can be read. Without a tier
they are in doubt too, so that the effect does not happen twice."""

from __future__ import annotations

import http.client
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Iterator

import pytest
import scene
from onceward import InDoubt, Ledger


def named(text: str, *names: str) -> Exception:
    """An error of a package that is not installed here: its class, and then those that it inherits from."""
    kind: type[Exception] = Exception
    for name in reversed(names):
        kind = type(name, (kind,), {})
    return kind(text)


RPC = '<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.{}\n\tdetails = "{}"\n>'


def rpc(status: str, details: str = "") -> Exception:
    return named(RPC.format(status, details), "_InactiveRpcError", "RpcError")


def ended(code: int) -> Exception:
    return subprocess.CalledProcessError(code, ["send"])


UNPROVEN = {
    "timeout(1)": ended(124),
    "killed in a container": ended(137),
    "ended in a shell": ended(143),
    "Ctrl-C in a shell": ended(130),
    "curl got no answer": ended(52),
    "ssh lost its connection": ended(255),
    "psycopg 40003": named("x y", "StatementCompletionUnknown", "OperationalError"),
    "psycopg 08007": named("x y", "TransactionResolutionUnknown", "OperationalError"),
    "asyncpg 40003": named("x y", "StatementCompletionUnknownError"),
    "psycopg lost its connection": named("the connection is lost", "OperationalError"),
    "libpq lost TLS": named("consuming input failed: SSL connection has been closed unexpectedly", "OperationalError"),
    "gRPC cancelled": rpc("CANCELLED", "CANCELLED"),
    "gRPC stream removed": rpc("UNKNOWN", "Stream removed"),
    "gRPC handler failed": rpc("UNKNOWN", "Exception calling application: x"),
    "gRPC internal": rpc("INTERNAL"),
    "gRPC data loss": rpc("DATA_LOSS"),
    "Google cancelled": named("499 stopped", "Cancelled", "ClientError"),
    "Google data loss": named("None gone", "DataLoss", "ServerError"),
    "http.client": http.client.BadStatusLine("NOPE"),
    "http.client, a long line": http.client.LineTooLong("status line"),
    "httpx": named("Error -3 while decompressing data: incorrect header check", "DecodingError", "RequestError"),
    "requests": named("bad gzip", "ContentDecodingError", "RequestException"),
    "requests, cut JSON": named("Unterminated string: char 9", "JSONDecodeError", "InvalidJSONError", "RequestException"),
    "urllib3": named("Received response with content-encoding: gzip, but failed to decode it.", "DecodeError"),
    "aiohttp, no HTTP": named("400, message: Bad status line", "BadStatusLine", "BadHttpMessage"),
    "aiohttp, no JSON": named("200, message='Attempt to decode JSON'", "ContentTypeError", "ClientResponseError"),
    "openai": named("Data returned by API invalid for expected schema.", "APIResponseValidationError", "APIError"),
    "stripe": named("Invalid response body from API: <html> (HTTP response code was 200)", "APIError", "StripeError"),
    "botocore": named("Unable to parse response", "ResponseParserError"),
    "botocore, cut body": named("An error occurred while reading from response stream", "ResponseStreamingError"),
}

# They say that nothing happened, or come before anything is sent.
PROVEN = {
    "exit code 1": ended(1),
    "exit code 7: curl did not connect": ended(7),
    "exit code 127: no such command": ended(127),
    "a code beyond a byte": ended(3_221_225_786),
    "gRPC invalid argument": rpc("INVALID_ARGUMENT", "no such customer"),
    "gRPC not found": rpc("NOT_FOUND", "no such customer"),
    "psycopg, a constraint": named("duplicate key value violates unique constraint", "UniqueViolation", "IntegrityError"),
    "a program's own JSON": named("Expecting property name: line 4 column 1 (char 9)", "JSONDecodeError", "ValueError"),
}


@pytest.mark.parametrize("error", UNPROVEN.values(), ids=UNPROVEN.keys())
def test_an_end_that_proves_nothing_is_in_doubt_without_a_tier(memory: Ledger, effects: scene.Effects, error: Exception) -> None:
    @memory.once(operation="send", key=["to"])
    def send(to: str) -> None:
        effects.add(to)
        raise error

    with pytest.raises(type(error)):
        send("ada")
    with pytest.raises(InDoubt):
        send("ada")
    assert effects.count() == 1


@pytest.mark.parametrize("error", PROVEN.values(), ids=PROVEN.keys())
def test_an_end_without_evidence_may_run_again_without_a_tier(memory: Ledger, effects: scene.Effects, error: Exception) -> None:
    @memory.once(operation="send", key=["to"])
    def send(to: str) -> None:
        effects.add(to)
        raise error

    for _ in range(2):
        with pytest.raises(type(error)):
            send("ada")
    assert effects.count() == 2


@pytest.mark.parametrize("code", ["124", "137", "143"])
def test_a_command_that_was_stopped_is_in_doubt(memory: Ledger, effects: scene.Effects, code: str) -> None:
    @memory.once(operation="send", key=["to"])
    def send(to: str) -> None:
        subprocess.run(["sh", "-c", f"echo {to} >>{effects.path}; exit {code}"], check=True)

    with pytest.raises(subprocess.CalledProcessError):
        send("ada")
    with pytest.raises(InDoubt):
        send("ada")
    assert effects.count() == 1


@pytest.fixture
def garbled(effects: scene.Effects) -> Iterator[str]:
    """The URL of a server that acts, and answers with what is not HTTP."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(65_536)
                effects.add("sent")
                connection.sendall(b"NOPE\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}/"
    # Wakes the thread that waits in `accept`.
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(10)


def test_an_answer_that_is_not_http_is_in_doubt(memory: Ledger, effects: scene.Effects, garbled: str) -> None:
    @memory.once(operation="send", key=["to"])
    def send(to: str) -> None:
        urllib.request.urlopen(garbled, data=to.encode(), timeout=10)

    with pytest.raises(http.client.BadStatusLine):
        send("ada")
    with pytest.raises(InDoubt):
        send("ada")
    assert effects.count() == 1
