//! Where the server is and which token it gets. The token is never shown.

use http::Uri;
use http::header::HeaderValue;
use http::uri::PathAndQuery;

/// A token that is longer was not made by `onceward token new`.
const MAX_TOKEN_BYTES: usize = 4096;

/// What stands in place of the token in texts of the server.
const HIDDEN: &str = "(token)";

/// Whether a store is a server rather than a file.
pub(crate) fn is_http(store: &str) -> bool {
    let scheme = store.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https"))
}

/// The base of every request.
pub(super) struct Address {
    base: Uri,
    url: String,
    token: Option<String>,
    authorization: Option<HeaderValue>,
}

impl Address {
    /// Checks a URL and a token. Messages do not repeat the URL, which may contain a password.
    pub(super) fn parse(url: &str, token: Option<&str>) -> Result<Self, String> {
        const FORM: &str = "the URL of a ledger is http://HOST[:PORT][/PATH], or https:// for TLS";
        let base: Uri = url.parse().map_err(|_| FORM.to_owned())?;
        let Some(authority) = base.authority().filter(|_| matches!(base.scheme_str(), Some("http" | "https"))) else {
            return Err(FORM.to_owned());
        };
        if authority.as_str().contains('@') || base.query().is_some() || url.contains('#') {
            return Err("the URL of a ledger has no password, query or fragment; give the token as token=".to_owned());
        }
        // `Uri` accepts any number as a port, and reads one that is too large as none.
        let has_port = authority.as_str().rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        if authority.host().is_empty() || (has_port && authority.port_u16().is_none()) {
            return Err(FORM.to_owned());
        }
        let authorization = token.map(authorization).transpose()?;
        let url = base.to_string().trim_end_matches('/').to_owned();
        Ok(Self { base, url, token: token.map(str::to_owned), authorization })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn is_secure(&self) -> bool {
        self.base.scheme_str() == Some("https")
    }

    pub(super) fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// The URL of a path of the API, below the path of the base.
    pub(super) fn join(&self, path: &str) -> Option<Uri> {
        let mut parts = self.base.clone().into_parts();
        let joined = format!("{}{path}", self.base.path().trim_end_matches('/'));
        parts.path_and_query = Some(joined.parse::<PathAndQuery>().ok()?);
        Uri::from_parts(parts).ok()
    }

    /// A text of the server for people: one line of limited length, without the token.
    pub(super) fn shown(&self, text: &str) -> String {
        const MOST: usize = 500;
        let text = match self.token.as_deref() {
            Some(token) => text.replace(token, HIDDEN),
            None => text.to_owned(),
        };
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST).collect()
    }

    pub(super) fn copy(&self) -> Self {
        Self {
            base: self.base.clone(),
            url: self.url.clone(),
            token: self.token.clone(),
            authorization: self.authorization.clone(),
        }
    }
}

fn authorization(token: &str) -> Result<HeaderValue, String> {
    let is_plain =
        !token.is_empty() && token.len() <= MAX_TOKEN_BYTES && token.bytes().all(|byte| byte.is_ascii_graphic());
    let header = HeaderValue::from_str(&format!("Bearer {token}")).ok().filter(|_| is_plain);
    let mut header = header.ok_or("the token is not one: it is empty, or has characters that a token cannot have")?;
    header.set_sensitive(true);
    Ok(header)
}

/// One segment of a path, with everything encoded that could mean something else.
pub(super) fn segment(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => text.push(char::from(byte)),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
