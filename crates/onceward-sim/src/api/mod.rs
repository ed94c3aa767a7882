//! The HTTP API, killed under load: clients begin, act, finish and retry; some die between two of these steps.
//!
//! - `client`: one client, from begin to finish.

mod client;

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::dice::Dice;
use crate::kills::product::end;
use crate::kills::{self, Options, Stage};

/// Clients at once.
const CALLERS: u64 = 12;

/// A server lives so long between two kills, in milliseconds.
const LIFE: (u64, u64) = (5, 250);

/// Where the server is; none while there is none.
type Address = Arc<Mutex<Option<String>>>;

/// Kills the server as often as is wanted. True if nothing was broken.
pub fn run(options: &Options) -> bool {
    kills::on_a_runtime(play(options))
}

async fn play(options: &Options) -> bool {
    let started = Instant::now();
    let stage = Arc::new(Stage::new(options, "api"));
    let address = Address::default();
    let mut server = start(&stage, &address).await;
    client::first_scene(&stage, &address).await;
    let over = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| tokio::spawn(client::live(caller, Arc::clone(&stage), Arc::clone(&address), Arc::clone(&over))))
        .collect();
    let mut dice = Dice::of(&[options.seed, 7]);
    for kill in 1..=options.kills {
        tokio::time::sleep(Duration::from_millis(LIFE.0 + dice.below(LIFE.1 - LIFE.0))).await;
        put(&address, None);
        end(&mut server).await;
        server = start(&stage, &address).await;
        if !stage.goes_on(kill) {
            break;
        }
    }
    over.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.expect("a caller");
    }
    put(&address, None);
    end(&mut server).await;
    server = start(&stage, &address).await;
    stage.finish(client::as_value, |key| client::ask_at_last(&stage, &address, key)).await;
    end(&mut server).await;
    stage.judge("api", started.elapsed())
}

fn put(address: &Address, at: Option<String>) {
    *address.lock().unwrap_or_else(PoisonError::into_inner) = at;
}

/// Starts a server, and waits until it listens.
async fn start(stage: &Stage, address: &Address) -> Child {
    let store = stage.store().to_string_lossy().into_owned();
    let mut command = stage.product.command(&["serve", "--store", &store, "--listen", "127.0.0.1:0"]);
    // A file that lies in the working directory is not meant.
    command.current_dir(stage.folder());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the product can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("its first line").expect("a server says where it listens");
    put(address, Some(line.rsplit_once("http://").map(|(_, at)| at.to_owned()).expect("an address")));
    child
}
