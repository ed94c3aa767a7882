//! The source of the writer's queue under schedules that the system rarely makes, over primitives that switch threads at every
//! step. A lost wake-up shows as a deadlock, which the checker reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use batch_wait::BatchWait;
use queue::{Closed, Queue};
use shuttle::{future, thread};

#[path = "../../../onceward/src/store/batching/queue.rs"]
#[allow(unreachable_pub)]
mod queue;

/// For how many jobs to wait, and until when.
mod batch_wait {
    #[derive(Debug)]
    pub(super) struct BatchWait {
        pub(super) expected: usize,
        pub(super) until: std::time::Instant,
    }
}

/// The primitives of the queue.
mod sync {
    pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
    use tokio::sync::futures::Notified;

    /// Tokio's own, with a switch of threads before each step.
    #[derive(Debug)]
    pub(super) struct Notify(tokio::sync::Notify);

    impl Notify {
        pub(super) fn new() -> Self {
            Self(tokio::sync::Notify::new())
        }

        pub(super) fn notified(&self) -> Notified<'_> {
            shuttle::thread::yield_now();
            self.0.notified()
        }

        pub(super) fn notify_waiters(&self) {
            shuttle::thread::yield_now();
            self.0.notify_waiters();
        }
    }
}

const SCHEDULES: usize = 3_000;

/// A caller, and how many jobs it has queued before.
type Numbered = (usize, usize);

/// Callers queue jobs, one after the other, and the taker takes them until the queue is closed and empty.
fn deliver(callers: usize, jobs: usize, limit: usize, most: usize, expected: usize) {
    let taken = taken(callers, jobs, limit, most, expected, |_| false);
    for caller in 0..callers {
        let numbers: Vec<usize> = taken.iter().filter(|(by, _)| *by == caller).map(|(_, number)| *number).collect();
        assert_eq!(numbers, (0..jobs).collect::<Vec<_>>(), "each once and in order");
    }
}

/// The same with every second job of a caller idle, the first of them or the second.
fn deliver_idle(callers: usize, jobs: usize, limit: usize, most: usize, first: usize) {
    let is_idle = move |number: usize| number % 2 == first;
    let taken = taken(callers, jobs, limit, most, 0, is_idle);
    for caller in 0..callers {
        let numbers: Vec<usize> = taken.iter().filter(|(by, _)| *by == caller).map(|(_, number)| *number).collect();
        let mut sorted = numbers.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..jobs).collect::<Vec<_>>(), "each once");
        let at = |number: usize| numbers.iter().position(|other| *other == number);
        for (earlier, later) in (0..jobs).flat_map(|earlier| (earlier + 1..jobs).map(move |later| (earlier, later))) {
            // An idle job comes before every later job, and may come before an earlier one.
            let in_order = is_idle(earlier) || !is_idle(later);
            assert!(!in_order || at(earlier) < at(later), "{earlier} comes after {later}: {numbers:?}");
        }
    }
}

/// The jobs that the taker gets, in its order.
fn taken(
    callers: usize,
    jobs: usize,
    limit: usize,
    most: usize,
    expected: usize,
    is_idle: impl Fn(usize) -> bool + Copy + Send + 'static,
) -> Vec<Numbered> {
    let queue: Arc<Queue<Numbered>> = Arc::new(Queue::new(limit));
    let busy = Arc::new(AtomicUsize::new(callers));
    let putting: Vec<_> = (0..callers)
        .map(|caller| {
            let (queue, busy) = (Arc::clone(&queue), Arc::clone(&busy));
            thread::spawn(move || {
                future::block_on(async {
                    for number in 0..jobs {
                        let put = match is_idle(number) {
                            true => queue.put_idle((caller, number)).await,
                            false => queue.put((caller, number)).await,
                        };
                        assert_eq!(put, Ok(()));
                    }
                });
                // The last one out closes.
                if busy.fetch_sub(1, Ordering::SeqCst) == 1 {
                    queue.close();
                }
            })
        })
        .collect();
    let mut taken: Vec<Numbered> = Vec::new();
    let mut batch = Vec::new();
    let pace = BatchWait { expected, until: Instant::now() + Duration::from_secs(3600) };
    loop {
        // As the writer does: it may wait before it takes, and also takes what has come meanwhile.
        queue.wait(Duration::from_secs(3600));
        if !queue.take(&mut batch, most, &pace) {
            break;
        }
        queue.top_up(&mut batch, most);
        assert!(!batch.is_empty() && batch.len() <= most, "{} at once", batch.len());
        taken.append(&mut batch);
    }
    putting.into_iter().for_each(|caller| caller.join().expect("a caller ends"));
    taken
}

#[test]
fn nothing_is_lost_or_doubled_and_no_thread_sleeps_for_ever() {
    shuttle::check_random(|| deliver(3, 3, 100, 100, 0), SCHEDULES);
}

#[test]
fn callers_that_find_it_full_are_woken() {
    shuttle::check_random(|| deliver(3, 3, 1, 1, 0), SCHEDULES);
    shuttle::check_random(|| deliver(3, 2, 2, 1, 0), SCHEDULES);
}

#[test]
fn a_taker_that_waits_for_two_is_woken_by_the_second_or_by_the_end() {
    shuttle::check_random(|| deliver(2, 3, 100, 100, 2), SCHEDULES);
    shuttle::check_random(|| deliver(2, 3, 2, 2, 2), SCHEDULES);
}

#[test]
fn idle_jobs_come_before_later_jobs_and_none_is_lost() {
    for first in [0, 1] {
        shuttle::check_random(move || deliver_idle(3, 3, 100, 100, first), SCHEDULES);
        shuttle::check_random(move || deliver_idle(2, 4, 100, 1, first), SCHEDULES);
    }
    shuttle::check_pct(|| deliver_idle(3, 2, 100, 2, 0), SCHEDULES, 3);
}

#[test]
fn a_sleeping_taker_is_woken_by_an_idle_job() {
    shuttle::check_random(
        || {
            let queue = Arc::new(Queue::new(1));
            let putting = Arc::clone(&queue);
            let caller = thread::spawn(move || {
                future::block_on(async {
                    // There is no room for a second idle job, so it is an ordinary one.
                    assert_eq!(putting.put_idle((0, 0)).await, Ok(()));
                    assert_eq!(putting.put_idle((0, 1)).await, Ok(()));
                });
            });
            let (mut taken, mut batch) = (Vec::new(), Vec::new());
            while taken.len() < 2 {
                assert!(queue.take(&mut batch, 9, &BatchWait { expected: 0, until: Instant::now() }));
                taken.append(&mut batch);
            }
            assert_eq!(taken, [(0, 0), (0, 1)]);
            caller.join().expect("a caller ends");
        },
        SCHEDULES,
    );
}

#[test]
fn rare_schedules_are_tried_too() {
    shuttle::check_pct(|| deliver(3, 2, 2, 2, 2), SCHEDULES, 3);
}

#[test]
fn a_closed_queue_takes_nothing() {
    shuttle::check_random(
        || {
            let queue = Queue::new(1);
            queue.close();
            assert_eq!(future::block_on(queue.put((0, 0))), Err(Closed));
            queue.push((0, 1));
            assert_eq!(queue.waiting(), 0);
            assert!(!queue.take(&mut Vec::new(), 1, &BatchWait { expected: 0, until: Instant::now() }));
        },
        1,
    );
}

/// A job that counts how often it is dropped.
struct DropCounter(Arc<AtomicUsize>);

impl Drop for DropCounter {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn jobs_that_a_dead_taker_leaves_are_dropped_and_no_caller_waits_for_them() {
    shuttle::check_random(
        || {
            let dropped = Arc::new(AtomicUsize::new(0));
            let queue = Arc::new(Queue::new(1));
            let putting: Vec<_> = (0..3)
                .map(|_| {
                    let (queue, job) = (Arc::clone(&queue), DropCounter(Arc::clone(&dropped)));
                    thread::spawn(move || future::block_on(queue.put(job)))
                })
                .collect();
            queue.abandon();
            putting.into_iter().for_each(|caller| drop(caller.join()));
            assert_eq!(dropped.load(Ordering::SeqCst), 3);
        },
        SCHEDULES,
    );
}
