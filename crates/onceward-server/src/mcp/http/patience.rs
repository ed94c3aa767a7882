//! How long a stream is waited for that broke off before the answer.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::mcp::link::NoAnswer;

/// How often in a row a stream that brings nothing is taken up again.
const TRIES: u32 = 5;

/// How long after it broke off first. A server that says nothing but that it is there may have forgotten the call, and
/// nobody can settle a call that runs. The longest tools take as long.
const ALL_TOGETHER: Duration = Duration::from_secs(60 * 60);

/// How often a stream was taken up, and until when it is.
#[derive(Debug, Default)]
pub(super) struct Patience {
    tries: u32,
    until: Option<Instant>,
}

impl Patience {
    /// The stream has broken off.
    pub(super) fn lost(&mut self) {
        self.lost_for(ALL_TOGETHER);
    }

    fn lost_for(&mut self, all_together: Duration) {
        self.until.get_or_insert_with(|| Instant::now() + all_together);
    }

    /// Something has come. What has no message in it only keeps a connection open.
    pub(super) fn heard(&mut self, is_message: bool) {
        if is_message {
            self.tries = 0;
        }
    }

    /// It is about to be taken up again.
    pub(super) fn tried(&mut self) -> Result<(), NoAnswer> {
        self.tries += 1;
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        if self.tries > TRIES || is_over { Err(given_up()) } else { Ok(()) }
    }

    /// What comes next, unless it takes too long.
    pub(super) async fn within<T>(&self, next: impl Future<Output = T>) -> Result<T, NoAnswer> {
        match self.until {
            None => Ok(next.await),
            Some(until) => timeout_at(until, next).await.map_err(|_| given_up()),
        }
    }
}

fn given_up() -> NoAnswer {
    NoAnswer::Lost("the stream ended before the answer, and cannot be taken up".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_brings_nothing_is_taken_up_a_few_times() {
        let mut patience = Patience::default();
        for _ in 0..TRIES {
            assert!(patience.tried().is_ok());
            patience.heard(false);
        }
        assert!(patience.tried().is_err());
        patience.heard(true);
        assert!(patience.tried().is_ok());
    }

    #[tokio::test]
    async fn one_that_only_says_that_it_is_there_is_left_in_the_end() {
        let mut patience = Patience::default();
        assert_eq!(patience.within(async { 7 }).await.unwrap(), 7);
        patience.lost_for(Duration::from_millis(20));
        assert_eq!(patience.within(async { 7 }).await.unwrap(), 7);
        // Being lost once more gives it no more time.
        patience.lost();
        assert!(patience.within(std::future::pending::<()>()).await.is_err());
        patience.heard(true);
        assert!(patience.tried().is_err());
    }
}
