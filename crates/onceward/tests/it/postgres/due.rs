//! Due entries among 100,000: found through their index, however many wait, are delayed or are no entries.

use std::time::Instant;

use onceward::core::name::{Operation, Tenant};
use onceward::core::outbox::Priority;
use onceward::store::postgres::Postgres;
use onceward::store::{DueEntries, DueQuery, Filter, Store};

use super::server::Database;

/// 100,000 entries: a tenant with 60,000 that are due, 300 with one each, and 700 whose entries are delayed. Beside them, entries
/// of another operation and direct calls.
const FILL: &str = "
    SELECT public.fill('send mail', 'big', 0, 59999, '-10 minutes', 'a letter');
    SELECT public.fill('send mail', '', 60000, 60299, '-10 minutes', 'a letter');
    SELECT public.fill('send mail', '', 60300, 99999, '1 day', 'a letter');
    SELECT public.fill('another', 'big', 0, 9999, '-10 minutes', 'a letter');
    SELECT public.fill('charge', 'big', 0, 9999, '-10 minutes', NULL);";

/// Makes entries: of each number from the first to the last one, due so long after now and as many milliseconds later as its number.
const MAKE_ENTRIES: &str = "
    CREATE FUNCTION public.fill(operation text, tenant text, first integer, last integer, due interval, payload bytea)
    RETURNS void LANGUAGE sql AS $$
        INSERT INTO onceward.intent (id, version, write_id, until, created_at, updated_at, tombstone_ms, honours_key_for_ms,
            attempts, generation, state, effect, in_doubt, tenant, operation, key, fingerprint, payload, priority, entry)
        SELECT sha256(convert_to(operation || ' ' || number, 'UTF8')), 1, gen_random_uuid(),
            now() + due + number * interval '1 ms', now(), now(), 0, 0, 0, 0,
            CASE WHEN payload IS NULL THEN 'open' ELSE 'queued' END, 'external', 'hold',
            CASE WHEN tenant = '' THEN 't' || lpad((number % 1000)::text, 4, '0') ELSE tenant END, operation, number::text,
            sha256('x'), payload, CASE WHEN payload IS NOT NULL THEN 1 END, CASE WHEN payload IS NOT NULL THEN '{}'::json END
        FROM generate_series(first, last) AS number
    $$";

/// What a look reads of the table, in the transaction that looks.
const READ: &str =
    "SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables WHERE schemaname = 'onceward' AND relname = 'intent'";

/// The statement of the function, with the settings under which its plan is made.
async fn plan(database: &Database) -> Vec<String> {
    let source = database.run("SELECT prosrc FROM pg_proc WHERE proname = 'due_v1'").await.unwrap();
    let source = source[0][0].clone().unwrap();
    let (_, statement) = source.split_once("RETURN QUERY").unwrap();
    let (statement, _) = statement.rsplit_once(";").unwrap();
    let settings = database
        .run("SELECT string_agg('SET ' || setting, '; ') FROM pg_proc, unnest(proconfig) AS setting WHERE proname = 'due_v1'")
        .await
        .unwrap();
    let sql = format!(
        "{}; PREPARE look (text, text, bigint, timestamptz, bytea[]) AS {statement}; \
         EXPLAIN EXECUTE look ('send mail', NULL, 100, NULL, '{{}}')",
        settings[0][0].as_deref().unwrap()
    );
    database.run(&sql).await.unwrap().into_iter().map(|row| row[0].clone().unwrap()).collect()
}

async fn look(store: &Postgres, after: Option<Tenant>, limit: usize) -> DueEntries {
    let operation = Operation::new("send mail").unwrap();
    store.due(&DueQuery { operation, tenant: None, after, limit, with_abandoned: false }).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn due_entries_are_found_through_their_index_and_never_by_scanning() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Postgres::open(&database.url).await.unwrap();
    // The connection keeps the plan that is made for an empty table.
    assert_eq!(look(&store, None, 100).await.entries.len(), 0);
    database.run(MAKE_ENTRIES).await.unwrap();
    database.run(FILL).await.unwrap();
    for analysed in [false, true] {
        if analysed {
            database.run("ANALYZE onceward.intent").await.unwrap();
        }
        let plan = plan(&database).await;
        let scans: Vec<_> = plan.iter().filter(|line| line.contains(" on intent")).collect();
        assert!(scans.len() >= 5, "{plan:#?}");
        let is_indexed = |line: &&&String| line.contains("using intent_due") || line.contains("using intent_pkey");
        assert!(scans.iter().all(|line| is_indexed(&line)), "{plan:#?}");
        // A look sees 256 tenants.
        for (limit, numbers) in [(10, [10; 3]), (100, [100; 3]), (1000, [1000, 45, 0])] {
            let mut after = None;
            for number_of_entries in numbers {
                let begun = Instant::now();
                let found = look(&store, after.clone(), limit).await;
                let took = begun.elapsed();
                assert_eq!(found.entries.len(), number_of_entries);
                let name = after.as_ref().map_or("", Tenant::as_str);
                let argument = if name.is_empty() { "NULL".to_owned() } else { format!("'{name}'") };
                let sql = format!(
                    "BEGIN; SELECT count(*) FROM onceward.due_v1('send mail', {argument}, {limit}, NULL, '{{}}'); {READ}; COMMIT"
                );
                let rows = database.run(&sql).await.unwrap();
                let number = |column: usize| rows[1][column].as_deref().unwrap().parse::<usize>().unwrap();
                println!("{limit} of 100,000 after {name:?}: {took:?}, {} rows read", number(1));
                assert_eq!(number(0), 0, "no scan of the table");
                // The walk reads at most two rows for each of 256 tenants, and counts as many as there is room for.
                assert!(number(1) <= 4 * limit + 2 * 256 + 64, "{} rows were read for {limit}", number(1));
                after = found.reached;
            }
        }
    }
}

fn keys(found: &DueEntries) -> Vec<&str> {
    found.entries.iter().map(|seen| seen.record.identity.as_ref().unwrap().key.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_brings_as_many_large_payloads_as_fit() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Postgres::open(&database.url).await.unwrap();
    database.run(MAKE_ENTRIES).await.unwrap();
    let large = "convert_to(repeat('x', 3 * 1024 * 1024), 'UTF8')";
    database.run(&format!("SELECT public.fill('send mail', 'a', 0, 4, '-1 minute', {large})")).await.unwrap();
    assert_eq!(keys(&look(&store, None, 10).await), ["0", "1", "2"], "over 8 MiB with the last one");
    assert_eq!(keys(&look(&store, None, 2).await), ["0", "1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_cannot_be_read_holds_up_no_other() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Postgres::open(&database.url).await.unwrap();
    database.run(MAKE_ENTRIES).await.unwrap();
    database.run("SELECT public.fill('send mail', 'a', 0, 9, '-1 minute', 'a letter')").await.unwrap();
    database.run("UPDATE onceward.intent SET entry = '{\"priority\": 7}' WHERE key IN ('0', '1', '3')").await.unwrap();
    assert_eq!(keys(&look(&store, None, 2).await), ["2", "4"]);
    assert_eq!(keys(&look(&store, None, 10).await).len(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_found_by_its_reference_through_an_index() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    database.run(MAKE_ENTRIES).await.unwrap();
    database.run("SELECT public.fill('charge', 'big', 0, 9999, '-10 minutes', NULL)").await.unwrap();
    database.run("UPDATE onceward.intent SET reference = 'ch_' || key").await.unwrap();
    let store = Postgres::open(&database.url).await.unwrap();
    let filter = Filter { reference: Some("ch_4711".to_owned()), ..Filter::default() };
    for analysed in [false, true] {
        if analysed {
            database.run("ANALYZE onceward.intent").await.unwrap();
        }
        let sql = "EXPLAIN SELECT 1 FROM onceward.intent WHERE row < 9223372036854775807 \
                   AND reference COLLATE \"C\" = 'ch_4711' ORDER BY row DESC LIMIT 64";
        let plan = database.run(sql).await.unwrap();
        let plan: Vec<_> = plan.into_iter().map(|row| row[0].clone().unwrap()).collect();
        assert!(plan.iter().any(|line| line.contains("intent_reference")), "{plan:#?}");
        let found = store.list(&filter, None, 10).await.unwrap();
        assert_eq!(found.listed.len(), 1, "{:?}", found.listed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_transaction_enqueues_is_due_when_it_commits() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let store = Postgres::open(&database.url).await.unwrap();
    let (mut client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for (key, priority) in [("rolled back", "high"), ("low", "low"), ("high", "high")] {
        let transaction = client.transaction().await.unwrap();
        let sql =
            "SELECT FROM onceward.enqueue('send mail', $1, 'a letter', priority => $2, fingerprint => sha256('x'))";
        transaction.query(sql, &[&key, &priority]).await.unwrap();
        assert!(!keys(&look(&store, None, 10).await).contains(&key), "{key} is not committed");
        match key {
            "rolled back" => transaction.rollback().await.unwrap(),
            _ => transaction.commit().await.unwrap(),
        }
    }
    let found = look(&store, None, 10).await;
    assert_eq!(keys(&found), ["high", "low"]);
    let entry = found.entries[0].record.entry.as_ref().unwrap();
    assert_eq!((entry.priority, entry.keeps_payload), (Priority::High, false));
    let claim = "SELECT decision FROM onceward.claim('send mail', 'high', fingerprint => sha256('x'))";
    let claimed = database.run(claim).await.unwrap();
    assert_eq!(claimed[0][0].as_deref(), Some("queued"), "only a courier gets it");
}
