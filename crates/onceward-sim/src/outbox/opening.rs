//! Scripted kills: between an effect and its answer, and at each named step. Nothing is left to chance.

use std::time::{Duration, Instant};

use onceward::EnqueueOptions;
use onceward::core::record::{Record, State};
use onceward::step::Step;

use super::entry_kind::{ACTED, ASKED, EntryKind, STEP};
use super::processes::Processes;
use super::{LOOK, Run};

/// Something that must happen does so within this time, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The sinks of two couriers that deliver the same entries.
const FIRST_SINK: &str = "first";
const OTHER_SINK: &str = "other";

pub async fn play(run: &mut Run, processes: &mut Processes) {
    acted(run, processes).await;
    if run.judge.violations().is_empty() {
        moved(run, processes).await;
    }
    if run.judge.violations().is_empty() {
        asked(run, processes).await;
    }
    if run.judge.violations().is_empty() {
        died_at_steps(run, processes).await;
    }
}

/// Couriers are killed when the effects have taken place and before the answers have arrived. The judge demands that
/// nothing happens again.
async fn acted(run: &mut Run, processes: &mut Processes) {
    let key = format!("{ACTED}0");
    for kind in EntryKind::COMMON {
        queue(run, kind, &key).await;
    }
    let courier = processes.courier(None, None);
    for kind in EntryKind::COMMON {
        until_acted(run, kind, &key).await;
    }
    processes.kill(courier).await;
    let courier = processes.courier(None, None);
    for kind in EntryKind::COMMON {
        let is_over = |record: &Record| match record.state {
            State::Done { .. } => true,
            State::InDoubt { retry_at, .. } => kind == EntryKind::Held && retry_at.is_none(),
            _ => false,
        };
        until(run, kind, &key, "not settled after its courier was killed", is_over).await;
    }
    processes.kill(courier).await;
}

/// The attempt in doubt went to the sink of a courier that was killed. A courier with another sink leaves it alone.
async fn moved(run: &mut Run, processes: &mut Processes) {
    let (kind, key) = (EntryKind::Moved, format!("{ACTED}1"));
    queue(run, kind, &key).await;
    let courier = processes.courier(Some(FIRST_SINK), None);
    until_acted(run, kind, &key).await;
    processes.kill(courier).await;
    let courier = processes.courier(Some(OTHER_SINK), None);
    let is_put_off = |record: &Record| matches!(record.state, State::InDoubt { retry_at: Some(_), .. });
    until(run, kind, &key, "not left to the courier whose sink it went to", is_put_off).await;
    processes.kill(courier).await;
}

/// An attempt that only asked the downstream does not count.
async fn asked(run: &mut Run, processes: &mut Processes) {
    let (kind, key) = (EntryKind::Probed, format!("{ASKED}0"));
    queue(run, kind, &key).await;
    let courier = processes.courier(None, None);
    let is_done = |record: &Record| matches!(record.state, State::Done { .. });
    until(run, kind, &key, "not delivered, although its downstream was only asked", is_done).await;
    processes.kill(courier).await;
}

/// A process dies at each step: an enqueuer when the entry is queued, and couriers at the others. What is left of the
/// entries is delivered by the couriers that follow.
async fn died_at_steps(run: &mut Run, processes: &mut Processes) {
    for (number, step) in Step::OF_ENTRIES.into_iter().enumerate() {
        let key = format!("{STEP}{number}");
        let mut child = if step == Step::EntryQueued {
            processes.enqueuer_of(&key, Some((step, 1)))
        } else {
            for kind in EntryKind::COMMON {
                queue(run, kind, &key).await;
            }
            processes.courier(None, Some((step, 1)))
        };
        if !processes.has_died(&mut child).await {
            run.judge.violation(format!("no process came to the step {}", step.name()));
        }
    }
}

async fn queue(run: &mut Run, kind: EntryKind, key: &str) {
    let call = run.ledger.operation(kind.operation()).key(key).policy(kind.policy(key));
    if let Err(error) = call.enqueue(&format!("to {key}"), EnqueueOptions::default()).await {
        return run.judge.violation(format!("{} {key}: cannot be queued: {error}", kind.operation()));
    }
    if !matches!(call.get().await, Ok(Some(_))) {
        run.judge.violation(format!("{} {key}: acknowledged, and lost", kind.operation()));
    }
}

async fn until_acted(run: &mut Run, kind: EntryKind, key: &str) {
    let started = Instant::now();
    while run.judge.violations().is_empty() && run.downstream.story(kind, key).effects.is_empty() {
        if started.elapsed() > PATIENCE {
            return run.judge.violation(format!("{} {key}: its effect never took place", kind.operation()));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the record is as it must be.
async fn until(run: &mut Run, kind: EntryKind, key: &str, otherwise: &str, holds: impl Fn(&Record) -> bool) {
    let started = Instant::now();
    let mut found = String::new();
    while started.elapsed() < PATIENCE && run.judge.violations().is_empty() {
        // An effect that has happened twice is not waited for.
        let happened = run.downstream.story(kind, key).effects.len();
        if happened > 1 {
            return run.judge.violation(format!("{} {key}: happened {happened} times", kind.operation()));
        }
        match run.ledger.operation(kind.operation()).key(key).get().await {
            Ok(Some(intent)) if holds(&intent.seen.record) => return,
            Ok(Some(intent)) => found = format!("{:?}", intent.seen.record.state),
            Ok(None) => found = "absent".to_owned(),
            Err(error) => found = error.to_string(),
        }
        tokio::time::sleep(LOOK).await;
    }
    if run.judge.violations().is_empty() {
        run.judge.violation(format!("{} {key}: {otherwise}: {found}", kind.operation()));
    }
}
