//! The command that `onceward run` runs: it has one effect, prints it, and sometimes fails or dies before.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::kills::effects::Effects;
use crate::kills::{HELD, HELD_FOR, Options};
use crate::rng::Rng;

/// The variable with the path of the file in which the command writes its process id.
pub const PID_FILE: &str = "SIM_PID_FILE";

/// The exit code of a command that has done nothing.
pub const REFUSED: i32 = 1;

/// What the command is started with.
#[derive(Clone, Debug)]
pub struct EffectOptions {
    /// The file of effects.
    pub effects: PathBuf,
    /// The seed of the run.
    pub seed: u64,
    /// The key of the call.
    pub key: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Answer,
    /// Fails, having done nothing.
    Refuse,
    /// Acts, and is killed before it prints.
    Die,
}

/// Acts, and returns the exit code.
pub fn run(role: &EffectOptions) -> u8 {
    if let Some(path) = std::env::var_os(PID_FILE) {
        std::fs::write(path, std::process::id().to_string()).expect("the command can say which process it is");
    }
    let effects = Effects::at(&role.effects);
    let mut rng = Rng::of(&[role.seed, 3, Options::number(&role.key)]);
    let planned = rng.weighted(&[(30, Behaviour::Answer), (2, Behaviour::Refuse), (1, Behaviour::Die)]);
    let (before, after) = (Duration::from_millis(rng.below(15)), Duration::from_millis(rng.below(15)));
    let behaviour = if effects.is_calm() { Behaviour::Answer } else { planned };
    if behaviour == Behaviour::Refuse {
        return 1;
    }
    std::thread::sleep(before);
    let value = format!("{} effect {}", role.key, std::process::id());
    effects.happen(&role.key, &value);
    if role.key == HELD && !effects.is_calm() {
        std::thread::sleep(HELD_FOR);
    }
    if behaviour == Behaviour::Die {
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }
    std::thread::sleep(after);
    println!("{value}");
    0
}
