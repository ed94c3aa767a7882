//! Any row in a ledger file: it is unreadable, which is told and hides no other row; or it is a record that can be
//! written again where it lies. And any record becomes a row that is read back as that record.

#![no_main]

mod place;
mod row;

use std::time::Duration;

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use onceward::core::decide::{Begin, Command, Resolution, Take, Transition, Write, decide};
use onceward::core::fingerprint::Fingerprint;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outcome::Outcome;
use onceward::core::policy::Policy;
use onceward::core::record::{Draft, Fence, Record, State};
use onceward::core::time::{Timestamp, When};
use onceward::store::{Error, Filter, Inserted, Replace, Replaced, Store};

use place::Place;

fuzz_target!(|bytes: &[u8]| {
    let mut given = Unstructured::new(bytes);
    Place::with(|place| {
        place.clear();
        if given.arbitrary().unwrap_or(false) {
            if let Ok(record) = row::record(&mut given) {
                place.wait(record_becomes_row(place, record));
            }
        } else if let Ok(row) = row::row(&mut given)
            && place.put(&row)
        {
            // One of all that can be asked, so that an execution is short.
            let chosen = given.arbitrary().unwrap_or(0_u8);
            let is_readable = place.wait(row_becomes_record(place, usize::from(chosen)));
            if !is_readable || chosen >= 0xf0 {
                place.wait(others_are_seen(place));
            }
        }
    });
});

fn identity() -> Identity {
    Identity {
        tenant: Tenant::default(),
        operation: Operation::new("charge").expect("this is a name"),
        key: Key::new("k").expect("this is a name"),
    }
}

/// What a store that cannot read a row may say; anything else is a bug, and so is a thread that is gone.
fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::Unreadable { .. })
}

/// Whether there is a record in the row. If so, whatever `decide` makes of it can be written where it lies.
async fn row_becomes_record(place: &Place, chosen: usize) -> bool {
    let seen = match place.store().get(identity().digest()).await {
        Ok(Some(seen)) => seen,
        // The row has another id.
        Ok(None) => return false,
        Err(error) => {
            assert!(is_unreadable(&error), "{error}");
            return false;
        }
    };
    let commands = commands(&seen.record);
    let transitions = commands.iter().map(|command| decide(Some(&seen), command));
    let drafts: Vec<Draft> = transitions
        .filter_map(|Transition { write, .. }| match write {
            Write::Replace(draft) => Some(draft),
            Write::None | Write::Insert(_) | Write::Remove => None,
        })
        .chain([seen.record.next()])
        .collect();
    rewrite(place, &seen.record, drafts[chosen % drafts.len()].clone()).await;
    true
}

/// Everything that can be asked of the record, by whoever holds its fence.
fn commands(record: &Record) -> Vec<Command> {
    let fence = record.fence().unwrap_or(Fence::from_bits(0));
    let lease = Duration::from_secs(1);
    let take = Take { fence: Fence::from_bits(1), lease, marks_sent: true, probes: true, owner: None };
    vec![
        Command::Renew { fence, lease },
        Command::Sent { fence, lease },
        Command::Release { fence, not_before: lease, error: Some("no".to_owned()) },
        Command::Begin(Begin {
            identity: identity(),
            key_digest: record.key_digest,
            fingerprint: record.fingerprint,
            terms: Policy::default().terms(),
            take,
        }),
        Command::Doubt { fence, error: None },
        Command::NotFound { fence },
        Command::Lease(take),
        Command::Requeue { version: record.version, fresh_key: true },
        Command::Resolve { version: record.version, resolution: Resolution::Reset, fence: Fence::from_bits(2) },
        Command::Finish { fence, outcome: Outcome::success("1") },
        Command::Expire,
    ]
}

/// Writes the next version of a record and looks at it: the write must find the row, and the row must be the record.
async fn rewrite(place: &Place, record: &Record, draft: Draft) {
    let written = place.store().replace(Replace::of(record, draft.clone())).await;
    let now = match written {
        Ok(Replaced::Written { now }) => now,
        Ok(Replaced::Conflict(found)) => panic!("the row is not the one that was read: {record:?}, then {found:?}"),
        // The last version that a row can hold.
        Err(error) if record.version >= i64::MAX.unsigned_abs() => {
            assert!(!matches!(error, Error::Closed), "{error}");
            return;
        }
        Err(error) => panic!("what was read cannot be written: {error}: {record:?}"),
    };
    let found = place.store().get(record.id).await.expect("what was written can be read").expect("it is there");
    assert_eq!(kept(found.record), kept(draft.stamp(now)));
}

/// What a row keeps of a record: of a tombstone only what is needed to meet a late retry.
fn kept(mut record: Record) -> Record {
    if !matches!(record.state, State::Tombstone { .. }) {
        return record;
    }
    record.identity = None;
    record.key_digest = None;
    record.terms = Policy::default().terms();
    (record.attempts, record.generation, record.payload) = (0, 0, None);
    (record.created_at, record.updated_at) = (Timestamp::from_millis(0), Timestamp::from_millis(0));
    (record.first_sent_at, record.doubt_since, record.last_error) = (None, None, None);
    record.sequence = None;
    record
}

/// A row that nobody can read must not hide the others.
async fn others_are_seen(place: &Place) {
    let store = place.store();
    let mut record = row::plain(identity());
    let other = Identity { key: Key::new("other").expect("this is a name"), ..identity() };
    (record.id, record.identity) = (other.digest(), Some(other.clone()));
    record.fingerprint = Fingerprint::none();
    let inserted = store.insert(record.map(When::At)).await.expect("it can be written");
    assert!(matches!(inserted, Inserted::Created { .. }));
    let page = store.list(&Filter::default(), None, 10).await.expect("lists leave out what cannot be read");
    assert!(page.seen.iter().any(|seen| seen.record.id == other.digest()));
    store.counts().await.expect("counts leave out what cannot be read");
    store.purge(10).await.expect("the sweeper leaves alone what cannot be read");
    if let Err(error) = store.trail(identity().digest()).await {
        assert!(is_unreadable(&error), "{error}");
    }
}

async fn record_becomes_row(place: &Place, record: Record) {
    let draft = record.clone().map(When::At);
    match place.store().insert(draft, None).await {
        Ok(Inserted::Created { .. }) => {
            let found = place.store().get(record.id).await.expect("what was written can be read").expect("it is there");
            assert_eq!(kept(found.record), kept(record));
        }
        Ok(other) => panic!("the record was not written: {other:?}"),
        Err(error) => {
            // Numbers beyond 63 bits have no place in a row.
            assert!(row::has_a_large_number(&record), "{error}: {record:?}");
            assert!(!matches!(error, Error::Closed), "{error}");
        }
    }
}
