//! Properties that hold for every input: canonical JSON, and random walks through the transition function.

use std::collections::BTreeSet;
use std::time::Duration;

use onceward_core::decide::{
    Acquired, Again, Begin, Command, CommandResult, Decision, Resolution, Take, Write, decide,
};
use onceward_core::fingerprint::Fingerprint;
use onceward_core::json::Value;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outcome::Outcome;
use onceward_core::policy::{InDoubt, Policy, Retention, Terms};
use onceward_core::record::{Fence, Phase, Record, Seen, Standing, State};
use onceward_core::time::Timestamp;
use proptest::prelude::*;

use crate::tree::{Tree, near_miss, normal, spelled, tree, within_a_double};

fn canonical(tree: &Tree, spelling: u64) -> String {
    let text = spelled(tree, spelling);
    Value::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}")).canonical()
}

proptest! {
    #![proptest_config(config(256))]

    #[test]
    fn equal_values_have_equal_texts_in_every_spelling(tree in tree(), one: u64, other: u64) {
        prop_assert_eq!(canonical(&tree, one), canonical(&tree, other));
    }

    #[test]
    fn different_values_have_different_texts(one in tree(), other in tree()) {
        prop_assert_eq!(normal(&one) == normal(&other), canonical(&one, 0) == canonical(&other, 0));
    }

    #[test]
    fn values_that_differ_in_one_leaf_have_different_texts((one, other) in near_miss(), first: u64, second: u64) {
        prop_assert_ne!(normal(&one), normal(&other), "the near miss has to be different");
        prop_assert_ne!(canonical(&one, first), canonical(&other, second));
    }

    #[test]
    fn canonical_text_is_its_own_canonical_text(tree in tree(), spelling: u64) {
        let text = canonical(&tree, spelling);
        prop_assert_eq!(Value::parse(text.as_bytes()).unwrap().canonical(), text);
    }

    #[test]
    fn other_parsers_read_the_same_value_from_the_canonical_text(tree in tree()) {
        let text = canonical(&within_a_double(&tree), 1);
        let theirs: serde_json::Value = serde_json::from_str(&text).unwrap();
        let again = serde_json::to_string(&theirs).unwrap();
        prop_assert_eq!(Value::parse(again.as_bytes()).unwrap().canonical(), text);
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Value::parse(&bytes);
    }

    #[test]
    fn a_text_that_we_accept_is_accepted_by_other_parsers(text in "[\\[\\]{}\",:0-9eE.+\\-tfn\\\\u ]{0,60}") {
        if let Ok(value) = Value::parse(text.as_bytes()) {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "serde_json refuses {}", text);
            let _ = value.canonical();
        }
    }
}

/// Failures are reported, and not written into the source tree.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// What one of three owners, an operator or the clock does next.
#[derive(Clone, Debug)]
enum Move {
    Begin { who: u8, marks_sent: bool, probes: bool, again: Again },
    Sent(u8),
    Renew(u8),
    Finish { who: u8, answer: u8 },
    Release(u8),
    Doubt(u8),
    NotFound(u8),
    Overdue(u8),
    Delivered { who: u8, arrived: bool },
    Happened,
    DidNotHappen,
    Expire,
    Wait(u32),
}

/// The time at which every walk begins.
const START: i64 = 1_000_000;

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let who = || 0..3_u8;
    let begin = |(who, marks_sent, probes, again)| Move::Begin { who, marks_sent, probes, again };
    let again = prop_oneof![
        6 => Just(Again::IfDelivered),
        1 => Just(Again::Never),
        1 => Just(Again::Always),
        1 => (START..START + 20_000).prop_map(|time| Again::IfDeliveredBefore(Timestamp::from_millis(time))),
    ];
    let one = prop_oneof![
        4 => (who(), any::<bool>(), any::<bool>(), again).prop_map(begin),
        2 => who().prop_map(Move::Sent),
        1 => who().prop_map(Move::Renew),
        2 => (who(), 0..2_u8).prop_map(|(who, answer)| Move::Finish { who, answer }),
        2 => who().prop_map(Move::Release),
        2 => who().prop_map(Move::Doubt),
        1 => who().prop_map(Move::NotFound),
        1 => who().prop_map(Move::Overdue),
        3 => (who(), 0..4_u8).prop_map(|(who, arrived)| Move::Delivered { who, arrived: arrived > 0 }),
        1 => Just(Move::Happened),
        1 => Just(Move::DidNotHappen),
        1 => Just(Move::Expire),
        3 => (0..4000_u32).prop_map(Move::Wait),
    ];
    prop::collection::vec(one, 1..60)
}

/// A walk: the record, the clock, and the last fence of each of the three owners.
struct Walk {
    record: Option<Record>,
    now: i64,
    fences: [u128; 3],
    drawn: u128,
    terms: Terms,
    /// The generations of the downstream keys that were granted.
    generations: BTreeSet<u32>,
}

impl Walk {
    fn new(in_doubt: InDoubt, after_delivery: Option<Duration>) -> Self {
        let policy = Policy {
            in_doubt,
            after_delivery,
            retention: Some(Retention::For(Duration::from_secs(5))),
            tombstone: Some(Duration::from_secs(5)),
            honours_key_for: Duration::from_secs(10),
            ..Policy::default()
        };
        let generations = BTreeSet::new();
        Self { record: None, now: START, fences: [0; 3], drawn: 0, terms: policy.terms(), generations }
    }

    fn seen(&self) -> Option<Seen> {
        let now = Timestamp::from_millis(self.now);
        self.record.clone().map(|record| Seen { record, now, owner_gone: false })
    }

    fn command(&mut self, next: &Move) -> Option<Command> {
        let fences = self.fences;
        let fence = |who: &u8| Fence::from_bits(fences[usize::from(*who)]);
        let lease = Duration::from_millis(1000);
        let version = self.record.as_ref().map_or(0, |record| record.version);
        self.drawn += 1;
        let drawn = Fence::from_bits(self.drawn);
        Some(match next {
            Move::Wait(_) => return None,
            Move::Begin { marks_sent, probes, again, .. } => Command::Begin(Begin {
                identity: Identity {
                    tenant: Tenant::default(),
                    operation: Operation::new("charge").unwrap(),
                    key: Key::new("k").unwrap(),
                },
                key_digest: None,
                fingerprint: Fingerprint::none(),
                terms: self.terms,
                take: Take { fence: drawn, lease, marks_sent: *marks_sent, probes: *probes, owner: None, claim: None },
                again: *again,
            }),
            Move::Sent(who) => Command::Sent { fence: fence(who), lease },
            Move::Renew(who) => Command::Renew { fence: fence(who), lease },
            Move::Finish { who, answer } => {
                Command::Finish { fence: fence(who), outcome: Outcome::success(answer.to_string()) }
            }
            Move::Release(who) => Command::Release { fence: fence(who), not_before: Duration::ZERO, error: None },
            Move::Doubt(who) => Command::Doubt { fence: fence(who), error: None },
            Move::NotFound(who) => Command::NotFound { fence: fence(who) },
            Move::Overdue(who) => Command::Overdue { fence: fence(who), lease, error: None },
            Move::Delivered { who, arrived } => Command::Delivered { fence: fence(who), arrived: *arrived },
            Move::Happened => {
                let resolution = Resolution::Happened(Outcome::success("by hand"));
                Command::Resolve { version, resolution, fence: drawn }
            }
            Move::DidNotHappen => Command::Resolve { version, resolution: Resolution::DidNotHappen, fence: drawn },
            Move::Expire => Command::Expire,
        })
    }

    /// Makes one move and checks the rules between the records before and after it.
    fn make(&mut self, next: &Move) {
        if let Move::Wait(millis) = next {
            self.now += i64::from(*millis);
        }
        let Some(command) = self.command(next) else { return };
        let before = self.seen();
        let transition = decide(before.as_ref(), &command);
        if let (Move::Begin { who, again, .. }, CommandResult::Decision(Decision::Acquired(acquired))) =
            (next, &transition.answer)
        {
            self.fences[usize::from(*who)] = self.drawn;
            match before.as_ref().and_then(|seen| Some((seen, seen.standing()?))) {
                Some((seen, Standing::Done | Standing::Tombstone)) => self.check_next(seen, *again, acquired),
                Some((seen, standing)) => self.check_acquired(seen, standing, *again, acquired.probe_first),
                // The record is forgotten, and its downstream keys with it.
                None => self.generations.clear(),
            }
            self.generations.insert(acquired.generation);
        }
        let now = Timestamp::from_millis(self.now);
        let after = match transition.write {
            Write::None => return,
            Write::Insert(draft) | Write::Replace(draft) => Some(draft.stamp(now)),
            Write::Remove => None,
        };
        check_step(before.as_ref(), after.as_ref(), &command);
        self.record = after;
    }

    /// Finished work runs again only for a caller that means a new call, and with a new downstream key.
    fn check_next(&self, seen: &Seen, again: Again, acquired: &Acquired) {
        let delivered = seen.record.delivered_at.map(Timestamp::as_millis);
        let is_over = delivered.zip(self.terms.after_delivery).is_some_and(|(delivered, after)| {
            self.now - delivered >= i64::try_from(after.as_millis()).expect("a short time")
        });
        let is_meant = match again {
            Again::Always => true,
            Again::Never => false,
            Again::IfDelivered => is_over,
            Again::IfDeliveredBefore(end) => is_over || delivered.is_some_and(|at| at <= end.as_millis()),
        };
        assert!(is_meant, "finished work ran again for a caller with {again:?}");
        assert!(!self.generations.contains(&acquired.generation), "two calls share a downstream key");
        assert_eq!((acquired.attempt, acquired.probe_first), (1, false));
    }

    /// A claim is granted only if nothing is running, done, or in a doubt that the policy holds.
    fn check_acquired(&self, before: &Seen, standing: Standing, again: Again, probe_first: bool) {
        match standing {
            Standing::Open { .. } => assert!(!probe_first),
            Standing::InDoubt { .. } => match self.terms.in_doubt {
                InDoubt::Hold => panic!("a held intent ran again"),
                InDoubt::Probe => assert!(probe_first, "a doubt was not probed"),
                InDoubt::Tell => {
                    assert!(
                        before.record.delivered_at.is_some(),
                        "a doubt ran again although its caller was not told about it"
                    );
                    assert_ne!(
                        again,
                        Again::Never,
                        "a doubt ran again for a call that came before its caller was told"
                    );
                }
                InDoubt::Retry => {
                    let first = before.record.first_sent_at.expect("it was sent");
                    assert!(self.now < first.after(self.terms.honours_key_for).as_millis(), "the key was forgotten");
                }
            },
            other => panic!("a claim was granted on {other:?}"),
        }
    }
}

fn check_step(before: Option<&Seen>, after: Option<&Record>, command: &Command) {
    let Some(seen) = before else { return };
    let standing = seen.standing();
    let Some(after) = after else {
        assert_eq!(standing, None, "only what is forgotten is removed");
        return;
    };
    assert_eq!(after.version, seen.record.version + 1, "versions rise by one");
    if let Command::Delivered { arrived, .. } = command {
        return check_delivered(seen, after, *arrived);
    }
    let tombstone = matches!(after.state, State::Tombstone { .. });
    assert!(after.delivered_at.is_none() || tombstone, "a delivery outlived its answer: {command:?}");
    if standing == Some(Standing::Done) {
        assert!(matches!(command, Command::Begin(_)), "done was changed by {command:?}");
        return;
    }
    if standing == Some(Standing::Tombstone) && matches!(command, Command::Begin(_)) {
        return;
    }
    let settles = matches!(command, Command::Finish { .. } | Command::Resolve { .. } | Command::NotFound { .. });
    if standing.is_some() && seen.record.doubt_since.is_some() && !settles {
        assert!(after.doubt_since.is_some(), "a doubt was forgotten by {command:?}");
    }
    // A sent attempt ends with an outcome, a proof, a doubt or an operator's decision; never by the clock alone.
    if let (State::Leased(lease), Command::Begin(_)) = (&seen.record.state, command)
        && lease.phase == Phase::Sent
        && standing.is_some()
    {
        assert!(after.doubt_since.is_some(), "a lapsed sent attempt was taken over without a doubt");
    }
}

/// A delivery changes only its own field, and only a record with an answer can have one.
fn check_delivered(seen: &Seen, after: &Record, arrived: bool) {
    let before = &seen.record;
    assert!(!seen.has_living_owner(), "an answer was delivered before there was one");
    assert_eq!(after.delivered_at.is_some(), arrived);
    match (&before.state, &after.state) {
        (State::Leased(lease), State::InDoubt { fence, .. }) => {
            assert_eq!(lease.fence, *fence);
            assert!(matches!(seen.standing(), Some(Standing::InDoubt { .. })), "what did not happen became a doubt");
            assert!(after.doubt_since.is_some());
        }
        (one, other) => {
            assert_eq!(one, other, "a delivery changed the answer");
            assert!(matches!(one, State::Done { .. } | State::InDoubt { .. }));
            assert_eq!(before.doubt_since, after.doubt_since);
        }
    }
    let same = |record: &Record| (record.attempts, record.generation, record.first_sent_at, record.terms);
    assert_eq!(same(before), same(after));
}

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn no_random_walk_breaks_a_rule(moves in moves(), policy in 0..4_usize, after in 0..4_usize) {
        let after = [None, Some(0), Some(700), Some(4000)][after].map(Duration::from_millis);
        let in_doubt = [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe, InDoubt::Tell][policy];
        let mut walk = Walk::new(in_doubt, after);
        for next in &moves {
            walk.make(next);
        }
    }
}
