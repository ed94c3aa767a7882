"""Makes the requests of a FastAPI, Starlette or other ASGI app safe to retry.

    from onceward.asgi import IdempotencyMiddleware

    app.add_middleware(IdempotencyMiddleware, ledger=onceward.Ledger("onceward.db"))

Clients send `Idempotency-Key`. The first request runs; every repeat gets its response. Rules and answers are those of
the HTTP gateway: all of them are in the native module, and this file only passes the messages of ASGI on.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, cast
from urllib.parse import quote

from ._claim import Claim, settled
from ._context import running
from ._errors import InvalidCall
from ._failures import classify
from ._ledger import Ledger
from ._native import NativeHttpCall, NativeHttpExchange, NativeHttpGuard, NativeHttpResponse
from ._operation import Duration, Tier, duration_text

if TYPE_CHECKING:
    from starlette.requests import Request

    from ._native import NativeClaim

__all__ = ["IdempotencyMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
TenantFunction = Callable[["Request"], Union[str, None, Awaitable[Union[str, None]]]]

# Where the app finds its claim, besides `onceward.claim()`: in the scope, and as `request.state.onceward_claim`.
SCOPE_ENTRY = "onceward.claim"
STATE_ENTRY = "onceward_claim"

# Extensions with which a response would bypass this middleware are not offered to a guarded app.
_EXTENSIONS = ("http.response.trailers", "tls")

_OPERATION = frozenset(
    ("key", "match", "normalise", "window", "allow_volatile", "max_runtime", "in_doubt", "retention", "tombstone")
    + ("dedup", "honours_key_for", "store_down", "keep_limit")
)
_DURATIONS = frozenset(
    ("wait", "window", "body_timeout", "unread_for", "max_runtime", "retention", "tombstone", "dedup")
    + ("honours_key_for",)
)

# The status that proxies log for a client that closed its connection.
_CLIENT_GONE = 499

_log = logging.getLogger("onceward")

# The event loop itself keeps only weak references to its tasks.
_running: set[asyncio.Task[None]] = set()


class IdempotencyMiddleware:
    """Guards the requests of an ASGI app: each `Idempotency-Key` of a tenant runs once."""

    def __init__(
        self,
        app: App,
        *,
        ledger: Ledger,
        tenant: str | TenantFunction = "authorization",
        path: str | None = None,
        profile: Literal["ietf", "stripe", "acp"] | None = None,
        methods: Sequence[str] | None = None,
        key_mode: Literal["required", "optional", "derived"] | None = None,
        key_from: str | None = None,
        key_format: str | None = None,
        window: Duration | None = None,
        tier: Tier | None = None,
        wait: Duration | None = None,
        honours_key: bool | None = None,
        downstream_key: str | None = None,
        refusals: Sequence[int] | None = None,
        in_flight_status: Literal[409, 425] | None = None,
        compared_headers: Sequence[str] | None = None,
        identity_headers: Sequence[str] | None = None,
        ignored_headers: Sequence[str] | None = None,
        jwt_key: str | None = None,
        jwt_audience: str | None = None,
        jwt_issuer: str | None = None,
        trusted_peers: Sequence[str] | None = None,
        request_limit: int | str | None = None,
        body_timeout: Duration | None = None,
        unread_for: Duration | None = None,
        operation: Mapping[str, Any] | None = None,
    ) -> None:
        """The settings have the names, meanings and defaults of `[[gateway.route]]` in `onceward.toml`.

        `tenant` says whose request it is: a function of the Starlette request, or `"authorization"`, `"header:NAME"`,
        `"jwt:CLAIM"` or `"fixed:NAME"`. `operation` has the settings of `[operation.NAME]`. `unread_for` is how long a
        response is still read when its client is gone (1 h).
        """
        self.app = app
        self._ledger = ledger
        self._tenant = None if isinstance(tenant, str) else _tenant_function(tenant)
        route = {
            "tenant": tenant if isinstance(tenant, str) else None,
            "path": path,
            "profile": profile,
            "methods": methods,
            "key_mode": key_mode,
            "key_from": key_from,
            "key_format": key_format,
            "window": window,
            "wait": wait,
            "honours_key": honours_key,
            "downstream_key": downstream_key,
            "refusals": refusals,
            "in_flight_status": in_flight_status,
            "compared_headers": compared_headers,
            "identity_headers": identity_headers,
            "ignored_headers": ignored_headers,
            "jwt_key": jwt_key,
            "jwt_audience": jwt_audience,
            "jwt_issuer": jwt_issuer,
            "trusted_peers": trusted_peers,
            "request_limit": request_limit,
            "body_timeout": body_timeout,
            "unread_for": unread_for,
        }
        unknown = set(operation or ()) - _OPERATION
        if unknown:
            raise InvalidCall(f"unknown settings of an operation: {', '.join(sorted(unknown))}")
        self._settings = (_written(route), _written({"tier": tier, **(operation or {})}), self._tenant is not None)
        self._native = ledger._native
        self._guard = NativeHttpGuard(self._native, *self._settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._guard.passes(scope["method"]) or SCOPE_ENTRY in scope:
            await self.app(scope, receive, send)
            return
        if self._ledger._native is not self._native:
            # The ledger has moved to another store.
            self._native = self._ledger._native
            self._guard = NativeHttpGuard(self._native, *self._settings)
        judged = self._judge(scope)
        if judged is None:
            await self.app(scope, receive, send)
        elif isinstance(judged, NativeHttpResponse):
            await _Client(send).respond(judged)
        else:
            tenant = None
            if self._tenant is not None:
                named = self._tenant(scope)
                tenant = await named if inspect.isawaitable(named) else named
            await _Exchange(self.app, judged, scope, receive, send).run(tenant)

    def _judge(self, scope: Scope) -> NativeHttpExchange | NativeHttpResponse | None:
        path = scope["path"]
        raw_path = (scope.get("raw_path") or quote(path).encode()).partition(b"?")[0]
        client = scope.get("client")
        return self._guard.judge(
            scope["method"],
            [path, *_below(path, scope.get("root_path", ""))],
            raw_path,
            scope.get("query_string", b""),
            scope["headers"],
            None if client is None else tuple(client),
            "http.response.trailers" in (scope.get("extensions") or ()),
        )


def _below(path: str, root: str) -> Sequence[str]:
    """The path as the routes of an app see it that is mounted, or behind a proxy that takes a prefix away."""
    root = root.rstrip("/")
    return (path[len(root) :] or "/",) if root and (path == root or path.startswith(f"{root}/")) else ()


class _Exchange:
    """One guarded request: reads it for the native exchange, runs the app when the exchange asks for it, and sends the
    response."""

    def __init__(self, app: App, native: NativeHttpExchange, scope: Scope, receive: Receive, send: Send) -> None:
        self._app, self._native, self._scope, self._receive = app, native, scope, receive
        self._client = _Client(send)
        self._loop = asyncio.get_running_loop()
        self._body: list[bytes] = []
        self._call: _AppCall | None = None

    async def run(self, tenant: str | None) -> None:
        self._native.start(tenant)
        reading = self._loop.create_task(self._read())
        try:
            response = await self._response()
            if response is None:
                await self._client.respond_to_none()
            else:
                await self._client.respond(response)
        except Exception:
            # The server cannot send the response.
            if self._call is not None:
                self._call.delivered()
            await self._app_ended()
            raise
        except BaseException:
            if self._call is not None:
                self._call.detach()
            raise
        finally:
            if self._call is not None:
                self._call.delivered()
            self._native.close()
            reading.cancel()
            await asyncio.wait([reading])
        await self._app_ended()
        if self._client.is_cut_off:
            raise RuntimeError("the response ended before it was complete")
        if not reading.cancelled():
            reading.result()

    async def _app_ended(self) -> None:
        """The app may still run: after its response come its background tasks."""
        if self._call is not None:
            await self._call.ended()

    async def _response(self) -> NativeHttpResponse | None:
        while True:
            event = await settled(self._native.next(self._loop))
            if not isinstance(event, NativeHttpCall):
                return cast("NativeHttpResponse | None", event)
            if self._client.is_gone:
                # Nothing has run: dropping the call gives the claim back.
                return None
            body, self._body = b"".join(self._body), []
            self._call = _AppCall(self._app, event, self._scope, body, self._loop)

    async def _read(self) -> None:
        """Reads the body of the request, and then waits for the client to go away."""
        is_wanted = True
        try:
            while (message := await self._receive())["type"] == "http.request":
                if is_wanted:
                    body, more = message.get("body", b""), message.get("more_body", False)
                    self._body.append(body)
                    is_wanted = await settled(self._native.feed(self._loop, body, more)) and more
        finally:
            self._client.gone()
            if self._call is None:
                self._native.close()


class _Client:
    """The client of a request, which may go away."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_gone = False
        self.is_cut_off = False
        self._response: NativeHttpResponse | None = None

    def gone(self) -> None:
        self.is_gone = True
        if self._response is not None:
            self._response.close()

    async def respond_to_none(self) -> None:
        """Ends a request whose client has gone. A server drops the response; middleware further out still expects one."""
        # Some servers raise where a client has gone.
        with contextlib.suppress(OSError):
            await self._send({"type": "http.response.start", "status": _CLIENT_GONE, "headers": []})
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def respond(self, response: NativeHttpResponse) -> None:
        """Sends a response, each piece when the server has taken the one before."""
        if self.is_gone:
            response.close()
            await self.respond_to_none()
            return
        self._response, loop = response, asyncio.get_running_loop()
        try:
            start = {"type": "http.response.start", "status": response.status, "headers": response.begin()}
            await self._send(start | {"trailers": True} if response.has_trailers else start)
            more, trailers = True, None
            while more:
                piece = await settled(response.next(loop))
                if piece is None:
                    self.is_cut_off = not self.is_gone
                    return
                body, more, trailers = piece
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
            if response.has_trailers:
                await self._send({"type": "http.response.trailers", "headers": trailers or [], "more_trailers": False})
        finally:
            self._response = None
            response.close()


class _AppCall:
    """One run of the app, in a task of its own: it goes on when the client goes away or the server stops waiting."""

    def __init__(
        self, app: App, native: NativeHttpCall, scope: Scope, body: bytes, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._app, self._native, self._scope, self._loop = app, native, scope, loop
        self._request: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self._head: asyncio.Handle | None = None
        self._has_trailers = False
        self._complete, self._delivered = loop.create_future(), loop.create_future()
        self._is_detached = self._is_given_up = self._is_stopped = False
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._done)
        _running.add(self._task)
        native.on_given_up(loop, self._given_up)

    async def ended(self) -> None:
        """Waits for the end of the app, and raises what it raised."""
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            if self._is_given_up and self._task.cancelled():
                return
            self.detach()
            raise

    def delivered(self) -> None:
        """The server has taken the response, or does not take it."""
        if not self._delivered.done():
            self._delivered.set_result(None)

    def detach(self) -> None:
        """The app goes on, and its end is no longer waited for."""
        self._is_detached = True
        if self._task.done():
            self._done(self._task)

    def _done(self, task: asyncio.Task[None]) -> None:
        _running.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._is_detached:
            _log.error("a guarded request failed after the server had stopped waiting for it", exc_info=error)

    def _given_up(self) -> None:
        if not self._complete.done() and not self._task.done():
            self._is_given_up = True
            self._task.cancel("onceward: the response is not wanted any more")

    async def _run(self) -> None:
        self._native.begin()
        self._prepare_scope()
        try:
            claim = self._scope[SCOPE_ENTRY]
            if claim is None:
                await self._app(self._scope, self._receive, self._send)
            else:
                with running(claim):
                    await self._app(self._scope, self._receive, self._send)
            if not self._complete.done():
                self._native.fail(None, "the app ended before its response")
        except BaseException as error:
            kind, messages, _ = classify(error, {})
            self._native.fail(kind, messages[0])
            raise
        finally:
            if self._head is not None:
                self._head.cancel()

    def _prepare_scope(self) -> None:
        scope, native = self._scope, self._native.claim
        claim = None if native is None else Claim(cast("NativeClaim", native))
        scope[SCOPE_ENTRY] = claim
        scope.setdefault("state", {})[STATE_ENTRY] = claim
        if (headers := self._native.headers) is not None:
            scope["headers"] = headers
        if extensions := scope.get("extensions"):
            scope["extensions"] = {name: extensions[name] for name in _EXTENSIONS if name in extensions}

    async def _receive(self) -> Message:
        if (request := self._request) is not None:
            self._request = None
            return request
        # A guarded app runs to its end, so it is not told that its client has gone away.
        await asyncio.shield(self._complete)
        await asyncio.shield(self._delivered)
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if self._complete.done():
            raise RuntimeError(f"unexpected ASGI message {kind!r}: the response is complete")
        if kind == "http.response.start" and self._head is None:
            self._native.head(message["status"], message.get("headers", ()))
            self._has_trailers = message.get("trailers", False)
            # If the body comes at once, as it does without a stream, it goes with the head, and its length is known.
            self._head = self._loop.call_soon(self._native.respond, b"", True)
        elif kind == "http.response.body" and self._head is not None:
            body, more = bytes(message.get("body", b"")), message.get("more_body", False) or self._has_trailers
            await self._taken(await self._given(body, more), more)
        elif kind == "http.response.trailers" and self._has_trailers:
            await self._given(b"", True)
            await self._taken(await settled(self._native.trailers(self._loop, message.get("headers", ()))), False)
        else:
            raise RuntimeError(f"unexpected ASGI message {kind!r}")

    async def _given(self, body: bytes, more: bool) -> bool:
        """Gives a piece of the body, the first one with the head. Returns whether the response is still read."""
        return self._native.respond(body, more) or await settled(self._native.push(self._loop, body, more))

    async def _taken(self, is_read: bool, more: bool) -> None:
        if not is_read:
            self._given_up()
            if not self._is_stopped:
                # Until the cancellation arrives. An app that goes on in spite of it gets errors.
                self._is_stopped = True
                await self._loop.create_future()
            raise OSError("the response is not read any more")
        if not more:
            self._complete.set_result(None)
            # Background tasks come next. They begin when the outcome is recorded and the server has the response.
            await asyncio.shield(self._delivered)


def _tenant_function(tenant: TenantFunction) -> Callable[[Scope], Any]:
    try:
        from starlette.requests import Request
    except ImportError:
        raise InvalidCall("tenant= takes a function of a Starlette request, and Starlette is not installed") from None
    return lambda scope: tenant(Request(scope))


def _written(settings: Mapping[str, Any]) -> str:
    """Settings as `onceward.toml` writes them."""
    chosen = {name: value for name, value in settings.items() if value is not None}
    for name in _DURATIONS & set(chosen):
        if not isinstance(chosen[name], Mapping):
            chosen[name] = duration_text(chosen[name])
    return json.dumps({name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()})
