//! How intents are shown to people and programs. Outcomes are summarised here; their bytes are only shown for a single
//! intent.

use std::time::Duration;

use onceward::breakers;
use onceward::core::key_content;
use onceward::core::name::Key;
use onceward::core::outbox::Entry;
use onceward::core::outcome::{Body, Outcome, Verdict};
use onceward::core::policy::InDoubt;
use onceward::core::record::{Record, Seen, Standing, State, Status};
use onceward::core::time::Timestamp;
use onceward::store::ListedRecord;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api;
use onceward_runtime::process::output_frame;

/// An intent as shown in a list.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Intent)]
pub struct IntentView {
    /// The digest of the identity; the only part of it that a tombstone has.
    pub id: String,
    #[schema(required)]
    pub tenant: Option<String>,
    #[schema(required)]
    pub operation: Option<String>,
    /// The key. A key that looks like an e-mail address, a phone number or a card number is replaced by its kind and a short
    /// digest, unless `show_keys` is set.
    #[schema(required)]
    pub key: Option<String>,
    /// Whether `key` is a digest instead of the key itself.
    pub key_masked: bool,
    /// The sequence number in its stream.
    #[schema(required)]
    pub sequence: Option<u64>,
    #[schema(value_type = api::IntentState)]
    pub state: &'static str,
    pub version: u64,
    pub attempts: u32,
    /// The in-doubt policy of the record.
    #[schema(value_type = api::InDoubtPolicy)]
    pub when_in_doubt: InDoubt,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
    #[schema(format = DateTime, required)]
    pub running_until: Option<String>,
    #[schema(format = DateTime, required)]
    pub not_before: Option<String>,
    #[schema(format = DateTime, required)]
    pub doubt_since: Option<String>,
    #[schema(format = DateTime, required)]
    pub finished_at: Option<String>,
    #[schema(format = DateTime, required)]
    pub expires_at: Option<String>,
    #[schema(required)]
    pub last_error: Option<String>,
    #[schema(required)]
    pub outcome: Option<OutcomeSummary>,
    /// How it is delivered, for an entry of the outbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<EntryView>,
}

/// How an entry of the outbox is delivered.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Entry)]
pub struct EntryView {
    pub priority: api::Priority,
    /// When it is tried next; null if it is not tried by itself.
    #[schema(format = DateTime, required)]
    pub due_at: Option<String>,
    /// Until when it is tried; null for no limit.
    #[schema(format = DateTime, required)]
    pub deliver_until: Option<String>,
    /// How many attempts are made.
    #[schema(required)]
    pub max_attempts: Option<u32>,
    /// The sink of the last attempt; null before the first one.
    #[schema(required)]
    pub sink: Option<String>,
    /// Whether the payload is kept after delivery.
    pub keeps_payload: bool,
    /// The run that it follows, if a person has had finished work done again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerun: Option<RerunView>,
}

/// The link from a new run to the run that it follows.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RerunLink)]
pub struct RerunView {
    /// The key of the run that it follows, masked like `key`.
    pub of: String,
    /// The number of this run: 2 for the one that follows the first.
    pub run: u32,
}

/// A summary of an outcome.
#[derive(Debug, Serialize, ToSchema)]
pub struct OutcomeSummary {
    #[schema(value_type = api::Verdict)]
    pub verdict: Verdict,
    pub status: i32,
    pub content_type: String,
    pub size: u64,
    pub kept: bool,
    /// The id that the downstream gave the effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// Whether to show keys that look like personal data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyDisplay {
    Shown,
    Masked,
}

impl KeyDisplay {
    pub fn shown_if(shown: bool) -> Self {
        if shown { Self::Shown } else { Self::Masked }
    }

    /// The replacement for a key that must not be shown.
    pub fn masked(self, key: &Key) -> Option<String> {
        match self {
            Self::Shown => None,
            Self::Masked => key_content::masked(key.as_str()),
        }
    }
}

impl IntentView {
    /// The same for a list entry, whose outcome was not read.
    pub fn listed(listed: &ListedRecord, keys: KeyDisplay) -> Option<Self> {
        let mut view = Self::of(&listed.seen, keys)?;
        if let (Some(outcome), Some(size)) = (&mut view.outcome, listed.body_size) {
            outcome.size = size;
        }
        Some(view)
    }

    /// `None` if the record counts as absent.
    pub fn of(seen: &Seen, keys: KeyDisplay) -> Option<Self> {
        let standing = seen.standing()?;
        let record = &seen.record;
        let identity = record.identity.as_ref();
        // The couriers' own notes are not intents.
        if identity.is_some_and(|identity| identity.operation.as_str() == breakers::NOTES) {
            return None;
        }
        let text = |time: Timestamp| time.to_string();
        let masked = identity.and_then(|identity| keys.masked(&identity.key));
        let (finished_at, expires_at, outcome) = match &record.state {
            State::Done { outcome, finished_at, expires_at, .. } => {
                let kept = standing == Standing::Done;
                (Some(*finished_at), expires_at.filter(|_| kept), kept.then(|| OutcomeSummary::of(outcome)))
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
            entry: record.entry.as_deref().map(|entry| EntryView::of(record, entry, standing, keys)),
        })
    }
}

impl EntryView {
    fn of(record: &Record, entry: &Entry, standing: Standing, keys: KeyDisplay) -> Self {
        let due = match (standing, &record.state) {
            (Standing::Queued { due }, _) | (Standing::Open { not_before: due }, _) => Some(due),
            (_, State::InDoubt { retry_at, .. }) => *retry_at,
            _ => None,
        };
        Self {
            priority: entry.priority.into(),
            due_at: due.map(|due| due.to_string()),
            deliver_until: entry.deliver_within.map(|within| record.created_at.after(within).to_string()),
            max_attempts: record.terms.max_attempts,
            sink: entry.destination.as_ref().map(|destination| destination.sink.clone()),
            keeps_payload: entry.keeps_payload,
            rerun: entry.rerun.as_deref().map(|link| RerunView {
                of: keys.masked(&link.of).unwrap_or_else(|| link.of.as_str().to_owned()),
                run: link.run,
            }),
        }
    }
}

impl OutcomeSummary {
    /// The status as text: an exit code, or the status of another surface, if any.
    pub fn ended(&self) -> String {
        match self.status {
            code if self.content_type == output_frame::CONTENT_TYPE => format!("exit code {code}, "),
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
            reference: outcome.reference.clone(),
        }
    }
}

/// The status with this name, or an error that lists the names.
pub fn status_named(name: &str) -> Result<Status, String> {
    let known = Status::ALL.map(Status::as_str);
    let found = Status::ALL.into_iter().find(|status| status.as_str() == name.replace('-', "_"));
    found.ok_or_else(|| format!("unknown state; known states are {}", known.join(", ")))
}

/// The age in one unit, for people.
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let ago = since.until(now);
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let seconds = ago.as_secs();
    let unit = UNITS.iter().find(|(length, _)| seconds >= *length);
    unit.map_or_else(|| "now".to_owned(), |(length, unit)| format!("{}{unit} ago", seconds / length))
}

/// The time until then in one unit, for people.
pub fn ahead(then: Timestamp, now: Timestamp) -> String {
    let text = age(now, then);
    text.strip_suffix(" ago").map_or(text.clone(), |time| format!("in {time}"))
}

/// Formats rows as columns, each as wide as its widest cell.
pub fn table(rows: &[Vec<String>]) -> String {
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
pub fn shortened(text: &str, characters: usize) -> String {
    match text.char_indices().nth(characters) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The time this long before `now`.
pub fn before(now: Timestamp, ago: Duration) -> Timestamp {
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
    fn columns_line_up_and_lines_have_no_trailing_spaces() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        assert_eq!(table(&[row(["A", "BB", "C"]), row(["aaa", "b", ""])]), "A    BB  C\naaa  b");
    }
}
