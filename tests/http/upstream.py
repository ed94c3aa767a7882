"""An API that fails on purpose and counts its effects.

It implements as much of the Stripe, OpenAI and Anthropic APIs as their clients need. A test names its case inside the request
body (`case-` and twelve digits) and plans what happens to the first calls of that case. It uses plain sockets and threads,
because it has to send resets and partial responses.
"""

import dataclasses
import itertools
import json
import random
import re
import socket
import struct
import threading
import time

CASE = re.compile(rb"case-[0-9a-f]{12}")
STREAMED = re.compile(rb'"stream": ?true')

# With this linger option, close() sends a reset.
RESET = struct.pack("ii", 1, 0)

# No test sends larger headers.
LARGEST_HEAD = 256 * 1024


@dataclasses.dataclass(frozen=True)
class Fault:
    """What happens to one call. `effect` says whether the work is done. Where the client cannot know, it is done, since that
    is the harmful case."""

    effect: bool
    status: int = 200
    headers: tuple = ()
    ending: str = "answer"  # answer | half | reset
    delay: float = 0.0
    remembered: bool = False  # an upstream that honours keys replays this response, not the success behind it


OK = Fault(effect=True)

FAULTS = {
    "ok": OK,
    "500": Fault(effect=True, status=500, remembered=True),
    "500 clean": Fault(effect=False, status=500),
    "502": Fault(effect=True, status=502),
    "503": Fault(effect=True, status=503),
    "503 later": Fault(effect=False, status=503, headers=(("Retry-After", "1"),)),
    "504": Fault(effect=True, status=504),
    "409": Fault(effect=False, status=409),
    "402": Fault(effect=False, status=402, remembered=True),
    "429": Fault(effect=False, status=429, headers=(("Retry-After", "1"),)),
    "reset after": Fault(effect=True, ending="reset"),
    "lost": Fault(effect=True, ending="half"),
    # Longer than the clients' time-out in these cases, and shorter than twice that.
    "slow": Fault(effect=True, delay=2.5),
}


@dataclasses.dataclass
class Seen:
    """What arrived for one case."""

    calls: int = 0
    effects: int = 0
    running: int = 0
    keys: list = dataclasses.field(default_factory=list)
    # How many calls came over a connection that had carried another one before.
    reused: int = 0


class Request:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body

    def header(self, name):
        return self.headers.get(name.lower())


class Upstream:
    """Listens on its own port until stop()."""

    def __init__(self, honours):
        self.honours = honours
        self.lock = threading.Lock()
        self.plans = {}
        self.seen_by_case = {}
        self.unnamed = []
        # All requests in order; and everything that was not a request.
        self.requests = []
        self.broken = []
        self.remembered = {}
        self.numbers = itertools.count(1)
        self.resets = 0
        self.connections = set()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.port = bind_explicitly(self.listener)
        self.listen()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    # The interface for tests.

    def plan(self, case, fault, times=1):
        with self.lock:
            self.plans[case] = (FAULTS[fault], times)
            self.seen_by_case[case] = Seen()

    def seen(self, case):
        """The calls of a case, after all running ones have ended."""
        deadline = time.monotonic() + 20
        while True:
            with self.lock:
                seen = self.seen_by_case[case]
                if seen.running == 0 or time.monotonic() > deadline:
                    return dataclasses.replace(seen, keys=list(seen.keys))
            time.sleep(0.02)

    def refuse(self):
        """Stops listening: the next connection is refused."""
        self.listener.shutdown(socket.SHUT_RD)
        self.accepting.join()
        self.close_connections()

    def listen(self):
        self.listener.listen(256)
        self.accepting = threading.Thread(target=self.accept, daemon=True)
        self.accepting.start()

    def reset_next(self, count):
        """Resets the next connections as soon as they are accepted, without reading from them."""
        self.close_connections()
        with self.lock:
            self.resets = count

    def close_connections(self):
        with self.lock:
            open_now = list(self.connections)
        for connection in open_now:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def stop(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.close_connections()

    # The server.

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                reset = self.resets > 0
                self.resets -= reset
                if not reset:
                    self.connections.add(connection)
            if reset:
                close_with_reset(connection)
            else:
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        try:
            buffered = b""
            for number in itertools.count():
                request, buffered = read_request(connection, buffered)
                if request is None or not self.answer(connection, request, reused=number > 0):
                    return
        except OSError:
            pass
        except ValueError as error:
            self.broken.append(str(error))
        finally:
            with self.lock:
                self.connections.discard(connection)
            connection.close()

    def answer(self, connection, request, reused):
        """Answers one request; false when the connection is over."""
        self.requests.append(request)
        if request.method in ("GET", "HEAD"):
            send(connection, 200, {"object": "list", "data": []}, with_body=request.method == "GET")
            return True
        found = CASE.search(request.body)
        case = found.group().decode() if found else None
        with self.lock:
            if case not in self.plans:
                self.unnamed.append((request.method, request.path, request.body[:200]))
                case = None
            fault = self.arrive(case, request, reused)
            status, body, effect = self.outcome(fault, request)
            if case:
                self.seen_by_case[case].effects += effect
        streamed = status == 200 and STREAMED.search(request.body)
        whole = rendered_stream(body) if streamed else rendered(status, body, fault.headers)
        try:
            time.sleep(fault.delay)
            return deliver(connection, fault, whole)
        finally:
            with self.lock:
                if case:
                    self.seen_by_case[case].running -= 1

    def arrive(self, case, request, reused):
        if case is None:
            return OK
        seen = self.seen_by_case[case]
        seen.calls += 1
        seen.running += 1
        seen.reused += reused
        seen.keys.append(request.header("idempotency-key"))
        fault, times = self.plans[case]
        return fault if seen.calls <= times else OK

    def outcome(self, fault, request):
        """The response, and whether the work was done."""
        key = request.header("idempotency-key")
        known = self.remembered.get((request.path, key)) if self.honours and key else None
        if known:
            return (*known, False)
        done = (200, made(request.path, next(self.numbers))) if fault.effect else None
        said = (fault.status, error(fault.status)) if fault.status != 200 else done
        if self.honours and key:
            kept = said if fault.remembered else done
            if kept:
                self.remembered[(request.path, key)] = kept
        return (*said, fault.effect)


def deliver(connection, fault, whole):
    if fault.ending == "reset":
        close_with_reset(connection)
        return False
    if fault.ending == "half":
        head = whole.index(b"\r\n\r\n") + 4
        connection.sendall(whole[: (head + len(whole)) // 2])
        return False
    connection.sendall(whole)
    return True


def send(connection, status, body, headers=(), with_body=True):
    whole = rendered(status, body, headers)
    connection.sendall(whole if with_body else whole[: whole.index(b"\r\n\r\n") + 4])


def rendered(status, body, headers):
    data = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Status", "Content-Type: application/json", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


def rendered_stream(body):
    """The same response as a stream of events, word by word."""
    words = body["choices"][0]["message"]["content"].split()
    deltas = [{"index": 0, "delta": {"content": f"{word} "}, "finish_reason": None} for word in words]
    pieces = [body | {"object": "chat.completion.chunk", "choices": [delta]} for delta in deltas]
    events = [f"data: {json.dumps(piece)}\n\n".encode() for piece in pieces] + [b"data: [DONE]\n\n"]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events)
    head = b"HTTP/1.1 200 Status\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\n\r\n"


def made(path, number):
    """A new object, in the format of the API that the path belongs to."""
    if path.startswith("/v1/chat/completions"):
        message = {"role": "assistant", "content": f"answer {number}"}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        return {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}
    if path.startswith("/v1/responses"):
        text = {"type": "output_text", "text": f"answer {number}", "annotations": []}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        return {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "m", "output": [message]}
    if path.startswith("/v1/messages"):
        text = [{"type": "text", "text": f"answer {number}"}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": text}
        return message | {"stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
    return {"id": f"cus_{number}", "object": "customer", "created": 1, "livemode": False}


def error(status):
    """An error that all three clients can read."""
    kind = "card_error" if status == 402 else "api_error"
    return {"type": "error", "error": {"type": kind, "message": f"planned {status}"}}


def read_request(connection, buffered):
    """The next request and the bytes after it; None at the end."""
    while b"\r\n\r\n" not in buffered:
        more = connection.recv(65536)
        if not more or len(buffered) > LARGEST_HEAD:
            return None, b""
        buffered += more
    head, buffered = buffered.split(b"\r\n\r\n", 1)
    first, *lines = head.decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ", 2)
    headers = {}
    for line in lines:
        name, value = line.split(":", 1)
        headers[name.strip().lower()] = value.strip()
    if "chunked" in headers.get("transfer-encoding", ""):
        body, buffered = read_chunks(connection, buffered)
    else:
        body, buffered = read_exactly(connection, buffered, int(headers.get("content-length", 0)))
    return Request(method, path, headers, body), buffered


def read_exactly(connection, buffered, length):
    while len(buffered) < length:
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("the request ended early")
        buffered += more
    return buffered[:length], buffered[length:]


def read_line(connection, buffered):
    while b"\r\n" not in buffered:
        more = connection.recv(65536)
        if not more:
            raise ConnectionError("the request ended early")
        buffered += more
    return buffered.split(b"\r\n", 1)


def read_chunks(connection, buffered):
    body = b""
    while True:
        size, buffered = read_line(connection, buffered)
        chunk, buffered = read_exactly(connection, buffered, int(size.split(b";")[0], 16))
        if not chunk:
            break
        body += chunk
        _, buffered = read_line(connection, buffered)
    while True:
        trailer, buffered = read_line(connection, buffered)
        if not trailer:
            return body, buffered


def close_with_reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    connection.close()


def bind_explicitly(listener):
    """Binds to a fixed port number, so that no other process gets it while this one does not listen. It is below the ports
    of outgoing connections (from 32768 on Linux), so that none of them is in the way."""
    for attempt in itertools.count(1):
        port = random.randrange(15000, 32000)
        try:
            listener.bind(("127.0.0.1", port))
            return port
        except OSError:
            if attempt == 200:
                raise
