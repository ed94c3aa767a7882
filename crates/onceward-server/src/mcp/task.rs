//! A call whose work goes on as a task. Its claim is held until the task is over; the gateway asks for the result itself, so
//! that it is kept although the client goes away.

use std::time::Duration;

use onceward::Guard;
use onceward::core::policy::Policy;
use tokio::time::sleep;

use super::link::Link;
use super::members::Members;
use super::verdict::{self, Ending};

/// How often a task is looked at, unless its server says otherwise.
const PAUSE: Duration = Duration::from_secs(1);

/// How often at the most, and how seldom.
const FASTEST: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_secs(30);

/// Looks after a task until it is over.
pub(super) async fn follow(guard: Guard, link: &impl Link, task: &str, meta: Option<Members>, policy: &Policy) {
    let mut parameters = Members::default();
    parameters.set("taskId", &task);
    if let Some(meta) = meta {
        parameters.set("_meta", &meta);
    }
    let ended = loop {
        let Ok(answer) = link.ask("tasks/get", parameters.clone()).await else {
            break guard.doubt(Some("the server went away before its task was over")).await;
        };
        let Some(state) = answer.object("result") else {
            break guard.doubt(Some("the server does not know its task any more")).await;
        };
        match state.text("status").as_deref() {
            Some("completed" | "failed") => break over(guard, link, &parameters, &answer, &state, policy).await,
            Some("cancelled") => break guard.doubt(Some("its task was cancelled")).await,
            _ => {}
        }
        let pause = state.get("pollInterval").or_else(|| state.get("pollIntervalMs"));
        let pause = pause.and_then(|pause| serde_json::from_str(pause.get()).ok()).map(Duration::from_millis);
        sleep(pause.unwrap_or(PAUSE).clamp(FASTEST, SLOWEST)).await;
    };
    if let Err(error) = ended {
        tracing::error!(%error, "what came of a task could not be recorded");
    }
}

/// A task that is over has its result with it, or hands it out when it is asked for.
async fn over(
    guard: Guard,
    link: &impl Link,
    parameters: &Members,
    answer: &Members,
    state: &Members,
    policy: &Policy,
) -> Result<onceward::Reach, onceward::Error> {
    let whole = if state.get("result").is_some() || state.get("error").is_some() {
        state.clone()
    } else {
        match link.ask("tasks/result", parameters.clone()).await {
            Ok(answer) => answer,
            Err(_) => answer.clone(),
        }
    };
    match verdict::of(&whole, policy, false) {
        Ending::Keep(outcome) => guard.finish(outcome).await,
        Ending::Release(why) => guard.release(Duration::ZERO, Some(why)).await,
        Ending::Doubt(why) => guard.doubt(Some(why)).await,
        Ending::Task(_) => guard.doubt(Some("its task gave no result")).await,
    }
}
