//! The processor time of a process and its children: PostgreSQL has one per connection.

use std::fs;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};

/// The processor time of these processes and of their direct children, including those that have ended.
pub fn used(pids: &[u32]) -> Duration {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stats = all.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, parse(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
    });
    let ours = stats.filter(|(pid, stat)| pids.contains(pid) || pids.contains(&stat.parent));
    // A child may be listed as well, and only its parent counts the children that it has reaped.
    let ticks: u64 = ours.map(|(_, stat)| stat.own + stat.reaped).sum();
    Duration::from_secs_f64(ticks as f64 / ticks_per_second())
}

/// The fields of `/proc/PID/stat` that are needed here, in ticks.
#[derive(Debug, PartialEq)]
struct Stat {
    parent: u32,
    own: u64,
    reaped: u64,
}

/// The name of a program may contain spaces and brackets, so fields are counted from its last bracket.
fn parse(line: &str) -> Option<Stat> {
    let fields: Vec<&str> = line.get(line.rfind(')')? + 1..)?.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        own: number(11)? + number(12)?,
        reaped: number(13)? + number(14)?,
    })
}

fn ticks_per_second() -> f64 {
    // Linux has reported 100 on every machine for decades.
    sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(100.0, |ticks| ticks as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_after_any_name() {
        let line = "17 (a b) c) S 5 17 17 0 -1 4194560 1 2 3 4 700 30 20 1 20 0 1 0 100 0 0";
        assert_eq!(parse(line), Some(Stat { parent: 5, own: 730, reaped: 21 }));
        assert_eq!(parse("17 (x"), None);
        assert_eq!(parse("17 (x) S 5"), None);
    }

    #[test]
    fn used_processor_time_is_reported() {
        let own = [std::process::id()];
        let before = used(&own);
        let mut sum = 0_u64;
        while used(&own) - before < Duration::from_millis(30) {
            sum = (0..1_000_000_u64).fold(sum, |sum, number| sum.wrapping_mul(31).wrapping_add(number));
        }
        assert_ne!(sum, 1);
    }
}
