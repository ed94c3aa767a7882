//! Streams: numbered items, each of which must be done before the next may begin, and the keys of their records.
//!
//! The **head** is one record with the newest item. It is the lock of the stream, and it never expires. Before the head moves
//! to the next item, the finished item is **archived** under its own key, as an ordinary record that expires as its terms say.

use serde::{Deserialize, Serialize};

use crate::name::{self, Identity, Key, Operation, Tenant};

/// The largest number of an item: stores keep numbers as signed 64-bit integers.
pub const LARGEST_NUMBER: u64 = i64::MAX as u64;

/// The number of the first item, unless the callers of a stream set another one.
pub const DEFAULT_START: u64 = 1;

/// The last segment of a head's key. An item's key has its number there, so no two streams share a key, even if their names
/// contain slashes.
const HEAD: &str = "head";

/// A stream of a tenant and an operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stream {
    /// The tenant that it belongs to.
    pub tenant: Tenant,
    /// The kind of effect.
    pub operation: Operation,
    /// The name inside tenant and operation.
    pub name: name::Stream,
}

impl Stream {
    /// The identity of the head.
    pub fn head(&self) -> Identity {
        self.identity(HEAD)
    }

    /// The identity of an item, under which it is archived. Its downstream key comes from this identity.
    pub fn item(&self, number: u64) -> Identity {
        self.identity(&number.to_string())
    }

    fn identity(&self, last_segment: &str) -> Identity {
        Identity {
            tenant: self.tenant.clone(),
            operation: self.operation.clone(),
            key: Key::made_here(format!("{}/{last_segment}", self.name.as_str())),
        }
    }
}

/// One item of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Item {
    /// The stream.
    pub stream: Stream,
    /// The number of the item, at most [`LARGEST_NUMBER`].
    pub number: u64,
    /// The number of the first item of the stream. Every caller must pass the same.
    pub start: u64,
}

impl Item {
    /// The identity of this item.
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
    fn the_longest_name_with_the_largest_number_is_a_valid_key() {
        let long = stream(&"é".repeat(name::MAX_STREAM_CHARACTERS));
        assert!(Key::new(long.item(LARGEST_NUMBER).key.as_str()).is_ok());
        assert!(Key::new(long.head().key.as_str()).is_ok());
    }

    #[test]
    fn streams_with_slashes_in_their_names_never_share_a_key() {
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
