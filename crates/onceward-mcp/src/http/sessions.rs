//! What is known of clients over HTTP, by session.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::client::Client;
use super::super::gate::is_modern;
use super::super::members::Members;

/// The most sessions to remember. A client without a session counts as one that does not announce time-outs.
const MAX_SESSIONS: usize = 10_000;

/// The clients with a session.
#[derive(Debug)]
pub(super) struct Sessions {
    patience: Duration,
    known: Mutex<HashMap<String, Arc<Client>>>,
}

impl Sessions {
    /// Starts empty. A call that runs longer than `patience` may outlast a client that gives up silently.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, known: Mutex::default() }
    }

    fn unknown(&self) -> Arc<Client> {
        Arc::new(Client::new(self.patience))
    }

    /// The client of a session.
    pub(super) fn of_session(&self, session: &str) -> Arc<Client> {
        let mut all = self.all();
        if all.len() >= MAX_SESSIONS && !all.contains_key(session) {
            all.clear();
        }
        Arc::clone(all.entry(session.to_owned()).or_insert_with(|| self.unknown()))
    }

    /// The client that sends a request. Without a session, only this request describes it.
    pub(super) fn of_request(&self, session: Option<&str>, members: &Members) -> Arc<Client> {
        let client = session.map_or_else(|| self.unknown(), |session| self.of_session(session));
        if !client.is_introduced() && is_modern(members) {
            client.introduce(&members.object("params").unwrap_or_default(), true);
        }
        client
    }

    /// Forgets a session that has ended.
    pub(super) fn leave(&self, session: &str) -> Option<Arc<Client>> {
        self.all().remove(session)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Client>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
