//! Any row in a ledger file is unreadable, which is reported and hides no other row, or is a record that can be written
//! again in place. And any record becomes a row that is read back as that record.

#![no_main]

mod ledger_file;
mod row;

use std::time::Duration;

use libfuzzer_sys::arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use onceward::core::decide::{Again, Begin, Command, LeaseEntry, Resolution, Take, Transition, Write, decide};
use onceward::core::fingerprint::Fingerprint;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::outbox::Destination;
use onceward::core::outcome::Outcome;
use onceward::core::policy::Policy;
use onceward::core::record::{Draft, Fence, Record, State};
use onceward::core::time::{Timestamp, When};
use onceward::store::{Error, Filter, Inserted, Replace, Replaced, Store};

use ledger_file::LedgerFile;

fuzz_target!(|bytes: &[u8]| {
    let mut given = Unstructured::new(bytes);
    LedgerFile::with(|ledger| {
        ledger.clear();
        if given.arbitrary().unwrap_or(false) {
            if let Ok(record) = row::record(&mut given) {
                ledger.wait(record_becomes_row(ledger, record));
            }
        } else if let Ok(row) = row::row(&mut given)
            && ledger.put(&row)
        {
            // One of all commands, so that an execution is short.
            let chosen = given.arbitrary().unwrap_or(0_u8);
            let is_readable = ledger.wait(row_becomes_record(ledger, usize::from(chosen)));
            if !is_readable || chosen >= 0xf0 {
                ledger.wait(others_are_seen(ledger));
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

/// The only error that a store may return for a row that it cannot read. A dead thread is a bug too.
fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::Unreadable { .. })
}

/// Whether there is a record in the row. If so, every result of `decide` can be written in its place.
async fn row_becomes_record(ledger: &LedgerFile, chosen: usize) -> bool {
    let seen = match ledger.store().get(identity().digest()).await {
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
    rewrite(ledger, &seen.record, drafts[chosen % drafts.len()].clone()).await;
    true
}

/// Every command on the record, with its fence.
fn commands(record: &Record) -> Vec<Command> {
    let fence = record.fence().unwrap_or(Fence::from_bits(0));
    let lease = Duration::from_secs(1);
    let take = Take { fence: Fence::from_bits(1), lease, marks_sent: true, probes: true, owner: None, claim: None };
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
            again: Again::default(),
        }),
        Command::Doubt { fence, error: None },
        Command::NotFound { fence },
        Command::Lease(LeaseEntry { take, destination: Destination { sink: "sink".to_owned(), key: "k".to_owned() } }),
        Command::Requeue { version: record.version, fresh_key: true },
        Command::Resolve { version: record.version, resolution: Resolution::Reset, fence: Fence::from_bits(2) },
        Command::Finish { fence, outcome: Outcome::success("1") },
        Command::Expire,
    ]
}

/// Writes the next version of a record and reads it: the write must find the row, and the row must be the record.
async fn rewrite(ledger: &LedgerFile, record: &Record, draft: Draft) {
    let written = ledger.store().replace(Replace::of(record, draft.clone())).await;
    let now = match written {
        Ok(Replaced::Written { now }) => now,
        Ok(Replaced::Conflict(found)) => panic!("the row is not the one that was read: {record:?}, then {found:?}"),
        // The last version that a row can hold.
        Err(error) if record.version >= i64::MAX.unsigned_abs() => {
            assert!(!matches!(error, Error::Closed), "{error}");
            return;
        }
        Ok(Replaced::Undecided) => panic!("no other program holds it: {record:?}"),
        Err(error) => panic!("what was read cannot be written: {error}: {record:?}"),
    };
    let found = ledger.store().get(record.id).await.expect("what was written can be read").expect("it is there");
    assert_eq!(kept(found.record), kept(draft.stamp(now)));
}

/// The part of a record that a row keeps: of a tombstone, only what a late retry needs.
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

/// An unreadable row must not hide the others.
async fn others_are_seen(ledger: &LedgerFile) {
    let store = ledger.store();
    let mut record = row::plain(identity());
    let other = Identity { key: Key::new("other").expect("this is a name"), ..identity() };
    (record.id, record.identity) = (other.digest(), Some(other.clone()));
    record.fingerprint = Fingerprint::none();
    let inserted = store.insert(record.map(When::At), None).await.expect("it can be written");
    assert!(matches!(inserted, Inserted::Created { .. }));
    let page = store.list(&Filter::default(), None, 10).await.expect("lists leave out what cannot be read");
    assert!(page.listed.iter().any(|listed| listed.seen.record.id == other.digest()));
    store.counts(None).await.expect("counts leave out what cannot be read");
    store.purge(10).await.expect("the sweeper leaves alone what cannot be read");
    if let Err(error) = store.trail(identity().digest()).await {
        assert!(is_unreadable(&error), "{error}");
    }
}

async fn record_becomes_row(ledger: &LedgerFile, record: Record) {
    let draft = record.clone().map(When::At);
    match ledger.store().insert(draft, None).await {
        Ok(Inserted::Created { .. }) => {
            let found =
                ledger.store().get(record.id).await.expect("what was written can be read").expect("it is there");
            assert_eq!(kept(found.record), kept(record));
        }
        Ok(other) => panic!("the record was not written: {other:?}"),
        Err(error) => {
            // A row cannot hold numbers beyond 63 bits.
            assert!(row::has_a_large_number(&record), "{error}: {record:?}");
            assert!(!matches!(error, Error::Closed), "{error}");
        }
    }
}
