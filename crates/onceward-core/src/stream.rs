//! Streams: numbered items of which each is done before the next may begin, and the keys under which their records
//! are found.
//!
//! The **head** is one record that holds the newest item; it is the lock of the stream, and it never expires. Before it
//! goes on to the next item, the finished one is **archived** under a key of its own, as an ordinary record that expires
//! as its terms say.

use serde::{Deserialize, Serialize};

use crate::name::{self, Identity, Key, Operation, Tenant};

/// The largest number of an item: stores keep numbers as signed 64 bits.
pub const LARGEST_NUMBER: u64 = i64::MAX as u64;

/// The number of the first item, unless the callers of a stream say another.
pub const DEFAULT_START: u64 = 1;

/// The last segment of a head's key. An item has its number there, so no two streams share a key, whatever slashes
/// their names have.
const HEAD: &str = "head";

/// A stream: whose it is, what kind of effect its items are, and which one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stream {
    /// Whose stream it is.
    pub tenant: Tenant,
    /// The kind of effect.
    pub operation: Operation,
    /// Which one.
    pub name: name::Stream,
}

impl Stream {
    /// Where the newest item is.
    pub fn head(&self) -> Identity {
        self.identity(HEAD)
    }

    /// Where an item is once the stream is past it. Also what makes it one intent: its downstream key comes from here.
    pub fn item(&self, number: u64) -> Identity {
        self.identity(&number.to_string())
    }

    fn identity(&self, last: &str) -> Identity {
        Identity {
            tenant: self.tenant.clone(),
            operation: self.operation.clone(),
            key: Key::made_here(format!("{}/{last}", self.name.as_str())),
        }
    }
}

/// One item of a stream, as a caller names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Item {
    /// Of which stream.
    pub stream: Stream,
    /// Which one: at most [`LARGEST_NUMBER`].
    pub number: u64,
    /// The number with which the stream begins. Every caller must say the same.
    pub start: u64,
}

impl Item {
    /// What makes this item one intent.
    pub fn identity(&self) -> Identity {
        self.stream.item(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(name: &str) -> Stream {
        Stream {
            tenant: Tenant::default(),
            operation: Operation::new("apply").unwrap(),
            name: name::Stream::new(name).unwrap(),
        }
    }

    #[test]
    fn the_longest_name_and_the_largest_number_are_still_a_key() {
        let long = stream(&"é".repeat(name::MAX_STREAM_CHARACTERS));
        assert!(Key::new(long.item(LARGEST_NUMBER).key.as_str()).is_ok());
        assert!(Key::new(long.head().key.as_str()).is_ok());
    }

    #[test]
    fn streams_never_share_a_key_whatever_slashes_they_have() {
        let mut keys = std::collections::BTreeSet::new();
        for name in ["a", "a/1", "a/head", "a/1/1", "a/", "/", "1", "head", "head/1"] {
            let stream = stream(name);
            for identity in [stream.head(), stream.item(0), stream.item(1), stream.item(11)] {
                assert!(keys.insert(identity.key.as_str().to_owned()), "{name} shares {}", identity.key.as_str());
            }
        }
    }

    #[test]
    fn the_name_of_a_stream_is_not_shown_by_accident() {
        let shown = format!("{:?}", stream("ann@example.com"));
        assert!(!shown.contains("ann"), "{shown}");
    }
}
