//! The archived items of a stream: an item may be archived twice, and never overwrites another record.

use std::time::Duration;

use onceward_core::decide::{
    Again, Begin, BeginItem, Command, CommandResult, Decision, Take, Transition, Write, decide,
};
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

/// The archive record of the first item, which was done at 2000 with this body.
fn archived(body: &'static str) -> Box<Draft> {
    let head = written(decide(None, &begin_item(1)), 1000);
    let finish = Command::Finish { fence: FENCE, outcome: Outcome::success(body) };
    let done = written(at(&head, 2000, &finish), 2000);
    at(&done, 3000, &begin_item(2)).archive.expect("the stream goes on")
}

#[test]
fn an_item_that_is_already_archived_is_not_written_again() {
    let draft = archived("1");
    let kept = draft.clone().stamp(Timestamp::from_millis(3000));
    let tombstone = written(at(&kept, 12_000, &Command::Expire), 12_000);
    assert!(matches!(tombstone.state, State::Tombstone { .. }));
    for (record, millis) in [(kept, 4000), (tombstone, 13_000)] {
        let again = at(&record, millis, &Command::Archive(draft.clone()));
        assert_eq!((again.write, again.answer), (Write::None, CommandResult::Accepted));
    }
}

#[test]
fn another_record_under_the_same_key_is_not_overwritten() {
    let draft = archived("1");
    let another_outcome = archived("2").stamp(Timestamp::from_millis(3000));
    let mut another_number = draft.clone().stamp(Timestamp::from_millis(3000));
    another_number.sequence = Some(7);
    for record in [another_outcome, another_number] {
        let refused = at(&record, 4000, &Command::Archive(draft.clone()));
        assert_eq!((refused.write, refused.answer), (Write::None, CommandResult::Decision(Decision::MixedUse)));
    }
}
