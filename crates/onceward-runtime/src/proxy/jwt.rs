//! Verifies JSON Web Tokens. They are verified here because a replay is served without asking the upstream.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};

/// Verifies tokens and reads one of their claims.
#[derive(Clone)]
pub struct Verifier {
    keys: VerificationKeys,
    claim: String,
    audience: Option<String>,
    issuer: Option<String>,
}

#[derive(Clone)]
enum VerificationKeys {
    One(Box<DecodingKey>),
    Set(JwkSet),
}

impl Verifier {
    /// With a key set as JSON, a public key in PEM form, or a shared secret.
    pub fn new(claim: &str, key: &[u8], audience: Option<String>, issuer: Option<String>) -> Result<Self, String> {
        let text = key.strip_prefix(b"\xef\xbb\xbf").unwrap_or(key).trim_ascii();
        // Some tools write text in front of the PEM block. Used as a shared secret, a public key would be known to everyone.
        let pem = text.windows(PEM.len()).position(|window| window == PEM).map(|at| &text[at..]);
        let keys = if text.starts_with(b"{") {
            let set: JwkSet = serde_json::from_slice(text).map_err(|error| format!("invalid key set: {error}"))?;
            if set.keys.is_empty() {
                return Err("the key set is empty".to_owned());
            }
            VerificationKeys::Set(set)
        } else if text.starts_with(b"[") {
            return Err("a key set is an object with a list `keys`".to_owned());
        } else if let Some(pem) = pem {
            let key = DecodingKey::from_rsa_pem(pem)
                .or_else(|_| DecodingKey::from_ec_pem(pem))
                .or_else(|_| DecodingKey::from_ed_pem(pem));
            VerificationKeys::One(Box::new(key.map_err(|error| format!("invalid public key in PEM form: {error}"))?))
        } else if text.len() < MIN_SECRET_BYTES {
            return Err(format!("a shared secret needs at least {MIN_SECRET_BYTES} bytes"));
        } else {
            VerificationKeys::One(Box::new(DecodingKey::from_secret(text)))
        };
        Ok(Self { keys, claim: claim.to_owned(), audience, issuer })
    }

    /// The claim of a valid token. The error is sent to the client and reveals nothing about the token.
    pub(super) fn claim(&self, token: &str) -> Result<String, String> {
        let from_set;
        let key = match &self.keys {
            VerificationKeys::One(key) => key,
            VerificationKeys::Set(set) => {
                let header = decode_header(token).map_err(|_| "The token cannot be read.".to_owned())?;
                let named = match &header.kid {
                    Some(kid) => set.find(kid),
                    None => set.keys.first().filter(|_| set.keys.len() == 1),
                };
                let named = named.ok_or("The token is signed with an unknown key.")?;
                from_set =
                    DecodingKey::from_jwk(named).map_err(|_| "The key of the token cannot be used.".to_owned())?;
                &from_set
            }
        };
        // The algorithm in the token is accepted only if the key is for it.
        let mut validation = Validation::new_for_family(key.family());
        validation.validate_nbf = true;
        match &self.audience {
            Some(audience) => validation.set_audience(&[audience]),
            None => validation.validate_aud = false,
        }
        if let Some(issuer) = &self.issuer {
            validation.set_issuer(&[issuer]);
        }
        let claims = decode::<Map<String, Value>>(token, key, &validation)
            .map_err(|error| format!("The token is not accepted: {error}."))?
            .claims;
        self.is_for_us(&claims)?;
        is_understood(token)?;
        match claims.get(&self.claim) {
            Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            _ => Err(format!("The token has no claim {}.", self.claim)),
        }
    }
}

impl Verifier {
    /// The library checks audience and issuer only if the token has them, as strings.
    fn is_for_us(&self, claims: &Map<String, Value>) -> Result<(), String> {
        if let Some(wanted) = &self.audience {
            let audience = match claims.get("aud") {
                Some(Value::String(one)) => one == wanted,
                Some(Value::Array(several)) => several.iter().any(|one| one == wanted),
                _ => false,
            };
            if !audience {
                return Err("The token is for another audience.".to_owned());
            }
        }
        match &self.issuer {
            Some(wanted) if claims.get("iss") != Some(&Value::String(wanted.clone())) => {
                Err("The token is from another issuer.".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// The issuer lists extensions in `crit` that a verifier must support. None of them is supported here.
fn is_understood(token: &str) -> Result<(), String> {
    let head = token.split('.').next().and_then(|head| URL_SAFE_NO_PAD.decode(head).ok());
    let head: Option<Map<String, Value>> = head.and_then(|head| serde_json::from_slice(&head).ok());
    match head {
        Some(head) if !head.contains_key("crit") => Ok(()),
        _ => Err("The token requires extensions that are not supported.".to_owned()),
    }
}

/// The beginning of a PEM block.
const PEM: &[u8] = b"-----BEGIN";

/// The minimum of RFC 7518 for a shared secret.
const MIN_SECRET_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
    use serde_json::json;

    use super::*;

    const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

    fn token(secret: &[u8], claims: &Value) -> String {
        encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(secret)).unwrap()
    }

    fn verifier() -> Verifier {
        Verifier::new("sub", SECRET, Some("pay".to_owned()), None).unwrap()
    }

    #[test]
    fn audience_and_issuer_are_required_and_not_only_compared() {
        let verifier = Verifier::new("sub", SECRET, Some("pay".to_owned()), Some("us".to_owned())).unwrap();
        let with = |more: Value| {
            let mut claims = json!({"sub": "acme", "exp": LATER});
            claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            verifier.claim(&token(SECRET, &claims))
        };
        assert!(with(json!({"aud": "pay", "iss": "us"})).is_ok());
        assert!(with(json!({"aud": ["other", "pay"], "iss": "us"})).is_ok());
        for bad in [
            json!({}),
            json!({"aud": "pay"}),
            json!({"iss": "us"}),
            json!({"aud": 5, "iss": "us"}),
            json!({"aud": null, "iss": "us"}),
            json!({"aud": "pay", "iss": null}),
            json!({"aud": "pay", "iss": ["us"]}),
            json!({"aud": ["other"], "iss": "us"}),
        ] {
            assert!(with(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_with_critical_extensions_is_refused() {
        let head = URL_SAFE_NO_PAD.encode(json!({"alg": "HS256", "crit": ["b64"], "b64": false}).to_string());
        assert!(is_understood(&format!("{head}.e30.x")).is_err());
        assert!(is_understood(&token(SECRET, &json!({}))).is_ok());
    }

    #[test]
    fn a_public_key_is_never_a_secret() {
        let text = "Bag Attributes\n    friendlyName: key\n-----BEGIN PUBLIC KEY-----\nxx\n-----END PUBLIC KEY-----";
        assert!(Verifier::new("sub", text.as_bytes(), None, None).is_err());
        let list = "[{\"kty\": \"oct\", \"k\": \"YSBzZWNyZXQgb2YgbW9yZSB0aGFuIHRoaXJ0eS10d28gYnl0ZXM\"}]";
        assert!(Verifier::new("sub", list.as_bytes(), None, None).is_err());
    }

    const LATER: u64 = 4_000_000_000;

    #[test]
    fn only_a_valid_token_names_a_tenant() {
        let good = token(SECRET, &json!({"sub": "acme", "aud": "pay", "exp": LATER}));
        assert_eq!(verifier().claim(&good), Ok("acme".to_owned()));
        let number = token(SECRET, &json!({"sub": 17, "aud": "pay", "exp": LATER}));
        assert_eq!(verifier().claim(&number), Ok("17".to_owned()));
        let bad = [
            token(b"another secret of thirty-two bytes....", &json!({"sub": "acme", "aud": "pay", "exp": LATER})),
            token(SECRET, &json!({"sub": "acme", "aud": "other", "exp": LATER})),
            token(SECRET, &json!({"sub": "acme", "aud": "pay", "exp": 1})),
            token(SECRET, &json!({"sub": "acme", "aud": "pay"})),
            token(SECRET, &json!({"sub": "acme", "aud": "pay", "exp": LATER, "nbf": LATER})),
            token(SECRET, &json!({"aud": "pay", "exp": LATER})),
            // `alg: none`, which any client can write.
            "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhY21lIiwiYXVkIjoicGF5IiwiZXhwIjo0MDAwMDAwMDAwfQ.".to_owned(),
            "no token".to_owned(),
        ];
        for token in bad {
            assert!(verifier().claim(&token).is_err(), "{token}");
        }
    }

    #[test]
    fn a_key_set_is_searched_by_key_id() {
        let set = json!({"keys": [{"kty": "oct", "kid": "one", "alg": "HS256",
            "k": "YSBzZWNyZXQgb2YgbW9yZSB0aGFuIHRoaXJ0eS10d28gYnl0ZXM"}]});
        let verifier = Verifier::new("sub", set.to_string().as_bytes(), None, None).unwrap();
        let signed = |kid: Option<&str>| {
            let header = Header { kid: kid.map(str::to_owned), ..Header::new(Algorithm::HS256) };
            encode(&header, &json!({"sub": "acme", "exp": LATER}), &EncodingKey::from_secret(SECRET)).unwrap()
        };
        assert_eq!(verifier.claim(&signed(Some("one"))), Ok("acme".to_owned()));
        assert_eq!(verifier.claim(&signed(None)), Ok("acme".to_owned()));
        assert!(verifier.claim(&signed(Some("two"))).is_err());
    }

    #[test]
    fn an_invalid_key_is_refused() {
        for key in ["short", "{}", "{\"keys\":[]}", "-----BEGIN PUBLIC KEY-----\nxx\n-----END PUBLIC KEY-----"] {
            assert!(Verifier::new("sub", key.as_bytes(), None, None).is_err(), "{key}");
        }
    }
}
