//! The sink `command`: a program that runs once for each attempt, without a shell. `process` runs it.

mod process;

use onceward::core::class::Errors;
use onceward::core::evidence::{Evidence, in_exit_code, in_text};
use onceward::core::outcome::Verdict;
use onceward::core::policy;
use onceward::courier::{Health, Parcel, Sink, SinkResult, async_trait};
use onceward_runtime::config::{CommandSink as Settings, OnError, Secret, is_reference};
use onceward_runtime::exit::{Fault, IN_FLIGHT, USAGE};
use onceward_runtime::process::capture::Capture;
use onceward_runtime::process::output_frame::Stream;
use onceward_runtime::process::settle::{Settle, settle_with};

use self::process::{End, Program};
use crate::open::{SinkTable, Surroundings};

/// What is kept of an outcome, by default.
const DEFAULT_OUTPUT: usize = 256 * 1024;

/// What the evidence is looked for in.
const STDERR_READ: usize = 16 * 1024;

/// The variables that the program gets about its entry.
const KEY: &str = "ONCEWARD_KEY";
const ATTEMPT: &str = "ONCEWARD_ATTEMPT";
const OPERATION: &str = "ONCEWARD_OPERATION";
const TENANT: &str = "ONCEWARD_TENANT";

/// Exit codes that leave the outcome unknown: of `timeout`, and of a shell whose command was ended by a signal. They are those of
/// `onceward run --doubt-exit`.
const INTERRUPTED: [u8; 9] = [124, 129, 130, 131, 134, 137, 139, 141, 143];

/// Runs a program for each entry.
#[derive(Debug)]
pub struct CommandSink {
    program: Program,
    not_sent: Vec<u8>,
    failed: Vec<u8>,
    on_error: policy::OnError,
    /// The codes of `INTERRUPTED` that the settings do not name.
    interrupted: Vec<u8>,
}

impl CommandSink {
    /// Checks the settings and reads the secrets. Starts nothing.
    pub fn new(name: &str, settings: &Settings, around: &Surroundings) -> Result<Self, Fault> {
        let at = SinkTable(name);
        if settings.command.first().is_none_or(String::is_empty) {
            return Err(at.wrong("command", "a program is required, such as [\"./send.sh\"]"));
        }
        if settings.command.iter().any(|argument| argument.contains('\0')) {
            return Err(at.wrong("command", "an argument contains a NUL character"));
        }
        let not_sent = settings.not_sent.clone().unwrap_or_else(|| vec![IN_FLIGHT]);
        let failed = settings.failed.clone().unwrap_or_else(|| vec![USAGE]);
        for (field, codes) in [("not_sent", &not_sent), ("failed", &failed)] {
            if codes.contains(&0) {
                return Err(at.wrong(field, "0 is the exit code of a success"));
            }
        }
        if let Some(both) = not_sent.iter().find(|code| failed.contains(code)) {
            return Err(at.wrong("failed", format!("{both} is in not_sent, too")));
        }
        let timeout = settings.timeout();
        if timeout.is_zero() {
            return Err(at.wrong("timeout", "a program needs more time than none"));
        }
        let program = Program::new(
            settings.command.clone(),
            environment(&at, settings, around)?,
            settings.folder.as_ref().map(|folder| around.folder.join(folder)),
            timeout,
            settings.output_limit.map_or(DEFAULT_OUTPUT, |limit| limit.0),
        );
        let program = program.map_err(|error| at.wrong("command", format!("cannot start a thread: {error}")))?;
        let on_error = settings.on_error.unwrap_or(OnError::Doubt).into();
        let is_listed = |code: &u8| not_sent.contains(code) || failed.contains(code);
        let interrupted = INTERRUPTED.iter().copied().filter(|code| !is_listed(code)).collect();
        Ok(Self { program, not_sent, failed, on_error, interrupted })
    }

    /// What the end of the program says about the attempt.
    fn attempt(&self, end: End) -> SinkResult {
        let unknown = |error: String| SinkResult::Unknown { error, retry_after: None, health: Health::Failing };
        match end {
            End::NotStarted(error) => refused(format!("the program could not be started: {error}")),
            End::TimedOut(after) => unknown(format!("the program was killed after {} s", after.as_secs_f32())),
            End::Lost(error) => unknown(format!("the program ended, and the system does not report how: {error}")),
            End::Exited { code: 0, by_signal: false, capture } => {
                SinkResult::Ended(capture.outcome(Verdict::Success, 0))
            }
            End::Exited { by_signal: true, .. } => unknown("the program was ended by a signal".to_owned()),
            End::Exited { code, capture, .. } if self.failed.contains(&code) => {
                SinkResult::Ended(capture.outcome(Verdict::Failure, code))
            }
            End::Exited { code, .. } if self.not_sent.contains(&code) => {
                refused(format!("the program ended with exit code {code}: nothing was sent"))
            }
            End::Exited { code, capture, .. } => {
                let evidence = in_exit_code(code).or_else(|| in_stderr(&capture));
                let clause = evidence.map(|evidence| format!(" ({evidence})")).unwrap_or_default();
                let error = format!("the program ended with exit code {code}{clause}");
                let errors = Errors { on_error: self.on_error, tier_declared: false };
                match settle_with(code, false, &self.interrupted, evidence, errors) {
                    Settle::Success | Settle::Doubt => unknown(error),
                    Settle::KeepFailure => SinkResult::Ended(capture.outcome(Verdict::Failure, code)),
                    Settle::Release => refused(error),
                }
            }
        }
    }
}

#[async_trait]
impl Sink for CommandSink {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        let variables = [
            (KEY, parcel.downstream_key.clone()),
            (ATTEMPT, parcel.attempt.to_string()),
            (OPERATION, parcel.identity.operation.as_str().to_owned()),
            (TENANT, parcel.identity.tenant.as_str().to_owned()),
        ];
        self.attempt(self.program.run(variables, parcel.payload.clone()).await)
    }
}

fn refused(error: String) -> SinkResult {
    SinkResult::Refused { error, retry_after: None, again: true, health: Health::Failing }
}

/// An output that was too large to keep was not read for evidence, so it may contain some.
fn in_stderr(capture: &Capture) -> Option<Evidence> {
    match capture.beginning(Stream::Stderr, STDERR_READ) {
        Some(stderr) => in_text(&String::from_utf8_lossy(&stderr)),
        None => Some(Evidence::Unknown),
    }
}

fn environment(at: &SinkTable<'_>, settings: &Settings, around: &Surroundings) -> Result<Vec<(String, String)>, Fault> {
    let variables = settings.env.iter().map(|(name, text)| {
        let wrong = |what: String| at.wrong(&format!("env.{name}"), what);
        if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
            return Err(wrong("not an environment variable".to_owned()));
        }
        if [KEY, ATTEMPT, OPERATION, TENANT].contains(&name.as_str()) {
            return Err(wrong("the courier sets this variable".to_owned()));
        }
        if !is_reference(text) {
            return Ok((name.clone(), text.clone()));
        }
        let secret: Secret = text.parse().map_err(|error| wrong(format!("{error}")))?;
        Ok((name.clone(), secret.text(&around.folder).map_err(wrong)?))
    });
    variables.collect()
}
