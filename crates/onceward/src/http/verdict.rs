//! Judges an upstream response: is it kept as the outcome, is the claim released, or is the effect in doubt?

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

use crate::plant::{Plant, planted};
use onceward_core::outcome::Verdict;

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

/// Judges a response. `refusals` are the statuses that, for this upstream, prove that nothing happened. The reason for each
/// status is in `docs/guides/gateway.md`, "What each status means".
pub fn of_response(profile: Profile, status: StatusCode, headers: &HeaderMap, refusals: &[u16]) -> Ending {
    let later = retry_after(headers);
    match status.as_u16() {
        number if refusals.contains(&number) => Ending::Release(later.unwrap_or_default()),
        502 if planted(Plant::BadGatewayReleased) => Ending::Release(Duration::ZERO),
        // A rate limit is checked before the work.
        429 => Ending::Release(later.unwrap_or_default()),
        // A load shedder refuses before the work and says when to come back. Without Retry-After, the status may come from a
        // worker that died in the middle.
        503 | 529 => later.map_or(Ending::Doubt, Ending::Release),
        // About the caller or the moment, not about the effect.
        401 | 403 | 407 | 409 | 425 => Ending::Release(later.unwrap_or_default()),
        // The upstream or an intermediary stopped waiting: for the client, or for a write that happened nevertheless.
        408 | 499 | 502 | 504 | 520..=527 | 530 | 598 | 599 => Ending::Doubt,
        500..=599 if profile.keeps_server_errors() => Ending::Keep(Verdict::Failure),
        // That the profile does not keep this response does not prove that nothing happened.
        500..=599 => Ending::Doubt,
        400..=499 => Ending::Keep(Verdict::Failure),
        _ => Ending::Keep(Verdict::Success),
    }
}

/// How long the upstream asks to wait. The header holds seconds or a date.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(std::time::SystemTime::now()).unwrap_or_default())
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
