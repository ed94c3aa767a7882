//! When a failed attempt is made again, and when it is not: the rules by which the courier retries, for code of your own.
//!
//! Nothing here reads a clock, draws a random number or waits. Your code passes in the time and the random bits, and does the
//! waiting; so every decision can be tested.
//!
//! ```
//! use std::time::Duration;
//!
//! use onceward::retry::backoff::{self, Failed, Limit, Next};
//! use onceward::retry::http_status::{self, Downstream, Verdict};
//! use onceward::retry::retry_after;
//! use onceward::time::Timestamp;
//!
//! let now = Timestamp::from_millis(1_795_046_400_000); // your clock
//! let random: u64 = 0x9e37_79b9_7f4a_7c15; // 64 random bits
//! let provider = Downstream { honours_key: true, ..Downstream::COURIER };
//!
//! // The provider answers 503 with `Retry-After: 7`: it did nothing, and says when to come back.
//! let asked = retry_after::parse("7", None, now);
//! let verdict = http_status::judge(503, asked, &provider);
//! assert_eq!(verdict, Verdict::Refused { retry: true, retry_after: Some(Duration::from_secs(7)) });
//!
//! let settings = backoff::Settings::default(); // 100 ms, doubled up to 10 s; 8 attempts
//! let failed = Failed { attempts: 1, retry_after: asked, ..Failed::default() };
//! let Next::After(wait) = backoff::next(&failed, &settings, random) else { panic!("seven attempts are left") };
//! assert!(Duration::from_millis(7_000) <= wait && wait <= Duration::from_millis(7_100));
//!
//! // A gateway stopped waiting: the effect may have happened. This provider does it once for each key, so the same request
//! // with the same key is safe.
//! assert_eq!(http_status::judge(504, None, &provider), Verdict::MayHaveHappened { retry: true });
//!
//! let last = Failed { attempts: 8, ..Failed::default() };
//! assert_eq!(backoff::next(&last, &settings, random), Next::GiveUp(Limit::Attempts));
//! ```
//!
//! Backoff spaces the retries of one intent. The [`budget`] limits those of all intents together, and a
//! [breaker](crate::breaker) stops calls to a downstream that does not work.

pub use onceward_core::retry::*;
