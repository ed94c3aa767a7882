//! Properties of backoff, Retry-After and the retry budget that hold for every input.

use std::time::Duration;

use jiff::tz::TimeZone;
use onceward_core::policy::LONGEST_NOT_BEFORE;
use onceward_core::retry::backoff::{self, Failed, Next, Settings};
use onceward_core::retry::budget::{self, Account, Withdrawal};
use onceward_core::retry::{http_date, retry_after};
use onceward_core::time::Timestamp;
use proptest::prelude::*;

use crate::properties::config;

/// A seeded generator (SplitMix64), so that every run draws the same numbers.
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn duration() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0..100_000_u64).prop_map(Duration::from_millis),
        (0..5_000_000_u64).prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_secs),
        Just(Duration::MAX),
    ]
}

fn attempt() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..80_u32, 1 => any::<u32>()]
}

fn settings() -> impl Strategy<Value = Settings> {
    (duration(), duration(), any::<u32>(), prop::option::of(duration()))
        .prop_map(|(base, cap, max_attempts, deadline)| Settings { base, cap, max_attempts, deadline })
}

/// A duration in whole milliseconds, as a ceiling is.
fn rounded_up(duration: Duration) -> Duration {
    let millis = duration.min(LONGEST_NOT_BEFORE).as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap())
}

#[test]
fn jitter_is_uniform_between_zero_and_the_ceiling() {
    const DRAWS: usize = 100_000;
    const BUCKETS: usize = 10;
    let settings = Settings::default();
    let mut seeded = Seeded(1);
    for attempt in [1, 4, 8, 30] {
        let ceiling = backoff::ceiling(attempt, &settings).as_millis() as usize;
        let mut buckets = [0_usize; BUCKETS];
        let mut sum = 0;
        for _ in 0..DRAWS {
            let delay = backoff::delay(attempt, &settings, seeded.next()).as_millis() as usize;
            sum += delay;
            buckets[delay * BUCKETS / (ceiling + 1)] += 1;
        }
        // The standard error of the mean is 0.289 / sqrt(100,000) = 0.0009.
        let mean = sum as f64 / (DRAWS * ceiling) as f64;
        assert!((0.495..=0.505).contains(&mean), "attempt {attempt}: the mean is {mean} of the ceiling");
        // Waits are whole milliseconds: of 101 choices, one bucket has 11 and the others have 10.
        let fair = DRAWS / BUCKETS;
        assert!(buckets.iter().all(|count| (fair * 95 / 100..=fair * 113 / 100).contains(count)), "{buckets:?}");
    }
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn a_wait_is_between_zero_and_the_cap(attempt in attempt(), settings in settings(), random: u64) {
        let (delay, ceiling) = (backoff::delay(attempt, &settings, random), backoff::ceiling(attempt, &settings));
        prop_assert!(delay <= ceiling && ceiling <= rounded_up(settings.cap));
        prop_assert_eq!(backoff::delay(attempt, &settings, 0), Duration::ZERO);
        prop_assert_eq!(backoff::delay(attempt, &settings, u64::MAX), ceiling);
    }

    #[test]
    fn the_ceiling_doubles_and_never_falls(attempt in 1..80_u32, settings in settings()) {
        let (ceiling, next) = (backoff::ceiling(attempt, &settings), backoff::ceiling(attempt + 1, &settings));
        prop_assert_eq!(next, (ceiling * 2).min(rounded_up(settings.cap)));
    }

    #[test]
    fn no_attempt_comes_before_retry_after(
        attempt in attempt(),
        settings in settings(),
        asked in prop::option::of(duration()),
        random: u64,
    ) {
        let wait = backoff::wait(attempt, &settings, asked, random);
        prop_assert!(wait >= asked.unwrap_or_default().min(LONGEST_NOT_BEFORE) && wait <= LONGEST_NOT_BEFORE);
    }

    #[test]
    fn no_attempt_passes_a_limit(
        attempts in attempt(),
        age in duration(),
        asked in prop::option::of(duration()),
        known in prop::option::of(duration()),
        settings in settings(),
        random: u64,
    ) {
        let failed = Failed { attempts, age, retry_after: asked, key_known_for: known };
        if let Next::After(wait) = backoff::next(&failed, &settings, random) {
            prop_assert!(attempts < settings.max_attempts);
            prop_assert!(wait >= asked.unwrap_or_default().min(LONGEST_NOT_BEFORE));
            prop_assert!(known.is_none_or(|known| wait < known));
            prop_assert!(settings.deadline.is_none_or(|deadline| age + wait < deadline));
        }
    }

    #[test]
    fn any_header_is_read_or_ignored(value in "\\PC{0,40}", date in "\\PC{0,40}", now: i64) {
        let wait = retry_after::parse(&value, Some(&date), Timestamp::from_millis(now));
        prop_assert!(wait.is_none_or(|wait| wait <= LONGEST_NOT_BEFORE));
    }

    #[test]
    fn something_like_a_date_is_read_or_ignored(
        value in "(Sun|Sunday|Thu)?,? ?[0-9]{0,3}[ -](Nov|Feb|\u{e9})[ -] ?[0-9]{0,4} ?[0-9:]{0,9}( GMT| [0-9]{2,4})?",
        now: i64,
    ) {
        let _ = http_date::parse(&value, Timestamp::from_millis(now));
    }

    #[test]
    fn every_time_is_read_back_in_all_forms(seconds in -62_135_596_800..253_402_207_200_i64) {
        let time = TimeZone::UTC.to_datetime(jiff::Timestamp::from_second(seconds).unwrap());
        let expected = Some(Timestamp::from_millis(seconds * 1000));
        let short_year = format!("%A, %d-%b-{:02} %H:%M:%S GMT", time.year() % 100);
        for form in ["%a, %d %b %Y %H:%M:%S GMT", &short_year, "%a %b %e %H:%M:%S %Y"] {
            let text = time.strftime(form).to_string();
            prop_assert_eq!(http_date::parse(&text, Timestamp::from_millis(seconds * 1000)), expected, "{}", text);
        }
    }

    #[test]
    fn retries_never_exceed_the_budget(
        percent in 0..200_u32,
        per_second in 0..20_u32,
        burst in 0..50_u32,
        calls in prop::collection::vec((0..500_i64, any::<bool>()), 0..400),
    ) {
        let settings = budget::Settings { percent, per_second, burst };
        let mut now = 0;
        let mut account = Account::full(&settings, Timestamp::from_millis(0));
        let (mut first, mut retries) = (0_u64, 0_u64);
        for (waited, is_first) in calls {
            now += waited;
            if is_first {
                account.first_attempt(&settings, Timestamp::from_millis(now));
                first += 1;
            } else if account.withdraw(&settings, Timestamp::from_millis(now)) == Withdrawal::Granted {
                retries += 1;
            }
            let passed = u64::try_from(now).unwrap();
            let permitted =
                u64::from(burst.max(1)) * 1000 + first * u64::from(percent) * 10 + passed * u64::from(per_second);
            prop_assert!(retries * 1000 <= permitted, "{} retries for {} first attempts", retries, first);
        }
    }
}
