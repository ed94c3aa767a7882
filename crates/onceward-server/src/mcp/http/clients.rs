//! What is known of the clients of a server that is reached by HTTP: by their sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::super::client::Client;
use super::super::gate::is_modern;
use super::super::members::Members;

/// How many sessions are remembered. Without one, a client counts as one that does not announce time-outs.
const MOST: usize = 10_000;

/// Every client that has a session.
#[derive(Debug)]
pub(super) struct Clients {
    patience: Duration,
    known: Mutex<HashMap<String, Arc<Client>>>,
}

impl Clients {
    /// None yet. A call that takes longer than `patience` may outlast a client that gives up silently.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, known: Mutex::default() }
    }

    fn unknown(&self) -> Arc<Client> {
        Arc::new(Client::new(self.patience))
    }

    /// The client of a session.
    pub(super) fn of_session(&self, session: &str) -> Arc<Client> {
        let mut all = self.all();
        if all.len() >= MOST && !all.contains_key(session) {
            all.clear();
        }
        Arc::clone(all.entry(session.to_owned()).or_insert_with(|| self.unknown()))
    }

    /// The client that sends a request. One without a session is known by what the request says alone.
    pub(super) fn of_request(&self, session: Option<&str>, members: &Members) -> Arc<Client> {
        let client = session.map_or_else(|| self.unknown(), |session| self.of_session(session));
        if !client.is_introduced() && is_modern(members) {
            client.introduce(&members.object("params").unwrap_or_default(), true);
        }
        client
    }

    /// A session has ended.
    pub(super) fn leave(&self, session: &str) -> Option<Arc<Client>> {
        self.all().remove(session)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Client>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
