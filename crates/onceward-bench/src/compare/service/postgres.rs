//! Runs a private PostgreSQL.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};

use super::{ServerProcess, finish};
use crate::BoxError;

/// The account that runs PostgreSQL, which refuses to run as root.
const ACCOUNT: &str = "postgres";

/// Settings that differ from the defaults. All settings for durability are the defaults: fsync, synchronous_commit and full
/// page writes are on. Connections are for the callers and a few more.
const SETTINGS: [&str; 5] =
    ["shared_buffers=256MB", "max_connections=200", "max_wal_size=4GB", "listen_addresses=", "fsync=on"];

/// The files of a PostgreSQL, which can be started and stopped several times.
#[derive(Debug)]
pub struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    account: Option<&'static str>,
}

/// A running PostgreSQL.
#[derive(Debug)]
pub struct Postgres {
    /// Its main process; each connection is a child of it.
    pub server: ServerProcess,
    /// The folder of its socket.
    pub sockets: PathBuf,
}

impl Cluster {
    /// Creates an empty one in a folder.
    pub fn create(programs: &Path, folder: &Path) -> Result<Self, BoxError> {
        let account = geteuid().is_root().then_some(ACCOUNT);
        let cluster = Self { programs: programs.to_owned(), data: folder.join("postgres"), account };
        fs::create_dir_all(&cluster.data)?;
        give(&cluster.data, account)?;
        fs::set_permissions(&cluster.data, fs::Permissions::from_mode(0o700))?;
        let data = cluster.data.to_string_lossy().into_owned();
        let initdb = cluster.programs.join("initdb").to_string_lossy().into_owned();
        let arguments = ["-D", &data, "-U", ACCOUNT, "-A", "trust", "--locale=C", "-E", "UTF8", "--no-sync"];
        let mut command = match account {
            Some(account) => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", account, "--regid", account, "--init-groups", "--", &initdb]);
                command
            }
            None => Command::new(&initdb),
        };
        // The account may not have access to the working directory.
        finish(command.args(arguments).current_dir("/")).map_err(|fault| {
            format!(
                "{fault}\nThe account `{ACCOUNT}` must be able to enter {}: see --disk and --tmpfs",
                folder.display()
            )
        })?;
        Ok(cluster)
    }

    /// Starts it with its socket in a folder.
    pub fn start(&self, sockets: &Path) -> Result<Postgres, BoxError> {
        give(sockets, self.account)?;
        let log = sockets.join("postgres.log");
        let (data, directory) = (self.data.to_string_lossy(), format!("unix_socket_directories={}", sockets.display()));
        let settings = SETTINGS.into_iter().chain([directory.as_str()]).flat_map(|setting| ["-c", setting]);
        let program = self.programs.join("postgres");
        let mut launch =
            ServerProcess::start("postgres", &program, self.account, log)?.args(["-D", &data]).args(settings);
        launch.command.current_dir("/");
        // A fast shutdown: it closes connections and checkpoints the log, so that its files can be reused.
        let mut server = launch.go(Signal::SIGINT)?;
        let pid = self.data.join("postmaster.pid");
        server.until(|| {
            fs::read_to_string(&pid).is_ok_and(|text| text.lines().nth(7).is_some_and(|line| line.trim() == "ready"))
        })?;
        Ok(Postgres { server, sockets: sockets.to_owned() })
    }

    /// The version that the program reports.
    pub fn version(programs: &Path) -> Result<String, BoxError> {
        let line = finish(Command::new(programs.join("postgres")).arg("--version"))?;
        Ok(line.split_whitespace().find(|word| word.starts_with(char::is_numeric)).unwrap_or("unknown").to_owned())
    }
}

/// Makes the account the owner of a folder.
fn give(folder: &Path, account: Option<&str>) -> Result<(), BoxError> {
    let Some(account) = account else { return Ok(()) };
    let user = User::from_name(account)?.ok_or_else(|| format!("unknown account `{account}`"))?;
    Ok(chown(folder, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?)
}
