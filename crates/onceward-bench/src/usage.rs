//! Processor time and memory of processes, as the system counts them.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

/// Processor time of all threads of this process, in user and kernel mode.
pub(super) fn processor() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let micros = |time: nix::sys::time::TimeVal| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        seconds * 1_000_000 + u64::try_from(time.tv_usec()).unwrap_or(0)
    };
    Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time()))
}

/// Processor time of all threads of other processes; `None` if the system does not report it.
///
/// The same sum as in `/proc/PID/stat`, which only has hundredths of a second.
#[cfg(target_os = "linux")]
pub(super) fn processor_of(pids: &[u32]) -> Option<Duration> {
    let one = |pid: &u32| {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(*pid).ok()?);
        let used = nix::time::clock_getcpuclockid(pid).ok()?.now().ok()?;
        Some(Duration::from(used))
    };
    pids.iter().map(one).sum()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn processor_of(_: &[u32]) -> Option<Duration> {
    None
}

/// The running child processes of a process.
pub(super) fn children(parent: u32) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // A name may contain spaces and brackets: the state and the parent follow its last bracket.
        let (_, behind) = stat.rsplit_once(')')?;
        (behind.split_whitespace().nth(1)?.parse() == Ok(parent)).then_some(pid)
    });
    ours.collect()
}

/// Resident memory of this process in bytes; `None` if the system does not report it.
pub(super) fn resident() -> Option<u64> {
    resident_of("self")
}

/// Resident memory of any process.
pub(super) fn resident_of(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
