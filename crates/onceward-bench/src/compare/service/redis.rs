//! Runs a private Redis.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use super::{ServerProcess, finish};
use crate::BoxError;

/// When to sync the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// Before every response.
    Always,
    /// Every second, regardless of responses.
    Everysec,
}

/// A running Redis.
#[derive(Debug)]
pub struct Redis {
    /// Its process.
    pub server: ServerProcess,
    /// Its socket.
    pub socket: PathBuf,
}

impl Redis {
    /// Starts an empty one with its data in one folder and its socket in another.
    ///
    /// Snapshots and rewrites of the log are off: both would fork in the middle of a run, and cost Redis time.
    pub fn start(program: &Path, data: &Path, sockets: &Path, fsync: Fsync) -> Result<Self, BoxError> {
        let socket = sockets.join("redis.sock");
        let (data, path) = (data.to_string_lossy(), socket.to_string_lossy());
        let fsync = match fsync {
            Fsync::Always => "always",
            Fsync::Everysec => "everysec",
        };
        let launch = ServerProcess::start("redis-server", program, None, sockets.join("redis.log"))?.args([
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
        // Its data is removed anyway, so nothing needs to be saved.
        let mut server = launch.go(Signal::SIGTERM)?;
        server.until(|| std::os::unix::net::UnixStream::connect(&socket).is_ok())?;
        Ok(Self { server, socket })
    }

    /// The version that the program reports.
    pub fn version(program: &Path) -> Result<String, BoxError> {
        let line = finish(Command::new(program).arg("--version"))?;
        let version = line.split_whitespace().find_map(|word| word.strip_prefix("v="));
        Ok(version.unwrap_or("unknown").to_owned())
    }
}
