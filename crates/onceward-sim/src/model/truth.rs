//! What really happened, kept apart from the record, and which rules a step broke.

use onceward::InDoubt;

/// Bits, one for each claim: which attempts.
pub(super) type Attempts = u16;

/// What really happened in the present life of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Truth {
    /// Attempts that were sent, and of which nothing is known.
    pub(super) unsettled: Attempts,
    /// An attempt has acted on the outside world since the last doubt was settled.
    pub(super) acted: bool,
    /// Since when the other side remembers the key, under `retry`: from the first effect on.
    known_since: Option<u8>,
    /// Until when the lease of the owner lasts.
    lease: Option<u8>,
    /// When an attempt was first sent.
    pub(super) first_sent: Option<u8>,
    /// Who alone may write: the last claim that was granted; 0 after a person has decided.
    pub(super) owner: u8,
    /// When the last attempt was given back, or a person said that it did not happen, or a claim lapses that has sent
    /// nothing; with nothing in doubt, and nobody has begun again since.
    pub(super) given_back: Option<u8>,
    /// When the lease of the last claim lapses that has sent nothing.
    lapses: u8,
    /// The outcome, by the claim that committed it, and when.
    pub(super) committed: Option<(u8, u8)>,
    /// The caller has got the answer that the record stands for: the outcome, or that it is unknown.
    pub(super) told: bool,
    /// How often the key was used anew; more than once is as good as once.
    pub(super) eras: u8,
    /// A superseded owner was turned away.
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

/// How long what did not happen is remembered: as long as an outcome holds the key, and as long as the other side knows it.
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

    /// Whether somebody works on it.
    pub(super) fn is_running(&self, now: u8) -> bool {
        self.lease.is_some_and(|until| now < until)
    }

    /// Whether an attempt may have happened, and nothing is known of it.
    pub(super) fn is_unknown(&self) -> bool {
        self.unsettled != 0 && self.committed.is_none()
    }

    /// A claim was granted.
    pub(super) fn granted(&mut self, claim: u8, now: u8, probe_first: bool, in_doubt: InDoubt) {
        self.demand(!self.is_running(now), "a claim was granted beside a lease that lives");
        if let Some((_, at)) = self.committed {
            let is_over = now >= at + RETENTION + TOMBSTONE;
            self.demand(is_over || self.told, "finished work ran again whose outcome was not delivered");
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
                InDoubt::Probe => self.demand(probe_first, "a doubt was not asked about"),
                InDoubt::Tell => self.demand(self.told, "a doubt ran again that its caller was not told of"),
                InDoubt::Retry => {
                    let known = self.first_sent.is_some_and(|first| now < first + HONOURS_KEY);
                    self.demand(known, "a retry came after the other side had forgotten the key");
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

    /// An attempt acts. One that kept to its time must not reach an other side that has forgotten the first one. What
    /// acts after a person said that it did not happen contradicts that person, and not the ledger.
    pub(super) fn acts(&mut self, claim: u8, granted: u8, now: u8, in_doubt: InDoubt) {
        self.acted = true;
        if in_doubt != InDoubt::Retry || self.unsettled & bit(claim) == 0 {
            return;
        }
        let first = *self.known_since.get_or_insert(now);
        let is_double = now >= first + HONOURS_KEY && now <= granted + RUNTIME;
        self.demand(!is_double, "an effect arrived after the other side had forgotten the key");
    }

    /// The lease was renewed.
    pub(super) fn renewed(&mut self, claim: u8, now: u8) {
        self.wrote(claim);
        self.lease = Some(now + LEASE);
    }

    /// The owner does not know what came of its attempt.
    pub(super) fn doubted(&mut self, claim: u8) {
        let told = self.told;
        self.wrote(claim);
        // Of an attempt that lapsed the caller may have been told already.
        self.told = told;
        self.lease = None;
    }

    /// The same of an attempt that has sent nothing. An older doubt stays, and whether its caller was told of it.
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

    /// A write of an owner held.
    pub(super) fn wrote(&mut self, claim: u8) {
        self.demand(self.owner == claim, "a superseded owner's write held");
        self.told = false;
    }

    pub(super) fn finished(&mut self, claim: u8, now: u8) {
        self.wrote(claim);
        self.commit(claim, now);
    }

    /// An attempt was proven to have done nothing.
    pub(super) fn released(&mut self, claim: u8, now: u8) {
        self.wrote(claim);
        self.lease = None;
        self.unsettled &= !bit(claim);
        self.lapses = 0;
        self.given_back = (self.unsettled == 0).then_some(now);
    }

    /// Whether nothing has happened for so long that it is as if nobody had ever asked.
    pub(super) fn is_untried(&self, now: u8) -> bool {
        self.given_back.is_some_and(|at| now >= at + UNTRIED)
    }

    /// Another life of the key, of which nothing is known yet.
    fn start_over(&mut self) {
        let Self { eras, superseded, broken, .. } = *self;
        *self = Self { eras, superseded, broken, ..Self::default() };
    }

    /// The other side was asked, and knows of nothing.
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

    /// A person decided.
    pub(super) fn resolved(&mut self, happened: Option<u8>, now: u8) {
        self.demand(!self.is_running(now), "a person decided while somebody worked");
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

    /// The sweeper left what is there.
    pub(super) fn left(&mut self, now: u8) {
        self.demand(!self.is_untried(now), "what did not happen is kept for ever");
    }
}
