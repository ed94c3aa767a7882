//! The operator's tokens, kept as hashes. A token is compared with all of them in constant time, so that the response time
//! reveals nothing about a guess.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use onceward::core::hash::digest;
use subtle::ConstantTimeEq;

use crate::config::Bearer;

/// All holders of tokens.
#[derive(Debug)]
pub struct Tokens(Vec<Bearer>);

impl Tokens {
    pub fn new(bearers: Vec<Bearer>) -> Self {
        Self(bearers)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The holder of the token in `Authorization: Bearer`. There must be exactly one such header.
    pub fn bearer(&self, headers: &HeaderMap) -> Option<&Bearer> {
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let token = bearer_token(given.next()?.as_bytes())?;
        if given.next().is_some() { None } else { self.owner(token) }
    }

    /// The holder of a token.
    pub fn owner(&self, token: &[u8]) -> Option<&Bearer> {
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

/// The token after `Bearer` (in any case) and spaces.
fn bearer_token(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(6)?;
    let token = rest.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer") && rest.first() == Some(&b' ') && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bearer_tokens_are_accepted() {
        assert_eq!(bearer_token(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer_token(b"bearer  abc "), Some(&b"abc"[..]));
        for bad in ["", "Bearer", "Bearer ", "Basic abc", "Bearerabc", "abc"] {
            assert_eq!(bearer_token(bad.as_bytes()), None, "{bad}");
        }
    }
}
