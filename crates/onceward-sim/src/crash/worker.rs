//! A process that makes guarded calls until it is done or dead. It writes down in the journal what it does and what
//! the ledger tells it, and judges nothing.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::sync::oneshot;

use onceward::core::policy::OnError;
use onceward::core::record::State;
use onceward::step::{Step, on_step};
use onceward::{Claim, Done, Error, Failure, InDoubt, Ledger, Operation};

use super::journal::{Answer, Ending, Eye, Line, Pen, What, now};
use super::misdeed::Misdeed;
use super::plan::{Part, Sort, Turn, Visit};

/// Calls that one worker has going at the same time, so that writes of one process meet in one transaction.
const LANES: usize = 3;

/// How often a worker whose claim was stolen looks whether somebody fell for it, a millisecond apart: two seconds are
/// enough for a process that is started to begin.
const TAKEN_OVER_LOOKS: u32 = 2000;

/// The operation of all intents.
pub const OPERATION: &str = "crash";

/// What a worker is told by its parent.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The folder of the run.
    pub folder: PathBuf,
    /// The seed of the run.
    pub seed: u64,
    /// The cycle.
    pub cycle: u64,
    /// Which worker of the cycle.
    pub worker: u64,
    /// Where to die, and the how-many-th time.
    pub die: Option<(Step, u32)>,
    /// Where in the journal the lives of this cycle's intents begin, for probes.
    pub since: u64,
    /// How to misbehave.
    pub misdeed: Option<Misdeed>,
}

struct World {
    ledger: Ledger,
    pen: &'static Pen,
    orders: Orders,
    visits: Vec<Visit>,
    next: AtomicUsize,
}

static PEN: OnceLock<Pen> = OnceLock::new();
static DIE: OnceLock<(Step, u32)> = OnceLock::new();
static TIMES: AtomicU32 = AtomicU32::new(0);

/// Does the part.
pub fn run(orders: Orders, part: Part) {
    let pen = Pen::open(&super::journal_path(&orders.folder)).expect("the parent made the journal");
    let pen = PEN.get_or_init(|| pen);
    if let Some(die) = orders.die {
        let _ = DIE.set(die);
        on_step(die_here);
    }
    // Planned panics are not news.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    runtime.block_on(async {
        let url = super::ledger_path(&orders.folder);
        let ledger = match Ledger::open(&url.to_string_lossy()).await {
            Ok(ledger) => ledger,
            Err(error) => {
                let detail = error.to_string();
                pen.write(0, "", What::Told { answer: Answer::Store, asked: now(), detail });
                return;
            }
        };
        let world = Arc::new(World { ledger, pen, orders, visits: part.visits, next: AtomicUsize::new(0) });
        let lanes: Vec<_> = (0..LANES).map(|_| tokio::spawn(lane(Arc::clone(&world)))).collect();
        for lane in lanes {
            lane.await.expect("a lane does not panic");
        }
        // What was dropped writes its doubt behind the caller's back; some of it gets the time.
        tokio::time::sleep(Duration::from_millis(2)).await;
    });
    // Like most processes, without closing anything.
    std::process::exit(0);
}

fn die_here(step: Step) {
    let (Some((at, times)), Some(pen)) = (DIE.get(), PEN.get()) else { return };
    if step == *at && TIMES.fetch_add(1, Ordering::SeqCst) + 1 == *times {
        pen.write(0, "", What::Dies { step: step.name() });
        let _ = kill(Pid::this(), Signal::SIGKILL);
        // The signal is on its way; nothing more may happen on this thread.
        loop {
            std::thread::park();
        }
    }
}

async fn lane(world: Arc<World>) {
    loop {
        let turn = world.next.fetch_add(1, Ordering::SeqCst);
        let Some(visit) = world.visits.get(turn).copied() else { return };
        let nonce = format!("c{}w{}n{turn}", world.orders.cycle, world.orders.worker);
        let call = Call {
            world: Arc::clone(&world),
            visit,
            nonce: nonce.into(),
            ending: Arc::default(),
            asked: Arc::default(),
            began: Arc::default(),
        };
        call.make().await;
    }
}

/// One guarded call.
#[derive(Clone)]
struct Call {
    world: Arc<World>,
    visit: Visit,
    nonce: Arc<str>,
    /// How the work ended, if it ran.
    ending: Arc<Mutex<Option<Ending>>>,
    /// When the caller asked.
    asked: Arc<AtomicI64>,
    /// The work has begun.
    began: Arc<AtomicBool>,
}

impl Call {
    async fn make(&self) {
        let operation = self.operation(json!({ "intent": self.visit.intent }));
        let asked = now();
        self.asked.store(asked, Ordering::SeqCst);
        let (leave, left) = oneshot::channel();
        let work = self.clone();
        let leave_after = self.visit.leaves;
        let running = tokio::spawn(async move {
            let looking = operation.clone();
            tokio::select! {
                result = operation.run(move |claim| work.work(claim, looking, leave)) => Some(result),
                Ok(()) = left => None,
                () = leaves(leave_after) => None,
            }
        });
        let said = match running.await {
            Ok(Some(result)) => self.said(result, asked),
            Ok(None) if !self.began.load(Ordering::SeqCst) => What::Left,
            Ok(None) | Err(_) => told(Answer::Gone, asked, String::new()),
        };
        let misuse = self.visit.misuse && matches!(said, What::Ack { .. }) && !self.sort().brief;
        self.go_rogue(&said);
        self.write(said);
        if misuse {
            self.misuse().await;
        }
    }

    fn operation(&self, request: serde_json::Value) -> Operation {
        let key = super::key(self.visit.intent);
        let policy = self.sort().policy();
        self.world.ledger.operation(OPERATION).key(&key).intent(&request).policy(policy).wait(self.visit.wait)
    }

    fn sort(&self) -> Sort {
        Sort::of(self.world.orders.seed, self.visit.intent)
    }

    fn write(&self, what: What) {
        self.world.pen.write(self.visit.intent, &self.nonce, what);
    }

    fn said(&self, result: Result<Done<String>, Error>, asked: i64) -> What {
        let kept = *self.ending.lock().expect("no lane panics with it") == Some(Ending::Finish);
        let answer = match &result {
            Ok(done) if done.replayed => return What::Replay { value: done.value.clone(), asked },
            Ok(done) => return What::Ack { value: done.value.clone() },
            Err(Error::Failed { failure, replayed: true, .. }) => {
                return What::Replay { value: failure.message().to_owned(), asked };
            }
            Err(Error::Failed { failure, .. }) if kept => return What::Ack { value: failure.message().to_owned() },
            Err(Error::Failed { .. }) => Answer::Failed,
            Err(Error::InFlight { .. }) => Answer::InFlight,
            Err(Error::InDoubt { .. } | Error::OwnerUnknown { .. }) => Answer::InDoubt,
            Err(Error::OutcomeNotKept { .. }) => Answer::NotKept,
            Err(Error::OwnerFailed { .. }) => Answer::OwnerFailed,
            Err(Error::ClaimLost { .. }) => Answer::ClaimLost,
            Err(Error::Contended { .. }) => Answer::Contended,
            Err(Error::Store(_) | Error::NotRecorded { .. }) => Answer::Store,
            Err(_) => Answer::Wrong,
        };
        told(answer, asked, result.err().map(|error| error.to_string()).unwrap_or_default())
    }

    /// The work under the claim: marks, the effect between them, and the end that the plan has for it.
    async fn work(self, claim: Claim, looking: Operation, leave: oneshot::Sender<()>) -> Result<String, Failure> {
        let (created, until) = lease(&looking, claim.attempt()).await;
        self.began.store(true, Ordering::SeqCst);
        let asked = self.asked.load(Ordering::SeqCst);
        let steals = self.world.orders.misdeed == Some(Misdeed::Steal) && self.sort().in_doubt == InDoubt::Retry;
        if steals {
            Misdeed::steal(&super::ledger_path(&self.world.orders.folder), claim.key());
        }
        self.write(What::Try { attempt: claim.attempt(), created, until, asked });
        if steals {
            self.until_taken_over(claim.attempt()).await;
        }
        if claim.probe_first() {
            if let Some(receipt) = self.probe(created) {
                self.ending(Ending::Finish);
                return Ok(receipt);
            }
            self.write(What::NotFound);
            if let Err(error) = claim.not_found().await {
                self.ending(Ending::Doubt);
                return Err(Failure::unknown(error));
            }
        }
        if self.visit.turn == Turn::NotSent {
            return self.end(leave).await;
        }
        tokio::time::sleep(self.visit.before).await;
        if self.sort().marks {
            self.write(What::Sending);
            if let Err(error) = claim.sent().await {
                // Somebody else went on with it, or the mark may not have held: nothing may leave.
                self.ending(Ending::Doubt);
                return Err(Failure::unknown(error));
            }
            self.write(What::Sent);
        }
        if self.visit.happens {
            self.write(What::Effect { key: claim.downstream_key().to_owned() });
        }
        tokio::time::sleep(self.visit.after).await;
        self.end(leave).await
    }

    /// Waits until another attempt at the same intent has begun, or for as long as one may take to begin.
    async fn until_taken_over(&self, own: u32) {
        let mut eye = Eye::open(&super::journal_path(&self.world.orders.folder)).expect("the journal is there");
        eye.seek(self.world.orders.since);
        let is_other = |line: &Line| matches!(line.what, What::Try { attempt, .. } if attempt > own);
        for _ in 0..TAKEN_OVER_LOOKS {
            let lines = eye.look().expect("the journal can be read");
            if lines.iter().any(|line| line.intent == self.visit.intent && is_other(line)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Asks the other side for an effect of this intent since its record was made.
    fn probe(&self, created: i64) -> Option<String> {
        let mut eye = Eye::open(&super::journal_path(&self.world.orders.folder)).expect("the journal is there");
        eye.seek(self.world.orders.since);
        let lines = eye.look().expect("the journal can be read");
        let found = lines.into_iter().find(|line| {
            line.intent == self.visit.intent && line.at >= created && matches!(line.what, What::Effect { .. })
        });
        found.map(|line| line.nonce)
    }

    async fn end(&self, leave: oneshot::Sender<()>) -> Result<String, Failure> {
        let nonce = self.nonce.to_string();
        let failed = format!("failed:{nonce}");
        match self.visit.turn {
            Turn::Succeed => {
                self.ending(Ending::Finish);
                Ok(nonce)
            }
            Turn::Final => {
                self.ending(Ending::Finish);
                Err(Failure::last(failed))
            }
            Turn::NotSent => {
                self.ending(Ending::Release);
                Err(Failure::not_sent(failed))
            }
            Turn::Refused => {
                self.ending(Ending::Release);
                Err(Failure::refused(failed, Some(self.visit.before)))
            }
            Turn::Unknown => {
                self.ending(Ending::Doubt);
                if self.world.orders.misdeed == Some(Misdeed::Release) {
                    return Err(Failure::not_sent(failed));
                }
                Err(Failure::unknown(failed))
            }
            Turn::Unclassified => {
                self.ending(match self.sort().on_error {
                    _ if self.sort().marks => Ending::Doubt,
                    OnError::Classify | OnError::Retry => Ending::Release,
                    OnError::Doubt => Ending::Doubt,
                    OnError::Keep => Ending::Finish,
                });
                Err(std::io::Error::other(failed).into())
            }
            Turn::Panic => {
                self.ending(Ending::Doubt);
                panic!("as planned");
            }
            Turn::Cancel => {
                self.ending(Ending::Doubt);
                let _ = leave.send(());
                std::future::pending().await
            }
        }
    }

    fn ending(&self, ending: Ending) {
        self.write(What::End(ending));
        *self.ending.lock().expect("no lane panics with it") = Some(ending);
    }

    /// The same key with another request is refused, whatever has become of the intent.
    async fn misuse(&self) {
        let operation = self.operation(json!({ "intent": "another" }));
        let result = operation.run(|_| async { Ok("it ran".to_owned()) }).await;
        if !matches!(result, Err(Error::Mismatch { .. })) {
            self.write(What::NoMismatch { got: format!("{result:?}") });
        }
    }

    /// The misdeed of a worker that does not take no for an answer.
    fn go_rogue(&self, said: &What) {
        let refused =
            matches!(said, What::Told { answer: Answer::InDoubt | Answer::InFlight, .. } | What::Replay { .. });
        if self.world.orders.misdeed == Some(Misdeed::Rogue) && refused {
            self.write(What::Effect { key: "rogue".to_owned() });
        }
    }
}

/// When the record of this claim was made and until when the claim lasts; zeros if it is somebody else's by now.
async fn lease(looking: &Operation, attempt: u32) -> (i64, i64) {
    let intent = looking.get().await.expect("a ledger that could be written can be read");
    match intent.map(|intent| intent.seen.record) {
        Some(record) if record.attempts == attempt => match record.state {
            State::Leased(lease) => (record.created_at.as_millis(), lease.until.as_millis()),
            _ => (0, 0),
        },
        _ => (0, 0),
    }
}

async fn leaves(after: Option<Duration>) {
    match after {
        Some(after) => tokio::time::sleep(after).await,
        None => std::future::pending().await,
    }
}

fn told(answer: Answer, asked: i64, detail: String) -> What {
    What::Told { answer, asked, detail }
}
