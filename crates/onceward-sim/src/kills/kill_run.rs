//! One run: its folder with the ledger and the effects, and how the run ends.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::StreamExt;

use super::effects::Effects;
use super::judge::{Judge, Response};
use super::product::Product;
use super::{HELD, Options, doubts};
use crate::report::{Progress, row};

/// Doubts that are settled at the end, each by a command: enough to prove that it works.
const SETTLED: usize = 30;

/// How often the file of effects is polled in the opening scenario.
const LOOK: Duration = Duration::from_millis(2);

/// The number of polls: 20 seconds.
const LOOKS: u32 = 10_000;

/// The number of last questions at once.
const LAST_QUESTIONS_AT_ONCE: usize = 4;

/// What all parts of a run share.
#[derive(Debug)]
pub struct KillRun {
    pub options: Options,
    pub product: Product,
    folder: tempfile::TempDir,
    pub effects: Effects,
    pub judge: Judge,
    progress: Progress,
}

impl KillRun {
    pub fn new(options: &Options, name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(&format!("onceward-{name}-")).tempdir().expect("a folder");
        let effects = Effects::at(&folder.path().join("effects"));
        let product = Product::of(options);
        Self {
            options: options.clone(),
            product,
            folder,
            effects,
            judge: Judge::default(),
            progress: Progress::start(),
        }
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Prints progress now and then. False once a rule is broken: the run ends.
    pub fn should_continue(&self, kill: u64) -> bool {
        self.progress.print("kill", kill, self.options.kills, || self.judge.line());
        self.judge.violations() == 0
    }

    /// Waits until the effect of the opening scenario has taken place, within a limit.
    pub async fn has_acted(&self) {
        for _ in 0..LOOKS {
            if self.effects.read().contains_key(HELD) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        self.judge.violation(format!("{HELD}: its effect never took place"));
    }

    /// The end of the opening scenario: a process was killed between the effect and its answer, so the next caller must
    /// be answered in doubt. Nothing is left to chance.
    pub fn end_opening_scenario(&self, response: &Response) {
        self.judge.record(HELD, response);
        if *response != Response::Doubt {
            self.judge.violation(format!("{HELD}: killed after the effect, and then answered {response:?}"));
        }
    }

    /// The last questions, to a process that knows only the ledger: every key is done, in doubt or free to run, every
    /// answer is repeated, nothing stays running, and doubts can be settled. `shown` returns how a value is given to
    /// the command that settles: a flag, and its text.
    pub async fn finish<Asking: Future<Output = Response>>(
        &self,
        shown: impl Fn(&str) -> (&'static str, String),
        ask: impl Fn(String) -> Asking,
    ) {
        self.effects.calm_down();
        let ask_one = &ask;
        let questions = self.judge.keys().into_iter().map(|key| async move {
            let response = ask_one(key.clone()).await;
            self.judge.record_last(&key, &response);
        });
        futures_util::stream::iter(questions).buffer_unordered(LAST_QUESTIONS_AT_ONCE).collect::<()>().await;
        self.nothing_is_stuck().await;
        let listed = doubts::listed(&self.product, &self.store(), "in_doubt").await.unwrap_or_else(|error| {
            self.judge.violation(error);
            Vec::new()
        });
        // Intents without a client's key cannot be asked for by key.
        let keys = self.judge.keys();
        for doubt in listed.iter().filter(|doubt| keys.contains(&doubt.key)).take(SETTLED) {
            match doubts::settle(&self.product, &self.store(), doubt, &self.effects, &shown).await {
                Err(error) => self.judge.violation(format!("{}: cannot be settled: {error}", doubt.key)),
                Ok(expected) => {
                    let response = ask(doubt.key.clone()).await;
                    let expected = expected.or_else(|| self.effects.read().remove(&doubt.key)?.pop());
                    self.judge.settled(&doubt.key, &expected.unwrap_or_default(), &response);
                }
            }
        }
    }

    async fn nothing_is_stuck(&self) {
        match doubts::listed(&self.product, &self.store(), "running,queued,dead").await {
            Ok(stuck) if stuck.is_empty() => {}
            Ok(stuck) => self.judge.violation(format!("{} intents never end, such as {:?}", stuck.len(), stuck[0])),
            Err(error) => self.judge.violation(error),
        }
    }

    /// Judges, prints the summary, and returns whether no rule was broken.
    pub fn judge(&self, command: &str) -> bool {
        self.judge.judge(&self.effects);
        println!("{command}");
        row("kills", self.options.kills);
        row("seed", self.options.seed);
        self.judge.print(&self.effects, self.progress.elapsed());
        let sound = self.judge.violations() == 0;
        if !sound {
            println!("again: onceward-sim {command} --kills {} --seed {}", self.options.kills, self.options.seed);
        }
        sound
    }
}
