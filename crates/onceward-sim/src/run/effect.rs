//! The command that `onceward run` runs: it has one effect, says so, and sometimes fails or dies on the way.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::dice::Dice;
use crate::kills::effects::Effects;
use crate::kills::{HELD, HOLDS, Options};

/// Where the command writes down which process it is.
pub const PID_FILE: &str = "SIM_PID_FILE";

/// What it exits with when it has done nothing.
pub const REFUSED: i32 = 1;

/// What the command is started with.
#[derive(Clone, Debug)]
pub struct Role {
    /// The file of effects.
    pub effects: PathBuf,
    /// The seed of the run.
    pub seed: u64,
    /// The key of the call.
    pub key: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Answer,
    /// Fails, having done nothing.
    Refuse,
    /// Acts, and is killed before it says so.
    Die,
}

/// Acts, and gives the exit code.
pub fn run(role: &Role) -> u8 {
    if let Some(path) = std::env::var_os(PID_FILE) {
        std::fs::write(path, std::process::id().to_string()).expect("the command can say which process it is");
    }
    let effects = Effects::at(&role.effects);
    let mut dice = Dice::of(&[role.seed, 3, Options::number(&role.key)]);
    let planned = dice.weighted(&[(30, Deed::Answer), (2, Deed::Refuse), (1, Deed::Die)]);
    let (before, after) = (Duration::from_millis(dice.below(15)), Duration::from_millis(dice.below(15)));
    let deed = if effects.is_calm() { Deed::Answer } else { planned };
    if deed == Deed::Refuse {
        return 1;
    }
    std::thread::sleep(before);
    let value = format!("{} effect {}", role.key, std::process::id());
    effects.happen(&role.key, &value);
    if role.key == HELD && !effects.is_calm() {
        std::thread::sleep(HOLDS);
    }
    if deed == Deed::Die {
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }
    std::thread::sleep(after);
    println!("{value}");
    0
}
