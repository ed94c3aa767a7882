//! Authentication of callers, and their scopes.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::header::HOST;
use http::request::Parts;
use onceward::RESERVED;
use onceward::core::claim::ClaimId;
use onceward::core::hash::Digest;
use onceward::core::name::{Identity, Key, MAX_CHARACTERS, Operation, Tenant};
use onceward::plant::{Plant, planted};

use super::Api;
use super::access_log::AccessNotes;
use super::problem::{Kind, Problem};
use onceward_runtime::config::Scope;
use onceward_runtime::net::host_check::HostCheck;
use onceward_runtime::net::tokens::Tokens;

/// An authenticated caller.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) tenant: Tenant,
    /// The hash of the token, if there are tokens.
    credential: Option<Digest>,
    /// The name of the token in the audit trail.
    pub(super) token: Option<String>,
    /// Whether the token has the scope `operate`.
    pub(super) may_operate: bool,
    noted: Arc<AccessNotes>,
}

impl Caller {
    /// An intent of this tenant that a request may change. The access log shows it masked.
    pub(super) fn identity(&self, operation: &str, key: &str) -> Result<Identity, Problem> {
        check_operation(operation)?;
        self.any_identity(operation, key)
    }

    /// An intent of this tenant, to be read.
    pub(super) fn any_identity(&self, operation: &str, key: &str) -> Result<Identity, Problem> {
        let (operation, key) = (Operation::new(operation)?, Key::new(key)?);
        let identity = Identity { tenant: self.tenant.clone(), operation, key };
        self.note(&identity);
        Ok(identity)
    }

    /// The digest of the caller's claim id. With another token, the same id is a different one.
    pub(super) fn claim_id(&self, name: &str, id: &str) -> Result<ClaimId, Problem> {
        if id.is_empty() || id.chars().count() > MAX_CHARACTERS || id.contains(char::is_control) {
            let wrong = format!("{name}: 1 to {MAX_CHARACTERS} characters without control characters are required");
            return Err(Problem::invalid(wrong));
        }
        let credential = self.credential.as_ref().map_or(&[][..], |hash| hash.as_bytes());
        Ok(ClaimId::new(credential, id))
    }

    /// The same for the id of a lease: as the id of a claim, the same text is a different one.
    pub(super) fn lease_id(&self, id: &str) -> Result<ClaimId, Problem> {
        let claim = self.claim_id("lease_id", id)?;
        Ok(ClaimId::new(b"lease", &claim.to_bytes().map(|byte| format!("{byte:02x}")).concat()))
    }

    /// Tells the access log which intent the request is about.
    pub(super) fn note(&self, identity: &Identity) {
        let _ = self.noted.intent.set(identity.to_string());
    }

    /// Tells the access log the result.
    pub(super) fn note_answer(&self, answer: &'static str) {
        let _ = self.noted.answer.set(answer);
    }
}

/// The ledger keeps records of its own under these operations: batches of workers, breakers and pauses of all tenants.
pub(super) fn check_operation(operation: &str) -> Result<(), Problem> {
    match operation.starts_with(RESERVED) {
        true => {
            Err(Problem::invalid(format!("operation: names that begin with `{RESERVED}` are reserved for the server")))
        }
        false => Ok(()),
    }
}

fn caller(tokens: &Tokens, parts: &Parts, needed: Scope) -> Result<Caller, Problem> {
    let noted = parts.extensions.get::<Arc<AccessNotes>>().cloned().unwrap_or_default();
    let (tenant, credential, token, may_operate) = match tokens.is_empty() {
        true if is_local(parts) => (Tenant::default(), None, None, true),
        true => return Err(Problem::new(Kind::WrongHost)),
        false => {
            let bearer = tokens.bearer(&parts.headers).ok_or_else(|| Problem::new(Kind::NoToken))?;
            let _ = noted.tenant.set(bearer.tenant.to_string());
            if !bearer.scopes.contains(&needed) {
                let detail = format!("this request needs a token with the scope `{}`", needed.as_str());
                return Err(Problem::because(Kind::NotAllowed, detail));
            }
            let tenant = if planted(Plant::TokenTenantDropped) { Tenant::default() } else { bearer.tenant.clone() };
            let may_operate = bearer.scopes.contains(&Scope::Operate);
            (tenant, Some(bearer.hash), Some(bearer.name.clone()), may_operate)
        }
    };
    let _ = noted.tenant.set(tenant.to_string());
    Ok(Caller { tenant, credential, token, may_operate, noted })
}

/// DNS rebinding: a web page can reach this machine through a domain of its own, but cannot hide that domain in `Host`.
fn is_local(parts: &Parts) -> bool {
    parts.headers.contains_key(HOST) && HostCheck::local().refusal(parts).is_none()
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
    /// A caller with the scope `use`.
    User: Scope::Use,
    /// A caller with the scope `read`.
    Reader: Scope::Read,
    /// A caller with the scope `operate`.
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
