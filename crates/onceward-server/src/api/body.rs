//! Parses request bodies strictly: JSON content type, limited size and time, no unknown fields. Error messages do not repeat
//! values: those may be keys or arguments, and responses end up in logs.

use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Api;
use super::problem::{Kind, Problem};

/// A ledger is not a file store, and intents are small.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A thousand entries with payloads of some kilobytes each, or a few large ones.
const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Enough for the largest body over a slow connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A JSON body, of a request or a response.
pub(super) struct Json<T>(pub(super) T);

/// The bytes of a JSON body that may hold many entries.
pub(super) struct JsonBatch(pub(super) Bytes);

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => ([(CONTENT_TYPE, "application/json")], bytes).into_response(),
            Err(_) => Problem::new(Kind::Internal).into_response(),
        }
    }
}

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Api) -> Result<Self, Problem> {
        parse(&read_json(request, MAX_BODY_BYTES).await?).map(Json)
    }
}

impl FromRequest<Api> for JsonBatch {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &Api) -> Result<Self, Problem> {
        read_json(request, MAX_BATCH_BYTES).await.map(Self)
    }
}

async fn read_json(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let said = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match is_json(said) {
        true => read(request, limit).await,
        false => Err(Problem::new(Kind::NotJsonType)),
    }
}

fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

async fn read(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(request.into_body(), limit).collect()).await;
    match collected {
        Err(_) => Err(Problem::new(Kind::TooSlow)),
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.downcast_ref::<LengthLimitError>().is_some() => Err(Problem::new(Kind::TooLarge)),
        Ok(Err(_)) => Err(Problem::because(Kind::NotJson, "the body was cut off")),
    }
}

/// Parses an object without unknown fields.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        // The parser below would accept a list of values in field order.
        return Err(Problem::invalid("the body must be an object, not a list".to_owned()));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| problem(&error))?;
    json.end().map_err(|error| Problem::because(Kind::NotJson, position(&error)))?;
    Ok(value)
}

fn problem(error: &serde_path_to_error::Error<serde_json::Error>) -> Problem {
    let inner = error.inner();
    if inner.is_data() {
        let path = error.path().to_string();
        let path = if path == "." { String::new() } else { format!("{path}: ") };
        return Problem::invalid(format!("{path}{}", without_values(&inner.to_string())));
    }
    Problem::because(Kind::NotJson, position(inner))
}

fn position(error: &serde_json::Error) -> String {
    format!("syntax error at line {}, column {}", error.line(), error.column())
}

/// The message without the position that serde appends and without the value that it shows.
fn without_values(message: &str) -> String {
    let message = message.rfind(" at line ").map_or(message, |end| &message[..end]);
    for kind in ["invalid type: ", "invalid value: "] {
        if message.starts_with(kind)
            && let Some(start) = message.rfind(", expected ")
        {
            return message[start + 2..].to_owned();
        }
    }
    match message.strip_prefix("unknown variant `") {
        Some(rest) => rest.rfind("`, expected ").map_or("unknown value", |start| &rest[start + 3..]).to_owned(),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Example {
        name: String,
        #[serde(default)]
        count: u32,
        #[serde(default)]
        word: Option<Choice>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Choice {
        One,
    }

    fn refused(text: &str) -> String {
        format!("{:?}", parse::<Example>(text.as_bytes()).unwrap_err())
    }

    #[test]
    fn mistakes_are_reported_without_showing_values() {
        assert!(refused(r#"{"name":"a","nmae":1}"#).contains("nmae: unknown field `nmae`"));
        assert!(refused(r#"{"count":1}"#).contains("missing field `name`"));
        for text in [
            r#"{"name":"a","count":"ann@example.com"}"#,
            r#"{"name":"a","count":"ann, expected a number at line 3"}"#,
            r#"{"name":"a","word":"ann"}"#,
            r#"{"name":"a","word":"ann`, expected x"}"#,
        ] {
            let message = refused(text);
            assert!(!message.contains("ann") && message.contains("expected"), "{message}");
        }
        assert!(refused(r#"{"name":"a""#).contains("NotJson"));
        assert!(refused(r#"{"name":"a"} x"#).contains("NotJson"));
    }

    #[test]
    fn json_is_accepted_with_and_without_a_charset() {
        assert!(is_json("application/json") && is_json("Application/JSON; charset=utf-8"));
        assert!(!is_json("text/plain") && !is_json("") && !is_json("application/jsonp"));
    }
}
