//! How requests reach a server: through a pipe, or over HTTP.

use super::members::Members;
use super::message::Id;
use super::pending::LateResponse;

/// The response to a call.
#[derive(Debug)]
pub(super) struct CallResponse {
    /// The line as the server sent it.
    pub(super) line: Vec<u8>,
    pub(super) members: Members,
    /// The client had cancelled the call before the response came.
    pub(super) cancelled: bool,
}

/// Why a call has no response.
#[derive(Debug)]
pub(super) enum NoResponse {
    /// It was not sent: the server knows nothing of it.
    NotSent(String),
    /// The client cancelled it before it was sent.
    Cancelled,
    /// It was sent, and the response will not come.
    Lost(String),
    /// The client cancelled it, and the server was told and has not responded since. It may still do so.
    GaveUp(LateResponse),
}

/// Carries requests to a server.
pub(super) trait Transport: Send + Sync + 'static {
    /// Sends a request of the client and waits for its response.
    fn send(&self, id: &Id, line: Vec<u8>) -> impl Future<Output = Result<CallResponse, NoResponse>> + Send;

    /// Sets the downstream key of the call, for transports that carry it next to the message.
    fn set_key(&self, _downstream_key: &str) {}

    /// The request will not be sent soon, so later ones need not wait for it.
    fn step_back(&self) {}

    /// Makes a request of the gateway. The client does not see it.
    fn ask(&self, method: &str, parameters: Members) -> impl Future<Output = Result<Members, NoResponse>> + Send;
}
