//! The folder of a run with its ledger and its effects, and how the run ends.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures_util::StreamExt;

use super::book::{Book, Told};
use super::effects::Effects;
use super::product::Product;
use super::{HELD, Options, doubts};

/// How often a progress line is printed.
const PROGRESS: Duration = Duration::from_secs(2);

/// Doubts that are settled at the end, each by a command: enough to see that it works.
const SETTLED: usize = 30;

/// How often the file of effects is looked at in the first scene.
const LOOK: Duration = Duration::from_millis(2);

/// How often at the most: 20 seconds.
const LOOKS: u32 = 10_000;

/// Last questions at once.
const LAST_QUESTIONS: usize = 4;

/// What is the same for all of a run.
#[derive(Debug)]
pub struct Stage {
    pub options: Options,
    pub product: Product,
    folder: tempfile::TempDir,
    pub effects: Effects,
    pub book: Book,
    started: Instant,
    told: Mutex<Instant>,
}

impl Stage {
    pub fn new(options: &Options, name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(&format!("onceward-{name}-")).tempdir().expect("a folder");
        let effects = Effects::at(&folder.path().join("effects"));
        let (product, now) = (Product::of(options), Instant::now());
        Self {
            options: options.clone(),
            product,
            folder,
            effects,
            book: Book::default(),
            started: now,
            told: Mutex::new(now),
        }
    }

    pub fn store(&self) -> PathBuf {
        self.folder.path().join("ledger.db")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Tells how far it is, now and then. False once something is broken: more of it says nothing new.
    pub fn goes_on(&self, kill: u64) -> bool {
        let mut told = self.told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if told.elapsed() > PROGRESS {
            *told = Instant::now();
            let seconds = self.started.elapsed().as_secs();
            println!("kill {kill} of {}, {seconds} s: {}", self.options.kills, self.book.line());
        }
        self.book.violations() == 0
    }

    /// Waits until the first scene's effect has taken place, or for as long as it may take at the most.
    pub async fn has_acted(&self) {
        for _ in 0..LOOKS {
            if self.effects.read().contains_key(HELD) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        self.book.violation(format!("{HELD}: its effect never took place"));
    }

    /// The end of the first scene: somebody was killed between the effect and its answer, so whoever asks again is told that
    /// it is in doubt. Nothing here depends on luck.
    pub fn first_scene(&self, told: &Told) {
        self.book.told(HELD, told);
        if *told != Told::Doubt {
            self.book.violation(format!("{HELD}: killed after the effect, and then told {told:?}"));
        }
    }

    /// The last questions, to a process that knows nothing but the ledger: every key is done, in doubt or free to run, what
    /// was told is told again, nothing is left running, and doubts can be settled. `shown` is how a value is given to the
    /// command that settles: a flag, and its text.
    pub async fn finish<Asking: Future<Output = Told>>(
        &self,
        shown: impl Fn(&str) -> (&'static str, String),
        ask: impl Fn(String) -> Asking,
    ) {
        self.effects.calm_down();
        let ask_one = &ask;
        let questions = self.book.keys().into_iter().map(|key| async move {
            let told = ask_one(key.clone()).await;
            self.book.told_at_the_end(&key, &told);
        });
        futures_util::stream::iter(questions).buffer_unordered(LAST_QUESTIONS).collect::<()>().await;
        self.nothing_is_stuck().await;
        let listed = doubts::listed(&self.product, &self.store(), "in_doubt").await.unwrap_or_else(|error| {
            self.book.violation(error);
            Vec::new()
        });
        // What has no key of its client's is not asked for by its key.
        let keys = self.book.keys();
        for doubt in listed.iter().filter(|doubt| keys.contains(&doubt.key)).take(SETTLED) {
            match doubts::settle(&self.product, &self.store(), doubt, &self.effects, &shown).await {
                Err(error) => self.book.violation(format!("{}: cannot be settled: {error}", doubt.key)),
                Ok(expected) => {
                    let told = ask(doubt.key.clone()).await;
                    let expected = expected.or_else(|| self.effects.read().remove(&doubt.key)?.pop());
                    self.book.settled(&doubt.key, &expected.unwrap_or_default(), &told);
                }
            }
        }
    }

    async fn nothing_is_stuck(&self) {
        match doubts::listed(&self.product, &self.store(), "running,queued,dead").await {
            Ok(stuck) if stuck.is_empty() => {}
            Ok(stuck) => self.book.violation(format!("{} intents never end, such as {:?}", stuck.len(), stuck[0])),
            Err(error) => self.book.violation(error),
        }
    }

    /// Judges, prints the summary, and says whether nothing was broken.
    pub fn judge(&self, command: &str, took: Duration) -> bool {
        self.book.judge(&self.effects);
        println!("{command}");
        println!("{:<46}{:>10}", "kills", self.options.kills);
        println!("{:<46}{:>10}", "seed", self.options.seed);
        self.book.print(&self.effects, took);
        let sound = self.book.violations() == 0;
        if !sound {
            println!("again: onceward-sim {command} --kills {} --seed {}", self.options.kills, self.options.seed);
        }
        sound
    }
}
