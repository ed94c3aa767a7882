//! A stored outcome, shown again.

use std::io;

use bytes::Bytes;
use onceward::core::outcome::{Body, Outcome, Verdict};
use onceward::core::plant::{Plant, planted};

use super::capture::write;
use super::frame::{CONTENT_TYPE, decode};
use crate::exit::NOT_KEPT;
use crate::output::{is_fault, write_out};

/// Shows a stored outcome as the command itself would have, and says which code it ended with.
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

/// A reader of one stream that has gone away takes nothing from the reader of the other.
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
