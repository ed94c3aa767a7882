//! What a forger or a proxy may change, and how long a captured webhook can be replayed.

use super::*;

/// The headers that are signed or are the signature.
fn signed_headers(name: &str) -> &'static [&'static str] {
    match name.split(':').next().unwrap_or_default() {
        "stripe" => &["Stripe-Signature"],
        "github" => &["X-Hub-Signature-256"],
        "slack" => &["X-Slack-Signature", "X-Slack-Request-Timestamp"],
        "standard webhooks" if name.contains("Svix") => &["svix-id", "svix-timestamp", "svix-signature"],
        "standard webhooks" => &["webhook-id", "webhook-timestamp", "webhook-signature"],
        _ if name.contains("base64") => &["X-Shop-Hmac"],
        _ => &["X-Sign", "X-Time"],
    }
}

#[test]
fn no_bit_of_the_body_can_be_changed() {
    for (name, sample) in every_genuine() {
        for position in 0..sample.body.len() {
            for bit in [0, 3, 7] {
                let mut forged = sample.clone();
                forged.body[position] ^= 1 << bit;
                assert_eq!(forged.verify(), Err(Refused::WrongSignature), "{name}: byte {position}");
            }
        }
    }
}

#[test]
fn nothing_can_be_added_to_the_body_or_cut_off() {
    for (name, sample) in every_genuine() {
        for (start, end) in [("", "\n"), (" ", ""), ("", "\0"), ("{}", "")] {
            let body = [start.as_bytes(), &sample.body, end.as_bytes()].concat();
            let forged = Sample { body, ..sample.clone() };
            assert_eq!(forged.verify(), Err(Refused::WrongSignature), "{name}");
        }
        for length in 0..sample.body.len() {
            let forged = Sample { body: sample.body[..length].to_vec(), ..sample.clone() };
            assert_eq!(forged.verify(), Err(Refused::WrongSignature), "{name}");
        }
    }
}

#[test]
fn no_character_of_a_signed_header_can_be_replaced() {
    for (name, sample) in every_genuine().filter(|(name, _)| !name.contains("two secrets")) {
        for header in signed_headers(&name) {
            let value = sample.value(header).as_bytes().to_vec();
            for position in 0..value.len() {
                // Of each class of bytes: a digit, letters of both cases, separators, and one that is not ASCII.
                for replacement in [b'0', b'9', b'a', b'F', b'z', b'=', b',', b'.', b' ', 0xff] {
                    let mut changed = value.clone();
                    changed[position] = replacement;
                    // Hex digits have two cases, and both mean the same.
                    if changed.eq_ignore_ascii_case(&value) {
                        continue;
                    }
                    let forged = sample.with(header, &changed);
                    assert!(forged.verify().is_err(), "{name}: {header} with {replacement} at {position}");
                }
            }
        }
    }
}

#[test]
fn no_signed_header_can_be_left_out_or_sent_twice() {
    for (name, sample) in every_genuine() {
        for header in signed_headers(&name) {
            let refused = sample.without(header).verify().unwrap_err();
            assert_eq!(refused.kind(), "missing_header", "{name}: {header}");
            let mut twice = sample.clone();
            twice.headers.push(((*header).to_owned(), sample.value(header).as_bytes().to_vec()));
            assert_eq!(twice.verify().unwrap_err().kind(), "repeated_header", "{name}: {header}");
            twice.headers.rotate_right(1);
            assert_eq!(twice.verify().unwrap_err().kind(), "repeated_header", "{name}: {header}");
        }
    }
}

#[test]
fn another_secret_verifies_nothing() {
    for (name, sample) in every_genuine() {
        let scheme = sample.signing.scheme.clone();
        let other = signing("stripe", &["another secret, just as long".to_owned()], Value::Null).secrets;
        let forged = Sample { signing: Signing { scheme, secrets: other, ..sample.signing.clone() }, ..sample };
        assert_eq!(forged.verify(), Err(Refused::WrongSignature), "{name}");
    }
}

#[test]
fn without_a_secret_nothing_is_genuine() {
    for (name, sample) in every_genuine() {
        let signing = Signing { secrets: Vec::new(), ..sample.signing.clone() };
        assert_eq!(Sample { signing, ..sample }.verify(), Err(Refused::WrongSignature), "{name}");
    }
}

#[test]
fn while_a_secret_is_rotated_the_old_and_the_new_one_count() {
    let sample = genuine("stripe: an event");
    let secrets = ["another secret, just as long", "whsec_5f2b0c9a7d3e4f61"].map(str::to_owned);
    for secrets in [secrets.clone(), [secrets[1].clone(), secrets[0].clone()]] {
        let rotated = Sample { signing: signing("stripe", &secrets, Value::Null), ..sample.clone() };
        assert!(rotated.verify().is_ok());
    }
}

#[test]
fn a_webhook_is_genuine_only_for_as_long_as_the_tolerance() {
    let sample = genuine("stripe: an event").later(-1000);
    let tolerance = sample.signing.tolerance.as_millis() as i64;
    assert_eq!(tolerance, 300_000);
    for milliseconds in [-tolerance, 0, tolerance] {
        assert!(sample.later(milliseconds).verify().is_ok(), "{milliseconds}");
    }
    for (milliseconds, kind) in [(tolerance + 1, "too_old"), (-tolerance - 1, "too_new"), (i64::MAX / 2, "too_old")] {
        assert_eq!(sample.later(milliseconds).verify().unwrap_err().kind(), kind);
    }
}

#[test]
fn every_scheme_that_signs_a_time_compares_it() {
    let hour = 3_600_000;
    for (name, sample) in every_genuine() {
        let signs_time = !name.starts_with("github") && !name.contains("base64");
        for (milliseconds, kind) in [(hour, "too_old"), (-hour, "too_new")] {
            let result = sample.later(milliseconds).verify();
            let expected = signs_time.then_some(kind);
            assert_eq!(result.err().map(|refused| refused.kind()), expected, "{name}");
        }
    }
}

#[test]
fn a_configured_tolerance_counts() {
    let mut sample = genuine("slack: an event").later(-300_000);
    sample.signing.tolerance = std::time::Duration::from_secs(10);
    assert!(sample.later(10_000).verify().is_ok());
    assert_eq!(sample.later(10_001).verify().unwrap_err().kind(), "too_old");
}

#[test]
fn a_signature_of_an_older_scheme_alone_is_not_enough() {
    let stripe = genuine("stripe: an event");
    let older = stripe.value("Stripe-Signature").replace("v1=", "v0=");
    assert_eq!(stripe.with("Stripe-Signature", older).verify(), Err(Refused::WrongSignature));
    let github = genuine("github: the published test values");
    assert_eq!(github.without("X-Hub-Signature-256").verify().unwrap_err().kind(), "missing_header");
    let standard = genuine("standard webhooks: an event");
    let other = standard.value("webhook-signature").replace("v1,", "v1a,");
    assert_eq!(standard.with("webhook-signature", other).verify(), Err(Refused::WrongSignature));
}

#[test]
fn a_genuine_webhook_of_one_provider_is_refused_for_another() {
    let all: Vec<_> = every_genuine().collect();
    for (name, sample) in &all {
        for (other_name, other) in &all {
            let family = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
            if family(name) != family(other_name) {
                let signing = Signing { scheme: other.signing.scheme.clone(), ..sample.signing.clone() };
                assert!(Sample { signing, ..sample.clone() }.verify().is_err(), "{name} as {other_name}");
            }
        }
    }
}

#[test]
fn a_part_of_a_genuine_body_cannot_be_passed_off_as_its_time() {
    let secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
    let body = b"1763500000.{}";
    let message = [b"msg_1.1600000000.", &body[..]].concat();
    let mac = onceward::core::hash::hmac(b"0123456789abcdef0123456789abcdef", &message);
    let signature = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, mac.as_bytes());
    let sample = |id: &str, time: &str, body: &[u8]| Sample {
        signing: signing("standard_webhooks", &[secret.to_owned()], Value::Null),
        headers: vec![
            ("webhook-id".to_owned(), id.as_bytes().to_vec()),
            ("webhook-timestamp".to_owned(), time.as_bytes().to_vec()),
            ("webhook-signature".to_owned(), format!("v1,{signature}").into_bytes()),
        ],
        body: body.to_vec(),
        now: Timestamp::from_millis(1_763_500_000_000),
    };
    let genuine = sample("msg_1", "1600000000", body);
    assert!(genuine.later(-163_500_000_000).verify().is_ok());
    assert_eq!(genuine.verify().unwrap_err().kind(), "too_old");
    let forged = sample("msg_1.1600000000", "1763500000", b"{}");
    assert_eq!(forged.verify().unwrap_err().kind(), "malformed_header");
}
