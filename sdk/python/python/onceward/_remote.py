"""A ledger behind HTTP: which token it uses, and which settings belong to its server."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ._errors import Error, InvalidCall

if TYPE_CHECKING:
    from ._native import NativeLedger

# The variable that holds the token, unless `token=` says otherwise.
TOKEN_VARIABLE = "ONCEWARD_TOKEN"

# The API has no field for these: the server's onceward.toml decides.
_SERVER_SETTINGS = frozenset(
    ("tier", "in_doubt", "retention", "tombstone", "dedup", "honours_key_for", "store_down", "keep_limit")
)


def is_http(store: str) -> bool:
    """Whether a store is a server."""
    return store.lower().startswith(("http://", "https://"))


def token_for(store: str, token: str | None, ca: object, tenant: str | None) -> str | None:
    """The token itself, from what the user gave: a token, `env:NAME`, or the default variable."""
    if not is_http(store):
        if token is not None or ca is not None:
            raise InvalidCall("token= and ca= are for a ledger behind HTTP: http://HOST[:PORT] or https://HOST[:PORT]")
        return None
    check_tenant(tenant)
    if token is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    if not isinstance(token, str):
        raise InvalidCall(f"token= is a text, or env:NAME, not {type(token).__name__}")
    if token.startswith("env:"):
        name = token[len("env:") :]
        found = os.environ.get(name)
        if not found:
            raise InvalidCall(f"token= names the variable {name}, which is not set")
        return found
    return token


def check_tenant(tenant: object) -> None:
    """A server takes the tenant from the token."""
    if tenant is not None:
        raise InvalidCall("the tenant of a ledger behind HTTP is that of its token: leave tenant= out")


def check_settings(ledger: NativeLedger, operation: str, settings: Mapping[str, Any], tenant: object) -> None:
    """Refuses settings that only the server can apply: they would have no effect here."""
    if not ledger.is_remote:
        return
    check_tenant(tenant)
    if "deadline" in settings:
        why = f"{operation}: the API has no deadlines, so deadline has no effect behind HTTP"
        raise InvalidCall(why, operation=operation)
    theirs = sorted(_SERVER_SETTINGS.intersection(settings))
    if theirs:
        them = "it" if len(theirs) == 1 else "them"
        raise InvalidCall(
            f"{operation}: {', '.join(theirs)} must be set on the server of this ledger: write "
            f"[operation.{_quoted(operation)}] in its onceward.toml, and leave {them} out here",
            operation=operation,
        )


def _quoted(name: str) -> str:
    is_bare = name and all(one.isascii() and (one.isalnum() or one in "_-") for one in name)
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return name if is_bare else f'"{escaped}"'


def settle_command(error: Error, happened: bool) -> str:
    """A command that settles an intent. Its token is in ONCEWARD_TOKEN, and needs the scopes read and operate."""
    # In double quotes, so that the shell's quotes around the code stay readable.
    store, operation, key = (json.dumps(name, ensure_ascii=False) for name in (error.store, error.operation, error.key))
    code = f"import onceward; onceward.Ledger({store}).resolve({operation}, {key}, happened={happened})"
    return shlex.join(["python3", "-c", code])
