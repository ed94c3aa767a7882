//! An intent as people and programs are shown it. Outcomes are summed up here; their bytes are shown only to who asks
//! for that one intent.

use std::time::Duration;

use onceward::core::looks;
use onceward::core::name::Key;
use onceward::core::outcome::{Body, Outcome, Verdict};
use onceward::core::policy::InDoubt;
use onceward::core::record::{Seen, Standing, State, Status};
use onceward::core::time::Timestamp;
use onceward::store::Listed;
use serde::Serialize;
use utoipa::ToSchema;

use crate::{api, run};

/// What a list shows of an intent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Intent)]
pub(crate) struct View {
    /// The digest of the identity; all that a tombstone has of it.
    pub(crate) id: String,
    #[schema(required)]
    pub(crate) tenant: Option<String>,
    #[schema(required)]
    pub(crate) operation: Option<String>,
    /// The key. One that looks like an e-mail address, a phone number or a card number is shown as its kind and a short
    /// digest, unless keys are asked for.
    #[schema(required)]
    pub(crate) key: Option<String>,
    /// `key` is not the key itself, but a digest of it.
    pub(crate) key_masked: bool,
    /// Which item of its stream it is.
    #[schema(required)]
    pub(crate) sequence: Option<u64>,
    #[schema(value_type = api::State)]
    pub(crate) state: &'static str,
    pub(crate) version: u64,
    pub(crate) attempts: u32,
    /// What its terms say for the case of doubt.
    #[schema(value_type = api::WhenInDoubt)]
    pub(crate) when_in_doubt: InDoubt,
    #[schema(format = DateTime)]
    pub(crate) created_at: String,
    #[schema(format = DateTime)]
    pub(crate) updated_at: String,
    #[schema(format = DateTime, required)]
    pub(crate) running_until: Option<String>,
    #[schema(format = DateTime, required)]
    pub(crate) not_before: Option<String>,
    #[schema(format = DateTime, required)]
    pub(crate) doubt_since: Option<String>,
    #[schema(format = DateTime, required)]
    pub(crate) finished_at: Option<String>,
    #[schema(format = DateTime, required)]
    pub(crate) expires_at: Option<String>,
    #[schema(required)]
    pub(crate) last_error: Option<String>,
    #[schema(required)]
    pub(crate) outcome: Option<Summary>,
}

/// What is known of an outcome without showing it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Summary {
    #[schema(value_type = api::Verdict)]
    pub(crate) verdict: Verdict,
    pub(crate) status: i32,
    pub(crate) content_type: String,
    pub(crate) size: u64,
    pub(crate) kept: bool,
}

/// Whether keys that look like personal data are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    Shown,
    Masked,
}

impl Keys {
    pub(crate) fn shown_if(shown: bool) -> Self {
        if shown { Self::Shown } else { Self::Masked }
    }

    /// What is shown instead of a key, if it is not shown itself.
    pub(crate) fn masked(self, key: &Key) -> Option<String> {
        match self {
            Self::Shown => None,
            Self::Masked => looks::masked(key.as_str()),
        }
    }
}

impl View {
    /// The same for an entry of a list, whose outcome was not read.
    pub(crate) fn listed(listed: &Listed, keys: Keys) -> Option<Self> {
        let mut view = Self::of(&listed.seen, keys)?;
        if let (Some(outcome), Some(size)) = (&mut view.outcome, listed.body_size) {
            outcome.size = size;
        }
        Some(view)
    }

    /// `None` when the record is to be treated as absent.
    pub(crate) fn of(seen: &Seen, keys: Keys) -> Option<Self> {
        let standing = seen.standing()?;
        let record = &seen.record;
        let identity = record.identity.as_ref();
        let text = |time: Timestamp| time.to_string();
        let masked = identity.and_then(|identity| keys.masked(&identity.key));
        let (finished_at, expires_at, outcome) = match &record.state {
            State::Done { outcome, finished_at, expires_at, .. } => {
                let kept = standing == Standing::Done;
                (Some(*finished_at), expires_at.filter(|_| kept), kept.then(|| Summary::of(outcome)))
            }
            _ => (None, None, None),
        };
        Some(Self {
            id: record.id.to_hex(),
            tenant: identity.map(|identity| identity.tenant.to_string()),
            operation: identity.map(|identity| identity.operation.to_string()),
            key_masked: masked.is_some(),
            key: masked.or_else(|| identity.map(|identity| identity.key.as_str().to_owned())),
            sequence: record.sequence,
            state: standing.status().as_str(),
            version: record.version,
            attempts: record.attempts,
            when_in_doubt: record.terms.in_doubt,
            created_at: text(record.created_at),
            updated_at: text(record.updated_at),
            running_until: if let Standing::Running { until } = standing { Some(text(until)) } else { None },
            not_before: match standing {
                Standing::Open { not_before } if seen.now < not_before => Some(text(not_before)),
                _ => None,
            },
            doubt_since: match standing {
                Standing::InDoubt { since } => Some(text(since)),
                _ => record.doubt_since.map(text),
            },
            finished_at: finished_at.map(text),
            expires_at: expires_at.map(text),
            last_error: record.last_error.clone(),
            outcome,
        })
    }
}

impl Summary {
    /// Its status in words: an exit code, or what another surface has for one, if anything.
    pub(crate) fn ended(&self) -> String {
        match self.status {
            code if self.content_type == run::CONTENT_TYPE => format!("exit code {code}, "),
            0 => String::new(),
            status => format!("status {status}, "),
        }
    }

    fn of(outcome: &Outcome) -> Self {
        let (size, kept) = match &outcome.body {
            Body::Kept(bytes) => (bytes.len() as u64, true),
            Body::TooLarge { size, .. } => (*size, false),
        };
        Self {
            verdict: outcome.verdict,
            status: outcome.status,
            content_type: outcome.content_type.clone(),
            size,
            kept,
        }
    }
}

/// The status of that name, or a refusal that lists them.
pub(crate) fn status_named(name: &str) -> Result<Status, String> {
    let known = Status::ALL.map(Status::as_str);
    let found = Status::ALL.into_iter().find(|status| status.as_str() == name.replace('-', "_"));
    found.ok_or_else(|| format!("there is no such state; there are {}", known.join(", ")))
}

/// How long ago, as a person says it: one unit is enough.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let ago = since.until(now);
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = ago.as_secs();
    let unit = UNITS.iter().find(|(length, _)| seconds >= *length);
    unit.map_or_else(|| "now".to_owned(), |(length, unit)| format!("{}{unit} ago", seconds / length))
}

/// Rows in columns, each as wide as its widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// At most this many characters of a text, so that one long cell does not push the others off the screen.
pub(crate) fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A moment that lies this long before another.
pub(crate) fn before(now: Timestamp, ago: Duration) -> Timestamp {
    let millis = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.as_millis().saturating_sub(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
        for (seconds, text) in [(0, "now"), (59, "59s ago"), (60, "1m ago"), (7_199, "1h ago"), (200_000, "2d ago")] {
            assert_eq!(age(at(0), at(seconds)), text);
        }
        assert_eq!(age(at(10), at(0)), "now");
    }

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["A", "BB", "C"]), row(["aaa", "b", ""])]), "A    BB  C\naaa  b");
    }
}
