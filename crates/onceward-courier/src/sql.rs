//! The sink `sql`: a statement in the PostgreSQL database of the ledger, in one transaction with the end of the entry.

use std::sync::Arc;

use onceward::courier::Sink;
use onceward_runtime::config::SqlSink as Settings;
use onceward_runtime::exit::Fault;

use crate::open::{SinkTable, Surroundings};

/// Opens the sink, and asks PostgreSQL whether it would run the statement.
#[cfg(feature = "postgres")]
pub(crate) async fn open(name: &str, settings: &Settings, around: &Surroundings) -> Result<Arc<dyn Sink>, Fault> {
    use onceward::courier::{SqlStatement, StatementSink};

    let at = SinkTable(name);
    if settings.timeout().is_zero() {
        return Err(at.wrong("timeout", "a statement needs more time than none"));
    }
    if settings.role.as_ref().is_some_and(|role| role.is_empty() || role == "none") {
        return Err(at.wrong("role", "the name of a role is required; leave it out for the user of the ledger"));
    }
    let values = settings.values.iter().map(|value| value.parse()).collect::<Result<_, String>>();
    let statement = SqlStatement {
        sql: settings.statement.clone(),
        values: values.map_err(|what| at.wrong("values", what))?,
        role: settings.role.clone(),
        rows: settings.rows,
        timeout: settings.timeout(),
    };
    let sink = StatementSink::new(&around.store, statement, around.concurrent).map_err(|error| {
        at.wrong(
            "type",
            format!(
                "the statement runs in the database of the ledger: {error}. Use `type = \"http\"`, \"smtp\" or \
             \"command\" with other stores"
            ),
        )
    })?;
    match sink.mistake().await? {
        Some(what) => Err(at.wrong("statement", what)),
        None => Ok(Arc::new(sink)),
    }
}

/// Opens the sink.
#[cfg(not(feature = "postgres"))]
pub(crate) async fn open(name: &str, _: &Settings, _: &Surroundings) -> Result<Arc<dyn Sink>, Fault> {
    Err(SinkTable(name).wrong("type", "this build has no PostgreSQL: build it with the feature `postgres`"))
}
