//! A deliberate new run of an entry of the outbox that is done. Reads the finished run and inserts the new one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Again, Decision};
use onceward_core::json::Value;
use onceward_core::name::Identity;
use onceward_core::outbox::RerunLink;
use onceward_core::policy::{Effect, LARGEST_PAYLOAD, Policy};
use onceward_core::record::Record;
use onceward_core::rerun::{GivenPayload, NextRun, RerunReason, RerunRefusal, next_run};

use super::outbox::terms_of_entry;
use super::{Call, Enqueued, Ledger, Resolver};
use crate::error::{Error, Invalid};
use crate::store::{self, AuditEntry, AuditEvent, EventKind, MAX_PAGE_SIZE, without_nul};

/// What a person asks for.
#[derive(Clone, Debug, Default)]
pub struct RerunRequest<'a> {
    /// The payload of the finished run, which it no longer has unless it was told to keep it.
    pub payload: Option<Vec<u8>>,
    /// The session, if the key of the finished run was derived with one.
    pub session: Option<&'a str>,
    /// The person.
    pub who: Resolver<'a>,
    /// Why.
    pub why: &'a str,
}

/// The answer to [`Ledger::rerun`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rerun {
    /// The next run was queued.
    Queued {
        /// Its identity.
        identity: Identity,
        /// Its number.
        run: u32,
    },
    /// The next run is there already. The decision says how it stands: queued, in flight, in doubt, done with its outcome, or dead.
    Existing {
        /// Its identity.
        identity: Identity,
        /// Its number.
        run: u32,
        /// How it stands.
        decision: Decision,
    },
    /// There is no new run.
    Refused(RerunRefusal),
}

impl Ledger {
    /// Queues the run that follows a finished one. Asking again gives the same run: each finished run has one that follows it.
    ///
    /// One insert is enough, although the finished run is read before it: what is done stays done.
    pub async fn rerun(&self, identity: &Identity, request: RerunRequest<'_>) -> Result<Rerun, Error> {
        let home = self.holding(identity).await?;
        let finished = home.inner.store.get(identity.digest()).await?;
        let given = match (request.payload, &finished) {
            (Some(payload), _) if payload.len() > LARGEST_PAYLOAD => {
                return Err(Invalid::LargePayload { size: payload.len() }.into());
            }
            (Some(payload), Some(seen)) => Some(self.given(identity, &seen.record, payload, request.session)),
            _ => None,
        };
        let [by, token] = [request.who.by, request.who.token].map(|text| text.map(without_nul));
        let reason = RerunReason { why: without_nul(request.why), by, token };
        let next = match next_run(identity, finished.as_ref(), given, reason) {
            Ok(next) => next,
            Err(refusal) => return Ok(Rerun::Refused(refusal)),
        };
        let (new, run) = (next.identity.clone(), next.run);
        let policy = self.policy_of(identity);
        if policy.effect == Effect::Transactional {
            return Err(Invalid::Transactional.into());
        }
        let queued = match home.queue_run(policy, next).await {
            Err(Error::Mismatch { .. }) => return Ok(Rerun::Refused(RerunRefusal::OtherPayload)),
            queued => queued?,
        };
        if let Err(error) = home.note_in_finished(identity, &new).await {
            // The new run says the same, and another request adds the note.
            tracing::warn!(%error, intent = %identity, "the audit trail does not show the new run yet");
        }
        Ok(match queued {
            Enqueued::Created => Rerun::Queued { identity: new, run },
            Enqueued::Existing(decision) => Rerun::Existing { identity: new, run, decision },
        })
    }

    /// What the finished run would have been identified by with this payload. A window that is cut from the clock is cut from the time
    /// when it was recorded.
    fn given(&self, identity: &Identity, finished: &Record, payload: Vec<u8>, session: Option<&str>) -> GivenPayload {
        let call = Value::parse(&payload).ok().and_then(|intent| {
            let mut call = self.operation(identity.operation.as_str()).tenant(identity.tenant.as_str());
            if finished.key_digest.is_none() {
                call = call.key(identity.key.as_str());
            }
            if let Some(session) = session {
                call = call.session(session);
            }
            call.intent_value(intent).call_at(finished.created_at).ok()
        });
        GivenPayload { bytes: payload.into(), identified: call.map(|call| (call.key_digest, call.fingerprint)) }
    }

    async fn queue_run(&self, policy: Arc<Policy>, next: NextRun) -> Result<Enqueued, Error> {
        let terms = next.terms(terms_of_entry(&policy));
        let NextRun { identity, key_digest, fingerprint, payload, entry, .. } = next;
        let key_digest = Some(key_digest);
        let call = Call { identity, key_digest, fingerprint, policy, item: None, again: Again::default() };
        self.queue(&call, terms, payload, entry, Duration::ZERO).await
    }

    /// Adds the new run to the audit trail of the finished one, unless it is there. Two requests at once may both add it; see
    /// [`with_reruns`].
    async fn note_in_finished(&self, finished: &Identity, new: &Identity) -> Result<(), store::Error> {
        let store = &self.inner.store;
        let Some(seen) = store.get(new.digest()).await? else { return Ok(()) };
        let Some(link) = seen.record.entry.and_then(|entry| entry.rerun) else { return Ok(()) };
        let note = format!("run {}, {}: {}", link.run, new.key.as_str(), link.why);
        let event = event(*link, note);
        let trail = store.trail(finished.digest()).await?;
        // Of a longer trail, only the beginning is known.
        if trail.len() >= MAX_PAGE_SIZE || trail.iter().any(|entry| entry.event == event) {
            return Ok(());
        }
        store.append(finished.digest(), event).await
    }
}

/// The audit trail of a record. That it is a new run of another one is part of the record, so that no crash separates the two.
pub(super) fn with_reruns(record: &Record, trail: Vec<AuditEntry>) -> Vec<AuditEntry> {
    let link = record.entry.as_ref().and_then(|entry| entry.rerun.clone());
    let own = link.zip(record.identity.as_ref()).map(|(link, identity)| {
        let of = Identity { key: link.of.clone(), ..identity.clone() };
        let note = format!("run {} of {of}: {}", link.run, link.why);
        AuditEntry { at: record.created_at, event: event(*link, note) }
    });
    let mut reruns = HashSet::new();
    let is_new = |entry: &AuditEntry| entry.event.what != EventKind::Rerun || reruns.insert(entry.event.clone());
    own.into_iter().chain(trail).filter(is_new).collect()
}

fn event(link: RerunLink, note: String) -> AuditEvent {
    AuditEvent { what: EventKind::Rerun, by: link.by, token: link.token, note: Some(note) }
}
