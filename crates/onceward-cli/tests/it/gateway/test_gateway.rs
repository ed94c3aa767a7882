//! A running gateway in its own folder.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use crate::test_folder::TestFolder;

pub(super) struct TestGateway {
    pub(super) folder: TestFolder,
    child: Child,
    pub(super) url: String,
    /// The URL of the API, if there is one.
    pub(super) api: String,
}

impl TestGateway {
    /// With these flags, in addition to its address and its store.
    pub(super) fn start(flags: &[&str]) -> Self {
        let fixed = ["gateway", "--listen", "127.0.0.1:0", "--store", "ledger.db"];
        Self::spawn(TestFolder::new(), &[&fixed[..], flags].concat())
    }

    /// With this configuration, in addition to its store.
    pub(super) fn configured(folder: TestFolder, text: &str) -> Self {
        folder.write("onceward.toml", &format!("store = \"ledger.db\"\n{text}"));
        Self::spawn(folder, &["serve"])
    }

    fn spawn(folder: TestFolder, arguments: &[&str]) -> Self {
        let log = std::fs::File::create(folder.path("log")).unwrap();
        let mut child = folder.command(arguments).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let (mut url, mut api) = (None, String::new());
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            match line.split_once(" listens on ") {
                Some(("onceward api", at)) => api = at.to_owned(),
                Some(("onceward gateway", at)) => url = Some(at.to_owned()),
                _ => {}
            }
            if url.is_some() {
                break;
            }
        }
        let url = url.unwrap_or_else(|| panic!("the gateway did not start: {}", folder.read("log")));
        Self { folder, child, url, api }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.url.rsplit('/').next().unwrap().parse().unwrap()
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.folder.read("log"));
        }
    }
}
