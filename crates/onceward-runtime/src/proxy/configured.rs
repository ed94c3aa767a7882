//! Builds routes from the configuration. Every error names its field.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};
use ipnet::IpNet;
use onceward::Policy;
use onceward::core::policy::InDoubt;
use onceward::http::rules::{
    DEFAULT_BODY_TIMEOUT, DEFAULT_REQUEST_LIMIT, DEFAULT_WAIT, DEFAULT_WINDOW, IDEMPOTENCY_KEY,
};
use onceward::http::tenant::TenantNames;
use onceward::http::{self as semantics, KeyFrom, Rules};

use super::jwt::Verifier;
use super::route::DEFAULT_TIMEOUT;
use super::whoami::Whoami;
use super::{Route, Tenant, upstream};
use crate::config::{self, KeyWindow, Operation};
use crate::net::tokens::Tokens;

/// Upper bound of `request_limit`: a guarded request is held in memory.
const MAX_REQUEST_LIMIT: usize = 64 * 1024 * 1024;

/// A field and what is wrong with it.
type FieldError = (&'static str, String);

impl Route {
    /// Builds a route. `operation` has the settings of the operation that it names, and `folder` is that of the file.
    pub fn configured(
        written: &config::Route,
        operation: &Operation,
        folder: &Path,
        tokens: Option<&Arc<Tokens>>,
    ) -> Result<Self, FieldError> {
        let at = |field: &'static str| move |what: String| (field, what);
        let upstream = written.upstream.as_deref().ok_or(("upstream", "a route needs an upstream".to_owned()))?;
        let pattern = written.path.clone().unwrap_or_else(|| "/*".to_owned());
        if !pattern.starts_with('/') {
            return Err(("path", "a path starts with `/`".to_owned()));
        }
        let honours_key = written.honours_key.unwrap_or(false);
        let (mut rules, tenant) = (rules(written, operation, honours_key)?, tenant(written, folder, tokens)?);
        if matches!(tenant, Tenant::Whoami(_)) {
            // The upstream sees these headers, and its subject stays the same when they change.
            rules.ignored_headers.append(&mut rules.identity_headers);
        }
        Ok(Self {
            pattern,
            upstream: upstream::address(upstream).map_err(at("upstream"))?,
            rules: Arc::new(rules),
            store: operation.store.clone(),
            tenant,
            trusted_peers: trusted_peers(written)?,
            timeout: written.timeout.map_or(DEFAULT_TIMEOUT, |time| time.0),
            encoded_slashes: written.encoded_slashes == Some(config::EncodedSlashes::Allow),
            honours_key,
        })
    }

    /// The same route, with this way to name tenants that are derived from credentials.
    pub fn naming(mut self, names: &TenantNames) -> Self {
        Arc::make_mut(&mut self.rules).names = names.clone();
        self.tenant = self.tenant.with(names);
        self
    }
}

fn rules(written: &config::Route, operation: &Operation, honours_key: bool) -> Result<Rules, FieldError> {
    let mut policy: Policy = operation.policy();
    policy.wait = written.wait.or(operation.wait).map_or(DEFAULT_WAIT, |wait| wait.0);
    let recipe = operation.recipe().map_err(|error| ("operation", error.to_string()))?;
    let mut rules = Rules {
        profile: match written.profile.unwrap_or_default() {
            config::Profile::Ietf => semantics::Profile::Ietf,
            config::Profile::Stripe => semantics::Profile::Stripe,
            config::Profile::Acp => semantics::Profile::Acp,
        },
        key_from: key_from(written)?,
        key_format: written
            .key_format
            .as_deref()
            .map(|text| text.parse().map_err(|what| ("key_format", what)))
            .transpose()?,
        policy: Arc::new(policy),
        recipe: recipe.map(Arc::new),
        refusals: written.refusals.clone().unwrap_or_default(),
        identity_headers: names("identity_headers", written.identity_headers.as_deref().unwrap_or_default())?,
        ignored_headers: names("ignored_headers", written.ignored_headers.as_deref().unwrap_or_default())?,
        compared_headers: names("compared_headers", written.compared_headers.as_deref().unwrap_or_default())?,
        in_flight_status: in_flight_status(written)?,
        request_limit: written.request_limit.map_or(DEFAULT_REQUEST_LIMIT, |size| size.0),
        body_timeout: written.body_timeout.map_or(DEFAULT_BODY_TIMEOUT, |time| time.0),
        downstream_key: written.downstream_key.as_deref().map(|text| header("downstream_key", text)).transpose()?,
        ..Rules::default()
    };
    if rules.request_limit > MAX_REQUEST_LIMIT {
        return Err(("request_limit", "the maximum is 64MiB: a guarded request is held in memory".to_owned()));
    }
    if let Some(wrong) = rules.refusals.iter().find(|status| !(400..=599).contains(*status)) {
        return Err(("refusals", format!("{wrong} is not an error status; write a status from 400 to 599")));
    }
    if let Some(both) = rules.ignored_headers.iter().find(|name| rules.identity_headers.contains(name)) {
        return Err((
            "ignored_headers",
            format!("`{both}` is in identity_headers as well: a header either distinguishes callers or it does not"),
        ));
    }
    if let Some(methods) = &written.methods {
        let read = |name: &String| match Method::from_bytes(name.as_bytes()) {
            Ok(method) if !name.contains(|c: char| c.is_ascii_lowercase()) => Ok(method),
            _ => Err(("methods", format!("invalid method {name:?}; write methods in upper case"))),
        };
        rules.methods = methods.iter().map(read).collect::<Result<_, _>>()?;
        if rules.methods.is_empty() {
            return Err(("methods", "an empty list would guard nothing; leave it out for POST and PATCH".to_owned()));
        }
    }
    rules = match written.key_mode.unwrap_or_default() {
        config::KeyMode::Required => rules,
        config::KeyMode::Optional => Rules { key_mode: semantics::KeyMode::Optional, ..rules },
        config::KeyMode::Derived => {
            // A retention that the user set takes precedence.
            let chosen = operation.retention.is_some() || operation.tier.is_some() || operation.dedup.is_some();
            match (written.window, chosen) {
                (None, true) => Rules { key_mode: semantics::KeyMode::Derived, ..rules },
                (None, false) => rules.derived(DEFAULT_WINDOW),
                (Some(KeyWindow::For(window)), _) => rules.derived(window),
                (Some(KeyWindow::Causal), _) => rules.causal(DEFAULT_WINDOW),
            }
        }
    };
    if written.window.is_some() && rules.key_mode != semantics::KeyMode::Derived {
        return Err(("window", "this is only for `key_mode = \"derived\"`".to_owned()));
    }
    if written.window == Some(KeyWindow::For(Duration::ZERO)) {
        return Err(("window", "with 0s, no request would ever count as a repeat".to_owned()));
    }
    let is_derived = rules.key_mode == semantics::KeyMode::Derived;
    if is_derived && honours_key && matches!(rules.key_from, KeyFrom::Body(_)) && rules.downstream_key.is_none() {
        let what = "with derived keys, the gateway sends its own key upstream: name the header for it, as in `header:Idempotency-Key`";
        return Err(("downstream_key", what.to_owned()));
    }
    let in_doubt = operation.in_doubt.map(InDoubt::from);
    if in_doubt == Some(InDoubt::Probe) {
        let what = "its `in_doubt` is \"probe\", but the gateway cannot probe an upstream; write \"hold\", or \"retry\" if \
            repeating the request does no harm";
        return Err(("operation", what.to_owned()));
    }
    rules = rules.honours_key(honours_key);
    if let Some(in_doubt) = in_doubt {
        Arc::make_mut(&mut rules.policy).in_doubt = in_doubt;
    }
    Ok(rules)
}

fn in_flight_status(written: &config::Route) -> Result<StatusCode, FieldError> {
    match written.in_flight_status {
        None | Some(409) => Ok(StatusCode::CONFLICT),
        Some(425) => Ok(StatusCode::TOO_EARLY),
        Some(other) => Err(("in_flight_status", format!("{other} is not allowed; write 409 or 425"))),
    }
}

fn key_from(written: &config::Route) -> Result<KeyFrom, FieldError> {
    match written.key_from.as_deref() {
        None => Ok(KeyFrom::Header(IDEMPOTENCY_KEY)),
        Some(text) => match text.strip_prefix("body:") {
            Some(pointer) if pointer.starts_with('/') => Ok(KeyFrom::Body(pointer.to_owned())),
            Some(_) => Err(("key_from", "a JSON pointer starts with `/`, as in `body:/idempotency_key`".to_owned())),
            None => header("key_from", text)
                .map(KeyFrom::Header)
                .map_err(|(field, what)| (field, format!("{what}, or `body:/POINTER` for a field of a JSON body"))),
        },
    }
}

fn header(field: &'static str, text: &str) -> Result<HeaderName, FieldError> {
    let name = text.strip_prefix("header:").and_then(|name| HeaderName::try_from(name).ok());
    name.ok_or_else(|| (field, format!("invalid value {text:?}; write `header:NAME`")))
}

fn names(field: &'static str, names: &[String]) -> Result<Vec<HeaderName>, FieldError> {
    let read = |name: &String| {
        HeaderName::try_from(name.as_str()).map_err(|_| (field, format!("invalid header name {name:?}")))
    };
    names.iter().map(read).collect()
}

fn tenant(written: &config::Route, folder: &Path, tokens: Option<&Arc<Tokens>>) -> Result<Tenant, FieldError> {
    let source = written.tenant.as_deref().unwrap_or("authorization");
    if let Some(claim) = source.strip_prefix("jwt:") {
        let at = |what: String| ("jwt_key", what);
        let named =
            written.jwt_key.as_ref().ok_or_else(|| at("`jwt:CLAIM` needs a key to verify tokens".to_owned()))?;
        let key = named.text(folder).map_err(at)?;
        let (audience, issuer) = (written.jwt_audience.clone(), written.jwt_issuer.clone());
        let verifier = Verifier::new(claim, key.as_bytes(), audience, issuer).map_err(at)?;
        return Ok(Tenant::Jwt(Arc::new(verifier)));
    }
    let set = [written.jwt_key.is_some(), written.jwt_audience.is_some(), written.jwt_issuer.is_some()];
    if let Some((field, _)) = ["jwt_key", "jwt_audience", "jwt_issuer"].into_iter().zip(set).find(|(_, set)| *set) {
        return Err((field, "this is only for `tenant = \"jwt:CLAIM\"`".to_owned()));
    }
    if let Some(text) = source.strip_prefix("whoami:") {
        let more = names("identity_headers", written.identity_headers.as_deref().unwrap_or_default())?;
        let whoami = Whoami::new(text, &more).map_err(|what| ("tenant", what))?;
        return Ok(Tenant::Whoami(Arc::new(whoami)));
    }
    if source == "token" {
        let given = tokens.filter(|tokens| !tokens.is_empty());
        let given = given.ok_or(("tenant", "`token` needs tokens: add [[api.token]] to onceward.toml".to_owned()))?;
        return Ok(Tenant::Token(Arc::clone(given)));
    }
    let tenant: Tenant = source.parse().map_err(|what| ("tenant", what))?;
    Ok(match tenant {
        Tenant::Header(name, _) => Tenant::Header(name, trusted_peers(written)?),
        tenant => tenant,
    })
}

fn trusted_peers(written: &config::Route) -> Result<Vec<IpNet>, FieldError> {
    let read = |peer: &String| {
        let network = peer.parse().or_else(|_| peer.parse::<std::net::IpAddr>().map(IpNet::from));
        network.map_err(|_| ("trusted_peers", format!("invalid network {peer:?}; write for example `10.0.0.0/8`")))
    };
    written.trusted_peers.iter().flatten().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(text: &str) -> Result<Route, FieldError> {
        let written: config::Route = toml::from_str(text).unwrap();
        Route::configured(&written, &Operation::default(), Path::new("."), None)
    }

    #[test]
    fn a_gateway_cannot_probe_the_upstream() {
        let written: config::Route = toml::from_str(&format!("{UPSTREAM}honours_key = true")).unwrap();
        for (in_doubt, mistake) in [("probe", Some("operation")), ("hold", None), ("retry", None)] {
            let operation: Operation = toml::from_str(&format!("in_doubt = {in_doubt:?}")).unwrap();
            let route = Route::configured(&written, &operation, Path::new("."), None);
            assert_eq!(route.err().map(|(field, _)| field), mistake, "{in_doubt}");
        }
    }

    #[test]
    fn an_invalid_key_source_is_reported_with_the_valid_ones() {
        let (_, what) = route(&format!("{UPSTREAM}key_from = \"Idempotency-Key\"")).err().unwrap();
        assert!(what.contains("header:NAME") && what.contains("body:/POINTER"), "{what}");
    }

    const UPSTREAM: &str = "upstream = \"http://127.0.0.1:9000\"\n";

    #[test]
    fn a_route_has_the_configured_settings() {
        let route = route(&format!(
            "{UPSTREAM}path = \"/v1/*\"\nprofile = \"acp\"\nkey_from = \"header:PayPal-Request-Id\"\n\
             tenant = \"header:x-tenant\"\ntrusted_peers = [\"10.0.0.0/8\", \"192.168.0.7\"]\nhonours_key = true"
        ))
        .map_err(|(field, what)| format!("{field}: {what}"))
        .unwrap();
        assert_eq!(route.rules.profile, semantics::Profile::Acp);
        assert_eq!(route.rules.key_from, KeyFrom::Header(HeaderName::from_static("paypal-request-id")));
        assert_eq!(route.rules.policy.in_doubt, InDoubt::Retry);
        assert!(matches!(&route.tenant, Tenant::Header(_, peers) if peers.len() == 2));
    }

    #[test]
    fn every_mistake_names_its_field() {
        for (text, field) in [
            ("", "upstream"),
            ("upstream = \"here\"", "upstream"),
            ("path = \"v1\"", "path"),
            ("key_from = \"Idempotency-Key\"", "key_from"),
            ("key_from = \"body:key\"", "key_from"),
            ("tenant = \"who\"", "tenant"),
            ("tenant = \"whoami:/v1/me\"", "tenant"),
            ("tenant = \"token\"", "tenant"),
            ("tenant = \"jwt:sub\"", "jwt_key"),
            ("tenant = \"jwt:sub\"\njwt_key = \"env:NOT_SET_ANYWHERE\"", "jwt_key"),
            ("jwt_key = \"env:X\"", "jwt_key"),
            ("trusted_peers = [\"ten\"]", "trusted_peers"),
            ("tenant = \"header:x\"\ntrusted_peers = [\"ten\"]", "trusted_peers"),
            ("window = \"1m\"", "window"),
            ("methods = [\"PO ST\"]", "methods"),
            ("methods = [\"post\"]", "methods"),
            ("methods = []", "methods"),
            ("refusals = [200]", "refusals"),
            ("jwt_audience = \"pay\"", "jwt_audience"),
            ("key_mode = \"derived\"\nwindow = \"0s\"", "window"),
            ("key_mode = \"derived\"\nkey_from = \"body:/id\"\nhonours_key = true", "downstream_key"),
            ("request_limit = \"1024MiB\"", "request_limit"),
            ("key_format = \"guid\"", "key_format"),
            ("key_format = \"pattern:(\"", "key_format"),
            ("in_flight_status = 503", "in_flight_status"),
            ("compared_headers = [\"a b\"]", "compared_headers"),
            ("identity_headers = [\"a b\"]", "identity_headers"),
            ("identity_headers = [\"Cookie\"]\nignored_headers = [\"cookie\"]", "ignored_headers"),
            ("downstream_key = \"X\"", "downstream_key"),
        ] {
            let upstream = if field == "upstream" { "" } else { UPSTREAM };
            let mistake = route(&format!("{upstream}{text}")).err().map(|(field, _)| field);
            assert_eq!(mistake, Some(field), "{text}");
        }
    }
}
