//! What is measured.

use serde::{Deserialize, Serialize};

/// One way of answering a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Case {
    /// The service, asked directly.
    Echo,
    /// nginx before the service.
    Nginx,
    /// The gateway before the service; nothing is guarded.
    Unguarded,
    /// The gateway, with a new key each time.
    Guarded,
    /// The gateway, which has the answer: always the same key.
    ReplayOne,
    /// The same with many keys.
    ReplayMany,
    /// The store alone: what a guarded request writes, without any HTTP.
    StorePair,
}

impl Case {
    pub(super) const ALL: [Self; 7] =
        [Self::Echo, Self::Nginx, Self::Unguarded, Self::Guarded, Self::ReplayOne, Self::ReplayMany, Self::StorePair];

    /// As the table says it.
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

    /// What is sent.
    pub(super) const fn keys(self) -> Keys {
        match self {
            Self::Guarded => Keys::Fresh,
            Self::ReplayOne => Keys::One,
            Self::ReplayMany => Keys::Many,
            Self::Echo | Self::Nginx | Self::Unguarded | Self::StorePair => Keys::None,
        }
    }
}

/// Which keys requests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Keys {
    None,
    Fresh,
    One,
    Many,
}

/// How many keys are many: few enough that all of their answers are at hand.
pub(super) const MANY: u64 = 1_024;
