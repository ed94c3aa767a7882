//! One case in one round.

use std::time::Duration;

use serde::Serialize;

use super::super::pairs::PairSamples;
use super::super::rounds::Rounds;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Case {
    /// The ledger.
    Ledger,
    /// The simplest use of the same server.
    Simple,
    /// The ledger with a single caller.
    LedgerOne,
    /// The simple use with a single caller.
    SimpleOne,
    /// The ledger with very many callers.
    LedgerMany,
    /// The ledger with many records.
    Large,
}

impl Case {
    pub(super) fn of(large: bool) -> Vec<Self> {
        let mut all = vec![Self::Ledger, Self::Simple, Self::LedgerOne, Self::SimpleOne, Self::LedgerMany];
        if large {
            // Beside the case that it is compared with.
            all.insert(1, Self::Large);
        }
        all
    }

    /// For people; `simple` is the simplest use of the server.
    pub(super) fn label(self, callers: u16, simple: &str) -> String {
        match self {
            Self::Ledger => format!("Onceward, {callers} callers"),
            Self::Simple => format!("{simple}, {callers} callers"),
            Self::LedgerOne => "Onceward, 1 caller".to_owned(),
            Self::SimpleOne => format!("{simple}, 1 caller"),
            Self::LedgerMany => format!("Onceward, {} callers", super::MANY_CALLERS),
            Self::Large => format!("Onceward with many records, {callers} callers"),
        }
    }
}

/// What a server has counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    /// `None` if the server does not report it.
    pub(super) wal_bytes: Option<f64>,
    /// `None` if it is not known, such as that of PostgreSQL on another machine.
    pub(super) processor: Option<Duration>,
}

/// The figures of a case: of one round, or the median of all rounds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct ServerFigures {
    pub(super) pairs_per_second: f64,
    claim_p50_us: f64,
    claim_p99_us: f64,
    pub(super) pair_p50_us: f64,
    pub(super) pair_p99_us: f64,
    pub(super) client_cpu_us_per_pair: f64,
    /// Null if it is not known, such as that of PostgreSQL on another machine.
    pub(super) server_cpu_us_per_pair: Option<f64>,
    /// Null if the server does not report it.
    pub(super) wal_bytes_per_pair: Option<f64>,
}

impl ServerFigures {
    #[expect(clippy::cast_precision_loss)]
    pub(super) fn of(mut work: PairSamples, before: Counters, after: Counters) -> Self {
        let pairs = work.pairs.len().max(1) as f64;
        let server = after.processor.zip(before.processor);
        Self {
            pairs_per_second: work.per_second().unwrap_or_default(),
            claim_p50_us: work.claims.percentile(0.5).unwrap_or_default(),
            claim_p99_us: work.claims.percentile(0.99).unwrap_or_default(),
            pair_p50_us: work.pairs.percentile(0.5).unwrap_or_default(),
            pair_p99_us: work.pairs.percentile(0.99).unwrap_or_default(),
            client_cpu_us_per_pair: work.processor.as_secs_f64() * 1e6 / pairs,
            server_cpu_us_per_pair: server
                .map(|(after, before)| after.saturating_sub(before).as_secs_f64() * 1e6 / pairs),
            wal_bytes_per_pair: after.wal_bytes.zip(before.wal_bytes).map(|(after, before)| (after - before) / pairs),
        }
    }

    pub(super) fn median(rounds: &Rounds<Case, Self>, case: Case) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| rounds.median(&case, |round| Some(figure(round)));
        Some(Self {
            pairs_per_second: of(|round| round.pairs_per_second)?,
            claim_p50_us: of(|round| round.claim_p50_us)?,
            claim_p99_us: of(|round| round.claim_p99_us)?,
            pair_p50_us: of(|round| round.pair_p50_us)?,
            pair_p99_us: of(|round| round.pair_p99_us)?,
            client_cpu_us_per_pair: of(|round| round.client_cpu_us_per_pair)?,
            server_cpu_us_per_pair: rounds.median(&case, |round| round.server_cpu_us_per_pair),
            wal_bytes_per_pair: rounds.median(&case, |round| round.wal_bytes_per_pair),
        })
    }
}

/// The pairs of one case divided by those of another one, in each round.
pub(super) fn ratios(rounds: &Rounds<Case, ServerFigures>, cases: [Case; 2]) -> Vec<f64> {
    rounds.across(cases, pairs_ratio)
}

/// The median of the ratios of all rounds.
pub(super) fn ratio(rounds: &Rounds<Case, ServerFigures>, cases: [Case; 2]) -> Option<f64> {
    rounds.median_across(cases, pairs_ratio)
}

fn pairs_ratio([above, below]: [ServerFigures; 2]) -> Option<f64> {
    Some(above.pairs_per_second / below.pairs_per_second)
}
