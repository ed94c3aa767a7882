//! How one call of a tool ended, read from what the tool said and from what the ledger wrote for it and was told.

use std::any::Any;

use super::log::{Entry, Event, Told};

/// How one call of a tool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// It did the work.
    Ran,
    /// It got the stored outcome.
    Replayed,
    /// It got the stored outcome, which is a final failure.
    ReplayedFailure,
    /// It was told that the intent is in doubt.
    Held,
    /// It was turned away otherwise: in flight, another request under the same key, or an outcome that is not kept.
    Refused(String),
    /// The tool itself failed.
    Failed(String),
    /// It panicked.
    Panicked(String),
    /// The scenario cut it short.
    Cut,
    /// There was no answer at all within the patience of the kit.
    Silent,
}

/// What the tool returned, or with what it panicked.
pub(super) type Ended = Result<Result<(), String>, Box<dyn Any + Send>>;

impl Answer {
    pub(super) fn of(call: usize, ended: Ended, log: &[Entry]) -> Self {
        let ended = match ended {
            Ok(ended) => ended,
            Err(panic) => return Self::Panicked(message(&*panic)),
        };
        let mine = || log.iter().filter(|entry| entry.call == call).map(|entry| &entry.event);
        let claimed = mine().any(|event| matches!(event, Event::Claimed(_)));
        let told = mine().rev().find_map(|event| if let Event::Told(told) = event { Some(*told) } else { None });
        match (ended, told) {
            (Ok(()), Some(Told::Done)) if !claimed => Self::Replayed,
            (Ok(()), _) => Self::Ran,
            (Err(error), _) if claimed => Self::Failed(error),
            (Err(_), Some(Told::InDoubt)) => Self::Held,
            (Err(_), Some(Told::DoneFailed)) => Self::ReplayedFailure,
            (Err(error), Some(_)) => Self::Refused(error),
            (Err(error), None) => Self::Failed(error),
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}
