//! `onceward run`, killed under load: the command, onceward itself, or both at once, at any moment. Several processes
//! start the same key at once.
//!
//! - `effect`: the command, which has one effect; its own process.

mod effect;

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::kills::judge::Response;
use crate::kills::product::{end, kill_now, this_program};
use crate::kills::{self, HELD, KillRun, Options};
use crate::rng::Rng;
pub use effect::{EffectOptions, run as act};

/// Commands at once.
const CALLERS: u64 = 4;

/// How often one caller tries one key before it gives up on it.
const TRIES: u64 = 5;

/// A command takes about this many milliseconds: kills come at any moment of that.
const LONGEST_LIFE: u64 = 90;

/// A command that takes this long hangs.
const HANGS: Duration = Duration::from_secs(30);

/// Which process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Onceward,
    Command,
    Both,
}

/// When it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    /// After this long.
    After(Duration, Victim),
    /// Onceward, as soon as the effect of the opening scenario has taken place.
    WhenActed,
}

/// Kills processes. True if no rule was broken.
pub fn run(options: &Options) -> bool {
    kills::on_runtime(play(options))
}

async fn play(options: &Options) -> bool {
    let run = Arc::new(KillRun::new(options, "run"));
    // Onceward is killed after the effect; then the same command is started again.
    call(&run, HELD, Some(Kill::WhenActed), &AtomicU64::new(0)).await;
    run.end_opening_scenario(&call(&run, HELD, None, &AtomicU64::new(0)).await);
    let killed = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> =
        (0..CALLERS).map(|caller| tokio::spawn(live(caller, Arc::clone(&run), Arc::clone(&killed)))).collect();
    for caller in callers {
        caller.await.expect("a caller");
    }
    run.finish(
        |value| ("--stdout", value.to_owned()),
        |key| {
            let run = Arc::clone(&run);
            async move { call(&run, &key, None, &AtomicU64::new(0)).await }
        },
    )
    .await;
    run.judge("run")
}

async fn live(caller: u64, run: Arc<KillRun>, killed: Arc<AtomicU64>) {
    let mut rng = Rng::of(&[run.options.seed, 5, caller]);
    while killed.load(Ordering::SeqCst) < run.options.kills && run.should_continue(killed.load(Ordering::SeqCst)) {
        let key = run.judge.pick(&mut rng);
        for _ in 0..TRIES {
            let victim = rng.weighted(&[(4, Victim::Onceward), (2, Victim::Command), (2, Victim::Both)]);
            let moment = Duration::from_millis(rng.below(LONGEST_LIFE));
            let kill = (!rng.one_in(3)).then_some(Kill::After(moment, victim));
            let response = call(&run, &key, kill, &killed).await;
            run.judge.record(&key, &response);
            if !response.should_retry() {
                break;
            }
        }
    }
}

/// Runs the command of a key once, and kills a process meanwhile. Its exit code and its output are the answer.
async fn call(run: &KillRun, key: &str, kill: Option<Kill>, killed: &AtomicU64) -> Response {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let pid_file = run.folder().join(format!("pid-{}", RUNS.fetch_add(1, Ordering::SeqCst)));
    let mut command = run.product.command(&["run", "--store"]);
    command.arg(run.store()).args(["--operation", "sim", "--on-error", "retry", "--key", key, "--"]);
    command.arg(this_program()).args(["effect", "--seed", &run.options.seed.to_string(), "--key", key]);
    command.arg("--effects").arg(run.effects.path());
    // The command line has to be the same each time, so the path of the pid file is not on it.
    command.env(effect::PID_FILE, &pid_file).current_dir(run.folder());
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
                run.has_acted().await;
            }
        };
        tokio::select! {
            _ = child.wait() => {}
            () = moment => {
                let hit = victim != Victim::Onceward && kill_command(run, &pid_file);
                if victim != Victim::Command {
                    let _ = child.start_kill();
                }
                killed.fetch_add(u64::from(hit || victim != Victim::Command), Ordering::SeqCst);
            }
        }
    }
    let Ok(Ok(status)) = tokio::time::timeout(HANGS, child.wait()).await else {
        end(&mut child).await;
        return Response::Wrong(format!("nothing within {} s", HANGS.as_secs()));
    };
    let _ = std::fs::remove_file(&pid_file);
    let (stdout, stderr) = reading.await.unwrap_or_default();
    match (status.signal(), status.code()) {
        (Some(_), _) => Response::Nothing,
        (_, Some(0)) => Response::Done(stdout.trim_end().to_owned()),
        (_, Some(75)) => Response::Busy,
        (_, Some(76)) => Response::Doubt,
        (_, Some(effect::REFUSED)) => Response::Refused,
        // The command was killed: the next call is answered in doubt.
        (_, Some(137)) => Response::Nothing,
        (_, code) => Response::Wrong(format!("exit code {code:?}: {stderr}")),
    }
}

/// Kills the command itself, if it is there. True if it was.
fn kill_command(run: &KillRun, pid_file: &PathBuf) -> bool {
    let pid = std::fs::read_to_string(pid_file).ok().and_then(|text| text.parse().ok());
    pid.is_some_and(|pid| kill_now(pid, run.effects.path()))
}

async fn text(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> String {
    use tokio::io::AsyncReadExt;
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
