//! The state of the model, and what can happen next.

use std::time::Duration;

use onceward::core::decide::{Again, Begin, Command, CommandResult, Decision, Resolution, Take, Write, decide};
use onceward::core::fingerprint::Fingerprint;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outcome::Outcome;
use onceward::core::policy::{InDoubt, Policy, Retention};
use onceward::core::record::{Fence, Phase, Record, Seen, State};
use onceward::core::time::Timestamp;

use super::Intent;
use super::truth::{self, HONOURS_KEY, RETENTION, TOMBSTONE, Truth};

/// A lease is three ticks and three times the longest attempt: an attempt may act in the tick of its grant and in the
/// next one.
pub(super) const TICK: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(20 * truth::LEASE as u64);

/// The number of an operator's decision: no claim has it.
const PERSON: u8 = u8::MAX;

/// One intent, its record, its workers, and what really happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    now: u8,
    record: Option<Record>,
    /// Sorted: workers have no names, only what they hold.
    workers: [Option<Hold>; 3],
    drawn: u8,
    pub(super) truth: Truth,
}

/// The claim that a worker believes to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Hold {
    claim: u8,
    is_sent: bool,
    must_ask: bool,
    acted: bool,
    /// When the claim was granted. It is kept only where the downstream's memory counts.
    granted: u8,
}

/// Something that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Begin {
        marks_sent: bool,
    },
    Sent(usize),
    Act(usize),
    Renew(usize),
    Finish(usize),
    Release(usize),
    Doubt(usize),
    Ask(usize),
    Crash(usize),
    /// It is recorded whether the caller got the answer to this claim.
    Delivered {
        claim: u8,
        arrived: bool,
    },
    ItHappened,
    ItDidNot,
    Reset,
    Sweep,
    Tick,
}

impl World {
    pub(super) fn actions(&self, model: &Intent, actions: &mut Vec<Action>) {
        if self.drawn < model.bounds.begins && self.workers.contains(&None) {
            actions.extend([Action::Begin { marks_sent: false }, Action::Begin { marks_sent: true }]);
        }
        for (worker, hold) in self.workers.iter().enumerate() {
            let Some(hold) = hold else { continue };
            actions.extend([Action::Renew(worker), Action::Doubt(worker), Action::Crash(worker)]);
            if hold.must_ask {
                actions.push(Action::Ask(worker));
                continue;
            }
            actions.push(match (hold.is_sent, hold.acted) {
                (false, _) => Action::Sent(worker),
                (true, false) => Action::Act(worker),
                (true, true) => Action::Finish(worker),
            });
            // Only a worker that has done nothing can prove it.
            if !hold.acted {
                actions.push(Action::Release(worker));
            }
        }
        if self.record.is_some() {
            actions.extend([Action::ItHappened, Action::ItDidNot, Action::Reset, Action::Sweep]);
        }
        if model.in_doubt == InDoubt::Tell {
            let all = (1..=self.drawn).flat_map(|claim| [true, false].map(|arrived| (claim, arrived)));
            actions.extend(all.map(|(claim, arrived)| Action::Delivered { claim, arrived }));
        }
        if self.now < model.bounds.ticks {
            actions.push(Action::Tick);
        }
    }

    /// The world after something has happened.
    pub(super) fn after(&self, model: &Intent, action: Action) -> Self {
        let mut world = self.clone();
        match action {
            Action::Tick => world.now += 1,
            Action::Begin { marks_sent } => world.begin(model, marks_sent),
            Action::Sweep => world.sweep(model),
            Action::Delivered { claim, arrived } => world.delivered(model, claim, arrived),
            Action::ItHappened => world.resolve(model, Resolution::Happened(outcome(PERSON))),
            Action::ItDidNot => world.resolve(model, Resolution::DidNotHappen),
            Action::Reset => world.resolve(model, Resolution::Reset),
            Action::Crash(worker) => world.workers[worker] = None,
            Action::Act(worker) => {
                if let Some(hold) = &mut world.workers[worker] {
                    hold.acted = true;
                    world.truth.acts(hold.claim, hold.granted, world.now, model.in_doubt);
                }
            }
            Action::Sent(worker)
            | Action::Renew(worker)
            | Action::Finish(worker)
            | Action::Release(worker)
            | Action::Doubt(worker)
            | Action::Ask(worker) => world.own(model, worker, action),
        }
        world.workers.sort_unstable();
        world
    }

    fn begin(&mut self, model: &Intent, marks_sent: bool) {
        self.drawn += 1;
        let claim = self.drawn;
        let take = Take { fence: fence(claim), lease: LEASE, marks_sent, probes: true, owner: None, claim: None };
        let begin = Begin {
            identity: identity(),
            key_digest: None,
            fingerprint: Fingerprint::none(),
            terms: policy(model).terms(),
            take,
            again: Again::default(),
        };
        if let CommandResult::Decision(Decision::Acquired(acquired)) = self.write(model, &Command::Begin(begin)) {
            let is_sent = acquired.phase == Phase::Sent;
            self.truth.granted(claim, self.now, acquired.probe_first, model.in_doubt);
            if is_sent {
                self.truth.sent(claim, self.now);
            } else {
                self.truth.claimed(self.now);
            }
            let free = self.workers.iter().position(Option::is_none).expect("a worker is idle");
            let must_ask = acquired.probe_first;
            let granted = if model.in_doubt == InDoubt::Retry { self.now } else { 0 };
            self.workers[free] = Some(Hold { claim, is_sent, must_ask, acted: false, granted });
        } else {
            self.truth.refused(self.now);
        }
    }

    fn delivered(&mut self, model: &Intent, claim: u8, arrived: bool) {
        if self.write(model, &Command::Delivered { fence: fence(claim), arrived }) == CommandResult::Accepted {
            self.truth.delivered(claim, self.now, arrived);
        }
    }

    /// A worker writes with the fence that it believes to hold.
    fn own(&mut self, model: &Intent, worker: usize, action: Action) {
        let Some(mut hold) = self.workers[worker] else { return };
        let fence = fence(hold.claim);
        let found = self.truth.acted;
        let command = match action {
            Action::Sent(_) => Command::Sent { fence, lease: LEASE },
            Action::Renew(_) => Command::Renew { fence, lease: LEASE },
            Action::Release(_) => Command::Release { fence, not_before: Duration::ZERO, error: None },
            Action::Doubt(_) => Command::Doubt { fence, error: None },
            Action::Ask(_) if !found => Command::NotFound { fence },
            _ => Command::Finish { fence, outcome: outcome(hold.claim) },
        };
        let held = match self.write(model, &command) {
            CommandResult::Accepted => true,
            CommandResult::Stale { .. } => {
                self.truth.superseded = true;
                false
            }
            _ => false,
        };
        self.workers[worker] = None;
        if !held {
            return;
        }
        match command {
            Command::Sent { .. } => {
                self.truth.renewed(hold.claim, self.now);
                self.truth.sent(hold.claim, self.now);
                hold.is_sent = true;
                self.workers[worker] = Some(hold);
            }
            Command::Renew { .. } => {
                self.truth.renewed(hold.claim, self.now);
                if !hold.is_sent {
                    self.truth.claimed(self.now);
                }
                self.workers[worker] = Some(hold);
            }
            Command::NotFound { .. } => {
                self.truth.not_found(hold.claim, self.now, hold.is_sent);
                hold.must_ask = false;
                self.workers[worker] = Some(hold);
            }
            Command::Release { .. } => self.truth.released(hold.claim, self.now),
            // Nothing has left, so there is nothing to doubt.
            Command::Doubt { .. } if !hold.is_sent => self.truth.doubted_nothing(hold.claim, self.now),
            Command::Doubt { .. } => self.truth.doubted(hold.claim),
            _ => self.truth.finished(hold.claim, self.now),
        }
    }

    /// An operator says what is true at this moment, or that the effect was done by hand.
    fn resolve(&mut self, model: &Intent, resolution: Resolution) {
        let happened = matches!(resolution, Resolution::Happened(_));
        if !happened && self.truth.acted {
            return;
        }
        let version = self.record.as_ref().map_or(0, |record| record.version);
        if self.write(model, &Command::Resolve { version, resolution, fence: fence(PERSON) }) == CommandResult::Accepted
        {
            self.truth.resolved(happened.then_some(PERSON), self.now);
        }
    }

    fn sweep(&mut self, model: &Intent) {
        if self.write(model, &Command::Expire) == CommandResult::Accepted {
            self.truth.swept(self.now, self.record.is_none());
        } else {
            self.truth.left(self.now);
        }
    }

    /// Decides and writes in one step, as a store's conditional write does.
    fn write(&mut self, model: &Intent, command: &Command) -> CommandResult {
        let seen = self.seen();
        let transition = match model.fault {
            None => decide(seen.as_ref(), command),
            Some(fault) => fault.decide(seen.as_ref(), command),
        };
        let now = self.time();
        match transition.write {
            Write::None => {}
            Write::Insert(draft) | Write::Replace(draft) => self.record = Some(plain(draft.stamp(now))),
            Write::Remove => self.record = None,
        }
        transition.answer
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millis(0).after(TICK * u32::from(self.now))
    }

    fn seen(&self) -> Option<Seen> {
        self.record.clone().map(|record| Seen { record, now: self.time(), owner_gone: false })
    }

    pub(super) fn keeps_its_outcome(&self) -> bool {
        let Some((claim, at)) = self.truth.committed else { return true };
        let is_kept = || match self.record.as_ref().map(|record| &record.state) {
            Some(State::Done { outcome: kept, .. }) => *kept == outcome(claim),
            _ => false,
        };
        self.now >= at + RETENTION || is_kept()
    }

    /// Whether the record of an attempt that did not happen counts as absent.
    pub(super) fn has_forgotten(&self) -> bool {
        self.record.is_some() && self.truth.is_untried(self.now)
    }

    /// An unknown attempt is leased, or recorded as a doubt.
    pub(super) fn shows_its_doubt(&self) -> bool {
        let is_recorded = self.record.as_ref().is_some_and(|record| match &record.state {
            State::InDoubt { .. } => true,
            State::Leased(lease) => lease.phase == Phase::Sent || record.doubt_since.is_some(),
            _ => false,
        });
        !self.truth.is_unknown() || is_recorded
    }

    pub(super) fn can_be_settled(&self) -> bool {
        if !self.truth.is_unknown() || self.truth.is_running(self.now) {
            return true;
        }
        let version = self.record.as_ref().map_or(0, |record| record.version);
        let settled = |resolution| {
            let command = Command::Resolve { version, resolution, fence: fence(PERSON) };
            decide(self.seen().as_ref(), &command).answer == CommandResult::Accepted
        };
        settled(Resolution::DidNotHappen) && settled(Resolution::Happened(outcome(0)))
    }
}

/// A record without what decides nothing here, so that equal situations are equal states. Versions are compared in one
/// step with the write, so they decide nothing, and without them no repeated request is recognised. The time of the
/// write counts only for a released record, and for a claim that was written after it had lapsed.
fn plain(mut record: Record) -> Record {
    record.version = 1;
    record.attempts = 0;
    record.generation = 0;
    record.created_at = Timestamp::from_millis(0);
    record.made_by = None;
    // A delivered answer answers no further call, whenever it was delivered.
    record.delivered_at = record.delivered_at.map(|_| Timestamp::from_millis(0));
    let counts = match &record.state {
        State::Open { .. } => true,
        State::Leased(lease) => record.updated_at > lease.until,
        _ => false,
    };
    if !counts {
        record.updated_at = Timestamp::from_millis(0);
    }
    record
}

fn fence(claim: u8) -> Fence {
    Fence::from_bits(u128::from(claim))
}

fn outcome(claim: u8) -> Outcome {
    Outcome::success(claim.to_string())
}

fn identity() -> Identity {
    Identity {
        tenant: Tenant::default(),
        operation: Operation::new("charge").expect("a name"),
        key: Key::new("k").expect("a key"),
    }
}

fn policy(model: &Intent) -> Policy {
    Policy {
        in_doubt: model.in_doubt,
        retention: Some(Retention::For(TICK * u32::from(RETENTION))),
        tombstone: Some(TICK * u32::from(TOMBSTONE)),
        honours_key_for: TICK * u32::from(HONOURS_KEY),
        after_delivery: (model.in_doubt == InDoubt::Tell).then_some(Duration::ZERO),
        ..Policy::default()
    }
}
