//! The oracle: follows one intent and predicts every answer. It is written from the promises and knows neither records
//! nor fences nor versions.

use onceward::InDoubt;

/// How long things last, in milliseconds.
pub const RUNTIME: i64 = 60_000;
pub const LEASE: i64 = 3 * RUNTIME;
pub const RETENTION: i64 = 600_000;
pub const TOMBSTONE: i64 = 600_000;
pub const MEMORY: i64 = 1_000_000;

/// The terms of an intent, from its first call on.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub in_doubt: InDoubt,
    /// How long the key is held after the outcome is dropped.
    pub tombstone: i64,
}

/// A caller that asks for the claim.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Which request comes with the key.
    pub request: u64,
    pub terms: Terms,
    /// It marks `sent` itself.
    pub marks: bool,
}

/// The expected answer to a begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    Run { attempt: u32, generation: u32, probe_first: bool },
    Replay { outcome: Value, expires_at: i64 },
    NotKept,
    InFlight { running: bool },
    InDoubt,
    Mismatch,
}

/// An outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub success: bool,
    pub text: String,
}

/// The expected answer to an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolveResult {
    Yes,
    Absent,
    Running,
    Changed,
    NothingToDo,
}

/// What an operator decides.
#[derive(Clone, Debug)]
pub enum OperatorChoice {
    Happened(Value),
    DidNotHappen,
    Reset,
}

/// The standing of an intent at a moment.
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
    /// Released, or resolved as not happened, at this time.
    Open {
        at: i64,
        not_before: i64,
    },
    /// A claim that was granted to this holder and has not ended.
    HeldClaim {
        holder: u64,
        sent: bool,
        until: i64,
    },
    InDoubt,
    /// `None` for an outcome that was too large to keep.
    Done {
        outcome: Option<Value>,
        at: i64,
    },
}

/// One intent.
#[derive(Clone, Debug)]
pub struct Oracle {
    state: State,
    /// `None` after a reset: the next request brings its own.
    request: Option<u64>,
    terms: Terms,
    attempts: u32,
    generation: u32,
    first_sent: Option<i64>,
    /// An earlier attempt may have happened, and is not settled.
    doubt: bool,
}

impl Default for Oracle {
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

/// The stricter of two policies: hold, then probe, then retry.
fn stricter(one: InDoubt, other: InDoubt) -> InDoubt {
    [InDoubt::Hold, InDoubt::Probe, InDoubt::Tell]
        .into_iter()
        .find(|strict| [one, other].contains(strict))
        .unwrap_or(InDoubt::Retry)
}

impl Oracle {
    pub fn standing(&self, now: i64) -> Standing {
        match &self.state {
            State::Free => Standing::Free,
            State::Open { at, not_before } if now >= self.remembered_until(*at, *not_before) => Standing::Free,
            State::Open { not_before, .. } => Standing::Open { not_before: *not_before },
            State::InDoubt => Standing::InDoubt,
            State::HeldClaim { until, .. } if now < *until => Standing::Running,
            State::HeldClaim { sent: false, until, .. } if !self.doubt && now >= self.remembered_until(*until, 0) => {
                Standing::Free
            }
            State::HeldClaim { sent, .. } if *sent || self.doubt => Standing::InDoubt,
            State::HeldClaim { .. } => Standing::Open { not_before: now },
            State::Done { at, .. } if now < at + RETENTION => Standing::Done,
            State::Done { at, .. } if now < at + RETENTION + self.terms.tombstone => Standing::Tombstone,
            State::Done { .. } => Standing::Free,
        }
    }

    /// An attempt that did not happen is forgotten once its outcome would have been, and the downstream has forgotten
    /// its key.
    fn remembered_until(&self, at: i64, not_before: i64) -> i64 {
        at.max(not_before) + MEMORY.max(RETENTION + self.terms.tombstone)
    }

    /// Whether the next claim starts over, for an intent that was never done.
    pub fn starts_over(&self, now: i64) -> bool {
        matches!(self.state, State::Open { .. } | State::HeldClaim { .. }) && self.standing(now) == Standing::Free
    }

    /// A caller asks for the claim; if it is granted, `holder` has it.
    pub fn begin(&mut self, now: i64, caller: Caller, holder: u64) -> Response {
        let standing = self.standing(now);
        if standing == Standing::Free {
            *self = Self { request: Some(caller.request), terms: caller.terms, ..Self::default() };
            return self.grant(now, caller, holder, false);
        }
        if self.request.is_some_and(|request| request != caller.request) {
            return Response::Mismatch;
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
            Standing::Open { .. } => Response::InFlight { running: false },
            Standing::Running => Response::InFlight { running: true },
            Standing::InDoubt => Response::InDoubt,
            Standing::Done | Standing::Tombstone | Standing::Free => self.told_of_done(standing),
        }
    }

    fn told_of_done(&self, standing: Standing) -> Response {
        match &self.state {
            State::Done { outcome: Some(outcome), at } if standing == Standing::Done => {
                Response::Replay { outcome: outcome.clone(), expires_at: at + RETENTION }
            }
            _ => Response::NotKept,
        }
    }

    /// Both the first caller and this one must permit it.
    fn may_go_on(&self, now: i64, by_caller: InDoubt) -> bool {
        match (self.terms.in_doubt, by_caller) {
            (InDoubt::Hold, _) | (_, InDoubt::Hold) => false,
            (InDoubt::Probe, _) | (_, InDoubt::Probe) => true,
            // No caller of this harness is told of a doubt.
            (InDoubt::Tell, _) | (_, InDoubt::Tell) => false,
            (InDoubt::Retry, InDoubt::Retry) => self.first_sent.is_some_and(|first| now + RUNTIME < first + MEMORY),
        }
    }

    fn grant(&mut self, now: i64, caller: Caller, holder: u64, probe_first: bool) -> Response {
        self.attempts += 1;
        self.terms.in_doubt = stricter(self.terms.in_doubt, caller.terms.in_doubt);
        if !caller.marks {
            self.first_sent.get_or_insert(now);
        }
        self.state = State::HeldClaim { holder, sent: !caller.marks, until: now + LEASE };
        Response::Run { attempt: self.attempts, generation: self.generation, probe_first }
    }

    /// Whether this holder may still write.
    pub fn is_held_by(&self, holder: u64) -> bool {
        matches!(self.state, State::HeldClaim { holder: owner, .. } if owner == holder)
    }

    /// Whether the sweeper may have removed the claim of this holder, which has sent nothing. If it has not, the holder
    /// may continue.
    pub fn may_be_swept(&self, now: i64, holder: u64) -> bool {
        self.is_held_by(holder) && self.standing(now) == Standing::Free
    }

    /// The sweeper has removed it.
    pub fn swept(&mut self) {
        *self = Self::default();
    }

    /// Each of these returns whether the write of the holder must succeed.
    pub fn sent(&mut self, now: i64, by: u64) -> bool {
        match &mut self.state {
            State::HeldClaim { holder, sent, until } if *holder == by => {
                (*sent, *until) = (true, now + LEASE);
                self.first_sent.get_or_insert(now);
                true
            }
            _ => false,
        }
    }

    pub fn not_found(&mut self, now: i64, by: u64) -> bool {
        match &mut self.state {
            State::HeldClaim { holder, sent, until } if *holder == by => {
                // Remembered from now on, if the lease is over already.
                let sent = *sent;
                *until = (*until).max(now);
                self.doubt = false;
                self.first_sent = sent.then_some(now);
                true
            }
            _ => false,
        }
    }

    pub fn finish(&mut self, now: i64, by: u64, outcome: Option<Value>) -> bool {
        self.end(by, |oracle| oracle.done(now, outcome))
    }

    pub fn release(&mut self, now: i64, by: u64, wait: i64) -> bool {
        self.end(by, |oracle| {
            oracle.state = if oracle.doubt { State::InDoubt } else { State::Open { at: now, not_before: now + wait } };
        })
    }

    pub fn doubt(&mut self, now: i64, by: u64) -> bool {
        self.end(by, |oracle| {
            let is_sent = matches!(oracle.state, State::HeldClaim { sent: true, .. });
            oracle.doubt |= is_sent;
            oracle.state = if oracle.doubt { State::InDoubt } else { State::Open { at: now, not_before: now } };
        })
    }

    fn end(&mut self, by: u64, end: impl FnOnce(&mut Self)) -> bool {
        let holds = self.is_held_by(by);
        if holds {
            end(self);
        }
        holds
    }

    fn done(&mut self, now: i64, outcome: Option<Value>) {
        self.state = State::Done { outcome, at: now };
        self.doubt = false;
    }

    /// An operator settles it, having seen this or another version of the record.
    pub fn settle(&mut self, now: i64, is_current: bool, choice: &OperatorChoice) -> ResolveResult {
        let standing = self.standing(now);
        match (standing, choice) {
            (Standing::Free, _) => return ResolveResult::Absent,
            _ if !is_current => return ResolveResult::Changed,
            (Standing::Running, _) => return ResolveResult::Running,
            (Standing::Done | Standing::Tombstone, _) => return ResolveResult::NothingToDo,
            (_, OperatorChoice::Happened(outcome)) => self.done(now, Some(outcome.clone())),
            (Standing::InDoubt, OperatorChoice::DidNotHappen) => self.open_again(now),
            (_, OperatorChoice::DidNotHappen) => return ResolveResult::NothingToDo,
            (_, OperatorChoice::Reset) => {
                self.open_again(now);
                self.request = None;
                self.generation += 1;
            }
        }
        ResolveResult::Yes
    }

    fn open_again(&mut self, now: i64) {
        self.state = State::Open { at: now, not_before: now };
        self.doubt = false;
        self.first_sent = None;
    }

    /// The times at which its standing changes without a call.
    pub fn deadlines(&self) -> Vec<i64> {
        let mut all: Vec<i64> = self.first_sent.map(|first| first + MEMORY - RUNTIME).into_iter().collect();
        match &self.state {
            State::Open { at, not_before } => all.extend([*not_before, self.remembered_until(*at, *not_before)]),
            State::HeldClaim { until, .. } => all.extend([*until, self.remembered_until(*until, 0)]),
            State::Done { at, .. } => all.extend([at + RETENTION, at + RETENTION + self.terms.tombstone]),
            State::Free | State::InDoubt => {}
        }
        all
    }
}
