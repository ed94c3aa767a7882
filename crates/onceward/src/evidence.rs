//! Evidence in an error of this process, and in its sources, that the attempt may have happened. It may only add doubt.

use std::error::Error;
use std::io;

use onceward_core::evidence::{Evidence, in_text};

/// A chain of sources that is longer than this is a loop.
const LONGEST_CHAIN: usize = 16;

/// Looks at an error and its sources, the outermost first.
pub(crate) fn in_error(error: &(dyn Error + 'static)) -> Option<Evidence> {
    let mut next = Some(error);
    for _ in 0..LONGEST_CHAIN {
        let error = next?;
        if let Some(evidence) = in_kind(error).or_else(|| in_text(&error.to_string())) {
            return Some(evidence);
        }
        next = error.source();
    }
    None
}

fn in_kind(error: &(dyn Error + 'static)) -> Option<Evidence> {
    if error.is::<tokio::time::error::Elapsed>() {
        return Some(Evidence::TimedOut);
    }
    let error = error.downcast_ref::<io::Error>()?;
    // An error inside an `io::Error` is not one of its sources.
    let inner = error.get_ref().and_then(|inner| in_kind(inner).or_else(|| in_text(&inner.to_string())));
    inner.or_else(|| of_kind(error.kind()))
}

/// Kinds of errors that come after something may have been sent. A refused connection is not one of them, and not a proof
/// either: an earlier connection may have been made.
fn of_kind(kind: io::ErrorKind) -> Option<Evidence> {
    use io::ErrorKind as Kind;
    match kind {
        Kind::TimedOut => Some(Evidence::TimedOut),
        Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::BrokenPipe
        | Kind::UnexpectedEof
        | Kind::WriteZero
        | Kind::NotConnected
        | Kind::Interrupted => Some(Evidence::Interrupted),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("charging failed")]
    struct Outer(#[source] io::Error);

    #[test]
    fn evidence_is_found_at_any_depth() {
        let lost = || io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(in_error(&lost()), Some(Evidence::Interrupted));
        assert_eq!(in_error(&Outer(lost())), Some(Evidence::Interrupted));
        assert_eq!(in_error(&io::Error::other(Outer(lost()))), Some(Evidence::Interrupted));
        assert_eq!(in_error(&Outer(io::ErrorKind::TimedOut.into())), Some(Evidence::TimedOut));
        assert_eq!(in_error(&Outer(io::ErrorKind::ConnectionRefused.into())), None);
        assert_eq!(in_error(&Outer(io::Error::other("the API answered HTTP 503"))), Some(Evidence::ServerError));
        assert_eq!(in_error(&Outer(io::Error::other("amount must be positive"))), None);
    }

    #[tokio::test]
    async fn a_time_out_of_tokio_is_evidence() {
        let elapsed = tokio::time::timeout(std::time::Duration::ZERO, std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(in_error(&io::Error::from(elapsed)), Some(Evidence::TimedOut));
        let elapsed = tokio::time::timeout(std::time::Duration::ZERO, std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(in_error(&elapsed), Some(Evidence::TimedOut));
    }
}
