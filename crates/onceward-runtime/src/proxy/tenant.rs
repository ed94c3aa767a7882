//! Which tenant a request belongs to. A replay is served without asking the upstream, so this check must be as strong as the
//! upstream's own.

use std::str::FromStr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use http::request;
use ipnet::IpNet;
use onceward::http::tenant::{self, TenantNames};
use onceward::http::{Kind, Problem};

use super::headers::TOKEN;
use super::jwt::Verifier;
use super::whoami::Whoami;
use super::{Route, Upstreams};
use crate::config::{Bearer, Scope};
use crate::net::listener::Peer;
use crate::net::tokens::Tokens;

/// Headers in which APIs usually take a credential that stays the same on a retry. Others are listed in
/// `identity_headers`.
pub const CREDENTIALS: [&str; 12] = [
    "authorization",
    "x-authorization",
    "x-api-key",
    "api-key",
    "apikey",
    "x-apikey",
    "x-api-token",
    "x-auth-token",
    "x-access-token",
    "private-token",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
];

/// Where a route takes the tenant from.
#[derive(Clone)]
pub enum Tenant {
    /// A hash of the credential: for API keys that do not change.
    Authorization(TenantNames),
    /// A token of the operator, as for the API.
    Token(Arc<Tokens>),
    /// A header set by a proxy in front of the gateway. Trusted from these networks; only from this machine if there are none.
    Header(HeaderName, Vec<IpNet>),
    /// The subject that the upstream returns for the caller's credential.
    Whoami(Arc<Whoami>),
    /// A claim of a JWT that is verified here.
    Jwt(Arc<Verifier>),
    /// Always this tenant.
    Fixed(String),
}

/// What a route of the HTTP gateway can use where a credential cannot name a tenant.
const OTHER_SOURCES: &str =
    "Use tenant = \"whoami:PATH#POINTER\", \"token\", \"jwt:CLAIM\" or \"header:NAME\" on this route.";

impl Tenant {
    /// The tenant of a request, or why it is unknown. Asks the upstream if the route is configured to.
    pub async fn resolve(
        &self,
        parts: &request::Parts,
        peer: Peer,
        upstreams: &Upstreams,
        route: &Arc<Route>,
    ) -> Result<String, Problem> {
        match self {
            Self::Whoami(whoami) => whoami.tenant(parts, upstreams, route).await,
            tenant => tenant.of(parts, peer, OTHER_SOURCES),
        }
    }

    /// The same source, with this way to name tenants that are derived from credentials.
    pub fn with(self, names: &TenantNames) -> Self {
        match self {
            Self::Authorization(_) => Self::Authorization(names.clone()),
            tenant => tenant,
        }
    }

    /// The tenant of a request, or why it is unknown. Does not ask the upstream. `instead` says what the operator can use where
    /// the credential cannot name a tenant.
    pub fn of(&self, parts: &request::Parts, peer: Peer, instead: &str) -> Result<String, Problem> {
        match self {
            Self::Token(tokens) => {
                let (_, bearer) = bearer(tokens, &parts.headers).ok_or_else(|| {
                    Problem::because(
                        Kind::NoCredential,
                        "This route requires a gateway token in the header Onceward-Token.",
                    )
                })?;
                if !bearer.scopes.contains(&Scope::Use) {
                    return Err(Problem::because(Kind::BadCredential, "This token does not have the scope `use`."));
                }
                Ok(bearer.tenant.to_string())
            }
            Self::Fixed(name) => Ok(name.clone()),
            // Only `resolve` asks the upstream.
            Self::Whoami(_) => Err(Problem::new(Kind::TenantUnknown)),
            Self::Header(_, peers) if !is_trusted(peers, peer) => Err(Problem::because(
                Kind::BadCredential,
                "The header that names the tenant is accepted from trusted peers only.",
            )),
            Self::Header(name, _) => tenant::of_header(parts, name),
            Self::Jwt(verifier) => {
                let credential = tenant::of_header(parts, &AUTHORIZATION)?;
                let token = match credential.split_once(' ') {
                    Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
                    _ => return Err(Problem::because(Kind::NoCredential, "This route requires a bearer token.")),
                };
                verifier.claim(token).map_err(|what| Problem::because(Kind::BadCredential, what))
            }
            Self::Authorization(names) => tenant::of_authorization(parts, names, instead),
        }
    }

    /// Removes credentials that are for the gateway and not for the upstream. `Onceward-Token` is removed on every route, even if
    /// the token is unknown: it may have been valid before.
    pub fn strip(&self, headers: &mut HeaderMap) {
        if let Self::Token(tokens) = self
            && let Some((name, _)) = bearer(tokens, headers)
        {
            headers.remove(name);
        }
        headers.remove(TOKEN);
    }
}

/// The holder of the token and the header that it came in. `Authorization` is often for the upstream, so we have our own.
fn bearer<'a>(tokens: &'a Tokens, headers: &HeaderMap) -> Option<(HeaderName, &'a Bearer)> {
    let mut given = headers.get_all(TOKEN).iter();
    match (given.next(), given.next()) {
        (None, _) => tokens.bearer(headers).map(|bearer| (AUTHORIZATION, bearer)),
        (Some(token), None) => tokens.owner(token.as_bytes().trim_ascii()).map(|bearer| (TOKEN, bearer)),
        (Some(_), Some(_)) => None,
    }
}

/// Whether a peer is in one of these networks; on this machine if there are none.
pub(super) fn is_trusted(peers: &[IpNet], peer: Peer) -> bool {
    let address = peer.address.ip().to_canonical();
    if peers.is_empty() { address.is_loopback() } else { peers.iter().any(|network| network.contains(&address)) }
}

impl FromStr for Tenant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "authorization" => Ok(Self::Authorization(TenantNames::default())),
            Some(("header", name)) => {
                let name = HeaderName::try_from(name).map_err(|_| format!("invalid header name {name:?}"))?;
                Ok(Self::Header(name, Vec::new()))
            }
            Some(("fixed", name)) => {
                onceward::core::name::Tenant::new(name).map_err(|error| error.to_string())?;
                Ok(Self::Fixed(name.to_owned()))
            }
            None if text == "token" => {
                Err("`token` needs tokens, which are set in onceward.toml: see [[api.token]] and `onceward serve`"
                    .to_owned())
            }
            Some(("whoami", _)) => Err("whoami:PATH#POINTER is only for the HTTP gateway".to_owned()),
            Some(("jwt", _)) => Err("jwt:CLAIM needs a key, which is set in onceward.toml: see `jwt_key`".to_owned()),
            _ => Err(format!(
                "unknown tenant source {text:?}; known are authorization, whoami:PATH#POINTER, token, jwt:CLAIM, header:NAME, fixed:NAME"
            )),
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
        tenant.of(&request.body(()).unwrap().into_parts().0, peer, OTHER_SOURCES).map_err(|problem| problem.kind)
    }

    #[test]
    fn a_credential_names_a_tenant_and_is_not_shown() {
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
    fn a_header_is_trusted_from_this_machine_only() {
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
    fn a_gateway_token_names_its_tenant_and_is_not_forwarded() {
        let bearer = |token: &str, tenant: &str, scopes: &[Scope]| Bearer {
            name: tenant.to_owned(),
            hash: onceward::core::hash::digest(token.as_bytes()),
            tenant: onceward::core::name::Tenant::new(tenant).unwrap(),
            scopes: scopes.to_vec(),
        };
        let tokens =
            Tokens::new(vec![bearer("of-acme", "acme", &[Scope::Use]), bearer("of-eve", "eve", &[Scope::Read])]);
        let tenant = Tenant::Token(Arc::new(tokens));
        let peer = Peer { address: "127.0.0.1:1".parse().unwrap(), secure: false };
        let ask = |headers: &[(&str, &str)]| {
            let mut request = http::Request::post("/");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let (mut parts, ()) = request.body(()).unwrap().into_parts();
            let answer = tenant.of(&parts, peer, OTHER_SOURCES).map_err(|problem| problem.kind);
            tenant.strip(&mut parts.headers);
            let left: Vec<_> = parts.headers.values().map(|value| value.to_str().unwrap().to_owned()).collect();
            (answer, left)
        };
        let (acme, missing) = (Ok("acme".to_owned()), Err(Kind::NoCredential));
        assert_eq!(ask(&[("onceward-token", "of-acme")]), (acme.clone(), vec![]));
        assert_eq!(ask(&[("authorization", "Bearer of-acme")]), (acme.clone(), vec![]));
        let theirs = ("authorization", "Bearer sk_live_7");
        let left = vec![theirs.1.to_owned()];
        assert_eq!(ask(&[("onceward-token", "of-acme"), theirs]), (acme, left.clone()));
        assert_eq!(ask(&[theirs]), (missing.clone(), left.clone()));
        assert_eq!(ask(&[("onceward-token", "guess"), theirs]), (missing.clone(), left.clone()));
        assert_eq!(ask(&[("onceward-token", "of-acme"), ("onceward-token", "of-eve"), theirs]), (missing, left));
        assert_eq!(ask(&[("onceward-token", "of-eve")]).0, Err(Kind::BadCredential));
    }

    #[test]
    fn an_unknown_tenant_source_is_refused() {
        for text in ["", "token", "unknown", "header:a b", "fixed:", "jwt"] {
            assert!(text.parse::<Tenant>().is_err(), "{text}");
        }
        assert!(matches!("fixed:hooks".parse(), Ok(Tenant::Fixed(name)) if name == "hooks"));
    }
}
