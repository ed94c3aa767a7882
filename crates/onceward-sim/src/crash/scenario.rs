//! One short scenario for each fault, in which nothing is left to chance: what each worker does, where it dies, and
//! when the next one begins. A judge that misses the fault here always misses it.

use std::time::Duration;

use onceward::InDoubt;
use onceward::step::Step;

use super::fault::Fault;
use super::intent_kind::IntentKind;
use super::plan::{AttemptEnd, Fate, PlannedCall, RunPlan, WorkerPlan, lasting};

/// When the second worker begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartWhen {
    /// When the first one has ended.
    Ended,
    /// When the work of the first one has begun.
    Began,
}

/// The intent of the scenario: the first that suits the fault.
pub fn intent(plan: RunPlan, fault: Fault) -> u64 {
    let suits = |kind: IntentKind| match fault {
        Fault::Doubt => kind.holds() && kind.marks && !kind.slow,
        Fault::Steal => kind.in_doubt == InDoubt::Retry && !kind.marks && !kind.can_lose_its_lease(),
        _ => kind.holds() && !kind.marks && !kind.slow,
    };
    lasting().find(|intent| suits(plan.kind(*intent))).unwrap_or_default()
}

/// When the second worker begins, if there is one.
pub fn start_when(fault: Fault) -> Option<StartWhen> {
    match fault {
        Fault::Rogue | Fault::Release => Some(StartWhen::Ended),
        Fault::Steal => Some(StartWhen::Began),
        Fault::Lose | Fault::Forge | Fault::Hasten | Fault::Forget | Fault::Doubt => None,
    }
}

/// What a worker does: one call.
pub fn worker_plan(plan: RunPlan, fault: Fault, worker: u64) -> WorkerPlan {
    let attempt_end = match fault {
        Fault::Release | Fault::Forget if worker == 0 => AttemptEnd::Unknown,
        _ => AttemptEnd::Succeed,
    };
    let fate = match fault {
        // The claim is written, and nothing has been sent.
        Fault::Doubt => Fate::AtStep(Step::BeginWritten, 1),
        _ => Fate::Live,
    };
    let planned = PlannedCall {
        intent: intent(plan, fault),
        attempt_end,
        happens: true,
        before: Duration::ZERO,
        after: Duration::ZERO,
        wait: Duration::ZERO,
        leaves: None,
        misuse: false,
    };
    WorkerPlan { calls: vec![planned], fate }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_an_intent_that_suits_it() {
        for (name, fault) in Fault::ALL {
            assert_ne!(intent(RunPlan::of(7, None), fault), 0, "{name}");
        }
    }
}
