//! What the status of a response says about the effect, and about the health of the downstream. The reason for each status is in
//! `docs/reference/gateway.md`, "What each status means".

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::breaker::Health;

/// What is known about the downstream whose responses are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Downstream<'a> {
    /// Statuses that, from this downstream, prove that nothing happened. It can be tried again after a wait.
    pub refusals: &'a [u16],
    /// It does the work once for each downstream key.
    pub honours_key: bool,
    /// A 500 is its final answer to this request. Otherwise the effect may have happened.
    pub keeps_server_errors: bool,
    /// A client gets the response and follows its redirects, as behind the gateway. Otherwise only 2xx is a success: without a
    /// client to follow it, a redirect does not show that the work was done.
    pub redirects_are_answers: bool,
}

impl Downstream<'_> {
    /// What the gateway assumes about an upstream: a client gets the response.
    pub const GATEWAY: Self =
        Self { refusals: &[], honours_key: false, keeps_server_errors: true, redirects_are_answers: true };

    /// What the courier assumes about a sink: only the courier gets the response.
    pub const COURIER: Self = Self { redirects_are_answers: false, ..Self::GATEWAY };
}

/// What a response says about the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The effect happened.
    Success,
    /// This attempt is proven to have done nothing.
    Refused {
        /// Waiting helps: a limit or a shortage, which passes. Otherwise the refusal is about the caller, its credentials or
        /// the moment. The courier then stops at once, whatever attempts are left, and a person requeues the intent.
        retry: bool,
        /// How long the downstream asks to wait.
        #[serde(default, with = "crate::duration::as_millis_option")]
        retry_after: Option<Duration>,
    },
    /// The same request would fail in the same way again.
    FinalFailure,
    /// The effect may have happened.
    MayHaveHappened {
        /// The downstream honours the key, so the same request with the same downstream key is safe. The terms of the record
        /// say for how long.
        retry: bool,
    },
}

/// Judges a response. `retry_after` is the header as [`retry_after::parse`](super::retry_after::parse) reads it.
pub fn judge(status: u16, retry_after: Option<Duration>, downstream: &Downstream<'_>) -> Verdict {
    let refused = |retry| Verdict::Refused { retry, retry_after };
    let doubt = Verdict::MayHaveHappened { retry: downstream.honours_key };
    match status {
        _ if downstream.refusals.contains(&status) => refused(true),
        // A rate limit is checked before the work.
        429 => refused(true),
        // A load shedder refuses before the work and says when to come back. Without Retry-After, the status may come from a
        // worker that died in the middle.
        503 | 529 if retry_after.is_some() => refused(true),
        503 | 529 => doubt,
        // A downstream that honours keys says this while an earlier attempt with the same key is at work.
        409 | 425 if downstream.honours_key => refused(true),
        // About the caller or the moment, not about the effect.
        401 | 403 | 407 | 409 | 425 => refused(false),
        // The upstream or an intermediary stopped waiting: for the client, or for a write that happened nevertheless.
        408 | 499 | 502 | 504 | 520..=527 | 530 | 598 | 599 => doubt,
        500..=599 if downstream.keeps_server_errors => Verdict::FinalFailure,
        // That this response is not kept does not prove that nothing happened.
        500..=599 => doubt,
        400..=499 => Verdict::FinalFailure,
        200..=299 => Verdict::Success,
        _ if downstream.redirects_are_answers => Verdict::Success,
        _ => doubt,
    }
}

/// Whether a response counts as a failure of the downstream, for its breaker. A downstream that refuses a request for what is in
/// it (4xx) works.
pub fn health(status: u16, verdict: Verdict) -> Health {
    match verdict {
        Verdict::MayHaveHappened { .. } => Health::Failing,
        _ if status == 429 || (500..=599).contains(&status) => Health::Failing,
        Verdict::Success | Verdict::Refused { .. } | Verdict::FinalFailure => Health::Working,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Option<Duration> = Some(Duration::from_secs(7));

    const BUSY: Verdict = Verdict::Refused { retry: true, retry_after: None };
    const REJECTED: Verdict = Verdict::Refused { retry: false, retry_after: None };
    const DOUBT: Verdict = Verdict::MayHaveHappened { retry: false };

    fn of(status: u16) -> Verdict {
        judge(status, None, &Downstream::COURIER)
    }

    #[test]
    fn every_status_has_its_row() {
        for status in 0..=999 {
            let expected = match status {
                200..=299 => Verdict::Success,
                429 => BUSY,
                401 | 403 | 407 | 409 | 425 => REJECTED,
                408 | 499 | 502 | 503 | 504 | 520..=527 | 529 | 530 | 598 | 599 => DOUBT,
                400..=599 => Verdict::FinalFailure,
                _ => DOUBT,
            };
            assert_eq!(of(status), expected, "{status}");
        }
    }

    #[test]
    fn only_a_load_shedder_that_says_when_to_come_back_proves_that_nothing_happened() {
        for status in [429, 503, 529] {
            let later = Verdict::Refused { retry: true, retry_after: LATER };
            assert_eq!(judge(status, LATER, &Downstream::COURIER), later, "{status}");
        }
        for status in [408, 502, 504, 520] {
            assert_eq!(judge(status, LATER, &Downstream::COURIER), DOUBT, "{status}");
        }
        let later = Verdict::Refused { retry: false, retry_after: LATER };
        assert_eq!(judge(409, LATER, &Downstream::COURIER), later);
    }

    #[test]
    fn what_the_sink_lists_as_a_refusal_takes_precedence() {
        let sink = Downstream { refusals: &[200, 404, 409, 500, 503], ..Downstream::COURIER };
        for status in sink.refusals {
            assert_eq!(judge(*status, None, &sink), BUSY, "{status}");
        }
        assert_eq!(judge(502, None, &sink), DOUBT);
    }

    #[test]
    fn a_doubt_may_be_retried_only_where_the_key_is_honoured() {
        let sink = Downstream { honours_key: true, ..Downstream::COURIER };
        assert_eq!(judge(504, None, &sink), Verdict::MayHaveHappened { retry: true });
        assert_eq!(judge(504, None, &Downstream::COURIER), DOUBT);
    }

    #[test]
    fn a_downstream_that_honours_keys_is_asked_again_while_it_is_busy_with_the_same_key() {
        let sink = Downstream { honours_key: true, ..Downstream::COURIER };
        for status in [409, 425] {
            assert_eq!(judge(status, None, &sink), BUSY, "{status}");
            assert_eq!(judge(status, LATER, &sink), Verdict::Refused { retry: true, retry_after: LATER }, "{status}");
        }
        assert_eq!(judge(403, None, &sink), REJECTED);
    }

    #[test]
    fn a_server_error_that_is_not_final_is_in_doubt() {
        let sink = Downstream { keeps_server_errors: false, ..Downstream::COURIER };
        for status in [500, 501, 505, 507, 511] {
            assert_eq!(judge(status, None, &sink), DOUBT, "{status}");
            assert_eq!(of(status), Verdict::FinalFailure, "{status}");
        }
    }

    #[test]
    fn a_redirect_is_an_answer_only_if_a_client_gets_it() {
        for status in [101, 300, 301, 302, 303, 304, 307, 308, 999] {
            assert_eq!(judge(status, None, &Downstream::GATEWAY), Verdict::Success, "{status}");
            assert_eq!(of(status), DOUBT, "{status}");
        }
    }

    #[test]
    fn overload_and_doubt_are_failures_of_the_downstream_and_refused_requests_are_not() {
        for status in [408, 429, 499, 500, 501, 502, 503, 504, 505, 520, 529, 530, 599, 302] {
            assert_eq!(health(status, of(status)), Health::Failing, "{status}");
        }
        for status in [200, 204, 400, 401, 402, 403, 404, 407, 409, 410, 422, 425] {
            assert_eq!(health(status, of(status)), Health::Working, "{status}");
        }
        let listed = Downstream { refusals: &[423, 503], ..Downstream::COURIER };
        assert_eq!(health(423, judge(423, None, &listed)), Health::Working);
        assert_eq!(health(503, judge(503, None, &listed)), Health::Failing);
        assert_eq!(health(503, judge(503, LATER, &Downstream::COURIER)), Health::Failing);
    }
}
