//! Named steps of a guarded call, at which a crash harness may kill the process. Without the feature `sim`, none of this is
//! compiled into a call.

/// A point in a guarded call at which a crash must do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    /// Begin has decided; nothing is written.
    BeginDecided,
    /// The claim is written; the caller has not been told.
    BeginWritten,
    /// The caller is about to mark `sent`.
    SentDecided,
    /// `sent` is written; nothing has been sent.
    SentWritten,
    /// The lease was renewed.
    Renewed,
    /// The work is over; its outcome is not written.
    FinishDecided,
    /// The outcome is written; the caller has not been told.
    FinishWritten,
    /// A release is written.
    ReleaseWritten,
    /// A doubt is written.
    DoubtWritten,
    /// SQLite has written into its transaction and not committed it. PostgreSQL is about to get a batch, and Redis a script: a
    /// server runs all of it or nothing, so that no process can be killed in between.
    StoreUncommitted,
    /// The store has committed and not answered.
    StoreCommitted,
    /// The sweeper has committed a batch.
    PurgeCommitted,
    /// An entry is queued; the caller has not been told.
    EntryQueued,
    /// A courier has an entry; nothing has been sent.
    EntryTaken,
    /// A sink has answered; nothing is written.
    AttemptEnded,
    /// The end of an attempt that did not deliver is written.
    UndeliveredWritten,
    /// That a look-up found nothing is written; nothing has been sent.
    LookUpWritten,
}

impl Step {
    /// Every step of a call.
    pub const OF_CALLS: [Self; 12] = [
        Self::BeginDecided,
        Self::BeginWritten,
        Self::SentDecided,
        Self::SentWritten,
        Self::Renewed,
        Self::FinishDecided,
        Self::FinishWritten,
        Self::ReleaseWritten,
        Self::DoubtWritten,
        Self::StoreUncommitted,
        Self::StoreCommitted,
        Self::PurgeCommitted,
    ];

    /// Every step of an entry of the outbox that calls do not have.
    pub const OF_ENTRIES: [Self; 5] =
        [Self::EntryQueued, Self::EntryTaken, Self::AttemptEnded, Self::UndeliveredWritten, Self::LookUpWritten];

    /// The name, as it is written on a command line.
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

#[cfg(feature = "sim")]
static HOOK: std::sync::OnceLock<fn(Step)> = std::sync::OnceLock::new();

/// Sets the function to call at each step, once for the process.
#[cfg(feature = "sim")]
pub fn on_step(hook: fn(Step)) {
    let _ = HOOK.set(hook);
}

#[inline]
pub(crate) fn reached(step: Step) {
    #[cfg(feature = "sim")]
    if let Some(hook) = HOOK.get() {
        hook(step);
    }
    #[cfg(not(feature = "sim"))]
    let _ = step;
}
