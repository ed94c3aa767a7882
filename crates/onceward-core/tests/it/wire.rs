//! Every type that is serialised as JSON round-trips, and texts for people say what they are about.

use std::time::Duration;

use onceward_core::claim::ClaimId;
use onceward_core::class::{Class, Disposition};
use onceward_core::decide::{
    Again, Begin, Command, CommandResult, Decision, Enqueue, LeaseEntry, Refusal, Resolution, Take, Undelivered, Write,
    decide,
};
use onceward_core::duration::as_text;
use onceward_core::evidence::Evidence;
use onceward_core::fingerprint::Fingerprint;
use onceward_core::hash::digest;
use onceward_core::json::MAX_BYTES;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outbox::{AfterAttempt, Destination, Entry, Priority, RerunLink};
use onceward_core::outcome::Outcome;
use onceward_core::policy::{Effect, InDoubt, Terms};
use onceward_core::record::{Fence, Owner, Seen, Standing, State, Status};
use onceward_core::time::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[track_caller]
fn comes_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let text = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&text).unwrap(), value, "{text}");
}

fn terms() -> Terms {
    Terms {
        effect: Effect::Transactional,
        in_doubt: InDoubt::Retry,
        retention: Some(Duration::from_millis(1500)),
        tombstone: Duration::from_millis(2500),
        honours_key_for: Duration::from_millis(3500),
        max_attempts: Some(4),
        after_delivery: Some(Duration::from_millis(5500)),
    }
}

fn commands() -> Vec<Command> {
    let (fence, lease) = (Fence::from_bits(7), Duration::from_millis(4500));
    let identity = Identity {
        tenant: Tenant::new("acme").unwrap(),
        operation: Operation::new("charge").unwrap(),
        key: Key::new("k").unwrap(),
    };
    let claim = Some(ClaimId::new(b"token", "c"));
    let take = Take { fence, lease, marks_sent: true, probes: true, owner: Some(Owner(9)), claim };
    let destination = Destination { sink: "stripe".to_owned(), key: "once_v1_1".to_owned() };
    let entry = Entry {
        priority: Priority::Low,
        deliver_within: Some(lease),
        keeps_payload: true,
        destination: Some(destination.clone()),
        rerun: Some(Box::new(RerunLink {
            of: Key::new("k").unwrap(),
            run: 2,
            why: "lost".to_owned(),
            by: Some("ana".to_owned()),
            token: None,
        })),
    };
    let (key_digest, fingerprint) = (Some(digest(b"key")), Fingerprint::none());
    vec![
        Command::Begin(Begin {
            identity: identity.clone(),
            key_digest,
            fingerprint,
            terms: terms(),
            take,
            again: Again::IfDeliveredBefore(Timestamp::from_millis(6500)),
        }),
        Command::Delivered { fence, arrived: true },
        Command::Sent { fence, lease },
        Command::Renew { fence, lease },
        Command::Finish {
            fence,
            outcome: Outcome::success("1").with_status(200).with_reference(Some("ch_1".to_owned())),
        },
        Command::Release { fence, not_before: lease, error: Some("no".to_owned()) },
        Command::Withdraw { fence, error: Some("cancelled".to_owned()) },
        Command::Doubt { fence, error: None },
        Command::NotFound { fence },
        Command::Resolve { version: 3, resolution: Resolution::DidNotHappen, fence },
        Command::Resolve { version: 3, resolution: Resolution::Happened(Outcome::failure("2")), fence },
        Command::Expire,
        Command::Enqueue(Enqueue {
            identity,
            key_digest,
            fingerprint,
            terms: Terms { retention: None, ..terms() },
            payload: "payload".into(),
            entry,
            delay: lease,
        }),
        Command::Lease(LeaseEntry { take, destination: destination.clone() }),
        Command::Undelivered(Undelivered {
            fence,
            may_have_happened: true,
            retry_in: lease,
            after: AfterAttempt::GiveUp,
            error: Some("no".to_owned()),
        }),
        Command::Cancel { version: 3 },
        Command::Requeue { version: 3, fresh_key: true },
        Command::GiveBack { fence, version: 1, error: None },
    ]
}

#[test]
fn every_command_round_trips() {
    commands().iter().for_each(comes_back);
}

#[test]
fn every_transition_and_every_record_round_trips() {
    let now = Timestamp::from_millis(1_000_000);
    let first = |command: &Command| matches!(command, Command::Begin(_) | Command::Enqueue(_));
    for command in commands().into_iter().filter(first) {
        let transition = decide(None, &command);
        comes_back(&transition);
        let Write::Insert(draft) = transition.write else { panic!("a first call is an insert") };
        comes_back(&Seen { record: draft.stamp(now), now, owner_gone: true });
    }
    let in_flight = Decision::InFlight { retry_after: Duration::from_millis(55), running: true, attempt: 2 };
    comes_back(&CommandResult::Decision(in_flight));
}

#[test]
fn every_class_and_every_disposition_round_trips() {
    let wait = Duration::from_millis(66);
    for class in [
        Class::NotSent,
        Class::Refused { retry_after: Some(wait) },
        Class::Refused { retry_after: None },
        Class::Final,
        Class::Unknown,
        Class::Unclassified { evidence: None },
        Class::Unclassified { evidence: Some(Evidence::Interrupted) },
    ] {
        comes_back(&class);
    }
    for disposition in [Disposition::Release(wait), Disposition::Keep, Disposition::Doubt] {
        comes_back(&disposition);
    }
}

#[test]
fn a_duration_in_a_configuration_is_text() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Setting {
        #[serde(with = "as_text")]
        wait: Duration,
    }
    let setting: Setting = serde_json::from_str(r#"{"wait":"1h30m"}"#).unwrap();
    assert_eq!(setting.wait, Duration::from_secs(5400));
    assert_eq!(serde_json::to_string(&setting).unwrap(), r#"{"wait":"90m"}"#);
    assert!(serde_json::from_str::<Setting>(r#"{"wait":"soon"}"#).is_err());
}

#[test]
fn every_refusal_says_why() {
    for (refusal, said) in [
        (Refusal::Absent, "there is no such intent"),
        (Refusal::Running, "a caller is doing the work now"),
        (Refusal::Changed, "the record has changed since it was read"),
        (Refusal::NothingToDo(Status::Done), "there is nothing to settle: the intent is done"),
    ] {
        assert_eq!(refusal.to_string(), said);
    }
}

#[test]
fn debug_output_shows_only_a_part_of_keys_and_fences() {
    assert_eq!(format!("{:?}", Key::new("abc").unwrap()), "Key(ba7816bf)");
    assert_eq!(format!("{:?}", Fence::from_bits(0xfedc << 112)), "Fence(fedc…)");
}

#[test]
fn a_timestamp_is_displayed_as_iso_8601() {
    assert_eq!(Timestamp::from_millis(1_794_744_000_007).to_string(), "2026-11-15T12:00:00.007Z");
    assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), "9223372036854775807 ms");
}

#[test]
fn an_impossible_not_before_does_not_block_the_key() {
    let Write::Insert(draft) = decide(None, &commands()[0]).write else { panic!("a first call is an insert") };
    let now = Timestamp::from_millis(1_000_000);
    let stands_open_until = |millis: i64| {
        let mut record = draft.clone().stamp(now);
        record.state = State::Open { not_before: Timestamp::from_millis(millis) };
        match (Seen { record, now, owner_gone: false }).standing() {
            Some(Standing::Open { not_before }) => not_before.as_millis(),
            other => panic!("{other:?}"),
        }
    };
    // Twice the longest wait that can be requested.
    let furthest = 1_000_000 + 14 * 86_400_000;
    assert_eq!(stands_open_until(furthest), furthest);
    assert_eq!(stands_open_until(furthest + 1), 1_000_000);
}

#[test]
fn the_bytes_of_a_fence_keep_all_its_bits() {
    let bytes = *b"sixteen bytes ok";
    assert_eq!(Fence::from_bytes(bytes).to_bytes(), bytes);
    assert_eq!(Fence::from_bits(1).to_bytes()[15], 1);
    assert!(serde_json::from_str::<Fence>("\"0123\"").is_err());
}

#[test]
fn eight_mebibytes_of_json_are_parsed() {
    assert_eq!(MAX_BYTES, 8_388_608);
}
