//! The queue in front of the writer. Callers put jobs in, and the one writer takes all waiting jobs at once.
//!
//! It is not a library's channel because the writer must be able to wait for a number of jobs.

use std::mem;
use std::time::{Duration, Instant};

use crate::plant::{Plant, planted};

use super::batch_wait::BatchWait;
// The schedule checker in `onceward-sim` compiles this file with primitives that try out every schedule.
use super::sync::{Condvar, Mutex, MutexGuard, Notify, PoisonError};

/// A queue with one consumer.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<QueueState<T>>,
    /// Wakes the consumer.
    arrived: Condvar,
    /// Wakes callers that found the queue full.
    has_room: Notify,
    limit: usize,
}

#[derive(Debug)]
struct QueueState<T> {
    jobs: Vec<T>,
    /// Jobs that may wait for another job to share its batch, and until when.
    idle: Vec<T>,
    idle_until: Option<Instant>,
    /// The consumer sleeps until this many jobs wait; it is not woken for fewer.
    wanted: usize,
    closed: bool,
}

/// The queue is closed and accepts no more jobs.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

impl<T> Queue<T> {
    /// A queue in which at most `limit` jobs wait; further callers wait to enter it.
    pub fn new(limit: usize) -> Self {
        let state =
            QueueState { jobs: Vec::new(), idle: Vec::new(), idle_until: None, wanted: usize::MAX, closed: false };
        Self { state: Mutex::new(state), arrived: Condvar::new(), has_room: Notify::new(), limit }
    }

    /// Puts a job in, as soon as there is room.
    pub async fn put(&self, job: T) -> Result<(), Closed> {
        let mut job = job;
        loop {
            // Registered before the attempt, so that a notification in between is not missed.
            let has_room = self.has_room.notified();
            match self.offer(job, self.limit) {
                Ok(()) => return Ok(()),
                Err(None) => return Err(Closed),
                Err(Some(back)) => job = back,
            }
            has_room.await;
        }
    }

    /// Puts in a job that is taken together with the next one, or alone after [`MAX_IDLE`]. It comes before all jobs that are
    /// put in later.
    pub async fn put_idle(&self, job: T) -> Result<(), Closed> {
        match self.offer_idle(job) {
            Ok(()) => Ok(()),
            Err(None) => Err(Closed),
            Err(Some(job)) => self.put(job).await,
        }
    }

    /// Returns the job if too many wait, and `None` if the queue is closed.
    fn offer_idle(&self, job: T) -> Result<(), Option<T>> {
        let mut state = self.state();
        if state.closed {
            return Err(None);
        }
        if state.idle.len() >= self.limit {
            return Err(Some(job));
        }
        state.idle.push(job);
        // A consumer that sleeps without a deadline has to learn that there is one now.
        let wake = state.idle_until.is_none() && state.wanted == 1;
        state.idle_until.get_or_insert_with(|| Instant::now() + MAX_IDLE);
        drop(state);
        if wake {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Puts a job in, even if the queue is full.
    pub fn push(&self, job: T) {
        let _ = self.offer(job, usize::MAX);
    }

    /// Returns the job if the queue is full, and `None` if it is closed.
    fn offer(&self, job: T, limit: usize) -> Result<(), Option<T>> {
        let mut state = self.state();
        if state.closed {
            return Err(None);
        }
        if state.jobs.len() >= limit {
            return Err(Some(job));
        }
        state.jobs.push(job);
        let wake = state.jobs.len() >= state.wanted;
        if wake {
            // One wake-up is enough.
            state.wanted = usize::MAX;
        }
        drop(state);
        if wake {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Takes up to `max` jobs into `batch`, which is empty. Waits for the first job without a limit, and then for as many as
    /// `wait` expects, until its time is over. Returns false if the queue is closed and empty.
    pub fn take(&self, batch: &mut Vec<T>, max: usize, wait: &BatchWait) -> bool {
        let expected = wait.expected.min(max);
        let mut state = self.state();
        while state.jobs.is_empty() {
            if state.closed && state.idle.is_empty() {
                return false;
            }
            let left = state.idle_until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left < MIN_WAIT || state.closed) {
                break;
            }
            state.wanted = 1;
            state = match left {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        while !state.jobs.is_empty() && state.jobs.len() < expected && !state.closed {
            let left = wait.until.saturating_duration_since(Instant::now());
            if left < MIN_WAIT {
                break;
            }
            state.wanted = expected;
            (state, _) = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state.wanted = usize::MAX;
        let was_full = state.jobs.len() >= self.limit;
        if !planted(Plant::DeliveryOvertaken) {
            state.take_idle(batch, max);
        }
        if batch.is_empty() && state.jobs.len() <= max {
            mem::swap(&mut state.jobs, batch);
        } else {
            state.take_jobs(batch, max);
        }
        if planted(Plant::DeliveryOvertaken) {
            state.take_idle(batch, max);
        }
        drop(state);
        if was_full {
            self.has_room.notify_waiters();
        }
        true
    }

    /// Waits until there is a job or the queue is closed. Returns false if the time is over first.
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.state();
        while state.jobs.is_empty() && !state.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left < MIN_WAIT {
                state.wanted = usize::MAX;
                return false;
            }
            state.wanted = 1;
            (state, _) = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state.wanted = usize::MAX;
        true
    }

    /// Adds the waiting jobs to a batch, up to `max` in total. Does not wait.
    pub fn top_up(&self, batch: &mut Vec<T>, max: usize) {
        let mut state = self.state();
        let was_full = state.jobs.len() >= self.limit;
        state.take_idle(batch, max);
        state.take_jobs(batch, max);
        drop(state);
        if was_full {
            self.has_room.notify_waiters();
        }
    }

    /// How many jobs wait.
    pub fn waiting(&self) -> usize {
        self.state().jobs.len()
    }

    /// Accepts no more jobs. The waiting ones can still be taken.
    pub fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_one();
        self.has_room.notify_waiters();
    }

    /// Closes the queue and drops all jobs: the consumer is gone, and callers must not wait for ever.
    pub fn abandon(&self) {
        self.close();
        let mut state = self.state();
        state.jobs.clear();
        state.idle.clear();
    }

    fn state(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> QueueState<T> {
    /// Moves idle jobs into a batch, up to `max` in total.
    fn take_idle(&mut self, batch: &mut Vec<T>, max: usize) {
        let taken = self.idle.len().min(max.saturating_sub(batch.len()));
        batch.extend(self.idle.drain(..taken));
        if self.idle.is_empty() {
            self.idle_until = None;
        }
    }

    /// Moves jobs into a batch, up to `max` in total.
    fn take_jobs(&mut self, batch: &mut Vec<T>, max: usize) {
        let taken = self.jobs.len().min(max.saturating_sub(batch.len()));
        batch.extend(self.jobs.drain(..taken));
    }
}

/// The longest time that an idle job waits for another one.
const MAX_IDLE: Duration = Duration::from_secs(1);

/// The operating system cannot wake a thread sooner than this.
const MIN_WAIT: Duration = Duration::from_micros(10);
