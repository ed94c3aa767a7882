//! What is promised however the clocks jump, judged from outside: who was let in, whose writes held, who was told what.
//! The judge knows the true time and what each clock may have shown, and nothing of records.

use onceward::InDoubt;

use super::jumpy::Readings;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
pub const HOUR: i64 = 60 * MINUTE;

/// How long things last.
pub const RUNTIME: i64 = MINUTE;
pub const RETENTION: i64 = 24 * HOUR;
pub const MEMORY: i64 = 6 * HOUR;
pub const LONG_MEMORY: i64 = 36 * HOUR;
/// The longest that a released one has to wait.
pub const LONGEST_WAIT: i64 = 10 * MINUTE;

/// What an intent is like.
#[derive(Clone, Copy, Debug)]
pub struct Sort {
    pub in_doubt: InDoubt,
    pub marks: bool,
    pub tombstone: i64,
    /// How long the other side knows the key.
    pub memory: i64,
}

/// What a caller was told.
#[derive(Clone, Debug)]
pub enum Told {
    Run { holder: u64, attempt: u32, probe_first: bool },
    Replay(String),
    NotKept,
    InFlight,
    InDoubt,
}

/// A finished attempt.
#[derive(Clone, Debug)]
struct Done {
    value: String,
    /// From when it is kept: when it was written, by the clock of its owner, or when its record was made if that was later.
    at: Readings,
    /// The latest that a clock showed while somebody swept.
    swept: i64,
}

/// What did not happen, as far as everybody knows, and nobody has begun again.
#[derive(Clone, Copy, Debug)]
struct Untried {
    /// From when it may be tried again, by the clock of whoever wrote it.
    since: Readings,
    /// The latest that a clock showed while somebody swept.
    swept: i64,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    holder: u64,
    /// It may have happened, and nobody has settled it.
    unsettled: bool,
}

/// One intent.
#[derive(Clone, Debug)]
pub struct Case {
    pub sort: Sort,
    attempts: Vec<Attempt>,
    /// When an attempt may first have reached the other side, in truth.
    first_sent: Option<i64>,
    /// When its record was made, by the clock of its first owner.
    made: Option<Readings>,
    /// Who alone may write.
    owner: Option<u64>,
    /// Nobody works on it, and it was given back with a wait.
    waits: bool,
    /// It was given back, or a person said that it did not happen, or a claim has sent nothing yet.
    untried: Option<Untried>,
    /// When the lease of the last claim lapses.
    lapses: Readings,
    done: Option<Done>,
    /// Outcomes of earlier lives of the key: some ledger may have them at hand, and its clock may not have got there.
    past: Vec<Done>,
    pub tally: Tally,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub granted: u64,
    pub replayed: u64,
    pub doubts: u64,
    /// Claims that were granted while the owner before was still at work.
    pub taken_early: u64,
    /// Writes of owners that were superseded.
    pub refused: u64,
    /// Keys that were used anew after their outcome had expired.
    pub anew: u64,
    /// The same of what had not happened.
    pub over: u64,
    pub settled: u64,
}

impl Case {
    pub fn new(sort: Sort) -> Self {
        Self {
            sort,
            attempts: Vec::new(),
            first_sent: None,
            made: None,
            owner: None,
            waits: false,
            untried: None,
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

    /// Somebody asked, and its clock showed these times.
    pub fn told(&mut self, told: &Told, shown: Readings, truth: i64) -> Result<(), String> {
        self.keeps_its_outcome(told, shown)?;
        match told {
            Told::Run { holder, attempt, probe_first } => {
                self.starts_over(*attempt, shown)?;
                if *attempt == 1 {
                    self.made = Some(shown);
                }
                self.granted(*holder, *probe_first, shown, truth)
            }
            Told::Replay(value) => {
                self.tally.replayed += 1;
                self.replayed(value, shown)
            }
            Told::NotKept
                if self.all_done().any(|done| shown.latest.max(done.swept) >= done.at.earliest + RETENTION) =>
            {
                Ok(())
            }
            Told::NotKept => Err("an outcome was dropped that no clock had seen expire".to_owned()),
            Told::InFlight if self.must_be_forgotten(shown) => Err("what is forgotten has to wait".to_owned()),
            Told::InFlight if self.owner.is_some() || self.waits => Ok(()),
            Told::InFlight => Err("it is said to be in flight, and nobody is at it".to_owned()),
            Told::InDoubt if self.is_unsettled() => {
                self.tally.doubts += 1;
                Ok(())
            }
            Told::InDoubt => Err("it is said to be in doubt, and no attempt was sent".to_owned()),
        }
    }

    fn all_done(&self) -> impl Iterator<Item = &Done> {
        self.done.iter().chain(&self.past)
    }

    /// A jump forward and back loses nothing: as long as the clock of whoever asks is short of the end of retention, and
    /// nobody has swept with a clock past it, the answer is the outcome.
    fn keeps_its_outcome(&self, told: &Told, shown: Readings) -> Result<(), String> {
        let Some(done) = &self.done else { return Ok(()) };
        let expiry = done.at.earliest + RETENTION;
        match told {
            Told::Replay(_) => Ok(()),
            _ if shown.latest >= expiry || done.swept >= expiry => Ok(()),
            // A ledger that has an older outcome at hand says what it knows of that one.
            Told::NotKept if !self.past.is_empty() => Ok(()),
            _ => Err(format!("{} is done and has not expired by any clock, but the answer is {told:?}", done.value)),
        }
    }

    fn replayed(&self, value: &str, shown: Readings) -> Result<(), String> {
        match self.all_done().find(|done| done.value == value) {
            None => Err(format!("{value} was replayed, which nobody produced")),
            Some(done) if shown.earliest >= done.at.latest + RETENTION => {
                Err(format!("{value} was replayed by a clock past its retention"))
            }
            Some(_) => Ok(()),
        }
    }

    /// How long what did not happen is remembered: as long as an outcome would have held the key, and as long as the
    /// other side knows it.
    fn remembered_for(&self) -> i64 {
        self.sort.memory.max(RETENTION + self.sort.tombstone)
    }

    /// Whether some clock may have seen the end of what did not happen.
    fn may_be_forgotten(&self, shown: Readings) -> bool {
        let end = |untried: &Untried| untried.since.earliest + self.remembered_for();
        self.untried.is_some_and(|untried| shown.latest.max(untried.swept) >= end(&untried))
    }

    /// Whether whoever asks must have seen it, whatever its clock showed.
    fn must_be_forgotten(&self, shown: Readings) -> bool {
        self.untried.is_some_and(|untried| shown.earliest >= untried.since.latest + self.remembered_for())
    }

    /// Attempts are counted as long as anything is remembered of them, and no longer.
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
            _ if self.must_be_forgotten(shown) => return Err(format!("attempt {attempt} of what is forgotten")),
            _ if !is_known => return Err(format!("attempt {attempt} of what nobody has tried")),
            _ => {}
        }
        Ok(())
    }

    fn granted(&mut self, holder: u64, probe_first: bool, shown: Readings, truth: i64) -> Result<(), String> {
        self.tally.granted += 1;
        if let Some(done) = self.done.take() {
            let end = done.at.earliest + RETENTION + self.sort.tombstone;
            if shown.latest.max(done.swept) < end {
                return Err(format!("{} is done, and it ran again before any clock had seen its end", done.value));
            }
            self.past.push(done);
            (self.attempts, self.first_sent, self.owner) = (Vec::new(), None, None);
            self.tally.anew += 1;
        }
        if self.is_unsettled() {
            match self.sort.in_doubt {
                InDoubt::Hold => return Err("a held intent ran again, and an attempt may have happened".to_owned()),
                InDoubt::Probe if !probe_first => return Err("a doubt was not asked about".to_owned()),
                InDoubt::Probe => {}
                InDoubt::Tell => return Err("a doubt ran again that its caller was not told of".to_owned()),
                // A clock that is set back from an hour ahead to an hour behind lengthens the other side's memory by as
                // much; one that is set back by years does not lengthen it by years.
                InDoubt::Retry => {
                    let ago = self.first_sent.map_or(i64::MAX, |first| truth - first);
                    if ago >= self.sort.memory + 2 * HOUR {
                        return Err(format!("it was tried again {ago} ms after the other side got the key first"));
                    }
                }
            }
        }
        self.tally.taken_early += u64::from(self.owner.is_some());
        self.owner = Some(holder);
        self.waits = false;
        self.untried = None;
        self.attempts.push(Attempt { holder, unsettled: false });
        let lease = 3 * RUNTIME;
        self.lapses = Readings { earliest: shown.earliest + lease, latest: shown.latest + lease };
        if self.sort.marks {
            self.is_untried(lease, shown);
        } else {
            self.may_have_sent(holder, truth);
        }
        Ok(())
    }

    fn may_have_sent(&mut self, holder: u64, truth: i64) {
        self.untried = None;
        self.first_sent.get_or_insert(truth);
        if let Some(attempt) = self.attempts.iter_mut().find(|attempt| attempt.holder == holder) {
            attempt.unsettled = true;
        }
    }

    /// A write of an owner held, or did not: only who was superseded is refused, and whoever was is. A claim that has sent
    /// nothing is forgotten after its time.
    fn wrote(&mut self, holder: u64, held: bool, shown: Readings) -> Result<bool, String> {
        let own = self.is_owned_by(holder);
        if own && !held && self.may_be_forgotten(shown) {
            self.owner = None;
            return Ok(false);
        }
        self.tally.refused += u64::from(!own);
        match (own, held) {
            (true, false) => Err("the write of an owner that nobody superseded was refused".to_owned()),
            (false, true) => Err("the write of a superseded owner held".to_owned()),
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
            if self.sort.marks {
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

    /// Nobody works on it, and if nothing of it is in doubt, nothing has happened.
    fn is_untried(&mut self, wait: i64, shown: Readings) {
        let since = Readings { earliest: shown.earliest + wait, latest: shown.latest + wait };
        self.untried = (!self.is_unsettled()).then_some(Untried { since, swept: i64::MIN });
    }

    /// A person has decided.
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

    /// Where the clock was set back since the record was made, the outcome is kept from then.
    fn is_done(&mut self, value: &str, shown: Readings) {
        let made = self.made.unwrap_or(shown);
        let at = Readings { earliest: shown.earliest.max(made.earliest), latest: shown.latest.max(made.latest) };
        self.settle();
        self.owner = None;
        self.untried = None;
        self.done = Some(Done { value: value.to_owned(), at, swept: i64::MIN });
    }

    fn settle(&mut self) {
        self.attempts.iter_mut().for_each(|attempt| attempt.unsettled = false);
        self.first_sent = None;
    }

    /// Somebody swept, with a clock that showed these times.
    pub fn swept(&mut self, shown: Readings) {
        for done in self.done.iter_mut().chain(&mut self.past) {
            done.swept = done.swept.max(shown.latest);
        }
        if let Some(untried) = &mut self.untried {
            untried.swept = untried.swept.max(shown.latest);
        }
    }
}
