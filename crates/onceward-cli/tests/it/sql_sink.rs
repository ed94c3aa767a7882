//! Couriers with a sink `sql` on a real PostgreSQL server, killed and paused in the middle of transactions: every row is there once,
//! and at every moment as often as its entry is done.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::test_folder::{TestFolder, wait_until};

/// A statement that takes a while, and a constraint that is checked at the commit and takes a while, so that kills strike in both.
const TABLE: &str = "CREATE TABLE mail (key text, attempt integer); \
    CREATE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN new; END $$; \
    CREATE CONSTRAINT TRIGGER nap AFTER INSERT ON mail DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION nap()";

const CONFIG: &str = r#"
[operation.mail]
sink = "database"

[sink.database]
type = "sql"
statement = "INSERT INTO mail (key, attempt) SELECT $1, $2 FROM pg_sleep(0.3)"
values = ["/key", "attempt"]
rows = 1
timeout = "1s"
concurrency = 2
retry = { base = "1ms", cap = "20ms", max_attempts = 1000 }
budget = { percent = 1000, per_second = 1000 }
breaker = { failures = 10000 }
"#;

const ENTRIES: usize = 24;

/// A database of its own, which is dropped with this value, and a folder with a configuration for it.
struct PostgresCouriers {
    folder: TestFolder,
    server: String,
    name: String,
    runtime: tokio::runtime::Runtime,
}

impl PostgresCouriers {
    /// `None`, and a message, without a server; in continuous integration that is a failure.
    fn new(name: &str) -> Option<Self> {
        let Ok(server) = std::env::var("ONCEWARD_TEST_POSTGRES") else {
            assert!(std::env::var_os("CI").is_none(), "ONCEWARD_TEST_POSTGRES names no server");
            println!("skipped: ONCEWARD_TEST_POSTGRES names no server");
            return None;
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let name = format!("onceward_cli_{name}_{}", std::process::id());
        let fixture = Self { folder: TestFolder::new(), server, name, runtime };
        fixture.query(&fixture.server, &format!("CREATE DATABASE {}", fixture.name));
        fixture.folder.write("onceward.toml", &format!("store = {:?}\n{CONFIG}", fixture.url()));
        fixture.folder.onceward(&["migrate"]).says(0, &[]);
        fixture.query(&fixture.url(), TABLE);
        Some(fixture)
    }

    fn url(&self) -> String {
        let (address, _) = self.server.rsplit_once('/').unwrap();
        format!("{address}/{}", self.name)
    }

    /// The first column of the first row, if there is one.
    fn query(&self, url: &str, sql: &str) -> Option<String> {
        let messages = self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.simple_query(sql).await.unwrap()
        });
        messages.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        })
    }

    fn number(&self, sql: &str) -> usize {
        self.query(&self.url(), sql).unwrap().parse().unwrap()
    }

    fn done(&self) -> usize {
        self.number("SELECT count(*) FROM onceward.intent WHERE operation = 'mail' AND state = 'done'")
    }

    /// In one snapshot: every row belongs to an entry that is done, and every such entry has one row.
    fn assert_agrees(&self) {
        let apart = "SELECT count(*) FROM (SELECT key FROM mail) AS rows FULL JOIN (SELECT key FROM onceward.intent \
            WHERE operation = 'mail' AND state = 'done') AS done USING (key) WHERE rows IS NULL OR done IS NULL";
        assert_eq!(self.number(apart), 0, "a row without its end, or an end without its row");
        assert_eq!(self.number("SELECT count(*) - count(DISTINCT key) FROM mail"), 0, "a row is there twice");
    }

    fn enqueue(&self) {
        for number in 0..ENTRIES {
            let payload = format!("{{\"key\":\"{number}\"}}");
            let key = number.to_string();
            self.folder
                .onceward(&["enqueue", "--operation", "mail", "--key", &key, "--payload", &payload])
                .says(0, &[]);
        }
    }

    fn courier(&self) -> CourierProcess {
        let mut courier = self.folder.command(&["courier"]);
        CourierProcess(courier.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// How many transactions of couriers are in the middle of this.
    fn in_the_middle_of(&self, query: &str) -> usize {
        self.number(&format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' \
             AND query LIKE '{query}%'"
        ))
    }
}

impl Drop for PostgresCouriers {
    fn drop(&mut self) {
        let dropping = format!("DROP DATABASE {} WITH (FORCE)", self.name);
        // Not a second panic, if this is the end of a test that has failed.
        let _ = self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.server, tokio_postgres::NoTls).await?;
            tokio::spawn(connection);
            client.simple_query(&dropping).await
        });
    }
}

/// A courier that is killed with this value.
struct CourierProcess(std::process::Child);

impl CourierProcess {
    fn send(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }
}

impl Drop for CourierProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn couriers_that_are_killed_in_the_statement_and_in_the_commit_leave_one_row_each() {
    let Some(fixture) = PostgresCouriers::new("killed") else { return };
    fixture.enqueue();
    for round in 0..6 {
        let courier = fixture.courier();
        let wanted = if round % 2 == 0 { "INSERT INTO mail" } else { "COMMIT" };
        wait_until(|| fixture.in_the_middle_of(wanted) > 0);
        drop(courier);
        fixture.assert_agrees();
    }
    assert!(fixture.done() < ENTRIES, "the couriers that were killed have left nothing to do");
    let (one, other) = (fixture.courier(), fixture.courier());
    wait_until(|| fixture.done() == ENTRIES);
    drop((one, other));
    fixture.assert_agrees();
    assert_eq!(fixture.number("SELECT count(*) FROM mail"), ENTRIES);
    assert!(fixture.number("SELECT max(attempt) FROM mail") > 1, "no kill struck an attempt");
}

#[test]
fn what_a_paused_courier_has_in_hand_is_delivered_by_another_and_its_late_commits_fail() {
    let Some(fixture) = PostgresCouriers::new("paused") else { return };
    fixture.enqueue();
    let paused = fixture.courier();
    wait_until(|| fixture.in_the_middle_of("INSERT INTO mail") > 0);
    paused.send(Signal::SIGSTOP);
    let other = fixture.courier();
    wait_until(|| fixture.done() == ENTRIES);
    assert!(fixture.number("SELECT max(attempt) FROM mail") > 1, "the pause struck no attempt");
    paused.send(Signal::SIGCONT);
    // It finds its transactions ended, and tells the ledger, which knows better.
    std::thread::sleep(Duration::from_secs(2));
    fixture.assert_agrees();
    drop(paused);
    drop(other);
    fixture.assert_agrees();
    assert_eq!((fixture.done(), fixture.number("SELECT count(*) FROM mail")), (ENTRIES, ENTRIES));
    let listed = fixture.folder.json(&["list", "--state", "in_doubt", "--json"]);
    assert_eq!(listed["intents"].as_array().unwrap().len(), 0, "no entry is ever in doubt");
}

#[test]
fn a_statement_that_cannot_run_and_a_store_that_is_not_postgresql_are_told_at_the_start() {
    let Some(fixture) = PostgresCouriers::new("wrong") else { return };
    let config = format!("store = {:?}\n{CONFIG}", fixture.url());
    let values = "values = [\"/key\", \"attempt\"]";
    for (from, to, expected) in [
        (
            "INTO mail",
            "INTO mial",
            "sink.database.statement: PostgreSQL does not accept it: relation \"mial\" does not exist",
        ),
        (values, "values = [\"/key\"]", "requires 2"),
        (values, "values = [\"/key\", \"attempts\"]", "sink.database.values: \"attempts\" is neither a JSON pointer"),
        ("rows = 1", "role = \"no_such_role\"", "role \"no_such_role\" does not exist"),
        ("rows = 1", "row = 1", "sink.database.row: unknown field"),
        ("concurrency = 2", "concurrency = 65", "the range is 1 to 64"),
        (&fixture.url(), "ledger.db", "is not a PostgreSQL database"),
    ] {
        assert!(config.contains(from), "{from}");
        fixture.folder.write("onceward.toml", &config.replacen(from, to, 1));
        for command in [&["courier", "--until-idle"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            fixture.folder.onceward(command).says(78, &[expected]);
        }
    }
}
