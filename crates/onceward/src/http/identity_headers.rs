//! Headers that identify callers in addition to the tenant. Only a digest of their values becomes part of the tenant's name.

use http::header::{COOKIE, HeaderMap, HeaderName};

use onceward_core::hash::Fields;

use super::problem::{Kind, Problem};
use super::rules::Rules;
use super::tenant::TenantNames;

/// The tenant's name combined with the values of the `listed` headers. It ends in a digest even when the request has none of
/// them, so that a plain tenant name can never equal a combined one.
pub fn tenant(tenant: &str, headers: &HeaderMap, listed: &[HeaderName], names: &TenantNames) -> String {
    if listed.is_empty() {
        return tenant.to_owned();
    }
    let mut listed: Vec<&HeaderName> = listed.iter().collect();
    listed.sort_unstable_by_key(|name| name.as_str());
    listed.dedup();
    let all = listed.into_iter().fold(Fields::new(), |all, name| {
        let values = identifying_values(headers, name);
        let all = all.field(name.as_str()).field(values.len().to_be_bytes());
        values.into_iter().fold(all, Fields::field)
    });
    names.name(&format!("{tenant}+"), all.digest())
}

/// Cookies that load balancers, proxies and content networks set for session affinity or bot detection. They do not identify
/// the caller. HTTP clients send them back automatically, so refusing them would stop callers that never chose to send a
/// cookie. A trailing `*` matches any rest of the name.
const ROUTING_COOKIES: [&str; 14] = [
    "awsalb",
    "awsalbapp-*",
    "awsalbcors",
    "awsalbtg",
    "awsalbtgcors",
    "awselb",
    "awselbcors",
    "arraffinity",
    "arraffinitysamesite",
    "bigipserver*",
    "gclb",
    "ingresscookie",
    "__cf_bm",
    "_cfuvid",
];

/// Whether a request has cookies that may identify the caller.
pub fn has_identifying_cookie(headers: &HeaderMap) -> bool {
    identifying_cookies(headers).next().is_some()
}

/// The cookies of a request that may identify the caller, whichever lines they are in.
fn identifying_cookies(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let lines = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    lines.map(<[u8]>::trim_ascii).filter(|cookie| !cookie.is_empty() && !is_routing_cookie(cookie))
}

fn is_routing_cookie(cookie: &[u8]) -> bool {
    let name = cookie.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    ROUTING_COOKIES.iter().any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => name == known.as_bytes(),
    })
}

/// The values of a header by which requests are told apart. A load balancer changes its cookies between a request and its
/// retry, so they are not among them.
pub fn identifying_values(headers: &HeaderMap, name: &HeaderName) -> Vec<Vec<u8>> {
    if name != COOKIE {
        return values(headers, name);
    }
    let cookies: Vec<&[u8]> = identifying_cookies(headers).collect();
    if cookies.is_empty() { Vec::new() } else { vec![cookies.join(&b"; "[..])] }
}

/// The values of a header, one for each line. Over HTTP/2 a client may split one cookie header into several lines (RFC 9113,
/// 8.2.3), and send its retry over HTTP/1.1 in one; so cookies are joined.
pub fn values(headers: &HeaderMap, name: &HeaderName) -> Vec<Vec<u8>> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii()).collect();
    if name == COOKIE && !lines.is_empty() {
        return vec![lines.join(&b"; "[..])];
    }
    lines.into_iter().map(<[u8]>::to_vec).collect()
}

impl Rules {
    /// Refuses a request without an idempotency key whose cookie may identify the caller: equal requests of two users would
    /// have one derived key, and one user would get the other's response.
    pub(super) fn without_unlisted_cookie(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let mut listed = self.identity_headers.iter().chain(&self.ignored_headers).chain(&self.compared_headers);
        if !has_identifying_cookie(headers) || listed.any(|name| name == COOKIE) {
            return Ok(());
        }
        Err(Problem::new(Kind::CookieNotListed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&str, &str)], names: &[&str]) -> String {
        let headers = lines.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let mut all = HeaderMap::new();
        headers.for_each(|(name, value): (HeaderName, http::HeaderValue)| {
            all.append(name, value);
        });
        let names: Vec<HeaderName> = names.iter().map(|name| name.parse().unwrap()).collect();
        tenant("acme", &all, &names, &TenantNames::default())
    }

    #[test]
    fn a_cookie_header_split_into_lines_identifies_the_same_caller() {
        let one = of(&[("cookie", "a=1; b=2")], &["cookie"]);
        assert_eq!(of(&[("cookie", "a=1"), ("cookie", "b=2")], &["cookie"]), one);
        assert_ne!(of(&[("cookie", "a=1")], &["cookie"]), one);
        assert_ne!(of(&[("cookie", "b=2"), ("cookie", "a=1")], &["cookie"]), one);
        assert_eq!(of(&[("cookie", "a=1;b=2 ")], &["cookie"]), one);
        assert!(one.starts_with("acme+") && one.len() == 37, "{one}");
    }

    #[test]
    fn load_balancer_cookies_do_not_identify_the_caller() {
        let identifying = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (COOKIE, line.parse().unwrap()));
            has_identifying_cookie(&lines.collect())
        };
        assert!(!identifying(&[]));
        assert!(!identifying(&["AWSALB=x; AWSALBCORS=y"]));
        assert!(!identifying(&["BIGipServer~pool=1; __cf_bm=a=b;"]));
        assert!(identifying(&["session=ann"]));
        assert!(identifying(&["AWSALB=x; session=ann"]));
        assert!(identifying(&["AWSALBX=1"]));
        assert!(identifying(&["just a text"]));
    }

    #[test]
    fn load_balancer_cookies_are_no_part_of_the_tenant() {
        let one = of(&[("cookie", "session=ann; AWSALB=1")], &["cookie"]);
        assert_eq!(of(&[("cookie", "AWSALB=2; session=ann")], &["cookie"]), one);
        assert_eq!(of(&[("cookie", "session=ann")], &["cookie"]), one);
        assert_ne!(of(&[("cookie", "session=bob; AWSALB=1")], &["cookie"]), one);
        assert_eq!(of(&[("cookie", "AWSALB=1")], &["cookie"]), of(&[], &["cookie"]));
    }

    #[test]
    fn different_header_values_make_different_tenants() {
        let names = ["x-org", "x-user"];
        let different = [
            of(&[("x-org", "a"), ("x-user", "b")], &names),
            of(&[("x-org", "b"), ("x-user", "a")], &names),
            of(&[("x-org", "ab")], &names),
            of(&[("x-org", "a"), ("x-org", "b")], &names),
            of(&[("x-org", "a, b")], &names),
            of(&[("x-user", "")], &names),
            of(&[], &names),
            of(&[], &["x-org"]),
        ];
        for (position, tenant) in different.iter().enumerate() {
            assert!(!different[..position].contains(tenant), "{position}");
        }
        assert_eq!(of(&[("x-org", "a")], &["x-org", "x-user"]), of(&[("x-org", "a")], &["x-user", "x-org", "x-org"]));
        assert_eq!(of(&[("x-org", "a")], &[]), "acme");
    }
}
