//! Passes the messages of the library (`tracing`) on to Python's `logging`. An event only puts its text into a queue; a thread of
//! Python takes it from there and calls the handlers, which may take their time. So no thread of the library waits for Python.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLockReadGuard};

use pyo3::prelude::*;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::process::{self, is_ending, with_interpreter};
use crate::runtime;

/// How many messages wait for Python. More are dropped and counted: a program whose handlers hang must not run out of memory.
const MOST_WAITING: usize = 1000;

/// The longest text of a message, in bytes.
const LONGEST: usize = 4000;

/// The levels of Python's `logging`.
const ERROR: u8 = 40;
const WARNING: u8 = 30;
const INFO: u8 = 20;
const DEBUG: u8 = 10;

/// The queue of this process. A child process replaces it, because a thread of the parent may have held its lock. Null means the
/// first one.
static QUEUE: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());
static FIRST_QUEUE: Queue = Queue::new();

thread_local! {
    /// Keeps the end of the interpreter, and forks, waiting while the thread that logs comes back into the interpreter.
    static COMING_BACK: RefCell<Option<RwLockReadGuard<'static, ()>>> = const { RefCell::new(None) };
}

/// A logger's name, a level and a text.
type LogMessage = (String, u8, String);

struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

struct Waiting {
    messages: VecDeque<LogMessage>,
    dropped: u64,
    /// A thread of Python reads them, or is being started.
    has_reader: bool,
}

impl Queue {
    const fn new() -> Self {
        let waiting = Waiting { messages: VecDeque::new(), dropped: 0, has_reader: false };
        Self { waiting: Mutex::new(waiting), arrived: Condvar::new() }
    }

    /// The queue of this process.
    #[allow(unsafe_code)]
    fn of_process() -> &'static Self {
        let replaced = QUEUE.load(Ordering::Acquire);
        // SAFETY: it is null, or was made by `Box::leak` after a fork, and is never freed.
        unsafe { replaced.as_ref() }.unwrap_or(&FIRST_QUEUE)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message. Returns whether a reader has to be started for it.
    fn push(&self, message: LogMessage) -> bool {
        let mut waiting = self.lock();
        if waiting.messages.len() < MOST_WAITING {
            waiting.messages.push_back(message);
        } else {
            waiting.dropped += 1;
        }
        self.arrived.notify_one();
        !std::mem::replace(&mut waiting.has_reader, true)
    }

    fn take(&self) -> Vec<LogMessage> {
        let mut waiting = self.lock();
        let dropped = std::mem::take(&mut waiting.dropped);
        let mut messages: Vec<_> = waiting.messages.drain(..).collect();
        if dropped > 0 {
            let text = format!("{dropped} messages were dropped, because the handlers of logging are too slow");
            messages.push(("onceward".to_owned(), WARNING, text));
        }
        messages
    }
}

/// Begins to collect messages. Called once, when the module is imported.
pub(crate) fn begin() {
    // Another subscriber could only be that of an earlier import in this process.
    let _ = tracing::subscriber::set_global_default(Forwarder);
}

/// A child process begins with an empty queue: the messages are for the parent.
pub(crate) fn after_fork_in_child() {
    QUEUE.store(Box::leak(Box::new(Queue::new())), Ordering::Release);
}

/// Waits for messages. Does not return any more once the interpreter is ending: the thread that called it must
/// not come back into it.
#[pyfunction]
pub(crate) fn wait_for_messages(py: Python<'_>) {
    let queue = Queue::of_process();
    py.detach(|| {
        let waiting = queue.arrived.wait_while(queue.lock(), |waiting| waiting.messages.is_empty());
        drop(waiting);
        let inside = process::enter_gate();
        if is_ending() {
            drop(inside);
            loop {
                std::thread::park();
            }
        }
        COMING_BACK.with_borrow_mut(|coming_back| *coming_back = Some(inside));
    });
    drop(COMING_BACK.with_borrow_mut(Option::take));
}

/// Takes the messages that wait now.
#[pyfunction]
pub(crate) fn waiting_messages() -> Vec<LogMessage> {
    Queue::of_process().take()
}

/// Starts the thread of Python that reads the messages. Runs on a thread of the runtime, never on the one that has the message:
/// that one may be waited for by a thread that has the interpreter.
fn start_reader() {
    with_interpreter(|py| {
        let started = py.import("onceward._logs").and_then(|logs| logs.call_method0("start"));
        if started.is_err() {
            // As when no thread can be started. The next message tries again.
            Queue::of_process().lock().has_reader = false;
        }
    });
}

/// Collects the events of Onceward's own crates. Others may contain anything.
struct Forwarder;

impl Subscriber for Forwarder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::DEBUG && logger_of(metadata.target()).is_some()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        // Spans are not enabled; an id must not be zero.
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some(logger) = logger_of(event.metadata().target()) else { return };
        if is_ending() {
            return;
        }
        let mut text = Text::default();
        event.record(&mut text);
        let message = (logger, level_of(*event.metadata().level()), text.whole());
        if Queue::of_process().push(message)
            && let Some(runtime) = runtime::known()
        {
            runtime.spawn_blocking(start_reader);
        }
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

fn level_of(level: Level) -> u8 {
    match level {
        Level::ERROR => ERROR,
        Level::WARN => WARNING,
        Level::INFO => INFO,
        _ => DEBUG,
    }
}

/// The name of the logger for a module: `onceward::store::sqlite` is `onceward.store.sqlite`, and `onceward_runtime` is
/// `onceward.runtime`. `None` for other crates.
fn logger_of(target: &str) -> Option<String> {
    let rest = target.strip_prefix("onceward")?;
    if !rest.is_empty() && !rest.starts_with("::") && !rest.starts_with('_') {
        return None;
    }
    let rest = rest.strip_prefix('_').map_or_else(|| rest.to_owned(), |rest| format!("::{rest}"));
    Some(format!("onceward{}", rest.replace("::", ".")))
}

/// The text of an event: its message, and then its fields.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn whole(self) -> String {
        let mut text =
            if self.fields.is_empty() { self.message } else { format!("{} ({})", self.message, self.fields) };
        if text.len() > LONGEST {
            let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
        }
        text.replace(char::is_control, " ")
    }

    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // Writing to a text does not fail.
        let _ = match field.name() {
            "message" => self.message.write_fmt(value),
            name if self.fields.is_empty() => write!(self.fields, "{name}: {value}"),
            name => write!(self.fields, ", {name}: {value}"),
        };
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format_args!("{value:?}"));
    }
}
