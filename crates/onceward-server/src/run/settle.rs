//! What the end of a command means for its claim. Pure.

use onceward::core::class::{Class, Disposition, Errors, disposition};
use onceward::core::evidence::in_exit_code;
use onceward::core::plant::{Plant, planted};

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

/// A command that a signal ended was cut short wherever it was just then, and a code in `doubt_exit` says the same of
/// something that it ran itself: neither proves anything. Every other failure is what the policy says it is.
pub(super) fn settle(code: u8, by_signal: bool, doubt_exit: &[u8], errors: Errors) -> Settle {
    let class = match code {
        _ if by_signal && !planted(Plant::SignalReleased) => Class::Unknown,
        0 => return Settle::Success,
        code if doubt_exit.contains(&code) => Class::Unknown,
        code => Class::Unclassified { evidence: in_exit_code(code) },
    };
    match disposition(class, errors, false) {
        Disposition::Release(_) => Settle::Release,
        Disposition::Keep => Settle::KeepFailure,
        Disposition::Doubt => Settle::Doubt,
    }
}

#[cfg(test)]
mod tests {
    use onceward::core::policy::OnError;

    use super::*;

    fn errors(on_error: OnError) -> Errors {
        Errors { on_error, tier_declared: false }
    }

    #[test]
    fn a_command_that_was_cut_short_is_in_doubt_whatever_the_policy_says() {
        for on_error in [OnError::Classify, OnError::Retry, OnError::Doubt, OnError::Keep].map(errors) {
            assert_eq!(settle(137, false, &[124, 137, 143], on_error), Settle::Doubt);
            assert_eq!(settle(139, true, &[], on_error), Settle::Doubt);
            assert_eq!(settle(0, false, &[0], on_error), Settle::Success);
        }
    }

    #[test]
    fn any_other_failure_is_what_the_policy_says() {
        assert_eq!(settle(1, false, &[124], errors(OnError::Retry)), Settle::Release);
        assert_eq!(settle(1, false, &[124], errors(OnError::Doubt)), Settle::Doubt);
        assert_eq!(settle(1, false, &[124], errors(OnError::Keep)), Settle::KeepFailure);
        assert_eq!(settle(137, false, &[], errors(OnError::Retry)), Settle::Release);
    }

    #[test]
    fn a_lost_answer_of_curl_and_any_failure_under_a_tier_are_doubts() {
        for code in [28, 52, 55, 56] {
            assert_eq!(settle(code, false, &[], errors(OnError::Classify)), Settle::Doubt, "{code}");
            assert_eq!(settle(code, false, &[], errors(OnError::Retry)), Settle::Release, "{code}");
        }
        assert_eq!(settle(1, false, &[], errors(OnError::Classify)), Settle::Release);
        assert_eq!(settle(1, false, &[], Errors { tier_declared: true, ..Errors::default() }), Settle::Doubt);
    }
}
