//! Who listens for news, in the generation in which clients say so: one request to the client is one to each server, under the
//! same id, so that what they say about it can be passed on as it is.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::json;
use serde_json::value::RawValue;

use super::super::members::Members;
use super::super::message::{self, Id};
use super::server::held;

/// Says which request a piece of news belongs to.
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// The first thing that who listens is told.
pub(super) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// Everybody who listens.
#[derive(Debug, Default)]
pub(super) struct Listens(Mutex<HashMap<Id, Listen>>);

/// Somebody who listens.
#[derive(Clone, Debug)]
pub(super) struct Listen {
    /// The id, as it was written.
    written: Box<RawValue>,
    /// To what.
    pub(super) wants: Members,
}

impl Listens {
    pub(super) fn enter(&self, id: Id, written: &RawValue, parameters: &Members) -> Listen {
        let wants = parameters.object("notifications").unwrap_or_default();
        let listen = Listen { written: written.to_owned(), wants };
        held(&self.0).insert(id, listen.clone());
        listen
    }

    /// What of it can be had. `None` when nobody listens any more.
    pub(super) fn agree(&self, id: &Id, wants: Members) -> Option<Listen> {
        let mut all = held(&self.0);
        let listen = all.get_mut(id)?;
        listen.wants = wants;
        Some(listen.clone())
    }

    pub(super) fn has(&self, id: &Id) -> bool {
        held(&self.0).contains_key(id)
    }

    pub(super) fn leave(&self, id: &Id) -> Option<Listen> {
        held(&self.0).remove(id)
    }

    /// News of a server that tells them to everybody, for those who want to hear it: one line each.
    pub(super) fn told(&self, method: &str, members: &Members) -> Vec<Vec<u8>> {
        let uri = members.object("params").and_then(|parameters| parameters.text("uri"));
        let wanted = |listen: &&Listen| match method {
            "notifications/tools/list_changed" => listen.is_for("toolsListChanged"),
            "notifications/prompts/list_changed" => listen.is_for("promptsListChanged"),
            "notifications/resources/list_changed" => listen.is_for("resourcesListChanged"),
            "notifications/resources/updated" => uri.as_ref().is_some_and(|uri| listen.resources().contains(uri)),
            _ => false,
        };
        held(&self.0).values().filter(wanted).map(|listen| listen.line(members)).collect()
    }
}

impl Listen {
    fn is_for(&self, name: &str) -> bool {
        self.wants.get(name).is_some_and(|wanted| wanted.get() == "true")
    }

    /// The resources whose changes are wanted.
    pub(super) fn resources(&self) -> Vec<String> {
        let resources = self.wants.get("resourceSubscriptions");
        resources.and_then(|resources| serde_json::from_str(resources.get()).ok()).unwrap_or_default()
    }

    /// That it has begun.
    pub(super) fn acknowledged(&self) -> Vec<u8> {
        let mut members = message::told(ACKNOWLEDGED);
        members.set("params", &json!({ "notifications": self.wants }));
        self.line(&members)
    }

    fn line(&self, members: &Members) -> Vec<u8> {
        let (mut members, mut parameters) = (members.clone(), members.object("params").unwrap_or_default());
        let mut meta = parameters.object("_meta").unwrap_or_default();
        meta.set(SUBSCRIPTION, &self.written);
        parameters.set("_meta", &meta);
        members.set("params", &parameters);
        message::ended(&members)
    }
}

/// News for a client that has not asked for them by a request of its own.
pub(super) fn for_everybody(members: &Members) -> Members {
    let mut members = members.clone();
    let Some(mut parameters) = members.object("params") else { return members };
    let Some(mut meta) = parameters.object("_meta") else { return members };
    meta.remove(SUBSCRIPTION);
    if meta.len() == 0 {
        parameters.remove("_meta");
    } else {
        parameters.set("_meta", &meta);
    }
    members.set("params", &parameters);
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_reach_those_who_listen_and_say_to_whom() {
        let (listens, id) = (Listens::default(), Id::Text("listen:0".to_owned()));
        let wants = r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["memo://1"]}}"#;
        let written = RawValue::from_string("\"listen:0\"".to_owned()).unwrap();
        let listen = listens.enter(id.clone(), &written, &Members::read(wants).unwrap());
        let begun = String::from_utf8(listen.acknowledged()).unwrap();
        assert!(
            begun.contains(ACKNOWLEDGED)
                && begun.contains(r#""_meta":{"io.modelcontextprotocol/subscriptionId":"listen:0"}"#)
        );
        let told = |method: &str, parameters: &str| {
            let news = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{parameters}}}"#);
            listens.told(method, &Members::read(&news).unwrap()).len()
        };
        assert_eq!(told("notifications/tools/list_changed", "{}"), 1);
        assert_eq!(told("notifications/prompts/list_changed", "{}"), 0);
        assert_eq!(told("notifications/resources/updated", r#"{"uri":"memo://1"}"#), 1);
        assert_eq!(told("notifications/resources/updated", r#"{"uri":"memo://2"}"#), 0);
        assert!(listens.has(&id) && listens.leave(&id).is_some());
        assert_eq!(told("notifications/tools/list_changed", "{}"), 0);
    }

    #[test]
    fn who_did_not_ask_sees_no_subscription() {
        let news = r#"{"method":"m","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"uri":"u"}}"#;
        assert_eq!(for_everybody(&Members::read(news).unwrap()).written(), r#"{"method":"m","params":{"uri":"u"}}"#);
    }
}
