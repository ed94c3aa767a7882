//! One memory limit for all request bodies that are being buffered. A limit for each body alone is not enough: many small
//! bodies that never finish would use up the memory.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A budget of memory for bodies, shared by all requests. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BodyMemory(Arc<Semaphore>);

impl BodyMemory {
    /// A budget of this many bytes.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS))))
    }

    /// An empty reservation, for a body that is about to be read.
    pub(super) fn reserve(&self) -> Reservation {
        Reservation { memory: self.clone(), permit: None }
    }
}

/// The memory that one body uses, until it is dropped.
pub(super) struct Reservation {
    memory: BodyMemory,
    permit: Option<OwnedSemaphorePermit>,
}

impl Reservation {
    /// Takes more, if there is room.
    /// Reserves more bytes. Returns false when the budget is used up.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let Ok(bytes) = u32::try_from(bytes) else { return false };
        let Ok(more) = Arc::clone(&self.memory.0).try_acquire_many_owned(bytes) else { return false };
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            none => *none = Some(more),
        }
        true
    }

    /// Ties the reservation to the bytes: it ends when the last clone or slice of them is dropped.
    pub(super) fn hold_for(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(ReservedBytes { bytes, _reservation: self })
    }
}

struct ReservedBytes {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
