//! nginx as a plain proxy, if it is installed: on its own port, with settings that favour it.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::bench_part::threads;
use super::super::process::Process;
use super::super::usage;
use onceward_runtime::exit::{self, Fault};

/// The message if it is not installed.
pub(super) const MISSING: &str = "skipping nginx, which is not installed: apt-get install nginx-light";

/// How long it may take to start listening.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// nginx cannot pick a free port itself, and another process may take the port before nginx listens on it.
const TRIES: usize = 5;

/// Debian's location of nginx, which is not in every PATH.
const EXTRA_PATH: &str = "/usr/sbin";

/// A running nginx.
#[derive(Debug)]
pub(super) struct Nginx {
    pub(super) address: SocketAddr,
    pub(super) version: String,
    process: Process,
    _folder: TempFolder,
}

impl Nginx {
    /// Starts nginx in front of a service. `None` if it is not installed.
    pub(super) async fn start(upstream: SocketAddr) -> Result<Option<Self>, Fault> {
        let Some(program) = find() else { return Ok(None) };
        let folder = TempFolder::make().map_err(|error| Fault::new(exit::STORE, format!("nginx: {error}")))?;
        let mut tried = 0;
        loop {
            tried += 1;
            match Self::try_start(&program, &folder, upstream).await {
                Ok((address, process)) => {
                    let version = version(&program);
                    return Ok(Some(Self { address, version, process, _folder: folder }));
                }
                Err(fault) if tried == TRIES => return Err(fault),
                Err(_) => {}
            }
        }
    }

    async fn try_start(
        program: &Path,
        folder: &TempFolder,
        upstream: SocketAddr,
    ) -> Result<(SocketAddr, Process), Fault> {
        let cannot = |error: std::io::Error| Fault::new(exit::STORE, format!("nginx: {error}"));
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = free.map_err(cannot)?;
        let file = folder.0.join("nginx.conf");
        fs::write(&file, settings(&folder.0, address, upstream)).map_err(cannot)?;
        let line = [program.as_os_str(), OsStr::new("-p"), folder.0.as_os_str(), OsStr::new("-c"), file.as_os_str()];
        let mut process = Process::start("nginx", &line)?;
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if !process.is_running() || started.elapsed() > START_TIMEOUT {
                return Err(process.ended().await);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok((address, process))
    }

    /// The worker processes. The master process does nothing meanwhile.
    pub(super) fn pids(&self) -> Vec<u32> {
        usage::children(self.process.pid())
    }
}

/// A proxy that keeps its connections alive on both sides, logs nothing and sets forwarding headers, as the gateway does.
fn settings(folder: &Path, listen: SocketAddr, upstream: SocketAddr) -> String {
    let (folder, workers) = (folder.display(), threads());
    // Debian's own list: every module creates a folder at start, even if it is not used.
    let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let places: String = places.iter().map(|name| format!("  {name}_temp_path \"{folder}/{name}\";\n")).collect();
    format!(
        "daemon off;\nworker_processes {workers};\npid \"{folder}/pid\";\nerror_log stderr error;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n{places}  access_log off;\n  keepalive_timeout 600s;\n  keepalive_requests 1000000000;\n\
         \x20 upstream service {{ server {upstream}; keepalive 1024; keepalive_requests 1000000000; }}\n\
         \x20 server {{\n    listen {listen};\n    location / {{\n      proxy_pass http://service;\n\
         \x20     proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n      proxy_set_header Host $host;\n\
         \x20     proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;\n\
         \x20     proxy_set_header X-Forwarded-Proto $scheme;\n    }}\n  }}\n}}\n"
    )
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from(EXTRA_PATH)]);
    folders.map(|folder| folder.join("nginx")).find(|file| file.is_file())
}

/// The version from `nginx version: nginx/1.22.1`, which it prints on stderr.
fn version(program: &Path) -> String {
    let said = Command::new(program).arg("-v").output().map(|output| output.stderr).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    said.rsplit('/').next().unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
}

/// A temporary folder, removed on drop.
#[derive(Debug)]
struct TempFolder(PathBuf);

impl TempFolder {
    fn make() -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("onceward-bench-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
