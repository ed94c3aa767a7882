//! Whose request it is. A replay is answered without asking the other side, so this has to be as good as the other
//! side's own check.

use std::str::FromStr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderName};
use http::request;
use ipnet::IpNet;
use onceward::http::{Kind, Problem, tenant};

use super::jwt::Verifier;
use crate::listener::Peer;

/// Where a route takes the tenant from.
#[derive(Clone)]
pub(crate) enum Tenant {
    /// A hash of the credential: for API keys that stay the same.
    Authorization,
    /// A header that a proxy in front has set. Taken from these networks, and from this machine if there are none.
    Header(HeaderName, Vec<IpNet>),
    /// A claim of a token that is verified here.
    Jwt(Arc<Verifier>),
    /// Always the same one.
    Fixed(String),
}

impl Tenant {
    /// Whose request it is, or why nobody can tell.
    pub(super) fn of(&self, parts: &request::Parts, peer: Peer) -> Result<String, Problem> {
        match self {
            Self::Fixed(name) => Ok(name.clone()),
            Self::Header(_, peers) if !is_trusted(peers, peer) => Err(Problem::because(
                Kind::BadCredential,
                "The header that names the tenant is taken from trusted peers only.",
            )),
            Self::Header(name, _) => tenant::of_header(parts, name),
            Self::Jwt(verifier) => {
                let credential = tenant::of_header(parts, &AUTHORIZATION)?;
                let token = match credential.split_once(' ') {
                    Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
                    _ => return Err(Problem::because(Kind::NoCredential, "This route wants a bearer token.")),
                };
                verifier.claim(token).map_err(|what| Problem::because(Kind::BadCredential, what))
            }
            Self::Authorization => tenant::of_authorization(parts, "Use tenant = \"jwt:CLAIM\" on this route."),
        }
    }
}

fn is_trusted(peers: &[IpNet], peer: Peer) -> bool {
    let address = peer.address.ip().to_canonical();
    if peers.is_empty() { address.is_loopback() } else { peers.iter().any(|network| network.contains(&address)) }
}

impl FromStr for Tenant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "authorization" => Ok(Self::Authorization),
            Some(("header", name)) => {
                let name = HeaderName::try_from(name).map_err(|_| format!("{name:?} is no name of a header"))?;
                Ok(Self::Header(name, Vec::new()))
            }
            Some(("fixed", name)) => {
                onceward::core::name::Tenant::new(name).map_err(|error| error.to_string())?;
                Ok(Self::Fixed(name.to_owned()))
            }
            Some(("jwt", _)) => Err("jwt:CLAIM needs a key, which stands in onceward.toml: see `jwt_key`".to_owned()),
            _ => Err(format!("{text:?} is none of authorization, jwt:CLAIM, header:NAME, fixed:NAME")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(tenant: &str, headers: &[(&str, &str)], from: &str) -> Result<String, Kind> {
        let mut request = http::Request::post("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let peer = Peer { address: from.parse().unwrap(), secure: false };
        let tenant: Tenant = tenant.parse().unwrap();
        tenant.of(&request.body(()).unwrap().into_parts().0, peer).map_err(|problem| problem.kind)
    }

    #[test]
    fn a_credential_is_a_tenant_and_is_not_shown() {
        let here = "127.0.0.1:1";
        let one = of("authorization", &[("authorization", "Bearer sk_test_7")], here).unwrap();
        assert!(!one.contains("sk_test_7"));
        assert_eq!(one, of("authorization", &[("authorization", "Bearer sk_test_7")], here).unwrap());
        assert_ne!(one, of("authorization", &[("authorization", "Bearer sk_test_8")], here).unwrap());
        assert_eq!(of("authorization", &[], here), Err(Kind::NoCredential));
        let twice = [("authorization", "a"), ("authorization", "b")];
        assert_eq!(of("authorization", &twice, here), Err(Kind::BadCredential));
        let jwt = [("authorization", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln")];
        assert_eq!(of("authorization", &jwt, here), Err(Kind::BadCredential));
    }

    #[test]
    fn a_header_is_believed_from_this_machine_only() {
        let headers = [("x-tenant", "acme")];
        assert_eq!(of("header:x-tenant", &headers, "127.0.0.1:1"), Ok("acme".to_owned()));
        assert_eq!(of("header:x-tenant", &headers, "[::ffff:127.0.0.1]:1"), Ok("acme".to_owned()));
        assert_eq!(of("header:x-tenant", &headers, "10.0.0.1:1"), Err(Kind::BadCredential));
        assert_eq!(of("header:x-tenant", &[], "127.0.0.1:1"), Err(Kind::NoCredential));
        let from = |address: &str| Peer { address: address.parse().unwrap(), secure: false };
        let networks = ["10.0.0.0/8".parse().unwrap()];
        assert!(is_trusted(&networks, from("10.1.2.3:1")));
        assert!(!is_trusted(&networks, from("127.0.0.1:1")));
    }

    #[test]
    fn what_is_no_source_of_tenants_is_told() {
        for text in ["", "nobody", "header:a b", "fixed:", "jwt"] {
            assert!(text.parse::<Tenant>().is_err(), "{text}");
        }
        assert!(matches!("fixed:hooks".parse(), Ok(Tenant::Fixed(name)) if name == "hooks"));
    }
}
