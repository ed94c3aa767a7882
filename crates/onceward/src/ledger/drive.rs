//! Decide, make the one conditional write, and decide again when the record was another by then.

use onceward_core::decide::{Answer, Command, Transition, Write, decide};
use onceward_core::hash::Digest;
use onceward_core::record::{Draft, Record, Seen, State};

use super::Inner;
use crate::error::Error;
use crate::store::{self, Event, Inserted, Replace, Replaced, What};

/// A conflict means that somebody else got on with the same record. Nobody loses this often in a row unless
/// the store misbehaves.
const MOST_CONFLICTS: usize = 64;

/// What came of a command.
pub(super) struct Driven {
    pub(super) answer: Answer,
    /// The record as it is after this command's write.
    pub(super) written: Option<Seen>,
    /// The record as it was found, if nothing was to be written.
    pub(super) found: Option<Seen>,
}

/// Why a command came to nothing.
pub(super) enum Stuck {
    Store(store::Error),
    Contended,
    /// The tenant has as many records as it may have, which is this many.
    Full(u64),
}

impl Stuck {
    /// The same for a caller, about this intent.
    pub(super) fn about(self, intent: String) -> Error {
        match self {
            Self::Store(error) => Error::Store(error),
            Self::Contended => Error::Contended { intent },
            Self::Full(most) => Error::Quota { intent, most },
        }
    }
}

impl From<store::Error> for Stuck {
    fn from(error: store::Error) -> Self {
        Self::Store(error)
    }
}

impl Inner {
    /// Carries a command out on a record of which `seen` is the last that is known. Nothing is acted on that
    /// was merely read: the write holds only if the record is still that one.
    pub(super) async fn drive(
        &self,
        mut seen: Option<Seen>,
        command: &Command,
        event: Option<Event>,
    ) -> Result<Driven, Stuck> {
        for _ in 0..MOST_CONFLICTS {
            // Taken apart before anything is waited for: whatever lives on meanwhile is a part of every future around this
            // one, and is moved with it.
            let Transition { archive, write, answer } = decide(seen.as_ref(), command);
            let (draft, last) = match write {
                Write::Insert(draft) => (Some(draft), None),
                Write::Replace(draft) => (seen.is_some().then_some(draft), seen.as_ref().map(|seen| &seen.record)),
                Write::None | Write::Remove => (None, None),
            };
            if let Some(archive) = archive
                && let Some(other) = Box::pin(self.archived(archive)).await?
            {
                return Ok(*other);
            }
            let Some(draft) = draft else { return Ok(Driven { answer, written: None, found: seen }) };
            seen = match last {
                None => match self.store.insert(draft.clone(), self.most_for(command)).await? {
                    Inserted::Created { now } => return Ok(Driven::written(answer, draft.stamp(now), now)),
                    Inserted::Exists(seen) => Some(*seen),
                    Inserted::Full => return Err(Stuck::Full(self.records_per_tenant.unwrap_or_default())),
                },
                Some(last) => match self.store.replace(replace(last, &draft, event.as_ref(), command)).await? {
                    Replaced::Written { now } => return Ok(Driven::written(answer, draft.stamp(now), now)),
                    Replaced::Conflict(seen) => seen.map(|seen| *seen),
                },
            };
        }
        Err(Stuck::Contended)
    }

    /// How many records the tenant may have for this command to make a new one. What is archived is done already and is
    /// kept in any case.
    fn most_for(&self, command: &Command) -> Option<u64> {
        match command {
            Command::Archive(_) => None,
            _ => self.records_per_tenant,
        }
    }

    /// Puts what a write overwrites into a record of its own, before. A crash in between leaves both sound. If that is
    /// refused, what came of it is the answer.
    async fn archived(&self, archive: Box<Draft>) -> Result<Option<Box<Driven>>, Stuck> {
        let archived = Box::pin(self.drive(None, &Command::Archive(archive), None)).await?;
        Ok(if archived.answer == Answer::Accepted { None } else { Some(Box::new(archived)) })
    }

    /// The same for a caller that knows only the id.
    pub(super) async fn drive_by_id(
        &self,
        id: Digest,
        command: &Command,
        event: Option<Event>,
    ) -> Result<Driven, Stuck> {
        let seen = self.store.get(id).await?;
        self.drive(seen, command, event).await
    }
}

impl Inner {
    /// An owner has written this record: an outcome is kept at hand, and whoever waits for the end of the work is woken.
    pub(super) fn wrote(&self, record: &Record) {
        self.cache.keep(record);
        if !matches!(record.state, State::Leased(_)) {
            self.waiters.wake(&record.id);
        }
    }
}

fn replace(last: &Record, draft: &Draft, event: Option<&Event>, command: &Command) -> Replace {
    let event = event.cloned().or_else(|| told_by(last, command));
    // Lost with a crash, it is as if the answer had not arrived: then an equal call is answered and not run.
    let may_wait = matches!(command, Command::Delivered { arrived: true, .. });
    Replace { event, may_wait, ..Replace::of(last, draft.clone()) }
}

/// What a command leaves in the audit trail by itself. A probe that found nothing clears the doubt, and an effect that comes
/// later is then a second one: the trail is the only place that still says why the work was done again.
fn told_by(last: &Record, command: &Command) -> Option<Event> {
    let Command::NotFound { .. } = command else { return None };
    let since = last.doubt_since.map(|since| format!("of an attempt in doubt since {since}"));
    Some(Event { what: What::ProbeFoundNothing, by: None, token: None, note: since })
}

impl Driven {
    fn written(answer: Answer, record: Record, now: onceward_core::time::Timestamp) -> Self {
        Self { answer, written: Some(Seen { record, now, owner_gone: false }), found: None }
    }
}
