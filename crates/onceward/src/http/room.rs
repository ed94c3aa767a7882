//! The memory that requests may take which are read whole: one limit for all of them together, because many that are each
//! small enough, and never finished, are too much.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Room for bodies, shared by all who read some. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Room(Arc<Semaphore>);

impl Room {
    /// Room for so many bytes.
    pub fn of(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// Nothing yet, in this room.
    pub(super) fn taken(&self) -> Taken {
        Taken { room: self.clone(), place: None }
    }
}

/// What one body takes, until it is dropped.
pub(super) struct Taken {
    room: Room,
    place: Option<OwnedSemaphorePermit>,
}

impl Taken {
    /// Takes more, if there is room.
    pub(super) fn more(&mut self, bytes: usize) -> bool {
        let Ok(bytes) = u32::try_from(bytes) else { return false };
        let Ok(more) = Arc::clone(&self.room.0).try_acquire_many_owned(bytes) else { return false };
        match &mut self.place {
            Some(place) => place.merge(more),
            none => *none = Some(more),
        }
        true
    }

    /// The bytes for which it was taken. They give it back when the last of them is dropped.
    pub(super) fn by(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Placed { bytes, _taken: self })
    }
}

struct Placed {
    bytes: Bytes,
    _taken: Taken,
}

impl AsRef<[u8]> for Placed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
