//! Pages of a list: which parts of a record a list shows, and the cursor of the next page.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use serde::{Serialize, Serializer};

use onceward_core::hash::Digest;
use onceward_core::outcome::Body;
use onceward_core::record::{Record, Seen, State};
use onceward_core::time::Timestamp;

/// A page of a list.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The records.
    pub listed: Vec<ListedRecord>,
    /// The cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
}

/// A record in a list, without its large parts: a page of full records could hold a thousand outcomes of 8 MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRecord {
    /// The record. Its payload is empty, and its outcome has no headers and an empty body.
    pub seen: Seen,
    /// The size of the outcome's body in bytes, if it is kept.
    pub body_size: Option<u64>,
}

impl ListedRecord {
    /// The list entry of a record.
    pub fn of(record: &Record, now: Timestamp) -> Self {
        let mut body_size = None;
        let state = match &record.state {
            State::Done { outcome, fence, finished_at, expires_at, forget_at } => {
                let mut shown = outcome.clone();
                shown.headers = Vec::new();
                if let Body::Kept(bytes) = &mut shown.body {
                    body_size = Some(bytes.len() as u64);
                    *bytes = Bytes::new();
                }
                State::Done {
                    outcome: shown,
                    fence: *fence,
                    finished_at: *finished_at,
                    expires_at: *expires_at,
                    forget_at: *forget_at,
                }
            }
            state => state.clone(),
        };
        // `Bytes` are reference-counted, so this copies none of the large parts.
        let mut shown = record.clone();
        shown.state = state;
        shown.payload = record.payload.as_ref().map(|_| Bytes::new());
        Self { seen: Seen { record: shown, now, owner_gone: false }, body_size }
    }
}

/// The record at which a page ended. It contains nothing that the page did not show. In the list of another tenant it is
/// treated as the cursor of a record that no longer exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The record at which the page ended.
    pub id: Digest,
    /// When it was recorded. If the record is gone, the next page begins with records from this time or before.
    pub at: Timestamp,
    /// Which of the stores of a ledger the next page begins in; 0 for the default one. A store leaves it alone.
    pub place: u32,
}

/// The number of hex digits in a cursor: 8 bytes of time and 32 of the id. 4 bytes of the place follow unless it is 0.
const HEX_DIGITS: usize = 16 + 64;
const PLACE_DIGITS: usize = 8;

impl Cursor {
    /// The cursor of a page that ends at this record.
    pub fn at(record: &Record) -> Self {
        Self { id: record.id, at: record.created_at, place: 0 }
    }

    /// The cursor of a page that begins with the newest record of a store: no record has this id, and none is newer.
    pub(crate) fn start_of(place: u32) -> Self {
        Self { id: Digest::from_bytes([0; 32]), at: Timestamp::from_millis(i64::MAX), place }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{}", self.at.as_millis(), self.id.to_hex())?;
        if self.place == 0 { Ok(()) } else { write!(f, "{:08x}", self.place) }
    }
}

/// The text is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor: pass the `next` of an earlier page")]
pub struct NotACursor;

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let is_length = [HEX_DIGITS, HEX_DIGITS + PLACE_DIGITS].contains(&text.len());
        if !is_length || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotACursor);
        }
        let (text, place) = text.split_at(HEX_DIGITS);
        let place = if place.is_empty() { 0 } else { u32::from_str_radix(place, 16).map_err(|_| NotACursor)? };
        let (time, id) = text.split_at(16);
        let millis = u64::from_str_radix(time, 16).map_err(|_| NotACursor)?;
        let id = Digest::from_hex(id).ok_or(NotACursor)?;
        Ok(Self { id, at: Timestamp::from_millis(millis.cast_signed()), place })
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use onceward_core::hash::digest;

    use super::*;

    #[test]
    fn a_cursor_round_trips_as_text_and_other_texts_are_refused() {
        for millis in [0, 1, 1_763_000_000_000, i64::MAX, -1] {
            for place in [0, 1, u32::MAX] {
                let cursor = Cursor { id: digest(b"a"), at: Timestamp::from_millis(millis), place };
                assert_eq!(cursor.to_string().parse(), Ok(cursor));
            }
        }
        for wrong in ["", "7", &"0".repeat(79), &"0".repeat(81), &"g".repeat(80), &"é".repeat(40)] {
            assert_eq!(wrong.parse::<Cursor>(), Err(NotACursor), "{wrong}");
        }
    }
}
