//! Evidence in an error that its attempt may have happened: words, exit codes and source chains. Pure.
//!
//! Evidence may only add doubt. Nothing in the text of an error proves that nothing happened, so nothing here ever leads
//! to a release. Vectors: `spec/vectors/errors.json`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why an attempt that ended with an error may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Something stopped waiting for an answer.
    TimedOut,
    /// A connection was lost, or the work was cut short, after it may have begun.
    Interrupted,
    /// A server failed while it may have been at work.
    ServerError,
    /// The error itself says that the outcome is unknown, or says nothing about the effect.
    Unknown,
}

impl Evidence {
    /// What the evidence says, as the end of a sentence about the attempt.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TimedOut => "it timed out",
            Self::Interrupted => "it was interrupted",
            Self::ServerError => "a server failed",
            Self::Unknown => "the error does not say what happened",
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Errors say in their first sentences what happened; what follows is a stack trace or the answer of a server.
const LONGEST_TEXT: usize = 16 * 1024;

/// Phrases, in lower case, that mean what they say wherever they stand.
const PHRASES: &[(&str, Evidence)] = &[
    ("timed out", Evidence::TimedOut),
    ("timedout", Evidence::TimedOut),
    ("timeouterror", Evidence::TimedOut),
    ("timeout error", Evidence::TimedOut),
    ("timeoutexception", Evidence::TimedOut),
    ("timeoutexpired", Evidence::TimedOut),
    ("timeout exceeded", Evidence::TimedOut),
    ("timeout expired", Evidence::TimedOut),
    ("timeout after", Evidence::TimedOut),
    ("timeout while", Evidence::TimedOut),
    ("timeout waiting", Evidence::TimedOut),
    ("timeout awaiting", Evidence::TimedOut),
    ("request timeout", Evidence::TimedOut),
    ("read timeout", Evidence::TimedOut),
    ("readtimeout", Evidence::TimedOut),
    ("write timeout", Evidence::TimedOut),
    ("response timeout", Evidence::TimedOut),
    ("socket timeout", Evidence::TimedOut),
    ("gateway timeout", Evidence::TimedOut),
    ("gateway time-out", Evidence::TimedOut),
    ("deadline exceeded", Evidence::TimedOut),
    ("deadline_exceeded", Evidence::TimedOut),
    ("deadlineexceeded", Evidence::TimedOut),
    ("deadline has elapsed", Evidence::TimedOut),
    ("connection reset", Evidence::Interrupted),
    ("connectionreset", Evidence::Interrupted),
    ("connection was reset", Evidence::Interrupted),
    ("reset by peer", Evidence::Interrupted),
    ("connection aborted", Evidence::Interrupted),
    ("connection closed", Evidence::Interrupted),
    ("connection was closed", Evidence::Interrupted),
    ("closed connection", Evidence::Interrupted),
    ("closed the connection", Evidence::Interrupted),
    ("connection lost", Evidence::Interrupted),
    ("lost connection", Evidence::Interrupted),
    ("connection error", Evidence::Interrupted),
    ("broken pipe", Evidence::Interrupted),
    ("brokenpipe", Evidence::Interrupted),
    ("socket hang up", Evidence::Interrupted),
    ("server disconnected", Evidence::Interrupted),
    ("network error", Evidence::Interrupted),
    ("fetch failed", Evidence::Interrupted),
    ("premature close", Evidence::Interrupted),
    ("unexpected eof", Evidence::Interrupted),
    ("unexpected end of file", Evidence::Interrupted),
    ("unexpectedeof", Evidence::Interrupted),
    ("eof occurred", Evidence::Interrupted),
    ("incompleteread", Evidence::Interrupted),
    ("incomplete read", Evidence::Interrupted),
    ("remoteprotocolerror", Evidence::Interrupted),
    ("operation was aborted", Evidence::Interrupted),
    ("request was aborted", Evidence::Interrupted),
    ("aborterror", Evidence::Interrupted),
    ("operation was canceled", Evidence::Interrupted),
    ("operation was cancelled", Evidence::Interrupted),
    ("context canceled", Evidence::Interrupted),
    ("internal server error", Evidence::ServerError),
    ("bad gateway", Evidence::ServerError),
    ("service unavailable", Evidence::ServerError),
    ("serviceunavailable", Evidence::ServerError),
    ("internalservererror", Evidence::ServerError),
    ("status server error", Evidence::ServerError),
    ("unknown whether", Evidence::Unknown),
    ("not known whether", Evidence::Unknown),
    ("outcome is unknown", Evidence::Unknown),
    ("outcome unknown", Evidence::Unknown),
    ("indeterminate", Evidence::Unknown),
];

/// Codes, in lower case, that are part of other words too, so that they count only as words of their own.
const CODES: &[(&str, Evidence)] = &[
    ("etimedout", Evidence::TimedOut),
    ("esockettimedout", Evidence::TimedOut),
    ("econnreset", Evidence::Interrupted),
    ("econnaborted", Evidence::Interrupted),
    ("epipe", Evidence::Interrupted),
    ("und_err_socket", Evidence::Interrupted),
];

/// Words before a number that make it the status of an HTTP answer.
const LABELS: [&str; 6] = ["status", "statuscode", "code", "http", "error", "response"];

/// Looks for evidence in the text of an error, or in the JSON of a structured one.
pub fn in_text(text: &str) -> Option<Evidence> {
    let end = text.char_indices().map(|(at, _)| at).take_while(|at| *at <= LONGEST_TEXT).last().unwrap_or(0);
    let text = if text.len() > LONGEST_TEXT { &text[..end] } else { text };
    let text = text.to_ascii_lowercase();
    let phrase = PHRASES.iter().find(|(phrase, _)| text.contains(phrase));
    let code = || CODES.iter().find(|(code, _)| has_word(&text, code));
    phrase.or_else(code).map(|(_, evidence)| *evidence).or_else(|| in_status(&text))
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        !before.is_some_and(is_of_word) && !after.is_some_and(is_of_word)
    })
}

fn is_of_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Looks for the status of an HTTP answer that leaves the effect open: `HTTP/1.1 502`, `status code 503`,
/// `"statusCode":504`, `Error 500:`.
fn in_status(text: &str) -> Option<Evidence> {
    let mut last = "";
    // `status_code` and `status code` are two words either way, and the second of them is a label too.
    for word in text.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        // The version in `HTTP/1.1 502` does not part the label from its number.
        if LABELS.contains(&last) && matches!(word, "1" | "2" | "0" | "3") {
            continue;
        }
        if LABELS.contains(&last) && word.len() == 3 {
            match word.parse::<u16>() {
                Ok(408 | 504 | 524) => return Some(Evidence::TimedOut),
                Ok(499..=599) => return Some(Evidence::ServerError),
                _ => {}
            }
        }
        last = word;
    }
    None
}

/// Exit codes by which commands report a lost answer. They are curl's, which shell scripts hand on: transfer cut short, timed
/// out, empty reply, failed to send, failed to receive, HTTP/2 stream reset.
pub fn in_exit_code(code: u8) -> Option<Evidence> {
    match code {
        28 => Some(Evidence::TimedOut),
        18 | 52 | 55 | 56 | 92 => Some(Evidence::Interrupted),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "é".repeat(LONGEST_TEXT);
        assert_eq!(in_text(&format!("{long} timed out")), None);
        assert_eq!(in_text(&format!("timed out {long}")), Some(Evidence::TimedOut));
    }
}
