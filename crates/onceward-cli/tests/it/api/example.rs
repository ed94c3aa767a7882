//! The example in the guide works as described.

use std::path::Path;
use std::process::Command;

#[test]
fn the_example_in_the_guide_runs_as_shown() {
    for needed in ["curl", "python3", "bash"] {
        if Command::new(needed).arg("--version").output().is_err() {
            println!("skipped: the example needs {needed}");
            return;
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(root.join("examples/api.sh"));
    command.env("ONCEWARD", env!("CARGO_BIN_EXE_onceward")).env("no_proxy", "127.0.0.1");
    for name in ["STORE", "CONFIG", "TENANT", "LOG"] {
        command.env_remove(format!("ONCEWARD_{name}"));
    }
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let guide = std::fs::read_to_string(root.join("docs/guides/api.md")).unwrap();
    assert!(guide.contains(&format!("```text\n{printed}```")), "the guide shows a different output:\n{printed}");
}
