//! Starts programs on a thread that lives as long as the sink. The kernel kills a program when the thread that started it ends,
//! so that a courier that was killed leaves no program behind; and the threads of a runtime may end at any time.

use std::fmt;
use std::io;
use std::sync::mpsc;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Order {
    command: Command,
    /// Which runtime the pipes of the program belong to.
    runtime: Handle,
    started: oneshot::Sender<io::Result<Child>>,
}

/// The thread. Ends when this is dropped.
pub struct Spawner(mpsc::Sender<Order>);

impl fmt::Debug for Spawner {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Spawner")
    }
}

impl Spawner {
    pub fn start() -> io::Result<Self> {
        let (sender, orders) = mpsc::channel::<Order>();
        let work = move || {
            for Order { mut command, runtime, started } in orders {
                let _context = runtime.enter();
                // A caller that is gone drops the child, which kills it.
                let _ = started.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("spawner".to_owned()).spawn(work)?;
        Ok(Self(sender))
    }

    /// Starts a program. Must be called in a tokio runtime.
    pub async fn spawn(&self, command: Command) -> io::Result<Child> {
        let (started, child) = oneshot::channel();
        let gone = || io::Error::other("the thread that starts programs has ended");
        self.0.send(Order { command, runtime: Handle::current(), started }).map_err(|_| gone())?;
        child.await.map_err(|_| gone())?
    }
}
