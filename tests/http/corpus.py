"""Malformed and hostile requests as data: the bytes, and the allowed results.

`PLACE` in the bytes becomes a path that only this entry has, so that requests which reach the upstream can be attributed to
it; `KEY` becomes a unique key. Many entries hide a request to `/smuggled`, which must never reach the upstream.
"""

import dataclasses
import gzip

# 4xx, or the gateway closes the connection without a response. Nothing reaches the upstream.
REFUSED = "refused"
# Refused, or accepted in the one interpretation that the specification allows: once, and without the hidden request.
ONCE = "once"

# A complete request, for a parser that takes it for one.
SMUGGLED = (
    b"POST /smuggled HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer token\r\n"
    b"Idempotency-Key: smuggled-KEY\r\nContent-Length: 0\r\n\r\n"
)
BODY = b'{"amount":1}'

# Half a gigabyte of zeros, in several gzip members so that it is made quickly.
BOMB = gzip.compress(bytes(5_000_000), 9) * 100


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    data: bytes
    expect: str = REFUSED
    # The body that an upstream may see, where interpretations differ.
    read_as: bytes | None = None
    modes: tuple = ("required",)
    # What the sender does after the last byte: `wait` for a response, close its `half` of the connection, or `reset` it.
    end: str = "wait"
    # Whether waiting for more bytes is an allowed result.
    silent: bool = False
    # The allowed statuses, where a response is required.
    statuses: tuple = ()
    # How often it is sent. A request that was accepted once must not be accepted again.
    times: int = 1


def post(
    body=BODY, key="Idempotency-Key: KEY", length=True, extra=(), start="POST PLACE HTTP/1.1", host="Host: gateway"
):
    """A request that is valid except for the given part."""
    lines = [start, host, "Authorization: Bearer token", "Content-Type: application/json", key]
    lines += [f"Content-Length: {len(body)}"] if length else []
    lines = [line if isinstance(line, bytes) else line.encode() for line in [*lines, *extra] if line]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def framed(name, *lines, body=b"c\r\n" + BODY + b"\r\n0\r\n\r\n", after=SMUGGLED, **more):
    """Framing that two parsers may interpret in two ways, with a request hidden in the remainder."""
    return Entry(name, post(body=body + after, length=False, extra=lines), **more)


def chunks(name, body, **more):
    return Entry(name, post(body=body, length=False, extra=("Transfer-Encoding: chunked",)), **more)


def key(name, *lines, **more):
    """An invalid key, in every mode that looks at keys."""
    return Entry(name, post(key=None, extra=lines), modes=("required", "optional"), statuses=(400,), **more)


def line(name, start, **more):
    return Entry(name, post(start=start), **more)


def guarded(name, start, **more):
    """A guarded request in a form that may not look like one. It has no key, so it must not pass."""
    return Entry(name, post(start=start, key=None), **more)


def derived(name, body, kind=b"application/json"):
    """A body that has no canonical form. The upstream may refuse it; the gateway guards it as plain bytes."""
    data = post(body=body, key=None).replace(b"application/json", kind)
    return Entry(name, data, expect=ONCE, read_as=body, modes=("derived",), times=2)


LENGTHS = (
    "+12",
    "-12",
    "-0",
    "0x0c",
    "12abc",
    "1 2",
    "12;",
    "",
    "18446744073709551628",
    "99999999999999999999",
    "12.0",
)
CODINGS = ("identity", "xchunked", "chunked, identity", "chunked;q=1, gzip", "\x0bchunked", "chunked\x00", "")

FRAMING = [
    framed("length, then coding", "Content-Length: 6", "Transfer-Encoding: chunked", expect=ONCE, read_as=BODY),
    framed("coding, then length", "Transfer-Encoding: chunked", "Content-Length: 6", expect=ONCE, read_as=BODY),
    framed("two lengths that differ", "Content-Length: 12", "Content-Length: 6", body=BODY),
    framed("two lengths in a line", "Content-Length: 12, 6", body=BODY),
    framed("two equal lengths in a line", "Content-Length: 12, 12", body=BODY, after=b"", expect=ONCE),
    framed("two equal lengths", "Content-Length: 12", "Content-Length: 12", body=BODY, after=b"", expect=ONCE),
    *(framed(f"length {length!r}", f"Content-Length: {length}", body=BODY) for length in LENGTHS),
    framed("no length and no coding", body=b"", after=b"", expect=ONCE, read_as=b""),
    *(framed(f"coding {coding!r}", f"Transfer-Encoding: {coding}") for coding in CODINGS),
    framed("a second coding", "Transfer-Encoding: chunked", "Transfer-Encoding: cow"),
    framed("a space before the colon", "Transfer-Encoding : chunked"),
    framed("a space before the colon of the length", "Content-Length : 12", body=BODY),
    framed("a tab before the colon", "Transfer-Encoding\t: chunked"),
    framed("a folded line", "X-Folded: a", " b: c", "Content-Length: 12", body=BODY),
    framed("a folded coding", "Transfer-Encoding:", " chunked"),
    framed("a carriage return in a header", "X-Bare: a\rTransfer-Encoding: chunked", "Content-Length: 12", body=BODY),
    Entry("a space before the first header", post(host=" Host: gateway")),
    Entry(
        "coding in HTTP/1.0",
        post(
            b"c\r\n" + BODY + b"\r\n0\r\n\r\n",
            length=False,
            start="POST PLACE HTTP/1.0",
            extra=("Transfer-Encoding: chunked",),
        ),
    ),
    Entry("bare line feeds", post().replace(b"\r\n", b"\n"), expect=ONCE, read_as=BODY),
    Entry("bare carriage returns", post().replace(b"\r\n", b"\r"), silent=True),
    Entry(
        "a body in a GET",
        b"GET PLACE HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer t\r\nContent-Length: %d\r\n\r\n" % len(SMUGGLED)
        + SMUGGLED,
        expect=ONCE,
    ),
]

CHUNKS = [
    chunks("a chunk size with a prefix", b"0xc\r\n" + BODY + b"\r\n0\r\n\r\n"),
    chunks("a negative chunk size", b"-c\r\n" + BODY + b"\r\n0\r\n\r\n"),
    chunks("a chunk size that is not a number", b"zz\r\n" + BODY + b"\r\n0\r\n\r\n"),
    chunks("an empty chunk size", b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
    chunks("a chunk size beyond 64 bits", b"10000000000000000c\r\n" + BODY + b"\r\n0\r\n\r\n"),
    chunks("an absurd chunk size", b"7fffffffffffffff\r\n" + BODY, silent=True),
    chunks("a chunk that is longer than it says", b"5\r\n" + BODY + b"\r\n0\r\n\r\n"),
    chunks("a chunk that is shorter than it says", b"20\r\n" + BODY + b"\r\n0\r\n\r\n", end="half"),
    chunks("a bare line feed after the size", b"c\n" + BODY + b"\r\n0\r\n\r\n"),
    chunks("a line feed in an extension", b"c;a\nb\r\n" + BODY + b"\r\n0\r\n\r\n"),
    chunks("a huge chunk extension", b"c;" + b"a" * 100_000 + b"\r\n" + BODY + b"\r\n0\r\n\r\n"),
    chunks("no last chunk", b"c\r\n" + BODY + b"\r\n", end="half"),
    chunks("too many trailers", b"c\r\n" + BODY + b"\r\n0\r\n" + b"X-Trailer: a\r\n" * 5000 + b"\r\n"),
    chunks(
        "a length among the trailers",
        b"c\r\n" + BODY + b"\r\n0\r\nContent-Length: 5\r\n\r\n",
        expect=ONCE,
        read_as=BODY,
    ),
    chunks(
        "a key among the trailers",
        b"c\r\n" + BODY + b"\r\n0\r\nIdempotency-Key: other\r\n\r\n",
        expect=ONCE,
        read_as=BODY,
    ),
    chunks(
        "a body above the limit in chunks", (b"10000\r\n" + b"a" * 65536 + b"\r\n") * 40 + b"0\r\n\r\n", statuses=(413,)
    ),
]

BODIES = [
    Entry("a body that ends early", post(extra=("X-A: b",))[:-6], end="half"),
    Entry("a body that is reset", post()[:-6], end="reset"),
    Entry("a body that never comes", post(length=False, extra=("Content-Length: 500",)), silent=True),
    Entry("a length of terabytes", post(length=False, extra=("Content-Length: 10000000000000",)), statuses=(413,)),
    Entry("a length just above the limit", post(length=False, extra=("Content-Length: 1048577",)), statuses=(413,)),
    Entry(
        "a length above the limit that asks first",
        post(b"", length=False, extra=("Content-Length: 99999999", "Expect: 100-continue")),
        statuses=(413, 417),
    ),
    Entry("broken gzip", post(b"\x1f\x8b\x08broken", extra=("Content-Encoding: gzip",)), expect=ONCE),
    Entry("gzip of 500 MB", post(BOMB, extra=("Content-Encoding: gzip",)), expect=ONCE, times=2),
    Entry(
        "gzip of 500 MB inside gzip", post(gzip.compress(BOMB), extra=("Content-Encoding: gzip, gzip",)), expect=ONCE
    ),
    Entry(
        "multipart without a boundary",
        post(b"--\r\n\r\n--").replace(b"application/json", b"multipart/form-data"),
        expect=ONCE,
    ),
    Entry("a content type that is none", post().replace(b"application/json", b'\xff\xfe/;;;="', 1), expect=ONCE),
]

LINES = [
    line("a version twice", "POST PLACE HTTP/1.1 HTTP/1.1"),
    line("two spaces", "POST  PLACE HTTP/1.1"),
    line("a version in small letters", "POST PLACE http/1.1"),
    line("a version that does not exist", "POST PLACE HTTP/9.9"),
    line("HTTP/2.0 in words", "POST PLACE HTTP/2.0"),
    line("no version", "POST PLACE"),
    line("no path", "POST HTTP/1.1"),
    line("an empty path", "POST  HTTP/1.1"),
    line("a path without a slash", "POST v1/charges HTTP/1.1"),
    line("an asterisk", "POST * HTTP/1.1"),
    line("a space in the path", "POST PLACE/a b HTTP/1.1"),
    line("a NUL in the path", b"POST PLACE\x00 HTTP/1.1"),
    line("a line feed in the path", b"POST PLACE\n HTTP/1.1"),
    line("bytes that are no ASCII in the path", b"POST PLACE\xff\xfe HTTP/1.1", expect=ONCE),
    line("a path of 100 kB", "POST PLACE/" + "a" * 100_000 + " HTTP/1.1"),
    line("a method with a slash", "P/ST PLACE HTTP/1.1"),
    line("a method of 10 kB", "P" * 10_000 + " PLACE HTTP/1.1", expect=ONCE),
    line("a tunnel", "CONNECT gateway:443 HTTP/1.1"),
    Entry("a tunnel without a key", b"CONNECT 127.0.0.1:CANARY HTTP/1.1\r\nHost: 127.0.0.1:CANARY\r\n\r\n"),
    Entry(
        "a tunnel to the upstream",
        b"CONNECT 127.0.0.1:UPSTREAM HTTP/1.1\r\nHost: 127.0.0.1:UPSTREAM\r\nAuthorization: Bearer t\r\n\r\n"
        + SMUGGLED,
    ),
    Entry("nothing but line ends", b"\r\n" * 2000, silent=True),
    Entry("noise", bytes(range(256)) * 16),
    Entry("a TLS greeting", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)),
    Entry("a proxy's greeting", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n" + post()),
]

HEADERS = [
    Entry("no host", post(host=None)),
    Entry("two hosts", post(extra=("Host: other",))),
    Entry("a host with a path", post(host="Host: gateway/evil")),
    Entry("a host with a space", post(host="Host: gate way")),
    Entry("a host with bytes that are no ASCII", post(host=b"Host: \xff\xfe")),
    Entry("a NUL in a value", post(extra=(b"X-A: a\x00b",))),
    Entry("a NUL in a name", post(extra=(b"X\x00A: a",))),
    Entry("a control character in a value", post(extra=(b"X-A: a\x01b",))),
    Entry("a name with a space", post(extra=("X A: a",))),
    Entry("a name with brackets", post(extra=("X(A): a",))),
    Entry("an empty name", post(extra=(": a",))),
    Entry("no colon", post(extra=("X-A",))),
    Entry("three hundred headers", post(extra=[f"X-{number}: a" for number in range(300)])),
    Entry("a header of a megabyte", post(extra=("X-A: " + "a" * 1_000_000,))),
    Entry("the key named as hop by hop", post(extra=("Connection: Idempotency-Key",)), statuses=(400,)),
    Entry("the credential named as hop by hop", post(extra=("Connection: Authorization",)), statuses=(400,)),
    Entry("an upgrade", post(extra=("Connection: Upgrade", "Upgrade: websocket")), expect=ONCE),
    Entry(
        "an upgrade to clear-text HTTP/2",
        post(extra=("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")),
        expect=ONCE,
    ),
    Entry("no credential", post().replace(b"Authorization: Bearer token\r\n", b""), statuses=(401,)),
    Entry("an empty credential", post().replace(b"Bearer token", b""), statuses=(400, 401)),
    Entry("two credentials", post(extra=("Authorization: Bearer other",)), statuses=(400, 401)),
    Entry(
        "a token that will be refreshed",
        post().replace(b"Bearer token", b"Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"),
        statuses=(400, 401, 403),
    ),
]

KEYS = [
    Entry("no key", post(key=None), statuses=(400,)),
    key("an empty key", "Idempotency-Key:"),
    key("a key of spaces", "Idempotency-Key:    "),
    key("an empty quoted key", 'Idempotency-Key: ""'),
    key("two keys", "Idempotency-Key: KEY", "Idempotency-Key: other"),
    key("the same key twice", "Idempotency-Key: KEY", "Idempotency-Key: KEY"),
    key("a key and an empty one", "Idempotency-Key: KEY", "Idempotency-Key:"),
    key("the same key in two spellings", "Idempotency-Key: KEY", "idempotency-key: KEY"),
    key("256 characters", "Idempotency-Key: " + "k" * 256),
    key("256 quoted characters", 'Idempotency-Key: "' + "k" * 256 + '"'),
    key("ten thousand characters", "Idempotency-Key: " + "k" * 10_000),
    key("a key that is not ASCII", "Idempotency-Key: schlüssel-KEY".encode()),
    key("a key that is not UTF-8", b"Idempotency-Key: KEY-\xff\xfe"),
    key("a space inside", "Idempotency-Key: KEY b"),
    key("a tab inside", "Idempotency-Key: KEY\tb"),
    key("an open quote", 'Idempotency-Key: "KEY'),
    key("something after the quotes", 'Idempotency-Key: "KEY"x'),
    key("a list", 'Idempotency-Key: "KEY", "other"'),
    key("a bad escape", 'Idempotency-Key: "KEY\\n"'),
]

PATHS = [
    guarded("a small method", "post PLACE HTTP/1.1"),
    guarded("a mixed method", "PoSt PLACE HTTP/1.1"),
    guarded("dots before the path", "POST /x/..PLACE HTTP/1.1"),
    guarded("encoded dots", "POST /x/%2e%2ePLACE HTTP/1.1"),
    guarded("two slashes", "POST /PLACE HTTP/1.1"),
    guarded("a backslash", "POST /x/..\\..PLACE HTTP/1.1"),
    guarded("an encoded NUL", "POST PLACE/%00 HTTP/1.1"),
    guarded("a path parameter", "POST PLACE;a=b HTTP/1.1"),
    guarded("a fragment", "POST PLACE#a HTTP/1.1"),
    guarded("an absolute form", "POST http://gatewayPLACE HTTP/1.1"),
    guarded("an absolute form of elsewhere", "POST http://127.0.0.1:CANARYPLACE HTTP/1.1"),
    guarded("an absolute form with a user", "POST http://a:b@127.0.0.1:CANARYPLACE HTTP/1.1"),
    guarded("an absolute form of another scheme", "POST ftp://gatewayPLACE HTTP/1.1"),
    guarded("dots out of the own paths", "POST /.well-known/onceward/../..PLACE HTTP/1.1"),
    guarded("encoded dots out of the own paths", "POST /.well-known/onceward/%2e%2e/%2e%2ePLACE HTTP/1.1"),
    Entry(
        "an absolute form of elsewhere, unguarded",
        b"GET http://127.0.0.1:CANARYPLACE HTTP/1.1\r\nHost: 127.0.0.1:CANARY\r\nAuthorization: Bearer t\r\n\r\n",
        expect=ONCE,
    ),
    Entry("a POST to the readiness", post(start="POST /.well-known/onceward/ready HTTP/1.1"), statuses=(400, 404, 405)),
    Entry("a POST to the policy", post(start="POST /.well-known/idempotency HTTP/1.1"), statuses=(400, 404, 405)),
    Entry(
        "a path of ours that is not there",
        b"GET /.well-known/onceward/secret HTTP/1.1\r\nHost: gateway\r\n\r\n",
        statuses=(404,),
    ),
    Entry("dots inside the own paths", b"GET /.well-known/onceward/../../etc/passwd HTTP/1.1\r\nHost: gateway\r\n\r\n"),
    Entry(
        "a DELETE of the readiness",
        b"DELETE /.well-known/onceward/ready HTTP/1.1\r\nHost: gateway\r\n\r\n",
        statuses=(400, 404, 405),
    ),
]

DERIVED = [
    derived("no JSON", b"{amount:1}"),
    derived("JSON that ends early", b'{"amount":'),
    derived("an empty body", b""),
    derived("two members of one name", b'{"amount":1,"amount":2}'),
    derived("two members of one name, escaped", b'{"amount":1,"\\u0061mount":2}'),
    derived("something after the JSON", b'{"amount":1} {"amount":2}'),
    derived("bytes that are no UTF-8", b'{"amount":"\xff\xfe"}'),
    derived("half a surrogate", b'{"amount":"\\ud800"}'),
    derived("a number that is none", b'{"amount":NaN}'),
    derived("an infinite number", b'{"amount":1e999}'),
    derived("a number that does not round-trip", b'{"amount":0.10000000000000000555}'),
    derived("nesting of 129", b"[" * 129 + b"]" * 129),
    derived("nesting of 100,000", b"[" * 100_000),
    derived("nesting of 100,000 members", b'{"a":' * 100_000),
    derived("a control character in a string", b'{"amount":"a\x00b"}'),
    derived("a byte order mark", b"\xef\xbb\xbf" + BODY),
    derived("UTF-16", '{"amount":1}'.encode("utf-16")),
    derived("a form", b"amount=1", kind=b"application/x-www-form-urlencoded"),
    derived("JSON that says that it is an image", BODY, kind=b"image/png"),
    Entry("a bad key, where one is not needed", post(key='Idempotency-Key: "KEY'), modes=("derived",)),
]

CORPUS = FRAMING + CHUNKS + BODIES + LINES + HEADERS + KEYS + PATHS + DERIVED
