//! Why a scenario went wrong, read from its log, and what to do about it.

use std::fmt;

use onceward_core::policy::InDoubt;

use super::answer::Answer;
use super::log::{Acted, Claimed, Entry, Event};

/// What a tool does wrong, as far as the kit can tell. Its text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// No call asked the ledger for anything.
    NoLedger,
    /// The kit saw no effect in a single undisturbed call.
    Unseen,
    /// One undisturbed call has the same effect more than once.
    TwiceInOneCall,
    /// The effect happens before the claim is asked for.
    BeforeClaim,
    /// The effect happens after the claim was ended.
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
    /// A call was told not to run, and ran.
    ActedAnyway,
    /// A call had lost its claim, and went on.
    LossIgnored,
    /// One call tried again by itself.
    RetriedInside,
    /// A claim was given back as harmless although the effect had happened.
    ReleasedAfterEffect,
    /// The call promised to mark `sent`, and acted without the mark.
    NotMarked,
    /// A doubt is retried, and the provider gets no key by which it could tell.
    RetriedWithoutKey,
    /// A doubt is retried under another key than before.
    OtherDownstreamKey,
    /// A doubt is to be probed, and the tool acts without asking.
    ProbeIgnored,
    /// A process that was paused came back after another had taken over.
    LateOwner,
    /// A call reported success, and nothing had happened.
    ReportedAnyway,
    /// Nothing happened, nothing is in doubt, and no repeat was let in.
    NotLetIn,
    /// A call panicked.
    Panicked,
    /// A call did not come back.
    Silent,
    /// None that the kit knows.
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::NoLedger => {
                "the tool never asked the ledger. Guard the effect: `bench.ledger().operation(…).intent(…).run(|claim| …)`."
            }
            Self::Unseen => {
                "the kit saw no effect in an undisturbed call. Let the tool act through `bench.provider().act(…)`, or let \
                 your own double say `bench.provider().happened(…)`; and see whether the tool failed."
            }
            Self::TwiceInOneCall => {
                "one undisturbed call has the same effect more than once. If these are different effects, name them apart."
            }
            Self::BeforeClaim => {
                "the effect happens before the claim is asked for. Move it into the closure that `run` is given."
            }
            Self::AfterOutcome => {
                "the effect happens after the claim was ended. Move it into the closure that `run` is given."
            }
            Self::RecordedFirst => {
                "the outcome is recorded before the effect has happened. Move the effect into the closure that `run` is \
                 given, so that only an effect that happened is recorded."
            }
            Self::OtherKey { first, second } => {
                return write!(
                    f,
                    "the repeat had another key (`{first}`, then `{second}`), so it was another intent. Make the key from \
                     what is wanted, never from a clock, a random number or an attempt count."
                );
            }
            Self::ActedAnyway => {
                "the tool acted although the ledger had told it not to. Hand on the error of `run` (in doubt, in flight); \
                 do not act on your own then."
            }
            Self::LossIgnored => {
                "the tool acted although `claim.sent()` had failed: somebody else had the claim. Write \
                 `claim.sent().await?`."
            }
            Self::RetriedInside => {
                "the tool tried again by itself, inside one call, after an attempt that may have happened. Pass \
                 `claim.downstream_key()` to the provider, or hand on the error."
            }
            Self::ReleasedAfterEffect => {
                "the error released the claim as if nothing had happened. Return `Failure::unknown` when the provider may \
                 have acted, or let the policy doubt every error without a class: declare a tier \
                 (`.tier(Tier::Payment)`), or say `.on_error(OnError::Doubt)`."
            }
            Self::NotMarked => {
                "the call says `.marks_sent()` and acted without the mark, so the ledger took it that nothing had left. \
                 Write `claim.sent().await?` right before the provider is called, or leave `.marks_sent()` out."
            }
            Self::RetriedWithoutKey => {
                "the policy retries a doubt (`InDoubt::Retry`), and the provider got no key to know the repeat by. Pass \
                 `claim.downstream_key()` to it; if it honours no keys, use `InDoubt::Hold` or probe."
            }
            Self::OtherDownstreamKey => {
                "the policy retries a doubt (`InDoubt::Retry`), and the provider got another key than the first time. Pass \
                 `claim.downstream_key()`: it is the same on every attempt."
            }
            Self::ProbeIgnored => {
                "the call says `.probes()`, and acted without asking. When `claim.probe_first()` says so, ask the provider, \
                 and act only if it knows of nothing."
            }
            Self::LateOwner => {
                "a process that had been paused acted after another had taken over. Pass `claim.downstream_key()` to the \
                 provider, so that it knows the second request from the first; if it honours no keys, use `InDoubt::Hold`."
            }
            Self::ReportedAnyway => {
                "a call reported success, and nothing had happened. Hand on the error of `run` (in doubt, in flight)."
            }
            Self::NotLetIn => {
                "nothing happened, nothing is in doubt, and no repeat was let in. See what the tool does with the error of \
                 the ledger."
            }
            Self::Panicked => "a call panicked. Return an error instead; the ledger takes a panic for a doubt.",
            Self::Silent => {
                "a call did not come back. Look for a wait without a limit; a provider that is slow by nature needs more \
                 `.patience(…)`."
            }
            Self::Unknown => "the kit cannot tell why. Look at the calls one by one.",
        };
        f.write_str(text)
    }
}

/// An effect, with its place in the log.
#[derive(Clone, Copy)]
struct Act<'a> {
    at: usize,
    call: usize,
    acted: &'a Acted,
}

/// Why an effect happened more than once. `of` names it; `None` takes all effects for the same.
pub(super) fn of_again(undisturbed: &[Entry], log: &[Entry], of: Option<&str>) -> Cause {
    if !undisturbed.iter().any(|entry| entry.event == Event::Asked) {
        return Cause::NoLedger;
    }
    if let Some(cause) = outside(undisturbed) {
        return cause;
    }
    let acts: Vec<_> = acts(log).filter(|act| act.acted.anew && of.is_none_or(|of| act.acted.what == of)).collect();
    let [first, second, ..] = acts[..] else { return Cause::Unknown };
    if first.call == second.call {
        return Cause::RetriedInside;
    }
    let between = |call: usize, from: usize, to: usize, event: &Event| {
        log[from..to].iter().any(|entry| entry.call == call && entry.event == *event)
    };
    let (Some((since, earlier)), Some((begun, later))) = (claim(log, first), claim(log, second)) else {
        return Cause::ActedAnyway;
    };
    if between(second.call, begun, second.at, &Event::MarkLost)
        && !between(second.call, begun, second.at, &Event::Marked)
    {
        return Cause::LossIgnored;
    }
    if earlier.id != later.id {
        return Cause::OtherKey { first: earlier.key.clone(), second: later.key.clone() };
    }
    let unmarked = |act: Act<'_>, since: usize, claim: &Claimed| {
        claim.marks_sent && !between(act.call, since, act.at, &Event::Marked)
    };
    if unmarked(first, since, earlier) || unmarked(second, begun, later) {
        return Cause::NotMarked;
    }
    if begun < since {
        return Cause::LateOwner;
    }
    if between(first.call, first.at, begun, &Event::Released) {
        return Cause::ReleasedAfterEffect;
    }
    match later.in_doubt {
        InDoubt::Retry if first.acted.key.is_some() && second.acted.key.is_some() => Cause::OtherDownstreamKey,
        InDoubt::Retry => Cause::RetriedWithoutKey,
        InDoubt::Probe => Cause::ProbeIgnored,
        InDoubt::Hold | InDoubt::Tell => Cause::Unknown,
    }
}

/// Why an effect never happened.
pub(super) fn of_never(undisturbed: &[Entry], log: &[Entry], last: Option<&Answer>) -> Cause {
    let recorded = log.iter().position(|entry| entry.event == Event::Recorded);
    if recorded.is_some_and(|at| !acts(&log[..at]).any(|_| true)) {
        return Cause::RecordedFirst;
    }
    match last {
        Some(Answer::Ran | Answer::Replayed) => outside(undisturbed).unwrap_or(Cause::ReportedAnyway),
        Some(Answer::Refused(_)) => Cause::NotLetIn,
        _ => Cause::Unknown,
    }
}

fn acts(log: &[Entry]) -> impl Iterator<Item = Act<'_>> {
    log.iter().enumerate().filter_map(|(at, Entry { call, event })| match event {
        Event::Acted(acted) => Some(Act { at, call: *call, acted }),
        _ => None,
    })
}

/// The claim under which a call acted, with its place in the log: the last one that it was granted, unless it had ended.
fn claim<'a>(log: &'a [Entry], act: Act<'_>) -> Option<(usize, &'a Claimed)> {
    let mut claim = None;
    for (at, entry) in log[..act.at].iter().enumerate().filter(|(_, entry)| entry.call == act.call) {
        match &entry.event {
            Event::Claimed(claimed) => claim = Some((at, claimed)),
            Event::Recorded | Event::Released | Event::Doubted => claim = None,
            _ => {}
        }
    }
    claim
}

/// Whether a call acts outside of its claim even when nothing disturbs it.
fn outside(undisturbed: &[Entry]) -> Option<Cause> {
    let act = acts(undisturbed).find(|act| claim(undisturbed, *act).is_none())?;
    let was_claimed = undisturbed[..act.at].iter().any(|entry| matches!(entry.event, Event::Claimed(_)));
    Some(if was_claimed { Cause::AfterOutcome } else { Cause::BeforeClaim })
}
