//! The rules about what the ledger holds after a cycle, when every worker is done or dead.

use onceward::core::decide::Resolution;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outcome::{Body, Outcome};
use onceward::core::record::{Seen, State, Status};
use onceward::store::{AuditEntry, EventKind};
use onceward::{InDoubt, Ledger, Resolved};

use super::history::{Generation, KnownOutcome, millis};
use super::intent_kind::IntentKind;
use super::journal::{self, Ending, JournalWriter, now};
use super::judge::Judge;
use super::worker::OPERATION;
use crate::rng::Rng;
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
    /// Compares what the ledger holds with what happened. Returns the status of the intent.
    pub fn compare(&mut self, intent: u64, seen: Option<&Seen>) -> Option<Status> {
        let standing = seen.and_then(|seen| standing::status(&seen.record, seen.now, seen.owner_gone));
        let asked = seen.map_or_else(now, |seen| seen.now.as_millis());
        let gone = self.owners_gone_at;
        let history = self.history(intent);
        let kind = history.kind;
        let left = history.left;
        let mut violations = Vec::new();
        if let Some(seen) = seen
            && !matches!(standing, None | Some(Status::Tombstone))
            && let Err(fault) = history.generation(seen.record.created_at.as_millis())
        {
            violations.push(fault);
        }
        let Some(generation) = history.latest() else { return standing };
        let attempts = seen.map_or(0, |seen| seen.record.attempts);
        violations.extend(View { generation, kind, left, asked, attempts }.violations(standing));
        if let (Some(Status::Running), Some(State::Leased(lease))) = (standing, seen.map(|seen| &seen.record.state)) {
            violations.extend(runs_without_owner(kind, lease.until.as_millis(), gone));
        }
        if let (Some(Status::Done), Some(seen)) = (standing, seen) {
            violations.extend(self.kept(intent, seen).err());
        }
        for fault in violations {
            self.blame(intent, fault);
        }
        standing
    }

    /// A late outcome changes nothing, but it is in the audit trail before its owner gets its answer.
    pub fn compare_trail(&mut self, intent: u64, trail: &[AuditEntry]) {
        let late = self.history(intent).late;
        let is_late =
            |entry: &&AuditEntry| matches!(entry.event.what, EventKind::StaleFinish | EventKind::Contradiction);
        let found = trail.iter().filter(is_late).count();
        if found < late {
            self.blame(intent, format_args!("{late} outcomes came too late, but the audit trail has {found} of them"));
        }
    }

    /// The outcome in the ledger is the one that was acknowledged, or one that some attempt produced.
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
                    return Err(format!("the ledger says {value}, and no attempt produced it"));
                };
                let earliest = finished_at.as_millis();
                generation.outcome = Some(KnownOutcome { value, earliest, latest: seen.now.as_millis(), attempt });
                Ok(())
            }
        }
    }

    /// Settles a doubt as an operator does, by asking the downstream.
    pub async fn settle(&mut self, ledger: &Ledger, writer: &JournalWriter, intent: u64, seen: &Seen) {
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
                writer.write(intent, "", journal::Event::Settled { value: receipt, attempts, created, from });
            }
            // A write that a killed owner had sent has come meanwhile. The next audit sees the intent as it is now.
            Ok(Resolved::Refused(_)) if from < self.owners_gone_at + millis(self.plan.times.in_flight) => {}
            other => self.blame(intent, format_args!("it is in doubt and cannot be settled: {other:?}")),
        }
    }

    /// Whether the parent settles this doubt now: most held doubts, few that workers can take over.
    pub fn wants_to_settle(&mut self, intent: u64, rng: &mut Rng) -> bool {
        let kind = self.history(intent).kind;
        rng.one_in(if kind.holds() { 2 } else { 8 })
    }
}

/// One generation of an intent by the journal, beside what the ledger says at a moment.
struct View<'a> {
    generation: &'a Generation,
    kind: IntentKind,
    left: usize,
    asked: i64,
    /// How many attempts the ledger counts.
    attempts: u32,
}

impl View<'_> {
    fn violations(&self, standing: Option<Status>) -> Vec<String> {
        let mut violations = Vec::new();
        let retention = millis(self.kind.retention());
        let last = self.generation.attempts.keys().next_back().copied().unwrap_or(0);
        if let Some(known) = &self.generation.outcome
            && self.asked < known.earliest + retention
            && standing != Some(Status::Done)
        {
            violations.push(format!("the outcome {} is lost: the ledger says {standing:?}", known.value));
        }
        match standing {
            Some(Status::Done) => {}
            Some(Status::Tombstone) if !self.is_over(retention) => {
                violations.push("the outcome was dropped before its time".to_owned());
            }
            None if last > 0 && !self.is_over(millis(self.kind.horizon())) && !self.is_untried() => {
                violations.push("the record is gone".to_owned());
            }
            Some(Status::Tombstone) | None => {}
            // `runs_without_owner` judges how long.
            Some(Status::Running) => {}
            Some(Status::InDoubt) => violations.extend(self.doubt_about_nothing()),
            Some(Status::Open) => violations.extend(self.forgotten_doubt()),
            Some(Status::Queued | Status::Dead) => violations.push(format!("a direct call is {standing:?}")),
        }
        if standing.is_some_and(|status| status != Status::Tombstone) && self.attempts < last {
            violations.push(format!("the ledger counts {} attempts, but attempt {last} was granted", self.attempts));
        }
        violations
    }

    /// Whether it can have been done for this long.
    fn is_over(&self, kept: i64) -> bool {
        self.generation.finished().is_some_and(|finished| self.asked >= finished + kept)
    }

    /// Whether it can be forgotten that nothing happened.
    fn is_untried(&self) -> bool {
        self.generation.is_untried(self.asked, self.kind, self.left)
    }

    /// Open means that nothing has happened.
    fn forgotten_doubt(&self) -> Option<String> {
        let effects: Vec<&str> = self.generation.effects().map(|attempt| attempt.nonce.as_str()).collect();
        let unproven = self.generation.unproven(self.attempts.saturating_add(1), self.kind, self.left);
        if !unproven.is_empty() {
            return Some(format!(
                "open, but attempts {unproven:?} may have happened ({effects:?} did): the doubt is forgotten"
            ));
        }
        (!effects.is_empty()).then(|| format!("open, but it happened, by {effects:?}"))
    }

    /// In doubt means that something may have happened.
    fn doubt_about_nothing(&self) -> Option<String> {
        let IntentKind { marks, .. } = self.kind;
        if marks && !self.generation.attempts.values().any(|attempt| attempt.sending) {
            return Some("in doubt, but no attempt came as far as `sent`".to_owned());
        }
        // Where a living owner can be superseded, its proof may come too late, and the doubt rightly stays.
        let in_time = self.kind.in_doubt != InDoubt::Probe && (self.kind.holds() || !self.kind.can_lose_its_lease());
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

/// Running is wrong once every owner is gone. Where the ledger cannot know that they are, a claim runs on, but not for longer than
/// the lease that its owner can have written last.
fn runs_without_owner(kind: IntentKind, until: i64, gone: i64) -> Option<String> {
    if !kind.times.leases_outlive_owners {
        return Some("the ledger says running, but every owner is gone".to_owned());
    }
    let last = gone + millis(kind.times.in_flight) + millis(kind.lease());
    (until > last).then(|| {
        format!("the ledger says running until {until}, but every owner is gone since {gone}, and leases end by {last}")
    })
}

fn value(outcome: &Outcome) -> Result<String, String> {
    match &outcome.body {
        Body::Kept(bytes) => {
            serde_json::from_slice(bytes).map_err(|error| format!("the outcome is not a text: {error}"))
        }
        Body::TooLarge { .. } => Err("the outcome is not kept".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Attempt;
    use super::super::plan::RunPlan;
    use super::*;

    fn kind(is: impl Fn(IntentKind) -> bool) -> IntentKind {
        (0..100_000).map(|intent| RunPlan::of(1, None).kind(intent)).find(|kind| is(*kind)).unwrap()
    }

    /// A generation with one attempt that began, went as far as `change` says, and was killed or ended.
    fn violations(kind: IntentKind, standing: Option<Status>, change: impl Fn(&mut Attempt)) -> Vec<String> {
        let mut attempt = Attempt {
            nonce: "a".to_owned(),
            asked: 1,
            tried: 1,
            until: 1,
            sending: false,
            sent: false,
            sent_by: None,
            effect: None,
            evaded_probe: false,
            ended: None,
            told: false,
        };
        change(&mut attempt);
        let mut generation = Generation { created: 1, ..Generation::default() };
        generation.attempts.insert(1, attempt);
        View { generation: &generation, kind, left: 0, asked: 10, attempts: 1 }.violations(standing)
    }

    #[test]
    fn an_effect_without_an_outcome_stays_visible() {
        let hold = kind(|kind| kind.holds() && !kind.marks && !kind.brief);
        for standing in [Some(Status::Done), Some(Status::InDoubt)] {
            assert!(violations(hold, standing, |attempt| attempt.effect = Some(2)).is_empty(), "{standing:?}");
        }
        for standing in [None, Some(Status::Open), Some(Status::Tombstone), Some(Status::Dead), Some(Status::Queued)] {
            assert_eq!(violations(hold, standing, |attempt| attempt.effect = Some(2)).len(), 1, "{standing:?}");
        }
    }

    #[test]
    fn what_died_before_sent_is_open_and_not_in_doubt() {
        let marks = kind(|kind| kind.holds() && kind.marks && !kind.brief);
        assert!(violations(marks, Some(Status::Open), |_| ()).is_empty());
        assert!(!violations(marks, Some(Status::InDoubt), |_| ()).is_empty());
        // Killed while the mark was written, it may be either.
        assert!(violations(marks, Some(Status::Open), |attempt| attempt.sending = true).is_empty());
        assert!(violations(marks, Some(Status::InDoubt), |attempt| attempt.sending = true).is_empty());
        assert!(!violations(marks, Some(Status::Open), |attempt| attempt.sent = true).is_empty());
    }

    #[test]
    fn a_proof_that_the_ledger_has_acknowledged_leaves_no_doubt() {
        let hold = kind(|kind| kind.holds() && !kind.marks && !kind.brief);
        let release =
            |told| move |attempt: &mut Attempt| (attempt.ended, attempt.told) = (Some((Ending::Release, 5)), told);
        assert!(violations(hold, Some(Status::Open), release(true)).is_empty());
        assert!(!violations(hold, Some(Status::InDoubt), release(true)).is_empty());
        // Killed before the ledger had the proof.
        assert!(violations(hold, Some(Status::InDoubt), release(false)).is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn on_a_file_nothing_runs_when_every_owner_is_dead() {
        assert!(runs_without_owner(kind(|kind| !kind.brief), 1, 1).is_some());
    }

    #[test]
    fn on_a_server_a_claim_ends_with_the_last_lease_of_its_owner() {
        let kind = RunPlan::of(1, Some("redis:")).kind(1000);
        let last = 1 + millis(kind.times.in_flight) + millis(kind.lease());
        assert_eq!(runs_without_owner(kind, last, 1), None);
        assert!(runs_without_owner(kind, last + 1, 1).is_some());
    }
}
