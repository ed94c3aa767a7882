"""Onceward makes side effects happen once: a retried payment, email or tool call runs one time, and every repeat gets the result
of that run.

    import onceward

    ledger = onceward.Ledger("onceward.db")

    @ledger.once(operation="send_email", key=["to", "template", "day"], tier="email")
    def send_email(to: str, template: str, day: str, body: str) -> str: ...
"""

import atexit as _atexit
import os as _os

from . import _logs as _logs
from . import _native
from ._claim import Claim
from ._context import claim, current_intent, current_session, intent, session
from ._courier import Courier
from ._errors import (
    AlreadyDone,
    ClaimLost,
    Collision,
    Contended,
    Dead,
    Error,
    Failed,
    InDoubt,
    InFlight,
    InvalidCall,
    InvalidValue,
    Mismatch,
    MixedUse,
    NotAllowed,
    NotRecorded,
    OutcomeNotKept,
    OutOfOrder,
    OwnerFailed,
    OwnerUnknown,
    Queued,
    QuotaReached,
    SessionRequired,
    StoreUnavailable,
    Unreadable,
)
from ._failures import Failure, NotSent, Permanent, Refused, Unknown
from ._ledger import Block, BlockClaim, Call, Intent, Ledger
from ._once import Guarded, guarded, key_of, options
from ._operation import NOT_FOUND, NotFound, Settings, Window
from ._outbox import Enqueued

__version__ = _native.__version__

__all__ = [
    "NOT_FOUND",
    "AlreadyDone",
    "Block",
    "BlockClaim",
    "Call",
    "Claim",
    "ClaimLost",
    "Collision",
    "Contended",
    "Courier",
    "Dead",
    "Enqueued",
    "Error",
    "Failed",
    "Failure",
    "Guarded",
    "InDoubt",
    "InFlight",
    "Intent",
    "InvalidCall",
    "InvalidValue",
    "Ledger",
    "Mismatch",
    "MixedUse",
    "NotAllowed",
    "NotFound",
    "NotRecorded",
    "NotSent",
    "OutOfOrder",
    "OutcomeNotKept",
    "OwnerFailed",
    "OwnerUnknown",
    "Permanent",
    "Queued",
    "QuotaReached",
    "Refused",
    "SessionRequired",
    "Settings",
    "StoreUnavailable",
    "Unknown",
    "Unreadable",
    "Window",
    "claim",
    "current_intent",
    "current_session",
    "guarded",
    "intent",
    "key_of",
    "options",
    "session",
]



def _flush_messages() -> None:
    # A program may import the package again: then these are the functions of the new one.
    from . import _logs

    _logs.flush()


def _forget_messages() -> None:
    from . import _logs

    _logs.after_fork_in_child()


if _native.is_first_import():
    # The last one registered runs first.
    _atexit.register(_flush_messages)
    _atexit.register(_native.shut_down)
    if hasattr(_os, "register_at_fork"):
        _os.register_at_fork(
            before=_native.before_fork,
            after_in_parent=_native.after_fork_in_parent,
            after_in_child=_native.after_fork_in_child,
        )
        _os.register_at_fork(after_in_child=_forget_messages)
