//! What really happened to an entry, kept apart from its record, and which rules a step broke.

use onceward::InDoubt;
use onceward::core::outbox::{AfterAttempt, Destination};

/// How long things last, in ticks.
pub(super) const LEASE: u8 = 3;
pub(super) const HONOURS_KEY: u8 = 6;
pub(super) const DELIVER_WITHIN: u8 = 4;

/// How long a courier waits before its next attempt.
pub(super) const RETRY_IN: u8 = 1;

/// The longest that an attempt may take, as its policy promises.
const RUNTIME: u8 = 1;

/// How many attempts an entry has.
pub(super) const MAX_ATTEMPTS: u8 = 2;

/// What really happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Truth {
    /// Attempts that may have happened, and whose result is unknown: one bit for each.
    pub(super) unsettled: u16,
    /// Attempts that were still at work when a person decided: what they do later contradicts the person.
    disowned: u16,
    /// Where the effect took place, since the last doubt was settled.
    pub(super) effect: Option<Destination>,
    /// Where the attempt went that began the doubt.
    bound_to: Option<Destination>,
    /// Since when the downstream remembers the key: from the first effect on.
    known_since: Option<u8>,
    /// When an attempt was first sent.
    first_sent: Option<u8>,
    /// Until when the lease of the courier lasts.
    lease: Option<u8>,
    /// The earliest time of the next attempt.
    not_before: u8,
    /// The last claim that was granted; 0 after a person has decided.
    owner: u8,
    /// How many attempts count.
    counted: u8,
    /// A courier said that no further attempt is of use.
    gave_up: bool,
    /// A person has cancelled the entry.
    pub(super) cancelled: bool,
    /// The time limit no longer holds: a person has the entry tried again.
    unlimited: bool,
    pub(super) committed: Option<u8>,
    /// The first rule that a step broke.
    pub(super) broken: Option<&'static str>,
}

/// Stands for attempts whose couriers are gone. No claim has this number.
const GONE: u16 = 1;

pub(super) fn bit(claim: u8) -> u16 {
    1 << claim
}

impl Truth {
    /// Drops what decides nothing from now on, so that equal situations are equal states. `held` are the claims that
    /// couriers still believe to hold.
    pub(super) fn forget_what_is_over(&mut self, now: u8, held: u16, in_doubt: InDoubt) {
        self.lease = self.lease.filter(|until| now < *until);
        self.not_before = if self.not_before <= now { 0 } else { self.not_before };
        self.disowned &= held;
        if self.unsettled & !held != 0 {
            // Which attempt it was no longer matters: no proof can come from it.
            self.unsettled = (self.unsettled & held) | GONE;
        }
        if self.unsettled == 0 {
            self.bound_to = None;
        }
        if in_doubt != InDoubt::Retry {
            (self.known_since, self.first_sent) = (None, None);
        }
    }

    pub(super) fn demand(&mut self, holds: bool, rule: &'static str) {
        if !holds && self.broken.is_none() {
            self.broken = Some(rule);
        }
    }

    /// Whether a courier is at work under a lease.
    pub(super) fn is_running(&self, now: u8) -> bool {
        self.lease.is_some_and(|until| now < until)
    }

    /// Whether an attempt may have happened, and its result is unknown.
    pub(super) fn is_unknown(&self) -> bool {
        self.unsettled != 0 && self.committed.is_none()
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.counted >= MAX_ATTEMPTS || self.gave_up
    }

    pub(super) fn is_late(&self, now: u8, within: Option<u8>) -> bool {
        !self.unlimited && within.is_some_and(|within| now >= within)
    }

    /// Whether the downstream will have forgotten the key before an attempt that begins now is over.
    pub(super) fn is_forgotten(&self, now: u8) -> bool {
        self.first_sent.is_none_or(|first| now + RUNTIME >= first + HONOURS_KEY)
    }

    /// A courier has got the entry.
    pub(super) fn granted(&mut self, claim: u8, now: u8, to: &Destination, probe_first: bool, in_doubt: InDoubt) {
        self.demand(self.committed.is_none(), "a delivered entry was tried again");
        self.demand(!self.cancelled, "a cancelled entry was tried");
        self.demand(!self.is_running(now), "an entry was taken beside a live lease");
        self.demand(now >= self.not_before, "an entry was tried before its time");
        self.demand(self.counted < MAX_ATTEMPTS, "there were more attempts than the entry has");
        if self.unsettled != 0 {
            self.demand(
                self.bound_to.as_ref() == Some(to),
                "an entry in doubt was sent elsewhere, or under another key",
            );
            match in_doubt {
                InDoubt::Probe => self.demand(probe_first, "a doubt was taken over without a probe"),
                InDoubt::Retry => {
                    self.demand(!self.is_forgotten(now), "a retry came after the downstream had forgotten the key");
                }
                _ => self.demand(false, "a held entry was tried again"),
            }
        } else {
            self.bound_to = Some(to.clone());
        }
        self.owner = claim;
        self.counted += 1;
        self.lease = Some(now + LEASE);
        self.sent(claim, now);
    }

    fn sent(&mut self, claim: u8, now: u8) {
        self.unsettled |= bit(claim);
        self.first_sent.get_or_insert(now);
    }

    /// An attempt has its effect. A downstream that honours keys ignores a repeat of the same key that it remembers.
    pub(super) fn acts(&mut self, claim: u8, granted: u8, now: u8, to: &Destination, in_doubt: InDoubt) {
        if self.disowned & bit(claim) != 0 {
            return;
        }
        match (&self.effect, in_doubt) {
            (None, _) => (),
            (Some(_), InDoubt::Hold) => self.demand(false, "an effect happened twice under hold"),
            (Some(first), InDoubt::Retry) => {
                let (same, kept_to_its_time) = (first == to, now <= granted + RUNTIME);
                let is_known = self.known_since.is_some_and(|first| now < first + HONOURS_KEY);
                self.demand(same, "an effect happened twice, under different keys");
                self.demand(is_known || !kept_to_its_time, "an effect came after the downstream had forgotten the key");
            }
            // A slow attempt may follow a probe that found nothing: the settle time of the sink is there for that.
            (Some(_), _) => (),
        }
        self.effect.get_or_insert_with(|| to.clone());
        self.known_since.get_or_insert(now);
    }

    /// A write of a courier succeeded.
    pub(super) fn wrote(&mut self, claim: u8) {
        self.demand(self.owner == claim, "the write of a superseded courier succeeded");
    }

    pub(super) fn renewed(&mut self, claim: u8, now: u8) {
        self.wrote(claim);
        self.lease = Some(now + LEASE);
    }

    pub(super) fn finished(&mut self, claim: u8) {
        self.wrote(claim);
        self.commit(claim);
    }

    /// An attempt has ended without delivering.
    pub(super) fn undelivered(&mut self, claim: u8, now: u8, may_have_happened: bool, after: AfterAttempt) {
        self.wrote(claim);
        self.lease = None;
        if !may_have_happened {
            self.unsettled &= !bit(claim);
        }
        match after {
            AfterAttempt::RetryUncounted => self.counted = self.counted.saturating_sub(1),
            AfterAttempt::GiveUp => self.gave_up = true,
            AfterAttempt::Retry => {}
        }
        self.not_before = now + RETRY_IN;
        if self.counted == 0 && self.unsettled == 0 {
            self.first_sent = None;
        }
    }

    /// A courier has dropped its attempt.
    pub(super) fn dropped(&mut self, claim: u8, now: u8) {
        self.wrote(claim);
        (self.lease, self.not_before) = (None, now);
    }

    /// A probe found nothing downstream.
    pub(super) fn not_found(&mut self, claim: u8, now: u8) {
        self.wrote(claim);
        (self.unsettled, self.first_sent) = (0, None);
        self.sent(claim, now);
    }

    /// A person decided. Couriers that are still at work are superseded.
    fn decided(&mut self, now: u8) {
        self.demand(!self.is_running(now), "a person decided while a courier was at work");
        self.disowned |= self.unsettled;
        (self.owner, self.lease, self.unsettled) = (0, None, 0);
        (self.not_before, self.counted, self.gave_up) = (now, 0, false);
    }

    pub(super) fn happened(&mut self, now: u8, by: u8) {
        self.decided(now);
        self.commit(by);
    }

    pub(super) fn did_not_happen(&mut self, now: u8) {
        self.decided(now);
        self.first_sent = None;
    }

    pub(super) fn requeued(&mut self, now: u8, fresh_key: bool) {
        self.demand(self.unsettled == 0, "an entry was queued again while a doubt was open");
        let first_sent = self.first_sent;
        self.decided(now);
        (self.cancelled, self.unlimited) = (false, true);
        self.first_sent = first_sent.filter(|_| !fresh_key);
    }

    pub(super) fn cancelled(&mut self, now: u8) {
        self.demand(self.unsettled == 0, "an entry was cancelled that may have happened");
        self.demand(!self.is_running(now), "a running entry was cancelled");
        self.cancelled = true;
    }

    /// The record says that the entry is dead.
    pub(super) fn is_dead(&mut self, now: u8, within: Option<u8>) {
        self.demand(self.unsettled == 0, "an entry is dead that may have happened");
        let due = now.max(self.not_before);
        let is_over = self.is_used_up() || self.cancelled || self.is_late(due, within);
        self.demand(is_over, "an entry is dead that has attempts left");
    }

    fn commit(&mut self, by: u8) {
        self.demand(self.committed.is_none(), "a second outcome was committed");
        self.committed = Some(by);
        (self.lease, self.unsettled) = (None, 0);
    }
}
