//! The oracle: what has become of one intent, and what whoever asks must be told. Written from the promises; it knows
//! neither records nor fences nor versions.

use onceward::InDoubt;

/// How long things last, in milliseconds.
pub const RUNTIME: i64 = 60_000;
pub const LEASE: i64 = 3 * RUNTIME;
pub const RETENTION: i64 = 600_000;
pub const TOMBSTONE: i64 = 600_000;
pub const MEMORY: i64 = 1_000_000;

/// What governs an intent from its first call on.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub in_doubt: InDoubt,
    /// How long the key is held after the outcome is dropped.
    pub tombstone: i64,
}

/// Somebody who wants to do the work.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Which request comes with the key.
    pub request: u64,
    pub terms: Terms,
    /// It marks `sent` itself.
    pub marks: bool,
}

/// What a caller must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Run { attempt: u32, generation: u32, probe_first: bool },
    Replay { outcome: Kept, expires_at: i64 },
    NotKept,
    InFlight { running: bool },
    InDoubt,
    Mismatch,
}

/// An outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub success: bool,
    pub text: String,
}

/// What a person must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    Yes,
    Absent,
    Running,
    Changed,
    NothingToDo,
}

/// What a person says.
#[derive(Clone, Debug)]
pub enum Word {
    Happened(Kept),
    DidNotHappen,
    Reset,
}

/// How it stands at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Free,
    Open { not_before: i64 },
    Running,
    InDoubt,
    Done,
    Tombstone,
}

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Free,
    /// Given back, or said not to have happened, at this time.
    Open {
        at: i64,
        not_before: i64,
    },
    /// A claim that was granted to this holder and that nobody has ended.
    Held {
        holder: u64,
        sent: bool,
        until: i64,
    },
    InDoubt,
    /// `None` for an outcome that was too large to keep.
    Done {
        outcome: Option<Kept>,
        at: i64,
    },
}

/// One intent.
#[derive(Clone, Debug)]
pub struct Life {
    state: State,
    /// `None` after a reset: the next request brings its own.
    request: Option<u64>,
    terms: Terms,
    attempts: u32,
    generation: u32,
    first_sent: Option<i64>,
    /// An earlier attempt may have happened, and nobody has settled it.
    doubt: bool,
}

impl Default for Life {
    fn default() -> Self {
        Self {
            state: State::Free,
            request: None,
            terms: Terms { in_doubt: InDoubt::Hold, tombstone: 0 },
            attempts: 0,
            generation: 0,
            first_sent: None,
            doubt: false,
        }
    }
}

/// What lets less happen: hold, then probe, then retry.
fn stricter(one: InDoubt, other: InDoubt) -> InDoubt {
    [InDoubt::Hold, InDoubt::Probe, InDoubt::Tell]
        .into_iter()
        .find(|strict| [one, other].contains(strict))
        .unwrap_or(InDoubt::Retry)
}

impl Life {
    pub fn standing(&self, now: i64) -> Standing {
        match &self.state {
            State::Free => Standing::Free,
            State::Open { at, not_before } if now >= self.remembered_until(*at, *not_before) => Standing::Free,
            State::Open { not_before, .. } => Standing::Open { not_before: *not_before },
            State::InDoubt => Standing::InDoubt,
            State::Held { until, .. } if now < *until => Standing::Running,
            State::Held { sent: false, until, .. } if !self.doubt && now >= self.remembered_until(*until, 0) => {
                Standing::Free
            }
            State::Held { sent, .. } if *sent || self.doubt => Standing::InDoubt,
            State::Held { .. } => Standing::Open { not_before: now },
            State::Done { at, .. } if now < at + RETENTION => Standing::Done,
            State::Done { at, .. } if now < at + RETENTION + self.terms.tombstone => Standing::Tombstone,
            State::Done { .. } => Standing::Free,
        }
    }

    /// What did not happen is forgotten once its outcome would have been, and the other side has forgotten its key.
    fn remembered_until(&self, at: i64, not_before: i64) -> i64 {
        at.max(not_before) + MEMORY.max(RETENTION + self.terms.tombstone)
    }

    /// Whether the next claim is the first again, of an intent that was never done.
    pub fn starts_over(&self, now: i64) -> bool {
        matches!(self.state, State::Open { .. } | State::Held { .. }) && self.standing(now) == Standing::Free
    }

    /// Somebody asks for the claim; if it is granted, `holder` has it.
    pub fn begin(&mut self, now: i64, caller: Caller, holder: u64) -> Told {
        let standing = self.standing(now);
        if standing == Standing::Free {
            *self = Self { request: Some(caller.request), terms: caller.terms, ..Self::default() };
            return self.grant(now, caller, holder, false);
        }
        if self.request.is_some_and(|request| request != caller.request) {
            return Told::Mismatch;
        }
        match standing {
            Standing::Open { not_before } if not_before <= now => {
                if self.request.is_none() {
                    (self.request, self.terms) = (Some(caller.request), caller.terms);
                }
                self.grant(now, caller, holder, false)
            }
            Standing::InDoubt if self.may_go_on(now, caller.terms.in_doubt) => {
                self.doubt = true;
                let probe_first = [self.terms.in_doubt, caller.terms.in_doubt].contains(&InDoubt::Probe);
                self.grant(now, caller, holder, probe_first)
            }
            Standing::Open { .. } => Told::InFlight { running: false },
            Standing::Running => Told::InFlight { running: true },
            Standing::InDoubt => Told::InDoubt,
            Standing::Done | Standing::Tombstone | Standing::Free => self.told_of_done(standing),
        }
    }

    fn told_of_done(&self, standing: Standing) -> Told {
        match &self.state {
            State::Done { outcome: Some(outcome), at } if standing == Standing::Done => {
                Told::Replay { outcome: outcome.clone(), expires_at: at + RETENTION }
            }
            _ => Told::NotKept,
        }
    }

    /// Both the first caller and this one must permit it.
    fn may_go_on(&self, now: i64, by_caller: InDoubt) -> bool {
        match (self.terms.in_doubt, by_caller) {
            (InDoubt::Hold, _) | (_, InDoubt::Hold) => false,
            (InDoubt::Probe, _) | (_, InDoubt::Probe) => true,
            // No caller here is told of a doubt.
            (InDoubt::Tell, _) | (_, InDoubt::Tell) => false,
            (InDoubt::Retry, InDoubt::Retry) => self.first_sent.is_some_and(|first| now + RUNTIME < first + MEMORY),
        }
    }

    fn grant(&mut self, now: i64, caller: Caller, holder: u64, probe_first: bool) -> Told {
        self.attempts += 1;
        self.terms.in_doubt = stricter(self.terms.in_doubt, caller.terms.in_doubt);
        if !caller.marks {
            self.first_sent.get_or_insert(now);
        }
        self.state = State::Held { holder, sent: !caller.marks, until: now + LEASE };
        Told::Run { attempt: self.attempts, generation: self.generation, probe_first }
    }

    /// Whether this holder may still write.
    pub fn is_held_by(&self, holder: u64) -> bool {
        matches!(self.state, State::Held { holder: owner, .. } if owner == holder)
    }

    /// Whether the sweeper may have taken the claim of this holder, which has sent nothing. If it has not, the holder may go
    /// on.
    pub fn may_be_swept(&self, now: i64, holder: u64) -> bool {
        self.is_held_by(holder) && self.standing(now) == Standing::Free
    }

    /// The sweeper has taken it.
    pub fn swept(&mut self) {
        *self = Self::default();
    }

    /// Each of these says whether the write of the holder must hold.
    pub fn sent(&mut self, now: i64, by: u64) -> bool {
        match &mut self.state {
            State::Held { holder, sent, until } if *holder == by => {
                (*sent, *until) = (true, now + LEASE);
                self.first_sent.get_or_insert(now);
                true
            }
            _ => false,
        }
    }

    pub fn not_found(&mut self, now: i64, by: u64) -> bool {
        match &mut self.state {
            State::Held { holder, sent, until } if *holder == by => {
                // Remembered from here on, if the lease is over already.
                let sent = *sent;
                *until = (*until).max(now);
                self.doubt = false;
                self.first_sent = sent.then_some(now);
                true
            }
            _ => false,
        }
    }

    pub fn finish(&mut self, now: i64, by: u64, outcome: Option<Kept>) -> bool {
        self.end(by, |life| life.done(now, outcome))
    }

    pub fn release(&mut self, now: i64, by: u64, wait: i64) -> bool {
        self.end(by, |life| {
            life.state = if life.doubt { State::InDoubt } else { State::Open { at: now, not_before: now + wait } };
        })
    }

    pub fn doubt(&mut self, now: i64, by: u64) -> bool {
        self.end(by, |life| {
            let is_sent = matches!(life.state, State::Held { sent: true, .. });
            life.doubt |= is_sent;
            life.state = if life.doubt { State::InDoubt } else { State::Open { at: now, not_before: now } };
        })
    }

    fn end(&mut self, by: u64, end: impl FnOnce(&mut Self)) -> bool {
        let holds = self.is_held_by(by);
        if holds {
            end(self);
        }
        holds
    }

    fn done(&mut self, now: i64, outcome: Option<Kept>) {
        self.state = State::Done { outcome, at: now };
        self.doubt = false;
    }

    /// A person settles it, having seen this or another version of the record.
    pub fn settle(&mut self, now: i64, is_current: bool, word: &Word) -> Settled {
        let standing = self.standing(now);
        match (standing, word) {
            (Standing::Free, _) => return Settled::Absent,
            _ if !is_current => return Settled::Changed,
            (Standing::Running, _) => return Settled::Running,
            (Standing::Done | Standing::Tombstone, _) => return Settled::NothingToDo,
            (_, Word::Happened(outcome)) => self.done(now, Some(outcome.clone())),
            (Standing::InDoubt, Word::DidNotHappen) => self.open_again(now),
            (_, Word::DidNotHappen) => return Settled::NothingToDo,
            (_, Word::Reset) => {
                self.open_again(now);
                self.request = None;
                self.generation += 1;
            }
        }
        Settled::Yes
    }

    fn open_again(&mut self, now: i64) {
        self.state = State::Open { at: now, not_before: now };
        self.doubt = false;
        self.first_sent = None;
    }

    /// The moments at which something changes by itself.
    pub fn deadlines(&self) -> Vec<i64> {
        let mut all: Vec<i64> = self.first_sent.map(|first| first + MEMORY - RUNTIME).into_iter().collect();
        match &self.state {
            State::Open { at, not_before } => all.extend([*not_before, self.remembered_until(*at, *not_before)]),
            State::Held { until, .. } => all.extend([*until, self.remembered_until(*until, 0)]),
            State::Done { at, .. } => all.extend([at + RETENTION, at + RETENTION + self.terms.tombstone]),
            State::Free | State::InDoubt => {}
        }
        all
    }
}
