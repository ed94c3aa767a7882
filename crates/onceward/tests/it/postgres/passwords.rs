//! A password in a file may be replaced while servers run.

use onceward::core::record::Fence;
use onceward::store::Store;
use onceward::store::postgres::Postgres;

use super::cuts::claim_of;
use super::server::{Database, run};

#[tokio::test]
async fn a_new_password_in_the_file_is_used_by_the_next_connection() {
    let Some(database) = Database::create("ONCEWARD_TEST_POSTGRES").await else { return };
    let Ok(admin) = std::env::var("ONCEWARD_TEST_POSTGRES_ADMIN") else { return };
    let (_, name) = database.url.rsplit_once('/').unwrap();
    let role = format!("rotating_{}", std::process::id());
    run(&admin, &format!("CREATE ROLE {role} LOGIN PASSWORD 'first'")).await.unwrap();
    database
        .run(&format!(
            "GRANT USAGE ON SCHEMA onceward TO {role}; GRANT ALL ON ALL TABLES IN SCHEMA onceward TO {role}; \
             GRANT CONNECT ON DATABASE {name} TO {role}"
        ))
        .await
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "first\n").unwrap();
    let (_, address) = database.url.rsplit_once('@').unwrap();
    let store = Postgres::open(&format!("postgres://{role}:file:{}@{address}", file.display())).await.unwrap();
    store.insert(claim_of("a", Fence::from_bits(1)), None).await.unwrap();

    run(&admin, &format!("ALTER ROLE {role} PASSWORD 'second'")).await.unwrap();
    std::fs::write(&file, "second\n").unwrap();
    run(&admin, &format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"))
        .await
        .unwrap();
    store.insert(claim_of("b", Fence::from_bits(1)), None).await.unwrap();
    store.get(claim_of("a", Fence::from_bits(1)).id).await.unwrap();

    store.close().await;
    database.run(&format!("DROP OWNED BY {role}")).await.ok();
    drop(database);
    run(&admin, &format!("DROP ROLE {role}")).await.ok();
}
