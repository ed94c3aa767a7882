//! The sink that runs a statement in one transaction with the end of the entry: each row is there once, whatever is cut, raced or
//! late.

use std::sync::Arc;
use std::time::Duration;

use onceward::core::retry::{backoff, budget};
use onceward::courier::{Courier, Parcel, Route, Sink, SinkResult, SqlStatement, StatementSink};
use onceward::name::{Identity, Key, Operation, Tenant};
use onceward::record::{Phase, State, Status};
use onceward::store::Store;
use onceward::store::postgres::Postgres;
use onceward::{Decision, EnqueueOptions, Enqueued, Ledger, Policy, StoreUrl};
use tokio::sync::oneshot;

use super::pooled::pooled_url;
use super::proxy::{Fault, Proxy, Side, Strike};
use super::server::{Database, run};

const MAIL: &str = "mail";

const INSERT: &str = "INSERT INTO public.mail (to_address, priority, body) VALUES ($1, $2, $3)";

/// With its schema: the user of these tests has the name of the ledger's, where its tables would be made otherwise.
const TABLE: &str = "CREATE TABLE public.mail (id bigserial, to_address text NOT NULL CHECK (to_address <> 'refused'), priority integer, \
    body jsonb)";

/// Which message of the server belongs to the answer to the statement, on a connection that is open: 4 answer to BEGIN and its
/// settings, 7 to the look at the fence, and 6 to the mark that it is sent.
const ANSWER_TO_STATEMENT: usize = 19;

async fn database() -> Option<Database> {
    let database = Database::create("ONCEWARD_TEST_POSTGRES").await?;
    database.run(TABLE).await.unwrap();
    Some(database)
}

/// Runs SQL in the database as an administrator. False, and a message, if there is none.
async fn as_administrator(database: &Database, sql: &str) -> bool {
    let Ok(server) = std::env::var("ONCEWARD_TEST_POSTGRES_ADMIN") else {
        assert!(std::env::var_os("CI").is_none(), "ONCEWARD_TEST_POSTGRES_ADMIN names no server");
        println!("skipped: ONCEWARD_TEST_POSTGRES_ADMIN names no server");
        return false;
    };
    let (_, name) = database.url.rsplit_once('/').unwrap();
    run(&format!("{}/{name}", server.rsplit_once('/').unwrap().0), sql).await.unwrap();
    true
}

/// The user of the ledger.
async fn user(database: &Database) -> String {
    database.run("SELECT current_user").await.unwrap()[0][0].clone().unwrap()
}

fn statement(sql: &str, values: &[&str]) -> SqlStatement {
    let values = values.iter().map(|value| value.parse().unwrap()).collect();
    SqlStatement { sql: sql.to_owned(), values, role: None, rows: None, timeout: Duration::from_secs(2) }
}

fn insert() -> SqlStatement {
    statement(INSERT, &["/to", "/priority", "payload"])
}

fn sink(url: &str, statement: SqlStatement) -> Arc<StatementSink> {
    Arc::new(StatementSink::new(&StoreUrl::from(url), statement, 4).unwrap())
}

fn route(sink: Arc<dyn Sink>) -> Route {
    let retry = backoff::Settings {
        base: Duration::from_millis(1),
        cap: Duration::from_millis(20),
        ..backoff::Settings::default()
    };
    let budget = budget::Settings { percent: 100, per_second: 1000, burst: 1000 };
    let breaker =
        onceward::core::breaker::Settings { failures: 10_000, ..onceward::core::breaker::Settings::default() };
    Route { retry, budget, breaker, timeout: Duration::from_secs(1), ..Route::to("database", sink) }
}

async fn ledger(url: &str) -> Ledger {
    let policy = Policy { max_attempts: Some(50), ..Policy::default() };
    Ledger::builder().policy(MAIL, policy).open(url).await.unwrap()
}

async fn queue(ledger: &Ledger, key: &str, payload: &str) -> Enqueued {
    let entry = ledger.operation(MAIL).key(key);
    entry.enqueue_json(payload.as_bytes().to_vec(), EnqueueOptions::default()).await.unwrap()
}

fn letter(number: usize) -> String {
    format!("{{\"to\":\"it's ann; DROP TABLE mail\",\"priority\":{number}}}")
}

fn identity(key: &str) -> Identity {
    Identity { tenant: Tenant::default(), operation: Operation::new(MAIL).unwrap(), key: Key::new(key).unwrap() }
}

async fn status(ledger: &Ledger, key: &str) -> Option<Status> {
    ledger.get(&identity(key)).await.unwrap().and_then(|intent| intent.status())
}

async fn last_error(ledger: &Ledger, key: &str) -> String {
    let intent = ledger.get(&identity(key)).await.unwrap().unwrap();
    intent.seen.record.last_error.unwrap_or_default()
}

async fn rows(database: &Database) -> usize {
    let rows = database.run("SELECT count(*) FROM public.mail").await.unwrap();
    rows[0][0].as_deref().unwrap().parse().unwrap()
}

/// Runs a courier until every entry rests.
async fn deliver(ledger: &Ledger, sink: Arc<StatementSink>, keys: &[String]) {
    let courier = Courier::new(ledger.clone()).route(MAIL, route(sink)).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(courier.run(async {
        let _ = stopped.await;
    }));
    let waiting = async {
        for key in keys {
            while !matches!(status(ledger, key).await, Some(Status::Done | Status::Dead)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("every entry comes to rest");
    let _ = stop.send(());
    running.await.unwrap();
}

fn keys(number: usize) -> Vec<String> {
    (0..number).map(|number| number.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_couriers_insert_each_row_once_and_repeats_get_the_outcome() {
    let Some(database) = database().await else { return };
    let ledger = ledger(&database.url).await;
    let keys = keys(40);
    for (number, key) in keys.iter().enumerate() {
        assert_eq!(queue(&ledger, key, &letter(number)).await, Enqueued::Created);
    }
    let sinks = [sink(&database.url, insert()), sink(&database.url, insert())];
    let [one, other] = sinks.map(|sink| deliver(&ledger, sink, &keys));
    tokio::join!(one, other);
    let counts = "SELECT count(*), count(DISTINCT priority), count(DISTINCT to_address), bool_and(body->>'to' = to_address) FROM public.mail";
    let found = database.run(counts).await.unwrap();
    assert_eq!(found[0].iter().flatten().collect::<Vec<_>>(), ["40", "40", "1", "t"]);
    match queue(&ledger, "7", &letter(7)).await {
        Enqueued::Existing(Decision::Replay { outcome, .. }) => {
            assert_eq!(outcome, onceward::Outcome::success("{\"rows\":1}"));
        }
        other => panic!("the outcome is replayed: {other:?}"),
    }
    let record = ledger.get(&identity("7")).await.unwrap().unwrap().seen.record;
    assert_eq!((record.payload, record.attempts), (None, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_that_cannot_be_inserted_die_and_their_neighbours_are_inserted() {
    let Some(database) = database().await else { return };
    let ledger = ledger(&database.url).await;
    let poison = [
        ("{\"to\":\"s3cret@example.org\",\"priority\":\"s3cret\"}", "SQLSTATE 22P02"),
        ("{\"to\":\"s3cret\",\"priority\":99999999999}", "SQLSTATE 22003"),
        ("{\"to\":null,\"priority\":1}", "SQLSTATE 23502"),
        ("{\"to\":\"refused\",\"priority\":1}", "SQLSTATE 23514"),
        ("{\"to\":\"a\\u0000s3cret\",\"priority\":1}", "SQLSTATE 22021"),
        ("{\"priority\":1}", "the payload has nothing at /to"),
        ("[\"s3cret\"]", "the payload has nothing at /to"),
    ];
    let keys = keys(poison.len() * 2);
    for (number, key) in keys.iter().enumerate() {
        let payload = if number % 2 == 0 { letter(number) } else { poison[number / 2].0.to_owned() };
        queue(&ledger, key, &payload).await;
    }
    deliver(&ledger, sink(&database.url, insert()), &keys).await;
    for (number, key) in keys.iter().enumerate() {
        let expected = if number % 2 == 0 { Status::Done } else { Status::Dead };
        assert_eq!(status(&ledger, key).await, Some(expected), "{number}");
        if number % 2 == 1 {
            let error = last_error(&ledger, key).await;
            assert!(error.contains(poison[number / 2].1) && !error.contains("s3cret"), "{number}: {error}");
        }
    }
    assert_eq!(rows(&database).await, poison.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_is_tried_again_and_a_constraint_that_is_checked_at_the_commit_counts() {
    let Some(database) = database().await else { return };
    // What a sequence counts is not rolled back.
    let refusing = "CREATE SEQUENCE tries; \
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            IF new.priority = 0 AND nextval('tries') < 4 THEN RAISE EXCEPTION 'later' USING ERRCODE = '40001'; END IF; \
            IF new.priority = 1 THEN RAISE EXCEPTION 'never' USING ERRCODE = '23514'; END IF; RETURN new; END $$; \
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON public.mail DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()";
    database.run(refusing).await.unwrap();
    let ledger = ledger(&database.url).await;
    for (number, key) in keys(3).iter().enumerate() {
        queue(&ledger, key, &letter(number)).await;
    }
    deliver(&ledger, sink(&database.url, insert()), &keys(3)).await;
    let found = [status(&ledger, "0").await, status(&ledger, "1").await, status(&ledger, "2").await];
    assert_eq!(found, [Some(Status::Done), Some(Status::Dead), Some(Status::Done)]);
    assert_eq!(ledger.get(&identity("0")).await.unwrap().unwrap().seen.record.attempts, 4);
    assert_eq!(rows(&database).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_of_rows_that_is_not_the_wanted_one_is_rolled_back() {
    let Some(database) = database().await else { return };
    database.run("INSERT INTO public.mail (to_address, priority) VALUES ('a', 1), ('a', 1), ('b', 1)").await.unwrap();
    let ledger = ledger(&database.url).await;
    let update = SqlStatement {
        rows: Some(1),
        ..statement("UPDATE public.mail SET priority = priority + 1 WHERE to_address = $1 RETURNING *", &["/to"])
    };
    for (key, to) in [("0", "a"), ("1", "b"), ("2", "c")] {
        queue(&ledger, key, &format!("{{\"to\":\"{to}\"}}")).await;
    }
    deliver(&ledger, sink(&database.url, update), &keys(3)).await;
    let found = [status(&ledger, "0").await, status(&ledger, "1").await, status(&ledger, "2").await];
    assert_eq!(found, [Some(Status::Dead), Some(Status::Done), Some(Status::Dead)]);
    assert!(last_error(&ledger, "2").await.contains("changed 0 rows"), "{}", last_error(&ledger, "2").await);
    let sums = database.run("SELECT to_address, sum(priority) FROM public.mail GROUP BY 1 ORDER BY 1").await.unwrap();
    assert_eq!(sums.concat().iter().flatten().collect::<Vec<_>>(), ["a", "2", "b", "2"]);
}

/// An entry as a courier has taken it that stopped then: its parcel, and the store.
async fn taken(database: &Database, lease: Duration) -> (Parcel, Ledger, Postgres) {
    use onceward::core::outbox::Destination;
    let ledger = ledger(&database.url).await;
    queue(&ledger, "0", &letter(0)).await;
    let store = Postgres::open(&database.url).await.unwrap();
    let seen = store.get(identity("0").digest()).await.unwrap().unwrap();
    let destination = Destination { sink: "database".to_owned(), key: "k".to_owned() };
    let policy = Arc::new(Policy { max_runtime: lease / 3, marks_sent: true, ..Policy::default() });
    let onceward::Taking::Taken(entry) = ledger.take_entry(seen, destination, &policy).await.unwrap() else {
        panic!("it is due")
    };
    let record = entry.seen.record.clone();
    let State::Leased(held) = record.state else { panic!("{:?}", record.state) };
    assert_eq!(held.phase, Phase::Claimed);
    // It stops: nothing of the guard is written any more.
    std::mem::forget(entry);
    let parcel = Parcel {
        identity: identity("0"),
        payload: record.payload.unwrap(),
        downstream_key: "k".to_owned(),
        attempt: record.attempts,
        fence: held.fence,
    };
    (parcel, ledger, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_courier_that_comes_too_late_inserts_nothing() {
    let Some(database) = database().await else { return };
    let (parcel, _, store) = taken(&database, Duration::from_secs(60)).await;
    // The lease lapses: the clock of the store is what counts, so the row is made older.
    database.run("UPDATE onceward.intent SET until = now() - interval '1 s'").await.unwrap();
    let other = ledger(&database.url).await;
    deliver(&other, sink(&database.url, insert()), &keys(1)).await;
    assert_eq!(rows(&database).await, 1);
    let late = sink(&database.url, insert()).deliver(&parcel).await;
    assert!(matches!(&late, SinkResult::Unknown { error, .. } if error.contains("another owner")), "{late:?}");
    assert_eq!(rows(&database).await, 1, "the late one did nothing");
    let record = store.get(identity("0").digest()).await.unwrap().unwrap().record;
    assert_eq!(record.attempts, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_of_the_attempt_that_committed_inserts_nothing() {
    let Some(database) = database().await else { return };
    let (parcel, _, _) = taken(&database, Duration::from_secs(60)).await;
    let sink = sink(&database.url, insert());
    assert!(matches!(sink.deliver(&parcel).await, SinkResult::Finished));
    assert!(matches!(sink.deliver(&parcel).await, SinkResult::Unknown { .. }));
    assert_eq!(rows(&database).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_whose_client_has_stopped_is_ended_by_the_server_and_another_courier_goes_on() {
    let Some(database) = database().await else { return };
    let (parcel, _, _) = taken(&database, Duration::from_secs(1)).await;
    let proxy = Proxy::start(&database.url).await;
    let through = sink(&proxy.url(&database.url), insert());
    // It is connected, and then hears nothing of the answer to the statement.
    assert_eq!(through.mistake().await.unwrap(), None);
    proxy.arm(Some(Strike { side: Side::Server, number: ANSWER_TO_STATEMENT, fault: Fault::Swallow }));
    let stopped = tokio::spawn(async move { through.deliver(&parcel).await });
    let waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' AND query LIKE \
                 'INSERT INTO public.mail%'";
    let waiting = async {
        while database.run(waits).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it has inserted the row, and waits");
    let (other, began) = (ledger(&database.url).await, std::time::Instant::now());
    deliver(&other, sink(&database.url, insert()), &keys(1)).await;
    assert!(began.elapsed() > Duration::from_secs(1), "the entry was taken while the transaction was open");
    assert_eq!(rows(&database).await, 1);
    let late = stopped.await.unwrap();
    assert!(!matches!(late, SinkResult::Ended(_)), "{late:?}");
    assert_eq!(rows(&database).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_cut_at_any_step_leaves_one_row_and_a_record_that_agrees() {
    let Some(database) = database().await else { return };
    let database = Arc::new(database);
    let ledger = ledger(&database.url).await;
    let proxy = Proxy::start(&database.url).await;
    proxy.arm(None);
    queue(&ledger, "count", &letter(0)).await;
    deliver(&ledger, sink(&proxy.url(&database.url), insert()), &["count".to_owned()]).await;
    let (from_client, from_server, _) = proxy.counted();
    assert!(from_client >= 10 && from_server >= 20, "the proxy saw too little: {from_client}, {from_server}");
    let sides = [(Side::Client, from_client), (Side::Server, from_server)];
    let places = sides.into_iter().flat_map(|(side, count)| (1..=count).map(move |number| (side, number)));
    // A swallowed message takes until the time-out, so that few of them are tried: those around the commit.
    let strikes: Vec<Strike> = places
        .flat_map(|(side, number)| {
            [Fault::CutBefore, Fault::CutAfter, Fault::Swallow].map(|fault| Strike { side, number, fault })
        })
        .filter(|strike| {
            let last = if strike.side == Side::Client { from_client } else { from_server };
            strike.fault != Fault::Swallow || strike.number + 4 > last
        })
        .collect();
    let (mut playing, mut struck, number) = (tokio::task::JoinSet::new(), 0, strikes.len());
    for (at, strike) in strikes.into_iter().enumerate() {
        let (database, ledger) = (Arc::clone(&database), ledger.clone());
        playing.spawn(async move {
            let key = format!("k{at}");
            queue(&ledger, &key, &letter(at + 1000)).await;
            let proxy = Proxy::start(&database.url).await;
            proxy.arm(Some(strike));
            // Each entry has a courier of its own, which takes it by a lease that only its attempt ends.
            let sink = sink(&proxy.url(&database.url), insert());
            deliver_alone(&ledger, sink, &key).await;
            let (_, _, has_struck) = proxy.counted();
            assert_eq!(status(&ledger, &key).await, Some(Status::Done), "{strike:?}");
            usize::from(has_struck)
        });
        if playing.len() >= 6 {
            struck += playing.join_next().await.unwrap().unwrap();
        }
    }
    while let Some(ended) = playing.join_next().await {
        struck += ended.unwrap();
    }
    println!("{struck} of {number} faults struck");
    assert!(struck * 10 >= number * 9, "only {struck} of {number} faults struck");
    let sql = "SELECT count(*), count(DISTINCT priority), (SELECT count(*) FROM onceward.intent WHERE state = 'done' AND \
               operation = 'mail') FROM public.mail";
    let found = database.run(sql).await.unwrap();
    let expected = (number + 1).to_string();
    assert_eq!(found[0].iter().flatten().collect::<Vec<_>>(), [&expected, &expected, &expected]);
}

/// Makes attempts at one entry until it is done, as a courier does.
async fn deliver_alone(ledger: &Ledger, sink: Arc<StatementSink>, key: &str) {
    for _ in 0..50 {
        let Some(intent) = ledger.get(&identity(key)).await.unwrap() else { panic!("{key} is lost") };
        if intent.status() == Some(Status::Done) {
            return;
        }
        let operation = Operation::new(MAIL).unwrap();
        let mut courier = Courier::new(ledger.clone());
        courier = courier.route(operation.as_str(), route(OnlyOne::of(key, &sink))).unwrap();
        courier.run_until_idle().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{key} is not delivered: {:?}", ledger.get(&identity(key)).await.unwrap());
}

/// A sink for one of the entries; the others are refused, and delivered by their own couriers.
struct OnlyOne {
    key: String,
    sink: Arc<StatementSink>,
}

impl OnlyOne {
    fn of(key: &str, sink: &Arc<StatementSink>) -> Arc<dyn Sink> {
        Arc::new(Self { key: key.to_owned(), sink: Arc::clone(sink) })
    }
}

#[onceward::courier::async_trait]
impl Sink for OnlyOne {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        if parcel.identity.key.as_str() == self.key {
            return self.sink.deliver(parcel).await;
        }
        let (error, health) = ("not its own".to_owned(), onceward::courier::Health::Working);
        SinkResult::Refused { error, retry_after: None, again: true, health }
    }

    fn finishes_entries(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_runs_behind_a_pooler_that_gives_each_transaction_another_connection() {
    let Some(database) = database().await else { return };
    let Some(url) = pooled_url(&database) else { return };
    // Types of its own, for which a driver likes to prepare statements by name.
    let mood = "CREATE TYPE mood AS ENUM ('calm', 'cross'); CREATE TABLE person (mood mood, tags text[], at timestamptz, cents numeric)";
    database.run(mood).await.unwrap();
    let ledger = ledger(&url).await;
    let statement = statement(
        "INSERT INTO person (mood, tags, at, cents) SELECT $1, ARRAY(SELECT jsonb_array_elements_text($2)), $3, $4 \
         RETURNING mood, tags",
        &["/mood", "/tags", "/at", "/cents"],
    );
    let keys = keys(30);
    for key in &keys {
        let payload = format!(
            "{{\"mood\":\"calm\",\"tags\":[\"a\",\"b{key}\"],\"at\":\"2026-11-19T10:00:00Z\",\"cents\":12.50}}"
        );
        queue(&ledger, key, &payload).await;
    }
    let sinks = [sink(&url, statement.clone()), sink(&url, statement)];
    for sink in &sinks {
        assert_eq!(sink.mistake().await.unwrap(), None);
    }
    let [one, other] = sinks.map(|sink| deliver(&ledger, sink, &keys));
    tokio::join!(one, other);
    let found = database.run("SELECT count(*), count(DISTINCT tags[2]), sum(cents) FROM person").await.unwrap();
    assert_eq!(found[0].iter().flatten().collect::<Vec<_>>(), ["30", "30", "375.0"]);
}

#[tokio::test]
async fn a_statement_that_postgresql_would_not_run_is_told_before_anything_is_delivered() {
    let Some(database) = database().await else { return };
    let denied = format!("onceward_denied_{}", std::process::id());
    let granted = format!("CREATE ROLE {denied}; GRANT {denied} TO {}", user(&database).await);
    let role = as_administrator(&database, &granted).await.then(|| denied.clone());
    let values = ["/to", "/priority", "payload"];
    for (sql, values, expected) in [
        (INSERT, &values[..], None),
        (
            "INSERT INTO public.mial VALUES ($1)",
            &values[..1],
            Some("relation \"public.mial\" does not exist (SQLSTATE 42P01), at character 13"),
        ),
        ("INSERT INTO public.mail (to_address) VALUES ($1)", &values[..2], Some("parameter $2")),
        (INSERT, &values[..2], Some("requires 3")),
        ("INSERT INTO public.mail", &values[..0], Some("syntax error")),
        ("", &values[..0], Some("syntax error")),
        ("DELETE FROM public.mail; DELETE FROM public.mail", &values[..0], Some("multiple commands")),
        ("COMMIT", &values[..0], Some("syntax error")),
        ("DROP TABLE mail", &values[..0], Some("syntax error")),
    ] {
        let mistake = sink(&database.url, statement(sql, values)).mistake().await.unwrap();
        match expected {
            None => assert_eq!(mistake, None, "{sql}"),
            Some(expected) => {
                assert!(mistake.as_deref().is_some_and(|what| what.contains(expected)), "{sql}: {mistake:?}")
            }
        }
    }
    for (role, expected) in [(role, "permission denied"), (Some("onceward_no_such_role".to_owned()), "does not exist")]
    {
        let Some(role) = role else { continue };
        let mistake = sink(&database.url, SqlStatement { role: Some(role), ..insert() }).mistake().await.unwrap();
        assert!(mistake.as_deref().is_some_and(|what| what.contains(expected)), "{mistake:?}");
    }
    as_administrator(&database, &format!("DROP ROLE IF EXISTS {denied}")).await;
    let other = StatementSink::new(&StoreUrl::from("ledger.db"), insert(), 1).unwrap_err().to_string();
    assert!(other.contains("ledger.db") && other.contains("not a PostgreSQL database"), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_statement_runs_under_its_role_and_the_ledger_does_not() {
    let Some(database) = database().await else { return };
    let role = format!("onceward_writer_{}", std::process::id());
    let grants = format!(
        "CREATE ROLE {role}; GRANT {role} TO {}; GRANT INSERT ON public.mail TO {role}; GRANT USAGE ON SEQUENCE public.mail_id_seq TO {role}; \
         ALTER TABLE public.mail ADD COLUMN written_by text DEFAULT current_user",
        user(&database).await
    );
    if !as_administrator(&database, &grants).await {
        return;
    }
    let ledger = ledger(&database.url).await;
    for key in keys(5) {
        queue(&ledger, &key, &letter(1)).await;
    }
    deliver(&ledger, sink(&database.url, SqlStatement { role: Some(role.clone()), ..insert() }), &keys(5)).await;
    let found = database.run("SELECT count(*), max(written_by) FROM public.mail").await.unwrap();
    assert_eq!(found[0].iter().flatten().collect::<Vec<_>>(), ["5", &role]);
    as_administrator(&database, &format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}
