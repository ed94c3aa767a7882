//! The HTTP API, killed under load: clients begin, act, finish and retry; some die between two of these steps.
//!
//! - `client`: one client, from begin to finish.

mod client;

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::kills::product::end;
use crate::kills::{self, KillRun, Options};
use crate::rng::Rng;

/// Clients at once.
const CALLERS: u64 = 12;

/// How long a server lives between two kills, in milliseconds.
const LIFETIME_MILLIS: (u64, u64) = (5, 250);

/// The address of the server; `None` while it is gone.
type Address = Arc<Mutex<Option<String>>>;

/// Kills the server. True if no rule was broken.
pub fn run(options: &Options) -> bool {
    kills::on_runtime(play(options))
}

async fn play(options: &Options) -> bool {
    let run = Arc::new(KillRun::new(options, "api"));
    let address = Address::default();
    let mut server = start(&run, &address).await;
    client::end_opening_scenario(&run, &address).await;
    let stopped = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(client::live(caller, Arc::clone(&run), Arc::clone(&address), Arc::clone(&stopped))))
        .collect();
    let mut rng = Rng::of(&[options.seed, 7]);
    for kill in 1..=options.kills {
        tokio::time::sleep(Duration::from_millis(LIFETIME_MILLIS.0 + rng.below(LIFETIME_MILLIS.1 - LIFETIME_MILLIS.0)))
            .await;
        put(&address, None);
        end(&mut server).await;
        server = start(&run, &address).await;
        if !run.should_continue(kill) {
            break;
        }
    }
    stopped.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("a caller");
    }
    put(&address, None);
    end(&mut server).await;
    server = start(&run, &address).await;
    run.finish(client::as_value, |key| client::ask_at_last(&run, &address, key)).await;
    end(&mut server).await;
    run.judge("api")
}

fn put(address: &Address, at: Option<String>) {
    *address.lock().unwrap_or_else(PoisonError::into_inner) = at;
}

/// Starts a server, and waits until it listens.
async fn start(run: &KillRun, address: &Address) -> Child {
    let store = run.store().to_string_lossy().into_owned();
    let mut command = run.product.command(&["serve", "--store", &store, "--listen", "127.0.0.1:0"]);
    // A configuration in the working directory is not used.
    command.current_dir(run.folder());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the product can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("its first line").expect("a server says where it listens");
    put(address, Some(line.rsplit_once("http://").map(|(_, at)| at.to_owned()).expect("an address")));
    child
}
