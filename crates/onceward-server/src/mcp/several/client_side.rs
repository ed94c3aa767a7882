//! What the hub knows of its client: who it is, what it has got, what it has cancelled, and how it ends.

use std::io;
use std::sync::Arc;

use super::super::delivery::{self, Receipt};
use super::super::members::Members;
use super::super::message::Id;
use super::super::stdio::{all_is_read, place};
use super::super::waiting::Cancelled;
use super::era::Era;
use super::gather;
use super::hub::Hub;

impl Hub {
    /// The client says who it is.
    pub(super) fn introduced(self: &Arc<Self>, era: Era, parameters: &Members) {
        if self.known.is_introduced() {
            return;
        }
        self.known.introduce(parameters, era == Era::Modern);
        let hub = Arc::clone(self);
        self.runtime.spawn(async move {
            if let Some(server) = hub.servers.first() {
                hub.known.recall(&server.gate.books, &hub.tenant).await;
            }
        });
    }

    /// The client sends nothing more. It has ended in order if it has read everything that was written for it.
    pub(super) fn client_ended(&self) {
        self.known.ends();
        self.runtime.block_on(async { self.known.ended(all_is_read(io::stdout()).await).await });
    }

    pub(super) fn cancelled(self: &Arc<Self>, members: &Members, line: &[u8]) {
        let parameters = members.object("params");
        let id = parameters.as_ref().and_then(|parameters| parameters.get("requestId")).and_then(Id::read);
        let Some(id) = id else { return };
        if let Some(listen) = self.listens.leave(&id) {
            gather::watch(self, &listen, "resources/unsubscribe");
        }
        let request = delivery::Request { connection: self.connection.clone(), id: id.clone() };
        for server in &self.servers {
            server.gate.equals.cancel(&request);
        }
        if self.runtime.block_on(self.known.cancelled(&id)) {
            let hub = Arc::clone(self);
            self.runtime.spawn(async move {
                if let Some(server) = hub.servers.first() {
                    hub.known.remember(&server.gate.books, &hub.tenant).await;
                }
            });
        }
        let place = place(id);
        for server in self.servers.iter().filter(|server| server.wire.waiting().has(&place)) {
            if server.wire.waiting().cancel(parameters.as_ref(), "") == Cancelled::Pass {
                server.tell(line);
            }
        }
    }

    /// Gives the client the answer to a call.
    pub(super) fn give(&self, id: &Id, line: &[u8], receipt: Option<Receipt>) {
        if let Some(receipt) = &receipt {
            receipt.open.writing();
        }
        let is_written = self.tell_whole(line);
        if let Some(receipt) = receipt.filter(|_| is_written) {
            self.known.got(id, receipt);
        }
    }
}
