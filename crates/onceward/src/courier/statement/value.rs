//! The parameters of a statement. They travel as text, which PostgreSQL reads as the type that it has inferred for the parameter:
//! nothing is ever put into the text of the statement.

use std::error::Error;
use std::str::FromStr;

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use onceward_core::json::{Pointer, Value};

use crate::courier::Parcel;

/// What a parameter of a statement is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementValue {
    /// A part of the payload. The entry is dead if there is nothing at this place.
    Part(Pointer),
    /// The whole payload, as it was queued.
    Payload,
    /// The key of the intent.
    Key,
    /// The downstream key.
    DownstreamKey,
    /// The operation.
    Operation,
    /// The tenant.
    Tenant,
    /// The number of the attempt.
    Attempt,
}

impl FromStr for StatementValue {
    type Err = String;

    /// A JSON pointer, or one of the names `payload`, `key`, `downstream_key`, `operation`, `tenant` and `attempt`.
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "payload" => Self::Payload,
            "key" => Self::Key,
            "downstream_key" => Self::DownstreamKey,
            "operation" => Self::Operation,
            "tenant" => Self::Tenant,
            "attempt" => Self::Attempt,
            "" => return Err("for the whole payload, write \"payload\"".to_owned()),
            _ if text.starts_with('/') => Self::Part(Pointer::parse(text).map_err(|error| error.to_string())?),
            _ => {
                return Err(format!(
                    "{text:?} is neither a JSON pointer into the payload, such as \"/to\", nor payload, key, downstream_key, \
                     operation, tenant or attempt"
                ));
            }
        })
    }
}

/// A parameter as text; `None` is NULL.
#[derive(Clone, Debug, Default)]
pub(super) struct TextParameter(Option<String>);

/// The parameters for an entry, or what is wrong with the entry.
pub(super) fn of_parcel(values: &[StatementValue], parcel: &Parcel) -> Result<Vec<TextParameter>, String> {
    let needs_json = values.iter().any(|value| matches!(value, StatementValue::Part(_)));
    let payload = needs_json.then(|| Value::parse(&parcel.payload)).transpose();
    let payload = payload.map_err(|error| format!("the payload is not JSON: {error}"))?;
    values.iter().map(|value| parameter(value, parcel, payload.as_ref()).map(TextParameter)).collect()
}

fn parameter(value: &StatementValue, parcel: &Parcel, payload: Option<&Value>) -> Result<Option<String>, String> {
    let identity = &parcel.identity;
    Ok(Some(match value {
        StatementValue::Part(pointer) => {
            let part = payload.and_then(|payload| pointer.find(payload));
            return part.map(text).ok_or_else(|| format!("the payload has nothing at {pointer}"));
        }
        StatementValue::Payload => {
            let text = std::str::from_utf8(&parcel.payload).map_err(|_| "the payload is not UTF-8".to_owned())?;
            text.to_owned()
        }
        StatementValue::Key => identity.key.as_str().to_owned(),
        StatementValue::DownstreamKey => parcel.downstream_key.clone(),
        StatementValue::Operation => identity.operation.as_str().to_owned(),
        StatementValue::Tenant => identity.tenant.as_str().to_owned(),
        StatementValue::Attempt => parcel.attempt.to_string(),
    }))
}

/// Texts without their quotation marks; objects and arrays as JSON.
fn text(part: &Value) -> Option<String> {
    match part {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        part => Some(part.canonical()),
    }
}

impl ToSql for TextParameter {
    fn to_sql(&self, _: &Type, to: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = &self.0 else { return Ok(IsNull::Yes) };
        to.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bytes::Bytes;
    use onceward_core::name::{Identity, Key, Operation, Tenant};
    use onceward_core::record::Fence;

    use super::*;

    fn parameters(values: &[&str], payload: &str) -> Result<Vec<Option<String>>, String> {
        let values: Vec<StatementValue> = values.iter().map(|value| value.parse().unwrap()).collect();
        let identity = Identity {
            tenant: Tenant::new("acme").unwrap(),
            operation: Operation::new("mail").unwrap(),
            key: Key::new("k").unwrap(),
        };
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        let (downstream_key, fence) = ("once_v1_k".to_owned(), Fence::from_bits(1));
        let parcel = Parcel { identity, payload, downstream_key, attempt: 2, fence };
        Ok(of_parcel(&values, &parcel)?.into_iter().map(|value| value.0).collect())
    }

    #[test]
    fn parts_of_the_payload_keep_every_digit_and_texts_lose_their_quotation_marks() {
        let payload = r#"{"a":"it's \"$1\"","b":12345678901234567890123,"c":0.1,"d":true,"e":null,"f":{"x":[1, 2]}}"#;
        let found = parameters(&["/a", "/b", "/c", "/d", "/e", "/f", "/f/x/1"], payload).unwrap();
        let expected = ["it's \"$1\"", "12345678901234567890123", "0.1", "true", "", r#"{"x":[1,2]}"#, "2"];
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.as_deref().unwrap_or_default(), expected);
        }
        assert_eq!(found[4], None, "null is NULL");
    }

    #[test]
    fn the_entry_itself_has_names() {
        let found = parameters(&["payload", "key", "downstream_key", "operation", "tenant", "attempt"], "{ }").unwrap();
        let expected = ["{ }", "k", "once_v1_k", "mail", "acme", "2"];
        assert_eq!(found, expected.map(|text| Some(text.to_owned())));
        assert_eq!(parameters(&["payload"], "not JSON").unwrap(), [Some("not JSON".to_owned())]);
    }

    #[test]
    fn what_the_payload_does_not_have_is_an_error_of_the_entry() {
        assert_eq!(parameters(&["/to"], "{}").unwrap_err(), "the payload has nothing at /to");
        assert!(parameters(&["/to"], "{").unwrap_err().starts_with("the payload is not JSON"));
    }

    #[test]
    fn other_words_are_not_values() {
        for text in ["to", "", "payload.to", "/a~2", "Key"] {
            assert!(text.parse::<StatementValue>().is_err(), "{text}");
        }
    }
}
