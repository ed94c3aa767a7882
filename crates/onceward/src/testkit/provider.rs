//! The other side of an effect, as a stand-in that counts: it can act and fail to answer, refuse before it acts, and
//! take its time, as the scenario has it.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::life::Life;
use super::log::{Acted, Event, Log};
use super::step::{Moment, Side, Step};

/// What a provider answers when it has acted. A tool may keep it as its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Which effect it was, counted over the scenario: `effect-1`.
    pub id: String,
    /// What happened, as the tool named it.
    pub what: String,
}

/// Why a provider gave no receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It was refused before anything happened.
    #[error("the provider refused the connection; nothing happened")]
    Refused,
    /// The answer did not arrive. It may have happened.
    #[error("the provider gave no answer in time")]
    NoAnswer,
    /// The idempotency key came with another request before.
    #[error("the provider knows this key from another request; nothing happened")]
    KeyReused,
}

/// A stand-in for whatever a tool acts on. Cheap to clone.
#[derive(Clone)]
pub struct Provider {
    world: Arc<World>,
    life: Arc<Life>,
    log: Arc<Log>,
    call: usize,
    manner: Manner,
    asked: Arc<AtomicUsize>,
}

/// How the provider behaves towards one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Manner {
    /// How long it takes to act.
    pub(super) takes: Duration,
    /// At which request of the call there is trouble, from 0.
    pub(super) trouble: Option<(usize, Trouble)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    LosesAnswer,
    Refuses,
}

/// All that has happened in a scenario.
#[derive(Debug, Default)]
pub(super) struct World(Mutex<Happened>);

#[derive(Debug, Default)]
struct Happened {
    receipts: Vec<Receipt>,
    by_key: HashMap<String, Receipt>,
}

impl World {
    /// How often each effect happened.
    pub(super) fn happened(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for receipt in &self.lock().receipts {
            *counts.entry(receipt.what.clone()).or_default() += 1;
        }
        counts
    }

    fn lock(&self) -> MutexGuard<'_, Happened> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Happened {
    fn anew(&mut self, what: &str) -> Receipt {
        let receipt = Receipt { id: format!("effect-{}", self.receipts.len() + 1), what: what.to_owned() };
        self.receipts.push(receipt.clone());
        receipt
    }
}

impl Provider {
    pub(super) fn new(world: &Arc<World>, life: &Arc<Life>, log: &Arc<Log>, call: usize, manner: Manner) -> Self {
        let asked = Arc::new(AtomicUsize::new(0));
        Self { world: Arc::clone(world), life: Arc::clone(life), log: Arc::clone(log), call, manner, asked }
    }

    /// Does it. `what` names the effect for the report; a tool that has several effects names them apart.
    ///
    /// The error says what a real provider's client would know: [`Error::Refused`] proves that nothing happened,
    /// [`Error::NoAnswer`] proves nothing.
    pub async fn act(&self, what: &str) -> Result<Receipt, Error> {
        self.request(what, None).await
    }

    /// Does it once for each key, as providers do that honour idempotency keys: pass
    /// [`Claim::downstream_key`](crate::Claim::downstream_key).
    pub async fn act_with_key(&self, what: &str, key: &str) -> Result<Receipt, Error> {
        self.request(what, Some(key)).await
    }

    /// Asks whether it has happened: the probe of a provider that can be asked.
    pub async fn find(&self, what: &str) -> Result<Option<Receipt>, Error> {
        self.life.go_on().await.map_err(|_| Error::NoAnswer)?;
        Ok(self.world.lock().receipts.iter().find(|receipt| receipt.what == what).cloned())
    }

    /// For a double of your own: say here that the effect has taken place. It is only counted; answers are not lost and
    /// nothing is refused, so the scenarios that need that are reported as not tried.
    pub fn happened(&self, what: &str) {
        // A dead process does nothing, even if the code of its double is still running.
        if !self.life.can_act() {
            return;
        }
        self.world.lock().anew(what);
        self.note(what, None, true);
        self.life.reach(Step::new(Side::After, Moment::Effect, what));
    }

    async fn request(&self, what: &str, key: Option<&str>) -> Result<Receipt, Error> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let trouble = self.manner.trouble.filter(|(at, _)| *at == number).map(|(_, trouble)| trouble);
        self.pass(Side::Before, what).await?;
        if !self.manner.takes.is_zero() {
            tokio::time::sleep(self.manner.takes).await;
            self.life.go_on().await.map_err(|_| Error::NoAnswer)?;
        }
        if trouble == Some(Trouble::Refuses) {
            return Err(Error::Refused);
        }
        let receipt = self.perform(what, key)?;
        self.pass(Side::After, what).await?;
        match trouble {
            Some(_) => Err(Error::NoAnswer),
            None => Ok(receipt),
        }
    }

    fn perform(&self, what: &str, key: Option<&str>) -> Result<Receipt, Error> {
        let mut happened = self.world.lock();
        let known = key.and_then(|key| happened.by_key.get(key)).cloned();
        let receipt = match known {
            Some(receipt) if receipt.what != what => return Err(Error::KeyReused),
            Some(receipt) => {
                self.note(what, key, false);
                receipt
            }
            None => {
                let receipt = happened.anew(what);
                if let Some(key) = key {
                    happened.by_key.insert(key.to_owned(), receipt.clone());
                }
                self.note(what, key, true);
                receipt
            }
        };
        Ok(receipt)
    }

    fn note(&self, what: &str, key: Option<&str>, anew: bool) {
        let acted = Acted { what: what.to_owned(), key: key.map(str::to_owned), anew };
        self.log.add(self.call, Event::Acted(acted));
    }

    async fn pass(&self, side: Side, what: &str) -> Result<(), Error> {
        self.life.pass(Step::new(side, Moment::Effect, what)).await.map_err(|_| Error::NoAnswer)
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("call", &self.call).finish_non_exhaustive()
    }
}
