//! Running processes and their parents.

/// All processes with their parents.
fn processes() -> Vec<(u32, u32)> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let mut behind = stat.rsplit_once(')')?.1.split_whitespace();
        let state = behind.next()?;
        let parent = behind.next()?.parse().ok()?;
        (state != "Z").then_some((pid, parent))
    })
    .collect()
}

/// All descendants of a process.
pub(crate) fn descendants(of: u32) -> Vec<u32> {
    let all = processes();
    let mut found = vec![of];
    let mut index = 0;
    while let Some(parent) = found.get(index).copied() {
        found.extend(all.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid));
        index += 1;
    }
    found.split_off(1)
}

pub(crate) fn is_running(pid: u32) -> bool {
    processes().iter().any(|(other, _)| *other == pid)
}
