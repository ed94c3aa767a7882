//! What the callers of one schedule do, from its seed.

use std::time::Duration;

use onceward::core::hash::Digest;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::core::policy::{Policy, Retention};
use onceward::{Call, Error, InDoubt, Ledger};

use crate::dice::Dice;

const OPERATION: &str = "charge";

/// How many callers there are, and how often each of them calls.
pub const ACTORS: usize = 4;
const CALLS: u64 = 4;

/// Intents, and ledgers with a cache and waiters of their own, as two processes have them.
pub const INTENTS: usize = 2;
pub const LEDGERS: usize = 2;

/// A caller's longest run: each has another one, so that a write tells by its lease whose it is.
fn max_runtime(actor: usize) -> Duration {
    Duration::from_millis(20 + actor as u64)
}

/// The caller whose lease has this length.
pub fn actor_of_lease(lease: Duration) -> Option<usize> {
    (0..ACTORS).find(|actor| max_runtime(*actor) * 3 == lease)
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub intent: usize,
    pub ledger: usize,
    /// Another request than the others have.
    pub misuses: bool,
    pub waits: bool,
    pub marks_sent: bool,
    pub verb: Verb,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A closure under a guard.
    Run(Work),
    /// A claim that is ended by hand.
    Begin(Work),
    /// A claim that is dropped.
    Drop(Duration),
    /// A person settles it.
    Resolve(Word),
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
    /// Whether the work itself says that nothing happened.
    pub fn is_harmless(self) -> bool {
        matches!(self, Self::NotSent | Self::Refused)
    }
}

/// What a person says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Happened,
    DidNotHappen,
    Reset,
}

/// One schedule.
#[derive(Clone, Debug)]
pub struct Plan {
    pub policies: [InDoubt; INTENTS],
    pub acts: Vec<Vec<Act>>,
    /// Store calls fail now and then, or their answers are lost.
    pub faults: bool,
    /// Callers are dropped in the middle now and then.
    pub drops: bool,
    /// Nobody settles anything by hand.
    pub unattended: bool,
}

impl Plan {
    pub fn of(dice: &mut Dice) -> Self {
        let policies = [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe];
        let mut policy = || policies[dice.below(3) as usize];
        let policies = [policy(), policy()];
        let (faults, drops, unattended) = (dice.one_in(3), dice.one_in(2), dice.one_in(2));
        let acts = (0..ACTORS).map(|_| (0..1 + dice.below(CALLS)).map(|_| act(dice, unattended)).collect()).collect();
        Self { policies, acts, faults, drops, unattended }
    }
}

fn act(dice: &mut Dice, unattended: bool) -> Act {
    let takes = Duration::from_millis(dice.weighted(&[(3, 0), (3, 5), (2, 30), (1, 90)]));
    let end =
        dice.weighted(&[(6, End::Done), (1, End::NotSent), (1, End::Refused), (1, End::Final), (1, End::Unknown)]);
    let work = Work { takes, end };
    let word = dice.weighted(&[(2, Word::Happened), (2, Word::DidNotHappen), (1, Word::Reset)]);
    let people = if unattended { 0 } else { 2 };
    let verbs = [
        (8, Verb::Run(work)),
        (3, Verb::Begin(work)),
        (1, Verb::Drop(takes)),
        (people, Verb::Resolve(word)),
        (1, Verb::Purge),
    ];
    Act {
        // Most of the traffic is on one intent.
        intent: usize::from(dice.one_in(4)),
        ledger: dice.below(LEDGERS as u64) as usize,
        misuses: dice.one_in(12),
        waits: dice.one_in(2),
        marks_sent: dice.one_in(3),
        verb: dice.weighted(&verbs),
    }
}

/// Where the store keeps an intent.
pub fn id(intent: usize) -> Digest {
    let operation = Operation::new(OPERATION).expect("this is a name");
    let key = Key::new(intent.to_string()).expect("this is a name");
    Identity { tenant: Tenant::default(), operation, key }.digest()
}

/// The call of an act.
pub fn call(ledger: &Ledger, actor: usize, act: Act, in_doubt: InDoubt) -> Result<Call, Error> {
    let policy = Policy {
        in_doubt,
        // Long enough for a replay, short enough for keys to be used anew within a schedule.
        retention: Some(Retention::For(Duration::from_millis(120))),
        tombstone: Some(Duration::from_millis(40)),
        max_runtime: max_runtime(actor),
        // Only retries need long, and what did not happen is remembered for as long; here for longer than an outcome
        // holds the key.
        honours_key_for: Duration::from_millis(if in_doubt == InDoubt::Retry { 400 } else { 180 }),
        wait: if act.waits { Duration::from_millis(300) } else { Duration::ZERO },
        marks_sent: act.marks_sent,
        probes: true,
        ..Policy::default()
    };
    let request = if act.misuses { "another request" } else { "the request" };
    Ok(ledger.operation(OPERATION).key(&act.intent.to_string()).intent(request).policy(policy).call()?)
}
