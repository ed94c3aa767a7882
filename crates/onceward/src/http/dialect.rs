//! How a client wants to be told of a problem.

use http::HeaderMap;

use super::grpc;
use super::profile::Profile;

/// What a client understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Statuses, and documents of `application/problem+json`.
    Http(Profile),
    /// A status of gRPC in the head of an answer.
    Grpc,
}

impl Dialect {
    /// What the sender of these headers understands.
    pub fn of(profile: Profile, headers: &HeaderMap) -> Self {
        if grpc::is_spoken(headers) { Self::Grpc } else { Self::Http(profile) }
    }
}

impl From<Profile> for Dialect {
    fn from(profile: Profile) -> Self {
        Self::Http(profile)
    }
}
