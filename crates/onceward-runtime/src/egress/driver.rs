//! The task that drives a connection, and what an exchange on it can come to.

use std::future::Future;

use bytes::{Bytes, BytesMut};
use http::StatusCode;

use super::sent::{Lost, Response};

/// The task behind a connection. Dropping this closes the connection at once, so that nothing is written after a request was
/// given up.
#[derive(Debug)]
pub(super) struct Driver(tokio::task::JoinHandle<()>);

impl Driver {
    pub(super) fn start<E: std::fmt::Display + Send>(
        connection: impl Future<Output = Result<(), E>> + Send + 'static,
    ) -> Self {
        // An error also reaches the request that it concerns.
        Self(tokio::spawn(async { _ = connection.await }))
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What one exchange came to.
pub(super) enum Exchange {
    Answered(Response),
    /// The connection had ended, and the request was not written: it can go to another connection.
    Returned,
    /// Not written, because the time was over first.
    Late,
    /// The server says that it did not process it.
    Unprocessed(String),
    Lost(Lost, Option<StatusCode>),
}

/// The beginning of a body.
pub(super) struct Collected {
    bytes: BytesMut,
    limit: usize,
    pub(super) cut: bool,
}

impl Collected {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: BytesMut::new(), limit, cut: false }
    }

    /// Adds what still fits.
    pub(super) fn add(&mut self, data: &Bytes) {
        let room = self.limit - self.bytes.len();
        self.cut = data.len() > room;
        self.bytes.extend_from_slice(&data[..data.len().min(room)]);
    }

    pub(super) fn freeze(self) -> (Bytes, bool) {
        (self.bytes.freeze(), self.cut)
    }
}
