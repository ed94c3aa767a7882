//! Bugs that a harness can switch on, one for each process, to prove that the checks find them.
//!
//! A switch sits where the bug would be, as one `if planted(…)`. Without the feature `sim` no switch can be set and
//! `planted` is a constant, so the product contains none of this. Only the command line of `onceward-sim` sets a switch.
//! Core has no switches: its rules are pure functions, which vectors and mutation testing cover.

macro_rules! plants {
    ($($plant:ident $name:literal $about:literal)*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Plant {
            $(#[doc = $about] $plant,)*
        }

        #[cfg(feature = "sim")]
        impl Plant {
            /// Every bug.
            pub const ALL: &[Self] = &[$(Self::$plant,)*];

            /// The name on the command line of `onceward-sim`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$plant => $name,)* }
            }

            /// What the bug breaks.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$plant => $about,)* }
            }
        }
    };
}

plants! {
    // Ledger.
    DroppedWorkReleased "dropped-work-released" "a guard that is dropped while its work runs releases the claim"
    FinishNotWritten "finish-not-written" "an outcome is acknowledged and not written"
    LateOwnerToldWritten "late-owner-told-written" "a superseded owner is told that its outcome was recorded"
    LateOutcomeDropped "late-outcome-dropped" "the outcome of a superseded owner is not recorded in the audit trail"
    CacheServesExpired "cache-serves-expired" "the cache replays an outcome that has expired"
    CacheDropsTenant "cache-drops-tenant" "the cache replays the outcome of one tenant to another tenant"
    WaitersRunInTurn "waiters-run-in-turn" "callers that waited for a failed owner run one after another"
    DownstreamKeyPerAttempt "downstream-key-per-attempt" "each attempt sends another downstream key"
    ResolveNotAudited "resolve-not-audited" "an operator's decision is not recorded in the audit trail"
    StoreDownRuns "store-down-runs" "work runs unguarded while the store is unavailable"
    // Stores.
    InsertOverwrites "insert-overwrites" "an insert overwrites the record that exists"
    VersionNotCompared "version-not-compared" "a replace succeeds although the version differs"
    StoreFenceNotCompared "store-fence-not-compared" "a replace succeeds although the fence differs"
    TimeNotCompared "time-not-compared" "a replace succeeds although the record was removed and created again"
    PhaseNotStored "phase-not-stored" "a claim that may have sent its effect is stored as one that has not"
    StoreTimeStands "store-time-stands" "answers of the store carry the time of the last write: nothing lapses or expires"
    OwnerTakenForDead "owner-taken-for-dead" "a process that runs counts as dead"
    PurgeDropsTombstones "purge-drops-tombstones" "the sweeper removes records that must become tombstones"
    SyncSkipped "sync-skipped" "a commit does not wait for the disk"
    AnswersBeforeSync "answers-before-sync" "the writer answers before its batch is synced to disk"
    LostCommitAssumed "lost-commit-assumed" "a commit whose answer was lost counts as made (PostgreSQL)"
    ClientClock "client-clock" "leases follow the clock of the client, not that of the server (PostgreSQL, Redis)"
    LockProbeSkipped "lock-probe-skipped" "a batch does not try the locks of other programs' transactions (PostgreSQL)"
    ExpiryKept "expiry-kept" "a record that must not expire keeps the expiry of the tombstone before it (Redis)"
    EpochNotChecked "epoch-not-checked" "a server that lost its data grants claims (Redis)"
    ReplicasNotCounted "replicas-not-counted" "a write counts as made although too few replicas confirmed it (Redis)"
    SealNotChecked "seal-not-checked" "a ledger that is being moved accepts writes"
    EntryNotListed "entry-not-listed" "an entry of the outbox is written and is never due"
    EntryStaysListed "entry-stays-listed" "an entry that was taken keeps its place among those that are due"
    TurnsNotTaken "turns-not-taken" "every look for due entries begins with the same tenant"
    RetryTimeNotKept "retry-time-not-kept" "a doubt is written without the time at which the courier tries again"
    DeliveryOvertaken "delivery-overtaken" "a delivery that waits in the queue is written after a later job"
    // Outbox.
    EntryNotWritten "entry-not-written" "an entry is acknowledged and not written"
    EntryLostWithCourier "entry-lost-with-courier" "an entry whose courier died is not found again"
    EntryNotGivenBack "entry-not-given-back" "an entry whose claim got no answer is left to lapse into a doubt"
    AttemptNotCounted "attempt-not-counted" "an attempt at an entry does not count"
    AttemptNotAudited "attempt-not-audited" "a failed attempt at an entry is not recorded in the audit trail"
    PutOffCounted "put-off-counted" "an attempt counts that only asked the downstream"
    SinkChangedInDoubt "sink-changed-in-doubt" "an entry in doubt goes to another sink"
    LookIsBelieved "look-is-believed" "an entry is judged by the time at which the courier found it"
    PriorityIgnored "priority-ignored" "entries of a low priority go first"
    // HTTP.
    BadGatewayReleased "bad-gateway-released" "status 502 counts as proof that the effect did not happen"
    BodyNotCompared "body-not-compared" "another body under the same key gets the outcome of the first body"
    CookieKept "cookie-kept" "a repeat gets the cookie of the first response"
    CallersShareKeys "callers-share-keys" "callers with different credentials share keys"
    StatusNotKept "status-not-kept" "a repeat gets status 200 instead of the recorded status"
    LostIsNotSent "lost-is-not-sent" "a connection that is lost after sending counts as a failed connect"
    TokenTenantDropped "token-tenant-dropped" "the API maps every token to the same tenant"
    // MCP.
    CancelledCallReleased "cancelled-call-released" "an error after a cancellation counts as proof that the effect did not happen"
    KeyArgumentPerAttempt "key-argument-per-attempt" "each attempt fills another key into the arguments of the tool"
    AnswerToAnother "answer-to-another" "the response to one call is recorded for another pending call"
    ToolNotNamed "tool-not-named" "two tools of a server share keys"
    // Delivery of responses.
    DeliveredOnArrival "delivered-on-arrival" "a call counts as answered when it arrives"
    SilenceCounts "silence-counts" "a client that stops waiting without a message counts as one that got its response"
    CancelledCounts "cancelled-counts" "the response to a cancelled call counts as delivered"
    LateCancellationIgnored "late-cancellation-ignored" "a cancellation after the response changes nothing"
    KilledCounts "killed-counts" "the last responses to a client that was killed count as delivered"
    DeliveryNotWritten "delivery-not-written" "a delivery is not recorded, so that the next call does not run"
    // `onceward run`.
    SignalReleased "signal-released" "a command that a signal ended counts as one that had no effect"
    CommandNotCompared "command-not-compared" "another command under the same key gets the output of the first command"
    ExitCodeNotKept "exit-code-not-kept" "a repeat exits with 0 instead of the recorded exit code"
}

/// Marks a binary that contains the switches. A test of the harness looks for this text in the product.
#[cfg(feature = "sim")]
pub const MARKER: &[u8; 31] = b"onceward: planted bugs compiled";

/// The bug that is planted, beside the marker: whatever reads one contains the other.
#[cfg(feature = "sim")]
#[repr(C)]
struct Switch {
    marker: [u8; MARKER.len()],
    planted: std::sync::atomic::AtomicU8,
}

#[cfg(feature = "sim")]
static SWITCH: Switch = Switch { marker: *MARKER, planted: std::sync::atomic::AtomicU8::new(u8::MAX) };

/// Plants a bug in this process until it ends.
#[cfg(feature = "sim")]
pub fn plant(plant: Plant) {
    debug_assert_eq!(SWITCH.marker, *MARKER);
    SWITCH.planted.store(plant as u8, std::sync::atomic::Ordering::SeqCst);
}

/// The bug that is planted in this process.
#[cfg(feature = "sim")]
pub fn current() -> Option<Plant> {
    Plant::ALL.iter().copied().find(|plant| planted(*plant))
}

/// Whether this bug is planted.
#[cfg(feature = "sim")]
#[inline]
pub fn planted(plant: Plant) -> bool {
    SWITCH.planted.load(std::sync::atomic::Ordering::Relaxed) == plant as u8
}

/// Whether this bug is planted: never, without the feature `sim`.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn planted(_: Plant) -> bool {
    false
}
