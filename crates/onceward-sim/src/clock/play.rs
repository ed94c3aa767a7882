//! The calls of a run, the jumps between them and in their middle, and the end, at which all clocks are right again.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use onceward::core::decide::{Decision, Refusal, Resolution};
use onceward::core::outcome::{Body, Outcome};
use onceward::core::policy::{Policy, Retention};
use onceward::store::Store;
use onceward::store::memory::Memory;
use onceward::store::sqlite::Sqlite;
use onceward::{Begun, Guard, InDoubt, Ledger, Operation, Reach, Resolved};
use tempfile::TempDir;

use super::judge::{Case, HOUR, LONG_MEMORY, LONGEST_WAIT, MEMORY, RETENTION, RUNTIME, Sort, Tally, Told};
use super::jumpy::{Jumpy, Readings};
use crate::dice::Dice;
use crate::sweep;

/// 2026-01-01, like everywhere.
const START: i64 = 1_767_225_600_000;

const TEN_YEARS: i64 = 10 * 365 * 24 * HOUR;

/// By how much a clock is off.
const OFF: [(u64, i64); 5] = [(4, 0), (2, HOUR), (2, -HOUR), (2, TEN_YEARS), (2, -TEN_YEARS)];

/// Once every clock is right, nothing is out of reach for longer than this: what a clock wrote that was an hour ahead
/// takes that hour and its own length; what one wrote that was years ahead is not believed.
const SOON: i64 = HOUR + 3 * RUNTIME + LONGEST_WAIT;

/// One run in so many is on a file, which takes a thousand times as long as memory.
const ON_A_FILE: u64 = 8;

/// Claims that are held at the same time.
const MOST_HELD: usize = 6;

const SORTS: [Sort; 6] = [
    Sort { in_doubt: InDoubt::Hold, marks: false, tombstone: RETENTION, memory: MEMORY },
    Sort { in_doubt: InDoubt::Hold, marks: true, tombstone: RETENTION, memory: MEMORY },
    Sort { in_doubt: InDoubt::Retry, marks: false, tombstone: RETENTION, memory: MEMORY },
    Sort { in_doubt: InDoubt::Retry, marks: true, tombstone: 0, memory: MEMORY },
    Sort { in_doubt: InDoubt::Probe, marks: false, tombstone: RETENTION, memory: MEMORY },
    Sort { in_doubt: InDoubt::Hold, marks: false, tombstone: 0, memory: LONG_MEMORY },
];

/// A run in progress.
pub struct Play {
    dice: Dice,
    truth: Arc<AtomicI64>,
    /// Which clock each ledger goes by.
    ledgers: Vec<(Ledger, usize)>,
    clocks: Vec<Jumpy>,
    cases: Vec<Case>,
    held: Vec<Held>,
    next: u64,
    jumps: u64,
    _folder: Option<TempDir>,
}

/// A claim in somebody's hands.
struct Held {
    ledger: usize,
    case: usize,
    holder: u64,
    guard: Guard,
}

#[derive(Clone, Copy)]
enum Do {
    Begin,
    End,
    Pass,
    Jump,
    JumpInside,
    Sweep,
    Resolve,
}

impl Play {
    pub async fn begin(dice: Dice, run: u64) -> Self {
        let truth = Arc::new(AtomicI64::new(START));
        let mut folder = None;
        let (ledgers, clocks): (Vec<_>, Vec<_>) = if run % ON_A_FILE == ON_A_FILE - 1 {
            let path =
                folder.insert(tempfile::tempdir().expect("a temporary folder can be made")).path().join("ledger.db");
            let clocks = vec![Jumpy::over(&truth), Jumpy::over(&truth)];
            let mut ledgers = Vec::new();
            for (number, clock) in clocks.iter().enumerate() {
                let store = Sqlite::open(&path, Arc::new(clock.clone())).await.expect("a ledger can be made");
                ledgers.push((Ledger::builder().on(Arc::new(store)), number));
            }
            (ledgers, clocks)
        } else {
            let clock = Jumpy::over(&truth);
            let store: Arc<dyn Store> = Arc::new(Memory::new(Arc::new(clock.clone())));
            ((0..3).map(|_| (Ledger::builder().on(Arc::clone(&store)), 0)).collect(), vec![clock])
        };
        let cases = SORTS.map(Case::new).into();
        let (held, next, jumps) = (Vec::new(), 1, 0);
        for (ledger, _) in &ledgers {
            sweep::get_over_the_first(ledger).await;
        }
        Self { dice, truth, ledgers, clocks, cases, held, next, jumps, _folder: folder }
    }

    pub async fn end(mut self) -> (Tally, u64) {
        self.held.clear();
        for (ledger, _) in self.ledgers {
            ledger.close().await;
        }
        (self.cases.iter().map(|case| case.tally).fold(Tally::default(), super::add), self.jumps)
    }

    /// One thing happens. What is wrong with it, if anything.
    pub async fn step(&mut self) -> Result<(), String> {
        let choice = self.dice.weighted(&[
            (8, Do::Begin),
            (4, Do::End),
            (4, Do::Pass),
            (3, Do::Jump),
            (1, Do::JumpInside),
            (1, Do::Sweep),
            (2, Do::Resolve),
        ]);
        match choice {
            Do::Begin => {
                let (ledger, case) = (self.ledger(), self.case());
                self.ask(ledger, case).await.map(|_| ())
            }
            Do::End => self.end_one().await,
            Do::Pass => {
                let by = self.dice.weighted(&[
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
            Do::Jump | Do::JumpInside => {
                let off = self.dice.weighted(&OFF);
                let clock = &self.clocks[self.dice.below(self.clocks.len() as u64) as usize];
                match choice {
                    Do::JumpInside => clock.jump_after(1 + self.dice.below(3) as i64, off),
                    _ => clock.jump(off),
                }
                self.jumps += 1;
                Ok(())
            }
            Do::Sweep => {
                let ledger = self.ledger();
                self.watch();
                self.ledgers[ledger].0.purge(1000).await.map_err(|error| error.to_string())?;
                let shown = self.shown(ledger);
                self.cases.iter_mut().for_each(|case| case.swept(shown));
                Ok(())
            }
            Do::Resolve => {
                let (ledger, case) = (self.ledger(), self.case());
                let happened = self.dice.one_in(2);
                self.resolve(ledger, case, happened).await.map(|_| ())
            }
        }
    }

    fn ledger(&mut self) -> usize {
        self.dice.below(self.ledgers.len() as u64) as usize
    }

    fn case(&mut self) -> usize {
        self.dice.below(self.cases.len() as u64) as usize
    }

    fn now(&self) -> i64 {
        self.truth.load(Ordering::SeqCst)
    }

    fn draw(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn watch(&self) {
        self.clocks.iter().for_each(Jumpy::watch);
    }

    fn shown(&self, ledger: usize) -> Readings {
        self.clocks[self.ledgers[ledger].1].readings()
    }

    fn operation(&self, ledger: usize, case: usize) -> Operation {
        let sort = self.cases[case].sort;
        let policy = Policy {
            in_doubt: sort.in_doubt,
            retention: Some(Retention::For(millis(RETENTION))),
            tombstone: Some(millis(sort.tombstone)),
            max_runtime: millis(RUNTIME),
            honours_key_for: millis(sort.memory),
            marks_sent: sort.marks,
            probes: true,
            ..Policy::default()
        };
        self.ledgers[ledger].0.operation("clock").key(&format!("k{case}")).policy(policy)
    }

    fn blame(&self, case: usize, what: &str) -> String {
        let sort = self.cases[case].sort;
        let marks = if sort.marks { ", marks sent" } else { "" };
        format!("{:?}{marks}: {what}", sort.in_doubt).to_lowercase()
    }

    /// Asks for the claim, and keeps it if it is granted. What was told.
    async fn ask(&mut self, ledger: usize, case: usize) -> Result<Told, String> {
        let operation = self.operation(ledger, case);
        self.watch();
        let begun = operation.begin().await.map_err(|error| self.blame(case, &error.to_string()))?;
        let shown = self.shown(ledger);
        let holder = self.draw();
        let told = match &begun {
            Begun::Acquired(guard) => {
                let claim = guard.claim();
                Told::Run { holder, attempt: claim.attempt(), probe_first: claim.probe_first() }
            }
            Begun::Answered(Decision::Replay { outcome, .. }) => Told::Replay(text(outcome)),
            Begun::Answered(Decision::OutcomeNotKept { .. }) => Told::NotKept,
            Begun::Answered(Decision::InFlight { .. }) => Told::InFlight,
            Begun::Answered(Decision::InDoubt { .. }) => Told::InDoubt,
            other => return Err(self.blame(case, &format!("nobody should be told {other:?}"))),
        };
        let truth = self.now();
        self.cases[case].told(&told, shown, truth).map_err(|what| self.blame(case, &what))?;
        if let Begun::Acquired(guard) = begun {
            self.held.push(Held { ledger, case, holder, guard });
            self.let_go_of_one().await?;
        }
        Ok(told)
    }

    /// Too many claims in hand: the oldest is ended.
    async fn let_go_of_one(&mut self) -> Result<(), String> {
        if self.held.len() <= MOST_HELD {
            return Ok(());
        }
        let oldest = self.held.remove(0);
        self.finish(oldest).await
    }

    async fn end_one(&mut self) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let chosen = self.dice.below(self.held.len() as u64) as usize;
        let Held { ledger, case, holder, guard } = self.held.swap_remove(chosen);
        let truth = self.now();
        if guard.claim().probe_first() && self.dice.one_in(2) {
            self.watch();
            let held = guard.claim().not_found().await.is_ok();
            let shown = self.shown(ledger);
            self.cases[case].not_found(holder, held, shown, truth).map_err(|what| self.blame(case, &what))?;
        }
        let sends = self.cases[case].sort.marks && !self.dice.one_in(3);
        if sends {
            self.watch();
            let held = guard.claim().sent().await.is_ok();
            let shown = self.shown(ledger);
            self.cases[case].sent(holder, held, shown, truth).map_err(|what| self.blame(case, &what))?;
        }
        match self.dice.below(6) {
            0 => {
                let wait = if self.dice.one_in(2) { LONGEST_WAIT } else { 0 };
                self.watch();
                let held = written(guard.release(millis(wait), None).await)?;
                let shown = self.shown(ledger);
                self.cases[case].released(holder, held, wait, shown).map_err(|what| self.blame(case, &what))
            }
            1 => {
                self.watch();
                let held = written(guard.doubt(None).await)?;
                let shown = self.shown(ledger);
                self.cases[case].doubted(holder, held, shown).map_err(|what| self.blame(case, &what))
            }
            2 if sends => {
                // It works on: jumps and takeovers find it at work.
                self.held.push(Held { ledger, case, holder, guard });
                Ok(())
            }
            _ => self.finish(Held { ledger, case, holder, guard }).await,
        }
    }

    async fn finish(&mut self, held: Held) -> Result<(), String> {
        let Held { ledger, case, holder, guard } = held;
        let value = format!("v{holder}");
        self.watch();
        let held = written(guard.finish(Outcome::success(value.clone())).await)?;
        let shown = self.shown(ledger);
        self.cases[case].finished(holder, held, &value, shown).map_err(|what| self.blame(case, &what))
    }

    /// A person looks and decides. True when it is settled.
    async fn resolve(&mut self, ledger: usize, case: usize, happened: bool) -> Result<bool, String> {
        let operation = self.operation(ledger, case);
        let identity = operation.call().map_err(|error| error.to_string())?.identity;
        let Some(intent) = operation.get().await.map_err(|error| error.to_string())? else { return Ok(false) };
        let value = format!("v{}", self.draw());
        let resolution =
            if happened { Resolution::Happened(Outcome::success(value.clone())) } else { Resolution::DidNotHappen };
        self.watch();
        let version = intent.seen.record.version;
        let resolved = self.ledgers[ledger].0.resolve(&identity, version, resolution, None, None).await;
        let shown = self.shown(ledger);
        match resolved.map_err(|error| error.to_string())? {
            Resolved::Settled => {
                self.cases[case].resolved(happened.then_some(value.as_str()), shown);
                Ok(true)
            }
            Resolved::Refused(Refusal::Running | Refusal::NothingToDo(_) | Refusal::Absent) => Ok(false),
            Resolved::Refused(Refusal::Changed) => Err(self.blame(case, "it changed while a person looked")),
        }
    }

    /// All clocks are right again, and a little later nothing is out of reach: whatever it is, it can be begun, or is
    /// known, or can be settled and then begun.
    pub async fn set_right(&mut self) -> Result<(), String> {
        self.clocks.iter().for_each(|clock| clock.jump(0));
        self.truth.fetch_add(SOON, Ordering::SeqCst);
        for case in 0..self.cases.len() {
            let ledger = self.ledger();
            match self.ask(ledger, case).await? {
                Told::Run { .. } | Told::Replay(_) | Told::NotKept => {}
                Told::InFlight => return Err(self.blame(case, "it is still out of reach")),
                Told::InDoubt => {
                    if !self.resolve(ledger, case, false).await? {
                        return Err(self.blame(case, "it is in doubt, and a person cannot settle it"));
                    }
                    let told = self.ask(ledger, case).await?;
                    if !matches!(told, Told::Run { .. }) {
                        return Err(self.blame(case, &format!("it is settled, and yet the answer is {told:?}")));
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

fn written(reach: Result<Reach, onceward::Error>) -> Result<bool, String> {
    reach.map(|reach| reach == Reach::Written).map_err(|error| error.to_string())
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
