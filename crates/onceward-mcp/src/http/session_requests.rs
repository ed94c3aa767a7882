//! Requests that say something about a client's session: its introduction, cancellations, resumed streams and its end.

use std::sync::Arc;

use http::{HeaderMap, Method, request};
use onceward::core::hash::Fields;
use onceward::core::name::Tenant;

use super::Server;
use super::content_type::session;
use super::http_call::LAST_EVENT;
use crate::members::Members;
use crate::message::{Id, RequestId};
use onceward_runtime::net::listener::Peer;

impl Server {
    /// Records the name that a client gives in `initialize`, under the session that the server gave it.
    pub(super) fn introduced(self: &Arc<Self>, headers: &HeaderMap, members: &Members, tenant: Option<Tenant>) {
        let (Some(session), Some(tenant)) = (session(headers), tenant) else { return };
        let session = of_tenant(&session, Some(&tenant));
        let (server, known) = (Arc::clone(self), self.sessions.of_session(&session));
        known.introduce(&members.object("params").unwrap_or_default(), false);
        tokio::spawn(async move { known.recall(server.gates.lazy_ledger(), &tenant).await });
    }

    /// Records that a client cancelled a call, before or after its response came. Does not wait for the ledger.
    pub(super) fn cancelled(self: &Arc<Self>, parts: &request::Parts, peer: Peer, members: &Members) {
        let id = members.object("params").and_then(|parameters| parameters.get("requestId").and_then(Id::read));
        let (Some(id), Some(session)) = (id, self.client(parts, peer)) else { return };
        let known = self.sessions.of_session(&session);
        self.gate(parts, peer).equals.cancel(&RequestId { connection: session, id: id.clone() });
        let (is_first, tenant) = (known.cancelled(&id), self.tenant(parts, peer).ok());
        let (server, in_progress) = (Arc::clone(self), self.in_progress.enter());
        tokio::spawn(async move {
            known.cancellations_recorded().await;
            if let Some(tenant) = tenant.filter(|_| is_first) {
                known.remember(server.gates.lazy_ledger(), &tenant).await;
            }
            drop(in_progress);
        });
    }

    /// Handles requests without a message: a client resumes a stream from before a response, which it therefore did not get; or it
    /// ends its session.
    pub(super) async fn without_message(&self, parts: &request::Parts, peer: Peer) {
        let Some(session) = self.client(parts, peer) else { return };
        if parts.method == Method::DELETE {
            if let Some(known) = self.sessions.leave(&session) {
                known.ended(true).await;
            }
        } else if let Some(at) = parts.headers.get(LAST_EVENT).and_then(|at| at.to_str().ok()) {
            self.sessions.of_session(&session).resumed_from(at).await;
        }
    }

    /// The client's session, together with its tenant because another tenant may know the session id; `None` without a session.
    pub(super) fn client(&self, parts: &request::Parts, peer: Peer) -> Option<String> {
        let session = session(&parts.headers)?;
        Some(of_tenant(&session, self.tenant(parts, peer).ok().as_ref()))
    }
}

/// The name of a session of one tenant. Both parts come from headers and may contain any separator, so it is a digest.
fn of_tenant(session: &str, tenant: Option<&Tenant>) -> String {
    let named = Fields::new().field(session);
    tenant.into_iter().fold(named, |named, tenant| named.field(tenant.as_str())).digest().to_hex()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_of_one_tenant_is_never_that_of_another() {
        let of = |session: &str, tenant: &str| of_tenant(session, Some(&Tenant::new(tenant).unwrap()));
        assert_eq!(of("s", "bank"), of("s", "bank"));
        assert_ne!(of("s of bank", "america"), of("s", "bank of america"));
        assert_ne!(of_tenant("s of bank", None), of("s", "bank"));
        assert_ne!(of_tenant(&of("s", "bank"), None), of("s", "bank"));
    }
}
