//! What goes wrong between this process and the server, and which exception it becomes.

use std::time::Duration;

use onceward::Error;
use pyo3::prelude::*;

use crate::error::{self, About};

/// Why a request has no result.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It may be sent again.
    Temporary {
        text: String,
        /// Whether the server may have acted on it.
        may_have_acted: bool,
    },
    /// Sending it again gets the same answer.
    Refused(Refusal),
}

/// A request that the server does not accept.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusalKind,
    pub(crate) text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusalKind {
    /// The token is missing, unknown, or lacks a scope.
    NotAllowed,
    /// The request itself is wrong.
    Invalid,
    /// The tenant has as many records as it may have.
    Quota,
    /// There is no such intent.
    NoIntent,
    /// What answers is not the API.
    Unusable,
}

/// What a call raises.
#[derive(Debug)]
pub(crate) enum RemoteError {
    /// An error that a ledger in a file raises too.
    Library(Error),
    /// An exception of the Python package, by name.
    Named { kind: &'static str, text: String },
    /// The work is not running, and may not be tried again before this time is over.
    NotYet(Duration),
}

impl Trouble {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Temporary { text, .. } => text,
            Self::Refused(refusal) => &refusal.text,
        }
    }
}

impl From<Trouble> for RemoteError {
    /// For requests before which nothing ran.
    fn from(trouble: Trouble) -> Self {
        let (kind, text) = match trouble {
            Trouble::Temporary { text, .. } => ("StoreUnavailable", text),
            Trouble::Refused(Refusal { kind, text }) => match kind {
                RefusalKind::NotAllowed => ("NotAllowed", text),
                RefusalKind::Invalid | RefusalKind::NoIntent => ("InvalidCall", text),
                RefusalKind::Quota => ("QuotaReached", text),
                RefusalKind::Unusable => ("StoreUnavailable", text),
            },
        };
        Self::Named { kind, text: format!("{text}; nothing ran") }
    }
}

impl From<Error> for RemoteError {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl RemoteError {
    pub(crate) fn raised(&self, py: Python<'_>, about: &About) -> PyErr {
        match self {
            Self::Library(error) => error::raised(py, error, about),
            Self::Named { kind, text } => error::named(py, kind, text, about),
            Self::NotYet(retry_after) => error::not_yet(py, *retry_after, about),
        }
    }
}
