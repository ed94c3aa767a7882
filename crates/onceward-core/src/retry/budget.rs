//! How many retries a dependency gets: at most a share of its first attempts, and a few more each second.
//!
//! Backoff spaces the retries of one intent. It does not limit those of a thousand intents: during an outage, each of them tries
//! again and again, and the downstream gets a multiple of its normal load when it can least bear it. The budget limits the sum.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Tokens are counted in thousandths, so that a share of an attempt is a whole number.
const TOKEN: u64 = 1_000;

/// How many retries are permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Retries for every hundred first attempts.
    pub percent: u32,
    /// Further retries for each second, so that a queue without new entries can retry its old ones.
    pub per_second: u32,
    /// How many retries may be saved up. A small number, so that they come from recent first attempts; 0 counts as 1.
    pub burst: u32,
}

impl Default for Settings {
    /// 20%, one a second, and at most 10 at once.
    fn default() -> Self {
        Self { percent: 20, per_second: 1, burst: 10 }
    }
}

impl Settings {
    /// What the account holds at the most, in thousandths of a token.
    fn limit(&self) -> u64 {
        u64::from(self.burst.max(1)) * TOKEN
    }
}

/// The account of one dependency. A token is the right to retry once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The balance in thousandths of a token.
    balance: u64,
    /// The time up to which the tokens for each second have been paid in.
    paid_until: Timestamp,
}

/// Whether a retry may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawal {
    /// It may, and its token was taken.
    Granted,
    /// It may not yet. The intent waits, and has used up no attempt.
    Refused {
        /// How long until the account has a token, unless first attempts or other retries come before.
        retry_after: Duration,
    },
}

impl Account {
    /// A full account: retries of work from before a restart need not wait.
    pub fn full(settings: &Settings, now: Timestamp) -> Self {
        Self { balance: settings.limit(), paid_until: now }
    }

    /// Pays in the share of a first attempt.
    pub fn first_attempt(&mut self, settings: &Settings, now: Timestamp) {
        self.pay_for_time(settings, now);
        self.pay(u64::from(settings.percent) * TOKEN / 100, settings);
    }

    /// Takes the token of a retry, if there is one.
    pub fn withdraw(&mut self, settings: &Settings, now: Timestamp) -> Withdrawal {
        self.pay_for_time(settings, now);
        match self.balance.checked_sub(TOKEN) {
            Some(rest) => {
                self.balance = rest;
                Withdrawal::Granted
            }
            None => Withdrawal::Refused { retry_after: self.time_to_a_token(settings) },
        }
    }

    /// Gives back the token of a retry that was not made after all.
    pub fn give_back(&mut self, settings: &Settings) {
        self.pay(TOKEN, settings);
    }

    /// Pays in what the time since the last call is worth. A clock that was set back or forward costs or brings at most what
    /// the account can hold.
    fn pay_for_time(&mut self, settings: &Settings, now: Timestamp) {
        let passed = u64::try_from(self.paid_until.until(now).as_millis()).unwrap_or(u64::MAX);
        self.paid_until = now;
        // One token each second is one thousandth of a token each millisecond.
        self.pay(passed.saturating_mul(u64::from(settings.per_second)), settings);
    }

    fn pay(&mut self, amount: u64, settings: &Settings) {
        self.balance = self.balance.saturating_add(amount).min(settings.limit());
    }

    fn time_to_a_token(&self, settings: &Settings) -> Duration {
        let missing = TOKEN.saturating_sub(self.balance);
        match u64::from(settings.per_second) {
            // Only first attempts pay in. When the next one comes is unknown.
            0 => Duration::from_secs(1),
            rate => Duration::from_millis(missing.div_ceil(rate)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: Settings = Settings { percent: 20, per_second: 1, burst: 10 };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn empty(settings: &Settings) -> Account {
        let mut account = Account::full(settings, at(0));
        assert_eq!(granted(&mut account, settings, at(0)), settings.burst.max(1));
        account
    }

    /// How many retries are granted in a row.
    fn granted(account: &mut Account, settings: &Settings, now: Timestamp) -> u32 {
        let mut granted = 0;
        while account.withdraw(settings, now) == Withdrawal::Granted {
            granted += 1;
        }
        granted
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        assert_eq!(Settings::default(), SETTINGS);
    }

    #[test]
    fn five_first_attempts_pay_for_one_retry() {
        let mut account = empty(&SETTINGS);
        for _ in 0..4 {
            account.first_attempt(&SETTINGS, at(0));
        }
        assert_eq!(granted(&mut account, &SETTINGS, at(0)), 0);
        account.first_attempt(&SETTINGS, at(0));
        assert_eq!(granted(&mut account, &SETTINGS, at(0)), 1);
    }

    #[test]
    fn an_idle_queue_gets_one_retry_a_second() {
        let mut account = empty(&SETTINGS);
        assert_eq!(granted(&mut account, &SETTINGS, at(999)), 0);
        assert_eq!(granted(&mut account, &SETTINGS, at(1_000)), 1);
        assert_eq!(granted(&mut account, &SETTINGS, at(4_000)), 3);
    }

    #[test]
    fn a_refused_retry_is_told_when_to_come_back() {
        let mut account = empty(&SETTINGS);
        let refused = |millis| Withdrawal::Refused { retry_after: Duration::from_millis(millis) };
        assert_eq!(account.withdraw(&SETTINGS, at(0)), refused(1_000));
        assert_eq!(account.withdraw(&SETTINGS, at(400)), refused(600));
        let fast = Settings { per_second: 3, ..SETTINGS };
        assert_eq!(empty(&fast).withdraw(&fast, at(0)), refused(334));
        let none = Settings { per_second: 0, ..SETTINGS };
        assert_eq!(empty(&none).withdraw(&none, at(5_000)), refused(1_000));
    }

    #[test]
    fn only_recent_first_attempts_count() {
        let mut account = empty(&SETTINGS);
        for _ in 0..10_000 {
            account.first_attempt(&SETTINGS, at(0));
        }
        assert_eq!(granted(&mut account, &SETTINGS, at(3_600_000)), 10);
    }

    #[test]
    fn a_clock_that_jumps_brings_no_more_than_the_account_holds() {
        let mut account = empty(&SETTINGS);
        assert_eq!(granted(&mut account, &SETTINGS, at(i64::MAX)), 10);
        assert_eq!(granted(&mut account, &SETTINGS, at(i64::MIN)), 0);
        let (hour, second) = (3_600_000, 1_000);
        assert_eq!(granted(&mut account, &SETTINGS, at(hour)), 10);
        assert_eq!(granted(&mut account, &SETTINGS, at(0)), 0, "a clock that is set back brings nothing");
        assert_eq!(granted(&mut account, &SETTINGS, at(second)), 1, "and costs no later token");
    }

    #[test]
    fn a_retry_that_was_not_made_costs_nothing() {
        let mut account = empty(&SETTINGS);
        account.give_back(&SETTINGS);
        assert_eq!(granted(&mut account, &SETTINGS, at(0)), 1);
    }

    #[test]
    fn even_the_smallest_account_can_retry() {
        let smallest = Settings { percent: 0, per_second: 1, burst: 0 };
        let mut account = empty(&smallest);
        assert_eq!(granted(&mut account, &smallest, at(1_000)), 1);
    }
}
