//! The ledger of a run: a file in its folder, or a new ledger on a server.

use std::path::{Path, PathBuf};

use onceward::store::Error;
use onceward::{Ledger, StoreUrl};
use rusqlite::Connection;

use super::ledger_path;
use crate::private_store::PrivateStore;

/// A ledger that belongs to this harness alone.
#[derive(Debug)]
pub enum RunStore {
    /// A file, which its first process makes.
    File(PathBuf),
    /// A ledger on a server.
    Server(PrivateStore),
}

impl RunStore {
    /// A ledger on a server, if there is one, or else in a folder.
    pub async fn create(folder: &Path, server: Option<&str>) -> Self {
        match server {
            Some(server) => Self::Server(PrivateStore::create(server).await),
            None => Self::File(ledger_path(folder)),
        }
    }

    /// The place of a ledger that is not made yet.
    pub async fn create_empty(folder: &Path, server: Option<&str>) -> Self {
        match server {
            Some(server) => Self::Server(PrivateStore::create_empty(server).await),
            None => Self::File(ledger_path(folder)),
        }
    }

    /// The URL of a ledger on a server.
    pub fn server_url(&self) -> Option<&str> {
        match self {
            Self::File(_) => None,
            Self::Server(server) => Some(&server.url),
        }
    }

    /// Opens the ledger.
    pub async fn open(&self) -> Result<Ledger, Error> {
        let url: StoreUrl = match self {
            Self::File(path) => path.clone().into(),
            Self::Server(server) => server.url.as_str().into(),
        };
        Ledger::open(url).await
    }

    /// What is wrong with the file as a whole. A server checks its own files.
    pub fn damage(&self) -> Option<String> {
        let Self::File(path) = self else { return None };
        let check = |path: &Path| -> rusqlite::Result<String> {
            let connection = Connection::open(path)?;
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))
        };
        match check(path) {
            Ok(verdict) if verdict == "ok" => None,
            Ok(verdict) => Some(format!("the file is damaged: {verdict}")),
            Err(error) => Some(format!("the file cannot be checked: {error}")),
        }
    }
}
