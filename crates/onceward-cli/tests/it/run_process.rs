//! The process of the command: signals, the death of its parent, and pipes that stay open or close.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::test_folder::{CommandOutput, TestFolder, wait_until};

const K: [&str; 2] = ["--key", "k"];

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
}

/// Whether a process is gone, or waits to be reaped.
fn is_gone(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())) else { return true };
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'))
}

#[test]
fn signals_are_forwarded_and_the_command_decides() {
    for signal in ["TERM", "HUP", "USR1", "USR2", "INT", "QUIT"] {
        let folder = TestFolder::new();
        let script = format!("trap 'echo got {signal}; exit 5' {signal}; echo ready; while :; do sleep 0.02; done");
        let mut command = folder.run_command(&K, &script);
        // In its own process group, so that the terminal of the test run is not involved.
        let mut child = command.stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        send(&child, format!("SIG{signal}").parse().unwrap());
        assert_eq!(lines.next().unwrap().unwrap(), format!("got {signal}"));
        assert_eq!(child.wait().unwrap().code(), Some(5), "{signal}");
    }
}

#[test]
fn a_command_that_was_killed_by_a_signal_is_in_doubt() {
    let folder = TestFolder::new();
    let script = "echo $$ > pid; exec sleep 1000";
    let child = folder.start(&K, script);
    folder.wait_for_file("pid");
    send(&child, Signal::SIGTERM);
    let ended = CommandOutput::of(child.wait_with_output().unwrap());
    ended.says(143, &["exit code 143", "is now in doubt"]);
    folder.run(&K, script).says(76, &[]);
}

#[test]
fn death_by_any_signal_is_in_doubt_with_any_flags() {
    let folder = TestFolder::new();
    for signal in ["HUP", "INT", "QUIT", "ABRT", "USR1", "SEGV", "PIPE", "ALRM", "TERM", "KILL"] {
        let number = format!("SIG{signal}").parse::<Signal>().unwrap() as i32;
        let script = format!("echo ran >> runs; ulimit -c 0; kill -{signal} $$");
        for on_error in ["retry", "keep"] {
            let key = format!("{signal} {on_error}");
            let flags = ["--key", &key, "--on-error", on_error, "--doubt-exit", "7"];
            folder.run(&flags, &script).says(128 + number, &["killed by a signal", "is now in doubt"]);
            folder.run(&flags, &script).says(76, &[]);
        }
    }
    assert_eq!(folder.read("runs").lines().count(), 20);
}

#[test]
fn an_ignored_signal_stays_ignored_in_the_command() {
    let folder = TestFolder::new();
    let script = "trap '' HUP; exec \"$0\" run --operation op --key k -- sh -c 'kill -HUP $$; echo alive'";
    let mut shell = std::process::Command::new("sh");
    let output =
        shell.args(["-c", script, env!("CARGO_BIN_EXE_onceward")]).current_dir(folder.path("")).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "alive\n");
}

#[test]
#[cfg(target_os = "linux")]
fn a_parent_that_ignores_sigchld_changes_nothing() {
    let folder = TestFolder::new();
    let run = |key: &str, script: &str| {
        // Not `trap '' CHLD`: some shells undo that before they start a command.
        let mut env = std::process::Command::new("env");
        env.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_onceward"), "run", "--operation", "op", "--key", key]);
        CommandOutput::of(env.args(["--", "sh", "-c", script]).current_dir(folder.path("")).output().unwrap())
    };
    let done = run("done", "echo hi");
    assert_eq!((done.code, done.out(), done.stderr.as_str()), (0, "hi\n", ""));
    run("done", "echo hi").says(0, &["replay of a run"]);
    let failed = run("failed", "exit 3");
    assert_eq!((failed.code, failed.stderr.as_str()), (3, ""));
}

#[test]
#[cfg(target_os = "linux")]
fn the_command_dies_with_its_parent_and_the_repeat_is_in_doubt_at_once() {
    let folder = TestFolder::new();
    let script = "echo $$ > pid; echo started; exec sleep 1000";
    let mut child = folder.start(&K, script);
    let pid = folder.wait_for_file("pid");
    assert!(!is_gone(&pid));
    send(&child, Signal::SIGKILL);
    child.wait().unwrap();
    wait_until(|| is_gone(&pid));
    // The lease has minutes to go: the lock of the dead owner shows that it is gone.
    let asked = Instant::now();
    let doubt = folder.run(&K, script);
    doubt.says(76, &["is in doubt since 2", "onceward resolve --operation op --key k --happened"]);
    assert!(asked.elapsed() < Duration::from_secs(30));
    let said = folder.run(&["--key", "k", "--wait", "1h"], script);
    said.says(76, &[]);
    let resolve =
        ["resolve", "--operation", "op", "--key", "k", "--happened", "--stdout", "it did", "--exit-code", "3"];
    let settled = folder.onceward(&resolve);
    assert_eq!((settled.code, settled.out().contains("was in_doubt and is now done")), (0, true), "{settled:?}");
    let repeat = folder.run(&K, script);
    repeat.says(3, &["replay of a run"]);
    assert_eq!(repeat.out(), "it did\n");
}

#[test]
#[cfg(target_os = "linux")]
fn the_command_counts_as_running_while_a_process_that_it_started_lives() {
    let folder = TestFolder::new();
    let script = "sh -c 'echo $$ > pid; until [ -e go ]; do sleep 0.02; done; echo charged >> charges'; true";
    let flags = ["--key", "k", "--in-doubt", "retry"];
    let mut child = folder.start(&flags, script);
    let pid = folder.wait_for_file("pid");
    send(&child, Signal::SIGKILL);
    child.wait().unwrap();
    assert!(!is_gone(&pid), "only the command itself is killed with its parent");
    // Even if the policy allows a retry, it does not run next to the rest of the first attempt.
    folder.run(&flags, script).says(75, &["is running"]);
    assert_eq!(folder.read("charges"), "");
    folder.write("go", "");
    wait_until(|| is_gone(&pid));
    folder.run(&flags, script).says(0, &[]);
    assert_eq!(folder.read("charges").lines().count(), 2, "retried one after the other, as the policy says");
}

#[test]
fn work_that_did_not_happen_runs_again() {
    let folder = TestFolder::new();
    let script = "[ -e second ] || { touch second; exit 137; }; echo done";
    folder.run(&K, script).says(137, &[]);
    folder.run(&K, script).says(76, &[]);
    folder.onceward(&["resolve", "--operation", "op", "--key", "k", "--did-not-happen"]).says(0, &[]);
    let again = folder.run(&K, script);
    again.says(0, &[]);
    assert_eq!((again.out(), again.stderr.as_str()), ("done\n", ""));
}

#[test]
fn a_background_process_is_not_waited_for() {
    let folder = TestFolder::new();
    let started = Instant::now();
    let answer = folder.run(&K, "sleep 600 & echo $! > background; echo done");
    answer.says(0, &[]);
    assert_eq!(answer.out(), "done\n");
    assert!(started.elapsed() < Duration::from_secs(60));
    let pid = folder.read("background");
    assert!(!is_gone(&pid));
    kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
}

#[test]
fn a_reader_that_disappears_does_not_end_the_run() {
    let folder = TestFolder::new();
    let script = "head -c 300000 /dev/zero; echo end; touch finished";
    let mut child = folder.start(&K, script);
    let mut some = [0; 10];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut some).unwrap();
    drop(stdout);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(folder.path("finished").exists());
    let repeat = folder.run(&K, script);
    assert_eq!((repeat.code, repeat.stdout.len()), (0, 300_004));
}

#[test]
fn a_slow_reader_gets_the_whole_output() {
    let folder = TestFolder::new();
    let mut child = folder.start(&K, "head -c 300000 /dev/zero");
    let mut stdout = child.stdout.take().unwrap();
    // Longer than the limit for pipes that stay open.
    std::thread::sleep(Duration::from_millis(2500));
    let mut all = Vec::new();
    stdout.read_to_end(&mut all).unwrap();
    assert_eq!((child.wait().unwrap().code(), all.len()), (Some(0), 300_000));
}

#[test]
fn a_value_written_by_the_library_is_printed_unchanged() {
    let folder = TestFolder::new();
    folder.run(&K, "exit 137").says(137, &[]);
    let value = ["resolve", "--operation", "op", "--key", "k", "--happened", "--value", r#"{"receipt":17}"#];
    folder.onceward(&value).says(0, &[]);
    let repeat = folder.run(&K, "exit 137");
    assert_eq!((repeat.code, repeat.out()), (0, r#"{"receipt":17}"#));
}

/// Stops a run until another owner has taken over, and lets it continue. Returns how it ended, the process of its command,
/// and the new owner. The script adds its process to `pids`.
fn taken_over(folder: &TestFolder, flags: &[&str], script: &str) -> (CommandOutput, String, Child) {
    let stalled = folder.start(flags, script);
    let pid = folder.wait_for_file("pids");
    // Not in the middle of a write, which would block the file for all processes: the sweep after the claim is over by now,
    // and the first renewal comes after a second.
    std::thread::sleep(Duration::from_millis(400));
    // It stops renewing, its lease lapses, and the policy lets another owner take over.
    send(&stalled, Signal::SIGSTOP);
    let heir = folder.start(flags, script);
    wait_until(|| folder.read("pids").lines().count() == 2);
    send(&stalled, Signal::SIGCONT);
    (CommandOutput::of(stalled.wait_with_output().unwrap()), pid, heir)
}

#[test]
fn an_owner_that_lost_its_claim_stops_its_command() {
    let folder = TestFolder::new();
    let flags = ["--key", "k", "--in-doubt", "retry", "--max-runtime", "1s", "--wait", "50s"];
    let script = "echo $$ >> pids; until [ -e go ]; do sleep 0.02; done; echo done";
    let (stalled, pid, heir) = taken_over(&folder, &flags, script);
    stalled.says(75, &["the claim on op#", "was lost while the command ran, and the command was stopped"]);
    assert!(is_gone(&pid));
    folder.write("go", "");
    let heir = CommandOutput::of(heir.wait_with_output().unwrap());
    assert_eq!((heir.code, heir.out()), (0, "done\n"), "{heir:?}");
    assert_eq!(folder.run(&flags, script).out(), "done\n");
}

#[test]
fn an_outcome_after_the_claim_was_lost_is_reported_and_kept_in_the_trail() {
    let folder = TestFolder::new();
    let flags = ["--key", "k", "--in-doubt", "retry", "--max-runtime", "1s", "--wait", "50s"];
    let script =
        "trap 'echo receipt 17; exit 0' TERM; echo $$ >> pids; until [ -e go ]; do sleep 0.02; done; echo done";
    let (stalled, _, heir) = taken_over(&folder, &flags, script);
    stalled.says(0, &["ended with exit code 0, but in the meantime another owner took op#"]);
    assert_eq!(stalled.out(), "receipt 17\n");
    folder.write("go", "");
    let heir = CommandOutput::of(heir.wait_with_output().unwrap());
    assert_eq!((heir.code, heir.out()), (0, "done\n"), "{heir:?}");
    let trail = folder.json(&["get", "--operation", "op", "--key", "k", "--json"]).to_string();
    assert!(trail.contains("stale_finish"), "{trail}");
}

#[test]
#[cfg(target_os = "linux")]
fn an_outcome_is_recorded_even_if_the_ledger_is_blocked_when_the_command_ends() {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;
    let folder = TestFolder::new();
    let script = "echo x >> runs; until [ -e go ]; do sleep 0.02; done; echo done";
    let owner = folder.start(&K, script);
    folder.wait_for_file("runs");
    std::thread::sleep(Duration::from_millis(400));
    // The byte that SQLite locks for its single writer.
    let index = std::fs::File::options().read(true).write(true).open(folder.path("onceward.db-shm")).unwrap();
    let lock = |kind: i32| {
        let (l_type, l_whence) = (i16::try_from(kind).unwrap(), i16::try_from(libc::SEEK_SET).unwrap());
        let lock = libc::flock { l_type, l_whence, l_start: 120, l_len: 1, l_pid: 0 };
        fcntl(&index, FcntlArg::F_SETLK(&lock)).unwrap();
    };
    lock(libc::F_WRLCK);
    folder.write("go", "");
    // Longer than the library tries before it reports that the outcome could not be recorded.
    std::thread::sleep(Duration::from_secs(12));
    lock(libc::F_UNLCK);
    let owner = CommandOutput::of(owner.wait_with_output().unwrap());
    assert_eq!((owner.code, owner.out()), (0, "done\n"));
    assert!(!owner.stderr.contains("doubt"), "{}", owner.stderr);
    folder.run(&K, script).says(0, &["replay of a run"]);
    assert_eq!(folder.read("runs"), "x\n");
}

#[test]
#[cfg(target_os = "linux")]
fn output_that_cannot_be_written_is_reported_and_its_replay_exits_with_74() {
    let folder = TestFolder::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let script = "head -c 300000 /dev/zero";
    let first = CommandOutput::of(folder.run_command(&K, script).stdout(full()).output().unwrap());
    first.says(0, &["cannot forward the output: No space left on device"]);
    assert_eq!(first.stderr.matches("No space").count(), 1, "{}", first.stderr);
    let repeat = CommandOutput::of(folder.run_command(&K, script).stdout(full()).output().unwrap());
    repeat.says(74, &["No space left on device", "not run again"]);
    let repeat = folder.run(&K, script);
    assert_eq!((repeat.code, repeat.stdout.len()), (0, 300_000));
}

#[test]
fn a_non_blocking_pipe_gets_the_whole_output() {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    let folder = TestFolder::new();
    for _ in ["the first run", "a repeat"] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let mut command = folder.run_command(&K, "head -c 300000 /dev/zero");
        let mut child = command.stdout(writer).stderr(Stdio::null()).spawn().unwrap();
        drop(command);
        std::thread::sleep(Duration::from_millis(500));
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!((child.wait().unwrap().code(), all.len()), (Some(0), 300_000));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_after_the_command_has_ended_settles_at_once_without_a_reader() {
    // More than one pipe holds, so that we wait for the reader; less than two, so that the command does not.
    let script = "head -c 120000 /dev/zero >&$FD; echo x > finished; exit $CODE";
    for (fd, code) in [("1", 0), ("2", 0), ("2", 137)] {
        let folder = TestFolder::new();
        let mut command = folder.run_command(&K, script);
        command.env("FD", fd).env("CODE", code.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().unwrap();
        folder.wait_for_file("finished");
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait().unwrap().is_none(), "it waits for its reader");
        send(&child, Signal::SIGTERM);
        wait_until(|| is_gone(&child.id().to_string()));
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let repeat = folder.run(&["--key", "k", "--quiet"], script);
        match code {
            0 => assert_eq!((repeat.code, repeat.stdout.len() + repeat.stderr.len()), (0, 120_000)),
            _ => repeat.says(76, &[]),
        }
    }
}
