//! What a template can name: the payload and the identity of an entry. Numbers keep their digits.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use onceward::core::json;
use onceward::courier::Parcel;

/// The values of one attempt.
#[derive(Clone, Debug)]
pub(crate) struct Values(Value);

impl Values {
    /// The names at the top level.
    pub(crate) const NAMES: [&str; 6] = ["payload", "key", "downstream_key", "operation", "tenant", "attempt"];

    pub(crate) fn of(parcel: &Parcel) -> Self {
        let identity = &parcel.identity;
        let mut values: BTreeMap<&str, Value> = BTreeMap::from([
            ("key", Value::from(identity.key.as_str())),
            ("downstream_key", Value::from(parcel.downstream_key.as_str())),
            ("operation", Value::from(identity.operation.as_str())),
            ("tenant", Value::from(identity.tenant.as_str())),
            ("attempt", Value::from(parcel.attempt)),
        ]);
        // A payload that is not JSON can be sent as it is, but has no fields.
        if let Ok(payload) = json::Value::parse(&parcel.payload) {
            values.insert("payload", value(payload));
        }
        Self(Value::from(values))
    }

    pub(super) fn knows(name: &str) -> bool {
        Self::NAMES.contains(&name)
    }

    pub(super) fn root(&self) -> Value {
        self.0.clone()
    }

    /// Whether there is a value under this name, such as `payload.customer.id`.
    pub(super) fn has(&self, name: &str) -> bool {
        let found = name.split('.').try_fold(self.0.clone(), |value, segment| value.get_attr(segment).ok());
        found.is_some_and(|value| !value.is_undefined())
    }
}

/// An integer that no native type of the engine can hold.
#[derive(Debug)]
struct Digits(json::Number);

impl Object for Digits {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// The parser limits how deep the value is.
fn value(json: json::Value) -> Value {
    match json {
        json::Value::Null => Value::from(()),
        json::Value::Bool(bool) => Value::from(bool),
        json::Value::Number(number) => number_value(number),
        json::Value::String(string) => Value::from(string),
        json::Value::Array(elements) => Value::from(elements.into_iter().map(value).collect::<Vec<_>>()),
        json::Value::Object(members) => {
            let members = members.into_iter().map(|(name, member)| (name, value(member)));
            Value::from(members.collect::<BTreeMap<String, Value>>())
        }
    }
}

fn number_value(number: json::Number) -> Value {
    let text = number.as_str();
    if let Ok(integer) = text.parse::<i128>() {
        return Value::from(integer);
    }
    let is_integer = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    match text.parse::<f64>() {
        Ok(double) if !is_integer => Value::from(double),
        _ => Value::from_object(Digits(number)),
    }
}

/// Writes a value as JSON.
pub(super) fn write_json(value: &Value, json: &mut String, limit: usize) -> Result<(), Error> {
    write_nested(value, json, limit, json::MAX_DEPTH)
}

fn write_nested(value: &Value, json: &mut String, limit: usize, depth: usize) -> Result<(), Error> {
    if json.len() > limit {
        return Err(Error::from(ErrorKind::WriteFailure));
    }
    let depth = depth.checked_sub(1).ok_or_else(|| invalid("the value is nested too deeply"))?;
    if let Some(digits) = value.downcast_object_ref::<Digits>() {
        json.push_str(digits.0.as_str());
        return Ok(());
    }
    match value.kind() {
        ValueKind::Undefined => return Err(Error::from(ErrorKind::UndefinedError)),
        ValueKind::None => json.push_str("null"),
        ValueKind::Bool => json.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number if value.is_integer() => json.push_str(&value.to_string()),
        ValueKind::Number => {
            let double = f64::try_from(value.clone())?;
            let number = json::Number::from_f64(double).ok_or_else(|| invalid("a number is not finite"))?;
            json.push_str(number.as_str());
        }
        ValueKind::String => write_string(value.as_str().unwrap_or_default(), json),
        ValueKind::Seq | ValueKind::Iterable => {
            json.push('[');
            for (index, element) in value.try_iter()?.enumerate() {
                if index > 0 {
                    json.push(',');
                }
                write_nested(&element, json, limit, depth)?;
            }
            json.push(']');
        }
        ValueKind::Map => {
            json.push('{');
            for (index, name) in value.try_iter()?.enumerate() {
                if index > 0 {
                    json.push(',');
                }
                let text = name.as_str().ok_or_else(|| invalid("the name of a member is not a text"))?;
                write_string(text, json);
                json.push(':');
                write_nested(&value.get_item(&name)?, json, limit, depth)?;
            }
            json.push('}');
        }
        _ => return Err(invalid("the value cannot be written")),
    }
    Ok(())
}

/// Escapes every control character, so that the marks around values are unambiguous.
fn write_string(text: &str, json: &mut String) {
    json.push_str(&json::Value::String(text.to_owned()).canonical());
}

fn invalid(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}
