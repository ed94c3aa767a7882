//! What the end of a command means for its claim. Pure.

use onceward::core::class::{Class, Disposition, Errors, disposition};
use onceward::core::evidence::{Evidence, in_exit_code};
use onceward::plant::{Plant, planted};

/// How to settle the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// Done: every repeat gets this outcome.
    Success,
    /// Final failure: every repeat gets this outcome.
    KeepFailure,
    /// Nothing happened; the next run may try.
    Release,
    /// It may have happened.
    Doubt,
}

/// A command that was killed by a signal was interrupted at an arbitrary point, and a code in `doubt_exit` says the same of a
/// process that it ran: neither proves anything. The policy decides about every other failure.
pub fn settle(code: u8, by_signal: bool, doubt_exit: &[u8], errors: Errors) -> Settle {
    settle_with(code, by_signal, doubt_exit, in_exit_code(code), errors)
}

/// The same, with evidence that was found elsewhere too, such as in stderr.
pub fn settle_with(code: u8, by_signal: bool, doubt_exit: &[u8], evidence: Option<Evidence>, errors: Errors) -> Settle {
    let class = match code {
        _ if by_signal && !planted(Plant::SignalReleased) => Class::Unknown,
        0 => return Settle::Success,
        code if doubt_exit.contains(&code) => Class::Unknown,
        _ => Class::Unclassified { evidence },
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
    fn an_interrupted_command_is_in_doubt_under_every_policy() {
        for on_error in [OnError::Classify, OnError::Retry, OnError::Doubt, OnError::Keep].map(errors) {
            assert_eq!(settle(137, false, &[124, 137, 143], on_error), Settle::Doubt);
            assert_eq!(settle(139, true, &[], on_error), Settle::Doubt);
            assert_eq!(settle(0, false, &[0], on_error), Settle::Success);
        }
    }

    #[test]
    fn the_policy_decides_about_any_other_failure() {
        assert_eq!(settle(1, false, &[124], errors(OnError::Retry)), Settle::Release);
        assert_eq!(settle(1, false, &[124], errors(OnError::Doubt)), Settle::Doubt);
        assert_eq!(settle(1, false, &[124], errors(OnError::Keep)), Settle::KeepFailure);
        assert_eq!(settle(137, false, &[], errors(OnError::Retry)), Settle::Release);
    }

    #[test]
    fn a_lost_response_of_curl_and_any_failure_under_a_tier_are_in_doubt() {
        for code in [28, 52, 55, 56] {
            assert_eq!(settle(code, false, &[], errors(OnError::Classify)), Settle::Doubt, "{code}");
            assert_eq!(settle(code, false, &[], errors(OnError::Retry)), Settle::Release, "{code}");
        }
        assert_eq!(settle(1, false, &[], errors(OnError::Classify)), Settle::Release);
        assert_eq!(settle(1, false, &[], Errors { tier_declared: true, ..Errors::default() }), Settle::Doubt);
    }
}
