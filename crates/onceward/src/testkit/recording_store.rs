//! A store in front of the real one. It logs what the ledger writes and reads, and blocks every call of a stopped process. So a
//! scenario can kill a process before or after any write of any store, without a hook in the ledger.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use onceward_core::hash::Digest;
use onceward_core::name::Tenant;
use onceward_core::outcome::Verdict;
use onceward_core::record::{Draft, Fence, Lease, Owner, Phase, Seen, Standing, State};
use onceward_core::time::{Timestamp, When};

use super::process::{Process, ProcessEnded};
use super::scenario_log::{ClaimGranted, LogEvent, ScenarioLog, SeenStatus};
use super::step::{Side, Step, StepKind};
use crate::store::{
    AuditEntry, Counts, Cursor, DueEntries, DueQuery, Error, Filter, Inserted, Page, Purged, Replace, Replaced, Store,
};

/// The longest lease of a process that is about to die, on a store whose clock cannot be set, so that the scenario need not wait
/// for it to lapse. No other process runs at the time, so none can take the claim over too early.
pub(super) const SHORT_LEASE: Duration = Duration::from_millis(1);

/// The store as one call of the tool sees it.
#[derive(Debug)]
pub(super) struct RecordingStore {
    real: Arc<dyn Store>,
    process: Arc<Process>,
    log: Arc<ScenarioLog>,
    call: usize,
    shortens_leases: bool,
    /// The claims of this call: their phase, and whether they are in doubt.
    claims: Mutex<HashMap<Fence, (Phase, bool)>>,
}

impl RecordingStore {
    pub(super) fn new(
        real: Arc<dyn Store>,
        process: Arc<Process>,
        log: Arc<ScenarioLog>,
        call: usize,
        shortens_leases: bool,
    ) -> Self {
        Self { real, process, log, call, shortens_leases, claims: Mutex::default() }
    }

    fn note(&self, event: LogEvent) {
        self.log.add(self.call, event);
    }

    /// The step that a write is, if a process may be stopped at it.
    fn step_kind(&self, draft: &Draft, last: Option<Fence>) -> Option<StepKind> {
        match &draft.state {
            State::Leased(lease) if last != Some(lease.fence) => Some(StepKind::Claim),
            State::Leased(lease) => {
                let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
                let (phase, doubted) = claims.get(&lease.fence).copied()?;
                let is_marked = phase == Phase::Claimed && lease.phase == Phase::Sent;
                let is_settled = doubted && draft.doubt_since.is_none();
                // Anything else is a renewal, which happens at unpredictable times.
                is_marked.then_some(StepKind::Sent).or(is_settled.then_some(StepKind::NotFound))
            }
            State::Done { .. } => Some(StepKind::Outcome),
            State::Open { .. } => Some(StepKind::Release),
            State::InDoubt { .. } => Some(StepKind::Doubt),
            State::Queued { .. } | State::Tombstone { .. } | State::Dead => None,
        }
    }

    /// Logs a write.
    fn log_write(&self, draft: &Draft, kind: Option<StepKind>) {
        if let State::Leased(lease) = &draft.state {
            let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
            claims.insert(lease.fence, (lease.phase, draft.doubt_since.is_some()));
        }
        if let Some(wait) = wait(&draft.state) {
            self.log.add_wait(wait);
        }
        let event = match kind {
            Some(StepKind::Claim) => LogEvent::Claimed(claim_granted(draft)),
            Some(StepKind::Sent) => LogEvent::Marked,
            Some(StepKind::NotFound) => LogEvent::NotFound,
            Some(StepKind::Outcome) => LogEvent::Recorded,
            Some(StepKind::Release) => LogEvent::Released,
            Some(StepKind::Doubt) => LogEvent::Doubted,
            Some(StepKind::Effect) | None => return,
        };
        self.note(event);
    }

    fn log_read(&self, seen: &Seen) {
        let status = match seen.standing() {
            Some(Standing::Running { .. } | Standing::Open { .. }) => SeenStatus::InFlight,
            Some(Standing::InDoubt { .. }) => SeenStatus::InDoubt,
            Some(Standing::Done) => match &seen.record.state {
                State::Done { outcome, .. } if outcome.verdict == Verdict::Failure => SeenStatus::DoneFailed,
                _ => SeenStatus::Done,
            },
            _ => SeenStatus::Other,
        };
        self.note(LogEvent::Seen(status));
    }

    fn shortened(&self, mut draft: Draft) -> Draft {
        if let (true, State::Leased(Lease { until: When::In(lease), .. })) = (self.shortens_leases, &mut draft.state) {
            *lease = SHORT_LEASE.min(*lease);
        }
        draft
    }

    async fn pass_step(&self, side: Side, kind: Option<StepKind>, draft: &Draft) -> Result<(), Error> {
        match kind {
            Some(kind) => Ok(self.process.pass(Step::new(side, kind, &operation(draft))).await?),
            None => Ok(self.process.wait_while_stopped().await?),
        }
    }
}

/// How long no other call can claim the record.
fn wait(state: &State<When>) -> Option<Duration> {
    match state {
        State::Leased(Lease { until: When::In(wait), .. }) | State::Open { not_before: When::In(wait) } => Some(*wait),
        _ => None,
    }
}

fn operation(draft: &Draft) -> String {
    draft.identity.as_ref().map(|identity| identity.operation.to_string()).unwrap_or_default()
}

fn claim_granted(draft: &Draft) -> ClaimGranted {
    let key = draft.identity.as_ref().map(|identity| identity.key.as_str().to_owned());
    ClaimGranted {
        id: draft.id,
        operation: operation(draft),
        key: key.unwrap_or_default(),
        marks_sent: matches!(&draft.state, State::Leased(lease) if lease.phase == Phase::Claimed),
        over_doubt: draft.doubt_since.is_some(),
        in_doubt: draft.terms.in_doubt,
    }
}

impl From<ProcessEnded> for Error {
    fn from(ProcessEnded: ProcessEnded) -> Self {
        Self::Closed
    }
}

#[async_trait]
impl Store for RecordingStore {
    async fn insert(&self, draft: Draft, max_records: Option<u64>) -> Result<Inserted, Error> {
        let _call = self.process.store_call();
        self.note(LogEvent::StoreCalled);
        let draft = self.shortened(draft);
        let kind = self.step_kind(&draft, None);
        self.pass_step(Side::Before, kind, &draft).await?;
        let result = self.real.insert(draft.clone(), max_records).await?;
        match &result {
            Inserted::Created { .. } => {
                self.log_write(&draft, kind);
                self.pass_step(Side::After, kind, &draft).await?;
            }
            Inserted::Exists(seen) => {
                self.log_read(seen);
                self.process.wait_while_stopped().await?;
            }
            Inserted::Full | Inserted::Undecided => self.process.wait_while_stopped().await?,
        }
        Ok(result)
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let _call = self.process.store_call();
        self.note(LogEvent::StoreCalled);
        let replace = Replace { draft: self.shortened(replace.draft), ..replace };
        let draft = replace.draft.clone();
        let kind = self.step_kind(&draft, replace.fence);
        self.pass_step(Side::Before, kind, &draft).await?;
        let result = self.real.replace(replace).await?;
        match &result {
            Replaced::Written { .. } => {
                self.log_write(&draft, kind);
                self.pass_step(Side::After, kind, &draft).await?;
            }
            Replaced::Conflict(seen) => {
                if kind == Some(StepKind::Sent) {
                    self.note(LogEvent::MarkLost);
                }
                if let Some(seen) = seen {
                    self.log_read(seen);
                }
                self.process.wait_while_stopped().await?;
            }
            Replaced::Undecided => self.process.wait_while_stopped().await?,
        }
        Ok(result)
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        let _call = self.process.store_call();
        self.note(LogEvent::StoreCalled);
        self.process.wait_while_stopped().await?;
        let seen = self.real.get(id).await?;
        if let Some(seen) = &seen {
            self.log_read(seen);
        }
        self.process.wait_while_stopped().await?;
        Ok(seen)
    }

    async fn due(&self, queue: &DueQuery) -> Result<DueEntries, Error> {
        self.process.wait_while_stopped().await?;
        self.real.due(queue).await
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.process.wait_while_stopped().await?;
        self.real.purge(limit).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.process.wait_while_stopped().await?;
        self.real.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        self.process.wait_while_stopped().await?;
        self.real.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: crate::store::AuditEvent) -> Result<(), Error> {
        let _call = self.process.store_call();
        self.process.wait_while_stopped().await?;
        self.real.append(id, event).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<AuditEntry>, Error> {
        self.process.wait_while_stopped().await?;
        self.real.trail(id).await
    }

    fn owner(&self) -> Option<Owner> {
        self.real.owner()
    }

    fn now(&self) -> Option<Timestamp> {
        self.real.now()
    }

    /// Does nothing: a tool that closes its ledger must not close the store of the other processes of the scenario.
    async fn close(&self) {}
}
