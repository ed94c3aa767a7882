//! A circuit breaker that processes can share: one small record, changed by compare-and-swap.
//!
//! Each function takes the record that was read, and returns the one to write in its place, if any. Store it wherever you have
//! a compare-and-swap, as JSON if you like.
//!
//! ```
//! use onceward::breaker::{Breaker, Permit, Settings, State, Ticket};
//! use onceward::record::Fence;
//! use onceward::time::Timestamp;
//!
//! let settings = Settings::default(); // opens after 5 failures in a row, for 30 s
//! let start = Timestamp::from_millis(1_795_046_400_000); // your clock
//! let mut breaker = Breaker::default(); // what counts where there is no record yet
//!
//! for _ in 0..5 {
//!     let Permit::Allowed(ticket) = breaker.permits(start) else { panic!("it is closed") };
//!     // The call fails. With a shared record: write this if the version is still the one that was read.
//!     breaker = breaker.failed(ticket, &settings, start).expect("each failure is counted");
//! }
//! assert!(matches!(breaker.permits(start), Permit::Refused { retry_after } if retry_after == settings.recovery));
//!
//! // When the recovery is over, one call is the trial. The others wait for it.
//! let later = start.after(settings.recovery);
//! assert_eq!(breaker.permits(later), Permit::Trial);
//! let trial = Fence::from_bits(0x9e37_79b9_7f4a_7c15); // 128 random bits
//! breaker = breaker.begin_trial(trial, &settings, later).expect("a trial is permitted");
//! assert!(matches!(breaker.permits(later), Permit::Refused { .. }));
//!
//! breaker = breaker.succeeded(Ticket::Trial(trial)).expect("the trial closes it");
//! assert_eq!(breaker.state, State::Closed { failures: 0 });
//!
//! // From here on, success costs no writes.
//! let Permit::Allowed(ticket) = breaker.permits(later) else { panic!("it is closed") };
//! assert_eq!(breaker.succeeded(ticket), None);
//! ```

pub use onceward_core::breaker::*;
