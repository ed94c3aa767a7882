//! Runs `onceward-sim` for the tests, and reads what it prints.

use std::process::Command;

/// What a run of the harness came to.
pub(crate) struct Run {
    /// The exit code.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) text: String,
    stderr: String,
}

/// Runs the harness with arguments that are separated by spaces.
pub(crate) fn sim(arguments: &str) -> Run {
    let program = env!("CARGO_BIN_EXE_onceward-sim");
    let output = Command::new(program).args(arguments.split_whitespace()).output().unwrap();
    Run {
        code: output.status.code(),
        text: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs the harness, which must find nothing.
pub(crate) fn passes(arguments: &str) -> Run {
    let run = sim(arguments);
    assert_eq!(run.code, Some(0), "{arguments}: {}{}", run.text, run.stderr);
    run
}

/// Runs the harness, which must find a violation that begins with this text.
pub(crate) fn finds(arguments: &str, violation: &str) -> Run {
    let run = sim(arguments);
    let line = format!("VIOLATION {violation}");
    assert!(run.text.lines().any(|found| found.starts_with(&line)), "{arguments}: {}{}", run.text, run.stderr);
    assert_eq!(run.code, Some(1), "{arguments}: {}", run.text);
    run
}

impl Run {
    /// The number of a row of the summary.
    pub(crate) fn number(&self, name: &str) -> u64 {
        let rows = self.text.lines().filter_map(|line| line.strip_prefix(name));
        let number = rows.filter_map(|rest| rest.trim().parse().ok()).next();
        number.unwrap_or_else(|| panic!("`{name}` is missing in {}", self.text))
    }

    /// The rest of the line that begins with this text.
    pub(crate) fn line_after(&self, start: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix(start))
    }
}
