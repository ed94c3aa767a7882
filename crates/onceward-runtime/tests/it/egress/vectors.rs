//! The table of URLs and resolver answers that must not lead to a connection.

use std::net::IpAddr;
use std::sync::Arc;

use onceward_runtime::egress::{
    AddressRules, AllowedHosts, Client, NotSent, Refusal, Resolve, Resolving, Sent, Target,
};
use serde::Deserialize;

use super::servers::Counter;
use super::{SHORT, get, settings};

#[derive(Deserialize)]
struct Group {
    about: String,
    rules: Rules,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    #[serde(default)]
    allow_private: bool,
    allowed_hosts: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    url: String,
    /// By default this machine, where a listener would count the connection.
    #[serde(default = "this_machine")]
    resolves_to: Vec<IpAddr>,
    /// What refuses it; `null` if it is permitted.
    refused: Option<String>,
}

fn this_machine() -> Vec<IpAddr> {
    vec![[127, 0, 0, 1].into()]
}

/// Answers every name the same.
struct Always(Vec<IpAddr>);

impl Resolve for Always {
    fn resolve<'a>(&'a self, _: &'a str) -> Resolving<'a> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

fn groups() -> Vec<Group> {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

fn rules(rules: &Rules) -> AddressRules {
    let allowed_hosts = rules.allowed_hosts.as_ref().map(|hosts| AllowedHosts::parse(hosts).unwrap());
    AddressRules { allow_private: rules.allow_private, allowed_hosts }
}

fn label(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Url(fault) => format!("{fault:?}"),
        Refusal::Host(_) => "Host".to_owned(),
        Refusal::Address { network, .. } => format!("{network:?}"),
    }
}

#[tokio::test]
async fn nothing_is_dialled_that_the_rules_refuse() {
    let counter = Counter::start().await;
    let (mut expected, mut refused) = (0, 0);
    for group in groups() {
        for vector in group.vectors {
            let mut settings = settings();
            settings.rules = rules(&group.rules);
            settings.resolver = Arc::new(Always(vector.resolves_to));
            let url = vector.url.replace("{port}", &counter.port.to_string());
            let sent = Client::new(settings).unwrap().send(get(&url)).await;
            let found = match &sent {
                Sent::NotSent(NotSent::Refused(refusal)) => Some(label(refusal)),
                Sent::Answered(_) => None,
                other => panic!("{}: {url:?}: {other:?}", group.about),
            };
            assert_eq!(found, vector.refused, "{}: {url:?}", group.about);
            refused += usize::from(found.is_some());
            expected += usize::from(found.is_none());
            assert_eq!(counter.connections("127.0.0.1").await, expected, "{}: {url:?}", group.about);
        }
    }
    assert!(refused >= 400 && expected >= 8, "{refused} {expected}");
}

/// What the configuration checks is what is checked again for each request.
#[test]
fn a_url_is_refused_in_the_configuration_for_the_same_reason() {
    for group in groups() {
        for vector in group.vectors {
            let url = vector.url.replace("{port}", "8080");
            let by_address = vector.refused.as_deref().is_some_and(|label| {
                matches!(Target::parse(&url, &rules(&group.rules)), Err(refusal) if self::label(&refusal) == label)
            });
            // The rest can only be known when the name is resolved.
            let host_is_name = Target::parse(&url, &rules(&group.rules)).is_ok();
            assert!(by_address || host_is_name, "{}: {url:?}", group.about);
        }
    }
}

#[tokio::test]
async fn a_url_that_is_too_long_is_refused() {
    let counter = Counter::start().await;
    let url = format!("http://127.0.0.1:{}/{}", counter.port, "a".repeat(9_000));
    let mut settings = settings();
    settings.limits.total = SHORT;
    assert!(matches!(
        Client::new(settings).unwrap().send(get(url)).await,
        Sent::NotSent(NotSent::Refused(Refusal::Url(_)))
    ));
    assert_eq!(counter.connections("127.0.0.1").await, 0);
}
