//! Who asks, and what they may.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::HOST;
use http::request::Parts;
use onceward::core::claim::ClaimId;
use onceward::core::hash::Digest;
use onceward::core::name::{Identity, Key, MAX_CHARACTERS, Operation, Tenant};
use onceward::core::plant::{Plant, planted};

use super::Api;
use super::access::Noted;
use super::problem::{Kind, Problem};
use crate::config::Scope;
use crate::hosts::Hosts;
use crate::tokens::Tokens;

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) tenant: Tenant,
    /// The hash of the token, if there are tokens.
    credential: Option<Digest>,
    /// What the audit trail calls the token.
    pub(super) token: Option<String>,
    noted: Arc<Noted>,
}

impl Caller {
    /// One of this tenant's intents; the access log names it, masked.
    pub(super) fn identity(&self, operation: &str, key: &str) -> Result<Identity, Problem> {
        let (operation, key) = (Operation::new(operation)?, Key::new(key)?);
        let identity = Identity { tenant: self.tenant.clone(), operation, key };
        self.note(&identity);
        Ok(identity)
    }

    /// The digest of a claim id that this caller chose. With another token the same id is another one.
    pub(super) fn claim_id(&self, id: &str) -> Result<ClaimId, Problem> {
        if id.is_empty() || id.chars().count() > MAX_CHARACTERS || id.contains(char::is_control) {
            let wrong = format!("claim_id: it has 1 to {MAX_CHARACTERS} characters, and no control characters");
            return Err(Problem::invalid(wrong));
        }
        let credential = self.credential.as_ref().map_or(&[][..], |hash| hash.as_bytes());
        Ok(ClaimId::new(credential, id))
    }

    /// Which intent it is about, for the access log.
    pub(super) fn note(&self, identity: &Identity) {
        let _ = self.noted.intent.set(identity.to_string());
    }

    /// What came of it, for the access log.
    pub(super) fn note_answer(&self, answer: &'static str) {
        let _ = self.noted.answer.set(answer);
    }
}

fn caller(tokens: &Tokens, parts: &Parts, needed: Scope) -> Result<Caller, Problem> {
    let noted = parts.extensions.get::<Arc<Noted>>().cloned().unwrap_or_default();
    let (tenant, credential, token) = match tokens.is_empty() {
        true if is_local(parts) => (Tenant::default(), None, None),
        true => return Err(Problem::new(Kind::WrongHost)),
        false => {
            let bearer = tokens.bearer(&parts.headers).ok_or_else(|| Problem::new(Kind::NoToken))?;
            let _ = noted.tenant.set(bearer.tenant.to_string());
            if !bearer.scopes.contains(&needed) {
                let detail = format!("this needs a token with the scope `{}`", needed.as_str());
                return Err(Problem::because(Kind::NotAllowed, detail));
            }
            let tenant = if planted(Plant::TokenTenantDropped) { Tenant::default() } else { bearer.tenant.clone() };
            (tenant, Some(bearer.hash), Some(bearer.name.clone()))
        }
    };
    let _ = noted.tenant.set(tenant.to_string());
    Ok(Caller { tenant, credential, token, noted })
}

/// A page in a browser can reach this machine under a name of its own. What it cannot do is to leave that name out.
fn is_local(parts: &Parts) -> bool {
    parts.headers.contains_key(HOST) && Hosts::local().refusal(parts).is_none()
}

macro_rules! allowed {
    ($($(#[$doc:meta])* $name:ident: $scope:expr),+ $(,)?) => {$(
        $(#[$doc])*
        pub(super) struct $name(pub(super) Caller);

        impl FromRequestParts<Api> for $name {
            type Rejection = Problem;

            async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
                caller(&api.0.tokens, parts, $scope).map(Self)
            }
        }
    )+};
}

allowed! {
    /// A caller that may begin and finish.
    User: Scope::Use,
    /// A caller that may look.
    Reader: Scope::Read,
    /// A caller that may settle.
    Operator: Scope::Operate,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        let local = |host: &str| {
            let (parts, ()) = http::Request::builder().header(HOST, host).body(()).unwrap().into_parts();
            is_local(&parts)
        };
        for host in ["localhost", "LOCALHOST:8787", "127.0.0.1:80", "[::1]:8787"] {
            assert!(local(host), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", ""] {
            assert!(!local(host), "{host}");
        }
    }
}
