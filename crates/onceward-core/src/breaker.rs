//! A circuit breaker: it stops calls to a downstream that fails, and lets a single trial find out when it works again.
//!
//! ```text
//!             failures in a row              recovery is over
//!   closed ─────────────────────► open ───────────────────────► half open
//!     ▲                            ▲ └──── the trial failed ───────┘  │
//!     └───────────────────────────────── the trial succeeded ◄────────┘
//! ```
//!
//! All processes share one small record, changed by compare-and-swap. Every function here takes the record that was read and
//! returns the one to write in its place, or `None` if there is nothing to write: a healthy downstream costs no writes. On a
//! conflict the caller reads again and calls the function again. Times are the store's.
//!
//! Late results change nothing. A result carries the [`Ticket`] of its attempt, and counts only if the breaker has not changed
//! its state since. Numbers and fences decide that, never a clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::class::Class;
use crate::record::Fence;
use crate::time::{MAX_SET_BACK, Timestamp};

/// However long the recovery is set, a downstream is tried once in an hour.
pub const LONGEST_RECOVERY: Duration = Duration::from_secs(60 * 60);

/// The longest trial. A process that dies during its trial blocks the next one for this long at the most.
pub const LONGEST_TRIAL: Duration = Duration::from_secs(10 * 60);

/// How soon to ask again while a trial runs: most trials take well under a second.
const ASK_AGAIN_DURING_TRIAL: Duration = Duration::from_secs(1);

/// How soon to ask again while a person holds the breaker open: soon enough that work goes on at once when it is let go.
const ASK_AGAIN_WHILE_FORCED: Duration = Duration::from_secs(5);

/// How many characters of a person's name are kept.
const LONGEST_NAME: usize = 100;

/// When the breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// It opens after this many failures without a success in between; 0 counts as 1.
    pub failures: u32,
    /// How long it stays open before a trial; at most [`LONGEST_RECOVERY`].
    pub recovery: Duration,
    /// How long the result of a trial is waited for before another attempt may be the trial; at most [`LONGEST_TRIAL`]. Longer
    /// than an attempt takes.
    pub trial: Duration,
}

impl Default for Settings {
    /// 5 failures, because one or two happen to every server; 30 s, in which most servers restart; a minute for a trial, twice
    /// the usual time-out of an attempt.
    fn default() -> Self {
        Self { failures: 5, recovery: Duration::from_secs(30), trial: Duration::from_secs(60) }
    }
}

/// The record of one downstream. Where there is none, the default counts: closed, without failures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Rises with every write: a write replaces the record only if this is still the version that was read. 0 if there is none.
    pub version: u64,
    /// Rises whenever the state changes, and not with every failure. Results of attempts that began in an earlier period are
    /// late.
    pub period: u64,
    /// Whether calls are permitted.
    pub state: State,
}

/// The state of a breaker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Calls are permitted.
    Closed {
        /// Failures since the last success.
        failures: u32,
    },
    /// No call is permitted until the recovery is over.
    Open {
        /// When it opened.
        since: Timestamp,
        /// When a trial is permitted.
        until: Timestamp,
    },
    /// One call is permitted, and runs.
    HalfOpen {
        /// Which one.
        trial: Fence,
        /// When it began.
        since: Timestamp,
        /// When another trial is permitted, if this one has not ended.
        until: Timestamp,
    },
    /// A person permits no calls until the breaker is reset.
    ForcedOpen {
        /// Who.
        by: String,
        /// Since when.
        since: Timestamp,
    },
    /// A person permits all calls until the breaker is reset, whatever becomes of them.
    ForcedClosed {
        /// Who.
        by: String,
        /// Since when.
        since: Timestamp,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

/// Whether a call is permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// It is. Its result comes back with this ticket.
    Allowed(Ticket),
    /// It is if it is the trial: first write what [`Breaker::begin_trial`] returns.
    Trial,
    /// It is not. Nothing was sent, and no attempt is used up.
    Refused {
        /// When to ask again.
        retry_after: Duration,
    },
}

/// What an attempt holds while it runs, and what its result is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ticket {
    /// One of many attempts while the breaker was closed.
    Ordinary {
        /// The period in which it began.
        period: u64,
    },
    /// The trial.
    Trial(Fence),
}

/// What an attempt says about the downstream, whatever it says about the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It answered. It may have refused this request.
    Working,
    /// It could not be reached, did not answer, failed, or has too much to do.
    Failing,
}

impl Health {
    /// What a failed attempt says. For a response over HTTP, [`http_status::health`](crate::retry::http_status::health) knows
    /// more.
    pub fn of_failure(class: Class) -> Self {
        match class {
            Class::NotSent | Class::Refused { .. } | Class::Unknown => Self::Failing,
            Class::Unclassified { evidence: Some(_) } => Self::Failing,
            // An error that says nothing about a lost response is an answer.
            Class::Final | Class::Unclassified { evidence: None } => Self::Working,
        }
    }
}

impl Breaker {
    /// Whether a call is permitted now.
    pub fn permits(&self, now: Timestamp) -> Permit {
        match &self.state {
            State::Closed { .. } | State::ForcedClosed { .. } => Permit::Allowed(self.ticket()),
            State::ForcedOpen { .. } => Permit::Refused { retry_after: ASK_AGAIN_WHILE_FORCED },
            State::Open { since, until } => match remaining(*since, *until, now) {
                Some(retry_after) => Permit::Refused { retry_after },
                None => Permit::Trial,
            },
            State::HalfOpen { since, until, .. } => match remaining(*since, *until, now) {
                Some(rest) => Permit::Refused { retry_after: rest.min(ASK_AGAIN_DURING_TRIAL) },
                None => Permit::Trial,
            },
        }
    }

    /// Makes an attempt the trial: 128 random bits name it. `None` if no trial is permitted now. The attempt begins after the
    /// write has succeeded, with the ticket [`Ticket::Trial`].
    pub fn begin_trial(&self, trial: Fence, settings: &Settings, now: Timestamp) -> Option<Self> {
        if self.permits(now) != Permit::Trial {
            return None;
        }
        let until = now.after(settings.trial.min(LONGEST_TRIAL));
        Some(self.enter(State::HalfOpen { trial, since: now, until }))
    }

    /// Records what an attempt says about the downstream.
    pub fn ended(&self, ticket: Ticket, health: Health, settings: &Settings, now: Timestamp) -> Option<Self> {
        match health {
            Health::Working => self.succeeded(ticket),
            Health::Failing => self.failed(ticket, settings, now),
        }
    }

    /// Records that the downstream works: the trial closes the breaker, and any other attempt ends the row of failures.
    pub fn succeeded(&self, ticket: Ticket) -> Option<Self> {
        match self.state {
            State::HalfOpen { trial, .. } if ticket == Ticket::Trial(trial) => Some(self.enter(State::default())),
            State::Closed { failures } if failures > 0 && ticket == self.ticket() => Some(self.counting(0)),
            _ => None,
        }
    }

    /// Records a failure of the downstream: the trial opens the breaker again, and so does the last of a row of failures.
    pub fn failed(&self, ticket: Ticket, settings: &Settings, now: Timestamp) -> Option<Self> {
        let until = now.after(settings.recovery.min(LONGEST_RECOVERY));
        let open = || Some(self.enter(State::Open { since: now, until }));
        match self.state {
            State::HalfOpen { trial, .. } if ticket == Ticket::Trial(trial) => open(),
            State::Closed { failures } if ticket == self.ticket() => match failures.saturating_add(1) {
                failures if failures >= settings.failures => open(),
                failures => Some(self.counting(failures)),
            },
            _ => None,
        }
    }

    /// Records that an attempt ended without saying anything about the downstream, for example because nothing was sent after
    /// all. If it was the trial, another attempt may be the trial at once.
    pub fn gave_up(&self, ticket: Ticket, now: Timestamp) -> Option<Self> {
        match self.state {
            State::HalfOpen { trial, .. } if ticket == Ticket::Trial(trial) => {
                Some(self.enter(State::Open { since: now, until: now }))
            }
            _ => None,
        }
    }

    /// A person stops all calls until [`reset`](Self::reset). `None` if the same person has done so already.
    pub fn forced_open(&self, by: &str, now: Timestamp) -> Option<Self> {
        let name = kept_name(by);
        match &self.state {
            State::ForcedOpen { by, .. } if *by == name => None,
            _ => Some(self.enter(State::ForcedOpen { by: name, since: now })),
        }
    }

    /// A person permits all calls until [`reset`](Self::reset). `None` if the same person has done so already.
    pub fn forced_closed(&self, by: &str, now: Timestamp) -> Option<Self> {
        let name = kept_name(by);
        match &self.state {
            State::ForcedClosed { by, .. } if *by == name => None,
            _ => Some(self.enter(State::ForcedClosed { by: name, since: now })),
        }
    }

    /// A person lets the breaker go: it is closed, without failures, and opens by itself. `None` if it is so already.
    pub fn reset(&self) -> Option<Self> {
        (self.state != State::default()).then(|| self.enter(State::default()))
    }

    fn ticket(&self) -> Ticket {
        Ticket::Ordinary { period: self.period }
    }

    /// The next record, in another state.
    fn enter(&self, state: State) -> Self {
        Self { version: self.version.saturating_add(1), period: self.period.saturating_add(1), state }
    }

    /// The next record, in the same state with another count.
    fn counting(&self, failures: u32) -> Self {
        Self { version: self.version.saturating_add(1), period: self.period, state: State::Closed { failures } }
    }
}

/// How much is left of a wait that began at `since`. One that began in the future was written by a clock that ran ahead: it
/// would last until the real time has caught up, so it counts as over.
fn remaining(since: Timestamp, until: Timestamp, now: Timestamp) -> Option<Duration> {
    let is_credible = since <= now.after(MAX_SET_BACK);
    (is_credible && now < until).then(|| now.until(until))
}

/// A name that can be shown on one line.
fn kept_name(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(LONGEST_NAME).collect()
}
