//! The required programs, from Debian packages.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::finish;
use crate::BoxError;

/// Debian's folder for the programs of PostgreSQL, with one subfolder per version.
const POSTGRES: &str = "/usr/lib/postgresql";

/// Debian's location of nginx, which is not in every PATH.
const NGINX: &str = "/usr/sbin/nginx";

/// The programs found.
#[derive(Debug)]
pub struct Packages {
    /// `redis-server`.
    pub redis: Option<PathBuf>,
    /// The folder with `postgres` and `initdb`.
    pub postgres: Option<PathBuf>,
    /// Whether nginx is installed; `onceward bench http` finds it by itself.
    pub nginx: bool,
}

impl Packages {
    /// Finds the required programs, and installs missing ones if possible.
    pub fn find(redis: bool, postgres: bool, nginx: bool) -> Result<Self, BoxError> {
        let found = Self::look();
        let missing: Vec<&str> = [
            (redis && found.redis.is_none()).then_some("redis-server"),
            (postgres && found.postgres.is_none()).then_some("postgresql"),
            (nginx && !found.nginx).then_some("nginx-light"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if missing.is_empty() {
            return Ok(found);
        }
        install(&missing)?;
        let found = Self::look();
        if redis && found.redis.is_none() || postgres && found.postgres.is_none() || nginx && !found.nginx {
            return Err(format!("installed {}, but their programs are still missing", missing.join(" ")).into());
        }
        Ok(found)
    }

    fn look() -> Self {
        let nginx = in_path("nginx").is_some() || Path::new(NGINX).is_file();
        Self { redis: in_path("redis-server"), postgres: newest(Path::new(POSTGRES)), nginx }
    }
}

fn install(packages: &[&str]) -> Result<(), BoxError> {
    let line = format!("apt-get install -y {}", packages.join(" "));
    if !nix::unistd::geteuid().is_root() {
        return Err(format!(
            "missing: {}. Run `sudo {line}`, or skip them with --skip (nginx: --http-rounds 0)",
            packages.join(", ")
        )
        .into());
    }
    println!("missing: {}. {line}", packages.join(", "));
    let apt =
        |arguments: &[&str]| finish(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(arguments));
    let wanted: Vec<&str> = ["install", "-y"].into_iter().chain(packages.iter().copied()).collect();
    // Package lists may be old or missing.
    apt(&wanted).or_else(|_| apt(&["update"]).and_then(|_| apt(&wanted)))?;
    Ok(())
}

fn in_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The programs of the newest version in a folder.
fn newest(below: &Path) -> Option<PathBuf> {
    let versions = fs::read_dir(below).ok()?.flatten().filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let folder = entry.path().join("bin");
        (folder.join("postgres").is_file() && folder.join("initdb").is_file()).then_some((version, folder))
    });
    versions.max().map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_complete_postgres_is_found() {
        let below = tempfile::tempdir().unwrap();
        assert_eq!(newest(below.path()), None);
        for (version, programs) in [("9", &["postgres", "initdb"][..]), ("15", &["postgres", "initdb"]), ("17", &[])] {
            let folder = below.path().join(version).join("bin");
            fs::create_dir_all(&folder).unwrap();
            for program in programs {
                fs::write(folder.join(program), "").unwrap();
            }
        }
        assert_eq!(newest(below.path()), Some(below.path().join("15/bin")));
    }
}
