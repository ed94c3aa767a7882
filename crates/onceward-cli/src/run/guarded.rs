//! The claim around a command: asks for it, runs or replays the command, and settles the claim.

use std::ffi::OsString;
use std::time::Duration;

use onceward::core::decide::Decision;
use onceward::core::duration;
use onceward::core::evidence::in_exit_code;
use onceward::core::outcome::{Body, Outcome, Verdict};
use onceward::core::policy::{InDoubt, OnError, StoreDown};
use onceward::core::record::downstream_key;
use onceward::core::time::Timestamp;
use onceward::http::problem::QUOTA_RETRY_AFTER;
use onceward::{Call, Error, Guard, Ledger, StartOptions, Started, StoreUrl, WriteResult, store};

use super::child::{self, CommandEnd};
use super::late::{LateOutcome, wait_for_outcome};
use super::replay::show;
use super::report::{Report, StatusFd};
use onceward_runtime::exit::{
    CANNOT_RUN, Fault, IN_DOUBT, IN_FLIGHT, MISMATCH, NO_COMMAND, NOT_KEPT, NOT_WRITTEN, STORE, UNKNOWN,
};
use onceward_runtime::output::{quoted, say};
use onceward_runtime::process::is_missing;
use onceward_runtime::process::settle::{Settle, settle};
use onceward_runtime::stores;

/// A command to run once.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) call: Call,
    pub(crate) command: Vec<OsString>,
    pub(crate) doubt_exit: Vec<u8>,
    /// The exit code while it is running elsewhere.
    pub(crate) conflict_exit_code: Option<u8>,
    pub(crate) quiet: bool,
    pub(crate) status: StatusFd,
    pub(crate) store: StoreUrl,
    /// The stores in which the operation must not live, with their names.
    pub(crate) other_stores: Vec<(String, StoreUrl)>,
    /// Maximum number of records per tenant.
    pub(crate) records_per_tenant: Option<u64>,
    /// The command line that settles this intent, without its last flag.
    pub(crate) resolve: String,
    /// The same without a store.
    pub(crate) resolve_elsewhere: String,
}

/// Runs the command once, or reports why not. Returns the exit code.
pub(crate) async fn guarded(job: &Job) -> Result<u8, Fault> {
    let builder = Ledger::builder().records_per_tenant(job.records_per_tenant);
    let operation = &job.call.identity.operation;
    let report = match stores::open_for(operation, &job.store, &job.other_stores, builder).await {
        Ok(ledger) => {
            // If this process is killed, processes that the command started may live on: until they end, the command counts as
            // running.
            ledger.lend_claims();
            let report = job.on(&ledger).await?;
            ledger.close().await;
            report
        }
        Err(error) => job.without_store(&error).await,
    };
    Ok(report.write(&job.call.identity, &job.status, job.quiet))
}

impl Job {
    async fn on(&self, ledger: &Ledger) -> Result<Report, Fault> {
        // A record keeps the command line of its first call, so a typo should not create one. A repeat gets its outcome even
        // if the program no longer exists.
        let is_missing = self.command.first().is_some_and(|program| is_missing(program));
        if is_missing && matches!(ledger.get(&self.call.identity).await, Ok(None)) {
            let error = std::io::Error::from_raw_os_error(nix::libc::ENOENT);
            return Ok(self.cannot_start(&error));
        }
        match ledger.start(&self.call, StartOptions::default()).await {
            Ok(Started::Acquired(guard)) => self.run(ledger, guard).await,
            Ok(Started::Answered(decision)) => Ok(self.answer(decision)),
            Ok(Started::Unguarded { error, .. }) => Ok(self.run_unguarded(&error).await),
            Err(Error::Store(error)) => Ok(self.store_failed(&error)),
            Err(Error::Quota { most, .. }) => Ok(self.over_quota(most)),
            Err(Error::OwnerFailed { reason, .. }) => Ok(self.owner_failed(&reason)),
            Err(Error::OwnerUnknown { .. }) => Ok(self.owner_unknown()),
            Err(error) => Err(error.into()),
        }
    }

    async fn run(&self, ledger: &Ledger, guard: Guard) -> Result<Report, Fault> {
        let claim = guard.claim();
        let ended = child::run(&self.command, claim.downstream_key(), self.call.policy.keep_limit, guard.lost()).await;
        let mut report = match ended {
            CommandEnd::NotStarted(error) => self.not_started(guard, &error).await,
            CommandEnd::Stopped => self.stopped(guard).await,
            CommandEnd::Unknown(error) => self.unknown(guard, &error).await,
            CommandEnd::Exited { code, by_signal, capture } => {
                match settle(code, by_signal, &self.doubt_exit, self.call.policy.errors()) {
                    Settle::Success => self.finish(ledger, guard, capture.outcome(Verdict::Success, code), code).await,
                    Settle::KeepFailure => {
                        self.finish(ledger, guard, capture.outcome(Verdict::Failure, code), code).await
                    }
                    Settle::Release => self.release(guard, code).await,
                    Settle::Doubt => self.doubt(ledger, guard, code, by_signal).await,
                }
            }
        };
        report.attempt = Some(claim.attempt());
        Ok(report)
    }

    async fn finish(&self, ledger: &Ledger, guard: Guard, outcome: Outcome, code: u8) -> Report {
        let recorded = match outcome.verdict {
            Verdict::Success => "success",
            Verdict::Failure => "failure",
        };
        let too_large = matches!(outcome.body, Body::TooLarge { .. });
        let attempt = guard.claim().attempt();
        let written = match guard.finish(outcome).await {
            Err(Error::NotRecorded { intent, outcome, source }) if !source.is_permanent() => {
                match wait_for_outcome(ledger, &self.call.identity, &outcome, attempt, self.call.policy.lease()).await {
                    LateOutcome::Recorded => Ok(WriteResult::Written),
                    LateOutcome::Superseded => Ok(WriteResult::Stale),
                    LateOutcome::Missing => Err(Error::NotRecorded { intent, outcome, source }),
                }
            }
            written => written,
        };
        let mut report = self.ran(code, written, recorded);
        if too_large && report.message.is_none() {
            let limit = self.call.policy.keep_limit;
            report.message = Some(format!(
                "the output of {} is larger than {limit} bytes and was not kept: repeats will not run it again, and get \
                 exit code {NOT_KEPT}.\n  Raise keep_limit in onceward.toml, or write less.",
                self.intent()
            ));
        }
        report
    }

    async fn release(&self, guard: Guard, code: u8) -> Report {
        let reason = format!("the command ended with exit code {code}");
        let released = guard.release(Duration::ZERO, Some(&reason)).await;
        self.ran(code, released, "released")
    }

    async fn doubt(&self, ledger: &Ledger, guard: Guard, code: u8, by_signal: bool) -> Report {
        let reason = if by_signal {
            format!("the command was killed by a signal (exit code {code})")
        } else {
            format!("the command ended with exit code {code}")
        };
        let mut report = self.ran(code, guard.doubt(Some(&reason)).await, "in_doubt");
        if report.message.is_some() {
            return report;
        }
        let terms = ledger.get(&self.call.identity).await.ok().flatten().map(|intent| intent.seen.record.terms);
        let in_doubt = terms.map_or(InDoubt::Hold, |terms| terms.in_doubt.stricter(self.call.policy.in_doubt));
        let next = match in_doubt {
            InDoubt::Retry => "The next run retries with the same ONCEWARD_KEY.".to_owned(),
            InDoubt::Hold | InDoubt::Probe | InDoubt::Tell => self.how_to_settle(),
        };
        let because = if by_signal || self.doubt_exit.contains(&code) { None } else { self.why_doubted(code) };
        let because = because.map(|because| format!(" ({because})")).unwrap_or_default();
        report.message = Some(format!(
            "{reason}, so its effect may have happened{because}: {} is now in doubt.\n  {next}",
            self.intent()
        ));
        report
    }

    /// The setting or evidence that puts this exit code in doubt.
    fn why_doubted(&self, code: u8) -> Option<String> {
        let errors = self.call.policy.errors();
        match (errors.on_error, in_exit_code(code)) {
            (OnError::Doubt, _) => Some("on_error = \"doubt\"".to_owned()),
            (OnError::Classify, Some(evidence)) => Some(format!("curl and ssh exit with this code when {evidence}")),
            (OnError::Classify, None) if errors.tier_declared => Some(
                "a tier is set; use --on-error retry if a failure of this command means that nothing happened".into(),
            ),
            _ => None,
        }
    }

    /// A command that ran exits with its own code, whether or not the result could be recorded.
    fn ran(&self, code: u8, written: Result<WriteResult, Error>, recorded: &'static str) -> Report {
        let mut report = Report { decision: "ran", exit_code: code, recorded: Some(recorded), ..Report::default() };
        match written {
            Ok(WriteResult::Written) => {}
            Ok(WriteResult::Stale) => {
                report.recorded = Some("superseded");
                report.message = Some(format!(
                    "the command ended with exit code {code}, but in the meantime another owner took {} over or it was \
                     settled; that outcome stands.",
                    self.intent()
                ));
            }
            Err(error) => {
                report.recorded = Some("not_recorded");
                report.message = Some(format!(
                    "the command ended with exit code {code}, but this could not be recorded: {error}\n  {} stays in doubt. \
                     {}",
                    self.intent(),
                    moved_to(&error).map_or_else(|| self.how_to_settle(), |store| self.how_to_settle_in(store))
                ));
            }
        }
        report
    }

    async fn not_started(&self, guard: Guard, error: &std::io::Error) -> Report {
        let mut report = self.cannot_start(error);
        report.recorded = Some("released");
        // The reason in the record does not contain the program: arguments are never stored.
        if let Err(error) = guard.release(Duration::ZERO, Some("the command could not be started")).await {
            say(&format!("{} was not started, but this could not be recorded: {error}", self.intent()));
        }
        report
    }

    fn cannot_start(&self, error: &std::io::Error) -> Report {
        let exit_code = if error.kind() == std::io::ErrorKind::NotFound { NO_COMMAND } else { CANNOT_RUN };
        let program = self.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
        let message = format!("cannot start {program} of {}: {error}; nothing was run.", self.intent());
        Report { decision: "not_started", exit_code, message: Some(message), ..Report::default() }
    }

    async fn stopped(&self, guard: Guard) -> Report {
        let _ = guard.doubt(Some("the claim was lost while the command ran, and the command was stopped")).await;
        let message = format!(
            "the claim on {} was lost while the command ran, and the command was stopped: another owner may have taken \
             over.\n  Run it again to get the outcome.",
            self.intent()
        );
        Report { decision: "claim_lost", exit_code: IN_FLIGHT, message: Some(message), ..Report::default() }
    }

    async fn unknown(&self, guard: Guard, error: &std::io::Error) -> Report {
        let written = guard.doubt(Some("the system does not report how the command ended")).await;
        let mut report = self.ran(UNKNOWN, written, "in_doubt");
        report.message = Some(format!(
            "the command of {} ran, but the system does not report how it ended ({error}): it is in doubt.\n  {}",
            self.intent(),
            self.how_to_settle()
        ));
        report
    }

    fn over_quota(&self, most: u64) -> Report {
        let message = format!(
            "{} is new, and its tenant has reached its quota of {most} records; nothing was run.\n  Retry with the same key \
             when older records have expired, or raise records_per_tenant under [limits] in onceward.toml.",
            self.intent()
        );
        Report {
            decision: "quota",
            exit_code: IN_FLIGHT,
            message: Some(message),
            retry_after: Some(QUOTA_RETRY_AFTER),
            ..Report::default()
        }
    }

    fn answer(&self, decision: Decision) -> Report {
        let intent = self.intent();
        match decision {
            Decision::Replay { outcome, finished_at, expires_at } => self.replay(&outcome, finished_at, expires_at),
            Decision::InFlight { retry_after, running, attempt } => self.in_flight(retry_after, running, attempt),
            Decision::InDoubt { since } => self.in_doubt(Some(since)),
            Decision::Mismatch => Report {
                decision: "mismatch",
                exit_code: MISMATCH,
                message: Some(format!(
                    "{intent} was recorded with another command or intent; nothing was run.\n  A key always stands for the same \
                     command line and the same matching fields: use another key for another effect.\n  If the first command was \
                     a typo and did nothing, `onceward resolve --reset` frees the key."
                )),
                ..Report::default()
            },
            Decision::Collision => Report {
                decision: "collision",
                exit_code: MISMATCH,
                message: Some(format!(
                    "{intent} has the same derived key as a different intent; nothing was run.\n  Please report this: it should \
                     never happen. Until then, name this intent with --key."
                )),
                ..Report::default()
            },
            Decision::MixedUse | Decision::OutOfOrder { .. } => Report {
                decision: "mixed_use",
                exit_code: MISMATCH,
                message: Some(format!(
                    "the key of {intent} belongs to a stream; nothing was run.\n  Use another key or another operation: `onceward \
                     run` does not support streams."
                )),
                ..Report::default()
            },
            Decision::OutcomeNotKept { status, .. } => self.not_kept(status),
            Decision::Queued { .. } => Report {
                decision: "queued",
                exit_code: IN_FLIGHT,
                message: Some(format!("{intent} is waiting for the courier; nothing was run.")),
                ..Report::default()
            },
            Decision::Dead => Report {
                decision: "dead",
                exit_code: NOT_KEPT,
                message: Some(format!(
                    "{intent} is dead: all attempts are used up, and none of them happened; nothing was run."
                )),
                ..Report::default()
            },
            // A claim is returned as a guard, not as a decision.
            _ => self.in_flight(Duration::ZERO, true, 1),
        }
    }

    fn replay(&self, outcome: &Outcome, finished_at: Timestamp, expires: Option<Timestamp>) -> Report {
        let shown = show(outcome);
        let mut message = format!("replay of a run that finished at {finished_at}; not run again");
        if let Err(error) = &shown {
            message += &format!(", and its output could not be written: {error}");
        }
        Report {
            decision: "replayed",
            is_routine: shown.is_ok(),
            exit_code: shown.unwrap_or(NOT_WRITTEN),
            message: Some(message),
            since: Some(finished_at),
            expires,
            ..Report::default()
        }
    }

    fn in_flight(&self, retry_after: Duration, running: bool, attempt: u32) -> Report {
        let intent = self.intent();
        let message = if running {
            let waited = self.call.policy.wait;
            let hint = if waited.is_zero() {
                "Run it again later, or let it wait with --wait 30s.".to_owned()
            } else {
                format!("It is still running after a wait of {}; run it again later.", duration::format(waited))
            };
            format!("{intent} is running elsewhere (attempt {attempt}); nothing was run.\n  {hint}")
        } else {
            let after = duration::format(retry_after);
            format!("{intent} must not be tried again yet; nothing was run.\n  Run it again in {after}.")
        };
        // Only a run that goes on may count as success and stay silent; a failed one must be reported.
        let chosen = self.conflict_exit_code.filter(|_| running);
        Report {
            decision: "in_flight",
            exit_code: chosen.unwrap_or(IN_FLIGHT),
            message: Some(message),
            is_routine: running,
            attempt: Some(attempt),
            retry_after: Some(retry_after),
            ..Report::default()
        }
    }

    fn owner_failed(&self, reason: &str) -> Report {
        let message = format!(
            "the run of {} that this call waited for failed and released its claim ({reason}); nothing was run here.\n  Run \
             it again to retry.",
            self.intent()
        );
        Report { decision: "owner_failed", exit_code: IN_FLIGHT, message: Some(message), ..Report::default() }
    }

    fn owner_unknown(&self) -> Report {
        let message = format!(
            "it is unknown whether the run of {} that this call waited for happened; nothing was run here.\n  Its policy allows \
             a retry: run it again.",
            self.intent()
        );
        Report { decision: "owner_unknown", exit_code: IN_FLIGHT, message: Some(message), ..Report::default() }
    }

    fn in_doubt(&self, since: Option<Timestamp>) -> Report {
        let known = since.map(|since| format!(" since {since}")).unwrap_or_default();
        let message = format!(
            "{} is in doubt{known}: it is unknown whether an attempt happened; nothing was run.\n  {}",
            self.intent(),
            self.how_to_settle()
        );
        Report { decision: "in_doubt", exit_code: IN_DOUBT, message: Some(message), since, ..Report::default() }
    }

    fn not_kept(&self, status: Option<i32>) -> Report {
        let status = status.map(|status| format!(" (exit code {status})")).unwrap_or_default();
        let message = format!(
            "{} is done{status}, but its output was not kept (any more); it was not run again.\n  To do the work once more, \
             use another key: that is another intent.",
            self.intent()
        );
        Report { decision: "not_kept", exit_code: NOT_KEPT, message: Some(message), ..Report::default() }
    }

    fn store_failed(&self, error: &store::Error) -> Report {
        let intent = self.intent();
        let hint = match (error.is_out_of_reach(), self.call.policy.store_down) {
            (true, StoreDown::Closed) => format!(
                "(With store_down = \"open\" in onceward.toml, {intent} runs unguarded while the store is out of reach.)"
            ),
            (false, StoreDown::Open) => format!(
                "(store_down = \"open\" does not apply: the store is there, so {intent} may already be recorded in it.)"
            ),
            _ => String::new(),
        };
        let message = format!("the store is unusable, so nothing was run: {error}\n  {hint}").trim_end().to_owned();
        Report { decision: "store_down", exit_code: STORE, message: Some(message), ..Report::default() }
    }

    async fn without_store(&self, error: &store::Error) -> Report {
        if !self.call.may_run_without_store(error) {
            return self.store_failed(error);
        }
        self.run_unguarded(error).await
    }

    async fn run_unguarded(&self, error: &store::Error) -> Report {
        say(&format!(
            "UNGUARDED: the store is unusable ({error}), and store_down = \"open\": running {} without a record. It may \
             happen twice.",
            self.intent()
        ));
        let key = downstream_key(&self.call.identity, "", 0);
        let never = std::future::pending();
        let mut report = match child::run(&self.command, &key, 0, never).await {
            CommandEnd::Exited { code, .. } => Report { decision: "ran", exit_code: code, ..Report::default() },
            CommandEnd::NotStarted(error) => self.cannot_start(&error),
            CommandEnd::Unknown(error) => {
                let message = Some(format!("the command ran, but the system does not report how it ended: {error}"));
                Report { decision: "ran", exit_code: UNKNOWN, message, ..Report::default() }
            }
            // There is no claim to lose.
            CommandEnd::Stopped => Report { decision: "claim_lost", exit_code: IN_FLIGHT, ..Report::default() },
        };
        report.recorded = Some("unguarded");
        report
    }

    fn how_to_settle(&self) -> String {
        format!(
            "Find out whether it happened, then settle it with one of:\n    {0} --happened\n    {0} --did-not-happen",
            self.resolve
        )
    }

    /// For an intent whose ledger was moved while the command ran: the old store does not let it be settled.
    fn how_to_settle_in(&self, store: &str) -> String {
        let resolve = format!("{} --store {}", self.resolve_elsewhere, quoted(store));
        format!(
            "Find out whether it happened, then settle it in the new store, once the copy has finished, with one of:\n    \
             {resolve} --happened\n    {resolve} --did-not-happen"
        )
    }

    fn intent(&self) -> String {
        self.call.identity.to_string()
    }
}

/// The store that the ledger moves to, if that is why a result could not be recorded.
fn moved_to(error: &Error) -> Option<&str> {
    match error {
        Error::Store(store::Error::Sealed { to, .. })
        | Error::NotRecorded { source: store::Error::Sealed { to, .. }, .. } => Some(to),
        _ => None,
    }
}
