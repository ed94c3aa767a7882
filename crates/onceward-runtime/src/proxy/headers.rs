//! Removes hop-by-hop headers in both directions, adds forwarding headers, and refuses ambiguous requests.

use std::net::IpAddr;

use http::header::{self, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{HeaderMap, Method, Version, request};
use onceward::http::grpc;
use onceward::http::identity_headers;
use onceward::http::paths;
use onceward::http::rules::{KeyFrom, Rules};
use onceward::http::stored_response::{HOP_BY_HOP, connection_names};

use crate::net::listener::Peer;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Carries a token of this gateway. It is a secret between client and gateway and is never sent to an upstream.
pub const TOKEN: HeaderName = HeaderName::from_static("onceward-token");

/// Headers that define a request or its caller. A client must not be able to remove them with `Connection`.
const END_TO_END: [HeaderName; 6] = [
    header::AUTHORIZATION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::HOST,
];

/// Why a request is refused: gateway and upstream could interpret it differently.
pub fn ambiguity(parts: &request::Parts) -> Option<&'static str> {
    let headers = &parts.headers;
    if parts.method == Method::CONNECT {
        return Some("This gateway does not support CONNECT.");
    }
    // Contradicting lengths are refused earlier. A Content-Length next to chunked encoding is dropped, and the connection is
    // closed after the response.
    let chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if !headers.get_all(header::TRANSFER_ENCODING).iter().all(chunked) {
        return Some("The only supported transfer encoding is chunked.");
    }
    if !has_one_host(parts) {
        return Some("The request needs exactly one valid host.");
    }
    if connection_names(headers).iter().any(|name| END_TO_END.contains(name)) {
        return Some("The header Connection must not name a header that defines the request.");
    }
    let path = parts.uri.path();
    if !path.starts_with('/') {
        return Some("The request target must be a path.");
    }
    has_dot_segments(path).then_some("The path must not contain dot segments: routes are chosen by path.")
}

/// Whether some server would resolve dot segments in this path: some treat escaped slashes and backslashes as separators, and
/// some ignore the part of a segment after a semicolon.
pub(crate) fn has_dot_segments(path: &str) -> bool {
    if !path.contains('.') && !path.contains("%2") {
        return false;
    }
    let path = paths::normalised(path).replace("%2F", "/").replace("%5C", "/").replace('\\', "/").replace("%3B", ";");
    path.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
}

/// Every HTTP/1.1 request has one host; in HTTP/2 it is part of the target.
fn has_one_host(parts: &request::Parts) -> bool {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => parts.version != Version::HTTP_11 || parts.uri.authority().is_some(),
        (Some(host), None) => {
            let host = host.to_str().ok().filter(|host| !host.contains('@'));
            host.is_some_and(|host| Authority::try_from(host).is_ok())
        }
        (Some(_), Some(_)) => false,
    }
}

/// Removes the headers of the client's connection and adds forwarding headers. A trusted peer is a proxy: what it says about
/// its own client is kept.
pub fn outgoing(headers: &mut HeaderMap, host: Option<&str>, peer: Peer, is_trusted: bool) {
    // gRPC servers refuse a client that does not accept trailers. The gateway accepts and forwards them.
    let takes_trailers = grpc::is_grpc(headers) && takes_trailers(headers);
    strip(headers);
    if takes_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    let proto = if peer.secure { "https" } else { "http" };
    let named = headers.remove(header::HOST);
    let host = host.or_else(|| named.as_ref()?.to_str().ok()).unwrap_or_default();
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
    headers.remove(TOKEN);
    join_cookies(headers);
    let ip = peer.address.ip();
    let mut forwarded = match ip {
        IpAddr::V4(address) => format!("for={address};proto={proto}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\";proto={proto}"),
    };
    if !host.is_empty() {
        forwarded.push_str(";host=\"");
        forwarded.extend(host.chars().filter(|c| !matches!(c, '"' | '\\')));
        forwarded.push('"');
    }
    append(headers, header::FORWARDED, forwarded);
    append(headers, FORWARDED_FOR, ip.to_string());
    if !is_trusted {
        headers.remove(FORWARDED_PROTO);
        headers.remove(FORWARDED_HOST);
    }
    if !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(proto));
    }
    if !headers.contains_key(FORWARDED_HOST) {
        set(headers, FORWARDED_HOST, host.to_owned());
    }
}

/// The trailers that may follow a body (RFC 9110, 6.5.1): none that define the request, its caller or its key.
pub fn allowed_trailers(mut trailers: HeaderMap, rules: &Rules) -> Option<HeaderMap> {
    strip(&mut trailers);
    trailers.remove(TOKEN);
    let key = match &rules.key_from {
        KeyFrom::Header(name) => Some(name),
        KeyFrom::Body(_) => None,
    };
    let listed = rules.compared_headers.iter().chain(&rules.identity_headers).chain(&rules.ignored_headers);
    for name in END_TO_END.iter().chain(listed).chain(&rules.downstream_key).chain(key) {
        trailers.remove(name);
    }
    (!trailers.is_empty()).then_some(trailers)
}

/// Removes the headers of the upstream's connection, except for the protocol that it switched to.
pub fn incoming(headers: &mut HeaderMap, switched: bool) {
    let protocol = headers.get(header::UPGRADE).cloned().filter(|_| switched);
    strip(headers);
    if let Some(protocol) = protocol {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
}

fn takes_trailers(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::TE).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|name| name.trim().eq_ignore_ascii_case("trailers"))
}

/// Removes hop-by-hop headers.
fn strip(headers: &mut HeaderMap) {
    for name in connection_names(headers) {
        headers.remove(name);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove("proxy-connection");
}

/// Joins several `Cookie` lines, which HTTP/2 allows, into one (RFC 9113, 8.2.3): many servers read only the first.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_some() {
        let joined = identity_headers::values(headers, &header::COOKIE).concat();
        if let Ok(value) = HeaderValue::from_bytes(&joined) {
            headers.insert(header::COOKIE, value);
        }
    }
}

/// Appends to a list header that every proxy extends.
fn append(headers: &mut HeaderMap, name: HeaderName, more: String) {
    // The common case: the header is absent.
    if !headers.contains_key(&name) {
        return set(headers, name, more);
    }
    let before = headers.get_all(&name).iter().filter_map(|value| value.to_str().ok());
    let all = before.chain([more.as_str()]).collect::<Vec<_>>().join(", ");
    set(headers, name, all);
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value)
        && !value.is_empty()
    {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(request: http::request::Builder) -> request::Parts {
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        let post = || http::Request::post("/v1/charges").header("host", "a:80");
        let to = |path: &str| http::Request::post(path).header("host", "a");
        assert!(ambiguity(&parts(post().header("content-length", "3"))).is_none());
        let bad = [
            parts(post().header("transfer-encoding", "gzip, chunked")),
            parts(post().header("transfer-encoding", "gzip").header("transfer-encoding", "chunked")),
            parts(post().header("host", "b")),
            parts(http::Request::post("/v1/charges")),
            parts(http::Request::post("/v1/charges").header("host", "a/b")),
            parts(http::Request::post("/v1/charges").header("host", "a b")),
            parts(http::Request::post("/v1/charges").header("host", "")),
            parts(http::Request::post("/v1/charges").header("host", "user@a")),
            parts(post().header("connection", "close, Authorization")),
            parts(to("/v1/../admin")),
            parts(to("/v1/%2e%2E/admin")),
            parts(to("/v1/.")),
            parts(to("/v1/..%2fadmin")),
            parts(to("/v1/%2e%2e%5cadmin")),
            parts(to("/v1/..;/admin")),
            parts(to("/v1/..%3bx/admin")),
        ];
        for parts in bad {
            assert!(ambiguity(&parts).is_some(), "{parts:?}");
        }
        for fine in ["/v1/..a/b.", "/projects/group%2Fname", "/a;v=1/b"] {
            assert!(ambiguity(&parts(to(fine))).is_none(), "{fine}");
        }
        assert!(ambiguity(&parts(post().header("transfer-encoding", "Chunked"))).is_none());
        assert!(ambiguity(&parts(http::Request::post("http://a/v1").version(Version::HTTP_2))).is_none());
        assert!(ambiguity(&parts(http::Request::post("/v1").version(Version::HTTP_10))).is_none());
    }

    #[test]
    fn hop_by_hop_headers_are_removed() {
        let mut request = parts(
            http::Request::post("/")
                .header("connection", "keep-alive, x-secret")
                .header("x-secret", "1")
                .header("te", "trailers")
                .header("x-forwarded-for", "10.0.0.1")
                .header("host", "api.example"),
        );
        let peer = Peer { address: "[::1]:9".parse().unwrap(), secure: true };
        outgoing(&mut request.headers, None, peer, true);
        for gone in ["connection", "x-secret", "te", "host"] {
            assert!(!request.headers.contains_key(gone), "{gone}");
        }
        assert_eq!(request.headers["forwarded"], "for=\"[::1]\";proto=https;host=\"api.example\"");
        assert_eq!(request.headers["x-forwarded-for"], "10.0.0.1, ::1");
        assert_eq!(request.headers["x-forwarded-host"], "api.example");
    }

    #[test]
    fn forwarding_headers_are_kept_from_a_trusted_proxy_and_replaced_otherwise() {
        let peer = Peer { address: "10.0.0.7:9".parse().unwrap(), secure: false };
        for (is_trusted, proto, host) in [(true, "https", "shop.example"), (false, "http", "inside:80")] {
            let request = http::Request::post("/").header("host", "inside:80").header("x-forwarded-proto", "https");
            let mut request = parts(request.header("x-forwarded-host", "shop.example"));
            outgoing(&mut request.headers, None, peer, is_trusted);
            assert_eq!(request.headers["x-forwarded-proto"], proto);
            assert_eq!(request.headers["x-forwarded-host"], host);
            let mut bare = parts(http::Request::post("/").header("host", "inside:80"));
            outgoing(&mut bare.headers, None, peer, is_trusted);
            assert_eq!(
                (&bare.headers["x-forwarded-proto"], &bare.headers["x-forwarded-host"]),
                (&HeaderValue::from_static("http"), &HeaderValue::from_static("inside:80"))
            );
        }
    }

    #[test]
    fn only_grpc_requests_forward_that_trailers_are_accepted() {
        for (kind, te, passed) in [
            ("application/grpc", "trailers", Some("trailers")),
            ("application/grpc+proto", "gzip;q=0.5, Trailers", Some("trailers")),
            ("application/grpc", "gzip", None),
            ("application/json", "trailers", None),
        ] {
            let mut request = parts(http::Request::post("/").header("content-type", kind).header("te", te));
            let peer = Peer { address: "[::1]:9".parse().unwrap(), secure: false };
            outgoing(&mut request.headers, None, peer, true);
            assert_eq!(request.headers.get("te").map(|value| value.to_str().unwrap()), passed, "{kind} {te}");
        }
    }

    #[test]
    fn the_upgrade_header_is_kept_only_after_a_switch() {
        for switched in [false, true] {
            let answer = http::Response::builder().header("connection", "Upgrade").header("upgrade", "websocket");
            let mut answer = answer.body(()).unwrap();
            incoming(answer.headers_mut(), switched);
            assert_eq!(answer.headers().contains_key("upgrade"), switched);
            assert_eq!(answer.headers().contains_key("connection"), switched);
        }
    }
}
