//! Reads a URL strictly. Whatever two parsers could understand differently is refused, because an attacker chooses the parser
//! that suits the attack. Pure.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
use http::uri::PathAndQuery;

use super::address;
use super::rules::{AddressRules, Refusal};
use crate::proxy::headers::has_dot_segments;

/// What common servers accept in a request line.
const MAX_URL: usize = 8 * 1024;

/// The longest name and label that DNS can carry.
const MAX_NAME: usize = 253;
const MAX_LABEL: usize = 63;

/// What is wrong with a URL. Says nothing of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    #[error("it is longer than {MAX_URL} bytes")]
    TooLong,
    #[error("it contains a space, a control character, a backslash or a character outside ASCII; percent-encode it")]
    Character,
    #[error("it must begin with http:// or https://")]
    Scheme,
    #[error("it contains a user name or password; use a header")]
    UserInfo,
    #[error("it has no host")]
    NoHost,
    #[error("its host is not a valid name")]
    Name,
    #[error("its IPv4 address is not written as four decimal numbers")]
    Ipv4,
    #[error("its IPv6 address is not valid, or has a zone")]
    Ipv6,
    #[error("its IPv6 address carries an IPv4 address; write the IPv4 address")]
    Wrapped,
    #[error("its port is not a number from 1 to 65535")]
    Port,
    #[error("it has a fragment (#), which is never sent")]
    Fragment,
    #[error("its path contains `.` or `..` as a segment")]
    DotSegment,
    #[error("its path or query is not valid")]
    Path,
}

/// The host of a URL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// In lower case.
    Name(String),
    Address(IpAddr),
}

/// What connections can be shared for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub(super) is_tls: bool,
    pub(super) host: Host,
    pub(super) port: u16,
}

/// A URL that may be dialled, as far as this can be known before its name is resolved.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    pub(super) origin: Origin,
    path: PathAndQuery,
}

impl Target {
    /// Parses a URL and checks its host. The addresses of a name are checked when they are dialled.
    pub fn parse(url: &str, rules: &AddressRules) -> Result<Self, Refusal> {
        let target = Self::read(url)?;
        rules.check_host(&target.origin.host)?;
        Ok(target)
    }

    fn read(url: &str) -> Result<Self, UrlFault> {
        if url.len() > MAX_URL {
            return Err(UrlFault::TooLong);
        }
        if url.bytes().any(|byte| !byte.is_ascii_graphic() || byte == b'\\') {
            return Err(UrlFault::Character);
        }
        let (is_tls, rest) = scheme(url).ok_or(UrlFault::Scheme)?;
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = authority_parts(authority)?;
        let port = port.map_or(Ok(if is_tls { 443 } else { 80 }), parse_port)?;
        Ok(Self { origin: Origin { is_tls, host: Host::parse(host)?, port }, path: parse_path(path)? })
    }

    /// The host, without the port.
    pub fn host(&self) -> &Host {
        &self.origin.host
    }

    pub fn port(&self) -> u16 {
        self.origin.port
    }

    pub fn is_tls(&self) -> bool {
        self.origin.is_tls
    }

    /// The path and query as they are sent.
    pub(super) fn path(&self) -> &PathAndQuery {
        &self.path
    }
}

/// Without the path, which may be private as a whole (webhook URLs).
impl fmt::Display for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}", self.origin)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "Target({self})")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}://{}", self.scheme(), self.authority())
    }
}

impl Origin {
    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// As `Host` and `:authority` have it: without the scheme's own port.
    pub(super) fn authority(&self) -> String {
        match (self.is_tls, self.port) {
            (false, 80) | (true, 443) => self.host.to_string(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }

    /// The absolute URI of a path.
    pub(super) fn uri(&self, path: &PathAndQuery) -> Result<Uri, http::Error> {
        Uri::builder().scheme(self.scheme()).authority(self.authority()).path_and_query(path.clone()).build()
    }
}

impl Host {
    /// Parses the host of a URL: a name, an IPv4 address, or an IPv6 address in brackets.
    pub fn parse(text: &str) -> Result<Self, UrlFault> {
        if let Some(inner) = text.strip_prefix('[') {
            return ipv6(inner.strip_suffix(']').ok_or(UrlFault::Ipv6)?);
        }
        if text.is_empty() {
            return Err(UrlFault::NoHost);
        }
        if is_read_as_number(text) {
            return text.parse::<Ipv4Addr>().map(|address| Self::Address(address.into())).map_err(|_| UrlFault::Ipv4);
        }
        // A dot at the end names the same host under another name, which lists of names do not contain.
        let is_valid = text.len() <= MAX_NAME && text.split('.').all(is_label);
        if is_valid { Ok(Self::Name(text.to_ascii_lowercase())) } else { Err(UrlFault::Name) }
    }
}

fn scheme(url: &str) -> Option<(bool, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Some((false, rest)),
        "https" => Some((true, rest)),
        _ => None,
    }
}

/// Splits the host from the port.
fn authority_parts(authority: &str) -> Result<(&str, Option<&str>), UrlFault> {
    if authority.contains('@') {
        return Err(UrlFault::UserInfo);
    }
    if authority.starts_with('[') {
        let end = authority.find(']').ok_or(UrlFault::Ipv6)? + 1;
        let (host, rest) = authority.split_at(end);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(UrlFault::Ipv6),
        };
    }
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    if host.is_empty() { Err(UrlFault::NoHost) } else { Ok((host, port)) }
}

fn parse_port(text: &str) -> Result<u16, UrlFault> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain).ok_or(UrlFault::Port)
}

/// Whether some resolver would read this host as an IPv4 address: `127.1`, `0x7f.1`, `2130706433`, `0177.0.0.1`. Such a host
/// ends in a number (WHATWG URL, 3.5), and no name of the internet does.
fn is_read_as_number(host: &str) -> bool {
    let last = host.strip_suffix('.').unwrap_or(host).rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_hex = hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hex || (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_label(label: &str) -> bool {
    // Names of containers and services may have an underscore.
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_LABEL).contains(&label.len())
        && label.bytes().all(is_allowed)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn ipv6(inner: &str) -> Result<Host, UrlFault> {
    let address = IpAddr::V6(inner.parse::<Ipv6Addr>().map_err(|_| UrlFault::Ipv6)?);
    if inner.contains('.') || address::is_wrapped(address) {
        return Err(UrlFault::Wrapped);
    }
    Ok(Host::Address(address))
}

fn parse_path(text: &str) -> Result<PathAndQuery, UrlFault> {
    if text.contains('#') {
        return Err(UrlFault::Fragment);
    }
    let (path, query) = text.split_once('?').map_or((text, None), |(path, query)| (path, Some(query)));
    // Servers resolve such segments, so a value in a template could leave the path that the template names.
    if has_dot_segments(path) {
        return Err(UrlFault::DotSegment);
    }
    let path = if path.is_empty() { "/" } else { path };
    let whole = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    whole.parse().map_err(|_| UrlFault::Path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<String, UrlFault> {
        Target::read(url).map(|target| format!("{target}{}", target.path))
    }

    #[test]
    fn ordinary_urls_are_read() {
        for (url, shown) in [
            ("http://example.com", "http://example.com/"),
            ("HTTPS://API.Example.COM:443/v1?x=1", "https://api.example.com/v1?x=1"),
            ("https://example.com:8443?x=a@b:c/../d", "https://example.com:8443/?x=a@b:c/../d"),
            ("http://10.0.0.1:8080/a%20b/@c:d", "http://10.0.0.1:8080/a%20b/@c:d"),
            ("http://[2001:DB8:0::1]:81/", "http://[2001:db8::1]:81/"),
            ("http://xn--bcher-kva.example/..a/.b/c.", "http://xn--bcher-kva.example/..a/.b/c."),
            ("http://my_service/", "http://my_service/"),
            ("http://4chan.example/", "http://4chan.example/"),
        ] {
            assert_eq!(read(url).as_deref(), Ok(shown), "{url}");
        }
    }

    #[test]
    fn a_path_cannot_be_left() {
        for url in
            ["/..", "/a/../b", "/a/%2e%2E/b", "/a/.%2e", "/./a", "/a/..;x=1/b", "/a/%2E", "/a/..%2fb", "/a%5c..%5Cb"]
        {
            assert_eq!(read(&format!("http://a{url}")), Err(UrlFault::DotSegment), "{url}");
        }
    }

    #[test]
    fn limits_hold_at_their_edges() {
        let label = "a".repeat(MAX_LABEL);
        assert!(read(&format!("http://{label}.b/")).is_ok());
        assert_eq!(read(&format!("http://{label}a.b/")), Err(UrlFault::Name));
        let name = format!("{label}.{label}.{label}.{}", "b".repeat(61));
        assert_eq!(name.len(), MAX_NAME);
        assert!(read(&format!("http://{name}/")).is_ok());
        assert_eq!(read(&format!("http://{name}b/")), Err(UrlFault::Name));
        let long = format!("http://a/{}", "b".repeat(MAX_URL - 9));
        assert!(read(&long).is_ok());
        assert_eq!(read(&format!("{long}b")), Err(UrlFault::TooLong));
    }
}
