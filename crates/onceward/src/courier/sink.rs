//! Where entries go: what a sink is given, and what it says about an attempt.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use onceward_core::breaker::Health;
use onceward_core::name::Identity;
use onceward_core::outcome::Outcome;
use onceward_core::record::Fence;

/// A place to which a courier delivers: an API, a mail server, a program.
///
/// A sink makes one attempt for each call and never repeats it by itself. What it returns decides whether the entry is sent
/// again, so it must not say that nothing happened unless it has a proof.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Makes one attempt.
    async fn deliver(&self, parcel: &Parcel) -> SinkResult;

    /// Asks whether an earlier attempt with this downstream key happened. Only called if [`Sink::can_look_up`] says yes.
    async fn look_up(&self, _parcel: &Parcel) -> LookUp {
        LookUp::Unknown("this sink cannot be asked".to_owned())
    }

    /// Whether the sink can be asked. Without it, entries with `in_doubt = "probe"` wait for a person.
    fn can_look_up(&self) -> bool {
        false
    }

    /// The courier has stopped and makes no further attempt. Ends what the sink keeps running between attempts; called once for
    /// each route to it.
    async fn close(&self) {}

    /// Whether the sink finishes each entry itself, in one transaction with its effect. Then no entry is ever in doubt: an attempt
    /// that did not commit did nothing, and is made again. Such a sink answers [`SinkResult::Finished`] instead of
    /// [`SinkResult::Ended`], and its effect must be impossible without the end of the entry.
    fn finishes_entries(&self) -> bool {
        false
    }
}

/// What a sink gets for an attempt.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// The intent.
    pub identity: Identity,
    /// The payload, as it was queued.
    pub payload: Bytes,
    /// The key for the downstream: the same on every attempt at this sink.
    pub downstream_key: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// What the record is compared with by a sink that finishes entries itself: another attempt has another fence.
    pub fence: Fence,
}

/// What became of an attempt.
#[derive(Clone, Debug)]
pub enum SinkResult {
    /// It is over: it happened, or the same request would fail in the same way again.
    Ended(Outcome),
    /// The sink has finished the entry itself, in one transaction with its effect.
    Finished,
    /// There is a proof that nothing happened.
    Refused {
        /// What went wrong, without secrets.
        error: String,
        /// How long the downstream asks to wait.
        retry_after: Option<Duration>,
        /// Whether a later attempt may succeed. Otherwise the entry is dead.
        again: bool,
        /// What this says about the downstream.
        health: Health,
    },
    /// It may have happened.
    Unknown {
        /// What went wrong, without secrets.
        error: String,
        /// How long the downstream asks to wait.
        retry_after: Option<Duration>,
        /// What this says about the downstream.
        health: Health,
    },
    /// It may have happened, and neither a further attempt nor a look-up would settle it. The entry waits for a person, whatever
    /// its policy says.
    AwaitsPerson {
        /// What went wrong, without secrets.
        error: String,
        /// What this says about the downstream.
        health: Health,
    },
}

/// What a sink knows about an earlier attempt.
#[derive(Clone, Debug)]
pub enum LookUp {
    /// It happened, with this outcome.
    Happened(Outcome),
    /// The downstream knows nothing of it. This counts once the settle time is over.
    NotFound,
    /// The sink could not find out.
    Unknown(String),
}
