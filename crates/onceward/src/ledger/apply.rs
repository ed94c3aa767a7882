//! Applies a command: decide, make the one conditional write, and decide again when the record has changed meanwhile.

use onceward_core::decide::{Command, CommandResult, Refusal, Transition, Undelivered, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::record::{Draft, Record, Seen, State};
use onceward_core::time::Timestamp;

use super::Inner;
use super::pull::LEASES;
use crate::error::Error;
use crate::plant::{Plant, planted};
use crate::store::{self, AuditEvent, EventKind, Inserted, Replace, Replaced};

/// A conflict means that another caller has changed the same record. No caller loses this often in a row unless the store
/// misbehaves.
const MAX_CONFLICTS: usize = 64;

/// What applying a command led to.
pub(super) struct Applied {
    pub(super) answer: CommandResult,
    /// The record as it is after the write.
    pub(super) written: Option<Seen>,
    /// The record as it was found, if there was nothing to write.
    pub(super) found: Option<Seen>,
}

/// Why a command was not applied.
pub(super) enum ApplyError {
    Store(store::Error),
    Contended,
    /// A transaction of another program holds the key that is to be claimed.
    Undecided,
    /// The tenant has as many records as it may have, which is this many.
    QuotaReached(u64),
}

impl ApplyError {
    /// The error for a caller, about this intent.
    pub(super) fn about(self, intent: String) -> Error {
        match self {
            Self::Store(error) => Error::Store(error),
            Self::Contended | Self::Undecided => Error::Contended { intent },
            Self::QuotaReached(most) => Error::Quota { intent, most },
        }
    }
}

impl From<store::Error> for ApplyError {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl Inner {
    /// Applies a command to a record that was last seen as `seen`. The write holds only if the record has not changed since.
    pub(super) async fn apply(
        &self,
        mut seen: Option<Seen>,
        command: &Command,
        event: Option<AuditEvent>,
    ) -> Result<Applied, ApplyError> {
        for _ in 0..MAX_CONFLICTS {
            // Taken apart before anything is awaited: whatever lives across an await is part of every future around this
            // one, and is moved with it.
            let Transition { archive, write, answer } = decide(seen.as_ref(), command);
            let (draft, last) = match write {
                Write::Insert(draft) => (Some(draft), None),
                Write::Replace(draft) => (seen.is_some().then_some(draft), seen.as_ref().map(|seen| &seen.record)),
                Write::None | Write::Remove => (None, None),
            };
            if let Some(archive) = archive
                && let Some(refused) = Box::pin(self.archive(archive)).await?
            {
                return Ok(*refused);
            }
            let Some(draft) = draft else { return Ok(Applied { answer, written: None, found: seen }) };
            seen = match last {
                None => match self.store.insert(draft.clone(), self.quota_for(command)).await? {
                    Inserted::Created { now } => return Ok(Applied::written(answer, draft.stamp(now), now)),
                    Inserted::Exists(seen) => Some(*seen),
                    Inserted::Full => {
                        return Err(ApplyError::QuotaReached(self.records_per_tenant.unwrap_or_default()));
                    }
                    Inserted::Undecided => return Err(undecided(command)),
                },
                Some(last) => match self.store.replace(replace(last, &draft, event.as_ref(), command)).await? {
                    Replaced::Written { now } => return Ok(Applied::written(answer, draft.stamp(now), now)),
                    Replaced::Conflict(seen) => seen.map(|seen| *seen),
                    Replaced::Undecided => return Err(undecided(command)),
                },
            };
        }
        Err(ApplyError::Contended)
    }

    /// Applies a command to the record as it was seen, and only to that: nothing is decided again if it has changed.
    pub(super) async fn apply_once(&self, seen: Seen, command: &Command) -> Result<Applied, ApplyError> {
        let Transition { write, answer, .. } = decide(Some(&seen), command);
        let Write::Replace(mut draft) = write else { return Ok(Applied { answer, written: None, found: Some(seen) }) };
        spoil(&mut draft, command);
        match self.store.replace(replace(&seen.record, &draft, None, command)).await? {
            Replaced::Written { now } => Ok(Applied::written(answer, draft.stamp(now), now)),
            Replaced::Conflict(_) | Replaced::Undecided => {
                Ok(Applied { answer: CommandResult::Refused(Refusal::Changed), written: None, found: None })
            }
        }
    }

    /// Applies a command to the record with this id, which is read first.
    pub(super) async fn apply_by_id(
        &self,
        id: Digest,
        command: &Command,
        event: Option<AuditEvent>,
    ) -> Result<Applied, ApplyError> {
        let seen = self.store.get(id).await?;
        self.apply(seen, command, event).await
    }

    /// How many records the tenant may have for this command to create one. An archived item is finished work and is kept
    /// in any case. Workers lease entries, and so make room, although the tenant has as many records as it may have.
    fn quota_for(&self, command: &Command) -> Option<u64> {
        match command {
            Command::Archive(_) => None,
            Command::Begin(begin) if begin.identity.operation.as_str() == LEASES => None,
            _ => self.records_per_tenant,
        }
    }

    /// Puts the item that a write is about to overwrite into a record of its own. A crash in between leaves both records
    /// sound. If the archive is refused, the refusal is returned.
    async fn archive(&self, archive: Box<Draft>) -> Result<Option<Box<Applied>>, ApplyError> {
        let archived = Box::pin(self.apply(None, &Command::Archive(archive), None)).await?;
        Ok(if archived.answer == CommandResult::Accepted { None } else { Some(Box::new(archived)) })
    }

    /// After a write by an owner: caches an outcome, and wakes the callers that wait for the end of the work.
    pub(super) fn after_owner_write(&self, record: &Record) {
        self.cache.keep(record);
        if !matches!(record.state, State::Leased(_)) {
            self.waiters.wake(&record.id);
        }
    }
}

/// A transaction of another program holds the key. To a caller that is work in flight; an owner tries its write again.
fn undecided(command: &Command) -> ApplyError {
    if matches!(command, Command::Begin(_) | Command::BeginItem(_)) {
        return ApplyError::Undecided;
    }
    let why = "a transaction of another program holds the record and has not ended";
    ApplyError::Store(store::Error::Unreachable(why.to_owned()))
}

fn replace(last: &Record, draft: &Draft, event: Option<&AuditEvent>, command: &Command) -> Replace {
    let event = event.cloned().or_else(|| audit_event(last, command));
    // If this write is lost in a crash, it is as if the answer had not arrived: an equal call gets it and does not run.
    let may_wait = matches!(command, Command::Delivered { arrived: true, .. });
    Replace { event, may_wait, ..Replace::of(last, draft.clone()) }
}

/// The audit entry that a command makes by itself. A probe that found nothing clears the doubt, so an effect that shows up
/// later is a second one: only the audit trail still says why the work was done again.
fn audit_event(last: &Record, command: &Command) -> Option<AuditEvent> {
    if let Command::Undelivered(end) = command
        && !planted(Plant::AttemptNotAudited)
    {
        return Some(attempt_event(last, end));
    }
    let Command::NotFound { .. } = command else { return None };
    let since = last.doubt_since.map(|since| format!("of an attempt in doubt since {since}"));
    Some(AuditEvent { what: EventKind::ProbeFoundNothing, by: None, token: None, note: since })
}

/// The planted bugs in how a courier takes an entry.
fn spoil(draft: &mut Draft, command: &Command) {
    let Command::Lease(call) = command else { return };
    if planted(Plant::AttemptNotCounted) {
        draft.attempts = draft.attempts.saturating_sub(1);
    }
    if planted(Plant::SinkChangedInDoubt)
        && let Some(entry) = &mut draft.entry
    {
        entry.destination = Some(call.destination.clone());
    }
}

/// The audit entry of an attempt that did not deliver an entry: the record itself only keeps the last error.
fn attempt_event(last: &Record, end: &Undelivered) -> AuditEvent {
    let what = match end.may_have_happened {
        true => EventKind::AttemptUnknown,
        false => EventKind::AttemptFailed,
    };
    let sink = last.entry.as_ref().and_then(|entry| entry.destination.as_ref()).map(|to| to.sink.as_str());
    let error = end.error.as_deref().unwrap_or("no error was given");
    let note = format!("attempt {} to {}: {error}", last.attempts, sink.unwrap_or("an unknown sink"));
    AuditEvent { what, by: None, token: None, note: Some(note) }
}

impl Applied {
    fn written(answer: CommandResult, record: Record, now: Timestamp) -> Self {
        Self { answer, written: Some(Seen { record, now, owner_gone: false }), found: None }
    }
}
