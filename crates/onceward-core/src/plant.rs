//! Bugs that can be planted, to see that the checks find them: checks that find nothing mean something only then.
//!
//! A switch sits where the bug would really sit, as one `if planted(…)`. Without the feature `sim` no switch can be set
//! and `planted` is a constant, so nothing of this is left in the product. It is set by a harness, from its own command
//! line, and from nowhere else.

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

            /// The name, as it is written on a command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$plant => $name,)* }
            }

            /// What is broken.
            pub const fn about(self) -> &'static str {
                match self { $(Self::$plant => $about,)* }
            }
        }
    };
}

plants! {
    // The claim.
    NoFence "no-fence" "anybody may write: the fence is not compared"
    RenewWithoutFence "renew-without-fence" "a superseded owner renews and goes on working"
    LeaseEndsEarly "lease-ends-early" "a lease counts as lapsed a second before its end"
    OwnerTakenForDead "owner-taken-for-dead" "a living process counts as gone"
    TermsLoosened "terms-loosened" "a later caller's policy governs instead of the record's"
    StricterCallerIgnored "stricter-caller-ignored" "a caller that says hold takes over where the record says retry"
    QueueHandsOutTwice "queue-hands-out-twice" "the courier is given what another worker is delivering"
    ClaimIdNotCompared "claim-id-not-compared" "a begin with any claim id is given the fence of the running claim"
    UsedClaimIdAccepted "used-claim-id-accepted" "a late repeat of a begin makes a second claim under the same claim id"
    RepeatGivenBack "repeat-given-back" "a lost answer to a begin takes the claim from the caller whose repeat was answered"
    // Doubt.
    LapseIsProof "lapse-is-proof" "held work runs again once its lease has lapsed"
    DoubtForgotten "doubt-forgotten" "a takeover forgets that an attempt may have happened"
    ProofSpeaksForAll "proof-speaks-for-all" "a proof of one attempt clears the doubt about all"
    ReleaseOnUnknown "release-on-unknown" "an unknown result is given back as if nothing had happened"
    DroppedWorkReleased "dropped-work-released" "work that was dropped in the middle is given back as harmless"
    SentNotWritten "sent-not-written" "`sent` is acknowledged and not recorded"
    RetryPastMemory "retry-past-memory" "`retry` goes on after the other side has forgotten the key"
    MemoryCountedAnew "memory-counted-anew" "the other side's memory is counted from the last attempt, not the first"
    AttemptOutlivesMemory "attempt-outlives-memory" "`retry` is granted to an attempt that may end after the key is forgotten"
    ProbeNotAsked "probe-not-asked" "under `probe` nobody is told to ask first"
    OverdueTakenOver "overdue-taken-over" "work past its deadline is taken over while its owner lives"
    EvidenceIgnored "evidence-ignored" "a lost answer in an error is released as if nothing had happened"
    DoubtExpires "doubt-expires" "a doubt is swept away like finished work"
    // What did not happen.
    OpenDoubtForgotten "open-doubt-forgotten" "what was given back is forgotten although it holds a doubt"
    OpenItemForgotten "open-item-forgotten" "an item of a stream that was given back is forgotten"
    ForgottenBeforeKey "forgotten-before-key" "what was given back is forgotten while the other side knows its key"
    OpenNotSwept "open-not-swept" "the sweeper leaves what was given back for ever"
    // Outcomes.
    FinishNotWritten "finish-not-written" "an outcome is acknowledged and not written"
    LateOwnerToldWritten "late-owner-told-written" "a superseded owner is told that its outcome is kept"
    LateOutcomeDropped "late-outcome-dropped" "a superseded owner's outcome leaves no trace"
    RetentionTooShort "retention-too-short" "an outcome is dropped at half its time"
    TombstoneIgnored "tombstone-ignored" "a tombstone does not hold its key"
    PurgeDropsTombstones "purge-drops-tombstones" "the sweeper removes records that should leave a tombstone"
    CacheServesExpired "cache-serves-expired" "the cache serves an outcome that has expired"
    CacheDropsTenant "cache-drops-tenant" "the cache serves one tenant's outcome to another"
    WaitersRunInTurn "waiters-run-in-turn" "callers that waited for a failed owner run one after another"
    // Identity.
    TenantDropped "tenant-dropped" "the tenant is no part of the identity"
    FingerprintNotCompared "fingerprint-not-compared" "another request under the same key gets the first one's answer"
    CollisionNotSeen "collision-not-seen" "two intents with the same derived key are taken for one"
    FieldOrderKept "field-order-kept" "the order of JSON members changes the key"
    SessionDropped "session-dropped" "keys of different sessions meet"
    DownstreamKeyPerAttempt "downstream-key-per-attempt" "each attempt goes to the other side under another key"
    // People.
    ResolveBesideRunning "resolve-beside-running" "a person may settle what somebody is working on"
    ResolveOfAnotherVersion "resolve-of-another-version" "a person settles another record than the one that was seen"
    ResolveNotAudited "resolve-not-audited" "a person's decision leaves no trace"
    ResetKeepsGeneration "reset-keeps-generation" "a request after a reset reuses the downstream key of the slip before"
    // Clocks.
    FarLeaseBelieved "far-lease-believed" "a lease from a clock ten years ahead holds the key for ten years"
    FarNotBeforeBelieved "far-not-before-believed" "a not-before from a clock ten years ahead is waited for"
    // The store.
    InsertOverwrites "insert-overwrites" "an insert takes the place of the record that is there"
    VersionNotCompared "version-not-compared" "a replace holds although the version is another"
    StoreFenceNotCompared "store-fence-not-compared" "a replace holds although the fence is another"
    TimeNotCompared "time-not-compared" "a replace holds although the record was forgotten and made anew"
    StoreDownRuns "store-down-runs" "work runs unguarded while the store is out of reach"
    SyncSkipped "sync-skipped" "a commit does not wait for the disk"
    AnswersBeforeSync "answers-before-sync" "the writer answers before its batch is on the disk"
    // HTTP.
    BadGatewayReleased "bad-gateway-released" "a 502 counts as proof that nothing happened"
    BodyNotCompared "body-not-compared" "another body under the same key gets the first one's answer"
    CookieKept "cookie-kept" "a repeat gets the cookie of the first answer"
    CallersShareKeys "callers-share-keys" "callers with different credentials share their keys"
    StatusNotKept "status-not-kept" "a repeat gets status 200 whatever the first answer had"
    LostIsNotSent "lost-is-not-sent" "a connection that was lost after sending counts as never made"
    TokenTenantDropped "token-tenant-dropped" "the API takes every token for the same tenant"
    // MCP.
    CancelledCallReleased "cancelled-call-released" "an error after a cancellation counts as proof that nothing happened"
    KeyArgumentPerAttempt "key-argument-per-attempt" "each attempt fills another key into the tool's arguments"
    AnswerToAnother "answer-to-another" "the answer to one call is recorded for another one that is under way"
    ToolNotNamed "tool-not-named" "two tools of a server share their keys"
    // Delivery.
    DeliveredOnArrival "delivered-on-arrival" "a call counts as answered when it arrives"
    DeliveryNotJudged "delivery-not-judged" "an outcome that was not delivered is done again"
    SilenceCounts "silence-counts" "a client that gives up silently counts as one that got its answer"
    CancelledCounts "cancelled-counts" "the answer to a cancelled call counts as delivered"
    LateCancellationIgnored "late-cancellation-ignored" "a cancellation after the answer changes nothing"
    KilledCounts "killed-counts" "the last answers of a client that was killed count as delivered"
    ToldBeforeAsked "told-before-asked" "a doubt is run again before its caller was told of it"
    OverlapRunsDoubt "overlap-runs-doubt" "a call that came before a doubt was told runs it"
    LateRepeatRuns "late-repeat-runs" "a late repeat of a begin counts as the next call"
    DeliveryNotWritten "delivery-not-written" "a delivery is not recorded, and the next call is not run"
    DeliveryOvertaken "delivery-overtaken" "a delivery that waits is written after what came later"
    NextSharesKey "next-shares-key" "the next call of an intent goes under the downstream key of the last"
    // Commands.
    SignalReleased "signal-released" "a command that a signal ended counts as one that did nothing"
    CommandNotCompared "command-not-compared" "another command under the same key gets the first one's output"
    ExitCodeNotKept "exit-code-not-kept" "a repeat exits with 0 whatever the first run exited with"
}

#[cfg(feature = "sim")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(u8::MAX);

/// Plants a bug in this process, for good.
#[cfg(feature = "sim")]
pub fn plant(plant: Plant) {
    PLANTED.store(plant as u8, std::sync::atomic::Ordering::SeqCst);
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
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == plant as u8
}

/// Whether this bug is planted: never.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn planted(_: Plant) -> bool {
    false
}
