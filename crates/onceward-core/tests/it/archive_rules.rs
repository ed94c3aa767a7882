//! What a stream leaves behind when it goes on: it may be put there twice, and is never put over anything else.

use std::time::Duration;

use onceward_core::decide::{Again, Answer, Begin, BeginItem, Command, Decision, Take, Transition, Write, decide};
use onceward_core::fingerprint::Fingerprint;
use onceward_core::name::{self, Operation, Tenant};
use onceward_core::outcome::Outcome;
use onceward_core::policy::{Policy, Terms};
use onceward_core::record::{Draft, Fence, Record, Seen, State};
use onceward_core::stream::{Item, Stream};
use onceward_core::time::Timestamp;

const FENCE: Fence = Fence::from_bits(1);

fn begin_item(number: u64) -> Command {
    let stream = Stream {
        tenant: Tenant::default(),
        operation: Operation::new("apply").unwrap(),
        name: name::Stream::new("account").unwrap(),
    };
    let lease = Duration::from_millis(3000);
    let begin = Begin {
        identity: stream.head(),
        key_digest: None,
        fingerprint: Fingerprint::none(),
        terms: Terms { retention: Some(Duration::from_millis(10_000)), ..Policy::default().terms() },
        take: Take { fence: FENCE, lease, marks_sent: false, probes: false, owner: None, claim: None },
        again: Again::default(),
    };
    Command::BeginItem(BeginItem { item: Item { stream, number, start: 1 }, begin })
}

fn at(record: &Record, millis: i64, command: &Command) -> Transition {
    decide(Some(&Seen { record: record.clone(), now: Timestamp::from_millis(millis), owner_gone: false }), command)
}

#[track_caller]
fn written(transition: Transition, millis: i64) -> Record {
    match transition.write {
        Write::Insert(draft) | Write::Replace(draft) => draft.stamp(Timestamp::from_millis(millis)),
        write => panic!("{write:?}"),
    }
}

/// What is to be kept of the first item, which was done at 2000 with this answer.
fn left_behind(answer: &'static str) -> Box<Draft> {
    let head = written(decide(None, &begin_item(1)), 1000);
    let finish = Command::Finish { fence: FENCE, outcome: Outcome::success(answer) };
    let done = written(at(&head, 2000, &finish), 2000);
    at(&done, 3000, &begin_item(2)).archive.expect("the stream goes on")
}

#[test]
fn what_is_in_its_place_already_is_not_written_again() {
    let draft = left_behind("1");
    let kept = draft.clone().stamp(Timestamp::from_millis(3000));
    let tombstone = written(at(&kept, 12_000, &Command::Expire), 12_000);
    assert!(matches!(tombstone.state, State::Tombstone { .. }));
    for (record, millis) in [(kept, 4000), (tombstone, 13_000)] {
        let again = at(&record, millis, &Command::Archive(draft.clone()));
        assert_eq!((again.write, again.answer), (Write::None, Answer::Accepted));
    }
}

#[test]
fn what_somebody_else_put_there_is_not_overwritten() {
    let draft = left_behind("1");
    let another_outcome = left_behind("2").stamp(Timestamp::from_millis(3000));
    let mut another_number = draft.clone().stamp(Timestamp::from_millis(3000));
    another_number.sequence = Some(7);
    for record in [another_outcome, another_number] {
        let refused = at(&record, 4000, &Command::Archive(draft.clone()));
        assert_eq!((refused.write, refused.answer), (Write::None, Answer::Decision(Decision::MixedUse)));
    }
}
