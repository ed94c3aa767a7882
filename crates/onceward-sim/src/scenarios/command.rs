//! `onceward run`: a command that a signal ended is held, and a repeat is the same command with the same exit code.

use std::process::Output;

use super::{Outcome, effects, same};
use crate::kills::KillRun;

/// Runs a line of shell under a key. Each line that it appends to the file of effects is an effect.
async fn onceward_run(run: &KillRun, key: &str, flags: &[&str], script: &str) -> Result<Output, String> {
    let mut command = run.product.command(&["run", "--store"]);
    command
        .arg(run.store())
        .args(["--operation", "scenario", "--key", key])
        .args(flags)
        .args(["--", "sh", "-c", script]);
    command.env("EFFECTS", run.effects.path()).current_dir(run.folder());
    command.output().await.map_err(|error| error.to_string())
}

pub(super) async fn play(run: &KillRun, check: &mut impl FnMut(&str, Outcome)) {
    check("run: a command that a signal ended is held", signal(run).await);
    check("run: another command under the same key is refused", other(run).await);
    check("run: a repeat exits with the same code", code(run).await);
}

async fn signal(run: &KillRun) -> Outcome {
    let script = r#"printf 'signal\tdone\n' >> "$EFFECTS"; kill -9 $$"#;
    // The exit code alone would not mean doubt here: the signal does.
    let flags = ["--on-error", "retry", "--doubt-exit", ""];
    onceward_run(run, "signal", &flags, script).await?;
    let again = onceward_run(run, "signal", &flags, script).await?;
    same("effects", &effects(run, "signal"), &1)?;
    same("the repeat's exit code", &again.status.code(), &Some(76))
}

async fn other(run: &KillRun) -> Outcome {
    onceward_run(run, "other", &[], r#"printf 'other\tfirst\n' >> "$EFFECTS"; echo first"#).await?;
    let second = onceward_run(run, "other", &[], r#"printf 'other\tsecond\n' >> "$EFFECTS"; echo second"#).await?;
    same("effects", &effects(run, "other"), &1)?;
    same("the other command", &(second.status.code(), second.stdout), &(Some(65), Vec::new()))
}

async fn code(run: &KillRun) -> Outcome {
    let script = r#"printf 'code\tdone\n' >> "$EFFECTS"; echo out; exit 3"#;
    let first = onceward_run(run, "code", &["--on-error", "keep"], script).await?;
    let again = onceward_run(run, "code", &["--on-error", "keep"], script).await?;
    same("effects", &effects(run, "code"), &1)?;
    same("the exit codes", &(first.status.code(), again.status.code()), &(Some(3), Some(3)))?;
    same("the output", &again.stdout, &b"out\n".to_vec())
}
