//! Many entries for `onceward enqueue`: one for each line of stdin, and one line of JSON as the answer to each.

use std::io::{BufRead, Read};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use onceward::core::name::Tenant;
use onceward::core::outbox;
use onceward::core::policy::LARGEST_PAYLOAD;
use onceward::{EnqueueOptions, Error, Ledger};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::enqueue::{EnqueueReport, Priority, checked, enqueue, named};
use onceward_runtime::exit::{Fault, NO};
use onceward_runtime::output;

/// How many entries are written at once: the store groups them into few commits.
const AT_ONCE: usize = 128;

/// The largest line: the largest payload, with some room for the other members.
const MAX_LINE: usize = LARGEST_PAYLOAD + 64 * 1024;

/// A line of stdin.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    operation: Option<String>,
    #[serde(default)]
    key: Option<String>,
    payload: Box<RawValue>,
    #[serde(default)]
    session: Option<String>,
    #[serde(default)]
    delay_ms: u64,
    #[serde(default)]
    deliver_within_ms: Option<u64>,
    #[serde(default)]
    priority: Option<Priority>,
    #[serde(default)]
    keep_payload: bool,
}

/// Why a line has no report.
enum Refused {
    /// The line is wrong; the others may be right.
    Line(String),
    /// The ledger cannot be used, so no further line is read.
    Ledger(Fault),
}

/// Queues every line. The exit code is that of success only if every entry is queued, being delivered or done.
pub(super) async fn run(ledger: &Ledger, tenant: Option<&Tenant>, operation: Option<&str>) -> Result<u8, Fault> {
    let (sender, receiver) = mpsc::channel(AT_ONCE);
    std::thread::spawn(move || read_lines(&sender));
    let lines = stream::unfold(receiver, async |mut receiver| receiver.recv().await.map(|line| (line, receiver)));
    let answers = lines.map(async |line| {
        let text = line.map_err(|error| Refused::Line(error.to_owned()))?;
        queue(ledger, tenant, operation, &text).await
    });
    let mut answers = std::pin::pin!(answers.buffered(AT_ONCE));
    let (mut number, mut refused) = (0_u64, 0_u64);
    while let Some(answer) = answers.next().await {
        number += 1;
        let mut shown = match answer {
            Ok(report) => {
                refused += u64::from(report.code() != 0);
                json!(report)
            }
            Err(Refused::Line(error)) => {
                refused += 1;
                json!({ "result": "error", "error": error })
            }
            Err(Refused::Ledger(fault)) => {
                let done = number - 1;
                let message = format!(
                    "{}\n  {done} lines were answered. Send the whole batch again to go on: what is queued is not queued twice.",
                    fault.message
                );
                return Err(Fault::new(fault.code, message));
            }
        };
        shown["line"] = Value::from(number);
        output::out(&shown.to_string());
    }
    if refused > 0 {
        output::say(&format!("{refused} of {number} lines were refused, or are dead or in doubt."));
    }
    Ok(if refused == 0 { 0 } else { NO })
}

async fn queue(
    ledger: &Ledger,
    tenant: Option<&Tenant>,
    operation: Option<&str>,
    text: &[u8],
) -> Result<EnqueueReport, Refused> {
    let line: Line = serde_json::from_slice(text).map_err(|error| Refused::Line(without_values(&error)))?;
    let Some(operation) = line.operation.as_deref().or(operation) else {
        return Err(Refused::Line("missing `operation`; add it to the line, or use --operation".to_owned()));
    };
    let call = named(
        ledger.operation(operation),
        tenant.map(|tenant| tenant.as_str()),
        line.session.as_deref(),
        line.key.as_deref(),
    );
    let payload = line.payload.get().as_bytes().to_vec();
    let call = call.intent_json(&payload).call().map_err(|error| Refused::Line(error.to_string()))?;
    let options = checked(EnqueueOptions {
        delay: Duration::from_millis(line.delay_ms),
        priority: line.priority.map(outbox::Priority::from).unwrap_or_default(),
        deliver_within: line.deliver_within_ms.map(Duration::from_millis),
        keep_payload: line.keep_payload,
    });
    let options = options.map_err(|error| Refused::Line(error.to_owned()))?;
    enqueue(ledger, &call, payload, options).await.map_err(|error| match error {
        Error::Invalid(error) => Refused::Line(error.to_string()),
        error => Refused::Ledger(error.into()),
    })
}

/// The message without the values that it may show: those are payloads and keys, and output ends up in logs.
fn without_values(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match error.is_data() && (message.starts_with("unknown field") || message.starts_with("missing field")) {
        true => message,
        false if error.is_data() => format!("a member has the wrong type, at column {}", error.column()),
        false => format!("invalid JSON, at column {}", error.column()),
    }
}

/// Reads stdin line by line; empty lines are skipped. A line that is too long is refused without being held in memory.
fn read_lines(sender: &mpsc::Sender<Result<Vec<u8>, &'static str>>) {
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let read = input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line);
        let line = match read {
            Ok(0) => return,
            Ok(_) if line.len() > MAX_LINE => match skip_line(&mut input) {
                Ok(()) => Err("the line is too long: a payload may have at most 1 MiB"),
                Err(_) => return drop(sender.blocking_send(Err("stdin cannot be read"))),
            },
            Ok(_) if line.trim_ascii().is_empty() => continue,
            Ok(_) => Ok(line),
            Err(_) => return drop(sender.blocking_send(Err("stdin cannot be read"))),
        };
        if sender.blocking_send(line).is_err() {
            return;
        }
    }
}

fn skip_line(input: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = input.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let (used, is_over) = (end.map_or(buffer.len(), |end| end + 1), end.is_some() || buffer.is_empty());
        input.consume(used);
        if is_over {
            return Ok(());
        }
    }
}
