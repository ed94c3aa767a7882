//! PostgreSQL's binary format of rows: writes the fields of a job and reads the fields of an intent. Rows travel as whole values,
//! so that no statement lists forty columns and nothing is looked up in the catalogue.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{IsNull, ToSql, Type};

use onceward_core::time::Timestamp;

/// Microseconds between 1970, where our times begin, and 2000, where PostgreSQL's begin.
const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// The times that PostgreSQL can hold end here, in the year 294276. Later ones become `infinity`.
const LAST_MICROS: i64 = 9_223_371_331_200_000_000 - 1;

/// And they begin here, in the year 4714 BC. Earlier ones become `-infinity`.
const FIRST_MICROS: i64 = -211_813_488_000_000_000;

/// A time in PostgreSQL's binary format.
pub(super) fn to_micros(time: Timestamp) -> i64 {
    let micros = i128::from(time.as_millis()) * 1000 - i128::from(EPOCH_MICROS);
    match i64::try_from(micros) {
        Ok(micros) if (FIRST_MICROS..=LAST_MICROS).contains(&micros) => micros,
        _ if micros > 0 => i64::MAX,
        _ => i64::MIN,
    }
}

/// A time from PostgreSQL's binary format.
pub(super) fn from_micros(micros: i64) -> Timestamp {
    Timestamp::from_millis(match micros {
        i64::MAX => i64::MAX,
        i64::MIN => i64::MIN,
        micros => (i128::from(micros) + i128::from(EPOCH_MICROS)).div_euclid(1000) as i64,
    })
}

/// Writes the fields of one row.
#[derive(Debug)]
pub(super) struct Fields {
    bytes: Vec<u8>,
    count: i32,
}

impl Fields {
    pub(super) fn new() -> Self {
        let mut bytes = Vec::with_capacity(768);
        bytes.put_i32(0);
        Self { bytes, count: 0 }
    }

    /// The row: the number of fields, then for each its type, its length and its bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes[..4].copy_from_slice(&self.count.to_be_bytes());
        self.bytes
    }

    fn field(&mut self, kind: &Type, value: Option<&[u8]>) {
        self.count += 1;
        self.bytes.put_u32(kind.oid());
        match value {
            None => self.bytes.put_i32(-1),
            Some(value) => {
                // A field over 1 GiB is refused by the server; bodies are limited to far less.
                self.bytes.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
                self.bytes.put_slice(value);
            }
        }
    }

    pub(super) fn int8(&mut self, value: Option<i64>) {
        self.field(&Type::INT8, value.map(i64::to_be_bytes).as_ref().map(<[u8; 8]>::as_slice));
    }

    pub(super) fn int4(&mut self, value: Option<i32>) {
        self.field(&Type::INT4, value.map(i32::to_be_bytes).as_ref().map(<[u8; 4]>::as_slice));
    }

    pub(super) fn int2(&mut self, value: Option<i16>) {
        self.field(&Type::INT2, value.map(i16::to_be_bytes).as_ref().map(<[u8; 2]>::as_slice));
    }

    pub(super) fn uuid(&mut self, value: Option<[u8; 16]>) {
        self.field(&Type::UUID, value.as_ref().map(<[u8; 16]>::as_slice));
    }

    pub(super) fn time(&mut self, value: Option<Timestamp>) {
        let value = value.map(|time| to_micros(time).to_be_bytes());
        self.field(&Type::TIMESTAMPTZ, value.as_ref().map(<[u8; 8]>::as_slice));
    }

    /// In whole milliseconds, as times are. An interval is microseconds, days and months.
    pub(super) fn interval(&mut self, value: Option<Duration>) {
        let value = value.map(|value| {
            let micros = i64::try_from(value.as_millis()).unwrap_or(i64::MAX).saturating_mul(1000);
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&micros.to_be_bytes());
            bytes
        });
        self.field(&Type::INTERVAL, value.as_ref().map(<[u8; 16]>::as_slice));
    }

    pub(super) fn text(&mut self, value: Option<&str>) {
        self.field(&Type::TEXT, value.map(str::as_bytes));
    }

    pub(super) fn json(&mut self, value: Option<&str>) {
        self.field(&Type::JSON, value.map(str::as_bytes));
    }

    pub(super) fn bytes(&mut self, value: Option<&[u8]>) {
        self.field(&Type::BYTEA, value);
    }
}

/// Reads the fields of one row.
#[derive(Debug)]
pub(super) struct FieldReader<'a> {
    rest: &'a [u8],
    left: i32,
}

/// The bytes are not a row, or not one with this field.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

impl<'a> FieldReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        let mut reader = Self { rest: bytes, left: 0 };
        reader.left = i32::from_be_bytes(reader.take()?);
        Ok(reader)
    }

    fn slice(&mut self, length: usize) -> Result<&'a [u8], Unreadable> {
        let (slice, rest) =
            self.rest.split_at_checked(length).ok_or_else(|| Unreadable("a row is cut short".to_owned()))?;
        self.rest = rest;
        Ok(slice)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.slice(N)?);
        Ok(bytes)
    }

    /// The bytes of the next field; `None` is NULL.
    pub(super) fn bytes(&mut self) -> Result<Option<&'a [u8]>, Unreadable> {
        if self.left <= 0 {
            return Err(Unreadable("a row has too few columns".to_owned()));
        }
        self.left -= 1;
        let _kind: [u8; 4] = self.take()?;
        match usize::try_from(i32::from_be_bytes(self.take()?)) {
            Err(_) => Ok(None),
            Ok(length) => self.slice(length).map(Some),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Unreadable> {
        let Some(bytes) = self.bytes()? else { return Ok(None) };
        let array = bytes.try_into().map_err(|_| Unreadable(format!("a column has {} bytes, not {N}", bytes.len())))?;
        Ok(Some(array))
    }

    pub(super) fn int8(&mut self) -> Result<Option<i64>, Unreadable> {
        Ok(self.array()?.map(i64::from_be_bytes))
    }

    pub(super) fn int4(&mut self) -> Result<Option<i32>, Unreadable> {
        Ok(self.array()?.map(i32::from_be_bytes))
    }

    pub(super) fn int2(&mut self) -> Result<Option<i16>, Unreadable> {
        Ok(self.array()?.map(i16::from_be_bytes))
    }

    /// A number that is never negative: no conditional write could match a record whose number was changed on reading.
    pub(super) fn unsigned(&mut self) -> Result<Option<u64>, Unreadable> {
        let unsigned = |number: i64| u64::try_from(number).map_err(|_| Unreadable(format!("{number} is negative")));
        self.int8()?.map(unsigned).transpose()
    }

    pub(super) fn time(&mut self) -> Result<Option<Timestamp>, Unreadable> {
        Ok(self.int8()?.map(from_micros))
    }

    pub(super) fn text(&mut self) -> Result<Option<&'a str>, Unreadable> {
        let text = |bytes| std::str::from_utf8(bytes).map_err(|error| Unreadable(error.to_string()));
        self.bytes()?.map(text).transpose()
    }
}

/// An array of rows as a parameter. The rows are in the binary format already.
#[derive(Debug)]
pub(super) struct RowArray<'a> {
    /// The type of a row.
    pub(super) kind: u32,
    pub(super) rows: Vec<&'a [u8]>,
}

impl ToSql for RowArray<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let length = i32::try_from(self.rows.len())?;
        out.put_i32(i32::from(length > 0));
        out.put_i32(0);
        out.put_u32(self.kind);
        if length > 0 {
            out.put_i32(length);
            out.put_i32(1);
        }
        for row in &self.rows {
            out.put_i32(i32::try_from(row.len())?);
            out.put_slice(row);
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.to_sql(kind, out)
    }
}

/// A value of a type whose binary format we write ourselves.
#[derive(Debug)]
pub(super) struct Binary<const N: usize>(pub(super) Option<[u8; N]>);

impl<const N: usize> ToSql for Binary<N> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let Some(bytes) = &self.0 else { return Ok(IsNull::Yes) };
        out.put_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.to_sql(kind, out)
    }
}

/// A time as a parameter.
pub(super) fn time_parameter(time: Option<Timestamp>) -> Binary<8> {
    Binary(time.map(|time| to_micros(time).to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_comes_back_and_those_out_of_range_stay_infinite() {
        for millis in [0, 1, -1, 1_763_000_000_123, 253_402_300_799_999, i64::MAX, i64::MIN] {
            let time = Timestamp::from_millis(millis);
            assert_eq!(from_micros(to_micros(time)), time, "{millis}");
        }
        assert_eq!(to_micros(Timestamp::from_millis(i64::MAX - 1)), i64::MAX);
        assert_eq!(to_micros(Timestamp::from_millis(946_684_800_000)), 0, "2000-01-01");
    }

    #[test]
    fn a_row_that_is_cut_short_is_refused() {
        let mut fields = Fields::new();
        fields.text(Some("a"));
        fields.int8(None);
        let row = fields.finish();
        for end in 0..row.len() {
            let read = FieldReader::new(&row[..end]).and_then(|mut reader| {
                reader.text()?;
                reader.int8()
            });
            assert!(read.is_err(), "{end}");
        }
        let mut reader = FieldReader::new(&row).unwrap();
        assert_eq!(reader.text().unwrap(), Some("a"));
        assert_eq!(reader.int8().unwrap(), None);
        assert!(reader.int8().is_err(), "there is no third column");
    }
}
