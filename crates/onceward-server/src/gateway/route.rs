//! Which requests go where, and how they are guarded.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use onceward::http::Rules;

use super::tenant::Tenant;

/// A route: its pattern, the other side, and the rules.
pub(crate) struct Route {
    /// A path, or the beginning of paths when it ends with `*`.
    pub(crate) pattern: String,
    /// Where its requests go.
    pub(crate) upstream: Uri,
    pub(crate) rules: Arc<Rules>,
    pub(crate) tenant: Tenant,
    pub(crate) timeouts: Timeouts,
    /// Whether the other side remembers keys; for the page that publishes the policy.
    pub(crate) honours_key: bool,
}

/// How long anything may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// From the head of a guarded request to the end of its body.
    pub(crate) body: Duration,
    /// From a request that was sent to the head of its answer. What takes longer is unknown.
    pub(crate) answer: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        // Longer than any client waits: what it gave up on is worth to be known to the end.
        Self { body: Duration::from_secs(60), answer: Duration::from_secs(300) }
    }
}

/// All routes, in the order in which they were written: the first that fits is taken.
#[derive(Clone)]
pub(crate) struct Routes(Arc<[Arc<Route>]>);

impl Routes {
    pub(crate) fn new(routes: Vec<Route>) -> Self {
        Self(routes.into_iter().map(Arc::new).collect())
    }

    pub(super) fn find(&self, path: &str) -> Option<Arc<Route>> {
        self.0.iter().find(|route| fits(&route.pattern, path)).cloned()
    }

    pub(super) fn all(&self) -> &[Arc<Route>] {
        &self.0
    }
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
    use super::fits;

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
