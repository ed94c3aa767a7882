//! Every transition of the breaker, and what holds in every schedule of several processes that share one record.

use std::time::Duration;

use onceward_core::breaker::{Breaker, Health, Permit, Settings, State, Ticket};
use onceward_core::class::Class;
use onceward_core::evidence::Evidence;
use onceward_core::record::Fence;
use onceward_core::time::Timestamp;
use proptest::prelude::*;

use crate::properties::config;

const SETTINGS: Settings =
    Settings { failures: 2, recovery: Duration::from_millis(300), trial: Duration::from_millis(600) };

/// The period of every breaker in the table, and the tickets of its attempts.
const PERIOD: u64 = 7;
const CURRENT: Ticket = Ticket::Ordinary { period: PERIOD };
const LATE: Ticket = Ticket::Ordinary { period: PERIOD - 1 };
const TRIAL: Ticket = Ticket::Trial(Fence::from_bits(1));
const LATE_TRIAL: Ticket = Ticket::Trial(Fence::from_bits(2));

/// Between the beginnings and the ends of all waits in the table.
const NOW: Timestamp = at(1_000);

const fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn name(state: &State) -> String {
    match state {
        State::Closed { failures } => format!("closed {failures}"),
        State::Open { until, .. } if *until <= NOW => "over".to_owned(),
        State::Open { .. } => "open".to_owned(),
        State::HalfOpen { trial, .. } => format!("trial {}", u128::from_be_bytes(trial.to_bytes())),
        State::ForcedOpen { by, .. } => format!("held open by {by}"),
        State::ForcedClosed { by, .. } => format!("held closed by {by}"),
    }
}

fn events(breaker: &Breaker) -> [Option<Breaker>; 15] {
    let working = |ticket| breaker.ended(ticket, Health::Working, &SETTINGS, NOW);
    let failing = |ticket| breaker.ended(ticket, Health::Failing, &SETTINGS, NOW);
    [
        working(CURRENT),
        working(LATE),
        working(TRIAL),
        working(LATE_TRIAL),
        failing(CURRENT),
        failing(LATE),
        failing(TRIAL),
        failing(LATE_TRIAL),
        breaker.gave_up(CURRENT, NOW),
        breaker.gave_up(TRIAL, NOW),
        breaker.gave_up(LATE_TRIAL, NOW),
        breaker.begin_trial(Fence::from_bits(3), &SETTINGS, NOW),
        breaker.forced_open("Ada", NOW),
        breaker.forced_closed("Ada", NOW),
        breaker.reset(),
    ]
}

/// Each state with what follows each event, in the order of `events`; `-` where nothing is written.
fn table() -> Vec<(State, [&'static str; 15])> {
    let (since, later, over) = (at(900), at(1_200), at(1_000));
    let (trial, ada) = (Fence::from_bits(1), "Ada".to_owned());
    let (open, closed) = ("held open by Ada", "held closed by Ada");
    let (no, fresh) = ("-", "closed 0");
    vec![
        (State::Closed { failures: 0 }, [no, no, no, no, "closed 1", no, no, no, no, no, no, no, open, closed, no]),
        (State::Closed { failures: 1 }, [fresh, no, no, no, "open", no, no, no, no, no, no, no, open, closed, fresh]),
        (State::Open { since, until: later }, [no, no, no, no, no, no, no, no, no, no, no, no, open, closed, fresh]),
        (
            State::Open { since, until: over },
            [no, no, no, no, no, no, no, no, no, no, no, "trial 3", open, closed, fresh],
        ),
        (
            State::HalfOpen { trial, since, until: later },
            [no, no, fresh, no, no, no, "open", no, no, "over", no, no, open, closed, fresh],
        ),
        (
            State::HalfOpen { trial, since, until: over },
            [no, no, fresh, no, no, no, "open", no, no, "over", no, "trial 3", open, closed, fresh],
        ),
        (
            State::ForcedOpen { by: ada.clone(), since },
            [no, no, no, no, no, no, no, no, no, no, no, no, no, closed, fresh],
        ),
        (State::ForcedClosed { by: ada, since }, [no, no, no, no, no, no, no, no, no, no, no, no, open, no, fresh]),
    ]
}

#[test]
fn every_transition_is_as_documented() {
    for (state, expected) in table() {
        let breaker = Breaker { version: 20, period: PERIOD, state };
        for (index, (next, expected)) in events(&breaker).into_iter().zip(expected).enumerate() {
            let place = format!("event {index} in {:?}", breaker.state);
            assert_eq!(next.as_ref().map_or("-".to_owned(), |next| name(&next.state)), expected, "{place}");
            let Some(next) = next else { continue };
            assert_eq!(next.version, 21, "{place}: every write has a version of its own");
            let only_counts = matches!(&breaker.state, State::Closed { .. })
                && matches!(&next.state, State::Closed { .. })
                && index != 14;
            assert_eq!(next.period, PERIOD + u64::from(!only_counts), "{place}: a change of state is a new period");
        }
    }
}

#[test]
fn every_state_permits_what_it_should() {
    let permits = table().into_iter().map(|(state, _)| Breaker { version: 20, period: PERIOD, state }.permits(NOW));
    let refused = |millis| Permit::Refused { retry_after: Duration::from_millis(millis) };
    let allowed = Permit::Allowed(CURRENT);
    let expected =
        [allowed, allowed, refused(200), Permit::Trial, refused(200), Permit::Trial, refused(5_000), allowed];
    assert_eq!(permits.collect::<Vec<_>>(), expected);
}

#[test]
fn only_failures_that_say_something_about_the_downstream_count() {
    let unclassified = |evidence| Class::Unclassified { evidence };
    for class in [
        Class::NotSent,
        Class::Refused { retry_after: None },
        Class::Unknown,
        unclassified(Some(Evidence::TimedOut)),
        unclassified(Some(Evidence::Unknown)),
    ] {
        assert_eq!(Health::of_failure(class), Health::Failing, "{class:?}");
    }
    for class in [Class::Final, unclassified(None)] {
        assert_eq!(Health::of_failure(class), Health::Working, "{class:?}");
    }
}

/// What one of three processes does next. Each keeps the record that it read last, which may be old.
#[derive(Clone, Debug)]
enum Move {
    Read(usize),
    Begin(usize),
    End { who: usize, which: usize, health: Option<Health> },
    Wait(u16),
    Force { who: usize, open: bool },
    Reset(usize),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let who = || 0..3_usize;
    let health = prop_oneof![Just(None), Just(Some(Health::Working)), Just(Some(Health::Failing))];
    let one = prop_oneof![
        4 => who().prop_map(Move::Read),
        8 => who().prop_map(Move::Begin),
        8 => (who(), 0..9_usize, health).prop_map(|(who, which, health)| Move::End { who, which, health }),
        6 => (0..400_u16).prop_map(Move::Wait),
        1 => (who(), any::<bool>()).prop_map(|(who, open)| Move::Force { who, open }),
        1 => who().prop_map(Move::Reset),
    ];
    prop::collection::vec(one, 1..120)
}

/// A record that three processes share, with a compare-and-swap.
#[derive(Default)]
struct SharedRecord {
    stored: Breaker,
    read: [Breaker; 3],
    /// Attempts that run, with the record by which each was permitted.
    running: Vec<(Ticket, Breaker)>,
    /// The last trial that was permitted, and when its right ends.
    trial: Option<(Ticket, Timestamp)>,
    now: i64,
    fences: u128,
}

impl SharedRecord {
    /// Writes, if the version is the one that was read; otherwise the process reads again. Returns whether it wrote.
    fn write(&mut self, who: usize, next: Option<Breaker>) -> bool {
        let Some(next) = next else { return false };
        let is_current = self.read[who].version == self.stored.version;
        if is_current {
            assert_eq!(next.version, self.stored.version + 1);
            self.stored = next;
        }
        self.read[who] = self.stored.clone();
        is_current
    }

    fn begin(&mut self, who: usize) {
        let now = at(self.now);
        match self.read[who].permits(now) {
            Permit::Allowed(ticket) => self.running.push((ticket, self.read[who].clone())),
            Permit::Refused { retry_after } => assert!(retry_after > Duration::ZERO),
            Permit::Trial => {
                self.fences += 1;
                let fence = Fence::from_bits(self.fences);
                let next = self.read[who].begin_trial(fence, &SETTINGS, now);
                assert!(next.is_some(), "a permitted trial can begin");
                if self.write(who, next) {
                    let is_over = self.trial.is_none_or(|(_, until)| until <= now);
                    assert!(is_over, "a second trial while the first one runs");
                    self.trial = Some((Ticket::Trial(fence), now.after(SETTINGS.trial)));
                    self.running.push((Ticket::Trial(fence), self.stored.clone()));
                }
            }
        }
    }

    fn end(&mut self, who: usize, which: usize, health: Option<Health>) {
        if self.running.is_empty() {
            return;
        }
        let (ticket, began_by) = self.running.swap_remove(which % self.running.len());
        let now = at(self.now);
        // The first try may be with an old record; the second is not.
        for _ in 0..2 {
            let before = self.stored.clone();
            let seen = &self.read[who];
            let next = match health {
                Some(health) => seen.ended(ticket, health, &SETTINGS, now),
                None => seen.gave_up(ticket, now),
            };
            if self.write(who, next) {
                let is_late = matches!(ticket, Ticket::Ordinary { .. }) && began_by.period != before.period;
                assert!(!is_late, "{ticket:?} of {began_by:?} changed {before:?} to {:?}", self.stored);
            }
        }
        if self.trial.is_some_and(|(trial, _)| trial == ticket) {
            self.trial = None;
        }
    }

    fn perform(&mut self, one: &Move) {
        match *one {
            Move::Read(who) => self.read[who] = self.stored.clone(),
            Move::Begin(who) => self.begin(who),
            Move::End { who, which, health } => self.end(who, which, health),
            Move::Wait(millis) => self.now += i64::from(millis),
            Move::Force { who, open } => {
                let (seen, now) = (&self.read[who], at(self.now));
                let next = if open { seen.forced_open("Ada", now) } else { seen.forced_closed("Ada", now) };
                if self.write(who, next) {
                    self.trial = None;
                }
            }
            Move::Reset(who) => {
                let next = self.read[who].reset();
                if self.write(who, next) {
                    self.trial = None;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn processes_that_share_a_breaker_run_one_trial_at_a_time(moves in moves()) {
        let mut shared = SharedRecord::default();
        for one in &moves {
            shared.perform(one);
        }
        // Whatever happened, the downstream is tried again once all waits are over and every person has let go.
        let stored = shared.stored.clone();
        let stored = if matches!(stored.state, State::ForcedOpen { .. }) { stored.reset().unwrap() } else { stored };
        let over = at(shared.now).after(SETTINGS.trial);
        let refused = matches!(stored.permits(over), Permit::Refused { .. });
        prop_assert!(!refused, "{:?} blocks for ever", stored);
    }

    #[test]
    fn a_healthy_downstream_costs_no_writes(calls in 1..200_usize, forced: bool) {
        let start = Breaker::default();
        let breaker = if forced { start.forced_closed("Ada", at(0)).unwrap() } else { start };
        for _ in 0..calls {
            let Permit::Allowed(ticket) = breaker.permits(at(0)) else { panic!("it is closed") };
            prop_assert_eq!(breaker.ended(ticket, Health::Working, &SETTINGS, at(0)), None);
        }
    }

    #[test]
    fn no_clock_keeps_a_breaker_open_longer_than_its_wait_and_a_minute(wrote: i64, reads: i64) {
        let breaker = Breaker::default();
        let Permit::Allowed(ticket) = breaker.permits(at(wrote)) else { panic!("it is closed") };
        let one = Settings { failures: 1, ..SETTINGS };
        let open = breaker.failed(ticket, &one, at(wrote)).unwrap();
        if let Permit::Refused { retry_after } = open.permits(at(reads)) {
            prop_assert!(retry_after <= SETTINGS.recovery + Duration::from_secs(60));
        }
    }
}
