//! Which headers tell callers apart. A repeat is answered without asking the server, so that a header which may be a credential
//! has to be known as one, or as none, before anything is answered. Pure.

use std::collections::BTreeSet;

use http::header::COOKIE;
use http::{HeaderMap, HeaderName};
use onceward::core::hash::Fields;
use onceward::http::identity::has_telling_cookie;
use onceward::http::kept::HOP_BY_HOP;
use onceward::http::tenant::Names;

use crate::gateway;

/// Headers with a credential that stays the same from one try to the next.
const CREDENTIALS: [&str; 12] = [
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

/// Parts of names that credentials have.
const TELLING: [&str; 13] = [
    "assertion",
    "auth",
    "bearer",
    "cookie",
    "credential",
    "jwt",
    "key",
    "passw",
    "principal",
    "secret",
    "session",
    "signature",
    "token",
];

/// How standard headers begin whose names look like those of credentials: what a browser says of itself, the session, what
/// repeats an argument, and the client's own key.
const HARMLESS: [&str; 6] =
    ["sec-ch-", "sec-fetch-", "sec-websocket-", "mcp-session-id", "mcp-param-", "idempotency-key"];

/// The headers that tell callers of one server apart.
#[derive(Debug)]
pub(in crate::mcp) struct Identity {
    /// They count, with their values.
    counted: BTreeSet<String>,
    /// They do not, as configured.
    ignored: BTreeSet<String>,
    /// Others that look like credentials are refused.
    is_strict: bool,
    /// The server's name in the configuration, for advice.
    server: String,
    /// How a caller is named after its credentials.
    names: Names,
}

impl Identity {
    /// `tenant` is what the operator chose; without it, credentials tell callers apart. An operator who says that all callers
    /// are one, or that a proxy names them, has answered the question which other headers would raise.
    pub(in crate::mcp) fn new(
        tenant: Option<&gateway::Tenant>,
        (identity, ignored): (&[String], &[String]),
        server: &str,
        names: &Names,
    ) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect::<BTreeSet<_>>();
        let (mut counted, ignored) = (lower(identity), lower(ignored));
        if tenant.is_none() {
            counted.extend(CREDENTIALS.iter().map(|name| (*name).to_owned()).filter(|name| !ignored.contains(name)));
        }
        let is_strict = matches!(tenant, None | Some(gateway::Tenant::Authorization(_)));
        Self { counted, ignored, is_strict, server: server.to_owned(), names: names.clone() }
    }

    /// Why a request is refused, if it has a header that looks like a credential and is not known.
    pub(super) fn refusal(&self, headers: &HeaderMap) -> Option<String> {
        let is_routing = |name: &&HeaderName| *name == COOKIE && !has_telling_cookie(headers);
        let unknown = headers.keys().find(|name| self.is_strict && self.is_unknown(name) && !is_routing(name))?;
        Some(format!(
            "the header {unknown} looks like a credential. If it tells callers apart, name it in identity_headers of \
             [mcp.server.{}]; if not, in ignored_headers",
            self.server
        ))
    }

    fn is_unknown(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        let is_known = self.counted.contains(text) || self.ignored.contains(text) || text == "authorization";
        let is_harmless = HARMLESS.iter().any(|start| text.starts_with(start)) || HOP_BY_HOP.contains(name);
        !is_known && !is_harmless && TELLING.iter().any(|part| text.contains(part))
    }

    /// A name for callers with these values, in addition to the tenant that something else names; `None` for a caller without
    /// any of the headers.
    pub(super) fn of(&self, headers: &HeaderMap, tenant: Option<&str>) -> Option<String> {
        let given = self.counted.iter().flat_map(|name| headers.get_all(name).iter().map(move |value| (name, value)));
        let mut given = given.peekable();
        given.peek()?;
        let all = Fields::new().field(b"mcp caller v1").field(tenant.unwrap_or_default());
        let all = given.fold(all, |all, (name, value)| all.field(name).field(value.as_bytes()));
        Some(self.names.name("credential-", all.digest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(given: &[(&str, &str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn identity(tenant: Option<&gateway::Tenant>, counted: &[&str], ignored: &[&str]) -> Identity {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Identity::new(tenant, (&names(counted), &names(ignored)), "mail", &Names::default())
    }

    #[test]
    fn callers_with_other_credentials_are_other_callers() {
        let by_credential = identity(None, &["DD-API-KEY"], &[]);
        let of = |given: &[(&str, &str)]| by_credential.of(&headers(given), None);
        let names = [
            of(&[]),
            of(&[("authorization", "a")]),
            of(&[("authorization", "b")]),
            of(&[("x-api-key", "a")]),
            of(&[("X-Api-Key", "b")]),
            of(&[("dd-api-key", "a")]),
            of(&[("authorization", "a"), ("x-api-key", "b")]),
            of(&[("authorization", "a"), ("x-api-key", "a")]),
        ];
        for (at, one) in names.iter().enumerate() {
            assert!(names[at + 1..].iter().all(|other| one != other), "{at}: {one:?}");
        }
        assert_eq!(of(&[("x-api-key", "a"), ("x-request-id", "1")]), names[3]);
        assert_eq!(names[1].as_ref().map(String::len), Some("credential-".len() + 32));
    }

    #[test]
    fn a_header_that_looks_like_a_credential_is_refused_until_it_is_named() {
        let refused = |identity: &Identity, name: &str| identity.refusal(&headers(&[(name, "1")])).is_some();
        let plain = identity(None, &[], &[]);
        for name in ["DD-API-KEY", "x_api_key", "Mcp-Auth-Token", "Cookie", "CF-Access-Client-Secret", "x-user-auth"] {
            assert!(refused(&plain, name), "{name}");
            assert!(!refused(&identity(None, &[name], &[]), name), "{name}");
            assert!(!refused(&identity(None, &[], &[&name.to_uppercase()]), name), "{name}");
        }
        for name in ["authorization", "X-Api-Key", "Mcp-Session-Id", "Idempotency-Key", "Sec-Fetch-Site", "keep-alive"]
        {
            assert!(!refused(&plain, name), "{name}");
        }
        for name in ["user-agent", "traceparent", "x-request-id", "accept", "last-event-id", "proxy-authorization"] {
            assert!(!refused(&plain, name), "{name}");
        }
    }

    #[test]
    fn what_the_operator_chose_decides_which_headers_are_asked_about() {
        let refused = |tenant: gateway::Tenant, name: &str| {
            identity(Some(&tenant), &[], &[]).refusal(&headers(&[(name, "1")])).is_some()
        };
        assert!(refused(gateway::Tenant::Authorization(Names::default()), "x-api-key"));
        assert!(!refused(gateway::Tenant::Authorization(Names::default()), "authorization"));
        assert!(!refused(gateway::Tenant::Fixed("me".to_owned()), "dd-api-key"));
        let tenant = gateway::Tenant::Fixed("me".to_owned());
        let counted = identity(Some(&tenant), &["x-team"], &[]);
        let of = |team: &str, tenant: &str| counted.of(&headers(&[("x-team", team)]), Some(tenant));
        assert_ne!(of("a", "me"), of("b", "me"));
        assert_ne!(of("a", "me"), of("a", "you"));
        assert_eq!(counted.of(&headers(&[("authorization", "1")]), Some("me")), None);
    }
}
