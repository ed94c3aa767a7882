//! Callers that claim and finish as fast as possible: one key after the other, with no work in between.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::BoxError;
use crate::figures::percentile;

/// The size of the stored outcome: about that of an API response.
pub const OUTCOME_BYTES: usize = 200;

/// The lease of a claim. No run takes that long.
pub const LEASE: Duration = Duration::from_secs(180);

/// How many of its finished keys a caller remembers for replays. Any cache holds more than this.
const REMEMBERED: usize = 1_000;

/// One caller of a system, with its own connection.
pub trait Caller: Send + 'static {
    /// Claims the intent, if it is neither claimed nor done.
    fn claim(&mut self, intent: &BenchIntent) -> impl Future<Output = Result<bool, BoxError>> + Send;
    /// Stores the outcome, if the fence is still that of the claim.
    fn finish(&mut self, intent: &BenchIntent, outcome: &[u8]) -> impl Future<Output = Result<bool, BoxError>> + Send;
    /// Reads the stored outcome.
    fn replay(&mut self, intent: &BenchIntent) -> impl Future<Output = Result<Vec<u8>, BoxError>> + Send;
}

/// An intent: a key as a client would send it, and the fence of its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchIntent {
    /// Distributed evenly, like a hash.
    pub key: String,
    /// 128 bits.
    pub fence: [u8; 16],
}

impl BenchIntent {
    fn new(caller: u64, number: u64) -> Self {
        let [first, second, third, fourth] = [0, 1, 2, 3].map(|part| scatter(caller << 40 ^ number << 2 ^ part));
        let mut fence = [0; 16];
        fence[..8].copy_from_slice(&third.to_be_bytes());
        fence[8..].copy_from_slice(&fourth.to_be_bytes());
        Self { key: format!("idem_v1_{first:016x}{second:016x}"), fence }
    }
}

/// A bijection that removes any order (the finaliser of SplitMix64), so that all intents differ.
fn scatter(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The result of one phase.
#[derive(Debug, Default)]
pub struct PhaseResult {
    /// From the first call to the last response.
    pub lasted: Duration,
    /// The number of completed pairs or replays.
    pub count: u64,
    claims: Vec<Duration>,
    pairs: Vec<Duration>,
}

impl PhaseResult {
    /// Completed pairs or replays per second.
    pub fn per_second(&self) -> f64 {
        self.count as f64 / self.lasted.as_secs_f64()
    }

    /// The percentile of the claims, in microseconds.
    pub fn claim(&mut self, share: f64) -> f64 {
        percentile(&mut self.claims, share)
    }

    /// The percentile of the pairs, in microseconds.
    pub fn pair(&mut self, share: f64) -> f64 {
        percentile(&mut self.pairs, share)
    }
}

/// All callers and their finished keys.
pub struct CallerGroup<C> {
    members: Vec<GroupMember<C>>,
}

struct GroupMember<C> {
    caller: C,
    name: u64,
    next: u64,
    finished: Vec<BenchIntent>,
}

impl<C: Caller> CallerGroup<C> {
    /// Callers without finished keys.
    pub fn new(callers: Vec<C>) -> Self {
        let member = |(name, caller)| GroupMember { caller, name, next: 0, finished: Vec::with_capacity(REMEMBERED) };
        Self { members: (0..).zip(callers).map(member).collect() }
    }

    /// All callers claim and finish new keys for this long, and each at least one.
    pub async fn pairs(&mut self, long: Duration) -> Result<PhaseResult, BoxError> {
        let outcome: Vec<u8> = (0..OUTCOME_BYTES).map(|index| b'a' + (index % 26) as u8).collect();
        self.all(
            move |mut member, until| {
                let outcome = outcome.clone();
                async move {
                    let mut seen = PhaseResult::default();
                    loop {
                        let intent = BenchIntent::new(member.name, member.next);
                        member.next += 1;
                        let start = Instant::now();
                        let acquired = member.caller.claim(&intent).await?;
                        seen.claims.push(start.elapsed());
                        let kept = acquired && member.caller.finish(&intent, &outcome).await?;
                        seen.pairs.push(start.elapsed());
                        if !kept {
                            return Err(format!("{}: claimed {acquired}, finished {kept}", intent.key).into());
                        }
                        seen.count += 1;
                        member.remember(intent);
                        if Instant::now() >= until {
                            return Ok((member, seen));
                        }
                    }
                }
            },
            long,
        )
        .await
    }

    /// All callers replay their finished keys for this long, and each at least one.
    pub async fn replays(&mut self, long: Duration) -> Result<PhaseResult, BoxError> {
        self.all(
            async |mut member, until| {
                let mut seen = PhaseResult::default();
                while !member.finished.is_empty() && (seen.count == 0 || Instant::now() < until) {
                    let intent = &member.finished[seen.count as usize % member.finished.len()];
                    let outcome = member.caller.replay(intent).await?;
                    if outcome.len() != OUTCOME_BYTES {
                        return Err(format!("{}: {} bytes were stored", intent.key, outcome.len()).into());
                    }
                    seen.count += 1;
                }
                Ok((member, seen))
            },
            long,
        )
        .await
    }

    async fn all<F>(
        &mut self,
        act: impl Fn(GroupMember<C>, Instant) -> F,
        long: Duration,
    ) -> Result<PhaseResult, BoxError>
    where
        F: Future<Output = Result<(GroupMember<C>, PhaseResult), BoxError>> + Send + 'static,
    {
        let start = Instant::now();
        let mut tasks: JoinSet<_> = self.members.drain(..).map(|member| act(member, start + long)).collect();
        let mut total = PhaseResult::default();
        while let Some(ended) = tasks.join_next().await {
            let (member, seen) = ended??;
            self.members.push(member);
            total.count += seen.count;
            total.claims.extend(seen.claims);
            total.pairs.extend(seen.pairs);
        }
        total.lasted = start.elapsed();
        Ok(total)
    }
}

impl<C> GroupMember<C> {
    fn remember(&mut self, intent: BenchIntent) {
        let place = self.next as usize % REMEMBERED;
        match self.finished.get_mut(place) {
            Some(old) => *old = intent,
            None => self.finished.push(intent),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A system in a map, which may drop writes.
    #[derive(Clone, Default)]
    struct Map {
        kept: Arc<Mutex<HashMap<String, Vec<u8>>>>,
        forgets: bool,
    }

    impl Caller for Map {
        async fn claim(&mut self, intent: &BenchIntent) -> Result<bool, BoxError> {
            tokio::task::yield_now().await;
            let old = self.kept.lock().unwrap().insert(intent.key.clone(), Vec::new());
            Ok(old.is_none())
        }

        async fn finish(&mut self, intent: &BenchIntent, outcome: &[u8]) -> Result<bool, BoxError> {
            if self.forgets {
                return Ok(false);
            }
            self.kept.lock().unwrap().insert(intent.key.clone(), outcome.to_vec());
            Ok(true)
        }

        async fn replay(&mut self, intent: &BenchIntent) -> Result<Vec<u8>, BoxError> {
            tokio::task::yield_now().await;
            Ok(self.kept.lock().unwrap()[&intent.key].clone())
        }
    }

    #[test]
    fn all_intents_are_different() {
        let intents = (0..64).flat_map(|caller| (0..1_000).map(move |number| BenchIntent::new(caller, number)));
        let keys: HashSet<String> = intents.map(|intent| intent.key).collect();
        assert_eq!(keys.len(), 64_000);
    }

    #[tokio::test]
    async fn every_counted_pair_is_stored() {
        let map = Map::default();
        let mut callers = CallerGroup::new(vec![map.clone(); 4]);
        let mut seen = callers.pairs(Duration::from_millis(20)).await.unwrap();
        assert_eq!(seen.count as usize, map.kept.lock().unwrap().len());
        assert_eq!((seen.claims.len(), seen.pairs.len()), (seen.count as usize, seen.count as usize));
        assert!(seen.claim(0.5) <= seen.pair(0.5));
        assert!(callers.replays(Duration::from_millis(5)).await.unwrap().per_second() > 0.0);
        let more = callers.pairs(Duration::from_millis(5)).await.unwrap();
        assert_eq!((seen.count + more.count) as usize, map.kept.lock().unwrap().len());
    }

    #[tokio::test]
    async fn a_finish_that_fails_ends_the_run() {
        let mut callers = CallerGroup::new(vec![Map { forgets: true, ..Map::default() }]);
        // However short the phase is, it begins with a pair.
        assert!(callers.pairs(Duration::ZERO).await.is_err());
    }
}
