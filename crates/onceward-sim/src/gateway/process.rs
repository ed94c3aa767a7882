//! A gateway process, and the addresses of those that run.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::Options;
use crate::kills::product::{Product, end};
use crate::rng::Rng;

/// The address of each gateway; `None` while it is gone.
#[derive(Clone, Debug)]
pub struct Addresses(Arc<Mutex<Vec<Option<String>>>>);

impl Addresses {
    pub fn of(gateways: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![None; gateways])))
    }

    /// The address of a gateway that runs.
    pub fn pick(&self, rng: &mut Rng) -> Option<String> {
        let addresses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running: Vec<&String> = addresses.iter().flatten().collect();
        let place = usize::try_from(rng.below(running.len() as u64)).unwrap_or(0);
        running.get(place).map(|address| (*address).clone())
    }

    pub fn put(&self, place: usize, address: Option<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[place] = address;
    }
}

/// How gateways are started: all on one ledger, in front of one upstream.
#[derive(Clone, Debug)]
pub struct Start {
    pub folder: PathBuf,
    /// The file of the ledger, or its URL.
    pub ledger: PathBuf,
    pub upstream: u16,
    pub options: Options,
}

impl Start {
    /// Starts a gateway, waits until it listens, and returns its address.
    pub async fn start(&self) -> (Process, String) {
        let product = Product::of(&self.options.common);
        let upstream = format!("http://127.0.0.1:{}", self.upstream);
        let mut command = match self.configuration(&upstream) {
            None => {
                let mut command = product.command(&["gateway", "--listen", "127.0.0.1:0", "--tenant", "fixed:sim"]);
                command.args(["--wait", "2s", "--upstream", &upstream]);
                command
            }
            Some(config) => {
                let file = self.folder.join("onceward.toml");
                std::fs::write(&file, config).expect("the folder can be written");
                let mut command = product.command(&["serve", "--listen", "127.0.0.1:0", "--config"]);
                command.arg(file);
                command
            }
        };
        let child = command.arg("--store").arg(&self.ledger).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let mut child = child.expect("a gateway");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        loop {
            let line = lines.next_line().await.expect("its output").expect("a gateway says where it listens");
            if let Some((_, address)) = line.split_once("onceward gateway listens on http://") {
                return (Process { child }, address.to_owned());
            }
        }
    }

    /// The configuration, if flags cannot say it.
    fn configuration(&self, upstream: &str) -> Option<String> {
        let terms = match (self.options.memory, &self.options.store) {
            (None, None) => return None,
            (None, Some(_)) => format!("max_runtime = \"{}ms\"\n", super::RUNTIME_ON_A_SERVER.as_millis()),
            (Some(memory), _) => format!(
                "max_runtime = \"{}ms\"\nhonours_key_for = \"{}ms\"\n",
                super::RUNTIME.as_millis(),
                memory.as_millis()
            ),
        };
        let honours_key = self.options.memory.is_some();
        Some(format!(
            "[operation.sim]\n{terms}[gateway]\nlisten = \"127.0.0.1:0\"\n[[gateway.route]]\nupstream = {upstream:?}\n\
             operation = \"sim\"\nhonours_key = {honours_key}\ntenant = \"fixed:sim\"\nwait = \"2s\"\n"
        ))
    }
}

/// A gateway that runs.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Kills it.
    pub async fn kill(&mut self) {
        end(&mut self.child).await;
    }
}
