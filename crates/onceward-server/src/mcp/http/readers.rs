//! Which clients read a stream on from where it broke off. Two readers would take it from each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many streams each client reads on.
#[derive(Clone, Debug, Default)]
pub(super) struct Readers(Arc<Mutex<HashMap<String, usize>>>);

/// A client reads until this is dropped.
#[derive(Debug)]
pub(super) struct Reading {
    readers: Readers,
    client: String,
}

impl Readers {
    pub(super) fn enter(&self, client: &str) -> Reading {
        *self.all().entry(client.to_owned()).or_default() += 1;
        Reading { readers: self.clone(), client: client.to_owned() }
    }

    pub(super) fn is_reading(&self, client: &str) -> bool {
        self.all().contains_key(client)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut all = self.readers.all();
        if let Some(count) = all.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_reads_until_its_last_stream_has_ended() {
        let readers = Readers::default();
        let (first, second) = (readers.enter("a"), readers.enter("a"));
        drop(first);
        assert!(readers.is_reading("a") && !readers.is_reading("b"));
        drop(second);
        assert!(!readers.is_reading("a"));
    }
}
