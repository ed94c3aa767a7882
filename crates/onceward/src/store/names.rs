//! The names under which stores keep states and settings. A name that was released never changes its meaning.

use onceward_core::outcome::Verdict;
use onceward_core::policy::{Effect, InDoubt};
use onceward_core::record::{Phase, State, Status};

/// The name of a state; a claim has one for each phase.
pub(super) fn of_state<T>(state: &State<T>) -> &'static str {
    match state {
        State::Queued { .. } => "queued",
        State::Leased(lease) => match lease.phase {
            Phase::Claimed => "claimed",
            Phase::Sent => "sent",
            Phase::Overdue => "overdue",
        },
        State::Open { .. } => "open",
        State::InDoubt { .. } => "in_doubt",
        State::Done { .. } => "done",
        State::Tombstone { .. } => "tombstone",
        State::Dead => "dead",
    }
}

pub(super) fn of_effect(effect: Effect) -> &'static str {
    match effect {
        Effect::External => "external",
        Effect::Transactional => "transactional",
    }
}

pub(super) fn of_in_doubt(in_doubt: InDoubt) -> &'static str {
    match in_doubt {
        InDoubt::Hold => "hold",
        InDoubt::Tell => "tell",
        InDoubt::Retry => "retry",
        InDoubt::Probe => "probe",
    }
}

pub(super) fn of_verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Success => "success",
        Verdict::Failure => "failure",
    }
}

/// Restricts a list to the states that may have the wanted statuses, so that the index of unsettled records can be used.
pub(super) fn among_states(wanted: &[Status]) -> String {
    if wanted.is_empty() {
        return String::new();
    }
    let mut states: Vec<&str> = wanted.iter().flat_map(|status| states_of(*status).iter().copied()).collect();
    states.sort_unstable();
    states.dedup();
    let settled = |state: &&str| ["done", "tombstone"].contains(state);
    let index = if states.iter().any(settled) { "" } else { " AND state NOT IN ('done', 'tombstone')" };
    format!(" AND state IN ('{}'){index}", states.join("', '"))
}

/// The states in which an intent may have this status.
fn states_of(status: Status) -> &'static [&'static str] {
    match status {
        Status::Queued => &["queued"],
        Status::Running => &["claimed", "sent"],
        Status::Open => &["open", "claimed"],
        Status::InDoubt => &["in_doubt", "claimed", "sent", "overdue"],
        Status::Done => &["done"],
        Status::Tombstone => &["tombstone", "done"],
        Status::Dead => &["dead"],
    }
}
