//! Many processes on one key: the command runs once.

use std::process::Child;

use crate::place::{Answer, Place, wait_until};

const PROCESSES: usize = 50;

/// Runs until it is told to go on, so that no race depends on how fast this machine is.
const HELD: &str = "echo ran >> runs; until [ -e go ]; do sleep 0.02; done; echo output";

fn start_all(place: &Place, flags: &[&str]) -> Vec<Child> {
    (0..PROCESSES).map(|_| place.start(flags, HELD)).collect()
}

#[test]
fn fifty_processes_on_one_key_run_it_once() {
    let place = Place::new();
    let mut running = start_all(&place, &["--key", "k"]);
    let mut answers = Vec::new();
    // All but the owner are told at once that it runs elsewhere; the owner ends only afterwards.
    while answers.len() < PROCESSES - 1 {
        let ended = running.iter_mut().position(|child| child.try_wait().unwrap().is_some());
        match ended {
            Some(position) => answers.push(Answer::of(running.swap_remove(position).wait_with_output().unwrap())),
            None => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
    for answer in &answers {
        answer.says(75, &["op#", "is running elsewhere (attempt 1); nothing was run", "--wait"]);
    }
    place.write("go", "");
    let owner = Answer::of(running.remove(0).wait_with_output().unwrap());
    assert_eq!((owner.code, owner.out()), (0, "output\n"), "{owner:?}");
    assert_eq!(place.read("runs"), "ran\n");
}

#[test]
fn fifty_processes_that_wait_all_get_the_same_output() {
    let place = Place::new();
    let running = start_all(&place, &["--key", "k", "--wait", "50s"]);
    place.wait_for_file("runs");
    place.write("go", "");
    let answers: Vec<_> = running.into_iter().map(|child| Answer::of(child.wait_with_output().unwrap())).collect();
    for answer in &answers {
        assert_eq!((answer.code, answer.out()), (0, "output\n"), "{answer:?}");
    }
    let repeats = answers.iter().filter(|answer| answer.stderr.contains("repeat of a finished run")).count();
    assert_eq!(repeats, PROCESSES - 1);
    assert_eq!(place.read("runs"), "ran\n");
}

#[test]
fn the_code_for_a_run_elsewhere_can_be_chosen_and_its_message_dropped() {
    let place = Place::new();
    let owner = place.start(&["--key", "k"], HELD);
    place.wait_for_file("runs");
    place.run(&["--key", "k", "--conflict-exit-code", "0"], HELD).says(0, &["is running elsewhere"]);
    let quiet = place.run(&["--key", "k", "--quiet"], HELD);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (75, ""));
    place.run(&["--key", "k", "--wait", "50ms"], HELD).says(75, &["was waited for during 50ms"]);
    place.write("go", "");
    Answer::of(owner.wait_with_output().unwrap()).says(0, &[]);
}

#[test]
#[cfg(target_os = "linux")]
fn who_waited_for_a_run_that_failed_is_told_and_runs_nothing() {
    let place = Place::new();
    let script = "echo ran >> runs; until [ -e go ]; do sleep 0.02; done; exit 9";
    let owner = place.start(&["--key", "k"], script);
    place.wait_for_file("runs");
    // The last two are about a run elsewhere that goes on, and hide no failure.
    let flags = ["--key", "k", "--wait", "50s", "--status-fd", "1", "--conflict-exit-code", "0", "--quiet"];
    let waiter = place.start(&flags, script);
    // The waiter must have asked before the owner ends. That it holds the ledger open can be seen, that it has asked
    // cannot; it asks next.
    let open = format!("/proc/{}/fd", waiter.id());
    wait_until(|| {
        let links = std::fs::read_dir(&open).into_iter().flatten().flatten();
        links.filter_map(|link| std::fs::read_link(link.path()).ok()).any(|file| file.ends_with("onceward.db-owners"))
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    place.write("go", "");
    Answer::of(owner.wait_with_output().unwrap()).says(9, &[]);
    let waiter = Answer::of(waiter.wait_with_output().unwrap());
    waiter.says(75, &["that was waited for failed", "exit code 9", "nothing was run here"]);
    assert!(waiter.out().contains(r#""decision":"owner_failed""#), "{waiter:?}");
    assert_eq!(place.read("runs"), "ran\n");
}
