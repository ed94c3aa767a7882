//! Finds evidence in an error that its attempt may have happened: in phrases, status codes and exit codes.
//!
//! Evidence can only add doubt. The text of an error never proves that nothing happened, so nothing here ever leads to a release.
//! Vectors: `spec/vectors/errors.json`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why an attempt that ended with an error may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// The caller or an intermediary stopped waiting for a response.
    TimedOut,
    /// A connection was lost, or the work was interrupted, after it may have begun.
    Interrupted,
    /// A server failed, perhaps in the middle of the work.
    ServerError,
    /// The error itself says that the outcome is unknown, or says nothing about the effect.
    Unknown,
}

impl Evidence {
    /// A clause about the attempt, for messages.
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

/// How many bytes of a text are searched. The first sentences of an error say what happened; a stack trace or the response of a
/// server may follow.
const MAX_TEXT: usize = 16 * 1024;

/// Texts that contain a phrase and mean something else: an option in every error that axios prints, and validation messages about
/// settings.
const FALSE_MATCHES: [&str; 5] =
    ["clarifytimeouterror", "timeout must", "timeout should", "timeout is", "unavailable zone"];

/// Phrases that are evidence anywhere in a text. In lower case, with one space for `_`, `-` and white space.
const PHRASES: &[(&str, Evidence)] = &[
    ("timed out", Evidence::TimedOut),
    ("timedout", Evidence::TimedOut),
    ("timeout error", Evidence::TimedOut),
    ("timeouterror", Evidence::TimedOut),
    ("timeoutexception", Evidence::TimedOut),
    ("timeoutexpired", Evidence::TimedOut),
    ("timeout exceeded", Evidence::TimedOut),
    ("timeout expired", Evidence::TimedOut),
    ("timeout after", Evidence::TimedOut),
    ("timeout while", Evidence::TimedOut),
    ("timeout waiting", Evidence::TimedOut),
    ("timeout awaiting", Evidence::TimedOut),
    ("timeout occurred", Evidence::TimedOut),
    ("request timeout", Evidence::TimedOut),
    ("read timeout", Evidence::TimedOut),
    ("readtimeout", Evidence::TimedOut),
    ("write timeout", Evidence::TimedOut),
    ("response timeout", Evidence::TimedOut),
    ("socket timeout", Evidence::TimedOut),
    ("sockettimeout", Evidence::TimedOut),
    ("headers timeout", Evidence::TimedOut),
    ("body timeout", Evidence::TimedOut),
    ("i/o timeout", Evidence::TimedOut),
    ("gateway timeout", Evidence::TimedOut),
    ("gateway time out", Evidence::TimedOut),
    ("took too long", Evidence::TimedOut),
    ("execution expired", Evidence::TimedOut),
    ("deadline exceeded", Evidence::TimedOut),
    ("deadlineexceeded", Evidence::TimedOut),
    ("deadline has elapsed", Evidence::TimedOut),
    ("connection reset", Evidence::Interrupted),
    ("connectionreset", Evidence::Interrupted),
    ("connection was reset", Evidence::Interrupted),
    ("reset by peer", Evidence::Interrupted),
    ("connection aborted", Evidence::Interrupted),
    ("connection closed", Evidence::Interrupted),
    ("connectionclosed", Evidence::Interrupted),
    ("connection was closed", Evidence::Interrupted),
    ("connection unexpectedly closed", Evidence::Interrupted),
    ("connection dropped", Evidence::Interrupted),
    ("connection terminated", Evidence::Interrupted),
    ("connection lost", Evidence::Interrupted),
    ("lost connection", Evidence::Interrupted),
    ("connection is lost", Evidence::Interrupted),
    ("connection was lost", Evidence::Interrupted),
    ("ssl connection has been closed", Evidence::Interrupted),
    ("consuming input failed", Evidence::Interrupted),
    ("connection error", Evidence::Interrupted),
    ("closed connection", Evidence::Interrupted),
    ("closed the connection", Evidence::Interrupted),
    ("closed network connection", Evidence::Interrupted),
    ("terminating connection", Evidence::Interrupted),
    ("has gone away", Evidence::Interrupted),
    ("broken pipe", Evidence::Interrupted),
    ("brokenpipe", Evidence::Interrupted),
    ("socket hang up", Evidence::Interrupted),
    ("socket closed", Evidence::Interrupted),
    ("server disconnected", Evidence::Interrupted),
    ("serverdisconnected", Evidence::Interrupted),
    ("remote disconnected", Evidence::Interrupted),
    ("network error", Evidence::Interrupted),
    ("fetch failed", Evidence::Interrupted),
    ("failed to fetch", Evidence::Interrupted),
    ("premature close", Evidence::Interrupted),
    ("ended prematurely", Evidence::Interrupted),
    ("unexpected eof", Evidence::Interrupted),
    ("unexpectedeof", Evidence::Interrupted),
    ("unexpected end of file", Evidence::Interrupted),
    ("unexpected end of json", Evidence::Interrupted),
    ("eof occurred", Evidence::Interrupted),
    ("eof detected", Evidence::Interrupted),
    ("incomplete read", Evidence::Interrupted),
    ("incompleteread", Evidence::Interrupted),
    ("chunkedencodingerror", Evidence::Interrupted),
    ("remoteprotocolerror", Evidence::Interrupted),
    ("other side closed", Evidence::Interrupted),
    ("typeerror: terminated", Evidence::Interrupted),
    ("stream error", Evidence::Interrupted),
    ("stream was reset", Evidence::Interrupted),
    ("stream closed before", Evidence::Interrupted),
    ("stream removed", Evidence::Interrupted),
    ("rst stream", Evidence::Interrupted),
    ("und err socket", Evidence::Interrupted),
    ("transport is closing", Evidence::Interrupted),
    ("empty reply", Evidence::Interrupted),
    ("empty response", Evidence::Interrupted),
    ("no response from", Evidence::Interrupted),
    ("no response received", Evidence::Interrupted),
    ("error sending request", Evidence::Interrupted),
    ("error decoding response", Evidence::Interrupted),
    ("received response with content encoding", Evidence::Interrupted),
    ("invalid response body", Evidence::Interrupted),
    ("badstatusline", Evidence::Interrupted),
    ("is not valid json", Evidence::Interrupted),
    ("expecting value: line 1 column 1", Evidence::Interrupted),
    ("looking for beginning of value", Evidence::Interrupted),
    ("operation was aborted", Evidence::Interrupted),
    ("operation aborted", Evidence::Interrupted),
    ("request was aborted", Evidence::Interrupted),
    ("request aborted", Evidence::Interrupted),
    ("aborterror", Evidence::Interrupted),
    ("operation was canceled", Evidence::Interrupted),
    ("operation was cancelled", Evidence::Interrupted),
    ("task was canceled", Evidence::Interrupted),
    ("task was cancelled", Evidence::Interrupted),
    ("cancellederror", Evidence::Interrupted),
    ("context canceled", Evidence::Interrupted),
    ("context cancelled", Evidence::Interrupted),
    ("statuscode.cancelled", Evidence::Interrupted),
    ("code = canceled", Evidence::Interrupted),
    ("exited unexpectedly", Evidence::Interrupted),
    ("internal server error", Evidence::ServerError),
    ("internalservererror", Evidence::ServerError),
    ("bad gateway", Evidence::ServerError),
    ("service unavailable", Evidence::ServerError),
    ("serviceunavailable", Evidence::ServerError),
    ("server error", Evidence::ServerError),
    ("internal error", Evidence::ServerError),
    ("fatal error", Evidence::ServerError),
    ("while processing your request", Evidence::ServerError),
    ("14 unavailable", Evidence::ServerError),
    ("code = unavailable", Evidence::ServerError),
    ("statuscode.unavailable", Evidence::ServerError),
    ("statuscode.internal", Evidence::ServerError),
    ("code = internal", Evidence::ServerError),
    ("statuscode.data loss", Evidence::ServerError),
    ("code = dataloss", Evidence::ServerError),
    ("statuscode.unknown", Evidence::Unknown),
    ("code = unknown", Evidence::Unknown),
    ("unknown whether", Evidence::Unknown),
    ("not known whether", Evidence::Unknown),
    ("outcome is unknown", Evidence::Unknown),
    ("outcome unknown", Evidence::Unknown),
    ("outcome is indeterminate", Evidence::Unknown),
];

/// Codes that also occur inside other words, so that they count only as separate words.
const CODES: &[(&str, Evidence)] = &[
    ("etimedout", Evidence::TimedOut),
    ("esockettimedout", Evidence::TimedOut),
    ("econnreset", Evidence::Interrupted),
    ("econnaborted", Evidence::Interrupted),
    ("epipe", Evidence::Interrupted),
    ("esocket", Evidence::Interrupted),
    ("readerror", Evidence::Interrupted),
    ("writeerror", Evidence::Interrupted),
    (": eof", Evidence::Interrupted),
    ("1 cancelled:", Evidence::Interrupted),
    ("13 internal:", Evidence::ServerError),
    ("15 data loss:", Evidence::ServerError),
    ("2 unknown:", Evidence::Unknown),
];

/// Words in front of a number that make it the status of an HTTP response.
const STATUS_LABELS: [&str; 10] =
    ["status", "statuscode", "code", "http", "httperror", "error", "response", "returned", "received", "got"];

/// Finds evidence in a text: the message of an error, or a string inside a structured error.
pub fn in_text(text: &str) -> Option<Evidence> {
    let text = normalised(text);
    let phrase = PHRASES.iter().find(|(phrase, _)| text.contains(phrase));
    let code = || CODES.iter().find(|(code, _)| has_word(&text, code));
    let found = phrase.or_else(code).map(|(_, evidence)| *evidence);
    found.or_else(|| in_timeout(&text)).or_else(|| in_status(&text))
}

/// Finds evidence in the whole message of an error. An empty message, or one that ends with a colon, says nothing about the
/// effect: the timeouts of some libraries have no text.
pub fn in_message(text: &str) -> Option<Evidence> {
    let end = text.trim_end();
    if end.is_empty() || end.ends_with(':') { Some(Evidence::Unknown) } else { in_text(text) }
}

/// The text in lower case, cut to [`MAX_TEXT`], with one space for every run of `_`, `-` and white space, and without the false
/// matches.
fn normalised(text: &str) -> String {
    let mut normalised = String::with_capacity(text.len().min(MAX_TEXT));
    let mut is_after_space = true;
    for character in text.chars() {
        if normalised.len() >= MAX_TEXT {
            break;
        }
        let is_space = matches!(character, '_' | '-') || character.is_whitespace();
        if is_space && !is_after_space {
            normalised.push(' ');
        } else if !is_space {
            normalised.push(character.to_ascii_lowercase());
        }
        is_after_space = is_space;
    }
    let without = |text: String, word: &&str| if text.contains(word) { text.replace(word, "") } else { text };
    FALSE_MATCHES.iter().fold(normalised, without)
}

fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let is_open = !word.starts_with(char::is_alphanumeric) || !before.is_some_and(char::is_alphanumeric);
        is_open && !after.is_some_and(char::is_alphanumeric)
    })
}

/// `timeout of 30000 ms exceeded`, with or without `of`; or a text that is only the word `timeout`, or ends with it.
fn in_timeout(text: &str) -> Option<Evidence> {
    let text = text.trim_end_matches([' ', '.', '!', '"', '\'']);
    let is_alone = text == "timeout" || text.ends_with(": timeout");
    let is_counted = text.match_indices("timeout ").any(|(at, word)| {
        let rest = &text[at + word.len()..];
        let rest = rest.strip_prefix("of ").unwrap_or(rest);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let rest = rest[digits..].trim_start();
        let unit = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        digits > 0 && rest[unit..].starts_with(" exceeded")
    });
    (is_alone || is_counted).then_some(Evidence::TimedOut)
}

/// Finds the status of an HTTP response after which the effect is unknown: `HTTP/1.1 502`, `status code 503`,
/// `"statusCode":504`, `Error 500:`, or `503:` at the beginning.
fn in_status(text: &str) -> Option<Evidence> {
    if let Some((first, _)) = text.split_once(':')
        && let Some(evidence) = of_status(first)
    {
        return Some(evidence);
    }
    let mut last = "";
    for word in text.split(|character: char| !character.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        // Skips the version in `HTTP/1.1 502`, which stands between the label and its number.
        if STATUS_LABELS.contains(&last) && matches!(word, "1" | "2" | "0" | "3") {
            continue;
        }
        if STATUS_LABELS.contains(&last)
            && let Some(evidence) = of_status(word)
        {
            return Some(evidence);
        }
        last = word;
    }
    None
}

/// Only statuses that HTTP servers and proxies send: `550`, for example, is a refusal of a mail server.
fn of_status(word: &str) -> Option<Evidence> {
    match word {
        "408" | "504" | "522" | "524" | "598" | "599" => Some(Evidence::TimedOut),
        "499" | "500" | "502" | "503" | "520" | "521" | "523" | "525" | "526" | "527" | "529" | "530" => {
            Some(Evidence::ServerError)
        }
        _ => None,
    }
}

/// Exit codes with which commands report a lost response. Most are curl's, which shell scripts pass on: HTTP/2 error, partial
/// transfer, response not written, timed out, too many redirects, empty reply, failed to send or to receive, unreadable encoding,
/// HTTP/2 stream reset, HTTP/3 error. ssh exits with 255 when it loses its connection.
pub fn in_exit_code(code: u8) -> Option<Evidence> {
    match code {
        28 => Some(Evidence::TimedOut),
        16 | 18 | 23 | 47 | 52 | 55 | 56 | 61 | 92 | 95 | 255 => Some(Evidence::Interrupted),
        _ => None,
    }
}

/// Exit codes with which `timeout` reports that it stopped a command, and shells and containers that a signal ended one: SIGHUP,
/// SIGINT, SIGQUIT, SIGABRT, SIGKILL, SIGSEGV, SIGPIPE, SIGTERM. The default of `onceward run --doubt-exit`.
pub const EXIT_CODES_OF_SIGNALS: [u8; 9] = [124, 129, 130, 131, 134, 137, 139, 141, 143];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let long = "é".repeat(MAX_TEXT);
        assert_eq!(in_text(&format!("{long} timed out")), None);
        assert_eq!(in_text(&format!("timed out {long}")), Some(Evidence::TimedOut));
    }
}
