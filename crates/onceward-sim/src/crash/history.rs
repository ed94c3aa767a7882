//! One intent by the journal: its generations, the attempts of each, and its known outcome.

use std::collections::BTreeMap;

use super::intent_kind::IntentKind;
use super::journal::Ending;

/// Older generations of a key are dropped.
const GENERATIONS: usize = 4;

/// One intent.
#[derive(Clone, Debug)]
pub struct History {
    /// Its kind.
    pub kind: IntentKind,
    /// Its downstream key.
    pub key: Option<String>,
    /// The generations of the key, the latest last: a new one begins when the last was forgotten.
    pub generations: Vec<Generation>,
    /// Attempts whose claim was lost before their work began, by nonce, with the time at which their caller asked.
    pub lost: BTreeMap<String, i64>,
    /// Outcomes that came too late: their owners were told that the claim was lost.
    pub late: usize,
    /// Callers that were dropped before their work began: the ledger may have released their claims.
    pub left: usize,
}

/// One generation of a key.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    /// When its record was created.
    pub created: i64,
    /// The attempts whose work began, by the ledger's own number.
    pub attempts: BTreeMap<u32, Attempt>,
    /// The outcome, once the ledger has given it to a caller.
    pub outcome: Option<KnownOutcome>,
    /// An operator or a probe has settled the attempts up to this one.
    pub settled: u32,
    /// The earliest time at which an operator last said that nothing happened.
    pub settled_at: i64,
}

/// One attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its name in the journal, and its value.
    pub nonce: String,
    /// When its caller asked, which is before the claim was granted.
    pub asked: i64,
    /// When its work began.
    pub tried: i64,
    /// Until when its lease lasts at least.
    pub until: i64,
    /// It was about to mark `sent`.
    pub sending: bool,
    /// The ledger confirmed `sent`.
    pub sent: bool,
    /// When it was sent at the latest, if it was.
    pub sent_by: Option<i64>,
    /// When its effect reached the downstream.
    pub effect: Option<i64>,
    /// Its effect came so late that a probe of the next attempt rightly found nothing.
    pub evaded_probe: bool,
    /// What it was about to tell the ledger, and when.
    pub ended: Option<(Ending, i64)>,
    /// The caller was told how it ended, so the ledger knows it too.
    pub told: bool,
}

/// An outcome that the ledger has given to a caller.
#[derive(Clone, Debug)]
pub struct KnownOutcome {
    /// The outcome.
    pub value: String,
    /// It was not finished before this time.
    pub earliest: i64,
    /// It was finished by this time.
    pub latest: i64,
    /// The attempt that finished it; `None` for an operator.
    pub attempt: Option<u32>,
}

impl History {
    /// An intent of which nothing is known.
    pub fn new(kind: IntentKind) -> Self {
        Self { kind, key: None, generations: Vec::new(), lost: BTreeMap::new(), late: 0, left: 0 }
    }

    /// The present generation of the key.
    pub fn latest(&mut self) -> Option<&mut Generation> {
        self.generations.last_mut()
    }

    /// The generation of a record. A new one may begin only when the last one was finished or never happened, and is
    /// forgotten: the error says that it was not.
    pub fn generation(&mut self, created: i64) -> Result<usize, String> {
        if let Some(found) = self.generations.iter().position(|generation| generation.created == created) {
            return Ok(found);
        }
        let fault = self.generations.last().and_then(|last| {
            let horizon = millis(self.kind.horizon());
            match last.finished() {
                _ if last.is_untried(created, self.kind, self.left) => None,
                Some(finished) if created >= finished + horizon => None,
                Some(finished) => Some(format!(
                    "the key was used again {} ms after it was done, and must be held for {horizon} ms",
                    created - finished
                )),
                None => Some("the record was lost: the key was used again before it could be forgotten".to_owned()),
            }
        });
        self.generations.push(Generation { created, ..Generation::default() });
        if self.generations.len() > GENERATIONS {
            self.generations.remove(0);
        }
        fault.map_or(Ok(self.generations.len() - 1), Err)
    }

    /// The generation and number of an attempt.
    pub fn attempt(&self, nonce: &str) -> Option<(usize, u32)> {
        self.generations.iter().enumerate().rev().find_map(|(index, generation)| {
            let mut attempts = generation.attempts.iter();
            attempts.find(|(_, attempt)| attempt.nonce == nonce).map(|(number, _)| (index, *number))
        })
    }

    /// The generation that ended with this value, and the earliest time at which it can have ended.
    pub fn producer(&self, value: &str) -> Option<(usize, Option<u32>, i64)> {
        let nonce = value.strip_prefix("failed:").unwrap_or(value);
        if let Some((index, number)) = self.attempt(nonce)
            && let Some((Ending::Finish, at)) = self.generations[index].attempts[&number].ended
        {
            return Some((index, Some(number), at));
        }
        // A probe found the receipt of an attempt that could not report it.
        if let Some((index, number)) = self.attempt(nonce)
            && self.generations[index].attempts[&number].effect.is_some()
            && let Some(finished) = self.generations[index].finished()
        {
            return Some((index, None, finished));
        }
        self.generations.iter().enumerate().rev().find_map(|(index, generation)| {
            let known = generation.outcome.as_ref().filter(|known| known.value == value)?;
            Some((index, known.attempt, known.earliest))
        })
    }
}

impl Generation {
    /// The earliest time at which it can have been done; `None` if it cannot have been.
    pub fn finished(&self) -> Option<i64> {
        let ends = self.attempts.values().filter_map(|attempt| match attempt.ended {
            Some((Ending::Finish, at)) => Some(at),
            _ => None,
        });
        ends.chain(self.outcome.as_ref().map(|known| known.earliest)).min()
    }

    /// Whether nothing has happened for so long that it may be forgotten. Every attempt is proven harmless then, and
    /// the last news of them, or their resolution, is as long ago.
    pub fn is_untried(&self, at: i64, kind: IntentKind, left: usize) -> bool {
        // A record proves a claim, though its work may never have begun.
        let last = self.attempts.keys().next_back().copied().unwrap_or(1);
        let heard = |attempt: &Attempt| attempt.ended.map_or(attempt.tried, |(_, at)| at.max(attempt.tried));
        let latest = self.attempts.values().map(heard).fold(self.created.max(self.settled_at), i64::max);
        self.unproven(last + 1, kind, left).is_empty() && at >= latest + millis(kind.untried_horizon())
    }

    /// The attempts below `number` that may have happened and are not settled: a re-run needs a policy that permits it.
    /// As many claims without work may have been released as callers were dropped.
    pub fn unproven(&self, number: u32, kind: IntentKind, left: usize) -> Vec<u32> {
        let mut excused = left;
        (self.settled + 1..number)
            .filter(|number| match self.attempts.get(number) {
                None if excused > 0 => {
                    excused -= 1;
                    false
                }
                // Its owner died between the claim and the work.
                None => !kind.marks,
                Some(attempt) => {
                    let proven = matches!(attempt.ended, Some((Ending::Release, _)));
                    !proven && (attempt.sent || !kind.marks)
                }
            })
            .collect()
    }

    /// The latest time by which the first of the unsettled attempts was sent.
    pub fn first_sent(&self) -> Option<i64> {
        let unsettled = self.attempts.range(self.settled + 1..);
        unsettled.filter_map(|(_, attempt)| attempt.sent_by).min()
    }

    /// The attempts whose effect took place.
    pub fn effects(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.values().filter(|attempt| attempt.effect.is_some())
    }
}

/// A duration in the journal's unit.
pub fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
