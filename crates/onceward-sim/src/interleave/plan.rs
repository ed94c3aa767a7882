//! What the callers of one schedule do, from its seed.

use std::time::Duration;

use onceward::core::hash::Digest;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::policy::{Policy, Retention};
use onceward::{Call, Error, InDoubt, Ledger};

use crate::rng::Rng;

const OPERATION: &str = "charge";

/// How many callers there are, and how often each of them calls.
pub const ACTORS: usize = 4;
const CALLS: u64 = 4;

/// Intents, and ledgers, each with its own cache and waiters, as two processes have them.
pub const INTENTS: usize = 2;
pub const LEDGERS: usize = 2;

/// The longest runtime of a caller: different for each, so that the lease of a write shows its caller.
fn max_runtime(actor: usize) -> Duration {
    Duration::from_millis(20 + actor as u64)
}

/// The caller whose lease has this length.
pub fn actor_of_lease(lease: Duration) -> Option<usize> {
    (0..ACTORS).find(|actor| max_runtime(*actor) * 3 == lease)
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCall {
    pub intent: usize,
    pub ledger: usize,
    /// Sends another request under the same key.
    pub misuses: bool,
    pub waits: bool,
    pub marks_sent: bool,
    pub kind: CallKind,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// Runs a closure under a guard.
    Run(Work),
    /// Takes a claim and ends it without `run`.
    Begin(Work),
    /// Takes a claim and drops it.
    Drop(Duration),
    /// An operator settles it.
    Resolve(OperatorChoice),
    Purge,
}

/// How long the work takes, and how it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub takes: Duration,
    pub end: End,
}

/// How work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    NotSent,
    Refused,
    Final,
    Unknown,
}

impl End {
    /// Whether the work itself proves that nothing happened.
    pub fn is_harmless(self) -> bool {
        matches!(self, Self::NotSent | Self::Refused)
    }
}

/// What an operator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorChoice {
    Happened,
    DidNotHappen,
    Reset,
}

/// One schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    pub policies: [InDoubt; INTENTS],
    pub planned_calls: Vec<Vec<PlannedCall>>,
    /// Some store calls fail, or lose their answers.
    pub faults: bool,
    /// Some callers are dropped while they wait.
    pub drops: bool,
    /// No operator settles anything.
    pub unattended: bool,
}

impl Plan {
    pub fn of(rng: &mut Rng) -> Self {
        let policies = [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe];
        let mut policy = || policies[rng.below(3) as usize];
        let policies = [policy(), policy()];
        let (faults, drops, unattended) = (rng.one_in(3), rng.one_in(2), rng.one_in(2));
        let planned_calls =
            (0..ACTORS).map(|_| (0..1 + rng.below(CALLS)).map(|_| planned(rng, unattended)).collect()).collect();
        Self { policies, planned_calls, faults, drops, unattended }
    }
}

fn planned(rng: &mut Rng, unattended: bool) -> PlannedCall {
    let takes = Duration::from_millis(rng.weighted(&[(3, 0), (3, 5), (2, 30), (1, 90)]));
    let end = rng.weighted(&[(6, End::Done), (1, End::NotSent), (1, End::Refused), (1, End::Final), (1, End::Unknown)]);
    let work = Work { takes, end };
    let choice =
        rng.weighted(&[(2, OperatorChoice::Happened), (2, OperatorChoice::DidNotHappen), (1, OperatorChoice::Reset)]);
    let people = if unattended { 0 } else { 2 };
    let verbs = [
        (8, CallKind::Run(work)),
        (3, CallKind::Begin(work)),
        (1, CallKind::Drop(takes)),
        (people, CallKind::Resolve(choice)),
        (1, CallKind::Purge),
    ];
    PlannedCall {
        // Most of the traffic is on one intent.
        intent: usize::from(rng.one_in(4)),
        ledger: rng.below(LEDGERS as u64) as usize,
        misuses: rng.one_in(12),
        waits: rng.one_in(2),
        marks_sent: rng.one_in(3),
        kind: rng.weighted(&verbs),
    }
}

/// The digest under which the store keeps an intent.
pub fn id(intent: usize) -> Digest {
    let operation = Operation::new(OPERATION).expect("the name is valid");
    let key = Key::new(intent.to_string()).expect("the name is valid");
    Identity { tenant: Tenant::default(), operation, key }.digest()
}

/// The call of a planned call.
pub fn call(ledger: &Ledger, actor: usize, planned: PlannedCall, in_doubt: InDoubt) -> Result<Call, Error> {
    let policy = Policy {
        in_doubt,
        // Long enough for a replay, short enough for keys to be used again within a schedule.
        retention: Some(Retention::For(Duration::from_millis(120))),
        tombstone: Some(Duration::from_millis(40)),
        max_runtime: max_runtime(actor),
        // Only retries need long. An attempt that did not happen is remembered for as long; here for longer than an
        // outcome holds the key.
        honours_key_for: Duration::from_millis(if in_doubt == InDoubt::Retry { 400 } else { 180 }),
        wait: if planned.waits { Duration::from_millis(300) } else { Duration::ZERO },
        marks_sent: planned.marks_sent,
        probes: true,
        ..Policy::default()
    };
    let request = if planned.misuses { "another request" } else { "the request" };
    Ok(ledger.operation(OPERATION).key(&planned.intent.to_string()).intent(request).policy(policy).call()?)
}
