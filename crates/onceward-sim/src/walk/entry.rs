//! Random calls of the outbox: several entries are queued, found, taken, tried and settled, and each answer is compared with
//! the oracle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outbox::{AfterAttempt, Destination};
use onceward::core::policy::Retention;
use onceward::core::record::{Seen, State};
use onceward::store::{DueQuery, EventKind};
use onceward::{
    AttemptFailure, EnqueueOptions, Enqueued, Guard, InDoubt, Ledger, Outcome, Policy, Resolution, Resolved, Resolver,
    Taking, WriteResult,
};

use super::entry_oracle::{EntryOracle, MAX_ATTEMPTS, Standing, Take};
use super::oracle::{MEMORY, RUNTIME};
use super::run::BACKGROUND_TIMEOUT;
use super::setup::{Setup, millis};
use crate::rng::Rng;
use crate::seeded::Counts;

/// The entries of a run: an operation for each policy, and two tenants.
const KINDS: [(&str, InDoubt); 3] = [("held", InDoubt::Hold), ("retried", InDoubt::Retry), ("probed", InDoubt::Probe)];
const TENANTS: [&str; 2] = ["acme", "umbra"];

/// Entries that were found, and taken later.
const MAX_FOUND: usize = 6;

/// Claims of couriers that are held at the same time.
const MAX_HELD: usize = 4;

struct Entry {
    identity: Identity,
    in_doubt: InDoubt,
    oracle: EntryOracle,
}

struct HeldEntry {
    entry: usize,
    holder: u64,
    attempt: u32,
    sink: String,
    must_ask: bool,
    guard: Guard,
}

/// A run in progress.
pub struct EntryWalk {
    rng: Rng,
    setup: Setup,
    entries: Vec<Entry>,
    found: Vec<(usize, Seen)>,
    held: Vec<HeldEntry>,
    next: u64,
    taken: u64,
    refused: u64,
    answers_lost: u64,
}

#[derive(Clone, Copy)]
enum EntryCall {
    Enqueue,
    Look,
    Take,
    LoseAnswer,
    End,
    Person,
    Advance,
}

impl EntryWalk {
    pub async fn begin(rng: Rng, number: u64) -> Self {
        let mut entries = Vec::new();
        for tenant in TENANTS {
            for (operation, in_doubt) in KINDS {
                let identity = Identity {
                    tenant: Tenant::new(tenant).expect("a name"),
                    operation: Operation::new(operation).expect("a name"),
                    key: Key::new("k").expect("a key"),
                };
                entries.push(Entry { identity, in_doubt, oracle: EntryOracle::new(in_doubt) });
            }
        }
        let setup = Setup::set(number).await;
        let (found, held) = (Vec::new(), Vec::new());
        Self { rng, setup, entries, found, held, next: 0, taken: 0, refused: 0, answers_lost: 0 }
    }

    pub fn add_to(&self, counts: &mut Counts) {
        counts.add("entries taken", self.taken);
        counts.add("entries not taken", self.refused);
        counts.add("claims of couriers that got no answer", self.answers_lost);
    }

    pub async fn step(&mut self) -> Result<(), String> {
        let action = self.rng.weighted(&[
            (5, EntryCall::Enqueue),
            (6, EntryCall::Look),
            (10, EntryCall::Take),
            (1, EntryCall::LoseAnswer),
            (10, EntryCall::End),
            (3, EntryCall::Person),
            (6, EntryCall::Advance),
        ]);
        match action {
            EntryCall::Enqueue => self.enqueue().await?,
            EntryCall::Look => self.look().await?,
            EntryCall::Take => self.take(false).await?,
            EntryCall::LoseAnswer => self.take(self.setup.store_switch.is_some()).await?,
            EntryCall::End if !self.held.is_empty() => self.end().await?,
            EntryCall::End => {}
            EntryCall::Person => self.person().await?,
            EntryCall::Advance => {
                let by = self.rng.weighted(&[(4, 1), (4, 1000), (3, RUNTIME), (3, 3 * RUNTIME), (1, MEMORY)]);
                self.setup.clock.advance(millis(by));
            }
        }
        self.compare().await
    }

    fn ledger(&mut self) -> Ledger {
        let which = usize::from(self.rng.one_in(2));
        self.setup.ledgers[which].clone()
    }

    fn pick(&mut self) -> usize {
        usize::try_from(self.rng.below(self.entries.len() as u64)).unwrap_or(0)
    }

    async fn enqueue(&mut self) -> Result<(), String> {
        let (index, ledger, now) = (self.pick(), self.ledger(), self.setup.now());
        let delay = self.rng.weighted(&[(3, 0), (1, 5000)]);
        let within = self.rng.weighted(&[(3, None), (1, Some(5 * RUNTIME))]);
        let entry = &mut self.entries[index];
        let Identity { tenant, operation, key } = entry.identity.clone();
        let policy = Policy {
            in_doubt: entry.in_doubt,
            honours_key_for: millis(MEMORY),
            retention: Some(Retention::Forever),
            max_attempts: Some(MAX_ATTEMPTS),
            ..Policy::default()
        };
        let call = ledger.operation(operation.as_str()).tenant(tenant.as_str()).key(key.as_str()).policy(policy);
        let options =
            EnqueueOptions { delay: millis(delay), deliver_within: within.map(millis), ..EnqueueOptions::default() };
        let found = call.enqueue("a letter", options).await.map_err(|error| error.to_string())?;
        let expected = entry.oracle.enqueue(now, delay, within);
        if (found == Enqueued::Created) != expected {
            return Err(format!("{}: enqueue answered {found:?}, and it is new: {expected}", entry.identity));
        }
        Ok(())
    }

    /// What is due is found, and nothing else.
    async fn look(&mut self) -> Result<(), String> {
        let (ledger, now) = (self.ledger(), self.setup.now());
        for (name, _) in KINDS {
            let operation = Operation::new(name).expect("a name");
            let queue =
                DueQuery { operation: operation.clone(), tenant: None, after: None, limit: 100, with_abandoned: false };
            let found = ledger.due(&queue).await.map_err(|error| error.to_string())?.entries;
            let mut keys = BTreeSet::new();
            for seen in found {
                let index = self.entries.iter().position(|entry| entry.identity.digest() == seen.record.id);
                let index = index.ok_or("an entry is due that was never queued")?;
                keys.insert(index);
                self.found.push((index, seen));
            }
            let of_kind = self.entries.iter().enumerate().filter(|(_, entry)| entry.identity.operation == operation);
            let expected: BTreeSet<usize> =
                of_kind.filter(|(_, entry)| entry.oracle.is_due(now)).map(|(index, _)| index).collect();
            if keys != expected {
                return Err(format!("{name}: the entries {keys:?} are due, instead of {expected:?}"));
            }
        }
        let surplus = self.found.len().saturating_sub(MAX_FOUND);
        self.found.drain(..surplus);
        Ok(())
    }

    /// A courier takes an entry that it has found, perhaps long ago. The store may lose the answer to its write.
    async fn take(&mut self, loses_answer: bool) -> Result<(), String> {
        if self.found.is_empty() || self.held.len() >= MAX_HELD {
            return Ok(());
        }
        let place = usize::try_from(self.rng.below(self.found.len() as u64)).unwrap_or(0);
        let (index, seen) = self.found.swap_remove(place);
        let (ledger, now) = (self.ledger(), self.setup.now());
        self.next += 1;
        let (holder, identity) = (self.next, self.entries[index].identity.clone());
        let before = ledger.get(&identity).await.map_err(|error| error.to_string())?;
        let is_unchanged = before.is_some_and(|intent| intent.seen.record.version == seen.record.version);
        let sink = ["primary", "fallback"][usize::from(self.rng.one_in(2))].to_owned();
        let key = format!("{sink} {}", self.entries[index].oracle.generation);
        let destination = Destination { sink, key };
        let policy = Policy { max_runtime: millis(RUNTIME), probes: true, ..Policy::default() };
        if let Some(switch) = self.setup.store_switch.as_ref().filter(|_| loses_answer) {
            switch.lose_answers(true);
        }
        let found = ledger.take_entry(seen, destination.clone(), &Arc::new(policy)).await;
        if let Some(switch) = &self.setup.store_switch {
            switch.lose_answers(false);
        }
        let oracle = &mut self.entries[index].oracle;
        let expected = if is_unchanged { oracle.take(now, holder, destination) } else { Take::NotTaken };
        match (found, expected) {
            (Ok(Taking::Taken(taken)), Take::Taken { attempt, probe_first, to }) => {
                let record = &taken.seen.record;
                let found = record.entry.as_ref().and_then(|entry| entry.destination.as_ref());
                if (record.attempts, taken.probe_first, found) != (attempt, probe_first, Some(&to)) {
                    return Err(format!(
                        "{identity}: attempt {} to {found:?}, not {attempt} to {to:?}",
                        record.attempts
                    ));
                }
                self.taken += 1;
                let (guard, sink) = (taken.guard, to.sink);
                self.held.push(HeldEntry { entry: index, holder, attempt, sink, must_ask: probe_first, guard });
                Ok(())
            }
            (Ok(Taking::NotTaken), Take::NotTaken) => {
                self.refused += 1;
                Ok(())
            }
            // What was to be set aside is set aside, or the next courier does it.
            (Err(_), Take::NotTaken) if loses_answer => Ok(()),
            (Err(_), Take::Taken { .. }) if loses_answer => {
                self.answers_lost += 1;
                oracle.undelivered(now, holder, false, AfterAttempt::RetryUncounted, 0);
                self.until_given_back(&ledger, &identity).await
            }
            (found, expected) => Err(format!("{identity}: {found:?} instead of {expected:?}")),
        }
    }

    /// A claim without an owner is given back in the background.
    async fn until_given_back(&self, ledger: &Ledger, identity: &Identity) -> Result<(), String> {
        let started = Instant::now();
        // The first try comes after a pause of 50 ms.
        while started.elapsed() < BACKGROUND_TIMEOUT.min(Duration::from_secs(10)) {
            let intent = ledger.get(identity).await.map_err(|error| error.to_string())?;
            if intent.is_some_and(|intent| !matches!(intent.seen.record.state, State::Leased(_))) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err(format!("{identity}: a claim that no courier has was not given back"))
    }

    /// An attempt ends, perhaps long after its lease.
    async fn end(&mut self) -> Result<(), String> {
        let place = usize::try_from(self.rng.below(self.held.len() as u64)).unwrap_or(0);
        let HeldEntry { entry, holder, attempt, sink, must_ask, guard } = self.held.swap_remove(place);
        let now = self.setup.now();
        let Entry { identity, oracle, .. } = &mut self.entries[entry];
        if must_ask && self.rng.one_in(2) {
            let expected = oracle.not_found(now, holder);
            let held = guard.claim().not_found().await.is_ok();
            if held != expected {
                return Err(format!("{identity}: that nothing was found counts: {held}, instead of {expected}"));
            }
        }
        if self.rng.one_in(3) {
            let expected = oracle.finish(holder);
            let found = guard.finish(Outcome::success("\"sent\"")).await.map_err(|error| error.to_string())?;
            return agree(identity, "a finish", found, expected);
        }
        let after = self.rng.weighted(&[
            (4, AfterAttempt::Retry),
            (1, AfterAttempt::RetryUncounted),
            (1, AfterAttempt::GiveUp),
        ]);
        let (may_have_happened, wait) = (self.rng.one_in(2), self.rng.weighted(&[(1, 0), (2, 2000)]));
        let expected = oracle.undelivered(now, holder, may_have_happened, after, wait);
        let error = format!("holder {holder}");
        let note = format!("attempt {attempt} to {sink}: {error}");
        let failure = AttemptFailure { may_have_happened, retry_in: millis(wait), after, error };
        let found = guard.undelivered(failure).await.map_err(|error| error.to_string())?;
        agree(identity, "the end of an attempt", found, expected)?;
        let identity = identity.clone();
        let intent = self.ledger().get(&identity).await.map_err(|error| error.to_string())?;
        let kind = if may_have_happened { EventKind::AttemptUnknown } else { EventKind::AttemptFailed };
        let is_noted = intent.is_some_and(|intent| {
            let events = intent.trail.iter().map(|entry| &entry.event);
            events.into_iter().any(|event| event.what == kind && event.note.as_ref() == Some(&note))
        });
        match is_noted == expected {
            true => Ok(()),
            false => Err(format!("{identity}: `{note}` is in the audit trail: {is_noted}, instead of {expected}")),
        }
    }

    async fn person(&mut self) -> Result<(), String> {
        let (index, ledger, now) = (self.pick(), self.ledger(), self.setup.now());
        let Entry { identity, oracle, .. } = &mut self.entries[index];
        let Some(intent) = ledger.get(identity).await.map_err(|error| error.to_string())? else { return Ok(()) };
        let (version, by) = (intent.seen.record.version, Resolver::default());
        let choice = self.rng.below(6);
        let (found, expected) = match choice {
            0 | 1 => {
                let fresh_key = choice == 1;
                (ledger.requeue(identity, version, fresh_key, by, None).await, oracle.requeue(now, fresh_key))
            }
            2 => (ledger.cancel(identity, version, by, None).await, oracle.cancel()),
            3 | 4 => {
                let decision = ledger.resolve(identity, version, Resolution::DidNotHappen, None, None).await;
                (decision, oracle.did_not_happen(now))
            }
            _ => {
                let outcome = Resolution::Happened(Outcome::success("1"));
                (ledger.resolve(identity, version, outcome, None, None).await, oracle.happened(now))
            }
        };
        let found = found.map_err(|error| error.to_string())?;
        match (found == Resolved::Settled) == expected {
            true => Ok(()),
            false => Err(format!("{identity}: a person chose {choice}: {found:?}, and may: {expected}")),
        }
    }

    /// Status and attempts of every entry agree with the oracle.
    async fn compare(&mut self) -> Result<(), String> {
        let (ledger, now) = (self.ledger(), self.setup.now());
        for Entry { identity, oracle, .. } in &self.entries {
            let found = ledger.get(identity).await.map_err(|error| error.to_string())?;
            let status = found.as_ref().and_then(onceward::Intent::status);
            if status != oracle.status(now) {
                return Err(format!("{identity}: {status:?} instead of {:?}", oracle.standing));
            }
            let Some(record) = found.map(|intent| intent.seen.record) else { continue };
            if record.attempts != oracle.attempts {
                return Err(format!("{identity}: {} attempts instead of {}", record.attempts, oracle.attempts));
            }
            let is_over = oracle.standing == Standing::Done;
            if record.payload.is_none() != is_over {
                return Err(format!("{identity}: its payload is there: {}, and it is done: {is_over}", !is_over));
            }
        }
        Ok(())
    }
}

fn agree(identity: &Identity, what: &str, found: WriteResult, expected: bool) -> Result<(), String> {
    match (found == WriteResult::Written) == expected {
        true => Ok(()),
        false => Err(format!("{identity}: {what} was {found:?}, and counts: {expected}")),
    }
}
