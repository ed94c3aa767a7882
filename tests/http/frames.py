"""Malformed HTTP/2 frames that would become a hidden request when written as HTTP/1.1."""

from corpus import BODY, ONCE, Entry

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, SETTINGS, DATA, CONTINUATION = 1, 4, 0, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def number(value, bits):
    """An integer of HPACK."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([value])
    value -= most
    encoded = bytearray([most])
    while value >= 128:
        encoded.append(value % 128 + 128)
        value //= 128
    return bytes([*encoded, value])


def header(name, value):
    """A literal header without indexing or compression."""
    name, value = (part if isinstance(part, bytes) else part.encode() for part in (name, value))
    return b"\x00" + number(len(name), 7) + name + number(len(value), 7) + value


GOOD = (
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    (":path", "PLACE"),
    ("authorization", "Bearer token"),
    ("content-type", "application/json"),
    ("idempotency-key", "KEY"),
)


def request(change=None, extra=(), body=BODY, without=()):
    """A valid request except for one changed header, added ones or missing ones. It is a function of the names that an entry
    gets, because lengths precede the data."""
    change = change or {}

    def build(named):
        pairs = [(name, change.get(name, value)) for name, value in GOOD if name not in without]
        block = b"".join(header(named(name), named(value)) for name, value in [*pairs, *extra])
        opened = PREFACE + frame(SETTINGS, 0, 0, b"")
        return opened + frame(HEADERS, END_HEADERS, 1, block) + frame(DATA, END_STREAM, 1, body)

    return build


HIDDEN = "\r\n\r\nPOST /smuggled HTTP/1.1\r\nHost: gateway\r\nContent-Length: 0\r\n\r\n"

# After its preface, HTTP/2 responds in frames. It only matters that nothing reaches the upstream.
FRAMES = [
    Entry("h2: noise after the preface", lambda named: PREFACE + bytes(range(256)) * 8),
    Entry("h2: no settings", lambda named: PREFACE + frame(HEADERS, 5, 1, header(":method", "POST"))),
    Entry("h2: a request hidden in a value", request(extra=[("x-a", "b" + HIDDEN)])),
    Entry("h2: a request hidden in a name", request(extra=[("x-a: b" + HIDDEN, "c")])),
    Entry("h2: a request hidden in the path", request({":path": "PLACE HTTP/1.1" + HIDDEN})),
    Entry("h2: a request hidden in the method", request({":method": "POST PLACE HTTP/1.1" + HIDDEN})),
    Entry("h2: a request hidden in the host", request({":authority": "gateway" + HIDDEN})),
    Entry("h2: a space in the path", request({":path": "PLACE/a b"})),
    Entry("h2: a coding", request(extra=[("transfer-encoding", "chunked")], body=b"0\r\n\r\n" + BODY)),
    Entry("h2: a connection header", request(extra=[("connection", "idempotency-key")])),
    Entry("h2: a length that is too small", request(extra=[("content-length", "5")])),
    Entry("h2: a length that is too large", request(extra=[("content-length", "500")])),
    Entry("h2: two lengths", request(extra=[("content-length", "12"), ("content-length", "6")])),
    Entry("h2: a capital letter", request(extra=[("X-A", "b")])),
    Entry("h2: a NUL in a value", request(extra=[("x-a", "a\x00b")])),
    Entry("h2: two paths", request(extra=[(":path", "/smuggled")])),
    Entry("h2: no path", request(without=(":path",))),
    Entry("h2: an empty path", request({":path": ""})),
    Entry("h2: no method", request(without=(":method",))),
    Entry("h2: a pseudo-header that does not exist", request(extra=[(":evil", "a")])),
    Entry("h2: two keys", request(extra=[("idempotency-key", "other")])),
    Entry("h2: no key", request(without=("idempotency-key",))),
    Entry("h2: a host that differs", request(extra=[("host", "evil")]), expect=ONCE),
    Entry("h2: a thousand headers", request(extra=[(f"x-{count}", "a" * 100) for count in range(1000)])),
    Entry("h2: a method in small letters without a key", request({":method": "post"}, without=("idempotency-key",))),
    Entry(
        "h2: headers without end",
        lambda named: (
            PREFACE
            + frame(SETTINGS, 0, 0, b"")
            + frame(HEADERS, 0, 1, header(":method", "POST"))
            + frame(CONTINUATION, 0, 1, header("x-a", "a" * 10_000)) * 200
        ),
    ),
]
