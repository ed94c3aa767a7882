"""Requests of an HTTP client that retries: mints the key before the first attempt, keeps it and the answer in the ledger if the
intent has a name, and retries by the rules of the core. It does no I/O itself: an adapter of each client does what this asks for."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Union

from ._claim import begin, settled
from ._errors import InvalidCall, Mismatch
from ._http_callers import Callers
from ._native import NativeBackoff, NativeBudget, NativeClaim, Stored, duration_seconds, judge_response
from ._operation import Duration, Tier, duration_text

if TYPE_CHECKING:
    from ._ledger import Call, Ledger

# A header that names the intent of one request. It is not sent.
INTENT_HEADER = "Onceward-Intent"

# They change nothing, so that a repeat is harmless.
_SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS", "TRACE"))

# Of the connection, or of the bytes as they were on the way; and a session is not for another client that repeats the request.
_NOT_KEPT = frozenset(
    ("connection", "content-encoding", "content-length", "keep-alive", "proxy-authenticate", "proxy-connection", "set-cookie", "te")
    + ("trailer", "transfer-encoding", "upgrade")
)

# Hosts whose budgets are remembered. The one that was not used for the longest time is forgotten first.
_MOST_BUDGETS = 1_000

# Four attempts take a second or two together: a person may be waiting.
DEFAULT_ATTEMPTS = 4

R = TypeVar("R")


@dataclass(frozen=True)
class Asked:
    """A request as the program made it."""

    method: str
    host: str
    path: str
    query: str
    content_type: str
    # None if it cannot be sent twice.
    body: bytes | None
    intent: str | None
    # A key that the program or its SDK has set.
    own_key: str | None
    headers: list[tuple[bytes, bytes]]
    # As the client has it, for a function that names its tenant.
    request: Any


@dataclass(frozen=True)
class Kept:
    """An answer as the ledger keeps it."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @classmethod
    def of(cls, status: int, headers: Iterable[tuple[str, str]], body: bytes) -> Kept:
        return cls(status, [(name, value) for name, value in headers if name.lower() not in _NOT_KEPT], body)

    def write(self) -> bytes:
        body = base64.b64encode(self.body).decode()
        return json.dumps({"status": self.status, "headers": self.headers, "body": body}).encode()

    @classmethod
    def read(cls, kept: Any) -> Kept:
        headers = [(str(name), str(value)) for name, value in kept["headers"]]
        return cls(int(kept["status"]), headers, base64.b64decode(kept["body"]))


@dataclass(frozen=True)
class Sent:
    """What one attempt led to: a response, or an error."""

    response: Any = None
    status: int = 0
    headers: Callable[[str], str | None] = lambda _name: None
    error: Exception | None = None
    # Whether the error proves that nothing was sent, and whether the same request can succeed.
    is_proof: bool = False
    is_lasting: bool = False
    # The whole answer, where it was asked for.
    kept: Kept | None = None


# What an adapter is asked to do.


@dataclass(frozen=True)
class Send:
    key: str | None
    reads: bool


@dataclass(frozen=True)
class Discard:
    response: Any


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Native:
    """Calls the ledger, with an event loop or with None."""

    call: Callable[[Any], Any]


Step = Union[Send, Discard, Pause, Native]
Conversation = Generator[Step, Any, R]


class RetryingClient:
    """The settings of a client, and the budgets of the hosts that it calls."""

    def __init__(
        self,
        ledger: Ledger | None,
        *,
        honours_key: bool,
        header: str,
        honours_key_for: Duration,
        keeps_server_errors: bool,
        refusals: Sequence[int],
        max_attempts: int,
        base: Duration,
        cap: Duration,
        deadline: Duration | None,
        retry_percent: int | None,
        tier: Tier | None,
        wait: Duration | None,
        tenant: str | Callable[[Any], str | None] | None,
        identity_headers: Sequence[str],
    ) -> None:
        if type(max_attempts) is not int or max_attempts < 1:
            raise InvalidCall("max_attempts is a number from 1 on")
        self.ledger, self.header = ledger, header
        self._callers = Callers(ledger, tenant, identity_headers)
        self._honours_key, self._keeps_server_errors = bool(honours_key), bool(keeps_server_errors)
        self._refusals, self._percent = list(refusals), retry_percent
        self._tier: Tier | None = tier
        self._wait, self._known_for = wait, duration_text(honours_key_for)
        try:
            self._known_seconds = duration_seconds(self._known_for)
            limit = None if deadline is None else duration_text(deadline)
            self._backoff = NativeBackoff(max_attempts, duration_text(base), duration_text(cap), limit)
        except ValueError as error:
            raise InvalidCall(str(error)) from None
        self._budgets: dict[str, NativeBudget] = {}

    def budget(self, host: str) -> NativeBudget:
        found = self._budgets.pop(host, None) or NativeBudget(self._percent)
        while len(self._budgets) >= _MOST_BUDGETS:
            self._budgets.pop(next(iter(self._budgets)), None)
        self._budgets[host] = found
        return found

    def conversation(self, asked: Asked) -> Conversation[Any]:
        """One request with its retries. Returns a response, or a `Kept` one."""
        if asked.method in _SAFE_METHODS:
            ended = yield from self._attempts(asked, None, reads=False)
        elif asked.intent is not None:
            return (yield from self._named(asked, asked.intent))
        else:
            # It lives as long as this call.
            key = asked.own_key or f"once_{uuid.uuid4().hex}"
            ended = yield from self._attempts(asked, key, reads=False)
        if ended.sent.error is not None:
            raise ended.sent.error
        return ended.sent.response

    def _named(self, asked: Asked, intent: str) -> Conversation[Any]:
        call = self._call(asked, intent)
        try:
            found = yield Native(lambda loop: call._operation.start(loop, *call._parts))
        except Mismatch as error:
            raise self._callers.explained(error) from None
        if type(found) is Stored:
            return Kept.read(call._operation.read(found))
        native: NativeClaim = found
        try:
            begin(native)
            ended = yield from self._attempts(asked, native.downstream_key, reads=True)
            sent = ended.sent
            if ended.is_answer and sent.kept is not None:
                body = sent.kept.write()
                yield Native(lambda loop: native.finish(loop, body))
            else:
                kind = "unknown" if ended.in_doubt else "refused"
                yield Native(lambda loop: native.fail(loop, kind, [ended.message], ended.retry_after))
            if sent.error is not None:
                raise sent.error
            return sent.response
        finally:
            # A claim that has ended stays as it is. Of another one it is unknown what happened.
            native.abandon()

    def _call(self, asked: Asked, intent: str) -> Call:
        if self.ledger is None:
            raise InvalidCall("an intent with a name needs a ledger, which keeps its key and its answer")
        if asked.body is None:
            raise InvalidCall("the body of a request with an intent must be bytes or text, so that it can be sent again")
        # A path may contain a token, which must not be in the ledger.
        key = f"{intent}/{_digest(asked.path.encode())[:16]}"
        compared = {"query": _digest(asked.query.encode()), "type": asked.content_type, "body": _digest(asked.body)}
        operation = f"{asked.method} {asked.host}"
        tenant, caller = self._callers.of(operation, asked)
        if caller is not None:
            compared["caller"] = caller
        settings: dict[str, Any] = {"wait": self._wait, "tenant": tenant}
        if not self.ledger._native.is_remote:
            settings |= {"tier": self._tier, "in_doubt": "retry" if self._honours_key else "hold"}
            settings |= {"honours_key_for": self._known_for}
        return self.ledger.call(operation, key=key, intent=compared, **settings)

    def _attempts(self, asked: Asked, key: str | None, *, reads: bool) -> Conversation[_Ended]:
        attempts = _Attempts(self, asked)
        while True:
            sent: Sent = yield Send(key, reads)
            wait = attempts.ended(sent)
            if wait is None:
                return _Ended(sent, attempts)
            if sent.response is not None:
                yield Discard(sent.response)
            yield Pause(wait)


class _Attempts:
    """The attempts of one request, and what they say about the effect together."""

    def __init__(self, client: RetryingClient, asked: Asked) -> None:
        self._client, self._began, self._made = client, time.monotonic(), 0
        is_harmless = asked.method in _SAFE_METHODS
        # Where nothing is proven, only this permits another attempt.
        self._repeatable = (client._honours_key or is_harmless) and asked.body is not None
        self._budget = client.budget(asked.host)
        self._can_resend = asked.body is not None
        # An attempt may have happened. A later refusal speaks only for its own attempt.
        self.in_doubt = False
        self.verdict = ""
        self.retry_after: float | None = None

    def ended(self, sent: Sent) -> float | None:
        """The seconds to wait before the next attempt; None if there is none."""
        self._made += 1
        if self._made == 1:
            self._budget.first_attempt()
        if sent.error is not None:
            self.verdict, self.retry_after = ("refused" if sent.is_proof else "unknown"), None
            again = not sent.is_lasting and (sent.is_proof or self._repeatable)
        else:
            client = self._client
            self.verdict, again, self.retry_after = judge_response(
                sent.status, sent.headers("retry-after"), sent.headers("date"), self._repeatable,
                client._keeps_server_errors, client._refusals,
            )  # fmt: skip
        self.in_doubt = self.in_doubt or self.verdict == "unknown"
        if not again or not self._can_resend or (self.in_doubt and not self._repeatable):
            return None
        age = time.monotonic() - self._began
        known_for = self._client._known_seconds - age if self.in_doubt else None
        backoff = self._client._backoff
        if backoff.next(self._made, age, self.retry_after, known_for) is None:
            return None
        # A retry that the budget puts off waits like one that the downstream puts off.
        earliest = max(self.retry_after or 0.0, self._budget.withdraw())
        return backoff.next(self._made, age, earliest, known_for)


class _Ended:
    """The last attempt of a request."""

    def __init__(self, sent: Sent, attempts: _Attempts) -> None:
        self.sent, self.in_doubt, self.retry_after = sent, attempts.in_doubt, attempts.retry_after
        self.is_answer = attempts.verdict in ("success", "failed")

    @property
    def message(self) -> str:
        """What went wrong. The text of an error may contain the URL."""
        error = self.sent.error
        return f"HTTP status {self.sent.status}" if error is None else type(error).__name__


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def carried_out(conversation: Conversation[Any], send: Callable[[Send], Sent], discard: Callable[[Any], None]) -> Any:
    """Carries out a conversation on this thread."""
    answer: Any = None
    try:
        while True:
            step = conversation.send(answer)
            answer = None
            if isinstance(step, Send):
                answer = send(step)
            elif isinstance(step, Discard):
                discard(step.response)
            elif isinstance(step, Pause):
                time.sleep(step.seconds)
            else:
                try:
                    answer = step.call(None)
                except Mismatch as error:
                    conversation.throw(error)
    except StopIteration as ended:
        return ended.value
    finally:
        conversation.close()


async def carried_out_async(
    conversation: Conversation[Any], send: Callable[[Send], Awaitable[Sent]], discard: Callable[[Any], Awaitable[None]]
) -> Any:
    """Carries out a conversation in this event loop."""
    answer: Any = None
    try:
        while True:
            try:
                step = conversation.send(answer)
            except StopIteration as ended:
                return ended.value
            answer = None
            if isinstance(step, Send):
                answer = await send(step)
            elif isinstance(step, Discard):
                await discard(step.response)
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            else:
                try:
                    answer = await settled(step.call(asyncio.get_running_loop()))
                except Mismatch as error:
                    conversation.throw(error)
    finally:
        conversation.close()
