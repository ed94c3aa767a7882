//! A store in front of the real one. It notes what the ledger writes and is told, and holds every call of a process that
//! has stopped. So a kill can be put before or after any write of any store, without a hook in the ledger.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use onceward_core::hash::Digest;
use onceward_core::name::Tenant;
use onceward_core::outcome::Verdict;
use onceward_core::record::{Draft, Fence, Lease, Owner, Phase, Seen, Standing, State};
use onceward_core::time::{Timestamp, When};

use super::life::{Gone, Life};
use super::log::{Claimed, Event, Log, Told};
use super::step::{Moment, Side, Step};
use crate::store::{Counts, Cursor, Entry, Error, Filter, Inserted, Page, Purged, Replace, Replaced, Store};

/// On a store whose clock cannot be set, a process that is about to die takes its leases for no longer than this, so
/// that nobody has to wait until they are over. It is alone at the time, so nobody can take them from it too early.
pub(super) const SHORT_LEASE: Duration = Duration::from_millis(1);

/// The store as one call of the tool sees it.
#[derive(Debug)]
pub(super) struct Watched {
    real: Arc<dyn Store>,
    life: Arc<Life>,
    log: Arc<Log>,
    call: usize,
    shortens: bool,
    /// The claims of this call: their phase, and whether there is a doubt.
    claims: Mutex<HashMap<Fence, (Phase, bool)>>,
}

impl Watched {
    pub(super) fn new(real: Arc<dyn Store>, life: Arc<Life>, log: Arc<Log>, call: usize, shortens: bool) -> Self {
        Self { real, life, log, call, shortens, claims: Mutex::default() }
    }

    fn note(&self, event: Event) {
        self.log.add(self.call, event);
    }

    /// What a write means, if it is one at which a process may be stopped.
    fn moment(&self, draft: &Draft, last: Option<Fence>) -> Option<Moment> {
        match &draft.state {
            State::Leased(lease) if last != Some(lease.fence) => Some(Moment::Claim),
            State::Leased(lease) => {
                let claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
                let (phase, doubted) = claims.get(&lease.fence).copied()?;
                let is_marked = phase == Phase::Claimed && lease.phase == Phase::Sent;
                let is_settled = doubted && draft.doubt_since.is_none();
                // Anything else is a renewal, which comes at no certain time.
                is_marked.then_some(Moment::Sent).or(is_settled.then_some(Moment::NotFound))
            }
            State::Done { .. } => Some(Moment::Outcome),
            State::Open { .. } => Some(Moment::Release),
            State::InDoubt { .. } => Some(Moment::Doubt),
            State::Queued { .. } | State::Tombstone { .. } | State::Dead => None,
        }
    }

    /// Remembers what was written.
    fn written(&self, draft: &Draft, moment: Option<Moment>) {
        if let State::Leased(lease) = &draft.state {
            let mut claims = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
            claims.insert(lease.fence, (lease.phase, draft.doubt_since.is_some()));
        }
        if let Some(wait) = wait(&draft.state) {
            self.log.waits(wait);
        }
        let event = match moment {
            Some(Moment::Claim) => Event::Claimed(claimed(draft)),
            Some(Moment::Sent) => Event::Marked,
            Some(Moment::NotFound) => Event::NotFound,
            Some(Moment::Outcome) => Event::Recorded,
            Some(Moment::Release) => Event::Released,
            Some(Moment::Doubt) => Event::Doubted,
            Some(Moment::Effect) | None => return,
        };
        self.note(event);
    }

    fn told(&self, seen: &Seen) {
        let told = match seen.standing() {
            Some(Standing::Running { .. } | Standing::Open { .. }) => Told::InFlight,
            Some(Standing::InDoubt { .. }) => Told::InDoubt,
            Some(Standing::Done) => match &seen.record.state {
                State::Done { outcome, .. } if outcome.verdict == Verdict::Failure => Told::DoneFailed,
                _ => Told::Done,
            },
            _ => Told::Other,
        };
        self.note(Event::Told(told));
    }

    fn shortened(&self, mut draft: Draft) -> Draft {
        if let (true, State::Leased(Lease { until: When::In(lease), .. })) = (self.shortens, &mut draft.state) {
            *lease = SHORT_LEASE.min(*lease);
        }
        draft
    }

    async fn come_by(&self, side: Side, moment: Option<Moment>, draft: &Draft) -> Result<(), Error> {
        match moment {
            Some(moment) => Ok(self.life.pass(Step::new(side, moment, &operation(draft))).await?),
            None => Ok(self.life.go_on().await?),
        }
    }
}

/// How long nobody else may take the record.
fn wait(state: &State<When>) -> Option<Duration> {
    match state {
        State::Leased(Lease { until: When::In(wait), .. }) | State::Open { not_before: When::In(wait) } => Some(*wait),
        _ => None,
    }
}

fn operation(draft: &Draft) -> String {
    draft.identity.as_ref().map(|identity| identity.operation.to_string()).unwrap_or_default()
}

fn claimed(draft: &Draft) -> Claimed {
    let key = draft.identity.as_ref().map(|identity| identity.key.as_str().to_owned());
    Claimed {
        id: draft.id,
        operation: operation(draft),
        key: key.unwrap_or_default(),
        marks_sent: matches!(&draft.state, State::Leased(lease) if lease.phase == Phase::Claimed),
        over_doubt: draft.doubt_since.is_some(),
        in_doubt: draft.terms.in_doubt,
    }
}

impl From<Gone> for Error {
    fn from(Gone: Gone) -> Self {
        Self::Closed
    }
}

#[async_trait]
impl Store for Watched {
    async fn insert(&self, draft: Draft, most: Option<u64>) -> Result<Inserted, Error> {
        let _work = self.life.work();
        self.note(Event::Asked);
        let draft = self.shortened(draft);
        let moment = self.moment(&draft, None);
        self.come_by(Side::Before, moment, &draft).await?;
        let answer = self.real.insert(draft.clone(), most).await?;
        match &answer {
            Inserted::Created { .. } => {
                self.written(&draft, moment);
                self.come_by(Side::After, moment, &draft).await?;
            }
            Inserted::Exists(seen) => {
                self.told(seen);
                self.life.go_on().await?;
            }
            Inserted::Full => self.life.go_on().await?,
        }
        Ok(answer)
    }

    async fn replace(&self, replace: Replace) -> Result<Replaced, Error> {
        let _work = self.life.work();
        self.note(Event::Asked);
        let replace = Replace { draft: self.shortened(replace.draft), ..replace };
        let draft = replace.draft.clone();
        let moment = self.moment(&draft, replace.fence);
        self.come_by(Side::Before, moment, &draft).await?;
        let answer = self.real.replace(replace).await?;
        match &answer {
            Replaced::Written { .. } => {
                self.written(&draft, moment);
                self.come_by(Side::After, moment, &draft).await?;
            }
            Replaced::Conflict(seen) => {
                if moment == Some(Moment::Sent) {
                    self.note(Event::MarkLost);
                }
                if let Some(seen) = seen {
                    self.told(seen);
                }
                self.life.go_on().await?;
            }
        }
        Ok(answer)
    }

    async fn get(&self, id: Digest) -> Result<Option<Seen>, Error> {
        let _work = self.life.work();
        self.note(Event::Asked);
        self.life.go_on().await?;
        let seen = self.real.get(id).await?;
        if let Some(seen) = &seen {
            self.told(seen);
        }
        self.life.go_on().await?;
        Ok(seen)
    }

    async fn purge(&self, limit: usize) -> Result<Purged, Error> {
        self.life.go_on().await?;
        self.real.purge(limit).await
    }

    async fn list(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Result<Page, Error> {
        self.life.go_on().await?;
        self.real.list(filter, after, limit).await
    }

    async fn counts(&self, tenant: Option<&Tenant>) -> Result<Counts, Error> {
        self.life.go_on().await?;
        self.real.counts(tenant).await
    }

    async fn append(&self, id: Digest, event: crate::store::Event) -> Result<(), Error> {
        let _work = self.life.work();
        self.life.go_on().await?;
        self.real.append(id, event).await
    }

    async fn trail(&self, id: Digest) -> Result<Vec<Entry>, Error> {
        self.life.go_on().await?;
        self.real.trail(id).await
    }

    fn owner(&self) -> Option<Owner> {
        self.real.owner()
    }

    fn now(&self) -> Option<Timestamp> {
        self.real.now()
    }

    /// A tool that closes its ledger closes its own handle; the other processes of the scenario have theirs.
    async fn close(&self) {}
}
