//! `onceward migrate`: makes or upgrades the schema of a store.

use std::collections::BTreeMap;
use std::path::Path;

use onceward::StoreUrl;
use serde_json::json;

use super::{Global, block_on};
use onceward_runtime::exit::{self, Fault};
use onceward_runtime::output;

/// Make or upgrade the schemas of the stores
///
/// The store at the top level, and every named one of the configuration file. A PostgreSQL database or a Redis server needs this once before its first use, and again after an upgrade of onceward that
/// says so. It may be run twice, also at the same time. Servers refuse a schema that they do not know. A file is migrated
/// whenever it is opened.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  onceward migrate --store postgres://onceward:env:PGPASSWORD@db.internal/app --dry-run
  onceward migrate --store redis://127.0.0.1:6379")]
pub(super) struct Migrate {
    /// Print what would be done, such as the SQL, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object with `store`, `dry_run` and `steps`, and of named stores `stores`
    #[arg(long)]
    json: bool,
}

impl Migrate {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let url = settings.store()?;
        let mut named = BTreeMap::new();
        let steps = block_on(async {
            let steps = migrate(url, self.dry_run).await?;
            if !self.json {
                output::out(&text(&url.to_string(), &steps));
            }
            for (name, url) in settings.named_stores() {
                let store = url.to_string();
                let migrated = migrate(url, self.dry_run).await;
                let wrong = |error| Fault::new(exit::STORE, format!("stores.{name}: {error}"));
                let steps = migrated.map_err(wrong)?;
                if !self.json {
                    output::out(&format!("stores.{name}: {}", text(&store, &steps)));
                }
                named.insert(name, json!({ "store": store, "steps": steps }));
            }
            Ok(steps)
        })?;
        if self.json {
            let store = url.to_string();
            output::json(&json!({ "store": store, "dry_run": self.dry_run, "steps": steps, "stores": named }));
        }
        Ok(0)
    }
}

fn text(store: &str, steps: &[String]) -> String {
    match steps {
        [] => format!("{store} is up to date; nothing was changed"),
        steps => steps.join("\n"),
    }
}

async fn migrate(store: &StoreUrl, dry_run: bool) -> Result<Vec<String>, onceward::store::Error> {
    if let Some(path) = store.file() {
        return migrate_file(store, path, dry_run).await;
    }
    let url = &*store.with_password();
    match url.split_once("://").map(|(scheme, _)| scheme) {
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => onceward::store::postgres::migrate(url, dry_run).await,
        #[cfg(feature = "redis")]
        Some(scheme) if scheme.starts_with("redis") => onceward::store::redis::Redis::migrate(url, dry_run).await,
        _ => {
            store.clone().open().await?.close().await;
            Ok(Vec::new())
        }
    }
}

/// Opening a file migrates it.
async fn migrate_file(store: &StoreUrl, path: &Path, dry_run: bool) -> Result<Vec<String>, onceward::store::Error> {
    let shown = path.display();
    if dry_run {
        let what = if path.exists() { "would be opened and, if it is older, migrated" } else { "would be created" };
        return Ok(vec![format!("{shown} {what}; a file is migrated whenever it is opened")]);
    }
    store.clone().open().await?.close().await;
    Ok(vec![format!("{shown} is up to date; a file is migrated whenever it is opened")])
}
