//! What belongs to a connection and not to a request: taken away on both sides. And what is no request at all.

use std::net::IpAddr;

use http::header::{self, HeaderName, HeaderValue};
use http::uri::Authority;
use http::{HeaderMap, Method, Version, request};
use onceward::http::kept::{HOP_BY_HOP, connection_names};

use crate::listener::Peer;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

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
pub(super) fn wrong(parts: &request::Parts) -> Option<&'static str> {
    let headers = &parts.headers;
    if parts.method == Method::CONNECT {
        return Some("CONNECT is not for a gateway of this kind.");
    }
    if headers.contains_key(header::TRANSFER_ENCODING) && headers.contains_key(header::CONTENT_LENGTH) {
        return Some("A request has a length or is chunked, not both.");
    }
    if headers.get_all(header::CONTENT_LENGTH).iter().count() > 1 {
        return Some("A request has one length.");
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
    path.split('/').any(climbs).then_some("A path does not climb: routes are chosen by it.")
}

/// `.` and `..`, with each dot as it is or as `%2e`.
fn climbs(segment: &str) -> bool {
    let mut rest = segment.as_bytes();
    let mut dots = 0;
    while !rest.is_empty() {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return false,
        };
        dots += 1;
    }
    dots == 1 || dots == 2
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

/// Takes away what was for the client's connection, and says for whom the request is sent.
pub(super) fn outgoing(headers: &mut HeaderMap, host: Option<&str>, peer: Peer) {
    strip(headers);
    let proto = if peer.secure { "https" } else { "http" };
    let named = headers.remove(header::HOST);
    let host = host.or_else(|| named.as_ref()?.to_str().ok()).unwrap_or_default();
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
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
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(proto));
    set(headers, FORWARDED_HOST, host.to_owned());
}

/// Takes away what was for the connection.
pub(super) fn strip(headers: &mut HeaderMap) {
    for name in connection_names(headers) {
        headers.remove(name);
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
    headers.remove("proxy-connection");
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
            parts(post().header("content-length", "3").header("transfer-encoding", "chunked")),
            parts(post().header("content-length", "3").header("content-length", "4")),
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
        ];
        for parts in bad {
            assert!(wrong(&parts).is_some(), "{parts:?}");
        }
        assert!(wrong(&parts(to("/v1/..a/b."))).is_none());
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
        outgoing(&mut request.headers, None, peer);
        for gone in ["connection", "x-secret", "te", "host"] {
            assert!(!request.headers.contains_key(gone), "{gone}");
        }
        assert_eq!(request.headers["forwarded"], "for=\"[::1]\";proto=https;host=\"api.example\"");
        assert_eq!(request.headers["x-forwarded-for"], "10.0.0.1, ::1");
        assert_eq!(request.headers["x-forwarded-host"], "api.example");
    }
}
