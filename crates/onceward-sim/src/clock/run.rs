//! The calls of a run, the jumps between and within them, and the end, when all clocks are right again.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use onceward::core::decide::{Decision, Refusal, Resolution};
use onceward::core::outcome::{Body, Outcome};
use onceward::core::policy::{Policy, Retention};
use onceward::store::Store;
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;
use onceward::{Begun, CallBuilder, Guard, InDoubt, Ledger, Resolved, WriteResult};
use tempfile::TempDir;

use super::judge::{HOUR, IntentJudge, IntentKind, LONG_MEMORY, LONGEST_WAIT, MEMORY, RETENTION, RUNTIME, Response};
use super::jumping_clock::{JumpingClock, Readings};
use crate::first_sweep;
use crate::rng::Rng;
use crate::seeded::Counts;

/// 2026-01-01, as in the other harnesses.
const START: i64 = 1_767_225_600_000;

const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

/// Offsets of a clock, by weight.
const OFFSETS: [(u64, i64); 5] = [(4, 0), (2, HOUR), (2, -HOUR), (2, TEN_YEARS), (2, -TEN_YEARS)];

/// Once every clock is right, nothing is stuck for longer than this. A time that a clock wrote an hour ahead takes that
/// hour and its own length; a time that lies years ahead is not believed.
const SETTLES_WITHIN: i64 = HOUR + 3 * RUNTIME + LONGEST_WAIT;

/// One in this many runs is on a file, which takes a thousand times as long as memory.
const ON_A_FILE: u64 = 8;

/// Claims that are held at the same time.
const MAX_HELD: usize = 6;

/// The counts that must not be zero after enough runs.
pub const COUNTED: [&str; 9] = [
    "clock jumps",
    "claims granted",
    "taken over from an owner at work",
    "late writes refused",
    "outcomes replayed",
    "keys used again after expiry",
    "started over because nothing had happened",
    "answered: in doubt",
    "settled by an operator",
];

const KINDS: [IntentKind; 6] = [
    IntentKind { in_doubt: InDoubt::Hold, marks: false, tombstone: RETENTION, memory: MEMORY },
    IntentKind { in_doubt: InDoubt::Hold, marks: true, tombstone: RETENTION, memory: MEMORY },
    IntentKind { in_doubt: InDoubt::Retry, marks: false, tombstone: RETENTION, memory: MEMORY },
    IntentKind { in_doubt: InDoubt::Retry, marks: true, tombstone: 0, memory: MEMORY },
    IntentKind { in_doubt: InDoubt::Probe, marks: false, tombstone: RETENTION, memory: MEMORY },
    IntentKind { in_doubt: InDoubt::Hold, marks: false, tombstone: 0, memory: LONG_MEMORY },
];

/// A run in progress.
pub struct Run {
    rng: Rng,
    truth: Arc<AtomicI64>,
    /// Each ledger with the number of its clock.
    ledgers: Vec<(Ledger, usize)>,
    clocks: Vec<JumpingClock>,
    intents: Vec<IntentJudge>,
    held: Vec<HeldClaim>,
    next: u64,
    jumps: u64,
    _folder: Option<TempDir>,
}

/// A claim that a caller holds.
struct HeldClaim {
    ledger: usize,
    intent: usize,
    holder: u64,
    guard: Guard,
}

#[derive(Clone, Copy)]
enum Action {
    Begin,
    End,
    Pass,
    Jump,
    JumpInside,
    Sweep,
    Resolve,
}

impl Run {
    pub async fn begin(rng: Rng, run: u64) -> Self {
        let truth = Arc::new(AtomicI64::new(START));
        let mut folder = None;
        let (ledgers, clocks): (Vec<_>, Vec<_>) = if run % ON_A_FILE == ON_A_FILE - 1 {
            let path =
                folder.insert(tempfile::tempdir().expect("a temporary folder can be made")).path().join("ledger.db");
            let clocks = vec![JumpingClock::over(&truth), JumpingClock::over(&truth)];
            let mut ledgers = Vec::new();
            for (number, clock) in clocks.iter().enumerate() {
                let store = Sqlite::open(&path, Arc::new(clock.clone())).await.expect("a ledger can be made");
                ledgers.push((Ledger::builder().on(Arc::new(store)), number));
            }
            (ledgers, clocks)
        } else {
            let clock = JumpingClock::over(&truth);
            let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(clock.clone())));
            ((0..3).map(|_| (Ledger::builder().on(Arc::clone(&store)), 0)).collect(), vec![clock])
        };
        let intents = KINDS.map(IntentJudge::new).into();
        let (held, next, jumps) = (Vec::new(), 1, 0);
        for (ledger, _) in &ledgers {
            first_sweep::run_first_sweep(ledger).await;
        }
        Self { rng, truth, ledgers, clocks, intents, held, next, jumps, _folder: folder }
    }

    pub async fn end(mut self, counts: &mut Counts) {
        self.held.clear();
        for (ledger, _) in self.ledgers {
            ledger.close().await;
        }
        let [jumps, granted, early, refused, replayed, anew, over, doubts, settled] = COUNTED;
        counts.add(jumps, self.jumps);
        for IntentJudge { tally, .. } in &self.intents {
            counts.add(granted, tally.granted);
            counts.add(early, tally.taken_early);
            counts.add(refused, tally.refused);
            counts.add(replayed, tally.replayed);
            counts.add(anew, tally.anew);
            counts.add(over, tally.over);
            counts.add(doubts, tally.doubts);
            counts.add(settled, tally.settled);
        }
    }

    /// Does one thing. Returns what is wrong with it, if anything.
    pub async fn step(&mut self) -> Result<(), String> {
        let choice = self.rng.weighted(&[
            (8, Action::Begin),
            (4, Action::End),
            (4, Action::Pass),
            (3, Action::Jump),
            (1, Action::JumpInside),
            (1, Action::Sweep),
            (2, Action::Resolve),
        ]);
        match choice {
            Action::Begin => {
                let (ledger, intent) = (self.ledger(), self.intent());
                self.ask(ledger, intent).await.map(|_| ())
            }
            Action::End => self.end_one().await,
            Action::Pass => {
                let by = self.rng.weighted(&[
                    (3, 1000),
                    (3, HOUR / 60),
                    (2, HOUR / 6),
                    (2, HOUR),
                    (1, 7 * HOUR),
                    (1, 25 * HOUR),
                ]);
                self.truth.fetch_add(by, Ordering::SeqCst);
                Ok(())
            }
            Action::Jump | Action::JumpInside => {
                let off = self.rng.weighted(&OFFSETS);
                let clock = &self.clocks[self.rng.below(self.clocks.len() as u64) as usize];
                match choice {
                    Action::JumpInside => clock.jump_after(1 + self.rng.below(3) as i64, off),
                    _ => clock.jump(off),
                }
                self.jumps += 1;
                Ok(())
            }
            Action::Sweep => {
                let ledger = self.ledger();
                self.watch();
                self.ledgers[ledger].0.purge(1000).await.map_err(|error| error.to_string())?;
                let shown = self.shown(ledger);
                self.intents.iter_mut().for_each(|intent| intent.swept(shown));
                Ok(())
            }
            Action::Resolve => {
                let (ledger, intent) = (self.ledger(), self.intent());
                let happened = self.rng.one_in(2);
                self.resolve(ledger, intent, happened).await.map(|_| ())
            }
        }
    }

    fn ledger(&mut self) -> usize {
        self.rng.below(self.ledgers.len() as u64) as usize
    }

    fn intent(&mut self) -> usize {
        self.rng.below(self.intents.len() as u64) as usize
    }

    fn now(&self) -> i64 {
        self.truth.load(Ordering::SeqCst)
    }

    fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn watch(&self) {
        self.clocks.iter().for_each(JumpingClock::watch);
    }

    fn shown(&self, ledger: usize) -> Readings {
        self.clocks[self.ledgers[ledger].1].readings()
    }

    fn operation(&self, ledger: usize, intent: usize) -> CallBuilder {
        let kind = self.intents[intent].kind;
        let policy = Policy {
            in_doubt: kind.in_doubt,
            retention: Some(Retention::For(millis(RETENTION))),
            tombstone: Some(millis(kind.tombstone)),
            max_runtime: millis(RUNTIME),
            honours_key_for: millis(kind.memory),
            marks_sent: kind.marks,
            probes: true,
            ..Policy::default()
        };
        self.ledgers[ledger].0.operation("clock").key(&format!("k{intent}")).policy(policy)
    }

    fn describe(&self, intent: usize, what: &str) -> String {
        let kind = self.intents[intent].kind;
        let marks = if kind.marks { ", marks sent" } else { "" };
        format!("{:?}{marks}: {what}", kind.in_doubt).to_lowercase()
    }

    /// Asks for the claim, and keeps it if it is granted. Returns the answer.
    async fn ask(&mut self, ledger: usize, intent: usize) -> Result<Response, String> {
        let operation = self.operation(ledger, intent);
        self.watch();
        let begun = operation.begin().await.map_err(|error| self.describe(intent, &error.to_string()))?;
        let shown = self.shown(ledger);
        let holder = self.draw();
        let response = match &begun {
            Begun::Acquired(guard) => {
                let claim = guard.claim();
                Response::Run { holder, attempt: claim.attempt(), probe_first: claim.probe_first() }
            }
            Begun::Answered(Decision::Replay { outcome, .. }) => Response::Replay(text(outcome)),
            Begun::Answered(Decision::OutcomeNotKept { .. }) => Response::NotKept,
            Begun::Answered(Decision::InFlight { .. }) => Response::InFlight,
            Begun::Answered(Decision::InDoubt { .. }) => Response::InDoubt,
            other => return Err(self.describe(intent, &format!("unexpected decision {other:?}"))),
        };
        let truth = self.now();
        self.intents[intent].response(&response, shown, truth).map_err(|what| self.describe(intent, &what))?;
        if let Begun::Acquired(guard) = begun {
            self.held.push(HeldClaim { ledger, intent, holder, guard });
            self.let_go_of_one().await?;
        }
        Ok(response)
    }

    /// Finishes the oldest claim when too many are held.
    async fn let_go_of_one(&mut self) -> Result<(), String> {
        if self.held.len() <= MAX_HELD {
            return Ok(());
        }
        let oldest = self.held.remove(0);
        self.finish(oldest).await
    }

    async fn end_one(&mut self) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let chosen = self.rng.below(self.held.len() as u64) as usize;
        let HeldClaim { ledger, intent, holder, guard } = self.held.swap_remove(chosen);
        let truth = self.now();
        if guard.claim().probe_first() && self.rng.one_in(2) {
            self.watch();
            let held = guard.claim().not_found().await.is_ok();
            let shown = self.shown(ledger);
            self.intents[intent].not_found(holder, held, shown, truth).map_err(|what| self.describe(intent, &what))?;
        }
        let sends = self.intents[intent].kind.marks && !self.rng.one_in(3);
        if sends {
            self.watch();
            let held = guard.claim().sent().await.is_ok();
            let shown = self.shown(ledger);
            self.intents[intent].sent(holder, held, shown, truth).map_err(|what| self.describe(intent, &what))?;
        }
        match self.rng.below(6) {
            0 => {
                let wait = if self.rng.one_in(2) { LONGEST_WAIT } else { 0 };
                self.watch();
                let held = written(guard.release(millis(wait), None).await)?;
                let shown = self.shown(ledger);
                self.intents[intent].released(holder, held, wait, shown).map_err(|what| self.describe(intent, &what))
            }
            1 => {
                self.watch();
                let held = written(guard.doubt(None).await)?;
                let shown = self.shown(ledger);
                self.intents[intent].doubted(holder, held, shown).map_err(|what| self.describe(intent, &what))
            }
            2 if sends => {
                // Keeps working, so that jumps and takeovers happen beside it.
                self.held.push(HeldClaim { ledger, intent, holder, guard });
                Ok(())
            }
            _ => self.finish(HeldClaim { ledger, intent, holder, guard }).await,
        }
    }

    async fn finish(&mut self, held: HeldClaim) -> Result<(), String> {
        let HeldClaim { ledger, intent, holder, guard } = held;
        let value = format!("v{holder}");
        self.watch();
        let held = written(guard.finish(Outcome::success(value.clone())).await)?;
        let shown = self.shown(ledger);
        self.intents[intent].finished(holder, held, &value, shown).map_err(|what| self.describe(intent, &what))
    }

    /// An operator reads the record and decides. True when it is settled.
    async fn resolve(&mut self, ledger: usize, intent: usize, happened: bool) -> Result<bool, String> {
        let operation = self.operation(ledger, intent);
        let identity = operation.call().map_err(|error| error.to_string())?.identity;
        let Some(found) = operation.get().await.map_err(|error| error.to_string())? else { return Ok(false) };
        let value = format!("v{}", self.draw());
        let resolution =
            if happened { Resolution::Happened(Outcome::success(value.clone())) } else { Resolution::DidNotHappen };
        self.watch();
        let version = found.seen.record.version;
        let resolved = self.ledgers[ledger].0.resolve(&identity, version, resolution, None, None).await;
        let shown = self.shown(ledger);
        match resolved.map_err(|error| error.to_string())? {
            Resolved::Settled => {
                self.intents[intent].resolved(happened.then_some(value.as_str()), shown);
                Ok(true)
            }
            Resolved::Refused(Refusal::Running | Refusal::NothingToDo(_) | Refusal::Absent) => Ok(false),
            Resolved::Refused(Refusal::Changed | Refusal::NotSent) => {
                Err(self.describe(intent, "it changed between the read and the decision of the operator"))
            }
        }
    }

    /// Sets all clocks right. A little later nothing is stuck: every intent can be begun, is done, or can be settled
    /// and then begun.
    pub async fn set_right(&mut self) -> Result<(), String> {
        self.clocks.iter().for_each(|clock| clock.jump(0));
        self.truth.fetch_add(SETTLES_WITHIN, Ordering::SeqCst);
        for intent in 0..self.intents.len() {
            let ledger = self.ledger();
            match self.ask(ledger, intent).await? {
                Response::Run { .. } | Response::Replay(_) | Response::NotKept => {}
                Response::InFlight => return Err(self.describe(intent, "it is still in flight")),
                Response::InDoubt => {
                    if !self.resolve(ledger, intent, false).await? {
                        return Err(self.describe(intent, "it is in doubt, and an operator cannot settle it"));
                    }
                    let response = self.ask(ledger, intent).await?;
                    if !matches!(response, Response::Run { .. }) {
                        return Err(self.describe(intent, &format!("it is settled, but the answer is {response:?}")));
                    }
                }
            }
        }
        while let Some(held) = self.held.pop() {
            self.finish(held).await?;
        }
        Ok(())
    }
}

fn written(reach: Result<WriteResult, onceward::Error>) -> Result<bool, String> {
    reach.map(|reach| reach == WriteResult::Written).map_err(|error| error.to_string())
}

fn text(outcome: &Outcome) -> String {
    match &outcome.body {
        Body::Kept(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Body::TooLarge { .. } => "too large".to_owned(),
    }
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(millis.unsigned_abs())
}
