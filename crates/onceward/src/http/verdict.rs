//! Judges an upstream response: is it kept as the outcome, is the claim released, or is the effect in doubt?

use std::time::Duration;

use http::header::{DATE, RETRY_AFTER};
use http::{HeaderMap, StatusCode};

use crate::clock::{Clock, SystemClock};
use crate::plant::{Plant, planted};
use onceward_core::outcome::Verdict;
use onceward_core::retry::http_status::{self, Downstream};
use onceward_core::retry::retry_after;

use super::profile::Profile;

/// How the claim ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The response is final: it is kept and replayed.
    Keep(Verdict),
    /// The upstream says that nothing happened: the next caller may try, after this long.
    Release(Duration),
    /// The effect may have happened.
    Doubt,
}

/// Judges a response, by the table in `onceward_core::retry::http_status`. `refusals` are the statuses that, for this upstream,
/// prove that nothing happened.
pub fn of_response(profile: Profile, status: StatusCode, headers: &HeaderMap, refusals: &[u16]) -> Ending {
    let status = status.as_u16();
    if status == 502 && planted(Plant::BadGatewayReleased) {
        return Ending::Release(Duration::ZERO);
    }
    let keeps_server_errors = profile.keeps_server_errors();
    let upstream = Downstream { refusals, keeps_server_errors, ..Downstream::GATEWAY };
    match http_status::judge(status, retry_after(headers), &upstream) {
        http_status::Verdict::Success => Ending::Keep(Verdict::Success),
        http_status::Verdict::FinalFailure => Ending::Keep(Verdict::Failure),
        // The client decides whether it sends a refused request again.
        http_status::Verdict::Refused { retry_after, .. } => Ending::Release(retry_after.unwrap_or_default()),
        http_status::Verdict::MayHaveHappened { .. } => Ending::Doubt,
    }
}

/// How long the upstream asks to wait. The header holds seconds or a date.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    let date = headers.get(DATE).and_then(|date| date.to_str().ok());
    retry_after::parse(text, date, SystemClock.now())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(profile: Profile, status: u16, later: Option<&str>) -> Ending {
        let mut headers = HeaderMap::new();
        if let Some(later) = later {
            headers.insert(RETRY_AFTER, later.parse().unwrap());
        }
        of_response(profile, StatusCode::from_u16(status).unwrap(), &headers, &[])
    }

    #[test]
    fn every_status_ends_the_claim_as_documented() {
        let now = Ending::Release(Duration::ZERO);
        let seven = Ending::Release(Duration::from_secs(7));
        for profile in [Profile::Ietf, Profile::Stripe, Profile::Acp] {
            for status in [200, 201, 204, 302] {
                assert_eq!(of(profile, status, None), Ending::Keep(Verdict::Success), "{status}");
            }
            for status in [400, 402, 404, 422] {
                assert_eq!(of(profile, status, None), Ending::Keep(Verdict::Failure), "{status}");
            }
            for status in [401, 403, 407, 409, 425, 429] {
                assert_eq!(of(profile, status, None), now, "{status}");
            }
            for status in [409, 429, 503, 529] {
                assert_eq!(of(profile, status, Some("7")), seven, "{status}");
            }
            for status in [408, 502, 504] {
                assert_eq!(of(profile, status, Some("7")), Ending::Doubt, "{status}");
            }
            for status in [408, 499, 502, 503, 504, 520, 522, 524, 527, 529, 530, 598, 599] {
                assert_eq!(of(profile, status, None), Ending::Doubt, "{status}");
            }
        }
        assert_eq!(of(Profile::Ietf, 500, None), Ending::Keep(Verdict::Failure));
        assert_eq!(of(Profile::Stripe, 500, None), Ending::Keep(Verdict::Failure));
        for status in [500, 501, 505, 507] {
            assert_eq!(of(Profile::Acp, status, None), Ending::Doubt, "{status}");
        }
    }

    #[test]
    fn a_configured_refusal_releases_the_claim() {
        let headers = HeaderMap::new();
        let of = |refusals: &[u16]| of_response(Profile::Ietf, StatusCode::SERVICE_UNAVAILABLE, &headers, refusals);
        assert_eq!(of(&[503]), Ending::Release(Duration::ZERO));
        assert_eq!(of(&[]), Ending::Doubt);
        let acp = |refusals: &[u16]| of_response(Profile::Acp, StatusCode::NOT_IMPLEMENTED, &headers, refusals);
        assert_eq!((acp(&[501]), acp(&[])), (Ending::Release(Duration::ZERO), Ending::Doubt));
    }

    #[test]
    fn a_date_in_the_past_means_now_and_an_invalid_one_is_ignored() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        assert_eq!(retry_after(&headers), Some(Duration::ZERO));
        headers.insert(RETRY_AFTER, "soon".parse().unwrap());
        assert_eq!(retry_after(&headers), None);
    }
}
