//! The rounds: the ledger alternates with the simplest use of the same server.

use std::time::Duration;

use onceward::Ledger;
use onceward_runtime::exit::Fault;
use onceward_runtime::output;

use super::super::pairs::{self, FinishedKeys, PairSamples};
use super::super::rounds::{Rounds, order};
use super::super::{ROUNDS, StoreArgs, bar};
use super::MANY_CALLERS;
use super::figures::{Case, Counters, ServerFigures};
use super::report::Report;

/// A server and its simplest use.
pub(super) trait ComparedServer {
    /// Each caller claims and finishes new keys, one after the other, without a ledger.
    async fn claim_and_finish(&self, keys: &FinishedKeys, callers: usize, time: Duration)
    -> Result<PairSamples, Fault>;

    async fn counters(&self) -> Result<Counters, Fault>;

    /// How many connections the ledger has; `None` if the server cannot tell them apart.
    async fn connections(&self) -> Result<Option<i64>, Fault>;
}

/// The ledgers that are measured.
pub(super) struct Ledgers {
    pub(super) ledger: Ledger,
    /// One with many records, beside an empty one.
    pub(super) large: Option<Ledger>,
}

impl Ledgers {
    pub(super) async fn close(self) {
        self.ledger.close().await;
        if let Some(large) = self.large {
            large.close().await;
        }
    }
}

/// Measures every case in every round.
pub(super) async fn alternate(
    args: &StoreArgs,
    Ledgers { ledger, large }: &Ledgers,
    keys: &FinishedKeys,
    server: &impl ComparedServer,
    report: &mut Report,
) -> Result<Rounds<Case, ServerFigures>, Fault> {
    let callers = usize::from(args.callers);
    let slice = Duration::from_secs(u64::from(args.seconds)) / ROUNDS;
    let mut rounds = Rounds::<Case, ServerFigures>::default();
    let cases = Case::of(large.is_some());
    // The first calls of a process open connections and fill the server's caches.
    pairs::claim_and_finish(ledger, keys, callers, slice / 4).await?;
    for round in 0..ROUNDS {
        for case in order(&cases, round) {
            output::progress(&format!(
                "{}  {}, round {} of {ROUNDS}",
                bar(round, ROUNDS),
                case.label(args.callers, report.place.simple_use()),
                round + 1
            ));
            let before = server.counters().await?;
            let work = match (case, large) {
                (Case::Large, Some(large)) => pairs::claim_and_finish(large, keys, callers, slice).await?,
                (Case::Ledger | Case::Large, _) => pairs::claim_and_finish(ledger, keys, callers, slice).await?,
                (Case::LedgerOne, _) => pairs::claim_and_finish(ledger, keys, 1, slice).await?,
                (Case::LedgerMany, _) => pairs::claim_and_finish(ledger, keys, MANY_CALLERS, slice).await?,
                (Case::Simple, _) => server.claim_and_finish(keys, callers, slice).await?,
                (Case::SimpleOne, _) => server.claim_and_finish(keys, 1, slice).await?,
            };
            let after = server.counters().await?;
            if case == Case::Ledger {
                report.connections = server.connections().await?;
            }
            rounds.note(case, ServerFigures::of(work, before, after));
        }
    }
    Ok(rounds)
}
