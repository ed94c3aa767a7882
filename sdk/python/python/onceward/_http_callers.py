"""Whose a request with a named intent is. A repeat gets the stored answer without asking the API, so another account must not get
it: its request is another intent, or a mismatch. Only digests of credentials are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import _remote
from ._errors import InvalidCall, Mismatch
from ._native import caller_digest, tenant_with_headers
from ._operation import checked_tenant, tenant_of

if TYPE_CHECKING:
    from ._http_retries import Asked
    from ._ledger import Ledger

# What `tenant` can be for a gateway and for ASGI apps. Here it would be one tenant for all accounts.
_WORDS = ("authorization", "token", "fixed:", "header:", "jwt:", "whoami:")

_DEFAULT_TENANT = "default"


class Callers:
    """The settings that say whose a request is."""

    def __init__(
        self, ledger: Ledger | None, tenant: str | Callable[[Any], str | None] | None, identity_headers: Sequence[str]
    ) -> None:
        if not callable(tenant):
            checked_tenant(tenant)
        if isinstance(tenant, str) and (tenant in _WORDS or tenant.startswith(tuple(word for word in _WORDS if ":" in word))):
            raise InvalidCall(f"tenant={tenant!r}: for a client, tenant= is a name, or a function of the request")
        if isinstance(identity_headers, str) or not all(isinstance(name, str) for name in identity_headers):
            raise InvalidCall("identity_headers is a list of names of headers")
        self._ledger, self._tenant, self._listed = ledger, tenant, list(identity_headers)
        try:
            tenant_with_headers(_DEFAULT_TENANT, [], self._listed)
        except ValueError as error:
            raise InvalidCall(f"identity_headers: {error}") from None
        if ledger is not None and ledger._native.is_remote and (tenant is not None or self._listed):
            _remote.check_tenant(tenant or self._listed)

    def of(self, operation: str, asked: Asked) -> tuple[str | None, str | None]:
        """The tenant of a request, and a digest of its account and credential, which must be equal in a repeat."""
        tenant = tenant_of(operation, self._tenant, asked.request)
        try:
            caller = caller_digest(asked.headers, self._listed, tenant is not None)
            if self._listed:
                of_ledger = None if self._ledger is None else self._ledger.tenant
                tenant = tenant_with_headers(tenant or of_ledger or _DEFAULT_TENANT, asked.headers, self._listed)
        except ValueError as error:
            raise InvalidCall(f"{operation}: {error}", operation=operation) from None
        return tenant, caller

    def explained(self, error: Mismatch) -> Mismatch:
        """The error with advice for a credential that was replaced."""
        if self._tenant is not None:
            return error
        advice = "If only the account or its credential is another one, say whose requests these are: tenant="
        return Mismatch(f"{error.message}. {advice}", **error._fields)
