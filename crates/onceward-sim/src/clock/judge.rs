//! Judges the promises that hold however the clocks jump, from outside: which claims were granted, which writes
//! succeeded, which answers were given. The judge knows the true time and what each clock may have shown, and nothing
//! of records.

use onceward::InDoubt;

use super::jumping_clock::Readings;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;

/// Durations, in milliseconds.
pub const RUNTIME: i64 = MINUTE;
pub const RETENTION: i64 = 24 * HOUR;
pub const MEMORY: i64 = 6 * HOUR;
pub const LONG_MEMORY: i64 = 36 * HOUR;
/// The longest wait that a release asks for.
pub const LONGEST_WAIT: i64 = 10 * MINUTE;

/// The policy of an intent.
#[derive(Clone, Copy, Debug)]
pub struct IntentKind {
    pub in_doubt: InDoubt,
    pub marks: bool,
    pub tombstone: i64,
    /// How long the downstream remembers the key.
    pub memory: i64,
}

/// The answer to a begin.
#[derive(Clone, Debug)]
pub enum Response {
    Run { holder: u64, attempt: u32, probe_first: bool },
    Replay(String),
    NotKept,
    InFlight,
    InDoubt,
}

/// A finished attempt.
#[derive(Clone, Debug)]
struct Finished {
    value: String,
    /// From when it is kept: when it was written, by the clock of its owner, or when its record was created if that was
    /// later.
    at: Readings,
    /// The latest time that a clock showed during a sweep.
    swept: i64,
}

/// An attempt that is known not to have happened, before the next begin.
#[derive(Clone, Copy, Debug)]
struct NotHappened {
    /// From when it may be tried again, by the clock of its writer.
    since: Readings,
    /// The latest time that a clock showed during a sweep.
    swept: i64,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    holder: u64,
    /// It may have happened, and is not settled.
    unsettled: bool,
}

/// One intent.
#[derive(Clone, Debug)]
pub struct IntentJudge {
    pub kind: IntentKind,
    attempts: Vec<Attempt>,
    /// When an attempt may first have reached the downstream, in true time.
    first_sent: Option<i64>,
    /// When its record was created, by the clock of its first owner.
    made: Option<Readings>,
    /// The holder that alone may write.
    owner: Option<u64>,
    /// It has no owner, and was released with a wait.
    waits: bool,
    /// It was released or resolved as not happened, or its claim has sent nothing yet.
    not_happened: Option<NotHappened>,
    /// When the lease of the last claim lapses.
    lapses: Readings,
    done: Option<Finished>,
    /// Outcomes from before the key was used again: a ledger may have them cached, and its clock may not have reached
    /// their end.
    past: Vec<Finished>,
    pub tally: Tally,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub granted: u64,
    pub replayed: u64,
    pub doubts: u64,
    /// Claims that were granted while the previous owner was still at work.
    pub taken_early: u64,
    /// Writes of owners that were superseded.
    pub refused: u64,
    /// Keys that were used again after their outcome had expired.
    pub anew: u64,
    /// The same for attempts that had not happened.
    pub over: u64,
    pub settled: u64,
}

impl IntentJudge {
    pub fn new(kind: IntentKind) -> Self {
        Self {
            kind,
            attempts: Vec::new(),
            first_sent: None,
            made: None,
            owner: None,
            waits: false,
            not_happened: None,
            lapses: Readings { earliest: 0, latest: 0 },
            done: None,
            past: Vec::new(),
            tally: Tally::default(),
        }
    }

    pub fn is_owned_by(&self, holder: u64) -> bool {
        self.owner == Some(holder)
    }

    fn is_unsettled(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.unsettled)
    }

    /// Judges an answer to a caller whose clock showed these times.
    pub fn response(&mut self, response: &Response, shown: Readings, truth: i64) -> Result<(), String> {
        self.keeps_its_outcome(response, shown)?;
        match response {
            Response::Run { holder, attempt, probe_first } => {
                self.starts_over(*attempt, shown)?;
                if *attempt == 1 {
                    self.made = Some(shown);
                }
                self.granted(*holder, *probe_first, shown, truth)
            }
            Response::Replay(value) => {
                self.tally.replayed += 1;
                self.replayed(value, shown)
            }
            Response::NotKept
                if self.all_done().any(|done| shown.latest.max(done.swept) >= done.at.earliest + RETENTION) =>
            {
                Ok(())
            }
            Response::NotKept => Err("an outcome was dropped that no clock had seen expire".to_owned()),
            Response::InFlight if self.must_be_forgotten(shown) => {
                Err("a caller must wait for an attempt that is forgotten".to_owned())
            }
            Response::InFlight if self.owner.is_some() || self.waits => Ok(()),
            Response::InFlight => Err("the answer is in flight, and there is no owner".to_owned()),
            Response::InDoubt if self.is_unsettled() => {
                self.tally.doubts += 1;
                Ok(())
            }
            Response::InDoubt => Err("the answer is in doubt, and no attempt was sent".to_owned()),
        }
    }

    fn all_done(&self) -> impl Iterator<Item = &Finished> {
        self.done.iter().chain(&self.past)
    }

    /// A jump forward and back loses nothing: while the clock of the caller is before the end of retention, and no
    /// sweep used a clock past it, the answer is the outcome.
    fn keeps_its_outcome(&self, response: &Response, shown: Readings) -> Result<(), String> {
        let Some(done) = &self.done else { return Ok(()) };
        let expiry = done.at.earliest + RETENTION;
        match response {
            Response::Replay(_) => Ok(()),
            _ if shown.latest >= expiry || done.swept >= expiry => Ok(()),
            // A ledger with an older outcome in its cache answers from that one.
            Response::NotKept if !self.past.is_empty() => Ok(()),
            _ => {
                Err(format!("{} is done and has not expired by any clock, but the answer is {response:?}", done.value))
            }
        }
    }

    fn replayed(&self, value: &str, shown: Readings) -> Result<(), String> {
        match self.all_done().find(|done| done.value == value) {
            None => Err(format!("{value} was replayed, and no attempt produced it")),
            Some(done) if shown.earliest >= done.at.latest + RETENTION => {
                Err(format!("{value} was replayed by a clock past its retention"))
            }
            Some(_) => Ok(()),
        }
    }

    /// How long an attempt that did not happen is remembered: as long as an outcome would have held the key, and as
    /// long as the downstream knows it.
    fn remembered_for(&self) -> i64 {
        self.kind.memory.max(RETENTION + self.kind.tombstone)
    }

    /// Whether some clock may have seen the end of that time.
    fn may_be_forgotten(&self, shown: Readings) -> bool {
        let end = |not_happened: &NotHappened| not_happened.since.earliest + self.remembered_for();
        self.not_happened.is_some_and(|not_happened| shown.latest.max(not_happened.swept) >= end(&not_happened))
    }

    /// Whether the caller must have seen it, whatever its clock showed.
    fn must_be_forgotten(&self, shown: Readings) -> bool {
        self.not_happened
            .is_some_and(|not_happened| shown.earliest >= not_happened.since.latest + self.remembered_for())
    }

    /// Attempts are counted for as long as they are remembered, and no longer.
    fn starts_over(&mut self, attempt: u32, shown: Readings) -> Result<(), String> {
        let is_known = !self.attempts.is_empty() && self.done.is_none();
        match attempt {
            1 if is_known && !self.may_be_forgotten(shown) => {
                return Err("it started over before any clock had seen its end".to_owned());
            }
            1 if is_known => {
                (self.attempts, self.first_sent) = (Vec::new(), None);
                self.tally.over += 1;
            }
            1 => {}
            _ if self.must_be_forgotten(shown) => {
                return Err(format!("attempt {attempt} of an intent that is forgotten"));
            }
            _ if !is_known => return Err(format!("attempt {attempt} of an intent that was never tried")),
            _ => {}
        }
        Ok(())
    }

    fn granted(&mut self, holder: u64, probe_first: bool, shown: Readings, truth: i64) -> Result<(), String> {
        self.tally.granted += 1;
        if let Some(done) = self.done.take() {
            let end = done.at.earliest + RETENTION + self.kind.tombstone;
            if shown.latest.max(done.swept) < end {
                return Err(format!("{} is done, and it ran again before any clock had seen its end", done.value));
            }
            self.past.push(done);
            (self.attempts, self.first_sent, self.owner) = (Vec::new(), None, None);
            self.tally.anew += 1;
        }
        if self.is_unsettled() {
            match self.kind.in_doubt {
                InDoubt::Hold => return Err("a held intent ran again, and an attempt may have happened".to_owned()),
                InDoubt::Probe if !probe_first => return Err("a doubt was taken over without a probe".to_owned()),
                InDoubt::Probe => {}
                InDoubt::Tell => return Err("a doubt ran again before its caller was told".to_owned()),
                // A clock that is set back from an hour ahead to an hour behind lengthens the downstream's memory by as
                // much; a clock that is set back by years does not lengthen it by years.
                InDoubt::Retry => {
                    let ago = self.first_sent.map_or(i64::MAX, |first| truth - first);
                    if ago >= self.kind.memory + 2 * HOUR {
                        return Err(format!("it was tried again {ago} ms after the downstream got the key first"));
                    }
                }
            }
        }
        self.tally.taken_early += u64::from(self.owner.is_some());
        self.owner = Some(holder);
        self.waits = false;
        self.not_happened = None;
        self.attempts.push(Attempt { holder, unsettled: false });
        let lease = 3 * RUNTIME;
        self.lapses = Readings { earliest: shown.earliest + lease, latest: shown.latest + lease };
        if self.kind.marks {
            self.is_untried(lease, shown);
        } else {
            self.may_have_sent(holder, truth);
        }
        Ok(())
    }

    fn may_have_sent(&mut self, holder: u64, truth: i64) {
        self.not_happened = None;
        self.first_sent.get_or_insert(truth);
        if let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.holder == holder) {
            attempt.unsettled = true;
        }
    }

    /// Judges whether the write of an owner succeeded: writes of superseded owners are refused, and no others. A claim
    /// that has sent nothing is forgotten after its time.
    fn wrote(&mut self, holder: u64, held: bool, shown: Readings) -> Result<bool, String> {
        let own = self.is_owned_by(holder);
        if own && !held && self.may_be_forgotten(shown) {
            self.owner = None;
            return Ok(false);
        }
        self.tally.refused += u64::from(!own);
        match (own, held) {
            (true, false) => Err("the write of a current owner was refused".to_owned()),
            (false, true) => Err("the write of a superseded owner succeeded".to_owned()),
            _ => Ok(own),
        }
    }

    pub fn sent(&mut self, holder: u64, held: bool, shown: Readings, truth: i64) -> Result<(), String> {
        if self.wrote(holder, held, shown)? {
            self.may_have_sent(holder, truth);
        }
        Ok(())
    }

    pub fn not_found(&mut self, holder: u64, held: bool, shown: Readings, truth: i64) -> Result<(), String> {
        if self.wrote(holder, held, shown)? {
            self.settle();
            if self.kind.marks {
                let Readings { earliest, latest } = self.lapses;
                let since = Readings { earliest: earliest.max(shown.earliest), latest: latest.max(shown.latest) };
                self.is_untried(0, since);
            } else {
                self.may_have_sent(holder, truth);
            }
        }
        Ok(())
    }

    pub fn finished(&mut self, holder: u64, held: bool, value: &str, shown: Readings) -> Result<(), String> {
        if self.wrote(holder, held, shown)? {
            self.is_done(value, shown);
        }
        Ok(())
    }

    pub fn released(&mut self, holder: u64, held: bool, wait: i64, shown: Readings) -> Result<(), String> {
        if self.wrote(holder, held, shown)? {
            self.owner = None;
            self.waits = wait > 0;
            if let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.holder == holder) {
                attempt.unsettled = false;
            }
            self.is_untried(wait, shown);
        }
        Ok(())
    }

    pub fn doubted(&mut self, holder: u64, held: bool, shown: Readings) -> Result<(), String> {
        if self.wrote(holder, held, shown)? {
            self.owner = None;
            self.is_untried(0, shown);
        }
        Ok(())
    }

    /// It has no owner; if nothing is in doubt, nothing has happened.
    fn is_untried(&mut self, wait: i64, shown: Readings) {
        let since = Readings { earliest: shown.earliest + wait, latest: shown.latest + wait };
        self.not_happened = (!self.is_unsettled()).then_some(NotHappened { since, swept: i64::MIN });
    }

    /// An operator has decided.
    pub fn resolved(&mut self, happened: Option<&str>, shown: Readings) {
        self.tally.settled += 1;
        match happened {
            Some(value) => self.is_done(value, shown),
            None => {
                self.settle();
                self.is_untried(0, shown);
            }
        }
        self.owner = None;
        self.waits = false;
    }

    /// Where the clock was set back since the record was created, the outcome is kept from then on.
    fn is_done(&mut self, value: &str, shown: Readings) {
        let made = self.made.unwrap_or(shown);
        let at = Readings { earliest: shown.earliest.max(made.earliest), latest: shown.latest.max(made.latest) };
        self.settle();
        self.owner = None;
        self.not_happened = None;
        self.done = Some(Finished { value: value.to_owned(), at, swept: i64::MIN });
    }

    fn settle(&mut self) {
        self.attempts.iter_mut().for_each(|attempt| attempt.unsettled = false);
        self.first_sent = None;
    }

    /// A sweep took place, with a clock that showed these times.
    pub fn swept(&mut self, shown: Readings) {
        for done in self.done.iter_mut().chain(&mut self.past) {
            done.swept = done.swept.max(shown.latest);
        }
        if let Some(not_happened) = &mut self.not_happened {
            not_happened.swept = not_happened.swept.max(shown.latest);
        }
    }
}
