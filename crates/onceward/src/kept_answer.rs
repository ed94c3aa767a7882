//! An answer that is kept for a while. When it is too old, one caller asks again, and the callers that come meanwhile get the
//! same answer, also if it is an error.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::store::Error;

/// The last answer of a store.
#[derive(Debug)]
pub(crate) struct KeptAnswer<T> {
    state: Mutex<State<T>>,
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State<T> {
    answer: Option<(Instant, T)>,
    error: Option<(Instant, Error)>,
}

impl<T> Default for KeptAnswer<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { answer: None, error: None }), asking: tokio::sync::Mutex::default() }
    }
}

impl<T: Clone> KeptAnswer<T> {
    /// The last answer, if it is not older than `keep` says, or what `ask` returns. Errors are not kept.
    pub(crate) async fn get<F: Future<Output = Result<T, Error>>>(
        &self,
        keep: impl Fn(&T) -> Duration,
        ask: impl FnOnce() -> F,
    ) -> Result<T, Error> {
        let fresh = || {
            let state = self.state();
            let (at, answer) = state.answer.as_ref()?;
            (at.elapsed() < keep(answer)).then(|| answer.clone())
        };
        if let Some(answer) = fresh() {
            return Ok(answer);
        }
        let came = Instant::now();
        let _asking = self.asking.lock().await;
        if let Some(answer) = fresh() {
            return Ok(answer);
        }
        if let Some(error) = self.error_since(came) {
            return Err(error);
        }
        // Most calls do not ask, and need no room for it.
        let answer = Box::pin(ask()).await;
        match &answer {
            Ok(answer) => self.set(answer.clone()),
            Err(error) => self.state().error = Some((Instant::now(), error.clone())),
        }
        answer
    }

    /// The last answer, however old it is.
    pub(crate) fn last(&self) -> Option<T> {
        self.state().answer.as_ref().map(|(_, answer)| answer.clone())
    }

    /// Keeps an answer that came in another way.
    pub(crate) fn set(&self, answer: T) {
        self.state().answer = Some((Instant::now(), answer));
    }

    fn error_since(&self, came: Instant) -> Option<Error> {
        let state = self.state();
        state.error.as_ref().filter(|(at, _)| *at >= came).map(|(_, error)| error.clone())
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::{advance, sleep};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_asked_for_again_when_it_is_too_old() {
        let (kept, asked) = (KeptAnswer::default(), AtomicU32::new(0));
        let get = || kept.get(|_| SECOND * 60, || async { Ok(asked.fetch_add(1, Ordering::SeqCst)) });
        assert_eq!((get().await.unwrap(), get().await.unwrap()), (0, 0));
        advance(SECOND * 59).await;
        assert_eq!(get().await.unwrap(), 0);
        advance(SECOND).await;
        assert_eq!(get().await.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn callers_at_the_same_time_share_an_error_and_the_next_one_asks_again() {
        let (kept, asked) = (KeptAnswer::<u32>::default(), AtomicU32::new(0));
        let get = || {
            kept.get(
                |_| SECOND,
                || async {
                    asked.fetch_add(1, Ordering::SeqCst);
                    sleep(SECOND).await;
                    Err(Error::Closed)
                },
            )
        };
        let (first, second, third) = tokio::join!(get(), get(), get());
        assert!(first.is_err() && second.is_err() && third.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        advance(Duration::from_millis(1)).await;
        get().await.unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
