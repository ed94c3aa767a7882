//! What must hold for every input: canonical JSON, and random walks through the transition function.

use std::time::Duration;

use onceward_core::decide::{Again, Answer, Begin, Command, Decision, Resolution, Take, Write, decide};
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
    fn equal_values_have_equal_texts_however_they_are_written(tree in tree(), one: u64, other: u64) {
        prop_assert_eq!(canonical(&tree, one), canonical(&tree, other));
    }

    #[test]
    fn different_values_have_different_texts(one in tree(), other in tree()) {
        prop_assert_eq!(normal(&one) == normal(&other), canonical(&one, 0) == canonical(&other, 0));
    }

    #[test]
    fn values_that_differ_in_one_leaf_have_different_texts((one, other) in near_miss(), first: u64, second: u64) {
        prop_assert_ne!(normal(&one), normal(&other), "the near miss is none");
        prop_assert_ne!(canonical(&one, first), canonical(&other, second));
    }

    #[test]
    fn canonical_text_is_its_own_canonical_text(tree in tree(), spelling: u64) {
        let text = canonical(&tree, spelling);
        prop_assert_eq!(Value::parse(text.as_bytes()).unwrap().canonical(), text);
    }

    #[test]
    fn other_readers_find_the_same_value_in_the_canonical_text(tree in tree()) {
        let text = canonical(&within_a_double(&tree), 1);
        let theirs: serde_json::Value = serde_json::from_str(&text).unwrap();
        let again = serde_json::to_string(&theirs).unwrap();
        prop_assert_eq!(Value::parse(again.as_bytes()).unwrap().canonical(), text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Value::parse(&bytes);
    }

    #[test]
    fn what_we_read_others_read_too(text in "[\\[\\]{}\",:0-9eE.+\\-tfn\\\\u ]{0,60}") {
        if let Ok(value) = Value::parse(text.as_bytes()) {
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "others refuse {}", text);
            let _ = value.canonical();
        }
    }
}

/// Failures are told, not written into the tree.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

/// What one of three owners, a person or the clock does next.
#[derive(Clone, Debug)]
enum Move {
    Begin { who: u8, marks_sent: bool, probes: bool },
    Sent(u8),
    Renew(u8),
    Finish { who: u8, answer: u8 },
    Release(u8),
    Doubt(u8),
    NotFound(u8),
    Happened,
    DidNotHappen,
    Expire,
    Wait(u32),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let who = || 0..3_u8;
    let begin = |(who, marks_sent, probes)| Move::Begin { who, marks_sent, probes };
    let one = prop_oneof![
        4 => (who(), any::<bool>(), any::<bool>()).prop_map(begin),
        2 => who().prop_map(Move::Sent),
        1 => who().prop_map(Move::Renew),
        2 => (who(), 0..2_u8).prop_map(|(who, answer)| Move::Finish { who, answer }),
        2 => who().prop_map(Move::Release),
        2 => who().prop_map(Move::Doubt),
        1 => who().prop_map(Move::NotFound),
        1 => Just(Move::Happened),
        1 => Just(Move::DidNotHappen),
        1 => Just(Move::Expire),
        3 => (0..4000_u32).prop_map(Move::Wait),
    ];
    prop::collection::vec(one, 1..60)
}

/// A walk: the record, the clock, and the fences that each of the three last got.
struct Walk {
    record: Option<Record>,
    now: i64,
    fences: [u128; 3],
    drawn: u128,
    terms: Terms,
}

impl Walk {
    fn new(in_doubt: InDoubt) -> Self {
        let policy = Policy {
            in_doubt,
            retention: Some(Retention::For(Duration::from_secs(5))),
            tombstone: Some(Duration::from_secs(5)),
            honours_key_for: Duration::from_secs(10),
            ..Policy::default()
        };
        Self { record: None, now: 1_000_000, fences: [0; 3], drawn: 0, terms: policy.terms() }
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
            Move::Begin { marks_sent, probes, .. } => Command::Begin(Begin {
                identity: Identity {
                    tenant: Tenant::default(),
                    operation: Operation::new("charge").unwrap(),
                    key: Key::new("k").unwrap(),
                },
                key_digest: None,
                fingerprint: Fingerprint::none(),
                terms: self.terms,
                take: Take { fence: drawn, lease, marks_sent: *marks_sent, probes: *probes, owner: None, claim: None },
                again: Again::default(),
            }),
            Move::Sent(who) => Command::Sent { fence: fence(who), lease },
            Move::Renew(who) => Command::Renew { fence: fence(who), lease },
            Move::Finish { who, answer } => {
                Command::Finish { fence: fence(who), outcome: Outcome::success(answer.to_string()) }
            }
            Move::Release(who) => Command::Release { fence: fence(who), not_before: Duration::ZERO, error: None },
            Move::Doubt(who) => Command::Doubt { fence: fence(who), error: None },
            Move::NotFound(who) => Command::NotFound { fence: fence(who) },
            Move::Happened => {
                let resolution = Resolution::Happened(Outcome::success("by hand"));
                Command::Resolve { version, resolution, fence: drawn }
            }
            Move::DidNotHappen => Command::Resolve { version, resolution: Resolution::DidNotHappen, fence: drawn },
            Move::Expire => Command::Expire,
        })
    }

    /// Makes one move and checks what must hold between any two records.
    fn make(&mut self, next: &Move) {
        if let Move::Wait(millis) = next {
            self.now += i64::from(*millis);
        }
        let Some(command) = self.command(next) else { return };
        let before = self.seen();
        let transition = decide(before.as_ref(), &command);
        if let (Move::Begin { who, .. }, Answer::Decision(Decision::Acquired(acquired))) = (next, &transition.answer) {
            self.fences[usize::from(*who)] = self.drawn;
            self.check_acquired(before.as_ref(), acquired.probe_first);
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

    /// A claim is granted only where nothing is running, done, or in a doubt that the policy does not settle.
    fn check_acquired(&self, before: Option<&Seen>, probe_first: bool) {
        let Some(standing) = before.and_then(Seen::standing) else { return };
        match standing {
            Standing::Open { .. } => assert!(!probe_first),
            Standing::InDoubt { .. } => match self.terms.in_doubt {
                InDoubt::Hold => panic!("a held intent ran again"),
                InDoubt::Probe => assert!(probe_first, "a doubt was not asked about"),
                InDoubt::Tell => panic!("a doubt ran again that its caller was not told of"),
                InDoubt::Retry => {
                    let first = before.and_then(|seen| seen.record.first_sent_at).expect("it was sent");
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
    assert_ne!(standing, Some(Standing::Done), "done was changed by {command:?}");
    let settles = matches!(command, Command::Finish { .. } | Command::Resolve { .. } | Command::NotFound { .. });
    if standing.is_some() && seen.record.doubt_since.is_some() && !settles {
        assert!(after.doubt_since.is_some(), "a doubt was forgotten by {command:?}");
    }
    // A sent attempt ends in an outcome, a proof, a doubt, or a person's word; never by the clock alone.
    if let (State::Leased(lease), Command::Begin(_)) = (&seen.record.state, command)
        && lease.phase == Phase::Sent
        && standing.is_some()
    {
        assert!(after.doubt_since.is_some(), "a lapsed sent attempt was taken over without a doubt");
    }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn no_walk_breaks_a_rule(moves in moves(), policy in 0..3_usize) {
        let mut walk = Walk::new([InDoubt::Hold, InDoubt::Retry, InDoubt::Probe][policy]);
        for next in &moves {
            walk.make(next);
        }
    }
}
