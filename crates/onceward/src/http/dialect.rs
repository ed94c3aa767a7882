//! The protocol in which a client can read a problem.

use http::HeaderMap;

use super::grpc;
use super::profile::Profile;

/// A protocol for problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// HTTP statuses and `application/problem+json` documents.
    Http(Profile),
    /// A gRPC status in the headers of the response.
    Grpc,
}

impl Dialect {
    /// The protocol that the sender of these headers speaks.
    pub fn of(profile: Profile, headers: &HeaderMap) -> Self {
        if grpc::is_grpc(headers) { Self::Grpc } else { Self::Http(profile) }
    }
}

impl From<Profile> for Dialect {
    fn from(profile: Profile) -> Self {
        Self::Http(profile)
    }
}
