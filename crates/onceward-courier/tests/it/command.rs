//! The sink `command` with real processes.

use std::path::Path;
use std::time::Instant;

use onceward::outcome::Body;
use onceward_runtime::process::output_frame::{Stream, decode};

use super::*;

/// Long enough for a busy machine; no test waits for it.
const PATIENCE: Duration = Duration::from_secs(20);

fn shell(script: &str, more: &str) -> Arc<dyn Sink> {
    sink(&format!("type = \"command\"\ncommand = [\"sh\", \"-c\", {script:?}]\n{more}"))
}

async fn run(script: &str, more: &str) -> SinkResult {
    shell(script, more).deliver(&parcel("{\"amount\": 1.10}")).await
}

fn output(outcome: &Outcome, stream: Stream) -> String {
    let Body::Kept(body) = &outcome.body else { panic!("{outcome:?}") };
    let segments = decode(body).unwrap().into_iter().filter(|segment| segment.stream == stream);
    segments.map(|segment| String::from_utf8(segment.bytes.to_vec()).unwrap()).collect()
}

fn is_running(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    status.is_ok_and(|status| !status.contains(") Z "))
}

async fn written(path: &Path) -> String {
    let started = Instant::now();
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text,
            _ if started.elapsed() > PATIENCE => panic!("{} was not written", path.display()),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn ended(pid: &str) {
    let started = Instant::now();
    while is_running(pid) {
        assert!(started.elapsed() < PATIENCE, "{pid} is still running");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_program_gets_the_payload_and_the_entry() {
    let script = "cat; echo \"$ONCEWARD_KEY $ONCEWARD_ATTEMPT $ONCEWARD_OPERATION $ONCEWARD_TENANT $EXTRA\" >&2";
    let kept = outcome(run(script, "env = { EXTRA = \"more\" }").await);
    assert_eq!(output(&kept, Stream::Stdout), "{\"amount\": 1.10}");
    assert_eq!(output(&kept, Stream::Stderr), "k1 2 charge acme more\n");
    assert_eq!(kept.status, 0);
}

#[tokio::test]
async fn every_exit_code_ends_the_attempt_as_its_row_says() {
    for (script, more, expected) in [
        ("exit 0", "", End::Done),
        ("exit 75", "", End::Again(None)),
        ("exit 64", "", End::Failed),
        ("exit 1", "", End::Unknown),
        ("exit 28", "", End::Unknown),
        ("exit 127", "", End::Unknown),
        ("exit 137", "", End::Unknown),
        ("kill -9 $$", "", End::Unknown),
        ("kill -TERM $$", "on_error = \"retry\"", End::Unknown),
        ("exit 75", "not_sent = [3]", End::Unknown),
        ("exit 3", "not_sent = [3]", End::Again(None)),
        ("exit 4", "failed = [4, 5]", End::Failed),
        ("exit 1", "on_error = \"classify\"", End::Again(None)),
        ("exit 28", "on_error = \"classify\"", End::Unknown),
        ("echo 'curl: connection reset by peer' >&2; exit 1", "on_error = \"classify\"", End::Unknown),
        ("echo 'read timed out'; exit 1", "on_error = \"classify\"", End::Again(None)),
        ("head -c 9999 /dev/zero >&2; exit 1", "on_error = \"classify\"\noutput_limit = 1000", End::Unknown),
        ("exit 1", "on_error = \"retry\"", End::Again(None)),
        ("exit 1", "on_error = \"keep\"", End::Failed),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let effects = folder.path().join("effects");
        let counted = format!("echo x >> {}; {script}", effects.display());
        let attempt = run(&counted, more).await;
        assert_eq!(end(&attempt), expected, "{script} {more}: {attempt:?}");
        assert_eq!(std::fs::read_to_string(&effects).unwrap(), "x\n", "{script}");
    }
    let kept = outcome(run("echo no; exit 64", "").await);
    assert_eq!((kept.status, output(&kept, Stream::Stdout).as_str()), (64, "no\n"));
}

#[tokio::test]
async fn a_program_that_cannot_start_did_nothing() {
    for command in ["[\"/no/such/program\"]", "[\"/\"]"] {
        let attempt = sink(&format!("type = \"command\"\ncommand = {command}")).deliver(&parcel("{}")).await;
        assert_eq!(end(&attempt), End::Again(None), "{attempt:?}");
    }
}

#[tokio::test]
async fn at_the_time_out_the_whole_process_group_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script = format!("trap '' TERM; sleep 600 & echo $$ $! > {}; wait; sleep 600", pids.display());
    let attempt = run(&script, "timeout = \"1s\"").await;
    assert_eq!(end(&attempt), End::Unknown, "{attempt:?}");
    assert!(error(&attempt).contains("killed after 1 s"), "{attempt:?}");
    for pid in written(&pids).await.split_whitespace() {
        ended(pid).await;
    }
}

#[tokio::test]
async fn an_attempt_that_is_given_up_kills_its_processes() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let sink = shell(&format!("sleep 600 & echo $$ $! > {}; wait", pids.display()), "");
    let entry = parcel("{}");
    let pids = tokio::select! {
        attempt = sink.deliver(&entry) => panic!("{attempt:?}"),
        pids = written(&pids) => pids,
    };
    for pid in pids.split_whitespace() {
        ended(pid).await;
    }
}

#[tokio::test]
async fn a_background_process_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let started = Instant::now();
    let kept = outcome(run(&format!("sleep 30 & echo $! > {}; echo done", pid.display()), "").await);
    assert_eq!(output(&kept, Stream::Stdout), "done\n");
    assert!(started.elapsed() < PATIENCE);
    let pid = written(&pid).await.trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn a_large_output_and_an_unread_payload_are_no_failure() {
    let kept = outcome(run("head -c 3000000 /dev/zero", "output_limit = \"64KiB\"").await);
    assert!(matches!(kept.body, Body::TooLarge { size: 3_000_000, .. }), "{:?}", kept.body);
    let large = format!("\"{}\"", "x".repeat(3_000_000));
    let attempt = shell("exec 0<&-; echo ok", "").deliver(&parcel(&large)).await;
    assert_eq!(end(&attempt), End::Done, "{attempt:?}");
    let kept = outcome(shell("wc -c", "").deliver(&parcel(&large)).await);
    assert_eq!(output(&kept, Stream::Stdout).trim(), "3000002");
}

#[tokio::test]
async fn nothing_in_a_payload_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let canary = folder.path().join("canary");
    let hostile = format!("$(touch {0}); `touch {0}`; \"; touch {0} #", canary.display());
    assert_eq!(end(&shell("cat > /dev/null", "").deliver(&parcel(&hostile)).await), End::Done);
    assert!(!canary.exists());
}

#[tokio::test]
async fn settings_of_a_command_that_cannot_work_are_refused() {
    for (more, field) in [
        ("command = []", "command"),
        ("command = [\"\"]", "command"),
        ("command = [\"a\"]\nnot_sent = [0]", "not_sent"),
        ("command = [\"a\"]\nnot_sent = [64]", "failed"),
        ("command = [\"a\"]\ntimeout = \"0s\"", "timeout"),
        ("command = [\"a\"]\nenv = { ONCEWARD_KEY = \"x\" }", "env.ONCEWARD_KEY"),
        ("command = [\"a\"]\nenv = { A = \"env:ONCEWARD_TEST_THAT_IS_NOT_SET\" }", "env.A"),
    ] {
        let error = try_sink(&format!("type = \"command\"\n{more}")).err().unwrap_or_else(|| panic!("{more}"));
        assert!(error.starts_with(&format!("sink.test.{field}: ")), "{more}: {error}");
    }
    assert_eq!(try_sink("type = \"pull\"").err().unwrap(), "pulled");
}
