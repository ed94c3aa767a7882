//! A process that makes guarded calls until it is done or dead. It records in the journal what it does and what the
//! ledger answers, and judges nothing.

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
use onceward::{CallBuilder, Claim, Done, Error, Failure, InDoubt, Ledger, StoreUrl};

use super::fault::Fault;
use super::intent_kind::IntentKind;
use super::journal::{CallResult, Ending, Event, JournalReader, JournalWriter, Line, now};
use super::plan::{AttemptEnd, PlannedCall, RunPlan, WorkerPlan};
use crate::private_store;

/// Calls of one worker at the same time, so that writes of one process meet in one transaction.
const CALLS_AT_ONCE: usize = 3;

/// How often a worker whose claim was stolen checks for a takeover, a millisecond apart: two seconds are enough for a
/// process to start.
const TAKEN_OVER_LOOKS: u32 = 2000;

/// The operation of all intents.
pub const OPERATION: &str = "crash";

/// The options that the parent passes to a worker.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The folder of the run.
    pub folder: PathBuf,
    /// The URL of the ledger, if it is on a server.
    pub store: Option<String>,
    /// The seed of the run.
    pub seed: u64,
    /// The cycle.
    pub cycle: u64,
    /// Which worker of the cycle.
    pub worker: u64,
    /// The step at which to die, and at which visit of it.
    pub die: Option<(Step, u32)>,
    /// Where in the journal the generations of this cycle's intents begin, for probes.
    pub since: u64,
    /// The fault to commit.
    pub fault: Option<Fault>,
}

impl WorkerOptions {
    /// The plan of the run.
    pub fn plan(&self) -> RunPlan {
        RunPlan::of(self.seed, self.store.as_deref())
    }

    fn ledger_url(&self) -> StoreUrl {
        match &self.store {
            Some(url) => url.into(),
            None => super::ledger_path(&self.folder).into(),
        }
    }
}

struct WorkerState {
    ledger: Ledger,
    writer: &'static JournalWriter,
    options: WorkerOptions,
    calls: Vec<PlannedCall>,
    next: AtomicUsize,
}

static JOURNAL: OnceLock<JournalWriter> = OnceLock::new();
static DIE: OnceLock<(Step, u32)> = OnceLock::new();
static TIMES: AtomicU32 = AtomicU32::new(0);

/// Follows the plan.
pub fn run(options: WorkerOptions, worker_plan: WorkerPlan) {
    let writer = JournalWriter::open(&super::journal_path(&options.folder)).expect("the parent made the journal");
    let writer = JOURNAL.get_or_init(|| writer);
    if let Some(die) = options.die {
        let _ = DIE.set(die);
        on_step(die_here);
    }
    // Work that panics on purpose prints nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    runtime.block_on(async {
        let stays = options.plan().times.stays;
        let ledger = match Ledger::open(options.ledger_url()).await {
            Ok(ledger) => ledger,
            Err(error) => return failed(writer, &error),
        };
        let state =
            Arc::new(WorkerState { ledger, writer, options, calls: worker_plan.calls, next: AtomicUsize::new(0) });
        let tasks: Vec<_> = (0..CALLS_AT_ONCE).map(|_| tokio::spawn(make_calls(Arc::clone(&state)))).collect();
        for task in tasks {
            task.await.expect("a task does not panic");
        }
        tokio::time::sleep(stays).await;
    });
    // Without closing anything, as most processes end.
    std::process::exit(0);
}

/// Makes the ledger beside other processes that do the same: a file by opening it, a ledger on a server by a migration.
pub fn make_ledger(options: WorkerOptions) {
    let Some(url) = options.store.clone() else { return run(options, WorkerPlan::open_only()) };
    let writer = JournalWriter::open(&super::journal_path(&options.folder)).expect("the parent made the folder");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    if let Err(error) = runtime.block_on(private_store::migrate(&url)) {
        failed(&writer, &error);
    }
}

fn failed(writer: &JournalWriter, error: &onceward::store::Error) {
    let detail = error.to_string();
    writer.write(0, "", Event::Answered { answer: CallResult::Store, asked: now(), detail });
}

fn die_here(step: Step) {
    let (Some((at, times)), Some(writer)) = (DIE.get(), JOURNAL.get()) else { return };
    if step == *at && TIMES.fetch_add(1, Ordering::SeqCst) + 1 == *times {
        writer.write(0, "", Event::Dies { step: step.name() });
        let _ = kill(Pid::this(), Signal::SIGKILL);
        // The signal is on its way; nothing more may happen on this thread.
        loop {
            std::thread::park();
        }
    }
}

async fn make_calls(state: Arc<WorkerState>) {
    loop {
        let number = state.next.fetch_add(1, Ordering::SeqCst);
        let Some(planned) = state.calls.get(number).copied() else { return };
        let nonce = format!("c{}w{}n{number}", state.options.cycle, state.options.worker);
        let call = Call {
            state: Arc::clone(&state),
            planned,
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
    state: Arc<WorkerState>,
    planned: PlannedCall,
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
        let operation = self.operation(json!({ "intent": self.planned.intent }));
        let asked = now();
        self.asked.store(asked, Ordering::SeqCst);
        let (leave, left) = oneshot::channel();
        let work = self.clone();
        let leave_after = self.planned.leaves;
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
            Ok(None) if !self.began.load(Ordering::SeqCst) => Event::Left,
            Ok(None) | Err(_) => told(CallResult::Gone, asked, String::new()),
        };
        let misuse = self.planned.misuse && matches!(said, Event::Ack { .. }) && !self.kind().brief;
        self.go_rogue(&said);
        self.write(said);
        if misuse {
            self.misuse().await;
        }
    }

    fn operation(&self, request: serde_json::Value) -> CallBuilder {
        let key = super::key(self.planned.intent);
        let policy = self.kind().policy();
        self.state.ledger.operation(OPERATION).key(&key).intent(&request).policy(policy).wait(self.planned.wait)
    }

    fn kind(&self) -> IntentKind {
        self.state.options.plan().kind(self.planned.intent)
    }

    fn write(&self, event: Event) {
        self.state.writer.write(self.planned.intent, &self.nonce, event);
    }

    fn said(&self, result: Result<Done<String>, Error>, asked: i64) -> Event {
        let kept = *self.ending.lock().expect("no task panics while it holds the lock") == Some(Ending::Finish);
        let answer = match &result {
            Ok(done) if done.replayed => return Event::Replay { value: done.value.clone(), asked },
            Ok(done) => return Event::Ack { value: done.value.clone() },
            Err(Error::Failed { failure, replayed: true, .. }) => {
                return Event::Replay { value: failure.message().to_owned(), asked };
            }
            Err(Error::Failed { failure, .. }) if kept => return Event::Ack { value: failure.message().to_owned() },
            Err(Error::Failed { .. }) => CallResult::Failed,
            Err(Error::InFlight { .. }) => CallResult::InFlight,
            Err(Error::InDoubt { .. } | Error::OwnerUnknown { .. }) => CallResult::InDoubt,
            Err(Error::OutcomeNotKept { .. }) => CallResult::NotKept,
            Err(Error::OwnerFailed { .. }) => CallResult::OwnerFailed,
            Err(Error::ClaimLost { .. }) => CallResult::ClaimLost,
            Err(Error::Contended { .. }) => CallResult::Contended,
            Err(Error::Store(_) | Error::NotRecorded { .. }) => CallResult::Store,
            Err(_) => CallResult::Wrong,
        };
        told(answer, asked, result.err().map(|error| error.to_string()).unwrap_or_default())
    }

    /// The work under the claim: marks, the effect between them, and the planned end.
    async fn work(self, claim: Claim, looking: CallBuilder, leave: oneshot::Sender<()>) -> Result<String, Failure> {
        let (created, until) = lease(&looking, claim.attempt()).await;
        self.began.store(true, Ordering::SeqCst);
        let asked = self.asked.load(Ordering::SeqCst);
        let steals = self.state.options.fault == Some(Fault::Steal) && self.kind().in_doubt == InDoubt::Retry;
        if steals {
            Fault::steal(&super::ledger_path(&self.state.options.folder), claim.key());
        }
        self.write(Event::Try { attempt: claim.attempt(), created, until, asked });
        if steals {
            self.until_taken_over(claim.attempt()).await;
        }
        if claim.probe_first() {
            if let Some(receipt) = self.probe(created) {
                self.ending(Ending::Finish);
                return Ok(receipt);
            }
            self.write(Event::NotFound);
            if let Err(error) = claim.not_found().await {
                self.ending(Ending::Doubt);
                return Err(Failure::unknown(error));
            }
        }
        if self.planned.attempt_end == AttemptEnd::NotSent {
            return self.end(leave).await;
        }
        tokio::time::sleep(self.planned.before).await;
        if self.kind().marks {
            self.write(Event::Sending);
            if let Err(error) = claim.sent().await {
                // Another owner continued, or the mark may not have been written: nothing may be sent.
                self.ending(Ending::Doubt);
                return Err(Failure::unknown(error));
            }
            self.write(Event::Sent);
        }
        if self.planned.happens {
            self.write(Event::Effect { key: claim.downstream_key().to_owned() });
        }
        tokio::time::sleep(self.planned.after).await;
        self.end(leave).await
    }

    /// Waits until another attempt of the same intent has begun, or for as long as that may take.
    async fn until_taken_over(&self, own: u32) {
        let mut reader =
            JournalReader::open(&super::journal_path(&self.state.options.folder)).expect("the journal is there");
        reader.seek(self.state.options.since);
        let is_other = |line: &Line| matches!(line.event, Event::Try { attempt, .. } if attempt > own);
        for _ in 0..TAKEN_OVER_LOOKS {
            let lines = reader.read_new().expect("the journal can be read");
            if lines.iter().any(|line| line.intent == self.planned.intent && is_other(line)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Probes the downstream for an effect of this intent since its record was created.
    fn probe(&self, created: i64) -> Option<String> {
        let mut reader =
            JournalReader::open(&super::journal_path(&self.state.options.folder)).expect("the journal is there");
        reader.seek(self.state.options.since);
        let lines = reader.read_new().expect("the journal can be read");
        let found = lines.into_iter().find(|line| {
            line.intent == self.planned.intent && line.at >= created && matches!(line.event, Event::Effect { .. })
        });
        found.map(|line| line.nonce)
    }

    async fn end(&self, leave: oneshot::Sender<()>) -> Result<String, Failure> {
        let nonce = self.nonce.to_string();
        let failed = format!("failed:{nonce}");
        match self.planned.attempt_end {
            AttemptEnd::Succeed => {
                self.ending(Ending::Finish);
                Ok(nonce)
            }
            AttemptEnd::Final => {
                self.ending(Ending::Finish);
                Err(Failure::permanent(failed))
            }
            AttemptEnd::NotSent => {
                self.ending(Ending::Release);
                Err(Failure::not_sent(failed))
            }
            AttemptEnd::Refused => {
                self.ending(Ending::Release);
                Err(Failure::refused(failed, Some(self.planned.before)))
            }
            AttemptEnd::Unknown => {
                self.ending(Ending::Doubt);
                if self.state.options.fault == Some(Fault::Release) {
                    return Err(Failure::not_sent(failed));
                }
                Err(Failure::unknown(failed))
            }
            AttemptEnd::Unclassified => {
                self.ending(match self.kind().on_error {
                    _ if self.kind().marks => Ending::Doubt,
                    OnError::Classify | OnError::Retry => Ending::Release,
                    OnError::Doubt => Ending::Doubt,
                    OnError::Keep => Ending::Finish,
                });
                Err(std::io::Error::other(failed).into())
            }
            AttemptEnd::Panic => {
                self.ending(Ending::Doubt);
                panic!("as planned");
            }
            AttemptEnd::Cancel => {
                self.ending(Ending::Doubt);
                let _ = leave.send(());
                std::future::pending().await
            }
        }
    }

    fn ending(&self, ending: Ending) {
        self.write(Event::End(ending));
        *self.ending.lock().expect("no task panics while it holds the lock") = Some(ending);
    }

    /// The same key with another request is refused, in every state of the intent.
    async fn misuse(&self) {
        let operation = self.operation(json!({ "intent": "another" }));
        let result = operation.run(|_| async { Ok("it ran".to_owned()) }).await;
        if !matches!(result, Err(Error::Mismatch { .. })) {
            self.write(Event::NoMismatch { got: format!("{result:?}") });
        }
    }

    /// The fault of a worker that acts without the claim.
    fn go_rogue(&self, said: &Event) {
        let refused = matches!(
            said,
            Event::Answered { answer: CallResult::InDoubt | CallResult::InFlight, .. } | Event::Replay { .. }
        );
        if self.state.options.fault == Some(Fault::Rogue) && refused {
            self.write(Event::Effect { key: "rogue".to_owned() });
        }
    }
}

/// When the record of this claim was created, and until when the claim lasts; zeros if it has another owner by now.
async fn lease(looking: &CallBuilder, attempt: u32) -> (i64, i64) {
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

fn told(answer: CallResult, asked: i64, detail: String) -> Event {
    Event::Answered { answer, asked, detail }
}
