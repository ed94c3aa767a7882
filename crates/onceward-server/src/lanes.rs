//! Threads that each serve connections of their own. A request that passes through stays on one thread, with both of its
//! connections: nothing is handed from one thread to another, which costs more than reading and writing the request.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Some lanes. Their threads end when this is dropped.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// Dropped, they tell the threads to end.
    _ends: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    /// Everybody on this lane has one.
    places: Arc<()>,
}

/// A place on a lane, given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    /// Which lane.
    pub(crate) number: usize,
    pub(crate) runtime: Handle,
    _taken: Arc<()>,
}

impl Lanes {
    /// Starts this many threads.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let (mut lanes, mut ends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for number in 0..count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (end, ended) = oneshot::channel();
            lanes.push(Lane { runtime: runtime.handle().clone(), places: Arc::default() });
            ends.push(end);
            thread::Builder::new().name(format!("onceward-lane-{number}")).spawn(move || {
                let _ = runtime.block_on(ended);
                // Whoever is still at it was given its time.
                runtime.shutdown_background();
            })?;
        }
        Ok(Self { lanes, _ends: ends })
    }

    /// No threads of their own: the runtime that this is called on.
    pub(crate) fn here() -> Self {
        Self { lanes: vec![Lane { runtime: Handle::current(), places: Arc::default() }], _ends: Vec::new() }
    }

    pub(crate) fn count(&self) -> usize {
        self.lanes.len()
    }

    /// A place on the lane with the fewest others; `None` without any lane.
    pub(crate) fn take(&self) -> Option<Place> {
        let lanes = self.lanes.iter().enumerate();
        let (number, lane) = lanes.min_by_key(|(_, lane)| Arc::strong_count(&lane.places))?;
        Some(Place { number, runtime: lane.runtime.clone(), _taken: Arc::clone(&lane.places) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emptiest_lane_is_taken_and_work_runs_on_its_thread() {
        let lanes = Lanes::start(2).unwrap();
        let first = lanes.take().unwrap();
        let second = lanes.take().unwrap();
        assert_ne!(first.number, second.number);
        let freed = second.number;
        drop(second);
        assert_eq!(lanes.take().unwrap().number, freed);
        let (say, heard) = std::sync::mpsc::channel();
        first.runtime.spawn(async move { say.send(thread::current().name().map(str::to_owned)) });
        assert_eq!(heard.recv().unwrap(), Some(format!("onceward-lane-{}", first.number)));
    }

    #[test]
    fn threads_end_with_their_owner() {
        let lanes = Lanes::start(1).unwrap();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        lanes.take().unwrap().runtime.spawn(async move {
            let _hold = hold;
            std::future::pending::<()>().await;
        });
        drop(lanes);
        // The task is dropped with its runtime, and its end of the channel with it.
        assert!(held.recv().is_err());
    }
}
