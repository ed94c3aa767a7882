//! Replays a stored outcome.

use std::io;

use bytes::Bytes;
use onceward::core::outcome::{Body, Outcome, Verdict};
use onceward::plant::{Plant, planted};

use super::capture::write;
use onceward_runtime::exit::NOT_KEPT;
use onceward_runtime::output::{is_fault, write_out};
use onceward_runtime::process::output_frame::{CONTENT_TYPE, decode};

/// Prints a stored outcome as the command did, and returns its exit code.
pub(super) fn show(outcome: &Outcome) -> io::Result<u8> {
    let Body::Kept(body) = &outcome.body else { return Ok(NOT_KEPT) };
    match print(outcome, body) {
        Err(error) if is_fault(&error) => return Err(error),
        _ => {}
    }
    if planted(Plant::ExitCodeNotKept) {
        return Ok(0);
    }
    Ok(match (outcome.verdict, u8::try_from(outcome.status)) {
        (Verdict::Failure, Ok(0)) | (_, Err(_)) => u8::from(outcome.verdict == Verdict::Failure),
        (_, Ok(code)) => code,
    })
}

/// A closed reader of one stream does not affect the reader of the other.
fn print(outcome: &Outcome, body: &Bytes) -> io::Result<()> {
    let segments = if outcome.content_type == CONTENT_TYPE { decode(body) } else { None };
    let Some(segments) = segments else { return write_out(body) };
    for segment in segments {
        match write(segment.stream, &segment.bytes) {
            Err(error) if is_fault(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
