//! A gateway that listens, in a folder of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Stdio};

use crate::place::Place;

pub(super) struct Gateway {
    pub(super) place: Place,
    child: Child,
    pub(super) url: String,
    /// Where the API listens, if there is one.
    pub(super) api: String,
}

impl Gateway {
    /// With these flags, besides its address and its store.
    pub(super) fn start(flags: &[&str]) -> Self {
        let fixed = ["gateway", "--listen", "127.0.0.1:0", "--store", "ledger.db"];
        Self::spawn(Place::new(), &[&fixed[..], flags].concat())
    }

    /// With this configuration, besides its store.
    pub(super) fn configured(place: Place, text: &str) -> Self {
        place.write("onceward.toml", &format!("store = \"ledger.db\"\n{text}"));
        Self::spawn(place, &["serve"])
    }

    fn spawn(place: Place, arguments: &[&str]) -> Self {
        let log = std::fs::File::create(place.path("log")).unwrap();
        let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
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
        let url = url.unwrap_or_else(|| panic!("it does not listen: {}", place.read("log")));
        Self { place, child, url, api }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.url.rsplit('/').next().unwrap().parse().unwrap()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", self.place.read("log"));
        }
    }
}
