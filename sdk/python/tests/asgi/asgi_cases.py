"""A case of the table: the settings of the middleware, the behaviour of the app, the requests in order, and the
expected responses. The words are those of `crates/onceward-cli/tests/it/http_cases/case.rs`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

STATUSES = {
    "bad-credential": 401,
    "bad-request": 400,
    "body-malformed": 400,
    "body-too-large": 413,
    "collision": 409,
    "cookie-not-listed": 400,
    "attempt-failed": 409,
    "in-doubt": 409,
    "in-flight": 409,
    "key-malformed": 400,
    "key-missing": 400,
    "mismatch": 422,
    "no-answer": 502,
    "no-credential": 401,
    "not-kept": 410,
    "store-down": 503,
    "too-slow": 408,
}


@dataclass(frozen=True)
class Reply:
    """How the app replies to a request."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "application/json"),)
    body: bytes = b""
    after: float = 0.0
    # Replies with 201 and the value of this request header: `ours` for a key of the middleware, `nothing` without it.
    echoes: str | None = None
    # Raises before its response, or after the first piece of it.
    fails: bool = False
    breaks_off: bool = False
    # Sends pieces, each after the client has received the previous one.
    pieces: tuple[bytes, ...] = ()

    def header(self, name: str, value: str) -> Reply:
        others = tuple(pair for pair in self.headers if pair[0] != name)
        return dataclasses.replace(self, headers=(*others, (name, value)))


def replies(status: int, body: str | bytes, after: float = 0.0) -> Reply:
    return Reply(status=status, body=body.encode() if isinstance(body, str) else body, after=after)


@dataclass(frozen=True)
class Request:
    method: str
    path: str = "/v1/charges"
    headers: tuple[tuple[str, bytes], ...] = (
        ("authorization", b"Bearer sk_test_7"),
        ("content-type", b"application/json"),
    )
    body: bytes = b'{"amount":4200}'

    def having(self, name: str, value: str | bytes) -> Request:
        value = value.encode() if isinstance(value, str) else value
        return dataclasses.replace(self, headers=(*self.headers, (name, value)))

    def without(self, name: str) -> Request:
        return dataclasses.replace(self, headers=tuple(pair for pair in self.headers if pair[0] != name))

    def to(self, path: str) -> Request:
        return dataclasses.replace(self, path=path)

    def of(self, body: str | bytes) -> Request:
        return dataclasses.replace(self, body=body.encode() if isinstance(body, str) else body)

    def gets(self, expect: Expect) -> Exchange:
        return Exchange(self, expect)


def bare(method: str) -> Request:
    """A request without a key."""
    return Request(method)


def post(key: str | bytes) -> Request:
    """A guarded request."""
    return bare("POST").having("idempotency-key", key)


@dataclass(frozen=True)
class Expect:
    """The expected response."""

    status: int
    replayed: bool = False
    # The whole body; None for a truncated one, and for problems.
    body: bytes | None = None
    problem: str | None = None
    # Headers and members of the problem that must have this value; `*` is any.
    headers: dict[str, str] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)
    absent: tuple[str, ...] = ()

    def header(self, name: str, value: str) -> Expect:
        return dataclasses.replace(self, headers={**self.headers, name: value})

    def no_header(self, name: str) -> Expect:
        return dataclasses.replace(self, absent=(*self.absent, name))

    def member(self, name: str, value: str) -> Expect:
        return dataclasses.replace(self, members={**self.members, name: value})

    def having_status(self, status: int) -> Expect:
        return dataclasses.replace(self, status=status)


def fresh(status: int, body: str | bytes) -> Expect:
    """The response of the app."""
    return Expect(status, body=body.encode() if isinstance(body, str) else body)


def again(status: int, body: str | bytes) -> Expect:
    """A replay from the ledger."""
    return dataclasses.replace(fresh(status, body), replayed=True)


def broken(status: int) -> Expect:
    """A response that starts and does not end."""
    return Expect(status)


def problem(kind: str) -> Expect:
    """A problem document of the middleware itself."""
    return Expect(STATUSES[kind], problem=kind)


# The steps of a case.


@dataclass(frozen=True)
class Exchange:
    request: Request
    expect: Expect


@dataclass(frozen=True)
class Together:
    """The first request is sent and reaches the app; then the others are sent concurrently."""

    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True)
class GivesUp:
    """The request is sent and reaches the app; then the client disconnects."""

    request: Request


@dataclass(frozen=True)
class PieceByPiece:
    """The app sends the next piece only after the previous one has arrived."""

    request: Request
    pieces: tuple[bytes, ...]


@dataclass(frozen=True)
class Unfinished:
    """The last byte of the request's body is never sent."""

    request: Request
    expect: Expect


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class LedgerBreaks:
    """The ledger can be neither read nor written from now on."""


@dataclass(frozen=True)
class StreamTakes:
    """This key of the tenant `acme` is used as the head of a stream."""

    stream: str


# Only a real connection can do these.
NEED_A_CONNECTION = (GivesUp, PieceByPiece, Unfinished)


@dataclass(frozen=True)
class Case:
    name: str
    script: tuple[Reply, ...]
    steps: tuple[object, ...]
    # The settings of the middleware.
    settings: dict[str, object] = field(default_factory=dict)

    def needs_a_connection(self) -> bool:
        return any(isinstance(step, NEED_A_CONNECTION) for step in self.steps) or any(
            reply.breaks_off for reply in self.script
        )

    def problems(self) -> set[str]:
        found = set()
        for step in self.steps:
            exchanges = step.exchanges if isinstance(step, Together) else (step,)
            found |= {getattr(one, "expect", None) and one.expect.problem for one in exchanges}
        return found - {None}


def case(name: str, script: list[Reply], steps: list[object], **settings: object) -> Case:
    return Case(name, tuple(script), tuple(steps), settings)
