//! Headers that tell callers apart besides the tenant. Only the values' digest becomes part of the tenant's name.

use http::header::{COOKIE, HeaderMap, HeaderName};

use onceward_core::hash::Fields;

use super::problem::{Kind, Problem};
use super::rules::Rules;
use super::tenant::Names;

/// The tenant together with the values of these headers. It ends in a digest even where none of them was sent, so that no
/// tenant without such headers can have the name of one with them.
pub(super) fn tenant(tenant: &str, headers: &HeaderMap, listed: &[HeaderName], names: &Names) -> String {
    if listed.is_empty() {
        return tenant.to_owned();
    }
    let mut listed: Vec<&HeaderName> = listed.iter().collect();
    listed.sort_unstable_by_key(|name| name.as_str());
    listed.dedup();
    let all = listed.into_iter().fold(Fields::new(), |all, name| {
        let values = values(headers, name);
        let all = all.field(name.as_str()).field(values.len().to_be_bytes());
        values.into_iter().fold(all, Fields::field)
    });
    names.name(&format!("{tenant}+"), all.digest())
}

/// Cookies by which load balancers, proxies and content networks send a client to the same server again or tell it from a
/// robot, and nothing about who calls. HTTP clients send them back by themselves, so that refusing them would stop callers
/// that never chose to send a cookie. Names end where a `*` stands.
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

/// Whether a request has cookies that may say who sent it.
pub fn has_telling_cookie(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|byte| *byte == b';'));
    lines.map(<[u8]>::trim_ascii).filter(|cookie| !cookie.is_empty()).any(|cookie| {
        let name = cookie.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        !ROUTING_COOKIES.iter().any(|known| match known.strip_suffix('*') {
            Some(start) => name.starts_with(start.as_bytes()),
            None => name == known.as_bytes(),
        })
    })
}

/// What a header says, line by line. Over HTTP/2 a client may send one cookie header in several lines (RFC 9113, 8.2.3), and
/// its retry over HTTP/1.1 in one.
pub fn values(headers: &HeaderMap, name: &HeaderName) -> Vec<Vec<u8>> {
    let lines: Vec<&[u8]> = headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii()).collect();
    if name == COOKIE && !lines.is_empty() {
        return vec![lines.join(&b"; "[..])];
    }
    lines.into_iter().map(<[u8]>::to_vec).collect()
}

impl Rules {
    /// Refuses a request without a key of its own whose cookie may say who sent it: equal requests of two users would have
    /// one derived key, and one user would get the other's answer.
    pub(super) fn without_unlisted_cookie(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let mut listed = self.identity_headers.iter().chain(&self.ignored_headers).chain(&self.compared_headers);
        if !has_telling_cookie(headers) || listed.any(|name| name == COOKIE) {
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
        tenant("acme", &all, &names, &Names::default())
    }

    #[test]
    fn a_cookie_is_one_however_it_is_split_into_lines() {
        let one = of(&[("cookie", "a=1; b=2")], &["cookie"]);
        assert_eq!(of(&[("cookie", "a=1"), ("cookie", "b=2")], &["cookie"]), one);
        assert_ne!(of(&[("cookie", "a=1")], &["cookie"]), one);
        assert_ne!(of(&[("cookie", "b=2"), ("cookie", "a=1")], &["cookie"]), one);
        assert!(one.starts_with("acme+") && one.len() == 37, "{one}");
    }

    #[test]
    fn cookies_of_load_balancers_say_nothing_about_the_caller() {
        let telling = |lines: &[&str]| {
            let lines = lines.iter().map(|line| (COOKIE, line.parse().unwrap()));
            has_telling_cookie(&lines.collect())
        };
        assert!(!telling(&[]));
        assert!(!telling(&["AWSALB=x; AWSALBCORS=y"]));
        assert!(!telling(&["BIGipServer~pool=1; __cf_bm=a=b;"]));
        assert!(telling(&["session=ann"]));
        assert!(telling(&["AWSALB=x; session=ann"]));
        assert!(telling(&["AWSALBX=1"]));
        assert!(telling(&["just a text"]));
    }

    #[test]
    fn values_do_not_run_into_each_other() {
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
