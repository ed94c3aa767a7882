"""An adapter for requests that retries safely: it mints the idempotency key before the first attempt, and a named intent keeps it
in the ledger until the answer is confirmed.

    session = requests.Session()
    session.mount("https://api.example.org", onceward.requests.Adapter(ledger, honours_key=True))
    with onceward.intent("invoice-7"):
        session.post("https://api.example.org/charges", json={"cents": 1999})

Switch the retries of the SDK that uses the session off.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests
import requests.adapters
import requests.exceptions
import urllib3
import urllib3.exceptions

from ._context import current_intent
from ._http_retries import DEFAULT_ATTEMPTS, INTENT_HEADER, Asked, Kept, RetryingClient, Send, Sent, carried_out
from ._operation import Duration, Tier

if TYPE_CHECKING:
    from ._ledger import Ledger

__all__ = ["Adapter"]

# Before a connection there is nothing that could have been sent.
_NOT_SENT = (urllib3.exceptions.NewConnectionError, urllib3.exceptions.ConnectTimeoutError)
_LASTING = (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.InvalidProxyURL)


class Adapter(requests.adapters.HTTPAdapter):
    """An adapter to mount into a session of requests. Its own retries are off."""

    def __init__(
        self,
        ledger: Ledger | None = None,
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
        tenant: str | Callable[[requests.PreparedRequest], str | None] | None = None,
        identity_headers: Sequence[str] = (),
        **options: Any,
    ) -> None:
        """The settings are those of `onceward.httpx.Transport`; `options` are those of `HTTPAdapter`."""
        self._client = RetryingClient(
            ledger, honours_key=honours_key, header=header, honours_key_for=honours_key_for,
            keeps_server_errors=keeps_server_errors, refusals=refusals, max_attempts=max_attempts, base=base, cap=cap,
            deadline=deadline, retry_percent=retry_percent, tier=tier, wait=wait,
            tenant=tenant, identity_headers=identity_headers,
        )  # fmt: skip
        super().__init__(max_retries=0, **options)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        def send(step: Send) -> Sent:
            try:
                response = super(Adapter, self).send(self._attempt(request, step), *args, **kwargs)
                if step.reads:
                    # Reads all of it.
                    response.content  # noqa: B018
            except requests.exceptions.RequestException as error:
                return _failed(error)
            return _answered(response, step)

        found = carried_out(self._client.conversation(self._asked(request)), send, lambda response: response.close())
        if isinstance(found, Kept):
            return self._replayed(request, found)
        response: requests.Response = found
        # Of the request as the program made it, without the intent.
        return response

    def _asked(self, request: requests.PreparedRequest) -> Asked:
        parts, body = urlsplit(request.url or ""), request.body
        if body is None or isinstance(body, str):
            body = (body or "").encode()
        named = request.headers.get(INTENT_HEADER) or current_intent()
        return Asked(
            method=(request.method or "GET").upper(),
            host=parts.netloc.rpartition("@")[2],
            path=parts.path,
            query=parts.query,
            content_type=_text(request.headers.get("Content-Type", "")),
            body=body if isinstance(body, bytes) else None,
            intent=None if named is None else _text(named),
            own_key=None if (own := request.headers.get(self._client.header)) is None else _text(own),
            headers=[(_bytes(name), _bytes(value)) for name, value in request.headers.items()],
            request=request,
        )

    def _attempt(self, request: requests.PreparedRequest, step: Send) -> requests.PreparedRequest:
        attempt = request.copy()
        attempt.headers.pop(INTENT_HEADER, None)
        if step.key is not None:
            attempt.headers[self._client.header] = step.key
        return attempt

    def _replayed(self, request: requests.PreparedRequest, kept: Kept) -> requests.Response:
        headers = urllib3.HTTPHeaderDict()
        for name, value in kept.headers:
            headers.add(name, value)
        raw = urllib3.HTTPResponse(
            body=io.BytesIO(kept.body), headers=headers, status=kept.status, preload_content=False, decode_content=False
        )
        return self.build_response(request, raw)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1", "replace")


def _failed(error: requests.exceptions.RequestException) -> Sent:
    is_lasting = isinstance(error, _LASTING)
    is_proof = is_lasting or isinstance(error, requests.exceptions.ConnectTimeout) or _is_not_sent(error)
    return Sent(error=error, is_proof=is_proof, is_lasting=is_lasting)


def _is_not_sent(error: requests.exceptions.RequestException) -> bool:
    cause = error.args[0] if error.args else None
    if isinstance(cause, urllib3.exceptions.MaxRetryError):
        cause = cause.reason
    return isinstance(cause, _NOT_SENT)


def _answered(response: requests.Response, step: Send) -> Sent:
    kept = Kept.of(response.status_code, response.headers.items(), response.content) if step.reads else None
    return Sent(response=response, status=response.status_code, headers=response.headers.get, kept=kept)
