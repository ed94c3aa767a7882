//! Rules of `decide` that are visible only in the record itself, and that the vectors do not cover.

use std::time::Duration;

use onceward_core::decide::{Again, Begin, Command, CommandResult, Decision, Enqueue, Resolution, Take, Write, decide};
use onceward_core::fingerprint::Fingerprint;
use onceward_core::hash::digest;
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outbox::Entry;
use onceward_core::outcome::{Outcome, Verdict};
use onceward_core::policy::{InDoubt, Policy, Terms};
use onceward_core::record::{Fence, Record, Seen, State};
use onceward_core::time::Timestamp;

const LEASE: Duration = Duration::from_millis(3000);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn fence(number: u128) -> Fence {
    Fence::from_bits(number)
}

fn identity() -> Identity {
    Identity { tenant: Tenant::default(), operation: Operation::new("charge").unwrap(), key: Key::new("k").unwrap() }
}

fn terms(in_doubt: InDoubt) -> Terms {
    let retention = Some(Duration::from_millis(10_000));
    Terms { in_doubt, retention, tombstone: Duration::from_millis(20_000), ..Policy::default().terms() }
}

fn call(owner: u128, in_doubt: InDoubt, marks_sent: bool) -> Begin {
    Begin {
        identity: identity(),
        key_digest: None,
        fingerprint: Fingerprint::none(),
        terms: terms(in_doubt),
        take: Take { fence: fence(owner), lease: LEASE, marks_sent, probes: true, owner: None, claim: None },
        again: Again::default(),
    }
}

fn begin(owner: u128, in_doubt: InDoubt, marks_sent: bool) -> Command {
    Command::Begin(call(owner, in_doubt, marks_sent))
}

/// The record after a command.
#[track_caller]
fn after(record: Option<&Record>, millis: i64, command: &Command) -> Record {
    let now = at(millis);
    let seen = record.map(|record| Seen { record: record.clone(), now, owner_gone: false });
    match decide(seen.as_ref(), command).write {
        Write::Insert(draft) | Write::Replace(draft) => draft.stamp(now),
        write => panic!("{command:?} writes {write:?}"),
    }
}

#[test]
fn the_expiry_of_a_released_record_saturates_instead_of_overflowing() {
    let first = after(None, 1000, &begin(1, InDoubt::Hold, false));
    let release = Command::Release { fence: fence(1), not_before: Duration::from_millis(7), error: None };
    let mut open = after(Some(&first), 2000, &release);
    (open.terms.retention, open.terms.tombstone) = (Some(Duration::MAX), Duration::MAX);
    assert_eq!(open.untried_until(), Some(at(i64::MAX)));
    (open.terms.retention, open.terms.honours_key_for) = (Some(Duration::ZERO), Duration::ZERO);
    open.terms.tombstone = Duration::ZERO;
    assert_eq!(open.untried_until(), Some(at(2007)));
    open.updated_at = at(i64::MAX - 3);
    open.terms.honours_key_for = Duration::from_millis(5);
    assert_eq!(open.untried_until(), Some(at(i64::MAX)));
    open.payload = Some("letter".into());
    assert_eq!(open.untried_until(), None);
    assert_eq!(first.untried_until(), None, "it is running");
}

#[test]
fn an_outcome_is_kept_from_its_recording_if_the_clock_was_set_back() {
    let first = after(None, 1_000_000, &begin(1, InDoubt::Hold, false));
    let finish = Command::Finish { fence: fence(1), outcome: Outcome::of(Verdict::Success, "text/plain", "done") };
    let set_back = after(Some(&first), 5, &finish);
    let Record { state: State::Done { finished_at, expires_at, forget_at, .. }, updated_at, .. } = set_back else {
        panic!("it is finished");
    };
    assert_eq!((finished_at, updated_at), (at(1_000_000), at(1_000_000)));
    assert_eq!((expires_at, forget_at), (Some(at(1_010_000)), Some(at(1_030_000))));
    let in_time = after(Some(&first), 1_000_007, &finish);
    assert!(matches!(in_time.state, State::Done { finished_at, .. } if finished_at == at(1_000_007)));
}

#[test]
fn a_probe_that_found_nothing_restarts_the_time_that_the_downstream_knows_the_key() {
    let first = after(None, 1000, &begin(1, InDoubt::Probe, false));
    for (marks_sent, expected) in [(false, Some(at(6000))), (true, None)] {
        let taken = after(Some(&first), 5000, &begin(2, InDoubt::Probe, marks_sent));
        assert_eq!(taken.first_sent_at, Some(at(1000)), "a takeover settles nothing");
        let settled = after(Some(&taken), 6000, &Command::NotFound { fence: fence(2) });
        assert_eq!((settled.doubt_since, settled.first_sent_at), (None, expected));
    }
}

#[test]
fn a_takeover_has_to_probe_first_only_with_the_probe_policy() {
    for (in_doubt, asks) in [(InDoubt::Retry, false), (InDoubt::Probe, true)] {
        let record = after(None, 1000, &begin(1, in_doubt, false));
        let lapsed = Seen { record, now: at(5000), owner_gone: false };
        let CommandResult::Decision(Decision::Acquired(acquired)) =
            decide(Some(&lapsed), &begin(2, in_doubt, false)).answer
        else {
            panic!("it may be taken over");
        };
        assert_eq!(acquired.probe_first, asks, "{in_doubt:?}");
    }
}

#[test]
fn a_forgotten_record_is_overwritten_with_its_next_version() {
    let claimed = after(None, 1000, &begin(1, InDoubt::Hold, false));
    let done = after(Some(&claimed), 2000, &Command::Finish { fence: fence(1), outcome: Outcome::success("1") });
    let enqueue = Command::Enqueue(Enqueue {
        identity: identity(),
        key_digest: None,
        fingerprint: Fingerprint::none(),
        terms: terms(InDoubt::Hold),
        payload: "payload".into(),
        entry: Entry::default(),
        delay: Duration::ZERO,
    });
    let forgotten = 2000 + 30_000;
    for command in [begin(2, InDoubt::Hold, false), enqueue] {
        let next = after(Some(&done), forgotten, &command);
        assert_eq!((next.version, next.created_at), (done.version + 1, at(forgotten)));
        assert_eq!(next.attempts, u32::from(matches!(command, Command::Begin(_))));
    }
}

#[test]
fn the_retry_after_of_running_work_is_short_and_never_past_its_lease() {
    let claimed = after(None, 1000, &begin(1, InDoubt::Hold, false));
    for (now, expected) in [(1000, 1000), (3500, 500)] {
        let seen = Seen { record: claimed.clone(), now: at(now), owner_gone: false };
        let CommandResult::Decision(Decision::InFlight { retry_after, running, attempt }) =
            decide(Some(&seen), &begin(2, InDoubt::Hold, false)).answer
        else {
            panic!("it is running");
        };
        assert_eq!((retry_after.as_millis(), running, attempt), (expected, true, 1));
    }
}

#[test]
fn a_reset_record_takes_all_values_from_its_next_caller() {
    let claimed = after(None, 1000, &begin(1, InDoubt::Hold, false));
    let version = claimed.version;
    let reset = Command::Resolve { version, resolution: Resolution::Reset, fence: fence(9) };
    let open = after(Some(&claimed), 5000, &reset);
    assert_eq!((open.fingerprint, open.generation), (Fingerprint::free(), 1));
    let key_digest = Some(digest(b"derived"));
    let next = Command::Begin(Begin { key_digest, ..call(2, InDoubt::Retry, true) });
    let next = after(Some(&open), 6000, &next);
    assert_eq!((next.fingerprint, next.terms.in_doubt), (Fingerprint::none(), InDoubt::Retry));
    assert_eq!(next.key_digest, key_digest, "otherwise a collision would go unnoticed");
    assert_eq!((next.attempts, next.generation, next.first_sent_at), (2, 1, None));
}

fn delivered(owner: u128, arrived: bool) -> Command {
    Command::Delivered { fence: fence(owner), arrived }
}

#[test]
fn a_delivery_changes_only_its_own_field() {
    let claimed = after(None, 1000, &begin(1, InDoubt::Hold, false));
    let done = after(Some(&claimed), 2000, &Command::Finish { fence: fence(1), outcome: Outcome::success("1") });
    let told = after(Some(&done), 2500, &delivered(1, true));
    let expected =
        Record { delivered_at: Some(at(2500)), version: done.version + 1, updated_at: at(2500), ..done.clone() };
    assert_eq!(told, expected, "the outcome is kept for as long as before");
    let revoked = after(Some(&told), 2600, &delivered(1, false));
    assert_eq!(revoked, Record { delivered_at: None, version: told.version + 1, updated_at: at(2600), ..told.clone() });
    let seen = Seen { record: told, now: at(2700), owner_gone: false };
    let again = decide(Some(&seen), &delivered(1, true));
    assert_eq!((again.write, again.answer), (Write::None, CommandResult::Accepted), "the first delivery counts");
}

#[test]
fn a_revoked_delivery_is_written_even_if_none_was_recorded() {
    let claimed = after(None, 1000, &begin(1, InDoubt::Hold, false));
    let done = after(Some(&claimed), 2000, &Command::Finish { fence: fence(1), outcome: Outcome::success("1") });
    let revoked = after(Some(&done), 2500, &delivered(1, false));
    assert_eq!(revoked.version, done.version + 1, "otherwise a waiting write of the delivery would succeed after it");
}

#[test]
fn the_next_call_of_an_intent_takes_only_the_count_from_the_last_one() {
    let causal = |owner, in_doubt| {
        let mut call = call(owner, in_doubt, false);
        call.terms.after_delivery = Some(Duration::ZERO);
        Command::Begin(call)
    };
    let claimed = after(None, 1000, &causal(1, InDoubt::Hold));
    let done = after(Some(&claimed), 2000, &Command::Finish { fence: fence(1), outcome: Outcome::success("1") });
    let told = after(Some(&done), 2500, &delivered(1, true));
    let next = after(Some(&told), 3000, &causal(2, InDoubt::Retry));
    assert_eq!((next.version, next.generation, next.attempts), (told.version + 1, 1, 1));
    assert_eq!(
        (next.created_at, next.first_sent_at),
        (at(3000), Some(at(3000))),
        "the downstream does not know its key"
    );
    assert_eq!((next.terms.in_doubt, next.delivered_at), (InDoubt::Retry, None), "a new call has its own terms");
}
