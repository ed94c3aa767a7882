//! Malformed requests, limits, and what messages show.

use super::*;

#[test]
fn a_malformed_signature_is_refused_without_a_panic() {
    let zeros = "0".repeat(64);
    let endless = "v1=00,".repeat(17);
    for (name, header, values) in [
        (
            "stripe: an event",
            "Stripe-Signature",
            vec![
                "",
                "t",
                "t=",
                "t=1763500000",
                "v1=00",
                ",",
                "=",
                "t=1763500000,,v1=00",
                "t=1,t=1763500000,v1=00",
                &endless,
            ],
        ),
        ("github: the published test values", "X-Hub-Signature-256", vec!["", "sha256", "sha256=", "sha1=00", &zeros]),
        ("slack: an event", "X-Slack-Signature", vec!["", "v0", "v0=", "v1=00", &zeros]),
        ("standard webhooks: an event", "webhook-signature", vec!["", "v1", "v1,", "v1,v1,", "v2,AAAA", " ", &zeros]),
        (
            "hmac: SHA-512 over time and body, with an id",
            "X-Sign",
            vec!["", "t512", "t512:", "t512:0", "T512:00", &zeros],
        ),
    ] {
        for value in values {
            let refused = genuine(name).with(header, value).verify().unwrap_err();
            assert!(["malformed_header", "wrong_signature"].contains(&refused.kind()), "{name} {value:?}: {refused}");
        }
    }
}

#[test]
fn a_malformed_time_is_refused() {
    let times = [
        "",
        " ",
        "-1",
        "+1763500000",
        "1763500000.5",
        "1763500000 ",
        "1763500000000",
        "0x691d2a20",
        "1e9",
        "99999999999999999999999",
        "now",
        "2025-11-18T21:06:40Z",
    ];
    for time in times {
        let stripe = genuine("stripe: an event");
        let header = stripe.value("Stripe-Signature").replace("1763500000", time);
        for refused in [
            stripe.with("Stripe-Signature", header).verify().unwrap_err(),
            genuine("slack: an event").with("X-Slack-Request-Timestamp", time).verify().unwrap_err(),
            genuine("standard webhooks: an event").with("webhook-timestamp", time).verify().unwrap_err(),
            genuine("hmac: SHA-512 over time and body, with an id").with("X-Time", time).verify().unwrap_err(),
        ] {
            assert_eq!(refused.kind(), "malformed_header", "{time:?}");
        }
    }
}

#[test]
fn too_many_headers_signatures_and_bytes_are_refused() {
    let sample = genuine("stripe: an event");
    let mut crowded = sample.clone();
    crowded.headers.extend((0..super::super::MAX_HEADERS).map(|number| (format!("x-{number}"), Vec::new())));
    assert_eq!(crowded.verify(), Err(Refused::TooManyHeaders));
    let large = Sample { body: vec![b' '; super::super::MAX_BODY + 1], ..sample.clone() };
    assert_eq!(large.verify(), Err(Refused::BodyTooLarge));
    let right = sample.value("Stripe-Signature");
    let fifteen = format!("{right}{}", ",v1=00".repeat(14));
    assert!(sample.with("Stripe-Signature", fifteen).verify().is_ok());
    let many = format!("{right}{}", ",v1=00".repeat(15));
    assert_eq!(sample.with("Stripe-Signature", many).verify().unwrap_err().kind(), "malformed_header");
    let long = format!("{right},x={}", "0".repeat(4096));
    assert_eq!(sample.with("Stripe-Signature", long).verify().unwrap_err().kind(), "malformed_header");
    let standard = genuine("standard webhooks: an event");
    let right = standard.value("webhook-signature");
    let many = format!("{right}{}", " v1,AAAA".repeat(16));
    assert_eq!(standard.with("webhook-signature", many).verify().unwrap_err().kind(), "malformed_header");
}

#[test]
fn an_id_of_an_unusable_form_is_refused() {
    let github = genuine("github: the published test values");
    for (id, kind) in [("", "bad_event_id"), (&"x".repeat(256)[..], "bad_event_id"), ("é", "malformed_header")] {
        let refused = github.with("X-GitHub-Delivery", id).verify().unwrap_err();
        assert_eq!(refused.kind(), kind, "{id}");
    }
    let mut twice = github.clone();
    twice.headers.push(("x-github-delivery".to_owned(), b"2".to_vec()));
    assert_eq!(twice.verify().unwrap_err().kind(), "repeated_header");
}

#[test]
fn a_folded_second_signature_of_stripe_is_noticed() {
    let stripe = genuine("stripe: an event");
    let header = stripe.value("Stripe-Signature");
    let folded = format!("{header}, t=1,v1={}", "0".repeat(64));
    assert_eq!(stripe.with("Stripe-Signature", folded).verify().unwrap_err().kind(), "malformed_header");
}

#[test]
fn no_message_shows_a_secret_a_signature_or_the_body() {
    for (name, sample) in every_genuine() {
        let mut changes = vec![sample.later(3_600_000), sample.later(-3_600_000)];
        for (header, value) in &sample.headers {
            changes.push(sample.without(header));
            changes.push(sample.with(header, [value, &b"x"[..]].concat()));
            changes.push(sample.with(header, "secret-secret-secret"));
            changes.push(sample.with(header, [value, &b"\xff"[..]].concat()));
        }
        let mut body = sample.clone();
        body.body.push(b'}');
        changes.push(body);
        for refused in changes.iter().filter_map(|changed| changed.verify().err()) {
            let shown = format!("{refused} {refused:?} {:?}", sample.signing);
            for secret in ["secret-secret", "whsec_5f2b", "MfKQ9r8G", "C2FVsBQI", "charge.succeeded", "another shop"] {
                assert!(!shown.contains(secret), "{name}: {shown}");
            }
            let signature = sample.headers.iter().map(|(_, value)| String::from_utf8_lossy(value));
            assert!(
                signature.filter(|value| value.len() > 30).all(|value| !shown.contains(&*value)),
                "{name}: {shown}"
            );
        }
    }
}

#[test]
fn every_refusal_has_a_kind_of_its_own() {
    let header = || http::HeaderName::from_static("x");
    let all = [
        Refused::TooManyHeaders,
        Refused::BodyTooLarge,
        Refused::MissingHeader { header: header() },
        Refused::RepeatedHeader { header: header() },
        Refused::Malformed { header: header(), what: "" },
        Refused::TooOld { age: std::time::Duration::ZERO },
        Refused::TooNew { ahead: std::time::Duration::ZERO },
        Refused::WrongSignature,
        Refused::NotJson,
        Refused::NoEventId { pointer: String::new() },
        Refused::BadEventId(onceward::core::name::Key::new("").unwrap_err()),
    ];
    let kinds: std::collections::BTreeSet<_> = all.iter().map(Refused::kind).collect();
    assert_eq!(kinds.len(), all.len());
    assert_eq!(all.iter().filter(|refused| refused.is_genuine()).count(), 3);
}
