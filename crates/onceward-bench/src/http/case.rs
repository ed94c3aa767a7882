//! The measured cases.

use serde::{Deserialize, Serialize};

/// A way to serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Case {
    /// The service, called directly.
    Echo,
    /// nginx in front of the service.
    Nginx,
    /// The gateway in front of the service, unguarded.
    Unguarded,
    /// The gateway, with a new key for each request.
    Guarded,
    /// The gateway replays: always the same key.
    ReplayOne,
    /// The same with many keys.
    ReplayMany,
    /// The store alone: the writes of a guarded request, without HTTP.
    StorePair,
}

impl Case {
    pub(super) const ALL: [Self; 7] =
        [Self::Echo, Self::Nginx, Self::Unguarded, Self::Guarded, Self::ReplayOne, Self::ReplayMany, Self::StorePair];

    /// The label in the table.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Echo => "bare echo (axum)",
            Self::Nginx => "nginx → echo",
            Self::Unguarded => "gateway → echo, unguarded",
            Self::Guarded => "gateway → echo, guarded",
            Self::ReplayOne => "gateway replaying one key",
            Self::ReplayMany => "gateway replaying many keys",
            Self::StorePair => "store: claim and finish alone",
        }
    }

    /// The keys of its requests.
    pub(super) const fn keys(self) -> KeyChoice {
        match self {
            Self::Guarded => KeyChoice::Fresh,
            Self::ReplayOne => KeyChoice::One,
            Self::ReplayMany => KeyChoice::Many,
            Self::Echo | Self::Nginx | Self::Unguarded | Self::StorePair => KeyChoice::None,
        }
    }
}

/// The keys of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum KeyChoice {
    None,
    Fresh,
    One,
    Many,
}

/// So few keys that all of their responses are cached.
pub(super) const MANY: u64 = 1_024;
