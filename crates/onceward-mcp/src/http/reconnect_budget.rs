//! Limits how often and how long a stream is resumed that broke off before the response.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::transport::NoResponse;

/// The most attempts in a row to resume a stream that brings no message.
const MAX_ATTEMPTS: u32 = 5;

/// The limit after the first break. A server that only sends keep-alives may have forgotten the call, and a running call cannot be
/// settled. The longest tools run as long.
const TOTAL_LIMIT: Duration = Duration::from_secs(60 * 60);

/// How often a stream was resumed, and until when it may be.
#[derive(Debug, Default)]
pub(super) struct ReconnectBudget {
    attempts: u32,
    until: Option<Instant>,
}

impl ReconnectBudget {
    /// Records that the stream broke off.
    pub(super) fn broken(&mut self) {
        self.broken_for(TOTAL_LIMIT);
    }

    fn broken_for(&mut self, limit: Duration) {
        self.until.get_or_insert_with(|| Instant::now() + limit);
    }

    /// Records an event. One without a message only keeps the connection open.
    pub(super) fn heard(&mut self, is_message: bool) {
        if is_message {
            self.attempts = 0;
        }
    }

    /// Counts another attempt to resume, if the budget allows it.
    pub(super) fn spend_attempt(&mut self) -> Result<(), NoResponse> {
        self.attempts += 1;
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        if self.attempts > MAX_ATTEMPTS || is_over { Err(given_up()) } else { Ok(()) }
    }

    /// Waits for the next event, within the limit.
    pub(super) async fn within<T>(&self, next: impl Future<Output = T>) -> Result<T, NoResponse> {
        match self.until {
            None => Ok(next.await),
            Some(until) => timeout_at(until, next).await.map_err(|_| given_up()),
        }
    }
}

fn given_up() -> NoResponse {
    NoResponse::Lost("the stream ended before the response and could not be resumed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_messages_is_resumed_a_few_times() {
        let mut budget = ReconnectBudget::default();
        for _ in 0..MAX_ATTEMPTS {
            assert!(budget.spend_attempt().is_ok());
            budget.heard(false);
        }
        assert!(budget.spend_attempt().is_err());
        budget.heard(true);
        assert!(budget.spend_attempt().is_ok());
    }

    #[tokio::test]
    async fn a_stream_with_keep_alives_only_is_given_up_after_the_limit() {
        let mut budget = ReconnectBudget::default();
        assert_eq!(budget.within(async { 7 }).await.unwrap(), 7);
        budget.broken_for(Duration::from_millis(20));
        assert_eq!(budget.within(async { 7 }).await.unwrap(), 7);
        // A second break does not extend the limit.
        budget.broken();
        assert!(budget.within(std::future::pending::<()>()).await.is_err());
        budget.heard(true);
        assert!(budget.spend_attempt().is_err());
    }
}
