//! The rules that the ledger breaks when what it holds does not fit what happened. It is asked after a cycle, when
//! every worker is done or dead.

use onceward::core::decide::Resolution;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outcome::{Body, Outcome};
use onceward::core::record::{Seen, State, Status};
use onceward::store::{Entry, What};
use onceward::{InDoubt, Ledger, Resolved};

use super::history::{Known, millis};
use super::journal::{self, Ending, Pen, now};
use super::judge::Judge;
use super::worker::OPERATION;
use crate::dice::Dice;

/// The identity of an intent.
pub fn identity(intent: u64) -> Identity {
    Identity {
        tenant: Tenant::default(),
        operation: Operation::new(OPERATION).expect("the name is fixed"),
        key: Key::new(super::key(intent)).expect("the key is made of digits"),
    }
}

impl Judge {
    /// Compares what the ledger holds with what happened. The answer is how the intent stands.
    pub fn compare(&mut self, intent: u64, seen: Option<&Seen>) -> Option<Status> {
        let standing = seen.and_then(|seen| seen.standing()).map(|standing| standing.status());
        let asked = seen.map_or_else(now, |seen| seen.now.as_millis());
        let history = self.history(intent);
        let sort = history.sort;
        let left = history.left;
        let mut faults = Vec::new();
        if let Some(seen) = seen
            && !matches!(standing, None | Some(Status::Tombstone))
            && let Err(fault) = history.generation(seen.record.created_at.as_millis())
        {
            faults.push(fault);
        }
        let Some(generation) = history.latest() else { return standing };
        let retention = millis(sort.retention());
        let over = |kept: i64| generation.finished().is_some_and(|finished| asked >= finished + kept);
        let all = seen.map_or(0, |seen| seen.record.attempts).saturating_add(1);
        let unproven = generation.unproven(all, sort, left);
        let effects: Vec<&str> = generation.effects().map(|attempt| attempt.nonce.as_str()).collect();
        let last = generation.attempts.keys().next_back().copied().unwrap_or(0);
        if let Some(known) = &generation.outcome
            && asked < known.earliest + retention
            && standing != Some(Status::Done)
        {
            faults.push(format!("the outcome {} is lost: the ledger says {standing:?}", known.value));
        }
        match standing {
            Some(Status::Done) => {}
            Some(Status::Tombstone) if !over(retention) => {
                faults.push("the outcome was dropped before its time".to_owned());
            }
            None if last > 0 && !over(millis(sort.horizon())) => faults.push("the record is gone".to_owned()),
            Some(Status::Tombstone) | None => {}
            Some(Status::Running) if cfg!(target_os = "linux") => {
                faults.push("the ledger says running, but every owner is gone".to_owned());
            }
            Some(Status::Running) => {}
            Some(Status::InDoubt) => {
                let sending = |attempt: &super::history::Attempt| attempt.sending;
                if sort.marks && !generation.attempts.values().any(sending) {
                    faults.push("in doubt, but no attempt came as far as `sent`".to_owned());
                }
                let harmless = |number: u32| {
                    number <= generation.settled
                        || generation.attempts.get(&number).map_or(sort.marks, |attempt| {
                            let proven = matches!(attempt.ended, Some((Ending::Release, _))) && attempt.told;
                            proven || (sort.marks && !attempt.sending)
                        })
                };
                // Where a living owner can be superseded its proof may come too late, and the doubt rightly stays.
                let in_time = sort.in_doubt != InDoubt::Probe && (sort.holds() || !sort.slow);
                if in_time && (1..all).all(harmless) {
                    faults.push("in doubt, but every attempt is proven harmless".to_owned());
                }
            }
            Some(Status::Open) => {
                if !unproven.is_empty() {
                    faults.push(format!("open, but attempts {unproven:?} may have happened: the doubt is forgotten"));
                }
                if !effects.is_empty() {
                    faults.push(format!("open, but it happened, by {effects:?}"));
                }
            }
            Some(Status::Queued | Status::Dead) => faults.push(format!("a direct call is {standing:?}")),
        }
        if standing.is_some_and(|status| status != Status::Tombstone) && all <= last {
            faults.push(format!("the ledger counts {} attempts, but attempt {last} was granted", all - 1));
        }
        if let (Some(Status::Done), Some(seen)) = (standing, seen) {
            faults.extend(self.kept(intent, seen).err());
        }
        for fault in faults {
            self.blame(intent, fault);
        }
        standing
    }

    /// An outcome that came too late changes nothing, but it is in the audit trail before its owner is told.
    pub fn compare_trail(&mut self, intent: u64, trail: &[Entry]) {
        let late = self.history(intent).late;
        let is_late = |entry: &&Entry| matches!(entry.event.what, What::StaleFinish | What::Contradiction);
        let found = trail.iter().filter(is_late).count();
        if found < late {
            self.blame(intent, format_args!("{late} outcomes came too late, but the audit trail has {found} of them"));
        }
    }

    /// The outcome in the ledger is the one that was acknowledged, or at least one that somebody produced.
    fn kept(&mut self, intent: u64, seen: &Seen) -> Result<(), String> {
        let State::Done { outcome, finished_at, .. } = &seen.record.state else { return Ok(()) };
        let value = value(outcome)?;
        let history = self.history(intent);
        let produced = history.producer(&value);
        let Some(generation) = history.latest() else { return Ok(()) };
        match &generation.outcome {
            Some(known) if known.value == value => Ok(()),
            Some(known) => Err(format!("the outcome was {}, and the ledger now says {value}", known.value)),
            None => {
                let Some((_, attempt, _)) = produced else {
                    return Err(format!("the ledger says {value}, which nobody produced"));
                };
                let earliest = finished_at.as_millis();
                generation.outcome = Some(Known { value, earliest, latest: seen.now.as_millis(), attempt });
                Ok(())
            }
        }
    }

    /// Settles a doubt as a person would who asks the other side.
    pub async fn settle(&mut self, ledger: &Ledger, pen: &Pen, intent: u64, seen: &Seen) {
        let Some(generation) = self.history(intent).latest() else { return };
        let receipt = generation.effects().next().map(|attempt| attempt.nonce.clone());
        let resolution = match &receipt {
            Some(receipt) => Resolution::Happened(Outcome::success(format!("\"{receipt}\""))),
            None => Resolution::DidNotHappen,
        };
        let from = now();
        let version = seen.record.version;
        match ledger.resolve(&identity(intent), version, resolution, Some("harness"), None).await {
            Ok(Resolved::Settled) => {
                let (attempts, created) = (seen.record.attempts, seen.record.created_at.as_millis());
                pen.write(intent, "", journal::What::Settled { value: receipt, attempts, created, from });
            }
            other => self.blame(intent, format_args!("it is in doubt and cannot be settled: {other:?}")),
        }
    }

    /// Whether the parent settles this doubt now: most of what is held, little of what workers can take over.
    pub fn wants_to_settle(&mut self, intent: u64, dice: &mut Dice) -> bool {
        let sort = self.history(intent).sort;
        dice.one_in(if sort.holds() { 2 } else { 8 })
    }
}

fn value(outcome: &Outcome) -> Result<String, String> {
    match &outcome.body {
        Body::Kept(bytes) => serde_json::from_slice(bytes).map_err(|error| format!("the outcome is no text: {error}")),
        Body::TooLarge { .. } => Err("the outcome is not kept".to_owned()),
    }
}
