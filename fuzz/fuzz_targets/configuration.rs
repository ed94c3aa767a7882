//! Any text as `onceward.toml` is refused with a position and a reason, or every operation in it has a valid policy and
//! recipe. An unknown name never passes.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use onceward_core::name::Operation;
use onceward_core::policy::{LARGEST_KEEP_LIMIT, LONGEST_LEASE};
use onceward_runtime::config::checked;

fuzz_target!(|text: &str| {
    let operations = match checked(text) {
        Ok(operations) => operations,
        Err(mistakes) => {
            assert!(mistakes.starts_with("onceward.toml"), "{mistakes}");
            return;
        }
    };
    for (name, (policy, recipe)) in &operations {
        assert!(Operation::new(name).is_ok());
        assert!(policy.lease() > Duration::ZERO && policy.lease() <= LONGEST_LEASE);
        assert!(policy.keep_limit <= LARGEST_KEEP_LIMIT);
        assert_ne!(policy.terms().retention, Some(Duration::ZERO), "an outcome that is forgotten at once");
        if let Some(recipe) = recipe {
            assert!(!recipe.key().is_empty());
        }
    }
    // No table has this name, whichever table the text ends in; and a comment changes nothing.
    let misspelt = format!("{text}\nretenton = 1\n");
    assert!(checked(&misspelt).is_err(), "an unknown name passes");
    let commented = format!("{text}\n# a comment");
    assert_eq!(checked(&commented).map(|operations| operations.len()), Ok(operations.len()));
});
