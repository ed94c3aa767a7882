//! The rules that the ledger breaks when what it holds does not fit what happened. It is asked after a cycle, when
//! every worker is done or dead.

use onceward::core::decide::Resolution;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outcome::{Body, Outcome};
use onceward::core::record::{Seen, State, Status};
use onceward::store::{Entry, What};
use onceward::{InDoubt, Ledger, Resolved};

use super::history::{Generation, Known, millis};
use super::journal::{self, Ending, Pen, now};
use super::judge::Judge;
use super::plan::Sort;
use super::worker::OPERATION;
use crate::dice::Dice;
use crate::standing;

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
        let standing = seen.and_then(|seen| standing::status(&seen.record, seen.now, seen.owner_gone));
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
        let attempts = seen.map_or(0, |seen| seen.record.attempts);
        faults.extend(View { generation, sort, left, asked, attempts }.faults(standing));
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

/// One life of an intent as the journal tells it, beside what the ledger says at a moment.
struct View<'a> {
    generation: &'a Generation,
    sort: Sort,
    left: usize,
    asked: i64,
    /// How many attempts the ledger counts.
    attempts: u32,
}

impl View<'_> {
    fn faults(&self, standing: Option<Status>) -> Vec<String> {
        let mut faults = Vec::new();
        let retention = millis(self.sort.retention());
        let last = self.generation.attempts.keys().next_back().copied().unwrap_or(0);
        if let Some(known) = &self.generation.outcome
            && self.asked < known.earliest + retention
            && standing != Some(Status::Done)
        {
            faults.push(format!("the outcome {} is lost: the ledger says {standing:?}", known.value));
        }
        match standing {
            Some(Status::Done) => {}
            Some(Status::Tombstone) if !self.is_over(retention) => {
                faults.push("the outcome was dropped before its time".to_owned());
            }
            None if last > 0 && !self.is_over(millis(self.sort.horizon())) && !self.is_untried() => {
                faults.push("the record is gone".to_owned());
            }
            Some(Status::Tombstone) | None => {}
            Some(Status::Running) if cfg!(target_os = "linux") => {
                faults.push("the ledger says running, but every owner is gone".to_owned());
            }
            Some(Status::Running) => {}
            Some(Status::InDoubt) => faults.extend(self.doubt_about_nothing()),
            Some(Status::Open) => faults.extend(self.forgotten_doubt()),
            Some(Status::Queued | Status::Dead) => faults.push(format!("a direct call is {standing:?}")),
        }
        if standing.is_some_and(|status| status != Status::Tombstone) && self.attempts < last {
            faults.push(format!("the ledger counts {} attempts, but attempt {last} was granted", self.attempts));
        }
        faults
    }

    /// Whether it can have been done for this long.
    fn is_over(&self, kept: i64) -> bool {
        self.generation.finished().is_some_and(|finished| self.asked >= finished + kept)
    }

    /// Whether it can be forgotten that nothing happened.
    fn is_untried(&self) -> bool {
        self.generation.is_untried(self.asked, self.sort, self.left)
    }

    /// Open means that nothing has happened.
    fn forgotten_doubt(&self) -> Option<String> {
        let effects: Vec<&str> = self.generation.effects().map(|attempt| attempt.nonce.as_str()).collect();
        let unproven = self.generation.unproven(self.attempts.saturating_add(1), self.sort, self.left);
        if !unproven.is_empty() {
            return Some(format!(
                "open, but attempts {unproven:?} may have happened ({effects:?} did): the doubt is forgotten"
            ));
        }
        (!effects.is_empty()).then(|| format!("open, but it happened, by {effects:?}"))
    }

    /// In doubt means that something may have happened.
    fn doubt_about_nothing(&self) -> Option<String> {
        let Sort { marks, .. } = self.sort;
        if marks && !self.generation.attempts.values().any(|attempt| attempt.sending) {
            return Some("in doubt, but no attempt came as far as `sent`".to_owned());
        }
        // Where a living owner can be superseded its proof may come too late, and the doubt rightly stays.
        let in_time = self.sort.in_doubt != InDoubt::Probe && (self.sort.holds() || !self.sort.can_lose_its_lease());
        let harmless = |number: u32| match self.generation.attempts.get(&number) {
            _ if number <= self.generation.settled => true,
            None => marks,
            Some(attempt) => {
                let proven = matches!(attempt.ended, Some((Ending::Release, _))) && attempt.told;
                proven || (marks && !attempt.sending)
            }
        };
        let nothing = in_time && (1..=self.attempts).all(harmless);
        nothing.then(|| "in doubt, but every attempt is proven harmless".to_owned())
    }
}

fn value(outcome: &Outcome) -> Result<String, String> {
    match &outcome.body {
        Body::Kept(bytes) => serde_json::from_slice(bytes).map_err(|error| format!("the outcome is no text: {error}")),
        Body::TooLarge { .. } => Err("the outcome is not kept".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Attempt;
    use super::*;

    fn sort(is: impl Fn(Sort) -> bool) -> Sort {
        (0..100_000).map(|intent| Sort::of(1, intent)).find(|sort| is(*sort)).unwrap()
    }

    /// A life with one attempt that began, went as far as `change` says, and was killed or ended.
    fn faults(sort: Sort, standing: Option<Status>, change: impl Fn(&mut Attempt)) -> Vec<String> {
        let mut attempt = Attempt {
            nonce: "a".to_owned(),
            asked: 1,
            tried: 1,
            until: 1,
            sending: false,
            sent: false,
            sent_by: None,
            effect: None,
            ended: None,
            told: false,
        };
        change(&mut attempt);
        let mut generation = Generation { created: 1, ..Generation::default() };
        generation.attempts.insert(1, attempt);
        View { generation: &generation, sort, left: 0, asked: 10, attempts: 1 }.faults(standing)
    }

    #[test]
    fn an_effect_without_an_outcome_stays_visible() {
        let hold = sort(|sort| sort.holds() && !sort.marks && !sort.brief);
        for standing in [Some(Status::Done), Some(Status::InDoubt)] {
            assert!(faults(hold, standing, |attempt| attempt.effect = Some(2)).is_empty(), "{standing:?}");
        }
        for standing in [None, Some(Status::Open), Some(Status::Tombstone), Some(Status::Dead), Some(Status::Queued)] {
            assert_eq!(faults(hold, standing, |attempt| attempt.effect = Some(2)).len(), 1, "{standing:?}");
        }
    }

    #[test]
    fn what_died_before_sent_is_open_and_not_in_doubt() {
        let marks = sort(|sort| sort.holds() && sort.marks && !sort.brief);
        assert!(faults(marks, Some(Status::Open), |_| ()).is_empty());
        assert!(!faults(marks, Some(Status::InDoubt), |_| ()).is_empty());
        // Killed while the mark was being written, it may be either.
        assert!(faults(marks, Some(Status::Open), |attempt| attempt.sending = true).is_empty());
        assert!(faults(marks, Some(Status::InDoubt), |attempt| attempt.sending = true).is_empty());
        assert!(!faults(marks, Some(Status::Open), |attempt| attempt.sent = true).is_empty());
    }

    #[test]
    fn a_proof_that_the_ledger_has_acknowledged_leaves_no_doubt() {
        let hold = sort(|sort| sort.holds() && !sort.marks && !sort.brief);
        let release =
            |told| move |attempt: &mut Attempt| (attempt.ended, attempt.told) = (Some((Ending::Release, 5)), told);
        assert!(faults(hold, Some(Status::Open), release(true)).is_empty());
        assert!(!faults(hold, Some(Status::InDoubt), release(true)).is_empty());
        // Killed before the ledger had the proof.
        assert!(faults(hold, Some(Status::InDoubt), release(false)).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn nothing_runs_when_everybody_is_dead() {
        let retry = sort(|sort| sort.in_doubt == InDoubt::Retry);
        assert_eq!(faults(retry, Some(Status::Running), |_| ()).len(), 1);
    }
}
