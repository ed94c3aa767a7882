//! What belongs to a connection and not to a request: taken away on both sides. And what is no request at all.

use std::net::IpAddr;

use http::header::{self, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{HeaderMap, Method, Version, request};
use onceward::http::grpc;
use onceward::http::identity;
use onceward::http::kept::{HOP_BY_HOP, connection_names};
use onceward::http::paths;
use onceward::http::rules::{KeyFrom, Rules};

use crate::listener::Peer;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Carries a token of this gateway. It is a secret between client and gateway, so no upstream ever gets it.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("onceward-token");

/// Headers that say what a request is or whose. With `Connection` a client could have them taken away on the way.
const OF_THE_REQUEST: [HeaderName; 6] = [
    header::AUTHORIZATION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::COOKIE,
    header::HOST,
];

/// Why a request is not taken: two parties could read it in two ways.
pub(crate) fn wrong(parts: &request::Parts) -> Option<&'static str> {
    let headers = &parts.headers;
    if parts.method == Method::CONNECT {
        return Some("CONNECT is not for a gateway of this kind.");
    }
    // Lengths that contradict each other are refused before this. A length beside chunks is dropped, and the connection
    // closed after the answer.
    let chunked = |value: &HeaderValue| value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
    if !headers.get_all(header::TRANSFER_ENCODING).iter().all(chunked) {
        return Some("A request is chunked, or has a length: no other encoding is taken apart here.");
    }
    if !has_one_host(parts) {
        return Some("A request has one host.");
    }
    if connection_names(headers).iter().any(|name| OF_THE_REQUEST.contains(name)) {
        return Some("The header Connection names what belongs to the request.");
    }
    let path = parts.uri.path();
    if !path.starts_with('/') {
        return Some("The target of a request is a path.");
    }
    climbs(path).then_some("A path does not climb: routes are chosen by it.")
}

/// Whether some reader would go up in a path: escaped or turned slashes part segments for some, and for some what stands
/// behind a semicolon is no part of one.
fn climbs(path: &str) -> bool {
    if !path.contains('.') && !path.contains("%2") {
        return false;
    }
    let path = paths::plain(path).replace("%2F", "/").replace("%5C", "/").replace('\\', "/").replace("%3B", ";");
    path.split('/').any(|segment| matches!(segment.split(';').next(), Some("." | "..")))
}

/// Every request of HTTP/1.1 has one; in HTTP/2 it is part of the target.
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

/// Takes away what was for the client's connection, and says for whom the request is sent. A trusted peer is a proxy that
/// knows what its own client used: what it says about that stays.
pub(super) fn outgoing(headers: &mut HeaderMap, host: Option<&str>, peer: Peer, is_trusted: bool) {
    // Servers of gRPC refuse a client that does not say so. We do take trailers, and hand them on.
    let takes_trailers = grpc::is_spoken(headers) && takes_trailers(headers);
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

/// What may stand behind a body (RFC 9110, 6.5.1): nothing that says what the request is, whose, or under which key.
pub(super) fn behind(mut trailers: HeaderMap, rules: &Rules) -> Option<HeaderMap> {
    strip(&mut trailers);
    trailers.remove(TOKEN);
    let key = match &rules.key_from {
        KeyFrom::Header(name) => Some(name),
        KeyFrom::Body(_) => None,
    };
    let listed = rules.compared_headers.iter().chain(&rules.identity_headers).chain(&rules.ignored_headers);
    for name in OF_THE_REQUEST.iter().chain(listed).chain(&rules.downstream_key).chain(key) {
        trailers.remove(name);
    }
    (!trailers.is_empty()).then_some(trailers)
}

/// Takes away what was for the upstream's connection, but for the protocol that it has become.
pub(super) fn incoming(headers: &mut HeaderMap, switched: bool) {
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

/// Takes away what was for the connection.
fn strip(headers: &mut HeaderMap) {
    for name in connection_names(headers) {
        headers.remove(name);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove("proxy-connection");
}

/// Cookies that came in several lines, as HTTP/2 allows, go on in one (RFC 9113, 8.2.3): many servers read only the first.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(header::COOKIE).iter().nth(1).is_some() {
        let joined = identity::values(headers, &header::COOKIE).concat();
        if let Ok(value) = HeaderValue::from_bytes(&joined) {
            headers.insert(header::COOKIE, value);
        }
    }
}

/// A list that every proxy on the way adds to.
fn append(headers: &mut HeaderMap, name: HeaderName, more: String) {
    // Mostly there is none: then nothing has to be put together.
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
    fn what_can_be_read_in_two_ways_is_not_taken() {
        let post = || http::Request::post("/v1/charges").header("host", "a:80");
        let to = |path: &str| http::Request::post(path).header("host", "a");
        assert!(wrong(&parts(post().header("content-length", "3"))).is_none());
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
            assert!(wrong(&parts).is_some(), "{parts:?}");
        }
        for fine in ["/v1/..a/b.", "/projects/group%2Fname", "/a;v=1/b"] {
            assert!(wrong(&parts(to(fine))).is_none(), "{fine}");
        }
        assert!(wrong(&parts(post().header("transfer-encoding", "Chunked"))).is_none());
        assert!(wrong(&parts(http::Request::post("http://a/v1").version(Version::HTTP_2))).is_none());
        assert!(wrong(&parts(http::Request::post("/v1").version(Version::HTTP_10))).is_none());
    }

    #[test]
    fn what_was_for_one_connection_goes_no_further() {
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
    fn what_a_trusted_proxy_says_of_its_client_stays_and_what_others_say_does_not() {
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
    fn of_grpc_it_is_passed_on_that_trailers_are_taken_and_nothing_else() {
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
    fn a_protocol_is_told_only_when_the_connection_has_become_it() {
        for switched in [false, true] {
            let answer = http::Response::builder().header("connection", "Upgrade").header("upgrade", "websocket");
            let mut answer = answer.body(()).unwrap();
            incoming(answer.headers_mut(), switched);
            assert_eq!(answer.headers().contains_key("upgrade"), switched);
            assert_eq!(answer.headers().contains_key("connection"), switched);
        }
    }
}
