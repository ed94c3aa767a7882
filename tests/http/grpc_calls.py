#!/usr/bin/env python3
"""Real gRPC clients and servers with the gateway between them.

tests/http/grpc_calls.py --binary target/debug/onceward
"""

import concurrent.futures
import contextlib
import os
import pathlib
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
    # Gateways are started while calls run.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    import grpc

# A client without a proxy and without retries.
PLAIN = [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]

# Longer than the time-out of the impatient client.
SLOW = 1.0


class Charges:
    """A service whose messages are bytes and say what it does: `code N` returns a status the first time, `slow` waits."""

    def __init__(self, credentials=None, port=0):
        self.effects, self.metadata, self.lock = 0, [], threading.Lock()
        self.more = threading.Event()
        handlers = {
            "Charge": grpc.unary_unary_rpc_method_handler(self.charge),
            "Watch": grpc.unary_stream_rpc_method_handler(self.watch),
            "Upload": grpc.stream_unary_rpc_method_handler(lambda pieces, _: b"".join(pieces)),
            "Chat": grpc.stream_stream_rpc_method_handler(lambda words, _: (word.upper() for word in words)),
        }
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pay.Charges", handlers),))
        address = f"127.0.0.1:{port}"
        listen = self.server.add_insecure_port
        self.port = self.server.add_secure_port(address, credentials) if credentials else listen(address)
        self.server.start()

    def happen(self, context):
        with self.lock:
            self.effects += 1
            self.metadata.append(dict(context.invocation_metadata()))
            return self.effects

    def charge(self, message, context):
        attempt = self.happen(context)
        if message == b"slow":
            time.sleep(SLOW)
        context.set_trailing_metadata((("x-receipt", f"r{attempt}"), ("x-raw-bin", b"\x00\xff")))
        if message.startswith(b"code ") and attempt == 1:
            status = next(code for code in grpc.StatusCode if code.value[0] == int(message[5:]))
            context.abort(status, "told so")
        return b"charge %d" % attempt

    def watch(self, message, context):
        attempt = self.happen(context)
        yield b"begun"
        if message == b"step by step":
            self.more.wait(checks.TIMEOUT)
        context.set_trailing_metadata((("x-receipt", f"r{attempt}"),))
        yield b"charge %d" % attempt


class Called:
    """The result of a call."""

    def __init__(self, channel, method, message, key, credential="Bearer sk_7", timeout=checks.TIMEOUT):
        metadata = [("authorization", credential)] if credential else []
        metadata += [("idempotency-key", key)] if key else []
        call = channel.unary_unary(f"/pay.Charges/{method}")
        try:
            self.message, ended = call.with_call(message, metadata=metadata, timeout=timeout)
        except grpc.RpcError as error:
            self.message, ended = None, error
        self.code, self.details = ended.code().name, ended.details()
        self.head, self.trailers = dict(ended.initial_metadata() or ()), dict(ended.trailing_metadata() or ())
        self.replayed = (self.head | self.trailers).get("idempotent-replayed") == "true"
        self.problem = (self.head | self.trailers).get("onceward-problem")


@contextlib.contextmanager
def between(*options, url=None):
    """A server, a gateway in front of it, and a channel to the gateway."""
    charges = Charges()
    with Gateway(BINARY, url or f"h2c://127.0.0.1:{charges.port}", options) as started:
        with grpc.insecure_channel(started.url.removeprefix("http://"), options=PLAIN) as channel:
            yield channel, charges
    charges.server.stop(None)


def a_call_is_made_once_and_a_repeat_gets_its_trailers():
    with between() as (channel, charges):
        first, again = (Called(channel, "Charge", b"", "k") for _ in range(2))
        is_equal((first.message, first.code, first.replayed), (b"charge 1", "OK", False))
        is_equal((again.message, again.code, again.replayed), (b"charge 1", "OK", True))
        is_equal(first.trailers, {"x-receipt": "r1", "x-raw-bin": b"\x00\xff"})
        is_equal(again.trailers, first.trailers)
        is_equal(charges.effects, 1)
        is_equal(charges.metadata[0]["idempotency-key"], "k")


def a_status_decides_what_a_repeat_gets():
    for code, name, expected in (
        (9, "FAILED_PRECONDITION", ("FAILED_PRECONDITION", "told so", None, 1)),
        (13, "INTERNAL", ("INTERNAL", "told so", None, 1)),
        (10, "ABORTED", ("OK", "", None, 2)),
        (16, "UNAUTHENTICATED", ("OK", "", None, 2)),
        (14, "UNAVAILABLE", ("FAILED_PRECONDITION", None, "in-doubt", 1)),
        (4, "DEADLINE_EXCEEDED", ("FAILED_PRECONDITION", None, "in-doubt", 1)),
    ):
        with between() as (channel, charges):
            first, again = (Called(channel, "Charge", b"code %d" % code, "k") for _ in range(2))
            is_equal((first.code, first.details, first.trailers["x-receipt"]), (name, "told so", "r1"))
            details = again.details if expected[1] is not None else None
            is_equal((again.code, details, again.problem, charges.effects), expected)
            if again.code == name:
                is_equal((again.trailers["x-receipt"], again.replayed), ("r1", True))


def problems_have_a_grpc_status():
    with between() as (channel, charges):
        missing = Called(channel, "Charge", b"", None)
        is_equal((missing.code, missing.problem), ("INVALID_ARGUMENT", "key-missing"))
        anonymous = Called(channel, "Charge", b"", "k", credential=None)
        is_equal((anonymous.code, anonymous.problem), ("UNAUTHENTICATED", "no-credential"))
        Called(channel, "Charge", b"", "k")
        other = Called(channel, "Charge", b"other", "k")
        is_equal((other.code, other.problem), ("INVALID_ARGUMENT", "mismatch"))
        is_equal((other.head | other.trailers)["grpc-retry-pushback-ms"], "-1")
        is_equal(charges.effects, 1)


def a_guarded_stream_comes_as_it_is_made_and_is_repeated_whole():
    with between() as (channel, charges):
        metadata = [("authorization", "Bearer sk_7"), ("idempotency-key", "k")]
        watch = channel.unary_stream("/pay.Charges/Watch")
        first = watch(b"step by step", metadata=metadata, timeout=checks.TIMEOUT)
        is_equal(next(first), b"begun")
        charges.more.set()
        is_equal(list(first), [b"charge 1"])
        again = watch(b"step by step", metadata=metadata, timeout=checks.TIMEOUT)
        is_equal(list(again), [b"begun", b"charge 1"])
        for stream in (first, again):
            is_equal(dict(stream.trailing_metadata()), {"x-receipt": "r1"})
        is_equal(charges.effects, 1)


def requests_without_a_key_pass_in_every_form():
    with between("--key-mode", "optional") as (channel, charges):
        is_equal([Called(channel, "Charge", b"", None).message for _ in range(2)], [b"charge 1", b"charge 2"])
        is_equal(list(channel.unary_stream("/pay.Charges/Watch")(b"")), [b"begun", b"charge 3"])
        is_equal(channel.stream_unary("/pay.Charges/Upload")(iter([b"a", b"b" * 100_000])), b"a" + b"b" * 100_000)
        # Each word is sent only when the previous one has come back.
        heard = threading.Semaphore(1)

        def words():
            for word in (b"one", b"two", b"three"):
                assert heard.acquire(timeout=checks.TIMEOUT)
                yield word

        came = []
        for word in channel.stream_stream("/pay.Charges/Chat")(words(), timeout=checks.TIMEOUT):
            came.append(word)
            heard.release()
        is_equal(came, [b"ONE", b"TWO", b"THREE"])
        missing = Called(channel, "Nothing", b"", None)
        is_equal((missing.code, missing.problem), ("UNIMPLEMENTED", None))


def a_server_that_is_not_there_has_done_nothing():
    gone = Charges()
    gone.server.stop(None).wait()
    with between("--key-mode", "optional", url=f"h2c://127.0.0.1:{gone.port}") as (channel, _):
        for key in ("k", None):
            down = Called(channel, "Charge", b"", key)
            is_equal((down.code, down.problem), ("UNAVAILABLE", "unreachable"))
        back = Charges(port=gone.port)
        again = Called(channel, "Charge", b"", "k")
        is_equal((again.message, again.replayed, back.effects), (b"charge 1", False, 1))
        back.server.stop(None)


def a_client_that_gives_up_does_not_end_the_call():
    with between() as (channel, charges):
        is_equal(Called(channel, "Charge", b"slow", "k", timeout=SLOW / 3).code, "DEADLINE_EXCEEDED")
        until(lambda: charges.effects == 1, "the call at the server")
        again = Called(channel, "Charge", b"slow", "k")
        is_equal((again.message, again.replayed, charges.effects), (b"charge 1", True, 1))


def over_tls_on_both_sides():
    with tempfile.TemporaryDirectory() as folder:
        known = Certificates(folder)
        chain, key, authority = (pathlib.Path(path).read_bytes() for path in (known.chain, known.key, known.authority))
        charges = Charges(grpc.ssl_server_credentials([(key, chain)]))
        options = ("--tls-chain", known.chain, "--tls-key", known.key, "--upstream-ca", known.authority)
        trusted = grpc.ssl_channel_credentials(authority)
        with Gateway(BINARY, f"https://127.0.0.1:{charges.port}", options) as started:
            with grpc.secure_channel(started.url.removeprefix("https://"), trusted, options=PLAIN) as channel:
                first, again = (Called(channel, "Charge", b"", "k") for _ in range(2))
        is_equal((first.message, again.message, again.replayed), (b"charge 1", b"charge 1", True))
        is_equal((first.trailers["x-receipt"], charges.effects), ("r1", 1))
        charges.server.stop(None)


def the_example_of_the_guide_charges_once():
    charges = Charges()
    (start,) = guide.commands("gRPC", {"127.0.0.1:50051": f"127.0.0.1:{charges.port}", "127.0.0.1:8080": "127.0.0.1:0"})
    with tempfile.TemporaryDirectory() as folder, Gateway(BINARY, None, folder=folder, command=start) as started:
        program = guide.example("gRPC", "python", {"127.0.0.1:8080": started.url.removeprefix("http://")})
        for repeat in (False, True):
            names = {"grpc": grpc}
            exec(program, names)
            replayed = "idempotent-replayed" in dict(names["call"].initial_metadata())
            is_equal((names["answer"], replayed), (b"charge 1", repeat))
    is_equal((charges.effects, charges.metadata[0]["idempotency-key"]), (1, "order-17"))
    charges.server.stop(None)


CHECKS = [
    a_call_is_made_once_and_a_repeat_gets_its_trailers,
    a_status_decides_what_a_repeat_gets,
    problems_have_a_grpc_status,
    a_guarded_stream_comes_as_it_is_made_and_is_repeated_whole,
    requests_without_a_key_pass_in_every_form,
    a_server_that_is_not_there_has_done_nothing,
    a_client_that_gives_up_does_not_end_the_call,
    over_tls_on_both_sides,
    the_example_of_the_guide_charges_once,
]

if __name__ == "__main__":
    BINARY = checks.binary(__doc__)
    sys.exit(checks.run(CHECKS, skipped))
