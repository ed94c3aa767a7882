//! The URL of a request: which path of the server it means, and what it says about the caller. Pure.

use http::Uri;
use http::uri::PathAndQuery;
use onceward::core::hash::Fields;
use onceward::http::paths;

use super::super::server_name::DIGITS;

/// The URL that goes to the server: a client that knows only the gateway's host and port means the server's endpoint.
pub(super) fn at_endpoint(uri: Uri, endpoint: &str) -> Uri {
    if uri.path() != "/" {
        return uri;
    }
    let path = match uri.query() {
        Some(query) => format!("{endpoint}?{query}"),
        None => endpoint.to_owned(),
    };
    let Ok(path) = PathAndQuery::try_from(path) else { return uri };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).unwrap_or(uri)
}

/// What the URL says besides the endpoint: it may name an account. Only spellings that are equal to every server count as one: a
/// server may tell `/mcp//a` from `/mcp/a`, and may find an account in `/mcp;account=a`.
pub(super) fn scope(uri: &Uri, endpoint: &str) -> String {
    let (path, query) = (without_last_slash(uri.path()), uri.query().unwrap_or_default());
    let (path, endpoint) = (paths::normalised(path), paths::normalised(without_last_slash(endpoint)));
    if path == endpoint && query.is_empty() {
        return String::new();
    }
    let given = Fields::new().field(&*path).field(query);
    format!("?{}", &given.digest().to_hex()[..DIGITS])
}

fn without_last_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_to_the_root_means_the_endpoint_and_keeps_its_query() {
        let at = |uri: &str| at_endpoint(uri.parse().unwrap(), "/mcp").to_string();
        assert_eq!(at("/"), "/mcp");
        assert_eq!(at("/?account=a"), "/mcp?account=a");
        assert_eq!(at("http://localhost:1/?account=a"), "http://localhost:1/mcp?account=a");
        assert_eq!(at("/mcp/?account=a"), "/mcp/?account=a");
        assert_eq!(at_endpoint("/?account=a".parse().unwrap(), "/").to_string(), "/?account=a");
    }

    #[test]
    fn addresses_that_a_server_may_tell_apart_are_different_scopes() {
        let of = |uri: &str| scope(&uri.parse().unwrap(), "/mcp");
        for here in ["/mcp", "/mcp/", "/m%63p", "/mcp?", "http://localhost:1/mcp"] {
            assert_eq!(of(here), "", "{here}");
        }
        let different = [
            "/mcp?account=a",
            "/mcp?account=b",
            "/mcp;account=a",
            "/mcp;account=b",
            "/mcp//",
            "//mcp",
            "/mcp/a",
            "/mcp/A",
            "/mcp//a",
            "/mcp/a;v=1",
            "/mcp/a%2Fb",
            "/mcp/a/b",
        ];
        for (at, one) in different.iter().enumerate() {
            assert!(of(one).len() == 1 + DIGITS, "{one}");
            assert!(different[..at].iter().all(|other| of(other) != of(one)), "{one}");
        }
        assert_eq!(of("/mcp/%61?x"), of("/mcp/a/?x"));
        assert_eq!(scope(&"/?".parse().unwrap(), "/"), "");
    }
}
