//! For every input: no panic, no forgery, and every body that is signed correctly is accepted.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::identity::hex_mac;
use super::*;

static SAMPLES: LazyLock<Vec<(String, Sample)>> = LazyLock::new(|| every_genuine().collect());

fn any_header_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>().prop_filter("allowed in headers", |byte| *byte >= 32 && *byte != 127), 0..80),
        "(t=[0-9]{0,12})?(,(v[01]|t| )=?[0-9a-f]{0,64}){0,20}".prop_map(String::into_bytes),
        "(v1a?,[A-Za-z0-9+/]{0,44}={0,2} ?){0,20}".prop_map(String::into_bytes),
        "(sha256|v0|sha1)=[0-9a-fA-F]{0,64}".prop_map(String::into_bytes),
        "[0-9]{0,20}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn no_invented_request_is_genuine(
        number in any::<prop::sample::Index>(),
        values in prop::collection::vec(any_header_value(), 3),
        body in prop::collection::vec(any::<u8>(), 0..200),
        keeps_body in any::<bool>(),
    ) {
        let (name, sample) = &SAMPLES[number.index(SAMPLES.len())];
        let mut invented = sample.clone();
        for ((_, value), made_up) in invented.headers.iter_mut().zip(values) {
            *value = made_up;
        }
        if !keeps_body {
            invented.body = body;
        }
        prop_assert!(invented.verify().is_err(), "{name}");
    }

    #[test]
    fn a_changed_webhook_is_never_another_event(
        number in any::<prop::sample::Index>(),
        part in any::<prop::sample::Index>(),
        position in any::<prop::sample::Index>(),
        byte in any::<u8>().prop_filter("allowed in headers", |byte| *byte >= 32 && *byte != 127),
    ) {
        let (name, sample) = &SAMPLES[number.index(SAMPLES.len())];
        let mut changed = sample.clone();
        let parts = changed.headers.len() + 1;
        let part = part.index(parts);
        let bytes = match part {
            0 => &mut changed.body,
            part => &mut changed.headers[part - 1].1,
        };
        if !bytes.is_empty() {
            let position = position.index(bytes.len());
            bytes[position] = byte;
        }
        // A change of what is not signed, or of the case of hex digits, may pass, and then it is the same event.
        if let Ok(verified) = changed.verify() {
            let genuine = sample.verify().unwrap();
            prop_assert_eq!((verified.key, verified.fingerprint), (genuine.key, genuine.fingerprint), "{}", name);
        }
    }

    #[test]
    fn every_body_that_is_signed_is_an_event(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let settings = json!({ "hmac": { "header": "X-Signature" } });
        let sample = Sample {
            signing: signing("hmac", &["0123456789abcdef0123456789abcdef".to_owned()], settings),
            headers: vec![("X-Signature".to_owned(), hex_mac(&body).into_bytes())],
            body,
            now: Timestamp::from_millis(0),
        };
        prop_assert!(sample.verify().is_ok());
    }
}
