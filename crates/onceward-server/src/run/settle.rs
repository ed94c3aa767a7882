//! What the end of a command means for its claim. Pure.

use onceward::core::class::{Class, Disposition, disposition};
use onceward::core::policy::OnError;

/// What becomes of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settle {
    /// It is done, and every repeat gets this outcome.
    Success,
    /// It failed for good, and every repeat gets this outcome.
    KeepFailure,
    /// Nothing happened; the next run may try.
    Release,
    /// It may have happened.
    Doubt,
}

/// A code in `doubt_exit` says that somebody cut the command short, so it is no proof of anything; every other
/// failure is what the policy says it is.
pub(super) fn settle(code: u8, doubt_exit: &[u8], on_error: OnError) -> Settle {
    let class = match code {
        0 => return Settle::Success,
        code if doubt_exit.contains(&code) => Class::Unknown,
        _ => Class::Unclassified,
    };
    match disposition(class, on_error, false) {
        Disposition::Release(_) => Settle::Release,
        Disposition::Keep => Settle::KeepFailure,
        Disposition::Doubt => Settle::Doubt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_cut_short_is_in_doubt_whatever_the_policy_says() {
        for on_error in [OnError::Retry, OnError::Doubt, OnError::Keep] {
            assert_eq!(settle(137, &[124, 137, 143], on_error), Settle::Doubt);
            assert_eq!(settle(0, &[0], on_error), Settle::Success);
        }
    }

    #[test]
    fn any_other_failure_is_what_the_policy_says() {
        assert_eq!(settle(1, &[124], OnError::Retry), Settle::Release);
        assert_eq!(settle(1, &[124], OnError::Doubt), Settle::Doubt);
        assert_eq!(settle(1, &[124], OnError::Keep), Settle::KeepFailure);
        assert_eq!(settle(137, &[], OnError::Retry), Settle::Release);
    }
}
