//! The state of the model of an entry, and what can happen next.

use std::time::Duration;

use onceward::InDoubt;
use onceward::core::decide::{
    Command, CommandResult, Decision, Enqueue, LeaseEntry, Resolution, Take, Undelivered, Write, decide,
};
use onceward::core::fingerprint::Fingerprint;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outbox::{self, AfterAttempt, Destination};
use onceward::core::outcome::Outcome;
use onceward::core::policy::{Policy, Retention, Terms};
use onceward::core::record::{Fence, Phase, Record, Seen, State};
use onceward::core::time::Timestamp;

use super::Entry;
use super::truth::{self, HONOURS_KEY, LEASE, MAX_ATTEMPTS, RETRY_IN, Truth};

/// A lease is three ticks, and three times the longest attempt.
const TICK: Duration = Duration::from_secs(20);

/// The number of a person's decision: no claim has it.
const PERSON: u8 = u8::MAX;

/// The sinks, one for each courier.
const SINKS: [&str; 2] = ["primary", "fallback"];

/// One entry, its record, its couriers, and what really happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntryWorld {
    now: u8,
    record: Record,
    couriers: [Option<Hold>; 2],
    drawn: u8,
    pub(super) truth: Truth,
}

/// The claim that a courier believes to hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    claim: u8,
    to: Destination,
    must_ask: bool,
    acted: bool,
    /// When the claim was granted. It is kept only where the downstream's memory counts.
    granted: u8,
}

/// Something that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryAction {
    EnqueueAgain,
    Lease(usize),
    Act(usize),
    Ask(usize),
    Renew(usize),
    Finish(usize),
    Undelivered(usize, bool, AfterAttempt),
    Drop(usize),
    Crash(usize),
    ItHappened,
    ItDidNot,
    Requeue { fresh_key: bool },
    Cancel,
    Tick,
}

impl EntryWorld {
    /// The entry was just queued.
    pub(super) fn queued(model: &Entry) -> Self {
        let Write::Insert(draft) = decide(None, &enqueue(model)).write else { panic!("an entry is inserted") };
        let record = plain(draft.stamp(Timestamp::from_millis(0)));
        Self { now: 0, record, couriers: [None, None], drawn: 0, truth: Truth::default() }
    }

    pub(super) fn actions(&self, model: &Entry, actions: &mut Vec<EntryAction>) {
        if self.truth.committed.is_some() && self.couriers == [None, None] {
            return;
        }
        for (courier, hold) in self.couriers.iter().enumerate() {
            let Some(hold) = hold else {
                if self.drawn < model.bounds.begins {
                    actions.push(EntryAction::Lease(courier));
                }
                continue;
            };
            actions.extend([EntryAction::Renew(courier), EntryAction::Drop(courier), EntryAction::Crash(courier)]);
            if hold.must_ask {
                // Nothing is sent before the downstream has answered, so the attempt does not count.
                actions.extend([
                    EntryAction::Ask(courier),
                    EntryAction::Undelivered(courier, true, AfterAttempt::RetryUncounted),
                ]);
                continue;
            }
            let ends = [AfterAttempt::Retry, AfterAttempt::GiveUp];
            actions.extend(ends.map(|after| EntryAction::Undelivered(courier, true, after)));
            if hold.acted {
                actions.push(EntryAction::Finish(courier));
                continue;
            }
            // Only an attempt that has done nothing can be proven.
            let proofs = [AfterAttempt::Retry, AfterAttempt::RetryUncounted, AfterAttempt::GiveUp];
            actions.extend(proofs.map(|after| EntryAction::Undelivered(courier, false, after)));
            actions.push(EntryAction::Act(courier));
        }
        actions.extend([
            EntryAction::EnqueueAgain,
            EntryAction::ItHappened,
            EntryAction::ItDidNot,
            EntryAction::Cancel,
        ]);
        actions.extend([true, false].map(|fresh_key| EntryAction::Requeue { fresh_key }));
        if self.now < model.bounds.ticks {
            actions.push(EntryAction::Tick);
        }
    }

    /// The world after something has happened.
    pub(super) fn after(&self, model: &Entry, action: EntryAction) -> Self {
        let mut world = self.clone();
        match action {
            EntryAction::Tick => world.now += 1,
            EntryAction::EnqueueAgain => world.enqueue_again(model),
            EntryAction::Lease(courier) => world.lease(model, courier),
            EntryAction::Crash(courier) => world.couriers[courier] = None,
            EntryAction::Act(courier) => {
                if let Some(hold) = &mut world.couriers[courier] {
                    hold.acted = true;
                    world.truth.acts(hold.claim, hold.granted, world.now, &hold.to, model.in_doubt);
                }
            }
            EntryAction::Ask(courier)
            | EntryAction::Renew(courier)
            | EntryAction::Finish(courier)
            | EntryAction::Drop(courier)
            | EntryAction::Undelivered(courier, ..) => world.own(model, courier, action),
            EntryAction::ItHappened | EntryAction::ItDidNot | EntryAction::Requeue { .. } | EntryAction::Cancel => {
                world.person(model, action);
            }
        }
        if world.record.state == State::Dead {
            world.truth.is_dead(world.now, model.deliver_within);
        }
        let held = world.couriers.iter().flatten().fold(0, |held, hold| held | truth::bit(hold.claim));
        world.truth.forget_what_is_over(world.now, held, model.in_doubt);
        world
    }

    fn enqueue_again(&mut self, model: &Entry) {
        let before = self.record.clone();
        let answer = self.write(model, &enqueue(model));
        let is_told =
            matches!(answer, CommandResult::Decision(ref found) if *found != Decision::Queued { created: true });
        self.truth.demand(is_told && self.record == before, "an entry was queued twice");
    }

    fn lease(&mut self, model: &Entry, courier: usize) {
        self.drawn += 1;
        let claim = self.drawn;
        let sink = SINKS[courier].to_owned();
        let key = format!("{sink} {}", self.record.generation);
        let take = Take {
            fence: fence(claim),
            lease: TICK * u32::from(LEASE),
            marks_sent: false,
            probes: true,
            owner: None,
            claim: None,
        };
        let answer = self.write(model, &Command::Lease(LeaseEntry { take, destination: Destination { sink, key } }));
        let CommandResult::Decision(Decision::Acquired(acquired)) = answer else {
            // A refused attempt costs nothing, so that the search does not end with it.
            self.drawn -= 1;
            let stays_due = self.record.due().is_some_and(|due| *due <= self.time());
            self.truth.demand(!stays_due, "an entry stays due that no courier gets");
            return;
        };
        let late = self.truth.is_late(self.now, model.deliver_within);
        self.truth.demand(!late, "an entry was tried after its time");
        let entry = self.record.entry.as_ref();
        let Some(to) = entry.and_then(|entry| entry.destination.clone()) else {
            return self.truth.demand(false, "an attempt goes nowhere");
        };
        self.truth.granted(claim, self.now, &to, acquired.probe_first, model.in_doubt);
        let granted = if model.in_doubt == InDoubt::Retry { self.now } else { 0 };
        self.couriers[courier] = Some(Hold { claim, to, must_ask: acquired.probe_first, acted: false, granted });
    }

    /// A courier writes with the fence that it believes to hold.
    fn own(&mut self, model: &Entry, courier: usize, action: EntryAction) {
        let Some(mut hold) = self.couriers[courier].take() else { return };
        let (fence, claim) = (fence(hold.claim), hold.claim);
        let command = match action {
            EntryAction::Renew(_) => Command::Renew { fence, lease: TICK * u32::from(LEASE) },
            EntryAction::Drop(_) => Command::Doubt { fence, error: None },
            EntryAction::Ask(_) if self.truth.effect.is_none() => Command::NotFound { fence },
            EntryAction::Undelivered(_, may_have_happened, after) => {
                let retry_in = TICK * u32::from(RETRY_IN);
                Command::Undelivered(Undelivered { fence, may_have_happened, retry_in, after, error: None })
            }
            _ => Command::Finish { fence, outcome: outcome(claim) },
        };
        let answer = self.write(model, &command);
        if answer != CommandResult::Accepted {
            return;
        }
        match (command, action) {
            (Command::Renew { .. }, _) => {
                self.truth.renewed(claim, self.now);
                self.couriers[courier] = Some(hold);
            }
            (Command::NotFound { .. }, _) => {
                self.truth.not_found(claim, self.now);
                hold.must_ask = false;
                self.couriers[courier] = Some(hold);
            }
            (Command::Doubt { .. }, _) => self.truth.dropped(claim, self.now),
            (_, EntryAction::Undelivered(_, may_have_happened, after)) => {
                self.truth.undelivered(claim, self.now, may_have_happened, after);
            }
            _ => self.truth.finished(claim),
        }
    }

    /// A person says what is true at this moment, or that the effect was done by hand.
    fn person(&mut self, model: &Entry, action: EntryAction) {
        let version = self.record.version;
        let resolve = |resolution| Command::Resolve { version, resolution, fence: fence(PERSON) };
        let command = match action {
            EntryAction::ItHappened => resolve(Resolution::Happened(outcome(PERSON))),
            EntryAction::ItDidNot if self.truth.effect.is_none() => resolve(Resolution::DidNotHappen),
            EntryAction::Requeue { fresh_key } => Command::Requeue { version, fresh_key },
            EntryAction::Cancel => Command::Cancel { version },
            _ => return,
        };
        if self.write(model, &command) != CommandResult::Accepted {
            return;
        }
        match action {
            EntryAction::ItHappened => self.truth.happened(self.now, PERSON),
            EntryAction::Requeue { fresh_key } => self.truth.requeued(self.now, fresh_key),
            EntryAction::Cancel => self.truth.cancelled(self.now),
            _ => self.truth.did_not_happen(self.now),
        }
    }

    /// Decides and writes in one step, as a store's conditional write does.
    fn write(&mut self, model: &Entry, command: &Command) -> CommandResult {
        let seen = self.seen();
        let transition = match model.fault {
            None => decide(Some(&seen), command),
            Some(fault) => fault.decide(&seen, command),
        };
        if let Write::Insert(draft) | Write::Replace(draft) = transition.write {
            self.record = plain(draft.stamp(self.time()));
        }
        transition.answer
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millis(0).after(TICK * u32::from(self.now))
    }

    fn seen(&self) -> Seen {
        Seen { record: self.record.clone(), now: self.time(), owner_gone: false }
    }

    /// The entry is done, dead or in a courier's hands; or a courier will find it; or it waits for a person, and no
    /// attempt is left to be made.
    pub(super) fn will_be_settled(&self, model: &Entry) -> bool {
        let truth = &self.truth;
        match &self.record.state {
            State::Done { outcome: kept, .. } => truth.committed.is_some_and(|by| *kept == outcome(by)),
            _ if truth.committed.is_some() => false,
            State::Dead => self.record.payload.is_some(),
            State::InDoubt { retry_at: None, .. } => {
                let may_retry = match model.in_doubt {
                    InDoubt::Retry => !truth.is_forgotten(self.now),
                    in_doubt => in_doubt == InDoubt::Probe,
                };
                let next = self.now + RETRY_IN;
                !may_retry || truth.is_used_up() || truth.is_late(next, model.deliver_within)
            }
            _ => self.record.due().is_some(),
        }
    }

    /// An attempt that may have happened is leased, or recorded as a doubt.
    pub(super) fn shows_its_doubt(&self) -> bool {
        let is_recorded = match &self.record.state {
            State::InDoubt { .. } => true,
            State::Leased(lease) => lease.phase == Phase::Sent || self.record.doubt_since.is_some(),
            _ => false,
        };
        !self.truth.is_unknown() || is_recorded
    }

    /// A courier works under a claim that another one, or a person, has taken from it.
    pub(super) fn has_superseded(&self) -> bool {
        self.couriers.iter().flatten().any(|hold| self.record.fence() != Some(fence(hold.claim)))
    }

    /// A courier tries an entry again that is in doubt.
    pub(super) fn has_taken_over(&self) -> bool {
        self.record.doubt_since.is_some() && matches!(self.record.state, State::Leased(_))
    }

    pub(super) fn is_dead(&self) -> bool {
        self.record.state == State::Dead && !self.truth.cancelled
    }

    pub(super) fn is_held(&self) -> bool {
        matches!(self.record.state, State::InDoubt { retry_at: None, .. })
    }

    pub(super) fn has_fresh_key(&self) -> bool {
        self.record.generation > 0 && self.couriers.iter().flatten().any(|hold| hold.to.key.ends_with('1'))
    }
}

/// A record without what decides nothing here, so that equal situations are equal states: versions are compared in one step
/// with the write, and of a doubt only counts that it is there.
fn plain(mut record: Record) -> Record {
    record.version = 1;
    // A fresh key differs from the last one, which is enough.
    record.generation = if record.generation == 0 { 0 } else { 1 + (record.generation - 1) % 2 };
    let zero = Timestamp::from_millis(0);
    (record.updated_at, record.doubt_since) = (zero, record.doubt_since.map(|_| zero));
    (record.made_by, record.last_error) = (None, None);
    record
}

fn fence(claim: u8) -> Fence {
    Fence::from_bits(u128::from(claim))
}

fn outcome(claim: u8) -> Outcome {
    Outcome::success(claim.to_string())
}

fn enqueue(model: &Entry) -> Command {
    let policy = Policy {
        in_doubt: model.in_doubt,
        retention: Some(Retention::Forever),
        honours_key_for: TICK * u32::from(HONOURS_KEY),
        ..Policy::default()
    };
    Command::Enqueue(Enqueue {
        identity: Identity {
            tenant: Tenant::default(),
            operation: Operation::new("mail").expect("a name"),
            key: Key::new("k").expect("a key"),
        },
        key_digest: None,
        fingerprint: Fingerprint::none(),
        terms: Terms { max_attempts: Some(u32::from(MAX_ATTEMPTS)), ..policy.terms() },
        payload: "a letter".into(),
        entry: outbox::Entry {
            deliver_within: model.deliver_within.map(|ticks| TICK * u32::from(ticks)),
            ..outbox::Entry::default()
        },
        delay: Duration::ZERO,
    })
}
