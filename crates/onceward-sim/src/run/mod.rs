//! `onceward run`, killed under load: the command, onceward itself, or both at once, at any moment. Several start the same key
//! at once.
//!
//! - `effect`: the command, which has one effect; a process of its own.

mod effect;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::dice::Dice;
use crate::kills::book::Told;
use crate::kills::product::{end, kill_now, this_program};
use crate::kills::{self, HELD, Options, Stage};
pub use effect::{Role, run as act};

/// Commands at once.
const CALLERS: u64 = 4;

/// How often one caller tries one key before it gives up on it.
const TRIES: u64 = 5;

/// A command is over after so many milliseconds, about: kills come at any moment of that.
const LONGEST_LIFE: u64 = 90;

/// A command that takes this long hangs.
const HANGS: Duration = Duration::from_secs(30);

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Onceward,
    Command,
    Both,
}

/// Who is killed when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    /// After this long.
    After(Duration, Victim),
    /// Onceward, as soon as the effect of the first scene has taken place.
    WhenActed,
}

/// Kills as often as is wanted. True if nothing was broken.
pub fn run(options: &Options) -> bool {
    kills::on_a_runtime(play(options))
}

async fn play(options: &Options) -> bool {
    let started = Instant::now();
    let stage = Arc::new(Stage::new(options, "run"));
    // Onceward is killed after the effect; then the same command is started again.
    call(&stage, HELD, Some(Kill::WhenActed), &AtomicU64::new(0)).await;
    stage.first_scene(&call(&stage, HELD, None, &AtomicU64::new(0)).await);
    let killed = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> =
        (0..CALLERS).map(|caller| tokio::spawn(live(caller, Arc::clone(&stage), Arc::clone(&killed)))).collect();
    for caller in callers {
        caller.await.expect("a caller");
    }
    stage
        .finish(
            |value| ("--stdout", value.to_owned()),
            |key| {
                let stage = Arc::clone(&stage);
                async move { call(&stage, &key, None, &AtomicU64::new(0)).await }
            },
        )
        .await;
    stage.judge("run", started.elapsed())
}

async fn live(caller: u64, stage: Arc<Stage>, killed: Arc<AtomicU64>) {
    let mut dice = Dice::of(&[stage.options.seed, 5, caller]);
    while killed.load(Ordering::SeqCst) < stage.options.kills && stage.goes_on(killed.load(Ordering::SeqCst)) {
        let key = stage.book.pick(&mut dice);
        for _ in 0..TRIES {
            let victim = dice.weighted(&[(4, Victim::Onceward), (2, Victim::Command), (2, Victim::Both)]);
            let moment = Duration::from_millis(dice.below(LONGEST_LIFE));
            let kill = (!dice.one_in(3)).then_some(Kill::After(moment, victim));
            let told = call(&stage, &key, kill, &killed).await;
            stage.book.told(&key, &told);
            if !told.is_to_be_asked_again() {
                break;
            }
        }
    }
}

/// Runs the command of a key once, and kills somebody meanwhile. What it tells is its exit code and its output.
async fn call(stage: &Stage, key: &str, kill: Option<Kill>, killed: &AtomicU64) -> Told {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let pid_file = stage.folder().join(format!("pid-{}", RUNS.fetch_add(1, Ordering::SeqCst)));
    let mut command = stage.product.command(&["run", "--store"]);
    command.arg(stage.store()).args(["--operation", "sim", "--on-error", "retry", "--key", key, "--"]);
    command.arg(this_program()).args(["effect", "--seed", &stage.options.seed.to_string(), "--key", key]);
    command.arg("--effects").arg(stage.effects.path());
    // The command line has to be the same each time, so where the command says which process it is, is not on it.
    command.env(effect::PID_FILE, &pid_file).current_dir(stage.folder());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the product can be started");
    let output = (child.stdout.take(), child.stderr.take());
    let reading = tokio::spawn(async move { (text(output.0).await, text(output.1).await) });
    if let Some(kill) = kill {
        let (moment, victim) = match kill {
            Kill::After(moment, victim) => (moment, victim),
            Kill::WhenActed => (Duration::ZERO, Victim::Onceward),
        };
        let moment = async {
            tokio::time::sleep(moment).await;
            if kill == Kill::WhenActed {
                stage.has_acted().await;
            }
        };
        tokio::select! {
            _ = child.wait() => {}
            () = moment => {
                let hit = victim != Victim::Onceward && kill_command(stage, &pid_file);
                if victim != Victim::Command {
                    let _ = child.start_kill();
                }
                killed.fetch_add(u64::from(hit || victim != Victim::Command), Ordering::SeqCst);
            }
        }
    }
    let Ok(Ok(status)) = tokio::time::timeout(HANGS, child.wait()).await else {
        end(&mut child).await;
        return Told::Wrong(format!("nothing within {} s", HANGS.as_secs()));
    };
    let _ = std::fs::remove_file(&pid_file);
    let (stdout, stderr) = reading.await.unwrap_or_default();
    match (status.signal(), status.code()) {
        (Some(_), _) => Told::Nothing,
        (_, Some(0)) => Told::Done(stdout.trim_end().to_owned()),
        (_, Some(75)) => Told::Busy,
        (_, Some(76)) => Told::Doubt,
        (_, Some(effect::REFUSED)) => Told::Refused,
        // The command was killed: the next call says that it is in doubt.
        (_, Some(137)) => Told::Nothing,
        (_, code) => Told::Wrong(format!("exit code {code:?}: {stderr}")),
    }
}

/// Kills the command itself, if it is there. True if it was.
fn kill_command(stage: &Stage, pid_file: &PathBuf) -> bool {
    let pid = std::fs::read_to_string(pid_file).ok().and_then(|text| text.parse().ok());
    pid.is_some_and(|pid| kill_now(pid, stage.effects.path()))
}

async fn text(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    use tokio::io::AsyncReadExt;
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
