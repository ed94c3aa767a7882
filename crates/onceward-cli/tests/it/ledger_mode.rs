//! Only their owner can access the files of a ledger, whatever the umask.

use std::os::unix::fs::PermissionsExt;

use crate::test_folder::{CommandOutput, TestFolder};

#[test]
fn the_umask_neither_widens_nor_narrows_the_mode_of_a_new_ledger() {
    for umask in ["000", "022", "277"] {
        let folder = TestFolder::new();
        // The command lists the files while the ledger is open, when its log and shared index exist.
        let modes = r#"stat -c "%a %n" onceward.db*"#;
        let run = folder.run_command(&["--key", "k"], modes);
        let line: Vec<String> = std::iter::once(run.get_program())
            .chain(run.get_args())
            .map(|part| format!("'{}'", part.to_str().unwrap()))
            .collect();
        let script = format!("umask {umask}; exec {}", line.join(" "));
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script]).current_dir(run.get_current_dir().unwrap()).env_remove("ONCEWARD_STORE");
        let answer = CommandOutput::of(shell.output().unwrap());
        let said = String::from_utf8(answer.stdout.clone()).unwrap();
        assert_eq!(answer.code, 0, "umask {umask}: {answer:?}");
        for name in ["onceward.db", "onceward.db-wal", "onceward.db-shm", "onceward.db-owners", "onceward.db-mark"] {
            assert!(said.contains(&format!("600 {name}\n")), "umask {umask}: {said}");
        }
        let mode = folder.path("onceward.db").metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "umask {umask}");
    }
}
