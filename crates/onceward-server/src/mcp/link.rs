//! The way to a server, whatever it is: a pipe, or HTTP.

use super::members::Members;
use super::message::Id;
use super::waiting::Late;

/// An answer to a call.
#[derive(Debug)]
pub(super) struct Answer {
    /// The line as it came.
    pub(super) line: Vec<u8>,
    pub(super) members: Members,
    /// The client has cancelled the call before it came.
    pub(super) cancelled: bool,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// It was not passed on: the server knows nothing of it.
    NotSent(String),
    /// The client cancelled it before it was passed on.
    Cancelled,
    /// It was passed on, and the answer will not come.
    Lost(String),
    /// The client cancelled it, the server was told, and has not answered since. It may do so yet.
    GaveUp(Late),
}

/// Takes requests to a server.
pub(super) trait Link: Send + Sync + 'static {
    /// Passes a client's request on and waits for its answer.
    fn send(&self, id: &Id, line: Vec<u8>) -> impl Future<Output = Result<Answer, NoAnswer>> + Send;

    /// The key of the call downstream, for links that carry it besides the message.
    fn set_key(&self, _downstream_key: &str) {}

    /// The request will not be passed on soon: nobody who came later need wait for it.
    fn step_back(&self) {}

    /// Makes a request of our own. The client sees nothing of it.
    fn ask(&self, method: &str, parameters: Members) -> impl Future<Output = Result<Members, NoAnswer>> + Send;
}
