//! Compares the ledger at the end with what really happened downstream, and with what was acknowledged.

use std::collections::BTreeMap;

use onceward::core::outcome::Body;
use onceward::core::record::{Record, State};

use super::downstream::{EntryName, Story, value};
use super::entry_kind::EntryKind;
use super::name_of;
use crate::report::row;

/// More violations are not printed.
const SHOWN: usize = 20;

/// What was found to be wrong.
#[derive(Debug, Default)]
pub struct Judge {
    violations: Vec<String>,
}

impl Judge {
    pub fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Judges what is left when nothing more will happen.
    pub fn judge(
        &mut self,
        records: &[Record],
        stories: &BTreeMap<EntryName, Story>,
        acknowledged: &BTreeMap<String, Vec<String>>,
    ) {
        let known: BTreeMap<String, &Record> = records.iter().map(|record| (name_of(record), record)).collect();
        for name in acknowledged.keys().filter(|name| !known.contains_key(*name)) {
            self.violation(format!("{name}: acknowledged, and lost"));
        }
        for (operation, key) in stories.keys() {
            if !known.contains_key(&format!("{operation} {key}")) {
                self.violation(format!("{operation} {key}: it was sent, and is not in the ledger"));
            }
        }
        for record in records {
            let Some((kind, identity)) = EntryKind::of(record).zip(record.identity.as_ref()) else {
                self.violation(format!("{}: an entry that was never queued", name_of(record)));
                continue;
            };
            let key = identity.key.as_str();
            let story = stories.get(&(kind.operation().to_owned(), key.to_owned())).cloned().unwrap_or_default();
            for wrong in wrongs(record, kind, key, &story) {
                self.violation(format!("{}: {wrong}", name_of(record)));
            }
        }
    }

    /// The summary.
    pub fn print(&self, records: &[Record], stories: &BTreeMap<EntryName, Story>) {
        let of = |wanted: fn(&Story) -> u64| stories.values().map(wanted).sum();
        let count = |wanted: fn(&Record) -> bool| records.iter().filter(|record| wanted(record)).count() as u64;
        row("entries", records.len() as u64);
        row("requests", of(|story| story.requests));
        row("look-ups", of(|story| story.look_ups));
        row("effects", of(|story| story.effects.len() as u64));
        row("delivered", count(|record| matches!(record.state, State::Done { .. })));
        row("in doubt", count(|record| matches!(record.state, State::InDoubt { .. })));
        for violation in self.violations.iter().take(SHOWN) {
            println!("VIOLATION {violation}");
        }
        row("violations", self.violations.len() as u64);
    }
}

/// What is wrong about one entry.
fn wrongs(record: &Record, kind: EntryKind, key: &str, story: &Story) -> Vec<String> {
    let mut wrongs = Vec::new();
    let mut demand = |holds: bool, what: String| {
        if !holds {
            wrongs.push(what);
        }
    };
    let effects = story.effects.len();
    demand(effects <= 1, format!("happened {effects} times"));
    demand(story.keys.len() <= 1, format!("it was sent under {} downstream keys", story.keys.len()));
    let attempts = u64::from(record.attempts);
    demand(story.requests <= attempts, format!("{} requests, and {attempts} attempts are counted", story.requests));
    match &record.state {
        State::Done { outcome, .. } => {
            demand(effects == 1, format!("delivered, and happened {effects} times"));
            let is_kept =
                matches!(&outcome.body, Body::Kept(bytes) if **bytes == *value(kind.operation(), key).as_bytes());
            demand(is_kept, format!("its outcome is not the answer that it got: {:?}", outcome.body));
            demand(record.payload.is_none(), "its payload is kept after its delivery".to_owned());
        }
        State::InDoubt { .. } => {
            let may_be = matches!(kind, EntryKind::Held | EntryKind::Moved);
            demand(may_be, "in doubt, although it may be tried again".to_owned());
        }
        state => demand(false, format!("never ends: {state:?}")),
    }
    wrongs
}

#[cfg(test)]
mod tests {
    use onceward::Outcome;
    use onceward::core::decide::{Command, Enqueue, LeaseEntry, Take, Undelivered, Write, decide};
    use onceward::core::fingerprint::Fingerprint;
    use onceward::core::name::{Identity, Key, Operation, Tenant};
    use onceward::core::outbox::{AfterAttempt, Destination, Entry};
    use onceward::core::record::{Fence, Seen};
    use onceward::core::time::Timestamp;

    use super::*;

    const FENCE: Fence = Fence::from_bits(1);

    fn written(last: Option<Record>, command: &Command) -> Record {
        let now = Timestamp::from_millis(0);
        let seen = last.map(|record| Seen { record, now, owner_gone: false });
        match decide(seen.as_ref(), command).write {
            Write::Insert(draft) | Write::Replace(draft) => draft.stamp(now),
            other => panic!("{other:?}"),
        }
    }

    fn taken(kind: EntryKind) -> Record {
        let operation = Operation::new(kind.operation()).unwrap();
        let identity = Identity { tenant: Tenant::default(), operation, key: Key::new("a").unwrap() };
        let (payload, delay) = ("a letter".into(), std::time::Duration::ZERO);
        let terms = kind.policy("a").terms();
        let (fingerprint, entry) = (Fingerprint::none(), Entry::default());
        let call = Enqueue { identity, key_digest: None, fingerprint, terms, payload, entry, delay };
        let lease = std::time::Duration::from_secs(1);
        let take = Take { fence: FENCE, lease, marks_sent: false, probes: true, owner: None, claim: None };
        let destination = Destination { sink: "usual".into(), key: "k".into() };
        let queued = written(None, &Command::Enqueue(call));
        written(Some(queued), &Command::Lease(LeaseEntry { take, destination }))
    }

    fn done(kind: EntryKind) -> Record {
        let outcome = Outcome::success(value(kind.operation(), "a"));
        written(Some(taken(kind)), &Command::Finish { fence: FENCE, outcome })
    }

    fn in_doubt(kind: EntryKind) -> Record {
        let retry_in = std::time::Duration::ZERO;
        let after = AfterAttempt::Retry;
        let end = Undelivered { fence: FENCE, may_have_happened: true, retry_in, after, error: None };
        written(Some(taken(kind)), &Command::Undelivered(end))
    }

    fn story(requests: u64, keys: &[&str], effects: &[&str]) -> Story {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Story { requests, look_ups: 0, keys: owned(keys).into_iter().collect(), effects: owned(effects) }
    }

    fn wrong(record: &Record, kind: EntryKind, story: &Story) -> usize {
        wrongs(record, kind, "a", story).len()
    }

    #[test]
    fn each_rule_is_kept_by_one_story_and_broken_by_another() {
        let (held, honoured) = (EntryKind::Held, EntryKind::Honoured);
        assert_eq!(wrong(&done(honoured), honoured, &story(1, &["k"], &["k"])), 0);
        assert_eq!(wrong(&in_doubt(held), held, &story(1, &["k"], &[])), 0);
        assert_eq!(wrong(&in_doubt(held), held, &story(1, &["k"], &["k"])), 0);
        assert_eq!(wrong(&in_doubt(honoured), honoured, &story(1, &["k"], &["k"])), 1, "a doubt that is not retried");
        assert_eq!(wrong(&taken(held), held, &story(1, &["k"], &[])), 1, "an entry that never ends");
        assert_eq!(wrong(&done(held), held, &story(1, &["k"], &[])), 1, "an outcome without an effect");
        assert_eq!(wrong(&in_doubt(held), held, &story(2, &["k"], &["k", "k"])), 2, "an effect twice, by one attempt");
        assert_eq!(wrong(&done(honoured), honoured, &story(1, &["k", "l"], &["k"])), 1, "two downstream keys");
    }

    #[test]
    fn what_is_acknowledged_is_in_the_ledger_and_so_is_what_was_sent() {
        let mut judge = Judge::default();
        let acknowledged = BTreeMap::from([("held a".to_owned(), vec!["queued".to_owned()])]);
        judge.judge(&[in_doubt(EntryKind::Held)], &BTreeMap::new(), &acknowledged);
        assert_eq!(judge.violations(), [""; 0]);
        let sent = BTreeMap::from([(("held".to_owned(), "b".to_owned()), story(1, &["k"], &[]))]);
        judge.judge(&[], &sent, &acknowledged);
        assert_eq!(judge.violations().len(), 2, "{judge:?}");
    }
}
