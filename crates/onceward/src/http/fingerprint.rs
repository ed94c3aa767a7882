//! What must agree when a key comes again: method, path, query, content type and body. Two spellings of one JSON value are
//! the same request, a multipart body is compared without its boundary, and a compressed one as what it contains.

use std::io::Read;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{HeaderName, request};

use onceward_core::fingerprint::{Builder, Fingerprint};
use onceward_core::json::Value;
use onceward_core::plant::{Plant, planted};

use super::paths;

/// A compressed body is looked into only as far as this: what unfolds to more is compared as it came.
const LARGEST_UNFOLDED: u64 = 1024 * 1024;

/// RFC 2046 allows no longer one, and looking for one takes time.
const LONGEST_BOUNDARY: usize = 70;

/// The fingerprint of a request with its whole body. `headers` are further ones that must agree.
pub fn of_request(parts: &request::Parts, body: &[u8], headers: &[&HeaderName]) -> Fingerprint {
    let kind = content_type(parts);
    let unfolded = unfolded(parts, body);
    let encoding = if unfolded.is_some() { None } else { parts.headers.get(CONTENT_ENCODING) };
    let body = unfolded.as_deref().unwrap_or(body);
    let mut builder = Builder::new("http")
        .part("method", parts.method.as_str())
        .part("path", &*paths::plain(parts.uri.path()))
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

/// The fingerprint of all that must agree besides method, path and body, of which somebody else has made one: query,
/// content type, and these headers.
pub fn of_head(parts: &request::Parts, headers: &[&HeaderName]) -> Fingerprint {
    let builder = Builder::new("http head").part("type", essence(&content_type(parts)));
    with_headers(with_query(builder, parts), parts, headers).build()
}

/// What stands behind the question mark. Nothing behind it is no query.
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

/// What a header says; `None` when it is not there.
fn values(parts: &request::Parts, name: &HeaderName) -> Option<Vec<u8>> {
    if name == HOST {
        // In HTTP/2 the host is a part of the target, and a retry may come over another version.
        let named = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
        let host = named.or_else(|| parts.headers.get(HOST).map(http::HeaderValue::as_bytes));
        return host.map(<[u8]>::to_ascii_lowercase);
    }
    let values: Vec<&[u8]> = parts.headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect();
    (!values.is_empty()).then(|| values.join(&b'\n'))
}

/// The body as JSON, if that is what it says it is.
pub fn json(parts: &request::Parts, body: &[u8]) -> Option<Result<Value, onceward_core::json::Error>> {
    let kind = content_type(parts);
    is_json(essence(&kind)).then(|| Value::parse(unfolded(parts, body).as_deref().unwrap_or(body)))
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

/// The body in a spelling of its own: equal texts are equal requests.
fn canonical(kind: &str, body: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    let essence = essence(kind);
    if is_json(&essence) {
        // What is no JSON is for the other side to refuse.
        return Value::parse(body).ok().map(|value| ("json", value.canonical().into_bytes()));
    }
    let boundary = kind.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.trim().split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"'))
    });
    let fits = |boundary: &&str| (1..=LONGEST_BOUNDARY).contains(&boundary.len());
    let boundary = boundary.filter(|boundary| essence.starts_with("multipart/") && fits(boundary))?;
    Some(("multipart", without(body, format!("--{boundary}").as_bytes())))
}

/// Every delimiter made the same one.
fn without(body: &[u8], delimiter: &[u8]) -> Vec<u8> {
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

/// A compressed body as what it contains.
fn unfolded(parts: &request::Parts, body: &[u8]) -> Option<Vec<u8>> {
    let encoding = parts.headers.get(CONTENT_ENCODING)?.to_str().ok()?.trim().to_ascii_lowercase();
    let mut text = Vec::new();
    let read = match encoding.as_str() {
        "gzip" | "x-gzip" => flate2::read::MultiGzDecoder::new(body).take(LARGEST_UNFOLDED + 1).read_to_end(&mut text),
        "deflate" => flate2::read::ZlibDecoder::new(body).take(LARGEST_UNFOLDED + 1).read_to_end(&mut text),
        "identity" => return Some(body.to_vec()),
        _ => return None,
    };
    (read.is_ok() && text.len() as u64 <= LARGEST_UNFOLDED).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn of(kind: &str, body: &[u8]) -> Fingerprint {
        with(&[("content-type", kind)], "/v1/charges?a=1", body)
    }

    fn with(headers: &[(&str, &str)], uri: &str, body: &[u8]) -> Fingerprint {
        let mut request = http::Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        of_request(&request.body(()).unwrap().into_parts().0, body, &[&HeaderName::from_static("x-account")])
    }

    #[test]
    fn two_spellings_of_one_value_are_one_request_and_two_values_are_not() {
        let json = "application/json; charset=utf-8";
        assert_eq!(of(json, br#"{"a":1,"b":2}"#), of("application/json", br#"{ "b":2, "a":1 }"#));
        assert_ne!(of(json, br#"{"a":1}"#), of(json, br#"{"a":2}"#));
        assert_ne!(of(json, br#"{"a":null}"#), of(json, br"{}"));
        assert_ne!(of(json, b"1"), of("text/plain", b"1"));
        assert_ne!(of(json, b"{broken"), of(json, b"{broken "));
    }

    #[test]
    fn path_query_and_chosen_headers_must_agree() {
        let base = with(&[], "/a?x=1", b"");
        for other in [with(&[], "/b?x=1", b""), with(&[], "/a?x=2", b""), with(&[], "/a", b"")] {
            assert_ne!(base, other);
        }
        assert_eq!(with(&[], "/a?", b""), with(&[], "/a", b""));
        assert_ne!(base, with(&[("x-account", "7")], "/a?x=1", b""));
        assert_eq!(base, with(&[("user-agent", "other")], "/a?x=1", b""));
    }

    #[test]
    fn a_host_is_the_same_in_every_version_of_http() {
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
    fn a_boundary_is_not_part_of_a_form() {
        let form = |boundary: &str, value: &str| {
            let body =
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n{value}\r\n--{boundary}--");
            of(&format!("multipart/form-data; boundary={boundary}"), body.as_bytes())
        };
        assert_eq!(form("one", "1"), form("two", "1"));
        assert_ne!(form("one", "1"), form("one", "2"));
    }

    #[test]
    fn a_compressed_body_is_what_it_contains() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(br#"{"a":1}"#).unwrap();
        let gzip = encoder.finish().unwrap();
        let kind = ("content-type", "application/json");
        let plain = with(&[kind], "/", br#"{"a": 1}"#);
        assert_eq!(plain, with(&[kind, ("content-encoding", "gzip")], "/", &gzip));
        assert_ne!(plain, with(&[kind, ("content-encoding", "gzip")], "/", b"no gzip"));
    }
}
