//! What the journal says about one intent: its generations, the attempts at each, and what is known of its outcome.

use std::collections::BTreeMap;

use super::journal::Ending;
use super::plan::Sort;

/// Older generations of a key are of no interest any more.
const GENERATIONS: usize = 4;

/// One intent.
#[derive(Clone, Debug)]
pub struct History {
    /// What it is like.
    pub sort: Sort,
    /// The key that the other side got.
    pub key: Option<String>,
    /// The lives of the key, the latest last: a key lives again when it was forgotten.
    pub generations: Vec<Generation>,
    /// Attempts whose claim was lost before their work began, by nonce.
    pub lost: Vec<String>,
    /// Outcomes that came too late: their owners were told that the claim was lost.
    pub late: usize,
    /// Callers that went away before their work began: the ledger may have given their claims back.
    pub left: usize,
}

/// One life of a key.
#[derive(Clone, Debug, Default)]
pub struct Generation {
    /// When its record was made.
    pub created: i64,
    /// The attempts whose work began, by the ledger's own number.
    pub attempts: BTreeMap<u32, Attempt>,
    /// The outcome, once the ledger has told it to anybody.
    pub outcome: Option<Known>,
    /// A person or a probe has settled what the attempts up to this one did.
    pub settled: u32,
    /// When a person last said that nothing happened, at the earliest.
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
    /// It was sent by this time, if it was.
    pub sent_by: Option<i64>,
    /// When its effect reached the other side.
    pub effect: Option<i64>,
    /// What it was about to tell the ledger, and when.
    pub ended: Option<(Ending, i64)>,
    /// The caller was told how it ended, so the ledger knows it too.
    pub told: bool,
}

/// An outcome that the ledger has told to somebody.
#[derive(Clone, Debug)]
pub struct Known {
    /// The outcome.
    pub value: String,
    /// It was not finished before this time.
    pub earliest: i64,
    /// It was finished by this time.
    pub latest: i64,
    /// The attempt that finished it; none when a person did.
    pub attempt: Option<u32>,
}

impl History {
    /// An intent of which nothing is known.
    pub fn new(sort: Sort) -> Self {
        Self { sort, key: None, generations: Vec::new(), lost: Vec::new(), late: 0, left: 0 }
    }

    /// The life that the key is in.
    pub fn latest(&mut self) -> Option<&mut Generation> {
        self.generations.last_mut()
    }

    /// The generation of a record. A new one may begin only when the one before was finished, or never happened, and is
    /// forgotten: the error says that it was not.
    pub fn generation(&mut self, created: i64) -> Result<usize, String> {
        if let Some(found) = self.generations.iter().position(|generation| generation.created == created) {
            return Ok(found);
        }
        let fault = self.generations.last().and_then(|last| {
            let horizon = millis(self.sort.horizon());
            match last.finished() {
                _ if last.is_untried(created, self.sort, self.left) => None,
                Some(finished) if created >= finished + horizon => None,
                Some(finished) => Some(format!(
                    "the key was used anew {} ms after it was done, and is to be held for {horizon} ms",
                    created - finished
                )),
                None => {
                    Some("the record was lost: the key was used anew although it was not to be forgotten".to_owned())
                }
            }
        });
        self.generations.push(Generation { created, ..Generation::default() });
        if self.generations.len() > GENERATIONS {
            self.generations.remove(0);
        }
        fault.map_or(Ok(self.generations.len() - 1), Err)
    }

    /// Where an attempt is: its generation and number.
    pub fn attempt(&self, nonce: &str) -> Option<(usize, u32)> {
        self.generations.iter().enumerate().rev().find_map(|(index, generation)| {
            let mut attempts = generation.attempts.iter();
            attempts.find(|(_, attempt)| attempt.nonce == nonce).map(|(number, _)| (index, *number))
        })
    }

    /// The generation that ended with this value, and the earliest time at which it can have.
    pub fn producer(&self, value: &str) -> Option<(usize, Option<u32>, i64)> {
        let nonce = value.strip_prefix("failed:").unwrap_or(value);
        if let Some((index, number)) = self.attempt(nonce)
            && let Some((Ending::Finish, at)) = self.generations[index].attempts[&number].ended
        {
            return Some((index, Some(number), at));
        }
        // A probe found the receipt of an attempt that could not tell of it itself.
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
    /// The earliest time at which it can have been done; none if it cannot have been.
    pub fn finished(&self) -> Option<i64> {
        let ends = self.attempts.values().filter_map(|attempt| match attempt.ended {
            Some((Ending::Finish, at)) => Some(at),
            _ => None,
        });
        ends.chain(self.outcome.as_ref().map(|known| known.earliest)).min()
    }

    /// Whether it can be known at this time that nothing has happened, and for so long that it is forgotten. Every attempt
    /// is proven harmless then, and the last that anybody heard of them, or settled, is as long ago.
    pub fn is_untried(&self, at: i64, sort: Sort, left: usize) -> bool {
        // Where there is a record, there was a claim, though its work may never have begun.
        let last = self.attempts.keys().next_back().copied().unwrap_or(1);
        let heard = |attempt: &Attempt| attempt.ended.map_or(attempt.tried, |(_, at)| at.max(attempt.tried));
        let latest = self.attempts.values().map(heard).fold(self.created.max(self.settled_at), i64::max);
        self.unproven(last + 1, sort, left).is_empty() && at >= latest + millis(sort.untried_horizon())
    }

    /// The attempts below `number` that may have happened and that nothing has settled: a re-run needs a policy
    /// that permits it. So many of the claims whose work never began may have been given back as callers left.
    pub fn unproven(&self, number: u32, sort: Sort, left: usize) -> Vec<u32> {
        let mut excused = left;
        (self.settled + 1..number)
            .filter(|number| match self.attempts.get(number) {
                None if excused > 0 => {
                    excused -= 1;
                    false
                }
                // Its owner died between the claim and the work.
                None => !sort.marks,
                Some(attempt) => {
                    let proven = matches!(attempt.ended, Some((Ending::Release, _)));
                    !proven && (attempt.sent || !sort.marks)
                }
            })
            .collect()
    }

    /// By when the first of the unsettled attempts was sent, at the latest.
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
