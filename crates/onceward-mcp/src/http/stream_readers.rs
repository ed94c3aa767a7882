//! Which clients are resuming a broken stream. Two readers of one stream would take events from each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many streams each client is resuming.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamReaders(Arc<Mutex<HashMap<String, usize>>>);

/// A client resumes a stream until this is dropped.
#[derive(Debug)]
pub(super) struct StreamReader {
    readers: StreamReaders,
    client: String,
}

impl StreamReaders {
    pub(super) fn enter(&self, client: &str) -> StreamReader {
        *self.all().entry(client.to_owned()).or_default() += 1;
        StreamReader { readers: self.clone(), client: client.to_owned() }
    }

    pub(super) fn is_reading(&self, client: &str) -> bool {
        self.all().contains_key(client)
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamReader {
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
    fn a_client_is_reading_until_its_last_stream_has_ended() {
        let readers = StreamReaders::default();
        let (first, second) = (readers.enter("a"), readers.enter("a"));
        drop(first);
        assert!(readers.is_reading("a") && !readers.is_reading("b"));
        drop(second);
        assert!(!readers.is_reading("a"));
    }
}
