//! The oracle of an entry of the outbox. It is written from the promises and knows neither records nor `decide`.

use onceward::InDoubt;
use onceward::core::outbox::{AfterAttempt, Destination};
use onceward::core::record::Status;

use super::oracle::{LEASE, MEMORY, RUNTIME};

/// How many attempts an entry has.
pub const MAX_ATTEMPTS: u32 = 3;

/// Where an entry stands. Times are milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Absent,
    Queued {
        due: i64,
    },
    Running {
        until: i64,
    },
    /// With the time of the next attempt, if there is one.
    InDoubt {
        retry_at: Option<i64>,
    },
    Done,
    Dead,
}

/// What a courier gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    Taken { attempt: u32, probe_first: bool, to: Destination },
    NotTaken,
}

/// One entry, as its callers and couriers may expect it.
#[derive(Clone, Debug)]
pub struct EntryOracle {
    in_doubt: InDoubt,
    pub standing: Standing,
    pub attempts: u32,
    pub generation: u32,
    /// An attempt may have happened.
    is_doubted: bool,
    first_sent: Option<i64>,
    /// When its time is over.
    limit: Option<i64>,
    to: Option<Destination>,
    /// The courier whose writes count.
    holder: Option<u64>,
    /// When it last wrote. Whether there is time for another attempt is judged by this time, and again before that attempt.
    wrote_at: i64,
}

impl EntryOracle {
    pub fn new(in_doubt: InDoubt) -> Self {
        Self {
            in_doubt,
            standing: Standing::Absent,
            attempts: 0,
            generation: 0,
            is_doubted: false,
            first_sent: None,
            limit: None,
            to: None,
            holder: None,
            wrote_at: 0,
        }
    }

    /// True if this call queues the entry.
    pub fn enqueue(&mut self, now: i64, delay: i64, within: Option<i64>) -> bool {
        let is_new = self.standing == Standing::Absent;
        if is_new {
            self.standing = Standing::Queued { due: now + delay };
            self.limit = within.map(|within| now + within);
        }
        is_new
    }

    pub fn is_due(&self, now: i64) -> bool {
        match self.standing {
            Standing::Queued { due } => due <= now,
            Standing::Running { until } => until <= now,
            Standing::InDoubt { retry_at } => retry_at.is_some_and(|at| at <= now),
            Standing::Absent | Standing::Done | Standing::Dead => false,
        }
    }

    pub fn status(&self, now: i64) -> Option<Status> {
        Some(match self.standing {
            Standing::Absent => return None,
            Standing::Queued { .. } => Status::Queued,
            Standing::Running { until } if now < until => Status::Running,
            Standing::Running { .. } | Standing::InDoubt { .. } => Status::InDoubt,
            Standing::Done => Status::Done,
            Standing::Dead => Status::Dead,
        })
    }

    fn is_late(&self, at: i64) -> bool {
        self.limit.is_some_and(|limit| at >= limit)
    }

    /// A courier takes the entry, if it may. An entry that no courier may try any more is set aside.
    pub fn take(&mut self, now: i64, holder: u64, to: Destination) -> Take {
        if !self.is_due(now) {
            return Take::NotTaken;
        }
        let is_over = self.is_late(now) || self.attempts >= MAX_ATTEMPTS;
        let is_in_doubt = !matches!(self.standing, Standing::Queued { .. });
        if is_in_doubt {
            self.is_doubted = true;
            let may_retry = match self.in_doubt {
                InDoubt::Retry => self.first_sent.is_some_and(|first| now + RUNTIME < first + MEMORY),
                in_doubt => in_doubt == InDoubt::Probe,
            };
            if is_over || !may_retry {
                self.standing = Standing::InDoubt { retry_at: None };
                return Take::NotTaken;
            }
        } else if is_over {
            self.standing = Standing::Dead;
            return Take::NotTaken;
        }
        self.attempts += 1;
        (self.holder, self.wrote_at) = (Some(holder), now);
        self.first_sent.get_or_insert(now);
        self.standing = Standing::Running { until: now + LEASE };
        let to = match self.to.take().filter(|_| self.is_doubted) {
            Some(bound) => bound,
            None => to,
        };
        self.to = Some(to.clone());
        Take::Taken { attempt: self.attempts, probe_first: is_in_doubt && self.in_doubt == InDoubt::Probe, to }
    }

    /// True if the courier's word counts.
    pub fn undelivered(
        &mut self,
        now: i64,
        holder: u64,
        may_have_happened: bool,
        after: AfterAttempt,
        wait: i64,
    ) -> bool {
        if self.holder != Some(holder) || !matches!(self.standing, Standing::Running { .. }) {
            return false;
        }
        self.is_doubted |= may_have_happened;
        if after == AfterAttempt::RetryUncounted {
            self.attempts -= 1;
        }
        let is_over =
            after == AfterAttempt::GiveUp || self.attempts >= MAX_ATTEMPTS || self.is_late(self.wrote_at + wait);
        let retry_at = (!is_over).then_some(now + wait);
        self.standing = match retry_at {
            _ if self.is_doubted => Standing::InDoubt { retry_at: retry_at.filter(|_| self.in_doubt != InDoubt::Hold) },
            Some(due) => Standing::Queued { due },
            None => Standing::Dead,
        };
        if !self.is_doubted {
            self.holder = None;
            // Nothing has reached the downstream.
            self.first_sent = self.first_sent.filter(|_| self.attempts > 0);
        }
        true
    }

    pub fn finish(&mut self, holder: u64) -> bool {
        let may = matches!(self.standing, Standing::Running { .. } | Standing::InDoubt { .. });
        let counts = may && self.holder == Some(holder);
        if counts {
            self.standing = Standing::Done;
        }
        counts
    }

    /// The downstream knows of no attempt.
    pub fn not_found(&mut self, now: i64, holder: u64) -> bool {
        let counts = self.holder == Some(holder) && matches!(self.standing, Standing::Running { .. });
        if counts && self.is_doubted {
            (self.is_doubted, self.first_sent, self.wrote_at) = (false, Some(now), now);
        }
        counts
    }

    /// A person has a dead entry tried again.
    pub fn requeue(&mut self, now: i64, fresh_key: bool) -> bool {
        let may = self.standing == Standing::Dead;
        if may {
            self.standing = Standing::Queued { due: now };
            (self.attempts, self.limit, self.to) = (0, None, None);
            if fresh_key {
                self.generation += 1;
                self.first_sent = None;
            }
        }
        may
    }

    pub fn cancel(&mut self) -> bool {
        let may = matches!(self.standing, Standing::Queued { .. });
        if may {
            self.standing = Standing::Dead;
        }
        may
    }

    /// A person says that a doubt is none.
    pub fn did_not_happen(&mut self, now: i64) -> bool {
        let may = self.status(now) == Some(Status::InDoubt);
        if may {
            self.standing = Standing::Queued { due: now };
            (self.attempts, self.is_doubted, self.first_sent, self.to, self.holder) = (0, false, None, None, None);
        }
        may
    }

    /// A person says that it happened.
    pub fn happened(&mut self, now: i64) -> bool {
        let may = !matches!(self.status(now), None | Some(Status::Running | Status::Done));
        if may {
            (self.standing, self.holder) = (Standing::Done, None);
        }
        may
    }
}
