//! Where a request carries the downstream key.

use http::header::{HeaderName, HeaderValue};
use onceward::core::json::{Pointer, Value};
use onceward_runtime::egress::Request;

/// Where a request carries the downstream key.
#[derive(Clone, Debug)]
pub(super) enum KeyPlace {
    Header(HeaderName),
    /// In this member of a JSON body.
    Body(Pointer),
    None,
}

impl KeyPlace {
    pub(super) fn parse(text: Option<&str>) -> Result<Self, String> {
        const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
        let Some(text) = text else { return Ok(Self::Header(HEADER)) };
        let form = || "write \"header:NAME\", \"body:/POINTER\" or \"none\"".to_owned();
        match text.split_once(':') {
            None if text == "none" => Ok(Self::None),
            Some(("header", name)) => HeaderName::try_from(name).map(Self::Header).map_err(|_| form()),
            Some(("body", pointer)) => match Pointer::parse(pointer) {
                Ok(pointer) if !pointer.segments().is_empty() => Ok(Self::Body(pointer)),
                Ok(_) => Err(form()),
                Err(error) => Err(error.to_string()),
            },
            _ => Err(form()),
        }
    }

    /// Puts the key into a request. The error says why it has no place there.
    pub(super) fn put(&self, key: &str, mut request: Request) -> Result<Request, String> {
        match self {
            Self::None => {}
            Self::Header(name) => {
                let value = HeaderValue::from_str(key);
                let value = value.map_err(|_| "the key of the intent cannot be in a header; derive it".to_owned())?;
                request.headers.insert(name, value);
            }
            Self::Body(pointer) => {
                let mut body = Value::parse(&request.body).map_err(|_| "the body is not JSON".to_owned())?;
                let put = member(&mut body, pointer.segments(), key);
                put.ok_or_else(|| format!("the body has no object that could contain the key at `{pointer}`"))?;
                request.body = body.canonical().into();
            }
        }
        Ok(request)
    }
}

/// Sets a member to the key. `None` if there is no object that could contain it.
fn member(value: &mut Value, path: &[String], key: &str) -> Option<()> {
    let (name, rest) = path.split_first()?;
    match value {
        Value::Object(members) if rest.is_empty() => {
            let others = std::mem::take(members).into_iter().filter(|(other, _)| other != name);
            let key = (name.clone(), Value::String(key.to_owned()));
            *value = Value::object(others.chain([key])).ok()?;
            Some(())
        }
        Value::Object(members) => {
            let (_, member_value) = members.iter_mut().find(|(other, _)| other == name)?;
            member(member_value, rest, key)
        }
        Value::Array(elements) => member(elements.get_mut(name.parse::<usize>().ok()?)?, rest, key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;

    fn put(place: &str, body: &'static str) -> Result<String, String> {
        let (url, headers) = ("http://a/".to_owned(), HeaderMap::new());
        let request = Request { method: Method::POST, url, headers, body: Bytes::from(body), timeout: None };
        let request = KeyPlace::parse(Some(place))?.put("k1", request)?;
        Ok(String::from_utf8(request.body.to_vec()).unwrap())
    }

    #[test]
    fn a_member_of_the_body_takes_the_key_and_every_other_one_keeps_its_digits() {
        let huge = r#"{"amount":123456789012345678901234567890,"z":0.1}"#;
        let expected = r#"{"amount":123456789012345678901234567890,"key":"k1","z":0.1}"#;
        assert_eq!(put("body:/key", huge).as_deref(), Ok(expected));
        assert_eq!(put("body:/a/0/key", r#"{"a":[{"key":"theirs"}]}"#).as_deref(), Ok(r#"{"a":[{"key":"k1"}]}"#));
        for body in ["[]", "\"x\"", "{}", "not JSON"] {
            assert!(put("body:/a/key", body).is_err(), "{body}");
        }
    }

    #[test]
    fn a_place_that_does_not_exist_is_refused() {
        for place in ["header:", "header:a b", "body:", "body:key", "query:a", "", "None"] {
            assert!(KeyPlace::parse(Some(place)).is_err(), "{place}");
        }
    }
}
