//! A database of its own for each test.

use std::sync::atomic::{AtomicU32, Ordering};

use onceward::store::postgres::migrate;
use tokio_postgres::NoTls;

/// Numbers the databases of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A database that is dropped with this value.
pub(super) struct Database {
    /// The database, with its schema.
    pub(super) url: String,
    name: String,
    server: String,
}

impl Database {
    /// A new database on the server that a variable names. `None`, and a message, if there is no such server; in continuous
    /// integration that is a failure.
    pub(super) async fn create(variable: &str) -> Option<Self> {
        let database = Self::empty(variable).await?;
        migrate(&database.url, false).await.unwrap();
        Some(database)
    }

    /// A database without the schema.
    pub(super) async fn empty(variable: &str) -> Option<Self> {
        let Ok(server) = std::env::var(variable) else {
            assert!(std::env::var_os("CI").is_none(), "{variable} names no server");
            println!("skipped: {variable} names no server");
            return None;
        };
        let name = format!("onceward_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run(&server, &format!("CREATE DATABASE {name}")).await.unwrap();
        Some(Self { url: with_database(&server, &name), name, server })
    }

    /// Runs SQL in the database.
    pub(super) async fn run(&self, sql: &str) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
        run(&self.url, sql).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // The test's own runtime may be ending.
        let drop = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let _ = runtime.block_on(run(&server, &format!("DROP DATABASE {name} WITH (FORCE)")));
        });
        let _ = drop.join();
    }
}

/// The same server, another database.
fn with_database(server: &str, name: &str) -> String {
    let (address, query) = server.split_once('?').map_or((server, None), |(address, query)| (address, Some(query)));
    let (host, _) = address.rsplit_once('/').unwrap();
    match query {
        None => format!("{host}/{name}"),
        Some(query) => format!("{host}/{name}?{query}"),
    }
}

/// Runs SQL, and returns its rows as text.
pub(super) async fn run(url: &str, sql: &str) -> Result<Vec<Vec<Option<String>>>, tokio_postgres::Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let driver = tokio::spawn(connection);
    let messages = client.simple_query(sql).await;
    drop(client);
    let _ = driver.await;
    let rows = messages?.into_iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|index| row.get(index).map(str::to_owned)).collect())
        }
        _ => None,
    });
    Ok(rows.collect())
}
