//! Describes the machine, as far as the system reports it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The machine, on the day of the measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The day, in UTC.
    pub date: String,
    /// The model of the processor.
    pub processor: String,
    /// The number of processors.
    pub cores: usize,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// The kernel.
    pub kernel: String,
    /// The distribution.
    pub distribution: String,
    /// The file system and device of the folder on disk.
    pub disk: String,
    /// Programs and libraries with their versions.
    pub versions: Vec<(String, String)>,
}

impl Machine {
    /// Reads the description from the system.
    pub fn describe(disk: &Path, versions: Vec<(String, String)>) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let now = jiff::Timestamp::now().to_string();
        Self {
            date: now.chars().take_while(|character| *character != 'T').collect(),
            processor: field(&read("/proc/cpuinfo"), "model name", ':').unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: memory(&read("/proc/meminfo")).unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            distribution: field(&read("/etc/os-release"), "PRETTY_NAME", '=')
                .unwrap_or("unknown")
                .trim_matches('"')
                .to_owned(),
            disk: mount(&read("/proc/self/mountinfo"), &disk.canonicalize().unwrap_or(disk.to_owned()))
                .unwrap_or("unknown".to_owned()),
            versions,
        }
    }
}

/// The value of the first line with this name.
fn field<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(separator)?;
        (found.trim() == name).then_some(value.trim())
    })
}

fn memory(text: &str) -> Option<f64> {
    let kibibytes: f64 = field(text, "MemTotal", ':')?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes / 1024.0 / 1024.0)
}

/// The file system and the device of the mount that contains a path: the deepest one.
fn mount(text: &str, path: &Path) -> Option<String> {
    let mounts = text.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = PathBuf::from(before.split(' ').nth(4)?);
        let mut kind = after.split(' ');
        let (system, device) = (kind.next()?, kind.next()?);
        path.starts_with(&point).then(|| (point.components().count(), format!("{system} on {device}")))
    });
    // Of two mounts at the same point, the later one is visible.
    mounts.max_by_key(|(depth, _)| *depth).map(|(_, found)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        assert_eq!(field("a : 1\nmodel name\t: AMD EPYC\nmodel name\t: other", "model name", ':'), Some("AMD EPYC"));
        assert_eq!(field("a : 1", "model", ':'), None);
        assert!((memory("MemTotal:       2097152 kB").unwrap() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_path_lies_in_its_deepest_mount() {
        let text = "1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:5 / /dev/shm rw shared:1 - tmpfs tmpfs rw\n\
                    3 1 8:1 / /data rw - xfs /dev/sdb1 rw";
        assert_eq!(mount(text, Path::new("/data/a/b")).as_deref(), Some("xfs on /dev/sdb1"));
        assert_eq!(mount(text, Path::new("/database")).as_deref(), Some("ext4 on /dev/vda"));
        assert_eq!(mount(text, Path::new("/dev/shm")).as_deref(), Some("tmpfs on tmpfs"));
        assert_eq!(mount("", Path::new("/")), None);
    }
}
