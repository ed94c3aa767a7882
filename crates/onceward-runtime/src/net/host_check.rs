//! Host and origin checks against DNS rebinding. A web page in a browser on this machine can reach a loopback listener
//! through a domain of its own that points here, but it can hide that domain neither in `Host` nor in `Origin`.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, ORIGIN};
use http::request;
use http::uri::{Authority, Uri};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostRefusal {
    /// Its host is not allowed.
    Host,
    /// It comes from a web page whose origin is not allowed.
    Origin,
}

/// The hosts that a listener accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostCheck {
    /// Any host: no check.
    Any,
    /// This machine and these names, in lower case.
    Listed(Vec<String>),
}

impl HostCheck {
    /// The check for a listener. It always applies on loopback; elsewhere only if hosts are listed, because a public service
    /// may have any name.
    pub fn of(listen: SocketAddr, allowed: &[String]) -> Result<Self, String> {
        if allowed.iter().any(|name| name == "*") {
            return Ok(Self::Any);
        }
        let names = allowed.iter().map(|name| parse_name(name)).collect::<Result<Vec<_>, _>>()?;
        let is_checked = listen.ip().to_canonical().is_loopback() || !names.is_empty();
        Ok(if is_checked { Self::Listed(names) } else { Self::Any })
    }

    /// Accepts only names of this machine.
    pub fn local() -> Self {
        Self::Listed(Vec::new())
    }

    /// Why a request is refused; `None` if it is accepted. A request without a host is accepted: only HTTP/1.0 allows it, and
    /// browsers do not send it.
    pub fn refusal(&self, parts: &request::Parts) -> Option<HostRefusal> {
        let Self::Listed(names) = self else { return None };
        let is_allowed = |host: &str| is_this_machine(host) || names.contains(&bare_host(host).to_ascii_lowercase());
        // The request target may also name a host, in HTTP/2 and in the absolute form. Both must be allowed, because the upstream
        // may use either.
        let in_target = parts.uri.authority().into_iter().all(|authority| is_allowed(authority.host()));
        let in_headers = parts.headers.get_all(HOST).iter().all(|value| {
            let authority = value.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
            authority.is_some_and(|authority| is_allowed(authority.host()))
        });
        if !in_target || !in_headers {
            return Some(HostRefusal::Host);
        }
        let is_trusted = parts.headers.get_all(ORIGIN).iter().all(|value| {
            let origin = value.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
            origin.is_some_and(|origin| origin.host().is_some_and(is_allowed))
        });
        (!is_trusted).then_some(HostRefusal::Origin)
    }
}

/// Whether a host (without port) is a name of this machine.
fn is_this_machine(host: &str) -> bool {
    let host = bare_host(host);
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    is_loopback || host.eq_ignore_ascii_case("localhost")
}

/// A host without brackets and without the final dot of a fully qualified name.
fn bare_host(host: &str) -> &str {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host)
}

/// Parses one configured name.
fn parse_name(name: &str) -> Result<String, String> {
    let wrong = || format!("invalid host {name:?}; write a name without scheme, port or path, as in `api.example.com`");
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let authority: Authority = name.parse().map_err(|_| wrong())?;
    let host = bare_host(authority.host());
    let is_bare = authority.as_str() == authority.host() && !host.is_empty() && !host.contains(':');
    if is_bare { Ok(host.to_ascii_lowercase()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(listen: &str, allowed: &[&str]) -> Result<HostCheck, String> {
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        HostCheck::of(listen.parse().unwrap(), &allowed)
    }

    fn refusal(hosts: &HostCheck, host: &str, origin: Option<&str>) -> Option<HostRefusal> {
        let mut request = http::Request::post("/").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        hosts.refusal(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        let here = HostCheck::local();
        for host in ["localhost", "LOCALHOST:8787", "localhost.", "127.0.0.1:80", "[::1]:8787", "[::ffff:127.0.0.1]"] {
            assert_eq!(refusal(&here, host, None), None, "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0", "localhost..", ""] {
            assert_eq!(refusal(&here, host, None), Some(HostRefusal::Host), "{host}");
        }
        assert_eq!(refusal(&here, "localhost", Some("http://localhost:6274")), None);
        for origin in ["https://evil.example", "null", "", "file://", "http://localhost@evil.example"] {
            assert_eq!(refusal(&here, "127.0.0.1", Some(origin)), Some(HostRefusal::Origin), "{origin}");
        }
    }

    #[test]
    fn hosts_are_checked_on_loopback_and_if_some_are_listed() {
        for (listen, allowed, is_checked) in [
            ("127.0.0.1:80", &[][..], true),
            ("[::1]:80", &[], true),
            ("0.0.0.0:80", &[], false),
            ("[::]:80", &["a.example"], true),
            ("10.0.0.1:80", &["a.example"], true),
            ("127.0.0.1:80", &["*"], false),
        ] {
            let hosts = of(listen, allowed).unwrap();
            assert_eq!(refusal(&hosts, "evil.example", None).is_some(), is_checked, "{listen} {allowed:?}");
            assert_eq!(refusal(&hosts, "A.example:8080", None).is_some(), is_checked && allowed.is_empty(), "{listen}");
        }
        assert_eq!(refusal(&of("127.0.0.1:80", &["2001:db8::1"]).unwrap(), "[2001:db8::1]:80", None), None);
        for wrong in ["", "a b", "a.example:80", "http://a.example", "a.example/x", "u@a.example", "."] {
            assert!(of("127.0.0.1:80", &[wrong]).is_err(), "{wrong}");
        }
    }
}
