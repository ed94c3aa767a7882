//! How one call of a tool ended, derived from the tool's result and from the scenario's log.

use std::any::Any;

use super::scenario_log::{LogEntry, LogEvent, SeenStatus};

/// How one call of a tool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallResult {
    /// The call did the work.
    Ran,
    /// The call got the stored outcome.
    Replayed,
    /// The call got the stored outcome, which is a final failure.
    ReplayedFailure,
    /// The call was refused because the intent is in doubt.
    Held,
    /// The call was refused for another reason: in flight, a different request with the same key, or an outcome that is not kept.
    Refused(String),
    /// The tool itself failed.
    Failed(String),
    /// The call panicked.
    Panicked(String),
    /// The scenario interrupted the call.
    Interrupted,
    /// The call did not return within the timeout of the check.
    TimedOut,
}

/// How a call of the tool ended.
pub(super) enum ToolEnd {
    Returned(Result<(), String>),
    /// With the payload of the panic.
    Panicked(Box<dyn Any + Send>),
}

impl CallResult {
    pub(super) fn of(call: usize, end: ToolEnd, log: &[LogEntry]) -> Self {
        let returned = match end {
            ToolEnd::Returned(returned) => returned,
            ToolEnd::Panicked(panic) => return Self::Panicked(message(&*panic)),
        };
        let events = || log.iter().filter(|entry| entry.call == call).map(|entry| &entry.event);
        let claimed = events().any(|event| matches!(event, LogEvent::Claimed(_)));
        let seen =
            events().rev().find_map(|event| if let LogEvent::Seen(status) = event { Some(*status) } else { None });
        match (returned, seen) {
            (Ok(()), Some(SeenStatus::Done)) if !claimed => Self::Replayed,
            (Ok(()), _) => Self::Ran,
            (Err(error), _) if claimed => Self::Failed(error),
            (Err(_), Some(SeenStatus::InDoubt)) => Self::Held,
            (Err(_), Some(SeenStatus::DoneFailed)) => Self::ReplayedFailure,
            (Err(error), Some(_)) => Self::Refused(error),
            (Err(error), None) => Self::Failed(error),
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}
