//! Serde for [`Value`], and a check of Rust values before they are serialised as JSON.
//!
//! The check is a serializer that writes nothing. It is needed because `serde_json` silently turns NaN and infinity into `null`,
//! which would give two different intents one key.

use serde::ser::{
    self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;

use super::{Error, MAX_DEPTH, Number, Value};

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(bool) => serializer.serialize_bool(*bool),
            Self::Number(number) => number.serialize(serializer),
            Self::String(string) => serializer.serialize_str(string),
            Self::Array(elements) => serializer.collect_seq(elements),
            Self::Object(members) => serializer.collect_map(members.iter().map(|(name, value)| (name, value))),
        }
    }
}

impl Serialize for Number {
    /// Integers beyond 64 bits are serialised as raw text, which only `serde_json` supports.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(integer) = self.as_i64() {
            serializer.serialize_i64(integer)
        } else if let Some(integer) = self.as_u64() {
            serializer.serialize_u64(integer)
        } else if self.as_str().contains(['.', 'e']) {
            serializer.serialize_f64(self.as_str().parse().map_err(ser::Error::custom)?)
        } else {
            RawValue::from_string(self.as_str().to_owned()).map_err(ser::Error::custom)?.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    /// Takes the raw text, which only `serde_json` provides, so that the strict parser sees every digit.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::parse(raw.get().as_bytes()).map_err(de::Error::custom)
    }
}

impl ser::Error for Error {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Unserialisable { message: message.to_string() }
    }
}

/// Refuses values that JSON cannot represent, and nesting that would overflow the stack.
pub(super) fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), Error> {
    value.serialize(CheckSerializer { depth: 0 })
}

/// Visits a value; `depth` is the number of arrays and objects around it.
#[derive(Clone, Copy)]
struct CheckSerializer {
    depth: usize,
}

impl CheckSerializer {
    fn deeper(self, levels: usize) -> Result<Self, Error> {
        let depth = self.depth + levels;
        // There is no text yet, so there is no offset.
        if depth > MAX_DEPTH { Err(Error::TooDeep { offset: 0 }) } else { Ok(Self { depth }) }
    }

    fn float(finite: bool) -> Result<(), Error> {
        if finite { Ok(()) } else { Err(Error::NonFinite) }
    }
}

macro_rules! accept {
    ($($method:ident: $type:ty),+) => {
        $(fn $method(self, _: $type) -> Result<(), Error> {
            Ok(())
        })+
    };
}

impl Serializer for CheckSerializer {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    accept! {
        serialize_bool: bool, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64, serialize_i128: i128,
        serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64, serialize_u128: u128,
        serialize_unit_struct: &'static str
    }

    fn serialize_f32(self, float: f32) -> Result<(), Error> {
        Self::float(float.is_finite())
    }

    fn serialize_f64(self, float: f64) -> Result<(), Error> {
        Self::float(float.is_finite())
    }

    fn serialize_none(self) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_unit(self) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Error> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<(), Error> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Error> {
        value.serialize(self.deeper(1)?)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Error> {
        self.deeper(1)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Error> {
        self.deeper(1)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        self.deeper(1)
    }

    fn serialize_tuple_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, Error> {
        self.deeper(2)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Error> {
        self.deeper(1)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        self.deeper(1)
    }

    fn serialize_struct_variant(self, _: &'static str, _: u32, _: &'static str, _: usize) -> Result<Self, Error> {
        self.deeper(2)
    }
}

macro_rules! walk_elements {
    ($($compound:ident: $method:ident),+) => {$(
        impl $compound for CheckSerializer {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, element: &T) -> Result<(), Error> {
                element.serialize(*self)
            }

            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        }
    )+};
}

macro_rules! walk_fields {
    ($($compound:ident),+) => {$(
        impl $compound for CheckSerializer {
            type Ok = ();
            type Error = Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                field: &T,
            ) -> Result<(), Error> {
                field.serialize(*self)
            }

            fn end(self) -> Result<(), Error> {
                Ok(())
            }
        }
    )+};
}

walk_elements! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
}

walk_fields!(SerializeStruct, SerializeStructVariant);

impl SerializeMap for CheckSerializer {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        key.serialize(*self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(*self)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}
