//! The breakers that all couriers of a store share, and the queues that people have paused. Each is a note, changed by
//! compare-and-swap.

use onceward_core::breaker::{Breaker, State};
use onceward_core::decide::{Command, CommandResult, Note};
use onceward_core::name::{Identity, Key, Operation, Tenant};
use serde::{Deserialize, Serialize};

use super::Ledger;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Invalid};
use crate::store::{self, Filter, MAX_PAGE_SIZE};

/// The operation of the notes. Calls of users cannot name it.
pub const NOTES: &str = "onceward/breaker";

/// How often a change is tried again because another courier came first.
const MAX_CHANGES: usize = 16;

/// What a breaker stops.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stops {
    /// Attempts at a sink. It opens by itself when the sink fails.
    Sink(String),
    /// Attempts at the entries of an operation. Only people open it: the queue is paused.
    Queue(String),
}

impl Stops {
    fn key(&self) -> String {
        match self {
            Self::Sink(name) => format!("sink:{name}"),
            Self::Queue(name) => format!("queue:{name}"),
        }
    }

    fn of_key(key: &str) -> Option<Self> {
        let (kind, name) = key.split_once(':')?;
        match kind {
            "sink" => Some(Self::Sink(name.to_owned())),
            "queue" => Some(Self::Queue(name.to_owned())),
            _ => None,
        }
    }

    fn identity(&self) -> Result<Identity, Invalid> {
        let (operation, key) = (Operation::new(NOTES)?, Key::new(self.key())?);
        Ok(Identity { tenant: Tenant::default(), operation, key })
    }
}

/// What a person does to a breaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceBreaker {
    /// Stops all attempts until it is reset.
    Open {
        /// Who.
        by: String,
    },
    /// Permits all attempts until it is reset, whatever becomes of them.
    Closed {
        /// Who.
        by: String,
    },
    /// Lets it close and open by itself again.
    Reset,
}

impl Ledger {
    /// The state of a breaker; closed if nothing was ever noted.
    pub async fn breaker(&self, stops: &Stops) -> Result<Breaker, Error> {
        Ok(self.read_breaker(&stops.identity()?).await?.0)
    }

    /// All breakers that were ever opened, and paused queues.
    pub async fn breakers(&self) -> Result<Vec<(Stops, Breaker)>, Error> {
        let filter = Filter { operation: Some(Operation::new(NOTES).map_err(Invalid::from)?), ..Filter::default() };
        let page = self.inner.store.list(&filter, None, MAX_PAGE_SIZE).await?;
        let mut breakers = Vec::new();
        for listed in page.listed {
            let key = listed.seen.record.identity.as_ref().and_then(|identity| Stops::of_key(identity.key.as_str()));
            if let Some(stops) = key {
                let breaker = self.breaker(&stops).await?;
                breakers.push((stops, breaker));
            }
        }
        breakers.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(breakers)
    }

    /// Stops or permits attempts by a person's decision. Returns the new state.
    pub async fn force_breaker(&self, stops: &Stops, force: &ForceBreaker) -> Result<Breaker, Error> {
        let change = |breaker: &Breaker| {
            let now = SystemClock.now();
            match force {
                ForceBreaker::Open { by } => breaker.forced_open(by, now),
                ForceBreaker::Closed { by } => breaker.forced_closed(by, now),
                ForceBreaker::Reset => breaker.reset(),
            }
        };
        self.change_breaker(stops, change).await
    }

    /// Changes a breaker, if the change applies to the state that is there. Returns the state after it.
    pub(crate) async fn change_breaker(
        &self,
        stops: &Stops,
        change: impl Fn(&Breaker) -> Option<Breaker>,
    ) -> Result<Breaker, Error> {
        let identity = stops.identity()?;
        for _ in 0..MAX_CHANGES {
            let (breaker, version) = self.read_breaker(&identity).await?;
            let Some(next) = change(&breaker) else { return Ok(breaker) };
            let text = serde_json::to_vec(&next).map_err(|error| Invalid::Payload(error.to_string()))?;
            let note = Command::Note(Note { identity: identity.clone(), version, text: text.into() });
            let applied = match version {
                None => self.inner.apply(None, &note, None).await,
                Some(_) => self.inner.apply_by_id(identity.digest(), &note, None).await,
            };
            match applied.map_err(|error| error.about(identity.to_string()))?.answer {
                CommandResult::Accepted => return Ok(next),
                _ => continue,
            }
        }
        Err(Error::Contended { intent: identity.to_string() })
    }

    async fn read_breaker(&self, identity: &Identity) -> Result<(Breaker, Option<u64>), store::Error> {
        let Some(seen) = self.inner.store.get(identity.digest()).await? else {
            return Ok((Breaker::default(), None));
        };
        // A note that cannot be read is written anew by the next change.
        let text = seen.record.payload.as_deref().unwrap_or_default();
        Ok((serde_json::from_slice(text).unwrap_or_default(), Some(seen.record.version)))
    }
}

/// The name of a state, for people and JSON.
pub fn state_name(state: &State) -> &'static str {
    match state {
        State::Closed { .. } => "closed",
        State::Open { .. } => "open",
        State::HalfOpen { .. } => "half_open",
        State::ForcedOpen { .. } => "forced_open",
        State::ForcedClosed { .. } => "forced_closed",
    }
}
