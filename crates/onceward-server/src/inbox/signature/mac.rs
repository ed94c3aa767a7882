//! Computes MACs and compares them in constant time, so that the response time reveals nothing about the right signature.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use onceward_runtime::config::{HmacEncoding, HmacHash, SigningSecret};
use sha2::{Sha256, Sha512};
use subtle::{Choice, ConstantTimeEq};

use super::Refused;

/// A provider signs with the old and the new secret while it rotates them; a list that is much longer is an attack.
pub(super) const MAX_SIGNATURES: usize = 16;

/// Checks that one of the secrets made one of the signatures. Every signature is compared with every secret.
pub(super) fn check(
    hash: HmacHash,
    secrets: &[SigningSecret],
    message: &[&[u8]],
    signatures: &[Vec<u8>],
) -> Result<(), Refused> {
    let mut is_genuine = Choice::from(0);
    for secret in secrets {
        let expected = match hash {
            HmacHash::Sha256 => mac::<Hmac<Sha256>>(secret, message),
            HmacHash::Sha512 => mac::<Hmac<Sha512>>(secret, message),
        };
        for signature in signatures {
            is_genuine |= expected.as_slice().ct_eq(signature);
        }
    }
    if bool::from(is_genuine) { Ok(()) } else { Err(Refused::WrongSignature) }
}

/// The MAC. HMAC takes keys of every length; for another one, the empty MAC equals no signature.
fn mac<M: Mac + KeyInit>(secret: &SigningSecret, message: &[&[u8]]) -> Vec<u8> {
    let Ok(mut mac) = <M as KeyInit>::new_from_slice(secret.as_bytes()) else { return Vec::new() };
    for part in message {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

/// The bytes of a signature; `None` if it is empty or has another form, and then equals no MAC.
pub(super) fn decoded(encoding: HmacEncoding, text: &str) -> Option<Vec<u8>> {
    let bytes = match encoding {
        HmacEncoding::Hex => from_hex(text)?,
        HmacEncoding::Base64 => STANDARD.decode(text).ok()?,
    };
    (!bytes.is_empty()).then_some(bytes)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? * 16 + digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceward_runtime::config::SignatureScheme;

    fn mac_of(hash: HmacHash, key: &[u8], message: &[u8]) -> String {
        let key = std::str::from_utf8(key).unwrap();
        let secret = SigningSecret::parse(&SignatureScheme::Stripe, key).unwrap();
        let bytes = match hash {
            HmacHash::Sha256 => mac::<Hmac<Sha256>>(&secret, &[message]),
            HmacHash::Sha512 => mac::<Hmac<Sha512>>(&secret, &[message]),
        };
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn macs_agree_with_rfc_4231() {
        let key = [0x0b; 20];
        assert_eq!(
            mac_of(HmacHash::Sha256, &key, b"Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            mac_of(HmacHash::Sha512, &key, b"Hi There"),
            "87aa7cdea5ef619d4ff0b4241a1d6cb02379f4e2ce4ec2787ad0b30545e17cde\
             daa833b7d6b8a702038b274eaea3f4e4be9d914eeb61f1702e696c203a126854"
        );
    }

    #[test]
    fn a_signature_in_another_form_is_not_decoded() {
        for hex in ["", "a", "abc", "zz", "0x", "é0", " ab", "ab ", "+1"] {
            assert_eq!(decoded(HmacEncoding::Hex, hex), None, "{hex:?}");
        }
        for base64 in ["", "a", "YQ", "YQ= ", "YQ==\n", "YR==", "Y_-=", "Y Q="] {
            assert_eq!(decoded(HmacEncoding::Base64, base64), None, "{base64:?}");
        }
        assert_eq!(decoded(HmacEncoding::Hex, "aB0f"), Some(vec![0xab, 0x0f]));
        assert_eq!(decoded(HmacEncoding::Base64, "YQ=="), Some(b"a".to_vec()));
    }
}
