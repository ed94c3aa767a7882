//! What a record holds besides if the courier delivers it: an entry of the outbox.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::duration;
use crate::name::Key;

/// How an entry of the outbox is delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// Which entries go first.
    #[serde(default)]
    pub priority: Priority,
    /// The entry is tried only for this long after it was recorded; `None` means without a limit.
    #[serde(default, with = "duration::as_millis_option", skip_serializing_if = "Option::is_none")]
    pub deliver_within: Option<Duration>,
    /// The payload stays in the record after delivery. Otherwise it is erased.
    #[serde(default, skip_serializing_if = "is_false")]
    pub keeps_payload: bool,
    /// Where the last attempt went. While an attempt may have happened, every further attempt goes there, under the same key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Destination>,
    /// The run that this one follows, if a person has had finished work done again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun: Option<Box<RerunLink>>,
}

/// The link from a deliberate new run to the run that it follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RerunLink {
    /// The key of the run that it follows, in the same tenant and operation.
    pub of: Key,
    /// The number of this run: 2 for the one that follows the first.
    pub run: u32,
    /// Why the person wanted it.
    pub why: String,
    /// The name of the person, as it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The name of the API token that was used. Unlike `by`, this is authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Which entries go first: the due ones of a higher priority go before all of a lower one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Before everything else.
    High,
    /// The priority of entries that do not say otherwise.
    #[default]
    Normal,
    /// After everything else.
    Low,
}

impl Priority {
    /// All priorities, in the order of delivery.
    pub const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    /// The number under which stores keep it: a lower one goes first.
    pub fn rank(self) -> i16 {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }

    /// The name in configuration and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }
}

/// Where an attempt goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Destination {
    /// The name of the sink.
    pub sink: String,
    /// The downstream key, as this sink gets it.
    pub key: String,
}

/// What the courier does after an attempt that is known not to have happened, or whose outcome is unknown. Other callers decide
/// that themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterAttempt {
    /// It tries again, until the attempts are used up.
    #[default]
    Retry,
    /// It tries again, and this attempt does not count: nothing was sent, or the downstream was only asked.
    RetryUncounted,
    /// It does not try again, because the downstream would refuse every further attempt. The entry is dead, or it waits for a
    /// person if an attempt may have happened.
    GiveUp,
}

impl AfterAttempt {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(value: &bool) -> bool {
    !*value
}
