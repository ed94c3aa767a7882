//! Whose request it is, as far as its head tells. A replay is answered without asking the other side, so this has to be
//! as good as the other side's own check.

use http::header::{AUTHORIZATION, HeaderName};
use http::request;

use onceward_core::hash::digest;

use super::problem::{Kind, Problem};

/// A hash of the credential: for API keys that stay the same. `instead` is the advice to those whose credential does not.
pub fn of_authorization(parts: &request::Parts, instead: &str) -> Result<String, Problem> {
    let credential = of_header(parts, &AUTHORIZATION)?;
    if is_jwt(&credential) {
        let detail = format!(
            "This is a JSON Web Token. A refreshed one would be another tenant, and would find none of its keys. {instead}"
        );
        return Err(Problem::because(Kind::BadCredential, detail));
    }
    Ok(format!("auth:{}", &digest(credential.as_bytes()).to_hex()[..32]))
}

/// The one value of a header. Whoever sets it has to be trusted.
pub fn of_header(parts: &request::Parts, name: &HeaderName) -> Result<String, Problem> {
    let mut values = parts.headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Err(Problem::because(Kind::NoCredential, format!("The header {name} is missing."))),
        (Some(value), None) => match value.to_str().map(str::trim) {
            Ok(value) if !value.is_empty() => Ok(value.to_owned()),
            _ => Err(Problem::because(Kind::BadCredential, format!("The header {name} cannot be read."))),
        },
        (Some(_), Some(_)) => Err(Problem::because(Kind::BadCredential, format!("The header {name} came twice."))),
    }
}

/// Three parts between dots, the first of which is an object in base64: `{"` is always `eyJ` or `ew`.
pub fn is_jwt(credential: &str) -> bool {
    let token = credential.split_once(' ').map_or(credential, |(_, token)| token.trim());
    let parts: Vec<&str> = token.split('.').collect();
    let base64 = |part: &&str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    parts.len() == 3 && parts.iter().take(2).all(base64) && (token.starts_with("eyJ") || token.starts_with("ew"))
}
