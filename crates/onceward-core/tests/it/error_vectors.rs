//! Runs the vectors for unclassified errors, which `spec/vectors/README.md` explains. The harness in `onceward-sim` runs them too,
//! so the check is a function of its own.

use std::path::Path;

use onceward_core::class::{Class, Disposition, Errors, disposition};
use onceward_core::evidence::{Evidence, in_exit_code, in_message, in_text};
use onceward_core::policy::OnError;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorVectors {
    #[serde(rename = "about")]
    _about: String,
    texts: Vec<TextCase>,
    messages: Vec<TextCase>,
    exit_codes: Vec<ExitCodeCase>,
    dispositions: Vec<DispositionCase>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextCase {
    name: String,
    text: String,
    evidence: Option<Evidence>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExitCodeCase {
    code: u8,
    evidence: Option<Evidence>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DispositionCase {
    name: String,
    class: Class,
    on_error: OnError,
    tier_declared: bool,
    marked_sent: bool,
    expect: Disposition,
}

/// Runs all error vectors.
pub(crate) fn run_all() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/vectors/errors.json");
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("errors.json: {error}"));
    let file: ErrorVectors = serde_json::from_str(&text).unwrap_or_else(|error| panic!("errors.json: {error}"));
    assert!(
        file.texts.len() >= 72
            && file.messages.len() >= 5
            && file.exit_codes.len() >= 17
            && file.dispositions.len() >= 36
    );
    for case in file.texts {
        assert_eq!(in_text(&case.text), case.evidence, "{}", case.name);
    }
    for case in file.messages {
        assert_eq!(in_message(&case.text), case.evidence, "{}", case.name);
    }
    for case in file.exit_codes {
        assert_eq!(in_exit_code(case.code), case.evidence, "exit code {}", case.code);
    }
    for case in file.dispositions {
        let errors = Errors { on_error: case.on_error, tier_declared: case.tier_declared };
        assert_eq!(disposition(case.class, errors, case.marked_sent), case.expect, "{}", case.name);
    }
}

#[test]
fn every_error_is_classified_as_expected() {
    run_all();
}
