//! What really happened, kept apart from the record, and which rules a step broke.

use onceward::InDoubt;

/// A set of attempts: one bit for each claim.
pub(super) type Attempts = u16;

/// What really happened since the key was last used for the first time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Truth {
    /// Attempts that were sent, and whose result is unknown.
    pub(super) unsettled: Attempts,
    /// An attempt has had an effect since the last doubt was settled.
    pub(super) acted: bool,
    /// Since when the downstream remembers the key, under `retry`: from the first effect on.
    known_since: Option<u8>,
    /// Until when the lease of the owner lasts.
    lease: Option<u8>,
    /// When an attempt was first sent.
    pub(super) first_sent: Option<u8>,
    /// The claim that alone may write: the last one granted; 0 after an operator has decided.
    pub(super) owner: u8,
    /// When the last attempt was released or resolved as not happened, or when a claim that has sent nothing lapses;
    /// with nothing in doubt, and before the next begin.
    pub(super) given_back: Option<u8>,
    /// When the last claim that has sent nothing lapses.
    lapses: u8,
    /// The outcome, by the claim that committed it, and when.
    pub(super) committed: Option<(u8, u8)>,
    /// The caller has got the answer of the record: the outcome, or that it is unknown.
    pub(super) told: bool,
    /// How often the key was used again; more than once counts as once.
    pub(super) eras: u8,
    /// A superseded owner was refused.
    pub(super) superseded: bool,
    /// The first rule that a step broke.
    pub(super) broken: Option<&'static str>,
}

/// How long things last, in ticks.
pub(super) const RETENTION: u8 = 2;
pub(super) const TOMBSTONE: u8 = 1;
pub(super) const HONOURS_KEY: u8 = 4;
pub(super) const LEASE: u8 = 3;

/// The longest that an attempt may take, as its policy promises.
pub(super) const RUNTIME: u8 = 1;

/// How long an attempt that did not happen is remembered: as long as an outcome holds the key, and as long as the
/// downstream knows it.
const UNTRIED: u8 = if RETENTION + TOMBSTONE > HONOURS_KEY { RETENTION + TOMBSTONE } else { HONOURS_KEY };

fn bit(claim: u8) -> Attempts {
    1 << claim
}

impl Truth {
    fn demand(&mut self, holds: bool, rule: &'static str) {
        if !holds && self.broken.is_none() {
            self.broken = Some(rule);
        }
    }

    /// Whether an owner is at work.
    pub(super) fn is_running(&self, now: u8) -> bool {
        self.lease.is_some_and(|until| now < until)
    }

    /// Whether an attempt may have happened, and its result is unknown.
    pub(super) fn is_unknown(&self) -> bool {
        self.unsettled != 0 && self.committed.is_none()
    }

    /// A claim was granted.
    pub(super) fn granted(&mut self, claim: u8, now: u8, probe_first: bool, in_doubt: InDoubt) {
        self.demand(!self.is_running(now), "a claim was granted beside a live lease");
        if let Some((_, at)) = self.committed {
            let is_over = now >= at + RETENTION + TOMBSTONE;
            self.demand(is_over || self.told, "finished work ran again before its outcome was delivered");
            self.start_over();
            self.eras = 1;
        }
        if self.is_untried(now) {
            self.start_over();
        }
        self.given_back = None;
        if self.unsettled != 0 {
            match in_doubt {
                InDoubt::Hold => self.demand(false, "a held intent ran again"),
                InDoubt::Probe => self.demand(probe_first, "a doubt was taken over without a probe"),
                InDoubt::Tell => self.demand(self.told, "a doubt ran again before its caller was told"),
                InDoubt::Retry => {
                    let known = self.first_sent.is_some_and(|first| now < first + HONOURS_KEY);
                    self.demand(known, "a retry came after the downstream had forgotten the key");
                }
            }
        }
        self.owner = claim;
        self.told = false;
        self.lease = Some(now + LEASE);
    }

    /// A claim was not granted.
    pub(super) fn refused(&mut self, now: u8) {
        let held_back = self.told && !self.is_running(now);
        self.demand(!held_back, "a call after a delivered answer was held back");
    }

    /// It was recorded whether the caller got the answer to this claim.
    pub(super) fn delivered(&mut self, claim: u8, now: u8, arrived: bool) {
        let has_answer = self.committed.is_some() || self.is_unknown();
        self.demand(self.owner == claim, "the answer to another claim was delivered");
        self.demand(has_answer && !self.is_running(now), "an answer was delivered before there was one");
        self.told = arrived;
    }

    /// An attempt has its effect. An attempt that kept to its time must not reach a downstream that has forgotten the
    /// first one. An effect after an operator said that it did not happen contradicts the operator, not the ledger.
    pub(super) fn acts(&mut self, claim: u8, granted: u8, now: u8, in_doubt: InDoubt) {
        self.acted = true;
        if in_doubt != InDoubt::Retry || self.unsettled & bit(claim) == 0 {
            return;
        }
        let first = *self.known_since.get_or_insert(now);
        let is_double = now >= first + HONOURS_KEY && now <= granted + RUNTIME;
        self.demand(!is_double, "an effect arrived after the downstream had forgotten the key");
    }

    /// The lease was renewed.
    pub(super) fn renewed(&mut self, claim: u8, now: u8) {
        self.wrote(claim);
        self.lease = Some(now + LEASE);
    }

    /// The owner does not know the result of its attempt.
    pub(super) fn doubted(&mut self, claim: u8) {
        let told = self.told;
        self.wrote(claim);
        // The caller may have been told already of an attempt that lapsed.
        self.told = told;
        self.lease = None;
    }

    /// The same for an attempt that has sent nothing. An older doubt stays, and so does whether its caller was told.
    pub(super) fn doubted_nothing(&mut self, claim: u8, now: u8) {
        let told = self.told;
        self.released(claim, now);
        self.told = told;
    }

    /// A claim that has sent nothing was granted or renewed.
    pub(super) fn claimed(&mut self, now: u8) {
        self.lapses = now + LEASE;
        self.given_back = (self.unsettled == 0).then_some(self.lapses);
    }

    /// An attempt was sent, as far as the record knows.
    pub(super) fn sent(&mut self, claim: u8, now: u8) {
        (self.given_back, self.lapses) = (None, 0);
        self.unsettled |= bit(claim);
        self.first_sent.get_or_insert(now);
    }

    /// A write of an owner succeeded.
    pub(super) fn wrote(&mut self, claim: u8) {
        self.demand(self.owner == claim, "the write of a superseded owner succeeded");
        self.told = false;
    }

    pub(super) fn finished(&mut self, claim: u8, now: u8) {
        self.wrote(claim);
        self.commit(claim, now);
    }

    /// An attempt is proven to have done nothing.
    pub(super) fn released(&mut self, claim: u8, now: u8) {
        self.wrote(claim);
        self.lease = None;
        self.unsettled &= !bit(claim);
        self.lapses = 0;
        self.given_back = (self.unsettled == 0).then_some(now);
    }

    /// Whether nothing has happened for so long that the intent counts as new.
    pub(super) fn is_untried(&self, now: u8) -> bool {
        self.given_back.is_some_and(|at| now >= at + UNTRIED)
    }

    /// The key starts over, and nothing is known of it.
    fn start_over(&mut self) {
        let Self { eras, superseded, broken, .. } = *self;
        *self = Self { eras, superseded, broken, ..Self::default() };
    }

    /// A probe found nothing downstream.
    pub(super) fn not_found(&mut self, claim: u8, now: u8, is_sent: bool) {
        self.wrote(claim);
        self.unsettled = 0;
        self.first_sent = None;
        if is_sent {
            self.sent(claim, now);
        } else {
            self.given_back = Some(self.lapses.max(now));
        }
    }

    /// An operator decided.
    pub(super) fn resolved(&mut self, happened: Option<u8>, now: u8) {
        self.demand(!self.is_running(now), "an operator decided while an owner was at work");
        (self.owner, self.told) = (0, false);
        self.lease = None;
        match happened {
            Some(claim) => self.commit(claim, now),
            None => {
                self.unsettled = 0;
                self.first_sent = None;
                (self.given_back, self.lapses) = (Some(now), 0);
            }
        }
    }

    fn commit(&mut self, claim: u8, now: u8) {
        self.demand(self.committed.is_none(), "a second outcome was committed");
        self.committed = Some((claim, now));
        self.lease = None;
        (self.given_back, self.lapses) = (None, 0);
        self.unsettled = 0;
    }

    /// The sweeper dropped the outcome, or the whole record.
    pub(super) fn swept(&mut self, now: u8, removed: bool) {
        if removed && self.is_untried(now) {
            return self.start_over();
        }
        let after = RETENTION + if removed { TOMBSTONE } else { 0 };
        let over = self.committed.is_some_and(|(_, at)| now >= at + after);
        self.demand(over, "something was swept before its time");
    }

    /// The sweeper left the record.
    pub(super) fn left(&mut self, now: u8) {
        self.demand(!self.is_untried(now), "an attempt that did not happen is kept for ever");
    }
}
