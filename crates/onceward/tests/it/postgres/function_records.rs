//! The SQL functions on records that servers and people left behind, beside the transition function: both must give the same answer
//! and the same record.

use std::sync::Arc;
use std::time::Duration;

use onceward::clock::ManualClock;
use onceward::core::claim::{ClaimId, Claims};
use onceward::core::decide::{Begin, Command, Enqueue, Take, Write, decide};
use onceward::core::fingerprint::{self, Fingerprint};
use onceward::core::hash::{self, Digest};
use onceward::core::outbox::{Destination, Entry, Priority};
use onceward::core::outcome::Outcome;
use onceward::core::policy::{Effect, InDoubt, Terms};
use onceward::core::record::{Draft, Fence, Lease, Phase, Record, State};
use onceward::core::time::{Timestamp, When};
use onceward::store::Store;
use onceward::store::postgres::Postgres;

use super::function_vectors::{LEASE, TEST_CLOCK, answer_of, identity, set_clock, without_fence};
use super::server::Database;

const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

const DAY: Duration = Duration::from_secs(86_400);

fn at(millis_ago: i64) -> When {
    When::At(Timestamp::from_millis(NOW.as_millis() - millis_ago))
}

/// A record of a server that gave its claim back, with everything that such a record may have.
fn given_back() -> Draft {
    Record {
        id: identity().digest(),
        identity: Some(identity()),
        key_digest: Some(hash::digest(b"the key")),
        fingerprint: request(),
        version: 7,
        state: State::Open { not_before: at(50) },
        terms: Terms {
            effect: Effect::Transactional,
            in_doubt: InDoubt::Retry,
            retention: Some(DAY * 3),
            tombstone: DAY * 2,
            honours_key_for: DAY / 2,
            max_attempts: Some(9),
            after_delivery: Some(DAY / 24),
        },
        attempts: 4,
        generation: 2,
        payload: None,
        entry: None,
        created_at: at(5000),
        updated_at: at(100),
        first_sent_at: Some(at(3000)),
        doubt_since: None,
        delivered_at: None,
        last_error: Some("connection refused".to_owned()),
        sequence: None,
        claims: claims(3),
        made_by: None,
    }
}

fn claims(number: u8) -> Claims {
    let mut claims = Claims::default();
    (1..=number).for_each(|id| claims.add(Some(ClaimId::from_bytes([id; 16]))));
    claims
}

fn request() -> Fingerprint {
    fingerprint::of_arguments(["the request"])
}

/// What differs from [`given_back`] in each case.
fn cases() -> Vec<(&'static str, Draft)> {
    let open = given_back();
    let terms = open.terms;
    let with = |change: fn(&mut Draft)| {
        let mut draft = given_back();
        change(&mut draft);
        draft
    };
    let policy = |in_doubt| Draft { terms: Terms { in_doubt, ..terms }, ..given_back() };
    vec![
        ("given back", open),
        ("given back, to be told", policy(InDoubt::Tell)),
        ("given back, to be probed", policy(InDoubt::Probe)),
        ("given back, to be held", policy(InDoubt::Hold)),
        ("given back, kept for ever", Draft { terms: Terms { retention: None, ..terms }, ..given_back() }),
        ("with as many claims as are kept", Draft { claims: claims(20), ..given_back() }),
        ("claimed last without an id", with(|draft| draft.claims.add(None))),
        ("of a window", Draft { terms: Terms { honours_key_for: DAY * 36_500, ..terms }, ..given_back() }),
        ("never claimed", Draft { claims: Claims::default(), first_sent_at: None, ..given_back() }),
        ("reset", Draft { fingerprint: Fingerprint::free(), key_digest: None, first_sent_at: None, ..given_back() }),
        ("reset, with a digest", Draft { fingerprint: Fingerprint::free(), ..given_back() }),
        ("without a digest", Draft { key_digest: None, ..given_back() }),
        ("of another request", Draft { fingerprint: fingerprint::of_arguments(["another"]), ..given_back() }),
        ("that has to wait", with(|draft| draft.state = State::Open { not_before: When::At(NOW.after(DAY)) })),
        ("of a clock ahead", with(|draft| draft.state = State::Open { not_before: When::At(NOW.after(DAY * 15)) })),
        (
            "forgotten",
            with(|draft| {
                draft.updated_at = at(8 * 86_400_000);
                draft.state = State::Open { not_before: draft.updated_at };
            }),
        ),
        ("of a tombstone", with(tombstone)),
        (
            "of a forgotten tombstone",
            with(|draft| {
                tombstone(draft);
                draft.state = State::Tombstone { outcome: hash::digest(b"x"), forget_at: at(1) };
            }),
        ),
        (
            "in doubt",
            with(|draft| {
                draft.state = State::InDoubt { fence: Fence::from_bits(9), retry_at: None };
                draft.doubt_since = Some(at(10));
            }),
        ),
        ("queued", entry(State::Queued { due: When::At(NOW.after(DAY)) })),
        ("an entry that is open", entry(State::Open { not_before: at(50) })),
        (
            "an entry in doubt that is tried again",
            Draft {
                doubt_since: Some(at(10)),
                ..entry(State::InDoubt { fence: Fence::from_bits(9), retry_at: Some(at(1)) })
            },
        ),
        ("an entry that a courier left behind before it was sent", entry(leased(Phase::Claimed, at(1)))),
        ("an entry that a courier left behind", entry(leased(Phase::Sent, at(1)))),
        ("a dead entry", entry(State::Dead)),
        (
            "running",
            with(|draft| {
                let lease = Lease {
                    phase: Phase::Sent,
                    fence: Fence::from_bits(9),
                    until: When::At(NOW.after(DAY)),
                    owner: None,
                };
                draft.state = State::Leased(lease);
            }),
        ),
    ]
}

fn leased(phase: Phase, until: When) -> State<When> {
    State::Leased(Lease { phase, fence: Fence::from_bits(9), until, owner: None })
}

/// The record as an entry of the outbox.
fn entry(state: State<When>) -> Draft {
    let destination = Some(Destination { sink: "größe".to_owned(), key: "once_v1_1".to_owned() });
    let entry = Entry { priority: Priority::Low, destination, ..Entry::default() };
    Draft { state, payload: Some("payload".into()), entry: Some(Box::new(entry)), ..given_back() }
}

fn tombstone(draft: &mut Draft) {
    let forget_at = When::At(NOW.after(DAY));
    *draft = Record {
        state: State::Tombstone { outcome: hash::digest(b"x"), forget_at },
        identity: None,
        key_digest: None,
        terms: Terms::of_tombstone(),
        attempts: 0,
        first_sent_at: None,
        last_error: None,
        ..draft.clone()
    };
    (draft.created_at, draft.updated_at) = (When::At(Timestamp::from_millis(0)), When::At(Timestamp::from_millis(0)));
}

/// A call of a function, and what it means to the transition function.
struct Call {
    sql: &'static str,
    key_digest: Option<Digest>,
    in_doubt: InDoubt,
    enqueues: bool,
}

const CALLS: [(&str, Option<&[u8]>, InDoubt, bool); 4] = [
    ("claim('charge', 'k', lease => '3 s', in_doubt => 'retry', ", None, InDoubt::Retry, false),
    (
        "claim('charge', 'k', lease => '3 s', in_doubt => 'probe', key_digest => sha256('the key'), ",
        Some(b"the key"),
        InDoubt::Probe,
        false,
    ),
    (
        "claim('charge', 'k', lease => '3 s', in_doubt => 'hold', key_digest => sha256('another key'), ",
        Some(b"another key"),
        InDoubt::Hold,
        false,
    ),
    ("enqueue('charge', 'k', 'payload', in_doubt => 'hold', ", None, InDoubt::Hold, true),
];

impl Call {
    fn command(&self) -> Command {
        let terms = Terms {
            effect: Effect::External,
            in_doubt: self.in_doubt,
            retention: Some(DAY),
            tombstone: DAY * 4,
            honours_key_for: DAY,
            max_attempts: None,
            after_delivery: None,
        };
        let (identity, key_digest, fingerprint) = (identity(), self.key_digest, request());
        if self.enqueues {
            let (payload, delay) = ("payload".into(), Duration::ZERO);
            let entry = Entry::default();
            return Command::Enqueue(Enqueue { identity, key_digest, fingerprint, terms, payload, entry, delay });
        }
        let fence = Fence::from_bits(1);
        let take = Take { fence, lease: LEASE, marks_sent: false, probes: false, owner: None, claim: None };
        Command::Begin(Begin { identity, key_digest, fingerprint, terms, take, again: Default::default() })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_servers_are_taken_as_the_transition_function_takes_them() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    database.run(TEST_CLOCK).await.unwrap();
    set_clock(&database, NOW).await;
    let clock = ManualClock::default();
    clock.set(NOW);
    let store = Postgres::open_with(&database.url, Some(Arc::new(clock))).await.unwrap();
    let generations =
        ["0", "2"].map(|number| format!("SELECT onceward.downstream_key('default', 'charge', 'k', {number})"));
    for (sql, key_digest, in_doubt, enqueues) in CALLS {
        let call = Call { sql, key_digest: key_digest.map(hash::digest), in_doubt, enqueues };
        for (name, draft) in cases() {
            let place = format!("{name}: {}", call.sql);
            store.insert(draft, None).await.unwrap();
            let seen = store.get(identity().digest()).await.unwrap().unwrap();
            let transition = decide(Some(&seen), &call.command());
            let fingerprint = request().digest().to_hex();
            let sql = format!(
                "SELECT decision, downstream_key FROM onceward.{} fingerprint => '\\x{fingerprint}', \
                 retention => '1 day', tombstone => '4 days')",
                call.sql
            );
            let found = database.run(&sql).await.unwrap().remove(0);
            assert_eq!(found[0].as_deref(), Some(answer_of(&transition.answer, Some(&seen)).as_str()), "{place}");
            let after = store.get(identity().digest()).await.unwrap().unwrap().record;
            let wanted = match transition.write {
                // Only the ledger takes over.
                Write::Insert(draft) | Write::Replace(draft) if found[0].as_deref() != Some("in_doubt") => {
                    draft.stamp(NOW)
                }
                _ => seen.record,
            };
            let generation = &generations[usize::from(wanted.generation > 0)];
            assert_eq!(found[1], database.run(generation).await.unwrap()[0][0], "{place}");
            assert_eq!(without_fence(after), without_fence(wanted), "{place}");
            database.run("TRUNCATE onceward.intent, onceward.audit, onceward.tenant_count").await.unwrap();
        }
    }
}

/// What differs from a claimed entry that was sent in each case.
fn entries() -> Vec<(&'static str, Draft)> {
    let sent = || entry(leased(Phase::Sent, When::At(NOW.after(DAY))));
    let doubted =
        |in_doubt| Draft { doubt_since: Some(at(10)), terms: Terms { in_doubt, ..given_back().terms }, ..sent() };
    let with = |change: fn(&mut Draft)| {
        let mut draft = sent();
        change(&mut draft);
        draft
    };
    let within = |draft: Draft, millis: u64| {
        let mut entry = draft.entry.clone().unwrap();
        entry.deliver_within = Some(Duration::from_millis(millis));
        Draft { entry: Some(entry), ..draft }
    };
    vec![
        ("with attempts left", sent()),
        ("claimed", entry(leased(Phase::Claimed, When::At(NOW.after(DAY))))),
        ("whose attempts are used up", with(|draft| draft.attempts = 9)),
        ("with any number of attempts", with(|draft| draft.terms.max_attempts = None)),
        ("that is late", within(sent(), 5000)),
        ("that is late after the wait", within(sent(), 5500)),
        ("that is in time after the wait", within(sent(), 5501)),
        ("in doubt, to be tried again", doubted(InDoubt::Retry)),
        ("in doubt, to be probed", doubted(InDoubt::Probe)),
        ("in doubt, to be held", doubted(InDoubt::Hold)),
        ("in doubt, whose attempts are used up", Draft { attempts: 9, ..doubted(InDoubt::Retry) }),
        ("in doubt, and late", within(doubted(InDoubt::Retry), 1)),
        ("that keeps its payload", with(|draft| draft.entry.as_mut().unwrap().keeps_payload = true)),
        ("without an entry beside its payload", with(|draft| draft.entry = None)),
        ("that is a direct call", Draft { payload: None, entry: None, ..sent() }),
        ("that is a direct call with as many attempts as it may have", {
            Draft { payload: None, entry: None, attempts: 9, ..sent() }
        }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_ended_as_the_transition_function_ends_them() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    database.run(TEST_CLOCK).await.unwrap();
    set_clock(&database, NOW).await;
    let clock = ManualClock::default();
    clock.set(NOW);
    let store = Postgres::open_with(&database.url, Some(Arc::new(clock))).await.unwrap();
    let fence = Fence::from_bits(9);
    let release = |millis| Command::Release { fence, not_before: Duration::from_millis(millis), error: None };
    let outcome = |reference: Option<&str>| Outcome::success("1").with_reference(reference.map(str::to_owned));
    let finish = |reference| Command::Finish { fence, outcome: outcome(reference) };
    let long = "x".repeat(256);
    let calls = [
        (release(0), "release(OF)".to_owned()),
        (release(500), "release(OF, not_before => '500 ms')".to_owned()),
        (finish(None), "finish(OF, '1')".to_owned()),
        (finish(Some("ch_ü")), "finish(OF, '1', reference => 'ch_ü')".to_owned()),
        (finish(None), "finish(OF, '1', reference => '')".to_owned()),
        (finish(Some(&long)), format!("finish(OF, '1', reference => '{long}')")),
    ];
    for (command, sql) in calls {
        for (name, draft) in entries() {
            let place = format!("{name}: {sql}");
            store.insert(draft, None).await.unwrap();
            let seen = store.get(identity().digest()).await.unwrap().unwrap();
            let Write::Replace(wanted) = decide(Some(&seen), &command).write else { panic!("{place}") };
            let sql = sql.replace("OF", "'charge', 'k', '00000000-0000-0000-0000-000000000009'");
            for _ in 0..2 {
                // The repeat of a call whose answer was lost changes nothing.
                database.run(&format!("SELECT onceward.{sql}::text")).await.unwrap();
                let after = store.get(identity().digest()).await.unwrap().unwrap().record;
                assert_eq!(after, wanted.clone().stamp(NOW), "{place}");
            }
            database.run("TRUNCATE onceward.intent, onceward.audit, onceward.tenant_count").await.unwrap();
        }
    }
}
