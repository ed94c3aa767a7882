//! What waits to be written. Callers put jobs in; the one writer takes all that are there at once.
//!
//! Not a channel of a library, for one reason: the writer can wait for a number of jobs.

use std::mem;
use std::time::{Duration, Instant};

use onceward_core::plant::{Plant, planted};

use super::pace::Pace;
// The harness compiles this very file against primitives that try out every schedule.
use super::sync::{Condvar, Mutex, MutexGuard, Notify, PoisonError};

/// A queue with one taker.
#[derive(Debug)]
pub struct Queue<T> {
    state: Mutex<State<T>>,
    /// Wakes the taker.
    arrived: Condvar,
    /// Wakes callers that found the queue full.
    room: Notify,
    limit: usize,
}

#[derive(Debug)]
struct State<T> {
    jobs: Vec<T>,
    /// Jobs that wait for others to be taken along, and until when.
    idle: Vec<T>,
    idle_until: Option<Instant>,
    /// The taker sleeps until there are this many; nobody wakes it for fewer.
    wanted: usize,
    closed: bool,
}

/// The queue takes nothing more.
#[derive(Debug, PartialEq, Eq)]
pub struct Closed;

impl<T> Queue<T> {
    /// A queue that holds callers back when as many jobs wait.
    pub fn new(limit: usize) -> Self {
        let state = State { jobs: Vec::new(), idle: Vec::new(), idle_until: None, wanted: usize::MAX, closed: false };
        Self { state: Mutex::new(state), arrived: Condvar::new(), room: Notify::new(), limit }
    }

    /// Puts a job in, once there is room.
    pub async fn put(&self, job: T) -> Result<(), Closed> {
        let mut job = job;
        loop {
            // Waits from before the look, so that room that is made in between is not missed.
            let room = self.room.notified();
            match self.offer(job, self.limit) {
                Ok(()) => return Ok(()),
                Err(None) => return Err(Closed),
                Err(Some(back)) => job = back,
            }
            room.await;
        }
    }

    /// Puts a job in that is taken along with the next one, or alone after [`LONGEST_IDLE`]. It comes before whatever is put
    /// in later.
    pub async fn put_idle(&self, job: T) -> Result<(), Closed> {
        match self.offer_idle(job) {
            Ok(()) => Ok(()),
            Err(None) => Err(Closed),
            Err(Some(job)) => self.put(job).await,
        }
    }

    /// Gives the job back when too many wait, and nothing when the queue is closed.
    fn offer_idle(&self, job: T) -> Result<(), Option<T>> {
        let mut state = self.state();
        if state.closed {
            return Err(None);
        }
        if state.idle.len() >= self.limit {
            return Err(Some(job));
        }
        state.idle.push(job);
        // A taker that sleeps without a limit has to learn that there is one now.
        let wake = state.idle_until.is_none() && state.wanted == 1;
        state.idle_until.get_or_insert_with(|| Instant::now() + LONGEST_IDLE);
        drop(state);
        if wake {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Puts a job in, room or not.
    pub fn push(&self, job: T) {
        let _ = self.offer(job, usize::MAX);
    }

    /// Gives the job back when there is no room, and nothing when the queue is closed.
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
            // Once is enough.
            state.wanted = usize::MAX;
        }
        drop(state);
        if wake {
            self.arrived.notify_one();
        }
        Ok(())
    }

    /// Takes up to `most` jobs into `batch`, which is empty. Waits for the first one without a limit, and then for as many
    /// as are expected until patience is over. False when the queue is closed and nothing is left in it.
    pub fn take(&self, batch: &mut Vec<T>, most: usize, pace: &Pace) -> bool {
        let expected = pace.expected.min(most);
        let mut state = self.state();
        while state.jobs.is_empty() {
            if state.closed && state.idle.is_empty() {
                return false;
            }
            let left = state.idle_until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left < SHORTEST_WAIT || state.closed) {
                break;
            }
            state.wanted = 1;
            state = match left {
                None => self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        while !state.jobs.is_empty() && state.jobs.len() < expected && !state.closed {
            let left = pace.until.saturating_duration_since(Instant::now());
            if left < SHORTEST_WAIT {
                break;
            }
            state.wanted = expected;
            (state, _) = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state.wanted = usize::MAX;
        let was_full = state.jobs.len() >= self.limit;
        if !planted(Plant::DeliveryOvertaken) {
            state.take_idle(batch, most);
        }
        if batch.is_empty() && state.jobs.len() <= most {
            mem::swap(&mut state.jobs, batch);
        } else {
            state.take_jobs(batch, most);
        }
        if planted(Plant::DeliveryOvertaken) {
            state.take_idle(batch, most);
        }
        drop(state);
        if was_full {
            self.room.notify_waiters();
        }
        true
    }

    /// Waits until there is a job, or the queue is closed, or the time is over: false then.
    pub fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut state = self.state();
        while state.jobs.is_empty() && !state.closed {
            let left = until.saturating_duration_since(Instant::now());
            if left < SHORTEST_WAIT {
                state.wanted = usize::MAX;
                return false;
            }
            state.wanted = 1;
            (state, _) = self.arrived.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state.wanted = usize::MAX;
        true
    }

    /// Adds what waits by now to a batch, up to `most` in all. Waits for nothing.
    pub fn top_up(&self, batch: &mut Vec<T>, most: usize) {
        let mut state = self.state();
        let was_full = state.jobs.len() >= self.limit;
        state.take_idle(batch, most);
        state.take_jobs(batch, most);
        drop(state);
        if was_full {
            self.room.notify_waiters();
        }
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.state().jobs.len()
    }

    /// Takes nothing more. What is in it is still handed out.
    pub fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_one();
        self.room.notify_waiters();
    }

    /// Nobody takes any more. Whoever waits for what is in it must not wait for ever.
    pub fn abandon(&self) {
        self.close();
        let mut state = self.state();
        state.jobs.clear();
        state.idle.clear();
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    /// Moves idle jobs into a batch, up to `most` in all.
    fn take_idle(&mut self, batch: &mut Vec<T>, most: usize) {
        let taken = self.idle.len().min(most.saturating_sub(batch.len()));
        batch.extend(self.idle.drain(..taken));
        if self.idle.is_empty() {
            self.idle_until = None;
        }
    }

    /// Moves jobs into a batch, up to `most` in all.
    fn take_jobs(&mut self, batch: &mut Vec<T>, most: usize) {
        let taken = self.jobs.len().min(most.saturating_sub(batch.len()));
        batch.extend(self.jobs.drain(..taken));
    }
}

/// The longest that an idle job waits for another one.
const LONGEST_IDLE: Duration = Duration::from_secs(1);

/// The system wakes nobody sooner than this.
const SHORTEST_WAIT: Duration = Duration::from_micros(10);
