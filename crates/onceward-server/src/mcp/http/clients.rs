//! What is known of the clients of a server that is reached by HTTP: by their sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::client::Client;
use super::super::gate::is_modern;
use super::super::members::Members;

/// How many sessions are remembered. Without one, a client counts as one that does not announce time-outs.
const MOST: usize = 10_000;

/// Every client that has a session.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<HashMap<String, Arc<Client>>>);

impl Clients {
    /// The client of a session.
    pub(super) fn of_session(&self, session: &str) -> Arc<Client> {
        let mut all = self.all();
        if all.len() >= MOST && !all.contains_key(session) {
            all.clear();
        }
        Arc::clone(all.entry(session.to_owned()).or_default())
    }

    /// The client that sends a request. One without a session is known by what the request says alone.
    pub(super) fn of_request(&self, session: Option<&str>, members: &Members) -> Arc<Client> {
        let client = session.map_or_else(Arc::default, |session| self.of_session(session));
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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
