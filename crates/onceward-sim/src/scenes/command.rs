//! `onceward run`: a command that a signal ended is held, and a repeat is the same command with the same exit code.

use std::process::Output;

use super::{Outcome, effects, same};
use crate::kills::Stage;

/// Runs a line of shell under a key. Each line that it writes to the file of effects is an effect.
async fn run(stage: &Stage, key: &str, flags: &[&str], script: &str) -> Result<Output, String> {
    let mut command = stage.product.command(&["run", "--store"]);
    command
        .arg(stage.store())
        .args(["--operation", "scene", "--key", key])
        .args(flags)
        .args(["--", "sh", "-c", script]);
    command.env("EFFECTS", stage.effects.path()).current_dir(stage.folder());
    command.output().await.map_err(|error| error.to_string())
}

pub(super) async fn play(stage: &Stage, tell: &mut impl FnMut(&str, Outcome)) {
    tell("run: a command that a signal ended is held", signal(stage).await);
    tell("run: another command under the same key is refused", other(stage).await);
    tell("run: a repeat exits with the same code", code(stage).await);
}

async fn signal(stage: &Stage) -> Outcome {
    let script = r#"printf 'signal\tdone\n' >> "$EFFECTS"; kill -9 $$"#;
    // No exit code stands for doubt here: the signal alone has to do it.
    let flags = ["--on-error", "retry", "--doubt-exit", ""];
    run(stage, "signal", &flags, script).await?;
    let again = run(stage, "signal", &flags, script).await?;
    same("effects", &effects(stage, "signal"), &1)?;
    same("the repeat's exit code", &again.status.code(), &Some(76))
}

async fn other(stage: &Stage) -> Outcome {
    run(stage, "other", &[], r#"printf 'other\tfirst\n' >> "$EFFECTS"; echo first"#).await?;
    let second = run(stage, "other", &[], r#"printf 'other\tsecond\n' >> "$EFFECTS"; echo second"#).await?;
    same("effects", &effects(stage, "other"), &1)?;
    same("the other command", &(second.status.code(), second.stdout), &(Some(65), Vec::new()))
}

async fn code(stage: &Stage) -> Outcome {
    let script = r#"printf 'code\tdone\n' >> "$EFFECTS"; echo out; exit 3"#;
    let first = run(stage, "code", &["--on-error", "keep"], script).await?;
    let again = run(stage, "code", &["--on-error", "keep"], script).await?;
    same("effects", &effects(stage, "code"), &1)?;
    same("the exit codes", &(first.status.code(), again.status.code()), &(Some(3), Some(3)))?;
    same("the output", &again.stdout, &b"out\n".to_vec())
}
