//! `onceward enqueue`: queues one entry of the outbox, or one for each line of stdin.

use std::io::Read;
use std::time::Duration;

use clap::ValueEnum;
use onceward::core::decide::Decision;
use onceward::core::outbox;
use onceward::core::policy::LARGEST_PAYLOAD;
use onceward::{Call, CallBuilder, EnqueueOptions, Enqueued, Error, Ledger};
use serde::{Deserialize, Serialize};

use super::intent_arguments::text;
use super::{Global, block_on, enqueue_lines, hints};
use onceward_runtime::config::Length;
use onceward_runtime::exit::{Fault, IN_DOUBT, MISMATCH, NO};
use onceward_runtime::{output, stores};

/// Longer plans belong into a calendar. The same limit as that of the API.
const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Queue an intent for delivery; repeats queue nothing
///
/// A courier delivers it to the sink of its operation, or a worker fetches it with `POST /v1/lease`. Ten calls make one entry: the
/// key is yours, or is derived from the payload, using the operation's recipe if it has one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes:
  0    it is queued, being delivered, or done
  1    it is dead, or a line of --batch was refused
  64   usage error
  65   the same key with another payload
  69   the store is unusable; nothing was queued
  75   over the tenant's quota of records
  76   in doubt: an attempt may have happened
  78   configuration error

A line of --batch is the same JSON object that `POST /v1/enqueue` takes:
  {\"key\":\"ann\",\"payload\":{\"to\":\"ann\"},\"delay_ms\":0,\"deliver_within_ms\":1,\"priority\":\"low\",\"keep_payload\":false}
Each line gets one line of JSON, in order. To go on with a batch that was cut off, send all of it again.

Examples:
  onceward enqueue --operation welcome_mail --key user-7 --payload '{\"to\":\"ann\"}'
  onceward enqueue --operation invoice --payload @invoice.json --delay 1h --within 2d
  onceward enqueue --operation newsletter --batch < letters.jsonl")]
pub(super) struct Enqueue {
    /// The kind of effect, such as welcome_mail. With --batch, for lines without one
    #[arg(long, value_name = "NAME", required_unless_present = "batch")]
    operation: Option<String>,
    /// Your own key: the same key is the same entry. Without it, the key is derived from the payload
    #[arg(long, value_name = "KEY", conflicts_with = "batch")]
    key: Option<String>,
    /// What to deliver, as JSON or @FILE, or - for stdin
    #[arg(long, value_name = "JSON", required_unless_present = "batch", conflicts_with = "batch")]
    payload: Option<String>,
    /// The session that a derived key belongs to; keys of different sessions are always different
    #[arg(long, value_name = "NAME", conflicts_with = "batch")]
    session: Option<String>,
    /// How long to wait before the first attempt [default: 0s]
    #[arg(long, value_name = "DURATION", conflicts_with = "batch")]
    delay: Option<Length>,
    /// How long it is tried, counted from the end of the delay; after that it is dead [default: until its attempts are used up]
    #[arg(long, value_name = "DURATION", conflicts_with = "batch")]
    within: Option<Length>,
    /// Due entries of a higher priority go before all others [default: normal]
    #[arg(long, value_enum, value_name = "WORD", conflicts_with = "batch")]
    priority: Option<Priority>,
    /// Keep the payload after delivery; otherwise it is erased then
    #[arg(long, conflicts_with = "batch")]
    keep_payload: bool,
    /// Queue an entry for each line of JSON on stdin
    #[arg(long)]
    batch: bool,
    /// Print one JSON object
    #[arg(long, conflicts_with = "batch")]
    json: bool,
    /// Do not report keys that look wrong
    #[arg(long)]
    quiet: bool,
}

/// Which entries go first.
#[derive(Clone, Copy, Debug, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(super) enum Priority {
    High,
    Normal,
    Low,
}

impl From<Priority> for outbox::Priority {
    fn from(priority: Priority) -> Self {
        match priority {
            Priority::High => Self::High,
            Priority::Normal => Self::Normal,
            Priority::Low => Self::Low,
        }
    }
}

/// What queueing an entry led to.
#[derive(Debug, Serialize)]
pub(super) struct EnqueueReport {
    result: &'static str,
    operation: String,
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt_since: Option<String>,
    #[serde(skip)]
    intent: String,
}

impl Enqueue {
    pub(super) fn execute(self, global: &Global) -> Result<u8, Fault> {
        let settings = global.settings()?;
        let tenant = global.tenant()?;
        if self.batch {
            return block_on(async {
                let ledger = stores::open(&settings, stores::builder(&settings)?, settings.store()?).await?;
                let code = enqueue_lines::run(&ledger, tenant.as_ref(), self.operation.as_deref()).await;
                ledger.close().await;
                code
            });
        }
        let name = self.operation.as_deref().unwrap_or_default();
        let payload = self.payload.as_deref().map(payload).transpose()?.unwrap_or_default();
        let options = options(self.delay, self.within, self.priority, self.keep_payload)?;
        block_on(async {
            let operation = onceward::core::name::Operation::new(name).map_err(Fault::usage)?;
            // Checked before any store is touched.
            let probe = stores::builder(&settings)?.open("memory:").await?;
            self.call(&probe, name, tenant.as_ref().map(|tenant| tenant.as_str()), &payload)?;
            if let Some(key) = self.key.as_deref().filter(|_| !self.quiet) {
                hints::about_key(key);
            }
            let store = settings.store_of(name)?;
            let ledger =
                stores::open_for(&operation, store, &settings.other_stores(name), stores::builder(&settings)?).await?;
            let call = self.call(&ledger, name, tenant.as_ref().map(|tenant| tenant.as_str()), &payload)?;
            let report = enqueue(&ledger, &call, payload, options).await;
            ledger.close().await;
            let report = report?;
            if self.json {
                output::json(&report);
            } else {
                output::out(&report.sentence());
            }
            Ok(report.code())
        })
    }

    fn call(&self, ledger: &Ledger, name: &str, tenant: Option<&str>, payload: &[u8]) -> Result<Call, Fault> {
        let call = named(ledger.operation(name), tenant, self.session.as_deref(), self.key.as_deref());
        call.intent_json(payload).call().map_err(|error| match error {
            onceward::Invalid::Json(error) => Fault::usage(format!(
                "invalid payload: {error}\n  --payload takes one JSON value, as in --payload '{{\"to\":\"ann\"}}', @FILE or -."
            )),
            error => error.into(),
        })
    }
}

/// A call with these names.
pub(super) fn named(
    mut call: CallBuilder,
    tenant: Option<&str>,
    session: Option<&str>,
    key: Option<&str>,
) -> CallBuilder {
    if let Some(tenant) = tenant {
        call = call.tenant(tenant);
    }
    if let Some(session) = session {
        call = call.session(session);
    }
    if let Some(key) = key {
        call = call.key(key);
    }
    call
}

/// The payload: text, the content of a file, or stdin.
pub(super) fn payload(argument: &str) -> Result<Vec<u8>, Fault> {
    if argument != "-" {
        return text(argument);
    }
    let mut bytes = Vec::new();
    // One byte over the limit, so that the error is about the size.
    let read = std::io::stdin().lock().take(LARGEST_PAYLOAD as u64 + 1).read_to_end(&mut bytes);
    read.map_err(|error| Fault::usage(format!("cannot read the payload from stdin: {error}")))?;
    Ok(bytes)
}

fn options(
    delay: Option<Length>,
    within: Option<Length>,
    priority: Option<Priority>,
    keep_payload: bool,
) -> Result<EnqueueOptions, Fault> {
    checked(EnqueueOptions {
        delay: delay.map(|length| length.0).unwrap_or_default(),
        priority: priority.map(outbox::Priority::from).unwrap_or_default(),
        deliver_within: within.map(|length| length.0),
        keep_payload,
    })
    .map_err(Fault::usage)
}

/// Refuses times that are too long. The ledger counts the time for delivery from now, not from the end of the delay.
pub(super) fn checked(options: EnqueueOptions) -> Result<EnqueueOptions, &'static str> {
    let within = options.deliver_within;
    if options.delay > LONGEST_DELAY || within.is_some_and(|within| within > LONGEST_DELAY) {
        return Err("the delay and the time for delivery are at most 365 days");
    }
    if within.is_some_and(|within| within.is_zero()) {
        return Err("the time for delivery is zero, so no attempt would be made");
    }
    Ok(EnqueueOptions { deliver_within: within.map(|within| options.delay + within), ..options })
}

/// Queues one entry. Misuse of a key is a result, not an error.
pub(super) async fn enqueue(
    ledger: &Ledger,
    call: &Call,
    payload: Vec<u8>,
    options: EnqueueOptions,
) -> Result<EnqueueReport, Error> {
    let mut report = EnqueueReport {
        result: "enqueued",
        operation: call.identity.operation.as_str().to_owned(),
        key: call.identity.key.as_str().to_owned(),
        state: Some("queued"),
        doubt_since: None,
        intent: call.identity.to_string(),
    };
    let refused = match ledger.enqueue(call, payload, options).await {
        Ok(Enqueued::Created) => return Ok(report),
        Ok(Enqueued::Existing(decision)) => {
            report.result = "already_enqueued";
            report.state = Some(state(&decision));
            if let Decision::InDoubt { since } = decision {
                report.doubt_since = Some(since.to_string());
            }
            return Ok(report);
        }
        Err(Error::Mismatch { .. }) => "mismatch",
        Err(Error::Collision { .. }) => "collision",
        Err(Error::MixedUse { .. }) => "mixed_use",
        Err(error) => return Err(error),
    };
    (report.result, report.state) = (refused, None);
    Ok(report)
}

/// The state of an entry that is there already.
pub(super) fn state(decision: &Decision) -> &'static str {
    match decision {
        Decision::Replay { .. } | Decision::OutcomeNotKept { .. } => "done",
        Decision::InDoubt { .. } => "in_doubt",
        Decision::Dead => "dead",
        Decision::InFlight { running: true, .. } => "running",
        Decision::InFlight { .. } => "open",
        _ => "queued",
    }
}

impl EnqueueReport {
    pub(super) fn code(&self) -> u8 {
        match (self.state, self.result) {
            (Some("in_doubt"), _) => IN_DOUBT,
            (Some("dead"), _) => NO,
            (Some(_), _) => 0,
            (None, _) => MISMATCH,
        }
    }

    fn sentence(&self) -> String {
        let intent = &self.intent;
        match (self.result, self.state) {
            ("enqueued", _) => format!("{intent} is queued"),
            (_, Some("queued")) => format!("{intent} was queued before and waits for delivery; nothing was queued"),
            (_, Some("running")) => format!("{intent} was queued before and is being delivered; nothing was queued"),
            (_, Some("done")) => format!("{intent} is done already; nothing was queued"),
            (_, Some("in_doubt")) => format!(
                "{intent} is in doubt: an attempt may have happened; nothing was queued. Find out, then settle it with \
                 `onceward resolve`"
            ),
            (_, Some("dead")) => format!(
                "{intent} is dead and is not tried again; nothing was queued. `onceward get` says why; `onceward requeue` has it \
                 tried again"
            ),
            (_, Some(state)) => format!("{intent} is {state}, by a direct call; nothing was queued"),
            ("collision", _) => format!("{intent} has the same derived key as another payload; nothing was queued"),
            ("mixed_use", _) => format!("the key of {intent} is also used by a stream; nothing was queued"),
            _ => format!(
                "{intent} was recorded with another payload; nothing was queued. The same key must always mean the same entry"
            ),
        }
    }
}
