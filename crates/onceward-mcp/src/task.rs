//! Follows a call whose work continues as a task. Holds its claim until the task ends, and asks for the result itself, so that it
//! is stored even if the client goes away.

use std::time::Duration;

use onceward::Guard;
use onceward::core::policy::Policy;
use tokio::time::{sleep, timeout};

use super::members::Members;
use super::transport::Transport;
use super::verdict::{self, Ending};

/// How often a task is polled, unless its server names an interval.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The limits of an interval that a server may name.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// How long a server may take to report a task's status.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Polls a task until it ends, and records its outcome.
pub(super) async fn follow(
    guard: Guard,
    transport: &impl Transport,
    task: &str,
    meta: Option<Members>,
    policy: &Policy,
) {
    let mut parameters = Members::default();
    parameters.set("taskId", &task);
    if let Some(meta) = meta {
        parameters.set("_meta", &meta);
    }
    let ended = loop {
        let Ok(answer) = timeout(RESPONSE_TIMEOUT, transport.ask("tasks/get", parameters.clone())).await else {
            break guard.doubt(Some("the server has not reported the status of its task for a long time")).await;
        };
        let Ok(answer) = answer else {
            break guard.doubt(Some("the server went away before its task ended")).await;
        };
        let Some(state) = answer.object("result") else {
            break guard.doubt(Some("the server no longer knows its task")).await;
        };
        match state.text("status").as_deref() {
            Some("completed" | "failed") => break finish(guard, transport, &parameters, &answer, &state, policy).await,
            Some("cancelled") => break guard.doubt(Some("its task was cancelled")).await,
            _ => {}
        }
        let pause = state.get("pollInterval").or_else(|| state.get("pollIntervalMs"));
        let pause = pause.and_then(|pause| serde_json::from_str(pause.get()).ok()).map(Duration::from_millis);
        sleep(pause.unwrap_or(POLL_INTERVAL).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)).await;
    };
    if let Err(error) = ended {
        tracing::error!(%error, "the outcome of a task could not be recorded");
    }
}

/// Records the result of an ended task. It is in the status, or is requested separately.
async fn finish(
    guard: Guard,
    transport: &impl Transport,
    parameters: &Members,
    answer: &Members,
    state: &Members,
    policy: &Policy,
) -> Result<onceward::WriteResult, onceward::Error> {
    let whole = if state.get("result").is_some() || state.get("error").is_some() {
        state.clone()
    } else {
        match timeout(RESPONSE_TIMEOUT, transport.ask("tasks/result", parameters.clone())).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => answer.clone(),
        }
    };
    match verdict::of(&whole, policy, false) {
        Ending::Keep(outcome) => guard.finish(outcome).await,
        Ending::Release(why) => guard.release(Duration::ZERO, Some(why)).await,
        Ending::Doubt(why) => guard.doubt(Some(why)).await,
        Ending::Task(_) => guard.doubt(Some("its task returned no result")).await,
    }
}

#[cfg(test)]
mod tests {
    use onceward::core::record::State;
    use onceward::{Begun, Ledger};

    use super::super::message::Id;
    use super::super::transport::{CallResponse, NoResponse};
    use super::*;

    /// A server that reports its task's status this many times, and then is silent.
    struct SilentServer(std::sync::atomic::AtomicU32);

    impl Transport for SilentServer {
        async fn send(&self, _: &Id, _: Vec<u8>) -> Result<CallResponse, NoResponse> {
            Err(NoResponse::Cancelled)
        }

        async fn ask(&self, _: &str, _: Members) -> Result<Members, NoResponse> {
            if self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                std::future::pending::<()>().await;
            }
            Ok(Members::read(r#"{"result":{"taskId":"t","status":"working"}}"#).unwrap())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_without_a_status_ends_in_doubt() {
        let ledger = Ledger::open("memory:").await.unwrap();
        let operation = ledger.operation("act").key("k");
        let Begun::Acquired(guard) = operation.begin().await.unwrap() else { panic!("it is new") };
        let (transport, policy) = (SilentServer(3.into()), Policy::default());
        let following = follow(guard, &transport, "t", None, &policy);
        assert!(timeout(RESPONSE_TIMEOUT * 2, following).await.is_ok());
        let record = operation.get().await.unwrap().unwrap().seen.record;
        assert!(matches!(record.state, State::InDoubt { .. }), "{record:?}");
        assert!(record.last_error.unwrap().contains("for a long time"));
    }
}
