//! Moves a whole ledger from one store to another: seals the source, waits for its owners, copies every record with its audit
//! trail, verifies the copy, and only then opens the target.
//!
//! The marks in the two stores say how far a copy has come, so that it can be continued after a crash at any point:
//!
//! | source | target | what was done last |
//! |---|---|---|
//! | open | receiving | the target was reserved |
//! | draining | receiving | new claims are refused |
//! | sealed | receiving | every write is refused; pages are copied |
//! | moved | receiving | the copy was verified |
//! | moved | received | the target was opened |
//!
//! The target is opened last: a claim on it before all records have arrived would run finished work again. The source is marked
//! as moved before that, so that it cannot be unsealed by mistake while the target is in use.

mod give_up;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Refusal, Resolution};
use onceward_core::name::Operation;
use onceward_core::record::{Standing, Status};
use tokio::time::{Instant, sleep};

pub use self::give_up::{Released, Unsealed, release, unseal};
pub use self::verify::weaker;
use super::{Ledger, Resolved};
use crate::error::Error;
use crate::store::transfer::{Arrival, Departure, Seal, SealSet, Totals, Transfer};
use crate::store::{self, Filter, MAX_PAGE_SIZE, Store};

/// How often the source is asked whether owners are still at work.
const POLL: Duration = Duration::from_millis(250);

/// The longest time that a copy waits for owners unless it is told to wait longer: an operator should then decide.
const LONGEST_DEFAULT_WAIT: Duration = Duration::from_secs(60 * 60);

/// Records on one page: enough that a page costs more than its round trip.
const PAGE: usize = 500;

/// How often a claim that is renewed all the time is put in doubt before the copy gives up.
const FORCE_TRIES: usize = 20;

/// A ledger that takes part in a copy.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its store.
    pub store: Arc<dyn Store>,
    /// Its URL without secrets, for messages and for the mark in the other store.
    pub name: String,
}

impl Side {
    fn transfer(&self) -> Result<&dyn Transfer, CopyError> {
        let refused = || CopyError::Refused(format!("{}: this store cannot be copied", self.name));
        self.store.transfer().ok_or_else(refused)
    }

    async fn set_seal(&self, expected: &Seal, next: Seal) -> Result<Seal, CopyError> {
        match self.transfer()?.set_seal(expected, &next).await? {
            SealSet::Written => Ok(next),
            // Another copy between the same ledgers did the same.
            SealSet::Changed(present) if present == next => Ok(next),
            SealSet::Changed(_) => Err(self.changed_meanwhile()),
            SealSet::NotEmpty => Err(CopyError::Refused(format!(
                "{} has records already: copy into an empty ledger. Nothing was changed",
                self.name
            ))),
        }
    }

    fn changed_meanwhile(&self) -> CopyError {
        CopyError::Refused(format!(
            "another command changed the seal of {} meanwhile: a copy is running or was given up. This command did nothing more; \
             run it again when the other one has ended",
            self.name
        ))
    }
}

/// How to copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How long to wait for owners that are at work. Unless given, as long as the longest of their leases, and at most an hour.
    pub wait: Option<Duration>,
    /// What is still running after that is put in doubt.
    pub force_doubt: bool,
}

/// How far a copy has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyProgress {
    /// Waits for owners.
    Waiting {
        /// How many intents are running; at most a page of them is counted.
        running: usize,
        /// How long it waits for them.
        left: Duration,
    },
    /// Copies records.
    Copying {
        /// How many are in the target, with those that an earlier command copied.
        records: u64,
        /// About how many there are.
        total: u64,
    },
    /// Reads both ledgers and compares them.
    Verifying {
        /// How many records of the target were read.
        records: u64,
        /// About how many there are.
        total: u64,
    },
}

/// A copy that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// What was copied and verified; `None` if an earlier command had finished the copy.
    pub totals: Option<Totals>,
    /// How many running intents were put in doubt.
    pub forced: u64,
}

/// Why a ledger was not copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// A store failed. The copy can be continued.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// An intent could not be put in doubt.
    #[error(transparent)]
    Ledger(#[from] Error),
    /// The stores are in a state in which this copy is not possible.
    #[error("{0}")]
    Refused(String),
    /// Owners are still at work.
    #[error(
        "{running} intents of {from} are still running, so it was not copied. It refuses new claims until you go on. Run the \
         command again to wait longer, with --force-doubt to put them in doubt, or with --unseal to give up"
    )]
    Running {
        /// The source.
        from: String,
        /// How many.
        running: usize,
    },
    /// The target does not hold what the source holds.
    #[error(
        "the copy differs from its source ({source_count} records in {from}, {target_count} in {to}): {to} was not opened, and \
         {from} stays sealed. Give up with --unseal, and copy into an empty ledger"
    )]
    Differs {
        /// The source.
        from: String,
        /// The target.
        to: String,
        /// The records in the source.
        source_count: u64,
        /// The records in the target.
        target_count: u64,
    },
}

/// Copies a ledger, or continues a copy that was interrupted.
pub async fn copy(
    from: &Side,
    to: &Side,
    options: Options,
    progress: &(dyn Fn(CopyProgress) + Sync),
) -> Result<Copied, CopyError> {
    let mover = Mover { from, to, options, progress };
    let (source, target) = (from.transfer()?, to.transfer()?);
    let (source_id, target_id) = (source.ledger_id().await?, target.ledger_id().await?);
    if source_id == target_id {
        return Err(CopyError::Refused(format!(
            "{} and {} are the same ledger, or copies of one file",
            from.name, to.name
        )));
    }
    let (source_seal, target_seal) = (source.seal().await?, target.seal().await?);
    let (departure, arrival) = match source_seal {
        Seal::Receiving(arrival) => {
            let what = format!("a copy of {} into {} has not finished: finish it first", arrival.from, from.name);
            return Err(CopyError::Refused(what));
        }
        Seal::Draining(departure) | Seal::Sealed(departure) | Seal::Moved(departure)
            if departure.target != target_id =>
        {
            let what = format!(
                "{} moves to {} already: copy it there, or give that up with --unseal. Nothing was changed",
                from.name, departure.to
            );
            return Err(CopyError::Refused(what));
        }
        Seal::Moved(departure) => return mover.open_target(&departure, target_seal).await,
        Seal::Draining(departure) | Seal::Sealed(departure) => {
            let arrival = mover.rejoin(&departure, &source_id, target_seal).await?;
            (departure, arrival)
        }
        open @ (Seal::Open | Seal::Received(_)) => mover.reserve(open, source_id, target_id, target_seal).await?,
    };
    match mover.go_on(&departure, &arrival).await {
        Err(error) => mover.unless_finished(&departure, error).await,
        copied => copied,
    }
}

struct Mover<'a> {
    from: &'a Side,
    to: &'a Side,
    options: Options,
    progress: &'a (dyn Fn(CopyProgress) + Sync),
}

impl Mover<'_> {
    async fn go_on(&self, departure: &Departure, arrival: &Arrival) -> Result<Copied, CopyError> {
        let forced = self.drain(departure).await?;
        self.copy_pages(arrival).await?;
        let totals = self.verify().await?;
        self.copy_operations().await?;
        self.from.set_seal(&Seal::Sealed(departure.clone()), Seal::Moved(departure.clone())).await?;
        self.open_target(departure, self.to.transfer()?.seal().await?).await?;
        Ok(Copied { totals: Some(totals), forced })
    }

    /// A step fails if another command has finished the same copy meanwhile: the target may be in use already.
    async fn unless_finished(&self, departure: &Departure, error: CopyError) -> Result<Copied, CopyError> {
        match self.from.transfer()?.seal().await {
            Ok(Seal::Moved(found)) if found == *departure => {
                self.open_target(departure, self.to.transfer()?.seal().await?).await
            }
            _ => Err(error),
        }
    }

    /// The reservation of the target for a copy that has begun.
    async fn rejoin(&self, departure: &Departure, source: &str, target_seal: Seal) -> Result<Arrival, CopyError> {
        match &target_seal {
            Seal::Receiving(arrival) if arrival.token == departure.token => Ok(arrival.clone()),
            // Two commands began at once, and the one that did not seal the source reserved the target last.
            Seal::Receiving(arrival) if arrival.source == source && arrival.after.is_none() => {
                let arrival = Arrival { token: departure.token.clone(), ..arrival.clone() };
                self.to.set_seal(&target_seal, Seal::Receiving(arrival.clone())).await?;
                Ok(arrival)
            }
            _ => Err(CopyError::Refused(format!(
                "{} does not hold the copy that was begun. If another command has just finished it, run this one again; otherwise \
                 give up with `onceward copy --from {} --unseal`",
                self.to.name, self.from.name
            ))),
        }
    }

    /// Reserves the target, then lets the source refuse new claims. A new token keeps a command that was given up, and still
    /// runs, from writing anything more.
    async fn reserve(
        &self,
        open: Seal,
        source: String,
        target: String,
        target_seal: Seal,
    ) -> Result<(Departure, Arrival), CopyError> {
        // A source that accepts no writes, or whose replicas are missing, would be sealed halfway.
        self.from.store.check().await.map_err(|error| match error {
            // It was open a moment ago.
            store::Error::Sealed { .. } => self.from.changed_meanwhile(),
            error => error.into(),
        })?;
        let token = new_token()?;
        match &target_seal {
            Seal::Open => {}
            // Reserved by a command that ended before it sealed the source: nothing has arrived yet.
            Seal::Receiving(arrival) if arrival.source == source && arrival.after.is_none() => {}
            Seal::Receiving(arrival) if arrival.after.is_none() => {
                return Err(CopyError::Refused(format!(
                    "{to} is reserved for a copy of {}: finish that copy, or give it up with `onceward copy --from {} --unseal`; \
                     if that ledger is gone, with `onceward copy --from {to} --unseal`. Nothing was changed",
                    arrival.from,
                    arrival.from,
                    to = self.to.name,
                )));
            }
            Seal::Receiving(arrival) => {
                return Err(CopyError::Refused(format!(
                    "{} holds a part of a copy of {} that was given up: copy into an empty ledger. Nothing was changed",
                    self.to.name, arrival.from
                )));
            }
            Seal::Received(_) | Seal::Draining(_) | Seal::Sealed(_) | Seal::Moved(_) => {
                return Err(CopyError::Refused(format!(
                    "{} is in use or was moved itself: copy into an empty ledger. Nothing was changed",
                    self.to.name
                )));
            }
        }
        let arrival = Arrival { token: token.clone(), from: self.from.name.clone(), source, after: None };
        self.to.set_seal(&target_seal, Seal::Receiving(arrival.clone())).await?;
        let departure = Departure { token, to: self.to.name.clone(), target };
        self.from.set_seal(&open, Seal::Draining(departure.clone())).await?;
        Ok((departure, arrival))
    }

    /// Waits for the owners, and then seals the source. Returns how many intents were put in doubt.
    async fn drain(&self, departure: &Departure) -> Result<u64, CopyError> {
        let transfer = self.from.transfer()?;
        let draining = Seal::Draining(departure.clone());
        if transfer.seal().await? == Seal::Sealed(departure.clone()) {
            return Ok(0);
        }
        let ledger = Ledger::builder().on(Arc::clone(&self.from.store));
        let running = Filter { status: vec![Status::Running], ..Filter::default() };
        let mut until = None;
        let mut forced = 0;
        loop {
            let page = self.from.store.list(&running, None, MAX_PAGE_SIZE).await?;
            if page.listed.is_empty() {
                break;
            }
            let longest = page.listed.iter().map(|listed| match listed.seen.standing() {
                Some(Standing::Running { until }) => listed.seen.now.until(until),
                _ => Duration::ZERO,
            });
            let longest = longest.max().unwrap_or_default().min(LONGEST_DEFAULT_WAIT);
            let default = if self.options.force_doubt { Duration::ZERO } else { longest };
            let wait = self.options.wait.unwrap_or(default);
            let until = *until.get_or_insert_with(|| Instant::now() + wait);
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                (self.progress)(CopyProgress::Waiting { running: page.listed.len(), left });
                sleep(POLL.min(left)).await;
                continue;
            }
            if !self.options.force_doubt {
                return Err(CopyError::Running { from: self.from.name.clone(), running: page.listed.len() });
            }
            for listed in &page.listed {
                forced += u64::from(self.force(&ledger, &listed.seen.record).await?);
            }
        }
        self.from.set_seal(&draining, Seal::Sealed(departure.clone())).await?;
        Ok(forced)
    }

    /// Puts a running intent in doubt, as an operator would. Returns false if it has ended meanwhile.
    async fn force(&self, ledger: &Ledger, record: &onceward_core::record::Record) -> Result<bool, CopyError> {
        let Some(identity) = &record.identity else { return Ok(false) };
        let mut version = record.version;
        for _ in 0..FORCE_TRIES {
            let note = format!("the ledger moves to {}", self.to.name);
            let resolved =
                ledger.resolve(identity, version, Resolution::Force, Some("onceward copy"), Some(&note)).await?;
            match resolved {
                Resolved::Settled => return Ok(true),
                Resolved::Refused(Refusal::Changed) => {}
                Resolved::Refused(_) => return Ok(false),
            }
            // The owner has written meanwhile, for example a renewal.
            match ledger.get(identity).await? {
                Some(intent) => version = intent.seen.record.version,
                None => return Ok(false),
            }
        }
        Err(CopyError::Refused(format!(
            "{identity} changes all the time and cannot be put in doubt; run the command again"
        )))
    }

    async fn copy_pages(&self, arrival: &Arrival) -> Result<(), CopyError> {
        let (source, target) = (self.from.transfer()?, self.to.transfer()?);
        let total = verify::count(&self.from.store).await?;
        let mut after = arrival.after;
        let mut records = if after.is_some() { verify::count(&self.to.store).await? } else { 0 };
        (self.progress)(CopyProgress::Copying { records, total });
        loop {
            let page = source.export(after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.record.id);
            records += page.len() as u64;
            target.import(arrival, page).await?;
            (self.progress)(CopyProgress::Copying { records, total });
        }
    }

    /// The target knows which operations live in it, as the source did.
    async fn copy_operations(&self) -> Result<(), CopyError> {
        let names = self.from.store.operations().await?;
        let names: Vec<_> = names.iter().filter_map(|name| Operation::new(name.as_str()).ok()).collect();
        Ok(self.to.store.claim_operations(&names).await?)
    }

    /// The last step. The source says that the copy was verified.
    async fn open_target(&self, departure: &Departure, target_seal: Seal) -> Result<Copied, CopyError> {
        let done = Copied { totals: None, forced: 0 };
        match &target_seal {
            Seal::Receiving(arrival) if arrival.token == departure.token => {
                self.to.set_seal(&target_seal, Seal::Received(arrival.clone())).await?;
                Ok(done)
            }
            // It may have been moved on since.
            _ => Ok(done),
        }
    }
}

fn new_token() -> Result<String, Error> {
    Ok(super::begin::new_fence()?.into())
}
