//! Finds out from the log of a scenario why it went wrong, and says what to do about it.

use std::fmt;

use onceward_core::policy::InDoubt;

use super::call_result::CallResult;
use super::scenario_log::{ClaimGranted, EffectDone, LogEntry, LogEvent};

/// What a tool does wrong, as far as the kit can tell. Its text says how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// No call used the ledger.
    NoLedger,
    /// The kit saw no effect in a single undisturbed call.
    Unseen,
    /// One undisturbed call has the same effect more than once.
    TwiceInOneCall,
    /// The effect happens before the tool asks for a claim.
    BeforeClaim,
    /// The effect happens after the claim has ended.
    AfterOutcome,
    /// The outcome is recorded before the effect.
    RecordedFirst,
    /// Repeats of one intent have different keys.
    OtherKey {
        /// The key of the first call.
        first: String,
        /// The key of the second one.
        second: String,
    },
    /// The ledger refused a call, and it acted nevertheless.
    ActedAnyway,
    /// A call had lost its claim, and continued.
    LossIgnored,
    /// One call retried the effect internally.
    RetriedInside,
    /// A claim was released as harmless although the effect had happened.
    ReleasedAfterEffect,
    /// The call promised to mark `sent`, and acted without the mark.
    NotMarked,
    /// A doubt is retried, and the provider gets no key to recognise the repeat.
    RetriedWithoutKey,
    /// A doubt is retried with another key than before.
    OtherDownstreamKey,
    /// A doubt has to be probed, and the tool acts without asking the provider.
    ProbeIgnored,
    /// A paused process continued after another one had taken over.
    LateOwner,
    /// A call reported success although nothing had happened.
    ReportedAnyway,
    /// Nothing happened, nothing is in doubt, and no repeat was allowed to run.
    NeverAllowed,
    /// A call panicked.
    Panicked,
    /// A call did not return.
    TimedOut,
    /// The kit does not know why.
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NoLedger => {
                "the tool never used the ledger. Guard the effect: `bench.ledger().operation(…).intent(…).run(|claim| …)`."
            }
            Self::Unseen => {
                "the kit saw no effect in an undisturbed call. Let the tool act through `bench.provider().act(…)`, or report \
                 the effect from your own test double with `bench.provider().happened(…)`. Also check whether the tool failed."
            }
            Self::TwiceInOneCall => {
                "one undisturbed call has the same effect more than once. If these are different effects, give them different names."
            }
            Self::BeforeClaim => {
                "the effect happens before the tool asks for a claim. Move it into the closure of `run`."
            }
            Self::AfterOutcome => "the effect happens after the claim has ended. Move it into the closure of `run`.",
            Self::RecordedFirst => {
                "the outcome is recorded before the effect has happened. Move the effect into the closure of `run`, so that \
                 only an effect that happened is recorded."
            }
            Self::OtherKey { first, second } => {
                return write!(
                    f,
                    "the repeat had another key (`{first}`, then `{second}`), so it was another intent. Derive the key from \
                     the inputs, never from a clock, a random number or an attempt count."
                );
            }
            Self::ActedAnyway => {
                "the tool acted although the ledger had refused the call. Return the error of `run` (in doubt, in flight), \
                 and do not act."
            }
            Self::LossIgnored => {
                "the tool acted although `claim.sent()` had failed: another owner had the claim. Write \
                 `claim.sent().await?`."
            }
            Self::RetriedInside => {
                "the tool retried inside one call, after an attempt that may have happened. Pass `claim.downstream_key()` to \
                 the provider, or return the error."
            }
            Self::ReleasedAfterEffect => {
                "the error released the claim as if nothing had happened. Return `Failure::unknown` when the provider may \
                 have acted, or let the policy put every unclassified error in doubt: declare a tier \
                 (`.tier(Tier::Payment)`), or set `.on_error(OnError::Doubt)`."
            }
            Self::NotMarked => {
                "the call declares `.marks_sent()` and acted without the mark, so the ledger assumed that nothing was sent. \
                 Write `claim.sent().await?` right before the call of the provider, or remove `.marks_sent()`."
            }
            Self::RetriedWithoutKey => {
                "the policy retries in doubt (`InDoubt::Retry`), and the provider got no key to recognise the repeat. Pass \
                 `claim.downstream_key()` to it; if it does not honour keys, use `InDoubt::Hold` or `InDoubt::Probe`."
            }
            Self::OtherDownstreamKey => {
                "the policy retries in doubt (`InDoubt::Retry`), and the provider got another key than the first time. Pass \
                 `claim.downstream_key()`: it is the same on every attempt."
            }
            Self::ProbeIgnored => {
                "the call declares `.probes()`, and acted without a probe. When `claim.probe_first()` is true, ask the provider \
                 whether the effect happened, and act only if it did not."
            }
            Self::LateOwner => {
                "a paused process acted after another one had taken over. Pass `claim.downstream_key()` to the provider, so \
                 that it recognises the second request; if it does not honour keys, use `InDoubt::Hold`."
            }
            Self::ReportedAnyway => {
                "a call reported success although nothing had happened. Return the error of `run` (in doubt, in flight)."
            }
            Self::NeverAllowed => {
                "nothing happened, nothing is in doubt, and no repeat was allowed to run. Check what the tool does with the \
                 ledger's error."
            }
            Self::Panicked => "a call panicked. Return an error instead; a panic puts the intent in doubt.",
            Self::TimedOut => {
                "a call did not return in time. Look for a wait without a limit; for a slow provider, raise `.timeout(…)`."
            }
            Self::Unknown => "the kit does not know why. Look at the calls one by one.",
        };
        f.write_str(text)
    }
}

/// An effect, with its position in the log.
#[derive(Clone, Copy)]
struct EffectAt<'a> {
    position: usize,
    call: usize,
    effect: &'a EffectDone,
}

/// Why an effect happened more than once. `name` is the effect; with `None`, all effects count as the same one.
pub(super) fn of_repeated_effect(undisturbed: &[LogEntry], log: &[LogEntry], name: Option<&str>) -> Cause {
    if !undisturbed.iter().any(|entry| entry.event == LogEvent::StoreCalled) {
        return Cause::NoLedger;
    }
    if let Some(cause) = effect_outside_claim(undisturbed) {
        return cause;
    }
    let is_counted = |act: &EffectAt<'_>| act.effect.is_new && name.is_none_or(|name| act.effect.what == name);
    let found: Vec<_> = effects(log).filter(is_counted).collect();
    let [first, second, ..] = found[..] else { return Cause::Unknown };
    if first.call == second.call {
        return Cause::RetriedInside;
    }
    let between = |call: usize, from: usize, to: usize, event: &LogEvent| {
        log[from..to].iter().any(|entry| entry.call == call && entry.event == *event)
    };
    let (Some((since, earlier)), Some((begun, later))) = (claim(log, first), claim(log, second)) else {
        return Cause::ActedAnyway;
    };
    if between(second.call, begun, second.position, &LogEvent::MarkLost)
        && !between(second.call, begun, second.position, &LogEvent::Marked)
    {
        return Cause::LossIgnored;
    }
    if earlier.id != later.id {
        return Cause::OtherKey { first: earlier.key.clone(), second: later.key.clone() };
    }
    let unmarked = |act: EffectAt<'_>, since: usize, claim: &ClaimGranted| {
        claim.marks_sent && !between(act.call, since, act.position, &LogEvent::Marked)
    };
    if unmarked(first, since, earlier) || unmarked(second, begun, later) {
        return Cause::NotMarked;
    }
    if begun < since {
        return Cause::LateOwner;
    }
    if between(first.call, first.position, begun, &LogEvent::Released) {
        return Cause::ReleasedAfterEffect;
    }
    match later.in_doubt {
        InDoubt::Retry if first.effect.key.is_some() && second.effect.key.is_some() => Cause::OtherDownstreamKey,
        InDoubt::Retry => Cause::RetriedWithoutKey,
        InDoubt::Probe => Cause::ProbeIgnored,
        InDoubt::Hold | InDoubt::Tell => Cause::Unknown,
    }
}

/// Why an effect never happened.
pub(super) fn of_missing_effect(undisturbed: &[LogEntry], log: &[LogEntry], last: Option<&CallResult>) -> Cause {
    let recorded = log.iter().position(|entry| entry.event == LogEvent::Recorded);
    if recorded.is_some_and(|at| !effects(&log[..at]).any(|_| true)) {
        return Cause::RecordedFirst;
    }
    match last {
        Some(CallResult::Ran | CallResult::Replayed) => {
            effect_outside_claim(undisturbed).unwrap_or(Cause::ReportedAnyway)
        }
        Some(CallResult::Refused(_)) => Cause::NeverAllowed,
        _ => Cause::Unknown,
    }
}

fn effects(log: &[LogEntry]) -> impl Iterator<Item = EffectAt<'_>> {
    log.iter().enumerate().filter_map(|(position, LogEntry { call, event })| match event {
        LogEvent::Effect(effect) => Some(EffectAt { position, call: *call, effect }),
        _ => None,
    })
}

/// The claim under which a call acted, with its position in the log: the last one that it was granted, unless it had ended.
fn claim<'a>(log: &'a [LogEntry], act: EffectAt<'_>) -> Option<(usize, &'a ClaimGranted)> {
    let mut claim = None;
    for (at, entry) in log[..act.position].iter().enumerate().filter(|(_, entry)| entry.call == act.call) {
        match &entry.event {
            LogEvent::Claimed(claimed) => claim = Some((at, claimed)),
            LogEvent::Recorded | LogEvent::Released | LogEvent::Doubted => claim = None,
            _ => {}
        }
    }
    claim
}

/// Whether a call acts outside of its claim even when nothing disturbs it.
fn effect_outside_claim(undisturbed: &[LogEntry]) -> Option<Cause> {
    let act = effects(undisturbed).find(|act| claim(undisturbed, *act).is_none())?;
    let was_claimed = undisturbed[..act.position].iter().any(|entry| matches!(entry.event, LogEvent::Claimed(_)));
    Some(if was_claimed { Cause::AfterOutcome } else { Cause::BeforeClaim })
}
