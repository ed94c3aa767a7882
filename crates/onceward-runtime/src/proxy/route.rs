//! Routes: which upstream a request goes to, and how it is guarded.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use ipnet::IpNet;
use onceward::http::{Rules, paths};

use super::tenant::Tenant;

/// A route: its path pattern, its upstream and its rules.
#[derive(Clone)]
pub struct Route {
    /// A path, or a prefix if it ends with `*`.
    pub pattern: String,
    /// Where its requests go.
    pub upstream: Uri,
    pub rules: Arc<Rules>,
    /// The name of the store that keeps its requests; the default store if none.
    pub store: Option<String>,
    pub tenant: Tenant,
    /// Proxies in front of the gateway whose headers are trusted; only this machine if empty.
    pub trusted_peers: Vec<IpNet>,
    /// Time-out from the sent request to the head of the response, and between the parts of a response that is kept. After
    /// that, the outcome is unknown.
    pub timeout: Duration,
    /// Whether to forward encoded slashes and backslashes in paths, if the decoded path matches the same route.
    pub encoded_slashes: bool,
    /// Whether the upstream deduplicates by key; published with the policy.
    pub honours_key: bool,
}

/// Longer than clients wait: an outcome is useful even after its client has given up.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// All routes in their configured order. The first match is used.
#[derive(Clone)]
pub struct Routes(Arc<[Arc<Route>]>);

impl Routes {
    pub fn new(routes: Vec<Route>) -> Self {
        Self(routes.into_iter().map(Arc::new).collect())
    }

    /// The route of a path, in any spelling: a path that the upstream would treat as guarded must not match another route.
    pub fn find(&self, path: &str) -> Option<Arc<Route>> {
        let path = canonical_path(path);
        self.0.iter().find(|route| matches(&route.pattern, &path)).cloned()
    }

    /// Whether this route refuses a path because of an encoded slash or a backslash. An upstream that decodes it sees another
    /// path, which must not belong to another route: that one may be guarded.
    pub fn is_refused(&self, route: &Arc<Route>, path: &str) -> bool {
        let Some(decoded) = decoded_separators(path) else { return false };
        let is_same = self.find(&decoded).is_some_and(|other| Arc::ptr_eq(&other, route));
        !route.encoded_slashes || !is_same
    }

    pub fn all(&self) -> &[Arc<Route>] {
        &self.0
    }
}

/// A path without needless escapes, double slashes, and parameters after semicolons.
fn canonical_path(path: &str) -> Cow<'_, str> {
    let path = paths::normalised(path);
    if !path.contains("//") && !path.contains(';') {
        return path;
    }
    let last = path.split('/').count() - 1;
    let segments = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    let kept = segments.enumerate().filter(|(index, segment)| !segment.is_empty() || *index == 0 || *index == last);
    Cow::Owned(kept.map(|(_, segment)| segment).collect::<Vec<_>>().join("/"))
}

/// The path in the view of an upstream that treats encoded slashes and backslashes as slashes; `None` if it has none.
fn decoded_separators(path: &str) -> Option<String> {
    let path = paths::normalised(path);
    let has_some = path.contains('\\') || path.contains("%2F") || path.contains("%5C");
    has_some.then(|| path.replace("%2F", "/").replace("%5C", "/").replace('\\', "/"))
}

/// Whether `earlier` matches all paths of `later`. Tries paths that cannot occur literally in a pattern.
fn covers(earlier: &str, later: &str) -> bool {
    const ANY: &str = "\0";
    let (beginning, rests): (&str, &[&str]) = match later.strip_suffix('*') {
        Some(beginning) => (beginning, &["", "\0", "\0/\0"]),
        None => (later, &[""]),
    };
    let segments = beginning.split('/').map(|segment| if segment == "*" { ANY } else { segment });
    let beginning = segments.collect::<Vec<_>>().join("/");
    rests.iter().all(|rest| matches(earlier, &format!("{beginning}{rest}")))
}

/// The first route that no request can reach, with the earlier route that matches all of its paths.
pub fn unreachable_route<'a>(patterns: impl Iterator<Item = &'a str>) -> Option<(usize, &'a str)> {
    let mut before: Vec<&str> = Vec::new();
    for (number, pattern) in patterns.enumerate() {
        if let Some(earlier) = before.iter().find(|earlier| covers(earlier, pattern)) {
            return Some((number, earlier));
        }
        before.push(pattern);
    }
    None
}

/// A `*` at the end matches anything; elsewhere it matches one segment.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, open) = match pattern.strip_suffix('*') {
        Some(beginning) => (beginning, true),
        None => (pattern, false),
    };
    let (mut wanted, mut given) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return true,
            (Some(""), Some(_)) if open && wanted.clone().next().is_none() => return true,
            (Some("*"), Some(segment)) if !segment.is_empty() => {}
            (Some(wanted), Some(given)) if wanted == given => {}
            (Some(beginning), Some(given)) if open && wanted.clone().next().is_none() => {
                return given.starts_with(beginning);
            }
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{canonical_path, decoded_separators, matches, unreachable_route};

    #[test]
    fn an_encoded_separator_is_found_in_every_spelling() {
        for path in ["/v1%2Fcharges", "/v1%2fcharges", "/v1%5ccharges", "/v1%5Ccharges", "/v1\\charges"] {
            assert_eq!(decoded_separators(path).as_deref(), Some("/v1/charges"), "{path}");
        }
        // Decoded once, this is a name that contains an escape, not a separator.
        for path in ["/v1/charges", "/v1%252Fcharges", "/50%", "/%2"] {
            assert_eq!(decoded_separators(path), None, "{path}");
        }
    }

    #[test]
    fn a_route_after_one_that_matches_all_of_its_paths_is_never_reached() {
        for (patterns, found) in [
            (&["/v1/charges", "/v1/*", "/*"][..], None),
            (&["/*", "/v1/charges"], Some((1, "/*"))),
            (&["/v1/a", "/v1/a"], Some((1, "/v1/a"))),
            (&["/v1/*", "/v2/x", "/v1/a/*"], Some((2, "/v1/*"))),
            (&["/v1/ch*", "/v1/charges"], Some((1, "/v1/ch*"))),
            (&["/v1/*/refund", "/v1/7/refund"], Some((1, "/v1/*/refund"))),
            (&["/v1/*/refund", "/v1/*/refund/*", "/v1/*"], None),
            (&["/v1/*", "/v1"], None),
            (&["/v1/charges", "/v1/ch*"], None),
            (&["/v1/*/refund", "/v1/*"], None),
        ] {
            assert_eq!(unreachable_route(patterns.iter().copied()), found, "{patterns:?}");
        }
    }

    #[test]
    fn every_spelling_of_a_path_has_the_same_route() {
        for path in
            ["/v1/charges", "/v1/%63harges", "//v1/charges", "/v1//charges", "/v1/charges;x", "/v1;a/charges;b=c"]
        {
            assert_eq!(canonical_path(path), "/v1/charges", "{path}");
        }
        assert_eq!(canonical_path("/v1/charges/"), "/v1/charges/");
        assert_eq!(canonical_path("/"), "/");
        assert_eq!(canonical_path("//"), "/");
        assert_eq!(canonical_path("/v1/a%2fb"), "/v1/a%2Fb");
    }

    #[test]
    fn a_star_matches_a_segment_or_the_rest() {
        for (pattern, path) in [
            ("/*", "/"),
            ("/*", "/a/b"),
            ("/v1/*", "/v1/charges/7"),
            ("/v1/*", "/v1/"),
            ("/v1/charges", "/v1/charges"),
            ("/v1/*/refund", "/v1/7/refund"),
            ("/v1/ch*", "/v1/charges/7"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/v1/*", "/v2/charges"),
            ("/v1/*", "/v1"),
            ("/v1/charges", "/v1/charges/7"),
            ("/v1/*/refund", "/v1/7/8/refund"),
            ("/v1/*/refund", "/v1//refund"),
            ("/v1/*/refund", "/v1/7"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }
}
