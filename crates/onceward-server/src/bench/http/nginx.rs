//! nginx as a plain proxy, if it is installed: on a port of its own, with settings that favour it.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::part::threads;
use super::super::process::Process;
use super::super::usage;
use crate::exit::{self, Fault};

/// What is said when it is not there.
pub(super) const MISSING: &str = "nginx is not installed: apt-get install nginx-light; that row is left out";

/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// nginx cannot take any free port, and between finding one and listening on it somebody else may take it.
const TRIES: usize = 5;

/// Where Debian puts it, which is not on everybody's path.
const BESIDE_THE_PATH: &str = "/usr/sbin";

/// A running nginx.
#[derive(Debug)]
pub(super) struct Nginx {
    pub(super) address: SocketAddr,
    pub(super) version: String,
    process: Process,
    _folder: Folder,
}

impl Nginx {
    /// Starts one before a service. `None` if it is not installed.
    pub(super) async fn start(upstream: SocketAddr) -> Result<Option<Self>, Fault> {
        let Some(program) = find() else { return Ok(None) };
        let folder = Folder::make().map_err(|error| Fault::new(exit::STORE, format!("nginx: {error}")))?;
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

    async fn try_start(program: &Path, folder: &Folder, upstream: SocketAddr) -> Result<(SocketAddr, Process), Fault> {
        let cannot = |error: std::io::Error| Fault::new(exit::STORE, format!("nginx: {error}"));
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = free.map_err(cannot)?;
        let file = folder.0.join("nginx.conf");
        fs::write(&file, settings(&folder.0, address, upstream)).map_err(cannot)?;
        let line = [program.as_os_str(), OsStr::new("-p"), folder.0.as_os_str(), OsStr::new("-c"), file.as_os_str()];
        let mut process = Process::start("nginx", &line)?;
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if !process.is_running() || started.elapsed() > PATIENCE {
                return Err(process.ended().await);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok((address, process))
    }

    /// The processes that work. The one that watches over them does nothing.
    pub(super) fn pids(&self) -> Vec<u32> {
        usage::children(self.process.pid())
    }
}

/// A proxy that keeps its connections to both sides, logs nothing and says for whom it sends, as the gateway does.
fn settings(folder: &Path, listen: SocketAddr, upstream: SocketAddr) -> String {
    let (folder, workers) = (folder.display(), threads());
    // Debian's own list: every module wants a folder at its start, also one that is not used.
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
    let folders = std::env::split_paths(&path).chain([PathBuf::from(BESIDE_THE_PATH)]);
    folders.map(|folder| folder.join("nginx")).find(|file| file.is_file())
}

/// It says `nginx version: nginx/1.22.1`, on stderr.
fn version(program: &Path) -> String {
    let said = Command::new(program).arg("-v").output().map(|output| output.stderr).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    said.rsplit('/').next().unwrap_or_default().split_whitespace().next().unwrap_or_default().to_owned()
}

/// A folder of its own, which goes with it.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn make() -> std::io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("onceward-bench-{}", std::process::id()));
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
