//! A claim as the work itself sees it: what to pass to the other side, and the means to mark `sent`.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use onceward_core::decide::Command;
use onceward_core::name::Identity;
use onceward_core::plant::{Plant, planted};
use onceward_core::record::downstream_key;

use super::Call;
use super::guard::{Held, Reach};
use crate::error::Error;
use crate::step::{Step, reached};

/// The right to do the work, as the work itself sees it. Cheap to clone.
#[derive(Clone)]
pub struct Claim {
    of: Of,
    /// Worked out when somebody asks: to hash costs, and a gateway passes on what its client sent.
    names: OnceLock<Names>,
}

#[derive(Clone)]
enum Of {
    Held(Arc<Held>),
    /// The store was down, and the policy lets the work run unguarded.
    Nobody(Identity),
}

/// What the work is called, here and on the other side.
#[derive(Clone)]
struct Names {
    identity: Identity,
    downstream_key: Arc<str>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Claim").field(&format_args!("{}", self.names().identity)).finish()
    }
}

impl Claim {
    /// The claim of an owner.
    pub(super) fn of(held: &Arc<Held>) -> Self {
        Self { of: Of::Held(Arc::clone(held)), names: OnceLock::new() }
    }

    /// A claim that nothing guards.
    pub(super) fn unguarded(call: &Call) -> Self {
        Self { of: Of::Nobody(call.intent()), names: OnceLock::new() }
    }

    fn held(&self) -> Option<&Arc<Held>> {
        match &self.of {
            Of::Held(held) => Some(held),
            Of::Nobody(_) => None,
        }
    }

    fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let (identity, generation) = match &self.of {
                Of::Held(held) if planted(Plant::DownstreamKeyPerAttempt) => {
                    (held.call.intent(), held.acquired.attempt)
                }
                Of::Held(held) => (held.call.intent(), held.acquired.generation),
                Of::Nobody(identity) => (identity.clone(), 0),
            };
            Names { downstream_key: downstream_key(&identity, "", generation).into(), identity }
        })
    }

    /// The key to pass to the other side: the same on every attempt of this intent, and of nothing else.
    pub fn downstream_key(&self) -> &str {
        &self.names().downstream_key
    }

    /// The key of the intent.
    pub fn key(&self) -> &str {
        self.names().identity.key.as_str()
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.held().map_or(1, |held| held.acquired.attempt)
    }

    /// An earlier attempt may have happened: ask the other side before anything is sent. If it knows of
    /// nothing, say so with [`Claim::not_found`]; if it does, return what it says.
    pub fn probe_first(&self) -> bool {
        self.held().is_some_and(|held| held.acquired.probe_first)
    }

    /// The first byte is about to leave. From here on a missing answer is a doubt.
    pub async fn sent(&self) -> Result<(), Error> {
        let Some(held) = self.held() else { return Ok(()) };
        reached(Step::SentDecided);
        let command = Command::Sent { fence: held.acquired.fence, lease: held.call.policy.lease() };
        self.still_ours(held.write(&command).await?)?;
        held.marked_sent.store(true, Ordering::SeqCst);
        reached(Step::SentWritten);
        Ok(())
    }

    /// The other side was asked, and has seen nothing of any earlier attempt: the doubt is settled.
    pub async fn not_found(&self) -> Result<(), Error> {
        let Some(held) = self.held() else { return Ok(()) };
        self.still_ours(held.write(&Command::NotFound { fence: held.acquired.fence }).await?)
    }

    /// Whether this caller has marked `sent` itself.
    pub(crate) fn marked_sent(&self) -> bool {
        self.held().is_some_and(|held| held.marked_sent.load(Ordering::SeqCst))
    }

    fn still_ours(&self, reach: Reach) -> Result<(), Error> {
        match reach {
            Reach::Written => Ok(()),
            Reach::Stale => Err(Error::ClaimLost { intent: self.names().identity.to_string(), outcome: None }),
        }
    }
}
