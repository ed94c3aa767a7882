//! Which headers tell callers apart. A repeat is answered without asking the server, so a header that names an account counts, and
//! one that may be a credential must be listed in the configuration before calls with it are accepted. Pure.

use std::collections::{BTreeMap, BTreeSet};

use http::header::COOKIE;
use http::{HeaderMap, HeaderName};
use onceward::core::hash::Fields;
use onceward::http::identity_headers::{has_identifying_cookie, identifying_values};
use onceward::http::tenant::TenantNames;

use super::header_names::Meaning;
use onceward_runtime::proxy;

/// The headers that tell callers of one server apart.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Headers whose values tell callers apart.
    counted: BTreeSet<String>,
    /// Headers that the configuration ignores.
    ignored: BTreeSet<String>,
    /// Other headers are judged by their names: those that name an account count, and those that look like credentials are
    /// refused.
    is_strict: bool,
    /// The server's name in the configuration, for advice.
    server: String,
    /// How tenant names are made from credentials.
    names: TenantNames,
}

impl Identity {
    /// `tenant` is the operator's setting; without it, credentials tell callers apart. An operator who says that all callers are one
    /// tenant, or that a proxy names them, has decided about all other headers.
    pub(crate) fn new(
        tenant: Option<&proxy::Tenant>,
        (identity, ignored): (&[String], &[String]),
        server: &str,
        names: &TenantNames,
    ) -> Self {
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect::<BTreeSet<_>>();
        let (mut counted, ignored) = (lower(identity), lower(ignored));
        if tenant.is_none() {
            counted.extend(
                proxy::CREDENTIALS.iter().map(|name| (*name).to_owned()).filter(|name| !ignored.contains(name)),
            );
        }
        let is_strict = matches!(tenant, None | Some(proxy::Tenant::Authorization(_)));
        Self { counted, ignored, is_strict, server: server.to_owned(), names: names.clone() }
    }

    /// Why a request is refused: it has an unlisted header that looks like a credential.
    pub(super) fn refusal(&self, headers: &HeaderMap) -> Option<String> {
        let is_routing = |name: &&HeaderName| *name == COOKIE && !has_identifying_cookie(headers);
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
        !is_known && Meaning::of(name) == Meaning::Credential
    }

    /// A tenant name for callers with these header values, in addition to `tenant`; `None` for a request without any such header.
    pub(super) fn of(&self, headers: &HeaderMap, tenant: Option<&str>) -> Option<String> {
        let counted = headers.keys().filter(|name| self.is_counted(name));
        // Sorted by name: a retry may send them in another order.
        let given: BTreeMap<&str, Vec<Vec<u8>>> =
            counted.map(|name| (name.as_str(), identifying_values(headers, name))).collect();
        let mut given =
            given.iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value))).peekable();
        given.peek()?;
        let all = Fields::new().field(b"mcp caller v1").field(tenant.unwrap_or_default());
        let all = given.fold(all, |all, (name, value)| all.field(name).field(value));
        Some(self.names.name("credential-", all.digest()))
    }

    fn is_counted(&self, name: &HeaderName) -> bool {
        let text = name.as_str();
        let is_scope = || self.is_strict && !self.ignored.contains(text) && Meaning::of(name) == Meaning::Scope;
        self.counted.contains(text) || is_scope()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers that name an account, a user or a system, and do not look like credentials.
    const SCOPES: [&str; 43] = [
        "Stripe-Account",
        "X-Tenant-Id",
        "X-Forwarded-User",
        "X-Scope-OrgID",
        "X-Forwarded-Email",
        "Remote-User",
        "X-Amzn-Oidc-Identity",
        "X-Amzn-Oidc-Data",
        "Tailscale-User-Login",
        "X-Pomerium-Claim-Email",
        "X-Consumer-Username",
        "X-Forwarded-Client-Cert",
        "X-SSL-Client-S-DN",
        "OpenAI-Organization",
        "X-Org-Id",
        "X-Account-Id",
        "X-Workspace-Id",
        "X-Grafana-Org-Id",
        "X-Grafana-URL",
        "X-Jira-Url",
        "X-Atlassian-Cloud-Id",
        "X-Database-Url",
        "X-DSN",
        "X-Connection-String",
        "X-Sid",
        "x-session-id",
        "session-id",
        "x-cursor-session-id",
        "X-Client-Id",
        "X-Ms-Client-Principal-Id",
        "X-MCP-User",
        "X-GitLab-URL",
        "X-Profile",
        "X-License",
        "From",
        "X_Tenant_ID",
        "X.Tenant.Id",
        "X-UserId",
        "X-Arr-ClientCert",
        "X-SSL-Client-Serial",
        "X-On-Behalf-Of",
        "Cf-Access-Authenticated-User-Email",
        "X-Goog-User-Project",
    ];

    /// Headers that neither carry a credential nor name an account.
    const HARMLESS_NAMES: [&str; 52] = [
        "x-vercel-proxy-signature",
        "x-vercel-proxy-signature-ts",
        "x-session-affinity",
        "signature-input",
        "x-hub-signature",
        "x-n8n-signature",
        "x-user-signature",
        "idempotency-key",
        "x-idempotency-key",
        "surrogate-key",
        "x-cache-key",
        "x-max-tokens",
        "x-author",
        "x-keyboard",
        "x-turkey",
        "user-agent",
        "x-forwarded-user-agent",
        "x-appengine-user-ip",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-real-ip",
        "x-request-id",
        "x-correlation-id",
        "traceparent",
        "tracestate",
        "baggage",
        "x-cloud-trace-context",
        "x-amzn-trace-id",
        "x-amz-cf-id",
        "sentry-trace",
        "x-b3-traceid",
        "cf-ray",
        "cf-connecting-ip",
        "cf-visitor",
        "cf-ipcountry",
        "via",
        "forwarded",
        "sec-fetch-user",
        "sec-websocket-key",
        "sec-ch-ua",
        "mcp-session-id",
        "mcp-param-account",
        "mcp-protocol-version",
        "last-event-id",
        "keep-alive",
        "proxy-authorization",
        "accept",
        "accept-language",
        "host",
        "content-type",
    ];

    fn headers(given: &[(&str, &str)]) -> HeaderMap {
        given.iter().map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn identity(tenant: Option<&proxy::Tenant>, counted: &[&str], ignored: &[&str]) -> Identity {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Identity::new(tenant, (&names(counted), &names(ignored)), "mail", &TenantNames::default())
    }

    #[test]
    fn callers_with_different_credentials_are_different_callers() {
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
    fn the_operators_tenant_setting_decides_which_headers_are_refused() {
        let refused = |tenant: proxy::Tenant, name: &str| {
            identity(Some(&tenant), &[], &[]).refusal(&headers(&[(name, "1")])).is_some()
        };
        assert!(refused(proxy::Tenant::Authorization(TenantNames::default()), "x-api-key"));
        assert!(!refused(proxy::Tenant::Authorization(TenantNames::default()), "authorization"));
        assert!(!refused(proxy::Tenant::Fixed("me".to_owned()), "dd-api-key"));
        let tenant = proxy::Tenant::Fixed("me".to_owned());
        let counted = identity(Some(&tenant), &["x-team"], &[]);
        let of = |team: &str, tenant: &str| counted.of(&headers(&[("x-team", team)]), Some(tenant));
        assert_ne!(of("a", "me"), of("b", "me"));
        assert_ne!(of("a", "me"), of("a", "you"));
        assert_eq!(counted.of(&headers(&[("authorization", "1")]), Some("me")), None);
    }

    #[test]
    fn a_header_that_names_an_account_tells_callers_apart() {
        let by_token = proxy::Tenant::Authorization(TenantNames::default());
        for tenant in [None, Some(&by_token)] {
            let plain = identity(tenant, &[], &[]);
            for name in SCOPES {
                let of = |identity: &Identity, value: &str| {
                    identity.of(&headers(&[("authorization", "a"), (name, value)]), Some("me"))
                };
                assert_eq!(plain.refusal(&headers(&[(name, "1")])), None, "{name}");
                assert_ne!(of(&plain, "a"), of(&plain, "b"), "{name}");
                assert_eq!(of(&plain, "a"), of(&plain, "a"), "{name}");
                let ignoring = identity(tenant, &[], &[name]);
                assert_eq!(of(&ignoring, "a"), of(&ignoring, "b"), "{name}");
            }
        }
        let plain = identity(None, &[], &[]);
        let both = |given: &[(&str, &str)]| plain.of(&headers(given), None);
        assert_eq!(both(&[("x-org", "a"), ("x-user", "b")]), both(&[("x-user", "b"), ("x-org", "a")]));
        assert_ne!(both(&[("x-org", "a"), ("x-user", "b")]), both(&[("x-org", "b"), ("x-user", "a")]));
    }

    #[test]
    fn an_operator_who_names_the_caller_is_not_overruled_by_other_headers() {
        let tenant = proxy::Tenant::Fixed("me".to_owned());
        let fixed = identity(Some(&tenant), &[], &[]);
        for name in SCOPES {
            assert_eq!(fixed.of(&headers(&[(name, "1")]), Some("me")), None, "{name}");
        }
    }

    #[test]
    fn a_header_without_a_credential_is_neither_refused_nor_counted() {
        let plain = identity(None, &[], &[]);
        for name in HARMLESS_NAMES {
            assert_eq!(plain.refusal(&headers(&[(name, "1")])), None, "{name}");
            assert_eq!(plain.of(&headers(&[(name, "1")]), None), None, "{name}");
        }
        assert!(identity(None, &["x-cache-key"], &[]).of(&headers(&[("x-cache-key", "1")]), None).is_some());
    }

    #[test]
    fn a_header_with_any_word_for_a_secret_in_its_name_is_refused() {
        let plain = identity(None, &[], &[]);
        for name in [
            "X-PAT",
            "X-Creds",
            "X-Access-Pass",
            "X-GitHub-Pat",
            "X-Passwd",
            "X-Passphrase",
            "X-Client-Secrets",
            "X-Amzn-Oidc-Accesstoken",
            "X-UserPassword",
            "X-MyApiKey",
            "X-AuthKey",
            "X-OAuth",
            "X-Authentication",
            "Cf-Access-Jwt-Assertion",
            "X-User-Credentials",
            "X-Signature-Key",
            "Mcp-Auth-Token",
            "X-Tenant-Token",
            "X.Api.Key",
            "X-Api-Keys",
            "X-Auth-Request-User",
        ] {
            assert!(plain.refusal(&headers(&[(name, "1")])).is_some(), "{name}");
        }
        let balanced = [("cookie", "AWSALB=1"), ("authorization", "a")];
        assert_eq!(plain.refusal(&headers(&balanced)), None);
        assert_eq!(plain.of(&headers(&balanced), None), plain.of(&headers(&balanced[1..]), None));
    }

    #[test]
    fn a_load_balancers_cookie_and_the_lines_of_a_cookie_do_not_count() {
        let by_cookie = identity(None, &["Cookie"], &[]);
        let of = |lines: &[&str]| {
            let mut all = HeaderMap::new();
            for line in lines {
                all.append(COOKIE, line.parse().unwrap());
            }
            by_cookie.of(&all, None)
        };
        let one = of(&["a=1; b=2"]);
        assert!(one.is_some());
        for same in [&["a=1", "b=2"][..], &["a=1; AWSALB=x; b=2"], &["a=1;b=2 "]] {
            assert_eq!(of(same), one, "{same:?}");
        }
        assert_ne!(of(&["a=1"]), one);
        assert_eq!(of(&["AWSALB=x"]), None);
    }
}
