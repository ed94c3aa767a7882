//! The subscriptions of a client of the modern protocol. A subscription is passed on to each server under the same id, so that
//! the servers' notifications can be passed on as they are.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::json;
use serde_json::value::RawValue;

use super::super::members::Members;
use super::super::message::{self, Id};
use super::server::locked;

/// The member of `_meta` that names the subscription of a notification.
const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The first notification of a subscription.
pub(super) const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// All subscriptions, by the id of their request.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(Mutex<HashMap<Id, Subscription>>);

/// One subscription.
#[derive(Clone, Debug)]
pub(super) struct Subscription {
    /// The id, as the client wrote it.
    written: Box<RawValue>,
    /// The notifications that the client wants.
    pub(super) wanted: Members,
}

impl Subscriptions {
    pub(super) fn add(&self, id: Id, written: &RawValue, parameters: &Members) -> Subscription {
        let wanted = parameters.object("notifications").unwrap_or_default();
        let subscription = Subscription { written: written.to_owned(), wanted };
        locked(&self.0).insert(id, subscription.clone());
        subscription
    }

    /// Limits a subscription to what the servers can send. `None` when it has ended.
    pub(super) fn limit(&self, id: &Id, wanted: Members) -> Option<Subscription> {
        let mut all = locked(&self.0);
        let subscription = all.get_mut(id)?;
        subscription.wanted = wanted;
        Some(subscription.clone())
    }

    pub(super) fn has(&self, id: &Id) -> bool {
        locked(&self.0).contains_key(id)
    }

    pub(super) fn remove(&self, id: &Id) -> Option<Subscription> {
        locked(&self.0).remove(id)
    }

    /// The lines of a notification from a server without subscriptions: one for each subscription that wants it.
    pub(super) fn notifications(&self, method: &str, members: &Members) -> Vec<Vec<u8>> {
        let uri = members.object("params").and_then(|parameters| parameters.text("uri"));
        let wants = |subscription: &&Subscription| match method {
            "notifications/tools/list_changed" => subscription.is_for("toolsListChanged"),
            "notifications/prompts/list_changed" => subscription.is_for("promptsListChanged"),
            "notifications/resources/list_changed" => subscription.is_for("resourcesListChanged"),
            "notifications/resources/updated" => uri.as_ref().is_some_and(|uri| subscription.resources().contains(uri)),
            _ => false,
        };
        locked(&self.0).values().filter(wants).map(|subscription| subscription.line(members)).collect()
    }
}

impl Subscription {
    fn is_for(&self, name: &str) -> bool {
        self.wanted.get(name).is_some_and(|wanted| wanted.get() == "true")
    }

    /// The resources whose changes are wanted.
    pub(super) fn resources(&self) -> Vec<String> {
        let resources = self.wanted.get("resourceSubscriptions");
        resources.and_then(|resources| serde_json::from_str(resources.get()).ok()).unwrap_or_default()
    }

    /// The notification that the subscription has begun.
    pub(super) fn acknowledged(&self) -> Vec<u8> {
        let mut members = message::notification(ACKNOWLEDGED);
        members.set("params", &json!({ "notifications": self.wanted }));
        self.line(&members)
    }

    fn line(&self, members: &Members) -> Vec<u8> {
        let (mut members, mut parameters) = (members.clone(), members.object("params").unwrap_or_default());
        let mut meta = parameters.object("_meta").unwrap_or_default();
        meta.set(SUBSCRIPTION_ID, &self.written);
        parameters.set("_meta", &meta);
        members.set("params", &parameters);
        message::to_line(&members)
    }
}

/// A notification for a client that does not know subscriptions.
pub(super) fn without_subscription(members: &Members) -> Members {
    let mut members = members.clone();
    let Some(mut parameters) = members.object("params") else { return members };
    let Some(mut meta) = parameters.object("_meta") else { return members };
    meta.remove(SUBSCRIPTION_ID);
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
    fn a_notification_reaches_the_subscriptions_that_want_it_and_names_them() {
        let (subscriptions, id) = (Subscriptions::default(), Id::Text("listen:0".to_owned()));
        let wants = r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["memo://1"]}}"#;
        let written = RawValue::from_string("\"listen:0\"".to_owned()).unwrap();
        let subscription = subscriptions.add(id.clone(), &written, &Members::read(wants).unwrap());
        let begun = String::from_utf8(subscription.acknowledged()).unwrap();
        assert!(
            begun.contains(ACKNOWLEDGED)
                && begun.contains(r#""_meta":{"io.modelcontextprotocol/subscriptionId":"listen:0"}"#)
        );
        let told = |method: &str, parameters: &str| {
            let news = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{parameters}}}"#);
            subscriptions.notifications(method, &Members::read(&news).unwrap()).len()
        };
        assert_eq!(told("notifications/tools/list_changed", "{}"), 1);
        assert_eq!(told("notifications/prompts/list_changed", "{}"), 0);
        assert_eq!(told("notifications/resources/updated", r#"{"uri":"memo://1"}"#), 1);
        assert_eq!(told("notifications/resources/updated", r#"{"uri":"memo://2"}"#), 0);
        assert!(subscriptions.has(&id) && subscriptions.remove(&id).is_some());
        assert_eq!(told("notifications/tools/list_changed", "{}"), 0);
    }

    #[test]
    fn a_client_that_has_not_subscribed_sees_no_subscription_id() {
        let news = r#"{"method":"m","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"uri":"u"}}"#;
        assert_eq!(
            without_subscription(&Members::read(news).unwrap()).to_json(),
            r#"{"method":"m","params":{"uri":"u"}}"#
        );
    }
}
