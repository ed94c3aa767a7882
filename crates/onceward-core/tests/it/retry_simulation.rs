//! Breaker, budget and backoff together, in virtual time: an upstream fails while a thousand entries wait. It sees no more than
//! 1.2 times its normal load, and everything is delivered once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Range;
use std::time::Duration;

use onceward_core::breaker::{self, Breaker, Permit, Ticket};
use onceward_core::record::Fence;
use onceward_core::retry::backoff::{self, Failed, Next};
use onceward_core::retry::budget::{self, Account, Withdrawal};
use onceward_core::retry::http_status::{self, Downstream, Verdict};
use onceward_core::time::Timestamp;

use crate::retry_properties::Seeded;

/// When the upstream fails, and when the entries are there.
const OUTAGE: Range<i64> = 10_000..40_000;
const WAITING: usize = 1_000;
const ARRIVALS_PER_SECOND: i64 = 50;
const END: i64 = 120_000;

/// Attempts of the courier at the same time.
const WORKERS: usize = 8;

/// A working upstream takes longer than a failing one: so a failing one is asked faster.
const WORK: i64 = 20;
const FAILURE: i64 = 5;

/// What of the three the courier uses, and how the upstream fails.
#[derive(Clone, Copy)]
struct Setup {
    breaker: Option<breaker::Settings>,
    budget: Option<budget::Settings>,
    outage: bool,
    /// How many of a hundred attempts fail outside the outage.
    failing_percent: u64,
}

const FULL: Setup = Setup {
    breaker: Some(breaker::Settings { failures: 5, recovery: Duration::from_secs(30), trial: Duration::from_secs(60) }),
    budget: Some(budget::Settings { percent: 20, per_second: 1, burst: 10 }),
    outage: true,
    failing_percent: 0,
};

#[derive(Clone, Copy)]
struct RunningAttempt {
    ends: i64,
    entry: usize,
    status: u16,
    ticket: Ticket,
}

struct Simulation {
    setup: Setup,
    now: i64,
    seeded: Seeded,
    breaker: Breaker,
    account: Account,
    /// Attempts made, by entry.
    attempts: Vec<u32>,
    /// Entries that wait, by the time at which they are due.
    due: BinaryHeap<Reverse<(i64, usize)>>,
    running: Vec<RunningAttempt>,
    /// What the upstream has seen: attempts by second, and the effects by key. It honours keys.
    load: BTreeMap<i64, u64>,
    retries: u64,
    effects: BTreeSet<usize>,
    delivered: BTreeSet<usize>,
    given_up: usize,
    /// How often the record of the breaker was written.
    writes: u64,
}

impl Simulation {
    fn run(setup: Setup, seed: u64) -> Self {
        let account = Account::full(&setup.budget.unwrap_or_default(), Timestamp::from_millis(0));
        let mut simulation = Self {
            setup,
            now: 0,
            seeded: Seeded(seed),
            breaker: Breaker::default(),
            account,
            attempts: Vec::new(),
            due: BinaryHeap::new(),
            running: Vec::new(),
            load: BTreeMap::new(),
            retries: 0,
            effects: BTreeSet::new(),
            delivered: BTreeSet::new(),
            given_up: 0,
            writes: 0,
        };
        for now in 0..END {
            simulation.now = now;
            simulation.arrive();
            simulation.end_attempts();
            simulation.begin_attempts();
        }
        simulation
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn arrive(&mut self) {
        let waiting = if self.now == OUTAGE.start { WAITING } else { 0 };
        let is_arrival = self.now % (1_000 / ARRIVALS_PER_SECOND) == 0 && self.now < OUTAGE.end;
        for _ in 0..waiting + usize::from(is_arrival) {
            self.due.push(Reverse((self.now, self.attempts.len())));
            self.attempts.push(0);
        }
    }

    fn begin_attempts(&mut self) {
        // Entries that the budget refuses are put back, so that each is looked at once.
        for _ in 0..self.due.len() {
            let Some(Reverse((due, entry))) = self.due.peek().copied() else { return };
            if due > self.now || self.running.len() >= WORKERS {
                return;
            }
            let Some(ticket) = self.permitted() else { return };
            self.due.pop();
            if let Some(wait) = self.refused_by_budget(entry, ticket) {
                let jitter = backoff::delay(1, &backoff::Settings::default(), self.seeded.next());
                self.requeue(entry, wait + jitter);
                continue;
            }
            self.send(entry, ticket);
        }
    }

    /// The ticket of an attempt, if the breaker permits one. A refusal uses up no attempt of any entry.
    fn permitted(&mut self) -> Option<Ticket> {
        let Some(settings) = self.setup.breaker else { return Some(Ticket::Ordinary { period: 0 }) };
        match self.breaker.permits(self.time()) {
            Permit::Allowed(ticket) => Some(ticket),
            Permit::Refused { .. } => None,
            Permit::Trial => {
                let trial = Fence::from_bits(u128::from(self.seeded.next()));
                let next = self.breaker.begin_trial(trial, &settings, self.time());
                self.write(next);
                Some(Ticket::Trial(trial))
            }
        }
    }

    /// The trial is not limited by the budget: the breaker limits it.
    fn refused_by_budget(&mut self, entry: usize, ticket: Ticket) -> Option<Duration> {
        let (settings, now) = (self.setup.budget?, self.time());
        if self.attempts[entry] == 0 {
            self.account.first_attempt(&settings, now);
            return None;
        }
        match self.account.withdraw(&settings, now) {
            Withdrawal::Refused { retry_after } if !matches!(ticket, Ticket::Trial(_)) => Some(retry_after),
            _ => None,
        }
    }

    fn send(&mut self, entry: usize, ticket: Ticket) {
        let is_out = self.setup.outage && OUTAGE.contains(&self.now);
        let fails = is_out || self.seeded.next() % 100 < self.setup.failing_percent;
        // Every other failure comes after the effect.
        if !fails || self.seeded.next().is_multiple_of(2) {
            self.effects.insert(entry);
        }
        *self.load.entry(self.now / 1_000).or_default() += 1;
        self.retries += u64::from(self.attempts[entry] > 0);
        self.attempts[entry] += 1;
        let (ends, status) = if fails { (self.now + FAILURE, 502) } else { (self.now + WORK, 201) };
        self.running.push(RunningAttempt { ends, entry, status, ticket });
    }

    fn end_attempts(&mut self) {
        let (ended, running): (Vec<_>, Vec<_>) =
            self.running.iter().copied().partition(|attempt| attempt.ends <= self.now);
        self.running = running;
        for RunningAttempt { entry, status, ticket, .. } in ended {
            let sink = Downstream { honours_key: true, ..Downstream::COURIER };
            let verdict = http_status::judge(status, None, &sink);
            if let Some(settings) = self.setup.breaker {
                let health = http_status::health(status, verdict);
                let next = self.breaker.ended(ticket, health, &settings, self.time());
                self.write(next);
            }
            match verdict {
                Verdict::Success => assert!(self.delivered.insert(entry), "entry {entry} was delivered twice"),
                Verdict::MayHaveHappened { retry: true } => self.try_again(entry),
                other => panic!("{other:?}"),
            }
        }
    }

    fn try_again(&mut self, entry: usize) {
        let failed = Failed { attempts: self.attempts[entry], ..Failed::default() };
        match backoff::next(&failed, &backoff::Settings::default(), self.seeded.next()) {
            Next::After(wait) => self.requeue(entry, wait),
            Next::GiveUp(_) => self.given_up += 1,
        }
    }

    fn requeue(&mut self, entry: usize, wait: Duration) {
        self.due.push(Reverse((self.now + i64::try_from(wait.as_millis()).unwrap(), entry)));
    }

    fn write(&mut self, next: Option<Breaker>) {
        if let Some(next) = next {
            self.breaker = next;
            self.writes += 1;
        }
    }

    /// Attempts in the seconds from `from` to `to`.
    fn load_in(&self, from: i64, to: i64) -> u64 {
        self.load.range(from / 1_000..to / 1_000).map(|(_, count)| count).sum()
    }

    fn peak(&self) -> u64 {
        self.load.values().copied().max().unwrap_or_default()
    }

    fn check_that_all_is_delivered_once(&self) {
        assert_eq!(self.given_up, 0, "no entry used up its attempts");
        assert_eq!(self.delivered.len(), self.attempts.len(), "every entry is delivered");
        assert_eq!(self.effects, self.delivered, "one effect for each");
    }
}

const SEEDS: Range<u64> = 1..6;

fn normal(seed: u64) -> Simulation {
    Simulation::run(Setup { outage: false, ..FULL }, seed)
}

#[test]
fn an_outage_is_not_amplified_and_everything_is_delivered_once() {
    for seed in SEEDS {
        let normal = normal(seed);
        normal.check_that_all_is_delivered_once();
        assert_eq!(normal.writes, 0, "a healthy downstream costs no writes");
        let frequent = breaker::Settings { recovery: Duration::from_secs(2), ..breaker::Settings::default() };
        for settings in [breaker::Settings::default(), frequent] {
            let outage = Simulation::run(Setup { breaker: Some(settings), ..FULL }, seed);
            outage.check_that_all_is_delivered_once();
            let (seen, usual) = (outage.load_in(OUTAGE.start, OUTAGE.end), normal.load_in(OUTAGE.start, OUTAGE.end));
            assert!(seen * 10 <= usual * 12, "seed {seed}: {seen} attempts during the outage, {usual} without one");
            let (peak, usual) = (outage.peak(), normal.peak());
            assert!(peak * 10 <= usual * 12, "seed {seed}: {peak} attempts in a second, {usual} without an outage");
            let (all, usual) = (outage.load_in(0, END), normal.load_in(0, END));
            assert!(all * 10 <= usual * 12, "seed {seed}: {all} attempts in all, {usual} without an outage");
            assert!(outage.writes <= 100, "seed {seed}: the breaker was written {} times", outage.writes);
        }
    }
}

#[test]
fn without_a_breaker_an_outage_is_amplified() {
    for seed in SEEDS {
        let normal = normal(seed);
        let outage = Simulation::run(Setup { breaker: None, budget: None, ..FULL }, seed);
        assert!(outage.peak() * 10 > normal.peak() * 12, "seed {seed}: {} a second", outage.peak());
        assert!(outage.given_up > 0, "attempts are used up for nothing");
    }
}

#[test]
fn where_the_breaker_stays_closed_the_budget_limits_the_retries() {
    for seed in SEEDS {
        let often = Setup { breaker: None, outage: false, failing_percent: 60, ..FULL };
        let limited = Simulation::run(often, seed);
        let unlimited = Simulation::run(Setup { budget: None, ..often }, seed);
        let first = limited.attempts.iter().filter(|attempts| **attempts > 0).count() as u64;
        // A fifth of the first attempts, one a second, and the burst.
        let most = first / 5 + END as u64 / 1_000 + 10;
        assert!(limited.retries <= most, "seed {seed}: {} retries for {first} entries", limited.retries);
        assert!(unlimited.retries > 2 * most, "seed {seed}: {} retries without a budget", unlimited.retries);
    }
}
