"""A transport for httpx that retries safely: it mints the idempotency key before the first attempt, and a named intent keeps it in
the ledger until the answer is confirmed.

    client = httpx.Client(transport=onceward.httpx.Transport(ledger, honours_key=True))
    with onceward.intent("invoice-7"):
        client.post("https://api.example.org/charges", json={"cents": 1999})

Switch the retries of the SDK that uses the client off: `max_retries=0`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import httpx

from ._context import current_intent
from ._http_retries import (
    DEFAULT_ATTEMPTS,
    INTENT_HEADER,
    Asked,
    Kept,
    RetryingClient,
    Send,
    Sent,
    carried_out,
    carried_out_async,
)
from ._operation import Duration, Tier

if TYPE_CHECKING:
    from ._ledger import Ledger

__all__ = ["Transport"]

# The extension of a request that names its intent, and that of a response that comes from the ledger.
_INTENT, _REPLAYED = "onceward_intent", "onceward_replayed"

# Before a connection there is nothing that could have been sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LASTING = (httpx.UnsupportedProtocol,)


class Transport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Wraps a transport of httpx, for `httpx.Client` and for `httpx.AsyncClient`."""

    def __init__(
        self,
        ledger: Ledger | None = None,
        transport: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
        *,
        honours_key: bool = False,
        header: str = "Idempotency-Key",
        honours_key_for: Duration = "24h",
        keeps_server_errors: bool = True,
        refusals: Sequence[int] = (),
        max_attempts: int = DEFAULT_ATTEMPTS,
        base: Duration = "100ms",
        cap: Duration = "10s",
        deadline: Duration | None = None,
        retry_percent: int | None = None,
        tier: Tier | None = None,
        wait: Duration | None = None,
        tenant: str | Callable[[httpx.Request], str | None] | None = None,
        identity_headers: Sequence[str] = (),
    ) -> None:
        """`honours_key` says that the API does the work once for each key. Without it, a request that may have been sent is never
        sent again. See `docs/guides/python-http-clients.md` for all settings."""
        self._transport = transport
        self._client = RetryingClient(
            ledger, honours_key=honours_key, header=header, honours_key_for=honours_key_for,
            keeps_server_errors=keeps_server_errors, refusals=refusals, max_attempts=max_attempts, base=base, cap=cap,
            deadline=deadline, retry_percent=retry_percent, tier=tier, wait=wait,
            tenant=tenant, identity_headers=identity_headers,
        )  # fmt: skip

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        transport = self._sync()

        def send(step: Send) -> Sent:
            try:
                response = transport.handle_request(self._attempt(request, step))
                if step.reads:
                    response.read()
            except httpx.RequestError as error:
                return _failed(error)
            return _answered(response, step)

        conversation = self._client.conversation(self._asked(request))
        return _response(carried_out(conversation, send, lambda response: response.close()))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        transport = self._async()

        async def send(step: Send) -> Sent:
            try:
                response = await transport.handle_async_request(self._attempt(request, step))
                if step.reads:
                    await response.aread()
            except httpx.RequestError as error:
                return _failed(error)
            return _answered(response, step)

        async def discard(response: httpx.Response) -> None:
            await response.aclose()

        conversation = self._client.conversation(self._asked(request))
        return _response(await carried_out_async(conversation, send, discard))

    def _sync(self) -> httpx.BaseTransport:
        if self._transport is None:
            self._transport = httpx.HTTPTransport()
        if not isinstance(self._transport, httpx.BaseTransport):
            raise TypeError("the wrapped transport is for httpx.AsyncClient")
        return self._transport

    def _async(self) -> httpx.AsyncBaseTransport:
        if self._transport is None:
            self._transport = httpx.AsyncHTTPTransport()
        if not isinstance(self._transport, httpx.AsyncBaseTransport):
            raise TypeError("the wrapped transport is for httpx.Client")
        return self._transport

    def _asked(self, request: httpx.Request) -> Asked:
        named = request.extensions.get(_INTENT) or request.headers.get(INTENT_HEADER) or current_intent()
        return Asked(
            method=request.method.upper(),
            host=request.url.netloc.decode("ascii", "replace"),
            path=request.url.path,
            query=request.url.query.decode("ascii", "replace"),
            content_type=request.headers.get("Content-Type", ""),
            body=request.content,
            intent=named,
            own_key=request.headers.get(self._client.header),
            headers=request.headers.raw,
            request=request,
        )

    def _attempt(self, request: httpx.Request, step: Send) -> httpx.Request:
        headers = request.headers.copy()
        headers.pop(INTENT_HEADER, None)
        if step.key is not None:
            headers[self._client.header] = step.key
        extensions = {name: value for name, value in request.extensions.items() if name != _INTENT}
        return httpx.Request(request.method, request.url, headers=headers, stream=request.stream, extensions=extensions)

    def close(self) -> None:
        if isinstance(self._transport, httpx.BaseTransport):
            self._transport.close()

    async def aclose(self) -> None:
        if isinstance(self._transport, httpx.AsyncBaseTransport):
            await self._transport.aclose()


def _failed(error: httpx.RequestError) -> Sent:
    is_lasting = isinstance(error, _LASTING)
    return Sent(error=error, is_proof=is_lasting or isinstance(error, _NOT_SENT), is_lasting=is_lasting)


def _answered(response: httpx.Response, step: Send) -> Sent:
    kept = Kept.of(response.status_code, response.headers.multi_items(), response.content) if step.reads else None
    return Sent(response=response, status=response.status_code, headers=response.headers.get, kept=kept)


def _response(found: Any) -> httpx.Response:
    if isinstance(found, Kept):
        return httpx.Response(found.status, headers=found.headers, content=found.body, extensions={_REPLAYED: True})
    response: httpx.Response = found
    return response
