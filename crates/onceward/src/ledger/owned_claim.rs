//! A claim as the ledger holds it for its owner in this process: every write of the owner goes through here. Guard, claim
//! and renewal share it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::plant::{Plant, planted};
use onceward_core::decide::{Acquired, Command, CommandResult, decide};
use onceward_core::hash::Digest;
use onceward_core::policy::InDoubt;
use onceward_core::record::{Phase, Seen, State};

use super::apply::{Applied, ApplyError};
use super::guard::WriteResult;
use super::late_report::LateReport;
use super::lease::LostSignal;
use super::{Call, Ledger};
use crate::error::Error;
use crate::store::{self, without_nul};

/// The longest pause between two tries.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(2);

/// The longest error text that a record keeps, in characters: a page is enough for a person.
const MAX_ERROR_LENGTH: usize = 1000;

/// A claim that this process owns.
pub(super) struct OwnedClaim {
    pub(super) ledger: Ledger,
    pub(super) call: Call,
    pub(super) acquired: Acquired,
    /// The record as this owner last wrote it.
    pub(super) last: Arc<Mutex<Seen>>,
    pub(super) marked_sent: AtomicBool,
    pub(super) lost: LostSignal,
    /// The guard has ended, so there is nothing to renew.
    pub(super) guard_ended: AtomicBool,
}

impl OwnedClaim {
    pub(super) fn new(ledger: Ledger, call: &Call, acquired: Acquired, seen: Seen) -> Self {
        ledger.inner.owned.fetch_add(1, Ordering::SeqCst);
        Self {
            ledger,
            call: call.clone(),
            acquired,
            last: Arc::new(Mutex::new(seen)),
            marked_sent: AtomicBool::new(false),
            lost: LostSignal::default(),
            guard_ended: AtomicBool::new(false),
        }
    }

    pub(super) fn last(&self) -> MutexGuard<'_, Seen> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One write of the owner, based on the record as it was last written: nothing is read first.
    pub(super) async fn write(&self, command: &Command) -> Result<WriteResult, Error> {
        self.try_write(command).await.map_err(|error| error.about(self.call.name()))
    }

    pub(super) async fn try_write(&self, command: &Command) -> Result<WriteResult, ApplyError> {
        let last = self.last().clone();
        let id = last.record.id;
        let Applied { answer, written, .. } = self.ledger.inner.apply(Some(last), command, None).await?;
        if let Some(seen) = written {
            self.ledger.inner.after_owner_write(&seen.record);
            let mut last = self.last();
            // A renewal that was overtaken must not bring an older record back.
            if seen.record.version > last.record.version {
                *last = seen;
            }
        }
        match answer {
            CommandResult::Stale { contradicts } => {
                let result = Box::pin(self.report_late(id, command, contradicts)).await?;
                Ok(if planted(Plant::LateOwnerToldWritten) { WriteResult::Written } else { result })
            }
            CommandResult::Accepted | CommandResult::Decision(_) => Ok(WriteResult::Written),
            CommandResult::Refused(_) | CommandResult::Archived => Ok(WriteResult::Stale),
        }
    }

    /// Tries until the store answers, for as long as the lease. A late outcome is still the best news there is.
    pub(super) async fn insist(&self, command: &Command) -> Result<WriteResult, store::Error> {
        let mut pause = Duration::from_millis(20);
        let give_up = Instant::now() + self.call.policy.lease();
        loop {
            match self.try_write(command).await {
                Ok(result) => return Ok(result),
                Err(ApplyError::Store(error)) if Instant::now() >= give_up || error.is_permanent() => {
                    return Err(error);
                }
                Err(ApplyError::Store(error)) => {
                    tracing::warn!(intent = self.call.name(), %error, "an outcome could not be recorded yet");
                }
                // An owner creates no record, so it never meets a quota.
                Err(ApplyError::Contended | ApplyError::Undecided | ApplyError::QuotaReached(_)) => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// The outcome of a superseded owner changes nothing, and is kept in the audit trail.
    async fn report_late(&self, id: Digest, command: &Command, contradicts: bool) -> Result<WriteResult, ApplyError> {
        let Command::Finish { outcome, .. } = command else { return Ok(WriteResult::Stale) };
        let (id, contradicts) = match self.judge_by_item(id, command).await? {
            Some((_, CommandResult::Accepted)) => return Ok(WriteResult::Written),
            Some((id, CommandResult::Stale { contradicts })) => (id, contradicts),
            _ => (id, contradicts),
        };
        let item = self.call.sequence().map(|number| format!("item {number}, ")).unwrap_or_default();
        let owner = format!("{item}attempt {}", self.acquired.attempt);
        let report = LateReport { intent: &self.call.name(), owner, outcome, contradicts, may_repeat: false };
        self.ledger.inner.keep_late_report(id, report).await;
        Ok(WriteResult::Stale)
    }

    /// What the record of an item answers to its late owner. The head may hold another item by now, and then says nothing
    /// about this one.
    async fn judge_by_item(
        &self,
        head: Digest,
        command: &Command,
    ) -> Result<Option<(Digest, CommandResult)>, ApplyError> {
        let Some(item) = &self.call.item else { return Ok(None) };
        let store = &self.ledger.inner.store;
        for id in [item.identity().digest(), head] {
            let seen = store.get(id).await?.filter(|seen| seen.record.sequence == Some(item.number));
            if let Some(seen) = seen {
                return Ok(Some((id, decide(Some(&seen), command).answer)));
            }
        }
        Ok(Some((head, decide(None, command).answer)))
    }

    /// Whether another caller may do the work once the lease has lapsed.
    pub(super) fn may_be_taken_over(&self) -> bool {
        let sent = matches!(&self.last().record.state, State::Leased(lease) if lease.phase != Phase::Claimed);
        !(sent && self.acquired.in_doubt == InDoubt::Hold)
    }
}

impl Drop for OwnedClaim {
    fn drop(&mut self) {
        if self.ledger.inner.owned.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.ledger.inner.none_owned.notify_waiters();
        }
    }
}

pub(super) fn no_answer() -> store::Error {
    store::Error::Unreachable("it does not answer".to_owned())
}

/// An error text as every store keeps it: cut to the length that a record keeps, and without NUL.
pub(super) fn shortened(error: &str) -> String {
    match error.char_indices().nth(MAX_ERROR_LENGTH) {
        Some((end, _)) => format!("{}…", without_nul(&error[..end])),
        None => without_nul(error),
    }
}
