//! Thread per core: each worker thread serves its own connections. A proxied request stays on one thread with both of its
//! connections, because handing it to another thread costs more than reading and writing it.

use std::io;
use std::sync::Arc;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A fixed number of worker threads. They end when this is dropped.
#[derive(Debug)]
pub struct WorkerThreads {
    workers: Vec<Worker>,
    /// Dropping them tells the threads to end.
    _ends: Vec<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// One reference per connection on this worker.
    connections: Arc<()>,
}

/// A connection's slot on a worker, released on drop.
#[derive(Debug)]
pub struct WorkerSlot {
    /// The number of the worker.
    pub number: usize,
    pub runtime: Handle,
    _connection: Arc<()>,
}

impl WorkerThreads {
    /// Starts this many worker threads.
    pub fn start(count: usize) -> io::Result<Self> {
        let (mut workers, mut ends) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for number in 0..count.max(1) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (end, ended) = oneshot::channel();
            workers.push(Worker { runtime: runtime.handle().clone(), connections: Arc::default() });
            ends.push(end);
            thread::Builder::new().name(format!("onceward-worker-{number}")).spawn(move || {
                let _ = runtime.block_on(ended);
                // Open connections have had their shutdown time.
                runtime.shutdown_background();
            })?;
        }
        Ok(Self { workers, _ends: ends })
    }

    /// One worker without a thread of its own: the current runtime.
    pub fn current() -> Self {
        Self { workers: vec![Worker { runtime: Handle::current(), connections: Arc::default() }], _ends: Vec::new() }
    }

    pub fn count(&self) -> usize {
        self.workers.len()
    }

    /// A slot on the worker with the fewest connections; `None` without workers.
    pub fn least_busy(&self) -> Option<WorkerSlot> {
        let workers = self.workers.iter().enumerate();
        let (number, worker) = workers.min_by_key(|(_, worker)| Arc::strong_count(&worker.connections))?;
        Some(WorkerSlot { number, runtime: worker.runtime.clone(), _connection: Arc::clone(&worker.connections) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_busy_worker_is_chosen_and_tasks_run_on_its_thread() {
        let workers = WorkerThreads::start(2).unwrap();
        let first = workers.least_busy().unwrap();
        let second = workers.least_busy().unwrap();
        assert_ne!(first.number, second.number);
        let freed = second.number;
        drop(second);
        assert_eq!(workers.least_busy().unwrap().number, freed);
        let (sender, receiver) = std::sync::mpsc::channel();
        first.runtime.spawn(async move { sender.send(thread::current().name().map(str::to_owned)) });
        assert_eq!(receiver.recv().unwrap(), Some(format!("onceward-worker-{}", first.number)));
    }

    #[test]
    fn threads_end_with_their_owner() {
        let workers = WorkerThreads::start(1).unwrap();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        workers.least_busy().unwrap().runtime.spawn(async move {
            let _hold = hold;
            std::future::pending::<()>().await;
        });
        drop(workers);
        // The runtime drops the task, which closes the channel.
        assert!(held.recv().is_err());
    }
}
