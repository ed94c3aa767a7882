//! Tokens that the operator has given out. They are kept as hashes, and every one of them is compared, in constant time: how
//! long an answer takes says nothing about how close a guess was.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use onceward::core::hash::digest;
use subtle::ConstantTimeEq;

use crate::config::Bearer;

/// Everybody who has a token.
#[derive(Debug)]
pub(crate) struct Tokens(Vec<Bearer>);

impl Tokens {
    pub(crate) fn new(bearers: Vec<Bearer>) -> Self {
        Self(bearers)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Who sent the one token that stands behind `Authorization: Bearer`.
    pub(crate) fn bearer(&self, headers: &HeaderMap) -> Option<&Bearer> {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let token = bearer_token(given.next()?.as_bytes())?;
        if given.next().is_some() { None } else { self.owner(token) }
    }

    /// Whose token it is.
    pub(crate) fn owner(&self, token: &[u8]) -> Option<&Bearer> {
        let hash = digest(token);
        let mut found = None;
        for bearer in &self.0 {
            if bool::from(bearer.hash.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(bearer);
            }
        }
        found
    }
}

/// What follows `Bearer`, in any case, and some spaces.
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(6)?;
    let token = rest.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer") && rest.first() == Some(&b' ') && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_is_read() {
        assert_eq!(bearer_token(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer_token(b"bearer  abc "), Some(&b"abc"[..]));
        for bad in ["", "Bearer", "Bearer ", "Basic abc", "Bearerabc", "abc"] {
            assert_eq!(bearer_token(bad.as_bytes()), None, "{bad}");
        }
    }
}
