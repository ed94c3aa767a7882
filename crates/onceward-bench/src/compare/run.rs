//! The whole run: prepares everything, measures every system in every round on every storage, and writes the pages.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::BoxError;
use crate::arguments::Arguments;
use crate::figures::Figures;
use crate::http::{self, Http};
use crate::machine::Machine;
use crate::peer::{self, LargeLedger, RunSize};
use crate::plan::{Storage, System, order};
use crate::report;
use crate::service::{Cluster, Fsync, Packages, Python, Redis};

/// One system in one round on one storage.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The round, counted from 0. Samples of one round lie close together in time, so they can be compared.
    pub round: usize,
    /// The system.
    pub system: System,
    /// The storage.
    #[serde(rename = "ground")]
    pub storage: Storage,
    /// The figures that all systems have.
    pub figures: Figures,
    /// Additional figures.
    pub extra: BTreeMap<String, f64>,
}

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// The machine.
    pub machine: Machine,
    /// Number of callers.
    pub callers: usize,
    /// How long each system was measured per round.
    pub seconds: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// In chronological order.
    pub samples: Vec<Sample>,
    /// The output of `onceward bench store` for a ledger with many records, on tmpfs.
    pub large: Option<BTreeMap<String, f64>>,
    /// The output of `onceward bench http`, on tmpfs. Missing in results of older versions.
    #[serde(default)]
    pub http: Option<Http>,
}

/// Measures, or reads the results of an earlier run, and writes the pages.
pub async fn run(arguments: &Arguments) -> Result<(), BoxError> {
    let results = match &arguments.from {
        Some(file) => serde_json::from_str(&fs::read_to_string(file)?)?,
        None => measure(arguments).await?,
    };
    println!("\n{}", report::figures(&results));
    if let Some(page) = &arguments.out {
        report::write(page, &results)?;
        println!("written: {}", page.display());
    }
    Ok(())
}

async fn measure(arguments: &Arguments) -> Result<Results, BoxError> {
    let start = Instant::now();
    let bench = BenchEnvironment::prepare(arguments)?;
    let systems = arguments.systems();
    let mut results = Results {
        machine: bench.machine()?,
        callers: arguments.callers,
        seconds: arguments.seconds,
        rounds: arguments.rounds,
        samples: Vec::new(),
        large: None,
        http: None,
    };
    for round in 0..arguments.rounds {
        for storage in arguments.storage() {
            for system in order(&systems, round) {
                let (figures, extra) = bench
                    .measure(system, storage)
                    .await
                    .map_err(|fault| format!("{}, {}: {fault}", system.label(), storage.label()))?;
                println!(
                    "{:>5.0} s  round {} of {}  {:5}  {:33} {:>9.0} pairs/s  {:>11.0} replays/s",
                    start.elapsed().as_secs_f64(),
                    round + 1,
                    arguments.rounds,
                    storage.label(),
                    system.label(),
                    figures.pairs_per_second,
                    figures.replays_per_second,
                );
                results.samples.push(Sample { round, system, storage, figures, extra });
                bench.keep(&results)?;
            }
        }
    }
    if arguments.large > 0 && systems.contains(&System::Onceward) && arguments.storage().contains(&Storage::Tmpfs) {
        println!("{:>5.0} s  a ledger with {} records", start.elapsed().as_secs_f64(), arguments.large);
        let extra = LargeLedger { preload: arguments.large, expire: arguments.expire };
        let (_, mut large) = bench.onceward(Storage::Tmpfs, extra).await?;
        large.insert("expire".to_owned(), arguments.expire as f64);
        results.large = Some(large);
        bench.keep(&results)?;
    }
    if arguments.wants_http() {
        println!("{:>5.0} s  the gateway, nginx and a bare service", start.elapsed().as_secs_f64());
        let folder = bench.tmpfs.folder.path();
        results.http = Some(http::measure(&bench.onceward, folder, arguments.callers, arguments.http_rounds).await?);
        bench.keep(&results)?;
    }
    println!("{:>5.0} s  done; all results are in {}", start.elapsed().as_secs_f64(), bench.json.display());
    Ok(results)
}

/// The environment of all runs. Folders are removed on drop; servers run only while they are measured.
struct BenchEnvironment {
    size: RunSize,
    onceward: PathBuf,
    packages: Packages,
    python: Option<Python>,
    tmpfs: StorageFolder,
    disk: StorageFolder,
    /// Separate from the data, because socket paths must be short.
    sockets: TempDir,
    json: PathBuf,
}

/// A folder on one storage, and the PostgreSQL in it.
struct StorageFolder {
    folder: TempDir,
    cluster: Option<Cluster>,
}

impl BenchEnvironment {
    fn prepare(arguments: &Arguments) -> Result<Self, BoxError> {
        let systems = arguments.systems();
        let wants = |some: &[System]| systems.iter().any(|system| some.contains(system));
        let target = target()?;
        let work = target.join("onceward-bench");
        fs::create_dir_all(&work)?;
        let onceward = arguments.onceward.clone().unwrap_or(env::current_exe()?.with_file_name("onceward"));
        if wants(&[System::Onceward]) && !onceward.is_file() {
            let hint = "cargo build --release -p onceward-cli";
            return Err(
                format!("{} not found: run `{hint}`, or name the binary with --onceward", onceward.display()).into()
            );
        }
        let redis =
            wants(&[System::RedisAlways, System::RedisConnections, System::RedisEverysec, System::IdemkitRedis]);
        let postgres = wants(&[System::Postgres, System::IdemkitPostgres]);
        let packages = Packages::find(redis, postgres, arguments.wants_http())?;
        let python =
            wants(&[System::IdemkitRedis, System::IdemkitPostgres]).then(|| Python::prepare(&work)).transpose()?;
        let programs = packages.postgres.as_deref().filter(|_| postgres);
        println!("preparing the folders");
        let create = |below: &Path| -> Result<StorageFolder, BoxError> {
            let folder = tempfile::Builder::new().prefix("onceward-bench-").tempdir_in(below)?;
            open(folder.path())?;
            let cluster = programs.map(|programs| Cluster::create(programs, folder.path())).transpose()?;
            Ok(StorageFolder { folder, cluster })
        };
        let sockets = tempfile::Builder::new().prefix("onceward-bench-").tempdir()?;
        Ok(Self {
            size: RunSize { callers: arguments.callers, long: Duration::from_secs_f64(arguments.seconds) },
            onceward,
            tmpfs: create(&arguments.tmpfs)?,
            disk: create(arguments.disk.as_deref().unwrap_or(&work))?,
            packages,
            python,
            sockets,
            json: arguments.json.clone().unwrap_or(work.join("results.json")),
        })
    }

    fn machine(&self) -> Result<Machine, BoxError> {
        let mut versions = vec![("Onceward".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
        if let Some(program) = &self.packages.redis {
            versions.push(("Redis".to_owned(), Redis::version(program)?));
        }
        if let Some(programs) = &self.packages.postgres {
            versions.push(("PostgreSQL".to_owned(), Cluster::version(programs)?));
        }
        if let Some(python) = &self.python {
            versions.extend(python.versions()?);
        }
        Ok(Machine::describe(self.disk.folder.path(), versions))
    }

    fn storage_folder(&self, storage: Storage) -> &StorageFolder {
        match storage {
            Storage::Tmpfs => &self.tmpfs,
            Storage::Disk => &self.disk,
        }
    }

    /// One run, with a server that is started for it and stopped after it.
    async fn measure(&self, system: System, storage: Storage) -> Result<peer::SystemResult, BoxError> {
        match system {
            System::Onceward => self.onceward(storage, LargeLedger::default()).await,
            System::RedisAlways => peer::redis(&self.redis(storage, Fsync::Always)?, 1, self.size).await,
            System::RedisConnections => {
                peer::redis(&self.redis(storage, Fsync::Always)?, self.size.callers, self.size).await
            }
            System::RedisEverysec => peer::redis(&self.redis(storage, Fsync::Everysec)?, 1, self.size).await,
            System::Postgres => peer::postgres(&self.postgres(storage)?, self.size).await,
            System::IdemkitRedis => {
                let redis = self.redis(storage, Fsync::Always)?;
                let url = format!("unix://{}", redis.socket.display());
                peer::idemkit(self.python()?, "redis", &url, &redis.server, self.size).await
            }
            System::IdemkitPostgres => {
                let postgres = self.postgres(storage)?;
                let url = format!("postgresql://postgres@/postgres?host={}", postgres.sockets.display());
                peer::idemkit(self.python()?, "postgres", &url, &postgres.server, self.size).await
            }
        }
    }

    async fn onceward(&self, storage: Storage, extra: LargeLedger) -> Result<peer::SystemResult, BoxError> {
        peer::onceward(&self.onceward, self.storage_folder(storage).folder.path(), self.size, extra).await
    }

    fn redis(&self, storage: Storage, fsync: Fsync) -> Result<Redis, BoxError> {
        let program = self.packages.redis.as_deref().ok_or("redis-server is not available")?;
        let data = self.storage_folder(storage).folder.path().join("redis");
        match fs::remove_dir_all(&data) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir(&data)?,
        }
        Redis::start(program, &data, self.sockets.path(), fsync)
    }

    fn postgres(&self, storage: Storage) -> Result<crate::service::Postgres, BoxError> {
        self.storage_folder(storage).cluster.as_ref().ok_or("PostgreSQL is not available")?.start(self.sockets.path())
    }

    fn python(&self) -> Result<&Python, BoxError> {
        Ok(self.python.as_ref().ok_or("Python is not available")?)
    }

    /// Saves the results after every run, so that a later failure does not lose them.
    fn keep(&self, results: &Results) -> Result<(), BoxError> {
        Ok(fs::write(&self.json, serde_json::to_string_pretty(results)?)?)
    }
}

/// The target folder: this program is in a subfolder of it.
fn target() -> Result<PathBuf, BoxError> {
    let program = env::current_exe()?;
    Ok(program.ancestors().nth(2).ok_or("cannot find the target folder")?.to_owned())
}

/// Lets other accounts enter a folder: PostgreSQL runs under its own.
fn open(folder: &Path) -> Result<(), BoxError> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?)
}
