//! Many processes on one key: the command runs once.

use std::process::Child;

use crate::test_folder::{CommandOutput, TestFolder, wait_until};

const PROCESSES: usize = 50;

/// Runs until the test lets it go on, so that no race depends on the speed of the machine.
const HELD: &str = "echo ran >> runs; until [ -e go ]; do sleep 0.02; done; echo output";

fn start_all(folder: &TestFolder, flags: &[&str]) -> Vec<Child> {
    (0..PROCESSES).map(|_| folder.start(flags, HELD)).collect()
}

#[test]
fn fifty_processes_on_one_key_run_it_once() {
    let folder = TestFolder::new();
    let mut running = start_all(&folder, &["--key", "k"]);
    let mut answers = Vec::new();
    // All but the owner are told at once that it is running elsewhere; the owner ends only afterwards.
    while answers.len() < PROCESSES - 1 {
        let ended = running.iter_mut().position(|child| child.try_wait().unwrap().is_some());
        match ended {
            Some(position) => {
                answers.push(CommandOutput::of(running.swap_remove(position).wait_with_output().unwrap()))
            }
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
    for answer in &answers {
        answer.says(75, &["op#", "is running elsewhere (attempt 1); nothing was run", "--wait"]);
    }
    folder.write("go", "");
    let owner = CommandOutput::of(running.remove(0).wait_with_output().unwrap());
    assert_eq!((owner.code, owner.out()), (0, "output\n"), "{owner:?}");
    assert_eq!(folder.read("runs"), "ran\n");
}

#[test]
fn fifty_processes_that_wait_all_get_the_same_output() {
    let folder = TestFolder::new();
    let running = start_all(&folder, &["--key", "k", "--wait", "50s"]);
    folder.wait_for_file("runs");
    folder.write("go", "");
    let answers: Vec<_> =
        running.into_iter().map(|child| CommandOutput::of(child.wait_with_output().unwrap())).collect();
    for answer in &answers {
        assert_eq!((answer.code, answer.out()), (0, "output\n"), "{answer:?}");
    }
    let repeats = answers.iter().filter(|answer| answer.stderr.contains("replay of a run")).count();
    assert_eq!(repeats, PROCESSES - 1);
    assert_eq!(folder.read("runs"), "ran\n");
}

#[test]
fn the_exit_code_for_a_run_elsewhere_can_be_chosen_and_its_message_dropped() {
    let folder = TestFolder::new();
    let owner = folder.start(&["--key", "k"], HELD);
    folder.wait_for_file("runs");
    folder.run(&["--key", "k", "--conflict-exit-code", "0"], HELD).says(0, &["is running elsewhere"]);
    let quiet = folder.run(&["--key", "k", "--quiet"], HELD);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (75, ""));
    folder.run(&["--key", "k", "--wait", "50ms"], HELD).says(75, &["still running after a wait of 50ms"]);
    folder.write("go", "");
    CommandOutput::of(owner.wait_with_output().unwrap()).says(0, &[]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_caller_that_waited_for_a_failed_run_is_told_and_runs_nothing() {
    let folder = TestFolder::new();
    let script = "echo ran >> runs; until [ -e go ]; do sleep 0.02; done; exit 9";
    let owner = folder.start(&["--key", "k"], script);
    folder.wait_for_file("runs");
    // The last two flags are about a run elsewhere that goes on, and hide no failure.
    let flags = ["--key", "k", "--wait", "50s", "--status-fd", "1", "--conflict-exit-code", "0", "--quiet"];
    let waiter = folder.start(&flags, script);
    // The waiter must have begun before the owner ends. The test can see that it has opened the ledger, but not that it has
    // begun; that is its next step.
    let open = format!("/proc/{}/fd", waiter.id());
    wait_until(|| {
        let links = std::fs::read_dir(&open).into_iter().flatten().flatten();
        links.filter_map(|link| std::fs::read_link(link.path()).ok()).any(|file| file.ends_with("onceward.db-owners"))
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    folder.write("go", "");
    CommandOutput::of(owner.wait_with_output().unwrap()).says(9, &[]);
    let waiter = CommandOutput::of(waiter.wait_with_output().unwrap());
    waiter.says(75, &["that this call waited for failed", "exit code 9", "nothing was run here"]);
    assert!(waiter.out().contains(r#""decision":"owner_failed""#), "{waiter:?}");
    assert_eq!(folder.read("runs"), "ran\n");
}
