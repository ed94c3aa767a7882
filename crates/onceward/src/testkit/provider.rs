//! A stand-in for a provider that counts its effects. As the scenario demands, it acts and loses its response, refuses before it
//! acts, or is slow.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::process::Process;
use super::scenario_log::{EffectDone, LogEvent, ScenarioLog};
use super::step::{Side, Step, StepKind};

/// What a provider returns when it has acted. A tool may keep it as its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The id of the effect, counted over the scenario: `effect-1`.
    pub id: String,
    /// The name that the tool gave to the effect.
    pub what: String,
}

/// Why a provider gave no receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The provider refused before anything happened.
    #[error("the provider refused the connection; nothing happened")]
    Refused,
    /// The response did not arrive. The effect may have happened.
    #[error("the provider did not respond in time")]
    NoResponse,
    /// The idempotency key was used with another request before.
    #[error("the provider knows this key from another request; nothing happened")]
    KeyReused,
}

/// A stand-in for the service that a tool calls. Cheap to clone.
#[derive(Clone)]
pub struct Provider {
    effects: Arc<Effects>,
    process: Arc<Process>,
    log: Arc<ScenarioLog>,
    call: usize,
    behaviour: Behaviour,
    requests: Arc<AtomicUsize>,
}

/// How the provider behaves in one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Behaviour {
    /// How long it takes to act.
    pub(super) takes: Duration,
    /// The fault, and the request of the call at which it occurs, from 0.
    pub(super) fault: Option<(usize, Fault)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    LosesResponse,
    Refuses,
}

/// All effects that have happened in a scenario.
#[derive(Debug, Default)]
pub(super) struct Effects(Mutex<EffectState>);

#[derive(Debug, Default)]
struct EffectState {
    receipts: Vec<Receipt>,
    by_key: HashMap<String, Receipt>,
}

impl Effects {
    /// How often each effect happened.
    pub(super) fn happened(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for receipt in &self.lock().receipts {
            *counts.entry(receipt.what.clone()).or_default() += 1;
        }
        counts
    }

    fn lock(&self) -> MutexGuard<'_, EffectState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EffectState {
    fn add(&mut self, what: &str) -> Receipt {
        let receipt = Receipt { id: format!("effect-{}", self.receipts.len() + 1), what: what.to_owned() };
        self.receipts.push(receipt.clone());
        receipt
    }
}

impl Provider {
    pub(super) fn new(
        effects: &Arc<Effects>,
        process: &Arc<Process>,
        log: &Arc<ScenarioLog>,
        call: usize,
        behaviour: Behaviour,
    ) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        Self {
            effects: Arc::clone(effects),
            process: Arc::clone(process),
            log: Arc::clone(log),
            call,
            behaviour,
            requests,
        }
    }

    /// Performs an effect. `what` names it in the report; a tool with several effects gives them different names.
    ///
    /// The error says what the client of a real provider would know: [`Error::Refused`] proves that nothing happened,
    /// [`Error::NoResponse`] proves nothing.
    pub async fn act(&self, what: &str) -> Result<Receipt, Error> {
        self.request(what, None).await
    }

    /// Performs an effect once for each key, like a provider that honours idempotency keys: pass
    /// [`Claim::downstream_key`](crate::Claim::downstream_key).
    pub async fn act_with_key(&self, what: &str, key: &str) -> Result<Receipt, Error> {
        self.request(what, Some(key)).await
    }

    /// Looks up whether an effect has happened: a probe.
    pub async fn find(&self, what: &str) -> Result<Option<Receipt>, Error> {
        self.process.wait_while_stopped().await.map_err(|_| Error::NoResponse)?;
        Ok(self.effects.lock().receipts.iter().find(|receipt| receipt.what == what).cloned())
    }

    /// Reports an effect of your own test double. It is only counted; responses are not lost and requests are not refused, so
    /// scenarios that need this are reported as not tried.
    pub fn happened(&self, what: &str) {
        // A dead process does nothing, even if the code of its test double still runs.
        if !self.process.can_act() {
            return;
        }
        self.effects.lock().add(what);
        self.note(what, None, true);
        self.process.reach(Step::new(Side::After, StepKind::Effect, what));
    }

    async fn request(&self, what: &str, key: Option<&str>) -> Result<Receipt, Error> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let fault = self.behaviour.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        self.pass(Side::Before, what).await?;
        if !self.behaviour.takes.is_zero() {
            tokio::time::sleep(self.behaviour.takes).await;
            self.process.wait_while_stopped().await.map_err(|_| Error::NoResponse)?;
        }
        if fault == Some(Fault::Refuses) {
            return Err(Error::Refused);
        }
        let receipt = self.perform(what, key)?;
        self.pass(Side::After, what).await?;
        match fault {
            Some(_) => Err(Error::NoResponse),
            None => Ok(receipt),
        }
    }

    fn perform(&self, what: &str, key: Option<&str>) -> Result<Receipt, Error> {
        let mut happened = self.effects.lock();
        let known = key.and_then(|key| happened.by_key.get(key)).cloned();
        let receipt = match known {
            Some(receipt) if receipt.what != what => return Err(Error::KeyReused),
            Some(receipt) => {
                self.note(what, key, false);
                receipt
            }
            None => {
                let receipt = happened.add(what);
                if let Some(key) = key {
                    happened.by_key.insert(key.to_owned(), receipt.clone());
                }
                self.note(what, key, true);
                receipt
            }
        };
        Ok(receipt)
    }

    fn note(&self, what: &str, key: Option<&str>, is_new: bool) {
        let effect = EffectDone { what: what.to_owned(), key: key.map(str::to_owned), is_new };
        self.log.add(self.call, LogEvent::Effect(effect));
    }

    async fn pass(&self, side: Side, what: &str) -> Result<(), Error> {
        self.process.pass(Step::new(side, StepKind::Effect, what)).await.map_err(|_| Error::NoResponse)
    }
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider").field("call", &self.call).finish_non_exhaustive()
    }
}
