//! Which requests go where, and how they are guarded.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use ipnet::IpNet;
use onceward::http::{Rules, paths};

use super::tenant::Tenant;

/// A route: its pattern, the other side, and the rules.
#[derive(Clone)]
pub(crate) struct Route {
    /// A path, or the beginning of paths when it ends with `*`.
    pub(crate) pattern: String,
    /// Where its requests go.
    pub(crate) upstream: Uri,
    pub(crate) rules: Arc<Rules>,
    pub(crate) tenant: Tenant,
    /// Proxies in front whose word about their clients counts; this machine if there are none.
    pub(crate) trusted_peers: Vec<IpNet>,
    /// From a request that was sent to the head of its answer, and between the pieces of what is kept. What takes longer is
    /// unknown.
    pub(crate) timeout: Duration,
    /// Whether encoded slashes and backslashes in paths are passed on, where they do not lead to another route.
    pub(crate) encoded_slashes: bool,
    /// Whether the other side remembers keys; for the page that publishes the policy.
    pub(crate) honours_key: bool,
}

/// Longer than any client waits: what it gave up on is worth to be known to the end.
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// All routes, in the order in which they were written: the first that fits is taken.
#[derive(Clone)]
pub(crate) struct Routes(Arc<[Arc<Route>]>);

impl Routes {
    pub(crate) fn new(routes: Vec<Route>) -> Self {
        Self(routes.into_iter().map(Arc::new).collect())
    }

    /// The route of a path, whichever way it is spelt: what the other side would take for a guarded path must not come by
    /// another route.
    pub(super) fn find(&self, path: &str) -> Option<Arc<Route>> {
        let path = one_spelling(path);
        self.0.iter().find(|route| fits(&route.pattern, &path)).cloned()
    }

    /// Whether a path has an encoded slash or a backslash that this route does not let through. An upstream that decodes it
    /// sees another path, which must not be one of another route: that one may be guarded.
    pub(super) fn is_refused(&self, route: &Arc<Route>, path: &str) -> bool {
        let Some(decoded) = separated(path) else { return false };
        let is_same = self.find(&decoded).is_some_and(|other| Arc::ptr_eq(&other, route));
        !route.encoded_slashes || !is_same
    }

    pub(super) fn all(&self) -> &[Arc<Route>] {
        &self.0
    }
}

/// A path without needless escapes, doubled slashes, and what stands behind semicolons.
pub(crate) fn one_spelling(path: &str) -> Cow<'_, str> {
    let path = paths::plain(path);
    if !path.contains("//") && !path.contains(';') {
        return path;
    }
    let last = path.split('/').count() - 1;
    let segments = path.split('/').map(|segment| segment.split(';').next().unwrap_or_default());
    let kept = segments.enumerate().filter(|(index, segment)| !segment.is_empty() || *index == 0 || *index == last);
    Cow::Owned(kept.map(|(_, segment)| segment).collect::<Vec<_>>().join("/"))
}

/// A path as an upstream sees it that takes encoded slashes and backslashes for slashes; `None` where it has none.
fn separated(path: &str) -> Option<String> {
    let path = paths::plain(path);
    let has_some = path.contains('\\') || path.contains("%2F") || path.contains("%5C");
    has_some.then(|| path.replace("%2F", "/").replace("%5C", "/").replace('\\', "/"))
}

/// Whether all paths of `later` are taken by `earlier`, which stands before it. Asked with paths that no pattern spells out.
fn covers(earlier: &str, later: &str) -> bool {
    const ANY: &str = "\0";
    let (beginning, rests): (&str, &[&str]) = match later.strip_suffix('*') {
        Some(beginning) => (beginning, &["", "\0", "\0/\0"]),
        None => (later, &[""]),
    };
    let segments = beginning.split('/').map(|segment| if segment == "*" { ANY } else { segment });
    let beginning = segments.collect::<Vec<_>>().join("/");
    rests.iter().all(|rest| fits(earlier, &format!("{beginning}{rest}")))
}

/// The first route that no request can reach, with the one before it that takes them all.
pub(crate) fn unreached<'a>(patterns: impl Iterator<Item = &'a str>) -> Option<(usize, &'a str)> {
    let mut before: Vec<&str> = Vec::new();
    for (number, pattern) in patterns.enumerate() {
        if let Some(earlier) = before.iter().find(|earlier| covers(earlier, pattern)) {
            return Some((number, earlier));
        }
        before.push(pattern);
    }
    None
}

/// `*` at the end stands for anything, and in the middle for one segment.
fn fits(pattern: &str, path: &str) -> bool {
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
    use super::{fits, one_spelling, separated, unreached};

    #[test]
    fn an_encoded_separator_is_found_in_every_spelling() {
        for path in ["/v1%2Fcharges", "/v1%2fcharges", "/v1%5ccharges", "/v1%5Ccharges", "/v1\\charges"] {
            assert_eq!(separated(path).as_deref(), Some("/v1/charges"), "{path}");
        }
        // Decoded once, it is a name with an escape in it and not a separator.
        for path in ["/v1/charges", "/v1%252Fcharges", "/50%", "/%2"] {
            assert_eq!(separated(path), None, "{path}");
        }
    }

    #[test]
    fn a_route_behind_one_that_takes_all_of_its_paths_is_never_reached() {
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
            assert_eq!(unreached(patterns.iter().copied()), found, "{patterns:?}");
        }
    }

    #[test]
    fn a_path_has_one_route_however_it_is_spelt() {
        for path in
            ["/v1/charges", "/v1/%63harges", "//v1/charges", "/v1//charges", "/v1/charges;x", "/v1;a/charges;b=c"]
        {
            assert_eq!(one_spelling(path), "/v1/charges", "{path}");
        }
        assert_eq!(one_spelling("/v1/charges/"), "/v1/charges/");
        assert_eq!(one_spelling("/"), "/");
        assert_eq!(one_spelling("//"), "/");
        assert_eq!(one_spelling("/v1/a%2fb"), "/v1/a%2Fb");
    }

    #[test]
    fn a_star_is_a_segment_or_the_rest() {
        for (pattern, path) in [
            ("/*", "/"),
            ("/*", "/a/b"),
            ("/v1/*", "/v1/charges/7"),
            ("/v1/*", "/v1/"),
            ("/v1/charges", "/v1/charges"),
            ("/v1/*/refund", "/v1/7/refund"),
            ("/v1/ch*", "/v1/charges/7"),
        ] {
            assert!(fits(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/v1/*", "/v2/charges"),
            ("/v1/*", "/v1"),
            ("/v1/charges", "/v1/charges/7"),
            ("/v1/*/refund", "/v1/7/8/refund"),
            ("/v1/*/refund", "/v1//refund"),
            ("/v1/*/refund", "/v1/7"),
        ] {
            assert!(!fits(pattern, path), "{pattern} {path}");
        }
    }
}
