//! Which event a webhook is.

use onceward_runtime::config::SignatureScheme;

use super::*;

#[test]
fn a_redelivered_stripe_event_is_the_same_event() {
    let first = genuine("stripe: an event");
    let again = genuine("stripe: the same event, delivered again");
    assert_ne!(first.body, again.body);
    let (first, again) = (first.verify().unwrap(), again.verify().unwrap());
    assert_eq!((&first.key, first.fingerprint), (&again.key, again.fingerprint));
    assert_ne!(first.at, again.at);
}

#[test]
fn an_unsigned_id_makes_no_other_event_of_the_same_body() {
    let github = genuine("github: the published test values");
    let (one, other, none) = (
        github.verify().unwrap(),
        github.with("X-GitHub-Delivery", "another").verify().unwrap(),
        github.without("X-GitHub-Delivery").verify().unwrap(),
    );
    assert_eq!(other.event_id.unwrap().as_str(), "another");
    assert_eq!(none.event_id, None);
    assert!(!one.id_is_signed && !other.id_is_signed);
    assert_eq!((&one.key, one.fingerprint), (&other.key, other.fingerprint));
    assert_eq!((one.key, one.fingerprint), (none.key, none.fingerprint));
}

#[test]
fn different_events_have_different_keys_and_fingerprints() {
    let verified: Vec<_> = every_genuine().map(|(name, sample)| (name, sample.verify().unwrap())).collect();
    for (position, (name, one)) in verified.iter().enumerate() {
        for (other_name, other) in &verified[position + 1..] {
            let is_same = one.key == other.key;
            assert_eq!(is_same, one.fingerprint == other.fingerprint, "{name} and {other_name}");
            let is_expected = one.id_is_signed && one.event_id == other.event_id;
            assert_eq!(is_same, is_expected, "{name} and {other_name}");
        }
    }
}

#[test]
fn a_signed_body_without_a_usable_id_is_refused_as_genuine() {
    let id = "/order/id";
    for (body, kind) in [
        (r#"{"order":{"id":7}}"#, "no_event_id"),
        (r#"{"order":{}}"#, "no_event_id"),
        ("[]", "no_event_id"),
        (r#"{"order":{"id":""}}"#, "bad_event_id"),
        (r#"{"order":{"id":"a\nb"}}"#, "bad_event_id"),
        ("order=7", "bad_body"),
        ("", "bad_body"),
    ] {
        let refused = own_hmac(body.as_bytes(), Some(id)).verify().unwrap_err();
        assert_eq!(refused.kind(), kind, "{body}");
        assert!(refused.is_genuine());
    }
    let long = format!("{{\"order\":{{\"id\":{:?}}}}}", "x".repeat(256));
    assert_eq!(own_hmac(long.as_bytes(), Some(id)).verify().unwrap_err().kind(), "bad_event_id");
}

#[test]
fn the_rest_of_a_signed_body_may_be_any_json() {
    for rest in [r#""n":0.1234567890123456789012345"#, r#""n":1e400"#, r#""s":"\ud800""#, r#""x":1,"x":2"#] {
        let body = format!(r#"{{"order":{{"id":"7"}},{rest}}}"#);
        assert_eq!(own_hmac(body.as_bytes(), Some("/order/id")).verify().unwrap().key.as_str(), "7", "{rest}");
    }
}

#[test]
fn without_a_pointer_to_an_id_every_signed_body_is_an_event() {
    for body in [&b""[..], b"order=7", b"\xff\0", b"{\"a\":1,\"a\":2}"] {
        let verified = own_hmac(body, None).verify().unwrap();
        assert!(verified.key.as_str().starts_with("sha256:") && verified.event_id.is_none());
    }
}

#[test]
fn a_challenge_that_is_missing_or_endless_is_not_sent_back() {
    for challenge in [String::new(), format!(",\"challenge\":{:?}", "x".repeat(1025)), ",\"challenge\":1".to_owned()] {
        let body = format!("{{\"type\":\"url_verification\"{challenge}}}");
        assert_eq!(own_slack(body.as_bytes()).verify().unwrap_err().kind(), "no_event_id");
    }
    let body = br#"{"type":"url_verification","challenge":"abc","event_id":"Ev1"}"#;
    assert_eq!(own_slack(body).verify().unwrap().challenge.as_deref(), Some("abc"));
}

#[test]
fn a_slack_event_without_its_id_is_refused() {
    assert_eq!(own_slack(br#"{"type":"event_callback"}"#).verify().unwrap_err().kind(), "no_event_id");
    assert_eq!(own_slack(br#"  {"type":"event_callback","event_id":"Ev1"}"#).verify().unwrap().key.as_str(), "Ev1");
    assert_eq!(own_slack(br#"{"type":"#).verify().unwrap_err().kind(), "bad_body");
}

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A body that this test signs itself.
fn own_hmac(body: &[u8], id: Option<&str>) -> Sample {
    let settings = json!({ "hmac": { "header": "X-Signature", "id": id } });
    Sample {
        signing: signing("hmac", &[SECRET.to_owned()], settings),
        headers: vec![("X-Signature".to_owned(), hex_mac(body).into_bytes())],
        body: body.to_vec(),
        now: Timestamp::from_millis(0),
    }
}

fn own_slack(body: &[u8]) -> Sample {
    let message = [b"v0:1763500000:", body].concat();
    let sample = Sample {
        signing: signing("slack", &[SECRET.to_owned()], Value::Null),
        headers: vec![("X-Slack-Request-Timestamp".to_owned(), b"1763500000".to_vec())],
        body: body.to_vec(),
        now: Timestamp::from_millis(1_763_500_000_000),
    };
    assert!(matches!(sample.signing.scheme, SignatureScheme::Slack));
    sample.with("X-Slack-Signature", format!("v0={}", hex_mac(&message)))
}

/// Core's HMAC, which has nothing in common with the one that verifies.
pub(super) fn hex_mac(message: &[u8]) -> String {
    onceward::core::hash::hmac(SECRET.as_bytes(), message).to_hex()
}
