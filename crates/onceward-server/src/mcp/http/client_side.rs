//! What is known of a client by its session: who it is, what it has cancelled, from where it reads on, and how it ends.

use std::sync::Arc;

use http::{HeaderMap, Method, request};
use onceward::core::name::Tenant;

use super::Server;
use super::head::session;
use super::post::LAST_EVENT;
use crate::listener::Peer;
use crate::mcp::delivery;
use crate::mcp::members::Members;
use crate::mcp::message::Id;

impl Server {
    /// A client says who it is, and gets a session.
    pub(super) fn introduced(self: &Arc<Self>, headers: &HeaderMap, members: &Members, tenant: Option<Tenant>) {
        let (Some(session), Some(tenant)) = (session(headers), tenant) else { return };
        let session = of_tenant(&session, &tenant);
        let (server, known) = (Arc::clone(self), self.clients.of_session(&session));
        known.introduce(&members.object("params").unwrap_or_default(), false);
        tokio::spawn(async move { known.recall(server.callers.books(), &tenant).await });
    }

    /// A client does not want an answer, or no longer wanted it when it came.
    pub(super) async fn cancelled(self: &Arc<Self>, parts: &request::Parts, peer: Peer, members: &Members) {
        let id = members.object("params").and_then(|parameters| parameters.get("requestId").and_then(Id::read));
        let (Some(id), Some(session)) = (id, self.client(parts, peer)) else { return };
        let known = self.clients.of_session(&session);
        self.gate(parts, peer).equals.cancel(&delivery::Request { connection: session, id: id.clone() });
        if known.cancelled(&id).await
            && let Ok(tenant) = self.tenant(parts, peer)
        {
            let server = Arc::clone(self);
            tokio::spawn(async move { known.remember(server.callers.books(), &tenant).await });
        }
    }

    /// A client reads on from before an answer, which it did not get then; or it ends its session in order.
    pub(super) async fn heard_without_message(&self, parts: &request::Parts, peer: Peer) {
        let Some(session) = self.client(parts, peer) else { return };
        if parts.method == Method::DELETE {
            if let Some(known) = self.clients.leave(&session) {
                known.ended(true).await;
            }
        } else if let Some(at) = parts.headers.get(LAST_EVENT).and_then(|at| at.to_str().ok()) {
            self.clients.of_session(&session).reads_on(at).await;
        }
    }

    /// Which client it is, by its session; `None` for one that has none. Whose it is belongs to it: another tenant may know the
    /// name of a session.
    pub(super) fn client(&self, parts: &request::Parts, peer: Peer) -> Option<String> {
        let session = session(&parts.headers)?;
        let tenant = self.tenant(parts, peer).ok();
        Some(tenant.map_or_else(|| session.clone(), |tenant| of_tenant(&session, &tenant)))
    }
}

/// A session of a tenant.
fn of_tenant(session: &str, tenant: &Tenant) -> String {
    format!("{session} of {tenant}")
}
