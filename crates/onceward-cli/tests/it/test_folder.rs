//! A temporary folder to run the binary in, and the output of a run.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Long enough for the slowest machine: only a failing test waits this long.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct TestFolder(TempDir);

/// The exit code and the output of a run.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl TestFolder {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The binary in this folder, without our environment variables, and without ignored signals: if the tests run in the
    /// background, some signals may be ignored, and the binary would rightly pass that on.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let program = env!("CARGO_BIN_EXE_onceward");
        let mut command = Command::new(if cfg!(target_os = "linux") { "env" } else { program });
        if cfg!(target_os = "linux") {
            command.args(["--default-signal", program]);
        }
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        for name in ["STORE", "CONFIG", "TENANT", "LOG", "KEY", "SESSION"] {
            command.env_remove(format!("ONCEWARD_{name}"));
        }
        // The user who runs the tests may have a ledger of gateways, which must be neither read nor written.
        command.env("XDG_STATE_HOME", self.path(".state"));
        command
    }

    pub(crate) fn onceward(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.command(arguments).output().unwrap())
    }

    /// `onceward run --operation op`, these flags, and a shell script.
    pub(crate) fn run(&self, flags: &[&str], script: &str) -> CommandOutput {
        CommandOutput::of(self.run_command(flags, script).output().unwrap())
    }

    pub(crate) fn run_command(&self, flags: &[&str], script: &str) -> Command {
        let arguments: Vec<&str> = [&["run", "--operation", "op"], flags, &["--", "sh", "-c", script]].concat();
        self.command(&arguments)
    }

    /// Starts it; its output can be read later.
    pub(crate) fn start(&self, flags: &[&str], script: &str) -> Child {
        self.run_command(flags, script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn wait_for_file(&self, name: &str) -> String {
        wait_until(|| !self.read(name).is_empty());
        self.read(name)
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let answer = self.onceward(arguments);
        assert_eq!(answer.code, 0, "{answer:?}");
        serde_json::from_slice(&answer.stdout).unwrap()
    }
}

impl CommandOutput {
    pub(crate) fn of(output: Output) -> Self {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Self { code: output.status.code().unwrap_or(-1), stdout: output.stdout, stderr }
    }

    pub(crate) fn out(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// Checks the exit code, and that stderr contains each of these texts.
    #[track_caller]
    pub(crate) fn says(&self, code: i32, texts: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for text in texts {
            assert!(self.stderr.contains(text), "{text:?} is not in:\n{}", self.stderr);
        }
    }
}

#[track_caller]
pub(crate) fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT_LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out");
        std::thread::sleep(Duration::from_millis(5));
    }
}
