//! A call whose work goes on as a task. Its claim is held until the task is over; the gateway asks for the result itself, so
//! that it is kept although the client goes away.

use std::time::Duration;

use onceward::Guard;
use onceward::core::policy::Policy;
use tokio::time::{sleep, timeout};

use super::link::Link;
use super::members::Members;
use super::verdict::{self, Ending};

/// How often a task is looked at, unless its server says otherwise.
const PAUSE: Duration = Duration::from_secs(1);

/// How often at the most, and how seldom.
const FASTEST: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_secs(30);

/// How long a server may take to say how a task is.
const SILENCE: Duration = Duration::from_secs(5 * 60);

/// Looks after a task until it is over.
pub(super) async fn follow(guard: Guard, link: &impl Link, task: &str, meta: Option<Members>, policy: &Policy) {
    let mut parameters = Members::default();
    parameters.set("taskId", &task);
    if let Some(meta) = meta {
        parameters.set("_meta", &meta);
    }
    let ended = loop {
        let Ok(answer) = timeout(SILENCE, link.ask("tasks/get", parameters.clone())).await else {
            break guard.doubt(Some("the server has not said for a long time how its task is")).await;
        };
        let Ok(answer) = answer else {
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
        match timeout(SILENCE, link.ask("tasks/result", parameters.clone())).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => answer.clone(),
        }
    };
    match verdict::of(&whole, policy, false) {
        Ending::Keep(outcome) => guard.finish(outcome).await,
        Ending::Release(why) => guard.release(Duration::ZERO, Some(why)).await,
        Ending::Doubt(why) => guard.doubt(Some(why)).await,
        Ending::Task(_) => guard.doubt(Some("its task gave no result")).await,
    }
}

#[cfg(test)]
mod tests {
    use onceward::core::record::State;
    use onceward::{Begun, Ledger};

    use super::super::link::{Answer, NoAnswer};
    use super::super::message::Id;
    use super::*;

    /// A server that says how its task is so many times, and then nothing.
    struct Silent(std::sync::atomic::AtomicU32);

    impl Link for Silent {
        async fn send(&self, _: &Id, _: Vec<u8>) -> Result<Answer, NoAnswer> {
            Err(NoAnswer::Cancelled)
        }

        async fn ask(&self, _: &str, _: Members) -> Result<Members, NoAnswer> {
            if self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 0 {
                std::future::pending::<()>().await;
            }
            Ok(Members::read(r#"{"result":{"taskId":"t","status":"working"}}"#).unwrap())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_its_server_says_nothing_about_is_left_in_doubt() {
        let ledger = Ledger::open("memory:").await.unwrap();
        let operation = ledger.operation("act").key("k");
        let Begun::Acquired(guard) = operation.begin().await.unwrap() else { panic!("it is new") };
        let (link, policy) = (Silent(3.into()), Policy::default());
        let following = follow(guard, &link, "t", None, &policy);
        assert!(timeout(SILENCE * 2, following).await.is_ok());
        let record = operation.get().await.unwrap().unwrap().seen.record;
        assert!(matches!(record.state, State::InDoubt { .. }), "{record:?}");
        assert!(record.last_error.unwrap().contains("for a long time"));
    }
}
