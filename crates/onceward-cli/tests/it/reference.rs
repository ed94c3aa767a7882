//! The reference pages are up to date.

use std::path::Path;

use crate::test_folder::TestFolder;

fn check(page: &str) {
    let answer = TestFolder::new().onceward(&["reference", page]);
    answer.says(0, &[]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/reference/{page}.md"));
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &answer.stdout).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == answer.out(),
        "docs/reference/{page}.md is stale; update it with:\n  UPDATE_REFERENCE=1 cargo test -p onceward-cli reference"
    );
}

#[test]
fn the_command_line_reference_is_up_to_date() {
    check("cli");
}

#[test]
fn the_configuration_reference_is_up_to_date() {
    check("configuration");
}

#[test]
fn the_page_of_providers_is_up_to_date() {
    check("providers");
}
