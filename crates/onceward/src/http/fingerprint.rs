//! The fingerprint of a request, which must be equal when a key is used again: method, path, query, content type and body.
//! JSON is compared by value, a multipart body without its boundary, and a compressed body by its content.

use std::io::Read;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{HeaderName, request};

use crate::plant::{Plant, planted};
use onceward_core::fingerprint::{Builder, Fingerprint};
use onceward_core::json::Value;

use super::identity_headers::identifying_values;
use super::paths;

/// The limit for decompressing a body. A body that decompresses to more is compared in its compressed form.
const MAX_DECOMPRESSED: u64 = 1024 * 1024;

/// The longest boundary that RFC 2046 allows. Searching for a longer one would cost time.
const MAX_BOUNDARY: usize = 70;

/// The fingerprint of a request with its whole body. `headers` must be equal too.
pub fn of_request(parts: &request::Parts, body: &[u8], headers: &[&HeaderName]) -> Fingerprint {
    let kind = content_type(parts);
    let decompressed = decompressed(parts, body);
    let encoding = if decompressed.is_some() { None } else { parts.headers.get(CONTENT_ENCODING) };
    let body = decompressed.as_deref().unwrap_or(body);
    let mut builder = Builder::new("http")
        .part("method", parts.method.as_str())
        .part("path", &*paths::normalised(parts.uri.path()))
        .part("type", essence(&kind));
    builder = with_query(builder, parts);
    if let Some(encoding) = encoding {
        builder = builder.part("encoding", encoding.as_bytes());
    }
    builder = with_headers(builder, parts, headers);
    if planted(Plant::BodyNotCompared) {
        return builder.build();
    }
    match canonical(&kind, body) {
        Some((how, text)) => builder.part(how, text),
        None => builder.part("raw", body),
    }
    .build()
}

/// The fingerprint of everything except method, path and body, which the caller covers by other means: query, content type,
/// and these headers.
pub fn of_head(parts: &request::Parts, headers: &[&HeaderName]) -> Fingerprint {
    let builder = Builder::new("http head").part("type", essence(&content_type(parts)));
    with_headers(with_query(builder, parts), parts, headers).build()
}

/// The query. An empty one counts as absent.
pub fn query(parts: &request::Parts) -> Option<&str> {
    parts.uri.query().filter(|query| !query.is_empty())
}

fn with_query(builder: Builder, parts: &request::Parts) -> Builder {
    match query(parts) {
        Some(query) => builder.part("query", query),
        None => builder.absent("query"),
    }
}

fn with_headers(builder: Builder, parts: &request::Parts, headers: &[&HeaderName]) -> Builder {
    headers.iter().fold(builder, |builder, name| match values(parts, name) {
        Some(values) => builder.part(name.as_str(), values),
        None => builder.absent(name.as_str()),
    })
}

/// The values of a header, joined; `None` when it is absent.
fn values(parts: &request::Parts, name: &HeaderName) -> Option<Vec<u8>> {
    if name == HOST {
        // In HTTP/2 the host is part of the target, and a retry may use another HTTP version.
        let named = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
        let host = named.or_else(|| parts.headers.get(HOST).map(http::HeaderValue::as_bytes));
        return host.map(<[u8]>::to_ascii_lowercase);
    }
    let values = identifying_values(&parts.headers, name);
    (!values.is_empty()).then(|| values.join(&b'\n'))
}

/// The body as JSON, if its content type is JSON.
pub fn json(parts: &request::Parts, body: &[u8]) -> Option<Result<Value, onceward_core::json::Error>> {
    let kind = content_type(parts);
    is_json(essence(&kind)).then(|| Value::parse(decompressed(parts, body).as_deref().unwrap_or(body)))
}

fn content_type(parts: &request::Parts) -> String {
    let value = parts.headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    value.unwrap_or_default()
}

/// The media type without its parameters.
pub(super) fn essence(kind: &str) -> String {
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

pub(super) fn is_json(essence: impl AsRef<str>) -> bool {
    let essence = essence.as_ref();
    essence == "application/json" || essence.ends_with("+json")
}

/// The body in canonical form, and the name of that form: equal texts are equal requests.
fn canonical(kind: &str, body: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    let essence = essence(kind);
    if is_json(&essence) {
        // Invalid JSON is compared as it is: the upstream will refuse it.
        return Value::parse(body).ok().map(|value| ("json", value.canonical().into_bytes()));
    }
    let boundary = kind.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.trim().split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"'))
    });
    let fits = |boundary: &&str| (1..=MAX_BOUNDARY).contains(&boundary.len());
    let boundary = boundary.filter(|boundary| essence.starts_with("multipart/") && fits(boundary))?;
    Some(("multipart", without_boundary(body, format!("--{boundary}").as_bytes())))
}

/// Replaces every delimiter with the same fixed text.
fn without_boundary(body: &[u8], delimiter: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(body.len());
    let mut rest = body;
    while !rest.is_empty() {
        let found = rest.windows(delimiter.len()).position(|window| window == delimiter);
        let Some(at) = found else { break };
        text.extend_from_slice(&rest[..at]);
        text.extend_from_slice(b"\0boundary\0");
        rest = &rest[at + delimiter.len()..];
    }
    text.extend_from_slice(rest);
    text
}

/// The content of a compressed body.
fn decompressed(parts: &request::Parts, body: &[u8]) -> Option<Vec<u8>> {
    let encoding = parts.headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim().to_ascii_lowercase();
    let mut text = Vec::new();
    let read = match encoding.as_str() {
        "gzip" | "x-gzip" => flate2::read::MultiGzDecoder::new(body).take(MAX_DECOMPRESSED + 1).read_to_end(&mut text),
        "deflate" => flate2::read::ZlibDecoder::new(body).take(MAX_DECOMPRESSED + 1).read_to_end(&mut text),
        "identity" => return Some(body.to_vec()),
        _ => return None,
    };
    (read.is_ok() && text.len() as u64 <= MAX_DECOMPRESSED).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use http::header::COOKIE;

    use super::*;

    fn of(kind: &str, body: &[u8]) -> Fingerprint {
        with(&[("content-type", kind)], "/v1/charges?a=1", body)
    }

    fn with(headers: &[(&str, &str)], uri: &str, body: &[u8]) -> Fingerprint {
        let mut request = http::Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        of_request(&request.body(()).unwrap().into_parts().0, body, &[&HeaderName::from_static("x-account"), &COOKIE])
    }

    #[test]
    fn json_is_compared_by_value() {
        let json = "application/json; charset=utf-8";
        assert_eq!(of(json, br#"{"a":1,"b":2}"#), of("application/json", br#"{ "b":2, "a":1 }"#));
        assert_ne!(of(json, br#"{"a":1}"#), of(json, br#"{"a":2}"#));
        assert_ne!(of(json, br#"{"a":null}"#), of(json, br"{}"));
        assert_ne!(of(json, b"1"), of("text/plain", b"1"));
        assert_ne!(of(json, b"{broken"), of(json, b"{broken "));
    }

    #[test]
    fn a_compared_cookie_counts_without_load_balancer_cookies_and_line_breaks() {
        let one = with(&[("cookie", "a=1; b=2")], "/a", b"");
        assert_eq!(with(&[("cookie", "a=1"), ("cookie", "b=2")], "/a", b""), one);
        assert_eq!(with(&[("cookie", "a=1; AWSALB=x; b=2")], "/a", b""), one);
        assert_ne!(with(&[("cookie", "a=1")], "/a", b""), one);
    }

    #[test]
    fn path_query_and_chosen_headers_must_be_equal() {
        let base = with(&[], "/a?x=1", b"");
        for other in [with(&[], "/b?x=1", b""), with(&[], "/a?x=2", b""), with(&[], "/a", b"")] {
            assert_ne!(base, other);
        }
        assert_eq!(with(&[], "/a?", b""), with(&[], "/a", b""));
        assert_ne!(base, with(&[("x-account", "7")], "/a?x=1", b""));
        assert_eq!(base, with(&[("user-agent", "other")], "/a?x=1", b""));
    }

    #[test]
    fn the_host_is_equal_in_every_version_of_http() {
        let of = |host: Option<&str>, uri: &str| {
            let request = host.into_iter().fold(http::Request::post(uri), |request, host| request.header(HOST, host));
            of_head(&request.body(()).unwrap().into_parts().0, &[&HOST])
        };
        let here = of(Some("api.example"), "/v1/charges");
        assert_eq!(here, of(None, "https://api.example/v1/charges"));
        assert_eq!(here, of(Some("API.example"), "/v1/charges"));
        assert_ne!(here, of(None, "https://other.example/v1/charges"));
        assert_ne!(here, of(None, "/v1/charges"));
    }

    #[test]
    fn the_boundary_of_a_form_is_not_compared() {
        let form = |boundary: &str, value: &str| {
            let body =
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{value}\r\n--{boundary}--");
            of(&format!("multipart/form-data; boundary={boundary}"), body.as_bytes())
        };
        assert_eq!(form("one", "1"), form("two", "1"));
        assert_ne!(form("one", "1"), form("one", "2"));
    }

    #[test]
    fn a_compressed_body_is_compared_by_its_content() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(br#"{"a":1}"#).unwrap();
        let gzip = encoder.finish().unwrap();
        let kind = ("content-type", "application/json");
        let plain = with(&[kind], "/", br#"{"a": 1}"#);
        assert_eq!(plain, with(&[kind, ("content-encoding", "gzip")], "/", &gzip));
        assert_ne!(plain, with(&[kind, ("content-encoding", "gzip")], "/", b"no gzip"));
    }
}
