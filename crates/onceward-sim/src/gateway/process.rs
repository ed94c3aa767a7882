//! The gateway as a process of its own: this very binary, which stands in for the product.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use onceward::core::plant;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::Options;

/// Where the gateway is at the moment; `None` while there is none.
pub type Address = Arc<Mutex<Option<String>>>;

/// A gateway that runs.
pub struct Process {
    child: Child,
    folder: PathBuf,
    upstream: u16,
    options: Options,
    address: Address,
}

impl Process {
    /// Starts a gateway, and waits until it listens.
    pub async fn start(folder: &Path, upstream: u16, options: &Options) -> Self {
        Self::at(folder.to_owned(), upstream, options.clone(), Address::default()).await
    }

    async fn at(folder: PathBuf, upstream: u16, options: Options, address: Address) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["onceward", "gateway", "--listen", "127.0.0.1:0", "--tenant", "fixed:sim", "--wait", "2s"]);
        command.arg("--upstream").arg(format!("http://127.0.0.1:{upstream}"));
        command.arg("--store").arg(folder.join("ledger.db"));
        if options.honours_key {
            command.arg("--honours-key");
        }
        if let Some(plant) = plant::current() {
            command.arg("--plant").arg(plant.name());
        }
        let child = command.env("ONCEWARD_LOG", "off").stdout(Stdio::piped()).kill_on_drop(true).spawn();
        let mut child = child.expect("a gateway");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let line = lines.next_line().await.expect("its first line").expect("a gateway says where it listens");
        let url = line.rsplit_once("http://").map(|(_, address)| address.to_owned());
        *address.lock().unwrap_or_else(PoisonError::into_inner) = Some(url.expect("an address"));
        Self { child, folder, upstream, options, address }
    }

    /// Where it is, also after it was started again.
    pub fn address(&self) -> Address {
        Arc::clone(&self.address)
    }

    /// Ends it without a word.
    pub async fn kill(&mut self) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.child.start_kill().expect("a gateway that runs");
        self.child.wait().await.expect("its end");
    }

    /// Starts the next one on the same ledger.
    pub async fn again(self) -> Self {
        Self::at(self.folder, self.upstream, self.options, self.address).await
    }
}
