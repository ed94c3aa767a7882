//! The whole: everything is prepared, every system measured in every round on every ground, and the page written.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::Fault;
use crate::arguments::Arguments;
use crate::figures::Figures;
use crate::http::{self, Http};
use crate::machine::Machine;
use crate::peer::{self, Amount, Extra};
use crate::plan::{Ground, System, order};
use crate::report;
use crate::service::{Cluster, Fsync, Packages, Python, Redis};

/// One system, once, somewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// In which round, counted from 0. Samples of one round lie close together in time, and may be compared.
    pub round: usize,
    /// Which.
    pub system: System,
    /// Where.
    pub ground: Ground,
    /// What all systems have.
    pub figures: Figures,
    /// What else it says of itself.
    pub extra: BTreeMap<String, f64>,
}

/// Everything that was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Results {
    /// Where.
    pub machine: Machine,
    /// How many callers.
    pub callers: usize,
    /// How long each was measured.
    pub seconds: f64,
    /// How often.
    pub rounds: usize,
    /// In the order in which they were taken.
    pub samples: Vec<Sample>,
    /// What `onceward bench store` says of a ledger with many records, on tmpfs.
    pub large: Option<BTreeMap<String, f64>>,
    /// What `onceward bench http` says, on tmpfs. Earlier runs did not ask.
    #[serde(default)]
    pub http: Option<Http>,
}

/// Measures, or takes an earlier run, and writes the page.
pub async fn run(arguments: &Arguments) -> Result<(), Fault> {
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

async fn measure(arguments: &Arguments) -> Result<Results, Fault> {
    let start = Instant::now();
    let bench = Bench::prepare(arguments)?;
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
        for ground in arguments.grounds() {
            for system in order(&systems, round) {
                let (figures, extra) = bench
                    .measure(system, ground)
                    .await
                    .map_err(|fault| format!("{}, {}: {fault}", system.label(), ground.label()))?;
                println!(
                    "{:>5.0} s  round {} of {}  {:5}  {:33} {:>9.0} pairs/s  {:>11.0} replays/s",
                    start.elapsed().as_secs_f64(),
                    round + 1,
                    arguments.rounds,
                    ground.label(),
                    system.label(),
                    figures.pairs_per_second,
                    figures.replays_per_second,
                );
                results.samples.push(Sample { round, system, ground, figures, extra });
                bench.keep(&results)?;
            }
        }
    }
    if arguments.large > 0 && systems.contains(&System::Onceward) && arguments.grounds().contains(&Ground::Tmpfs) {
        println!("{:>5.0} s  a ledger of {} records", start.elapsed().as_secs_f64(), arguments.large);
        let extra = Extra { preload: arguments.large, expire: arguments.expire };
        let (_, mut large) = bench.onceward(Ground::Tmpfs, extra).await?;
        large.insert("expire".to_owned(), arguments.expire as f64);
        results.large = Some(large);
        bench.keep(&results)?;
    }
    if arguments.wants_http() {
        println!("{:>5.0} s  the gateway, beside nginx and a bare service", start.elapsed().as_secs_f64());
        let folder = bench.tmpfs.folder.path();
        results.http = Some(http::measure(&bench.onceward, folder, arguments.callers, arguments.http_rounds).await?);
        bench.keep(&results)?;
    }
    println!("{:>5.0} s  done; every result is in {}", start.elapsed().as_secs_f64(), bench.json.display());
    Ok(results)
}

/// What is there before the first run. Folders go when it goes; servers only run while they are measured.
struct Bench {
    amount: Amount,
    onceward: PathBuf,
    packages: Packages,
    python: Option<Python>,
    tmpfs: Place,
    disk: Place,
    /// Sockets are kept apart from data, because their paths have to be short.
    sockets: TempDir,
    json: PathBuf,
}

/// A folder, and the PostgreSQL in it.
struct Place {
    folder: TempDir,
    cluster: Option<Cluster>,
}

impl Bench {
    fn prepare(arguments: &Arguments) -> Result<Self, Fault> {
        let systems = arguments.systems();
        let wants = |some: &[System]| systems.iter().any(|system| some.contains(system));
        let target = target()?;
        let work = target.join("onceward-bench");
        fs::create_dir_all(&work)?;
        let onceward = arguments.onceward.clone().unwrap_or(env::current_exe()?.with_file_name("onceward"));
        if wants(&[System::Onceward]) && !onceward.is_file() {
            let hint = "cargo build --release -p onceward-server";
            return Err(format!("{} is not there: run `{hint}`, or name it with --onceward", onceward.display()).into());
        }
        let redis =
            wants(&[System::RedisAlways, System::RedisConnections, System::RedisEverysec, System::IdemkitRedis]);
        let postgres = wants(&[System::Postgres, System::IdemkitPostgres]);
        let packages = Packages::find(redis, postgres, arguments.wants_http())?;
        let python =
            wants(&[System::IdemkitRedis, System::IdemkitPostgres]).then(|| Python::prepare(&work)).transpose()?;
        let programs = packages.postgres.as_deref().filter(|_| postgres);
        println!("preparing the folders");
        let place = |below: &Path| -> Result<Place, Fault> {
            let folder = tempfile::Builder::new().prefix("onceward-bench-").tempdir_in(below)?;
            open(folder.path())?;
            let cluster = programs.map(|programs| Cluster::create(programs, folder.path())).transpose()?;
            Ok(Place { folder, cluster })
        };
        let sockets = tempfile::Builder::new().prefix("onceward-bench-").tempdir()?;
        Ok(Self {
            amount: Amount { callers: arguments.callers, long: Duration::from_secs_f64(arguments.seconds) },
            onceward,
            tmpfs: place(&arguments.tmpfs)?,
            disk: place(arguments.disk.as_deref().unwrap_or(&work))?,
            packages,
            python,
            sockets,
            json: arguments.json.clone().unwrap_or(work.join("results.json")),
        })
    }

    fn machine(&self) -> Result<Machine, Fault> {
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

    fn place(&self, ground: Ground) -> &Place {
        match ground {
            Ground::Tmpfs => &self.tmpfs,
            Ground::Disk => &self.disk,
        }
    }

    /// One run. A server is started for it, and gone after it.
    async fn measure(&self, system: System, ground: Ground) -> Result<peer::Result, Fault> {
        match system {
            System::Onceward => self.onceward(ground, Extra::default()).await,
            System::RedisAlways => peer::redis(&self.redis(ground, Fsync::Always)?, 1, self.amount).await,
            System::RedisConnections => {
                peer::redis(&self.redis(ground, Fsync::Always)?, self.amount.callers, self.amount).await
            }
            System::RedisEverysec => peer::redis(&self.redis(ground, Fsync::Everysec)?, 1, self.amount).await,
            System::Postgres => peer::postgres(&self.postgres(ground)?, self.amount).await,
            System::IdemkitRedis => {
                let redis = self.redis(ground, Fsync::Always)?;
                let url = format!("unix://{}", redis.socket.display());
                peer::idemkit(self.python()?, "redis", &url, &redis.server, self.amount).await
            }
            System::IdemkitPostgres => {
                let postgres = self.postgres(ground)?;
                let url = format!("postgresql://postgres@/postgres?host={}", postgres.sockets.display());
                peer::idemkit(self.python()?, "postgres", &url, &postgres.server, self.amount).await
            }
        }
    }

    async fn onceward(&self, ground: Ground, extra: Extra) -> Result<peer::Result, Fault> {
        peer::onceward(&self.onceward, self.place(ground).folder.path(), self.amount, extra).await
    }

    fn redis(&self, ground: Ground, fsync: Fsync) -> Result<Redis, Fault> {
        let program = self.packages.redis.as_deref().ok_or("there is no redis-server")?;
        let data = self.place(ground).folder.path().join("redis");
        match fs::remove_dir_all(&data) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir(&data)?,
        }
        Redis::start(program, &data, self.sockets.path(), fsync)
    }

    fn postgres(&self, ground: Ground) -> Result<crate::service::Postgres, Fault> {
        self.place(ground).cluster.as_ref().ok_or("there is no PostgreSQL")?.start(self.sockets.path())
    }

    fn python(&self) -> Result<&Python, Fault> {
        Ok(self.python.as_ref().ok_or("there is no Python")?)
    }

    /// After every run, so that a later failure does not cost what is known.
    fn keep(&self, results: &Results) -> Result<(), Fault> {
        Ok(fs::write(&self.json, serde_json::to_string_pretty(results)?)?)
    }
}

/// The target folder: this program lies in one of its profiles.
fn target() -> Result<PathBuf, Fault> {
    let program = env::current_exe()?;
    Ok(program.ancestors().nth(2).ok_or("this program lies nowhere")?.to_owned())
}

/// Lets other accounts enter a folder; PostgreSQL has one of its own.
fn open(folder: &Path) -> Result<(), Fault> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?)
}
