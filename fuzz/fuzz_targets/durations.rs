//! Any text is refused, or is a duration whose shortest text is read back as the same duration.

#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use onceward_core::duration::{format, parse};

fuzz_target!(|text: &str| {
    match parse(text) {
        Ok(duration) => {
            let shortest = format(duration);
            assert_eq!(parse(&shortest), Ok(duration), "{shortest} is read as another duration");
            assert!(shortest.len() <= text.len(), "{shortest} is longer than {text}");
            assert_eq!(
                format(duration + Duration::from_nanos(999_999)),
                shortest,
                "what is below a millisecond counts"
            );
        }
        // An error quotes at most one line of its input.
        Err(error) => assert!(error.to_string().len() < 1024),
    }
    let millis = text.bytes().fold(0_u64, |millis, byte| millis.wrapping_mul(31).wrapping_add(u64::from(byte)));
    let duration = Duration::from_millis(millis >> 1);
    assert_eq!(parse(&format(duration)), Ok(duration));
});
