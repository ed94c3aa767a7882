//! A Redis of one's own.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use super::{Server, finish};
use crate::Fault;

/// When the log is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before an answer.
    Always,
    /// Every second, whatever was answered.
    Everysec,
}

/// A running Redis.
#[derive(Debug)]
pub struct Redis {
    /// Its process.
    pub server: Server,
    /// Its socket.
    pub socket: PathBuf,
}

impl Redis {
    /// Starts an empty one with its data in one folder and its socket in another.
    ///
    /// Snapshots and rewrites of the log are off: both would fork in the middle of a run, and cost Redis time.
    pub fn start(program: &Path, data: &Path, sockets: &Path, fsync: Fsync) -> Result<Self, Fault> {
        let socket = sockets.join("redis.sock");
        let (data, path) = (data.to_string_lossy(), socket.to_string_lossy());
        let fsync = match fsync {
            Fsync::Always => "always",
            Fsync::Everysec => "everysec",
        };
        let launch = Server::start("redis-server", program, None, sockets.join("redis.log"))?.args([
            "--port",
            "0",
            "--unixsocket",
            &path,
            "--dir",
            &data,
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            fsync,
            "--auto-aof-rewrite-percentage",
            "0",
            "--daemonize",
            "no",
        ]);
        // Its data is removed anyway, so nothing is to be saved.
        let mut server = launch.go(Signal::SIGTERM)?;
        server.until(|| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
        Ok(Self { server, socket })
    }

    /// The version, as the program says it.
    pub fn version(program: &Path) -> Result<String, Fault> {
        let line = finish(Command::new(program).arg("--version"))?;
        let version = line.split_whitespace().find_map(|word| word.strip_prefix("v="));
        Ok(version.unwrap_or("unknown").to_owned())
    }
}
