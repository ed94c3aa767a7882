"""Finds out from the log of a scenario why it went wrong, and says what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from ._log import Entry


class Cause(enum.Enum):
    """What a tool does wrong, as far as the kit can tell. Its text says how to fix it."""

    NO_LEDGER = (
        "the tool never used a ledger. Guard the function that acts: "
        '`@ledger.once(operation="…", key=["…"], tier="payment")`.'
    )
    UNSEEN = (
        "the kit saw no effect in an undisturbed call. Name the function that the tool really calls: "
        '`once.effect("shop.stripe.charge")`. Also check whether the tool failed.'
    )
    TWICE_IN_ONE_CALL = (
        "one undisturbed call has the same effect more than once. If these are different effects, give them different "
        "names: `once.effect(…, name=…)`."
    )
    BEFORE_CLAIM = "the effect happens before the tool asks for a claim. Move it into the guarded function."
    AFTER_OUTCOME = "the effect happens after the claim has ended. Move it into the guarded function."
    RECORDED_FIRST = (
        "the outcome is recorded before the effect has happened. Move the effect into the guarded function, so that "
        "only an effect that happened is recorded."
    )
    OTHER_KEY = (
        "the repeat had another key (`{first}`, then `{second}`), so it was another intent. Derive the key from the "
        'arguments that mean the same intent (`key=["…"]`), never from a clock, a random number or an attempt count.'
    )
    OTHER_LEDGER = (
        "the repeat used another ledger, so it could not know of the first call. Open one ledger in a file that all "
        'processes share (`onceward.Ledger("onceward.db")`), not one in memory or a new file in each call.'
    )
    ACTED_ANYWAY = (
        "the tool acted although the ledger had refused the call. Let `onceward.InDoubt` and `onceward.InFlight` pass "
        "to the caller, and do not act."
    )
    LOSS_IGNORED = (
        "the tool acted although `claim.sent()` had failed: another owner had the claim. Let `onceward.ClaimLost` pass "
        "to the caller."
    )
    RETRIED_INSIDE = (
        "the tool retried inside one call, after an attempt that may have happened. Pass "
        "`onceward.claim().downstream_key` to the provider, or raise the error."
    )
    RELEASED_AFTER_EFFECT = (
        "the error released the claim as if nothing had happened. Raise `onceward.Unknown` when the provider may have "
        'acted, or put every unclassified error in doubt: declare a tier (`tier="payment"`), or set `on_error="doubt"`.'
    )
    NOT_MARKED = (
        "the operation declares `marks_sent=True` and acted without the mark, so the ledger assumed that nothing was "
        "sent. Call `onceward.claim().sent()` right before the call of the provider, or remove `marks_sent=True`."
    )
    RETRIED_WITHOUT_KEY = (
        'the operation retries in doubt (`in_doubt="retry"`), and the provider got no key to recognise the repeat. '
        "Pass `onceward.claim().downstream_key` to it, and name that argument in the test (`honours_key=…`). If the "
        'provider does not honour keys, use `in_doubt="hold"` or a probe.'
    )
    OTHER_DOWNSTREAM_KEY = (
        'the operation retries in doubt (`in_doubt="retry"`), and the provider got another key than the first time. '
        "Pass `onceward.claim().downstream_key`: it is the same on every attempt."
    )
    PROBE_WRONG = (
        "the probe said that the effect had not happened, although it had. Return `onceward.NOT_FOUND` only if the "
        "provider says so."
    )
    REPORTED_ANYWAY = (
        "a call reported success although nothing had happened. Let `onceward.InDoubt` and `onceward.InFlight` pass to "
        "the caller."
    )
    NEVER_ALLOWED = (
        "nothing happened, nothing is in doubt, and no repeat was allowed to run. Check what the tool does with the "
        "ledger's error."
    )
    CRASHED = "a call ended its process. Raise an error instead; a process that ends leaves the intent in doubt."
    TIMED_OUT = (
        "a call did not return in time. Look for a wait without a limit; for a slow provider, raise the limit "
        '(`settings(timeout=…)`). If a library of the tool does not survive a fork, use `settings(processes="fresh")`.'
    )
    UNKNOWN = "the kit does not know why. Look at the calls one by one."


@dataclass(frozen=True)
class Reason:
    """A cause, and the keys that show it."""

    cause: Cause
    first: str = ""
    second: str = ""

    @property
    def advice(self) -> str:
        """What is wrong and what to do."""
        return self.cause.value.replace("{first}", self.first).replace("{second}", self.second)


@dataclass(frozen=True)
class _EffectAt:
    """An effect, with its position in the log."""

    position: int
    call: int
    key: str | None


@dataclass(frozen=True)
class _ClaimAt:
    """A claim that was granted, with its position in the log."""

    position: int
    ledger: str
    intent: str
    key: str
    marks_sent: bool
    in_doubt: str


_CLAIM_ENDS = ("recorded", "released", "kept", "doubted")


def of_repeated_effect(undisturbed: Sequence[Entry], log: Sequence[Entry], name: str | None) -> Reason:
    """Why an effect happened more than once. `name` is the effect; with `None`, all effects count as the same one."""
    if not any(entry.event == "called" for entry in undisturbed):
        return Reason(Cause.NO_LEDGER)
    outside = _outside_claim(undisturbed)
    if outside is not None:
        return Reason(outside)
    effects = _effects(log, name)
    if len(effects) < 2:
        return Reason(Cause.UNKNOWN)
    first, second = effects[:2]
    if first.call == second.call:
        return Reason(Cause.RETRIED_INSIDE)
    earlier, later = _claim(log, first), _claim(log, second)
    if earlier is None or later is None:
        return Reason(Cause.ACTED_ANYWAY)
    return _between_claims(log, first, second, earlier, later)


def _between_claims(
    log: Sequence[Entry], first: _EffectAt, second: _EffectAt, earlier: _ClaimAt, later: _ClaimAt
) -> Reason:
    """Why two calls with a claim each had the effect."""

    def has(event: str, call: int, since: int, until: int) -> bool:
        return any(entry.event == event and entry.call == call for entry in log[since:until])

    marked = has("marked", second.call, later.position, second.position)
    if has("sent_lost", second.call, later.position, second.position) and not marked:
        return Reason(Cause.LOSS_IGNORED)
    if earlier.ledger != later.ledger:
        return Reason(Cause.OTHER_LEDGER)
    if earlier.intent != later.intent:
        return Reason(Cause.OTHER_KEY, earlier.key, later.key)
    first_marked = has("marked", first.call, earlier.position, first.position)
    if (earlier.marks_sent and not first_marked) or (later.marks_sent and not marked):
        return Reason(Cause.NOT_MARKED)
    if has("released", first.call, first.position, later.position):
        return Reason(Cause.RELEASED_AFTER_EFFECT)
    if later.in_doubt == "retry":
        has_keys = first.key is not None and second.key is not None
        return Reason(Cause.OTHER_DOWNSTREAM_KEY if has_keys else Cause.RETRIED_WITHOUT_KEY)
    return Reason(Cause.PROBE_WRONG if later.in_doubt == "probe" else Cause.UNKNOWN)


def of_missing_effect(undisturbed: Sequence[Entry], log: Sequence[Entry], last: str) -> Reason:
    """Why an effect never happened. `last` is how the last call ended."""
    recorded = next((at for at, entry in enumerate(log) if entry.event == "recorded"), None)
    if recorded is not None and not _effects(log[:recorded], None):
        return Reason(Cause.RECORDED_FIRST)
    if last in ("ran", "replayed"):
        return Reason(_outside_claim(undisturbed) or Cause.REPORTED_ANYWAY)
    return Reason(Cause.NEVER_ALLOWED if last == "refused" else Cause.UNKNOWN)


def _effects(log: Sequence[Entry], name: str | None) -> list[_EffectAt]:
    return [
        _EffectAt(at, entry.call, entry.fields["key"]) for at, entry in enumerate(log) if entry.is_new_effect(name)
    ]


def _claim(log: Sequence[Entry], effect: _EffectAt) -> _ClaimAt | None:
    """The claim under which a call acted: the last one that it was granted and that had not ended."""
    claims: dict[str, _ClaimAt] = {}
    for at, entry in enumerate(log[: effect.position]):
        if entry.call != effect.call:
            continue
        if entry.event == "claimed":
            claims[entry.fields["intent"]] = _ClaimAt(at, **entry.fields)
        elif entry.event in _CLAIM_ENDS:
            claims.pop(entry.fields["intent"], None)
    return next(reversed(claims.values()), None)


def _outside_claim(undisturbed: Sequence[Entry]) -> Cause | None:
    """Whether a call acts outside of its claim even when nothing disturbs it."""
    effect = next((one for one in _effects(undisturbed, None) if _claim(undisturbed, one) is None), None)
    if effect is None:
        return None
    was_claimed = any(entry.event == "claimed" for entry in undisturbed[: effect.position])
    return Cause.AFTER_OUTCOME if was_claimed else Cause.BEFORE_CLAIM
