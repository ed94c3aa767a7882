//! The sweeper also frees what processes and connections that are gone have left.

use onceward::store::Store;
use onceward::store::postgres::Postgres;

use super::server::Database;

#[tokio::test]
async fn old_marks_are_removed_and_the_counts_of_closed_connections_added_up() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let left = "INSERT INTO onceward.high_water_mark (process, mark, at) SELECT gen_random_uuid(), 1, now() - age * interval '1 day' \
                FROM generate_series(1, 20) AS age; \
                INSERT INTO onceward.tenant_count (tenant, backend, records) \
                SELECT tenant, 2000000000 + number, number FROM unnest(ARRAY['a', 'b']) AS tenant, generate_series(1, 50) AS number";
    let store = Postgres::open(&database.url).await.unwrap();
    database.run(left).await.unwrap();
    store.purge(10).await.unwrap();
    let marks = database.run("SELECT count(*) FROM onceward.high_water_mark WHERE at < now()").await.unwrap();
    assert_eq!(marks[0][0].as_deref(), Some("6"), "those of the last seven days");
    let counts = "SELECT tenant, sum(records), count(*) FROM onceward.tenant_count GROUP BY tenant ORDER BY tenant";
    let counts: Vec<_> = database.run(counts).await.unwrap().into_iter().flatten().flatten().collect();
    assert_eq!(counts, ["a", "1275", "1", "b", "1275", "1"]);
    store.close().await;
}
