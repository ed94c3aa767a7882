//! Reports the result of a run: to the user on stderr, and to programs on `--status-fd`.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use onceward::core::duration;
use onceward::core::name::Identity;
use onceward::core::time::Timestamp;
use serde::Serialize;

use onceward_runtime::exit::Fault;
use onceward_runtime::output::say;

/// The file descriptor for the report to programs.
#[derive(Debug)]
pub(crate) struct StatusFd(Option<File>);

impl StatusFd {
    /// Opens it before anything runs, so that a wrong number is just a usage error.
    pub(crate) fn open(fd: Option<u32>) -> Result<Self, Fault> {
        let Some(fd) = fd else { return Ok(Self(None)) };
        let opened = File::options().append(true).open(format!("/dev/fd/{fd}"));
        let opened = opened.map_err(|error| {
            Fault::usage(format!("cannot write to --status-fd {fd}: {error}\n  Open it first, as in 3>status.json"))
        })?;
        Ok(Self(Some(opened)))
    }

    fn write(&self, line: &StatusLine<'_>) {
        let Self(Some(file)) = self else { return };
        let written = serde_json::to_string(line).map_err(std::io::Error::other);
        if let Err(error) = written.and_then(|text| (&*file).write_all(format!("{text}\n").as_bytes())) {
            say(&format!("failed to write to --status-fd: {error}"));
        }
    }
}

/// The result of a call.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) decision: &'static str,
    pub(super) exit_code: u8,
    /// The message for the user, if any.
    pub(super) message: Option<String>,
    /// Whether `--quiet` drops the message.
    pub(super) is_routine: bool,
    pub(super) attempt: Option<u32>,
    /// What the record now says about a command that ran.
    pub(super) recorded: Option<&'static str>,
    pub(super) since: Option<Timestamp>,
    pub(super) expires: Option<Timestamp>,
    pub(super) retry_after: Option<Duration>,
}

#[derive(Serialize)]
struct StatusLine<'a> {
    decision: &'a str,
    tenant: &'a str,
    operation: &'a str,
    key: &'a str,
    exit_code: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<String>,
}

impl Report {
    /// Writes the report and returns the exit code.
    pub(super) fn write(&self, identity: &Identity, status: &StatusFd, quiet: bool) -> u8 {
        if let Some(message) = self.message.as_deref().filter(|_| !(quiet && self.is_routine)) {
            say(message);
        }
        status.write(&StatusLine {
            decision: self.decision,
            tenant: identity.tenant.as_str(),
            operation: identity.operation.as_str(),
            key: identity.key.as_str(),
            exit_code: self.exit_code,
            attempt: self.attempt,
            recorded: self.recorded,
            since: self.since.map(|since| since.to_string()),
            expires: self.expires.map(|expires| expires.to_string()),
            retry_after: self.retry_after.map(duration::format),
        });
        self.exit_code
    }
}
