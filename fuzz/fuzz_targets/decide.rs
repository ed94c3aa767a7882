//! Any sequence of events on one intent, through the real `decide`: claims, late owners, the courier, operators, a clock
//! that jumps in both directions, owners that are gone. No step breaks a rule.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use onceward_core::decide::{
    Again, Begin, Command, CommandResult, Decision, Enqueue, LeaseEntry, Resolution, Take, Transition, Undelivered,
    Write, decide,
};
use onceward_core::fingerprint::{Fingerprint, of_arguments};
use onceward_core::name::{Identity, Key, Operation, Tenant};
use onceward_core::outbox::{AfterAttempt, Destination, Entry};
use onceward_core::outcome::Outcome;
use onceward_core::policy::{Effect, InDoubt, Terms};
use onceward_core::record::{Fence, Phase, Record, Seen, Standing, State};
use onceward_core::time::Timestamp;

#[derive(Arbitrary, Debug)]
struct Input {
    in_doubt: u8,
    transactional: bool,
    retention: Option<u16>,
    tombstone: u16,
    honours_key_for: u16,
    max_attempts: Option<u8>,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
struct Step {
    /// How far the clock advances before the step; it can also be set back.
    passes: i16,
    owner_gone: bool,
    /// Which of the last four fences.
    who: u8,
    act: Act,
}

#[derive(Arbitrary, Debug)]
enum Act {
    Begin { lease: u16, marks_sent: bool, probes: bool, request: bool },
    Enqueue { delay: u16, deliver_within: Option<u16>, keeps_payload: bool, request: bool },
    Lease { lease: u16, marks_sent: bool, probes: bool },
    Sent { lease: u16 },
    Renew { lease: u16 },
    Finish { answer: bool, succeeds: bool },
    Release { not_before: u64 },
    Doubt,
    NotFound,
    Happened { late: bool },
    DidNotHappen { late: bool },
    Reset { late: bool },
    Expire,
    Requeue { fresh_key: bool },
    Cancel { late: bool },
    Undelivered { may_have_happened: bool, retry_in: u16, after: u8 },
}

struct Walk {
    record: Option<Record>,
    now: i64,
    drawn: u128,
    terms: Terms,
}

fuzz_target!(|input: Input| {
    let millis = |millis: u16| Duration::from_millis(u64::from(millis));
    let mut walk = Walk {
        record: None,
        now: 1_000_000,
        drawn: 0,
        terms: Terms {
            effect: if input.transactional { Effect::Transactional } else { Effect::External },
            in_doubt: [InDoubt::Hold, InDoubt::Tell, InDoubt::Retry, InDoubt::Probe][usize::from(input.in_doubt) % 4],
            retention: input.retention.map(millis),
            tombstone: millis(input.tombstone),
            honours_key_for: millis(input.honours_key_for),
            max_attempts: input.max_attempts.map(u32::from),
            // Finished work stays finished, which `check_replaced` relies on.
            after_delivery: None,
        },
    };
    for step in &input.steps {
        walk.make(step);
    }
});

impl Walk {
    fn make(&mut self, step: &Step) {
        self.now += i64::from(step.passes);
        let now = Timestamp::from_millis(self.now);
        let seen = self.record.clone().map(|record| Seen { record, now, owner_gone: step.owner_gone });
        let command = self.command(step);
        let transition = decide(seen.as_ref(), &command);
        assert_eq!(decide(seen.as_ref(), &command), transition, "decide is a function");
        check(seen.as_ref(), &command, &transition, now);
        match transition.write {
            Write::None => {}
            Write::Insert(draft) | Write::Replace(draft) => self.record = Some(draft.stamp(now)),
            Write::Remove => self.record = None,
        }
    }

    fn command(&mut self, step: &Step) -> Command {
        self.drawn += 1;
        let drawn = Fence::from_bits(self.drawn);
        let fence = Fence::from_bits(self.drawn.saturating_sub(1 + u128::from(step.who % 4)));
        let fence =
            if step.who & 4 == 0 { self.record.as_ref().and_then(Record::fence).unwrap_or(fence) } else { fence };
        let version = |late: bool| self.record.as_ref().map_or(0, |record| record.version - u64::from(late));
        let millis = |millis: u16| Duration::from_millis(u64::from(millis));
        let take = |lease: u16, marks_sent, probes| Take {
            fence: drawn,
            lease: millis(lease),
            marks_sent,
            probes,
            owner: None,
            claim: None,
        };
        let fingerprint = |request: bool| if request { of_arguments(["another"]) } else { Fingerprint::none() };
        match step.act {
            Act::Begin { lease, marks_sent, probes, request } => Command::Begin(Begin {
                identity: identity(),
                key_digest: None,
                fingerprint: fingerprint(request),
                terms: self.terms,
                take: take(lease, marks_sent, probes),
                again: Again::default(),
            }),
            Act::Enqueue { delay, deliver_within, keeps_payload, request } => Command::Enqueue(Enqueue {
                identity: identity(),
                key_digest: None,
                fingerprint: fingerprint(request),
                terms: self.terms,
                payload: "payload".into(),
                entry: Entry { deliver_within: deliver_within.map(millis), keeps_payload, ..Entry::default() },
                delay: millis(delay),
            }),
            Act::Lease { lease, marks_sent, probes } => Command::Lease(LeaseEntry {
                take: take(lease, marks_sent, probes),
                destination: Destination { sink: "sink".to_owned(), key: self.drawn.to_string() },
            }),
            Act::Sent { lease } => Command::Sent { fence, lease: millis(lease) },
            Act::Renew { lease } => Command::Renew { fence, lease: millis(lease) },
            Act::Finish { answer, succeeds } => {
                let body = if answer { "1" } else { "2" };
                let outcome = if succeeds { Outcome::success(body) } else { Outcome::failure(body) };
                Command::Finish { fence, outcome }
            }
            Act::Release { not_before } => {
                Command::Release { fence, not_before: Duration::from_millis(not_before), error: None }
            }
            Act::Doubt => Command::Doubt { fence, error: None },
            Act::NotFound => Command::NotFound { fence },
            Act::Happened { late } => {
                let resolution = Resolution::Happened(Outcome::success("by hand"));
                Command::Resolve { version: version(late), resolution, fence: drawn }
            }
            Act::DidNotHappen { late } => {
                Command::Resolve { version: version(late), resolution: Resolution::DidNotHappen, fence: drawn }
            }
            Act::Reset { late } => {
                Command::Resolve { version: version(late), resolution: Resolution::Reset, fence: drawn }
            }
            Act::Expire => Command::Expire,
            Act::Requeue { fresh_key } => Command::Requeue { version: version(false), fresh_key },
            Act::Cancel { late } => Command::Cancel { version: version(late) },
            Act::Undelivered { may_have_happened, retry_in, after } => Command::Undelivered(Undelivered {
                fence,
                may_have_happened,
                retry_in: millis(retry_in),
                after: [AfterAttempt::Retry, AfterAttempt::RetryUncounted, AfterAttempt::GiveUp][usize::from(after) % 3],
                error: None,
            }),
        }
    }
}

fn identity() -> Identity {
    Identity {
        tenant: Tenant::default(),
        operation: Operation::new("charge").expect("this is a name"),
        key: Key::new("k").expect("this is a name"),
    }
}

/// The rules between any two records, written independently of `decide`.
fn check(seen: Option<&Seen>, command: &Command, transition: &Transition, now: Timestamp) {
    let standing = seen.and_then(Seen::standing);
    if let CommandResult::Decision(Decision::Acquired(acquired)) = &transition.answer {
        assert!(matches!(transition.write, Write::Insert(_) | Write::Replace(_)), "a claim that is not written");
        check_acquired(seen, standing, command, acquired.probe_first, now);
    }
    if let CommandResult::Decision(Decision::Replay { outcome, .. }) = &transition.answer {
        let kept = seen.map(|seen| &seen.record.state);
        assert!(matches!(kept, Some(State::Done { outcome: kept, .. }) if kept == outcome), "another outcome");
        assert_eq!(standing, Some(Standing::Done));
    }
    if matches!(transition.answer, CommandResult::Stale { .. } | CommandResult::Refused(_)) {
        assert_eq!(transition.write, Write::None, "a refusal that writes");
    }
    let after = match (&transition.write, seen) {
        (Write::None, _) => return,
        (Write::Insert(draft), None) => {
            assert_eq!(draft.version, 1);
            return;
        }
        (Write::Insert(_), Some(_)) => panic!("an insert over a record"),
        (Write::Remove, _) => {
            assert_eq!(standing, None, "only what is forgotten is removed");
            return;
        }
        (Write::Replace(_), None) => panic!("a replace of nothing"),
        (Write::Replace(draft), Some(_)) => draft.clone().stamp(now),
    };
    let Some(seen) = seen else { return };
    check_replaced(seen, standing, command, &after);
}

/// A claim is granted only where nothing runs, nothing is done, and the policy settles any doubt.
fn check_acquired(
    seen: Option<&Seen>,
    standing: Option<Standing>,
    command: &Command,
    probe_first: bool,
    now: Timestamp,
) {
    let Some((seen, standing)) = seen.zip(standing) else { return };
    match standing {
        Standing::Open { .. } => assert!(!probe_first),
        Standing::Queued { due } => assert!(matches!(command, Command::Lease(_)) && due <= now),
        Standing::InDoubt { .. } => match seen.record.terms.in_doubt {
            InDoubt::Hold => panic!("a held intent ran again"),
            InDoubt::Tell => assert!(seen.record.delivered_at.is_some(), "a doubt ran before its caller was told"),
            InDoubt::Probe => assert!(probe_first, "a doubt was not asked about"),
            InDoubt::Retry => {
                let first = seen.record.first_sent_at.expect("it was sent");
                assert!(now < first.after(seen.record.terms.honours_key_for), "the key was forgotten");
            }
        },
        other => panic!("a claim was granted on {other:?}"),
    }
}

fn check_replaced(seen: &Seen, standing: Option<Standing>, command: &Command, after: &Record) {
    let before = &seen.record;
    assert_eq!(after.version, before.version + 1, "versions rise by one");
    assert_eq!(after.id, before.id);
    assert_ne!(standing, Some(Standing::Done), "done was changed by {command:?}");
    if standing.is_none() {
        return;
    }
    if let Command::Sent { fence, .. }
    | Command::Renew { fence, .. }
    | Command::Finish { fence, .. }
    | Command::Release { fence, .. }
    | Command::Withdraw { fence, .. }
    | Command::Doubt { fence, .. }
    | Command::NotFound { fence }
    | Command::Undelivered(Undelivered { fence, .. }) = command
    {
        assert_eq!(before.fence(), Some(*fence), "a command without the record's fence wrote it: {command:?}");
    } else {
        assert!(!matches!(standing, Some(Standing::Running { .. })), "a living claim was taken by {command:?}");
    }
    let settles = matches!(command, Command::Finish { .. } | Command::Resolve { .. } | Command::NotFound { .. });
    let was_sent = matches!(&before.state, State::Leased(lease) if lease.phase == Phase::Sent);
    let releases = matches!(command, Command::Release { .. } | Command::Withdraw { .. })
        || matches!(command, Command::Undelivered(end) if !end.may_have_happened);
    if !settles && (before.doubt_since.is_some() || was_sent && !releases) {
        let is_extended =
            matches!(command, Command::Sent { .. } | Command::Renew { .. }) && before.doubt_since.is_none();
        assert!(is_extended || after.doubt_since.is_some(), "a doubt was forgotten by {command:?}");
    }
    // What a direct call left open is queued on the terms of the outbox.
    let may_change_terms = before.fingerprint == Fingerprint::free() || matches!(command, Command::Enqueue(_));
    assert!(may_change_terms || after.terms == before.terms, "a caller changed the terms of a record");
    let destination = |record: &Record| record.entry.as_ref().and_then(|entry| entry.destination.clone());
    if before.doubt_since.is_some() && after.doubt_since.is_some() && destination(before).is_some() {
        assert_eq!(destination(after), destination(before), "a doubt went to another place by {command:?}");
    }
    if matches!(after.state, State::Dead) {
        assert_eq!(after.doubt_since, None, "dead means known not to have happened");
    }
    if after.generation != before.generation {
        let raises = matches!(
            command,
            Command::Requeue { fresh_key: true, .. } | Command::Resolve { resolution: Resolution::Reset, .. }
        );
        assert!(raises && after.generation == before.generation + 1, "the downstream key changed");
    }
}
