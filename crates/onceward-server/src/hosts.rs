//! Host and origin checks. A page in a browser on this machine can reach a loopback listener under a name of its own that
//! points here (DNS rebinding). What it cannot do is to leave that name out of `Host`, or its own out of `Origin`.

use std::net::{IpAddr, SocketAddr};

use http::header::{HOST, ORIGIN};
use http::request;
use http::uri::{Authority, Uri};

/// What is wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It asks for a host that is not allowed.
    Host,
    /// A page of an origin that is not allowed sent it.
    Origin,
}

/// The hosts that a listener answers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// All of them: nothing is checked.
    Any,
    /// This machine, and these names in lower case.
    Listed(Vec<String>),
}

impl Hosts {
    /// The check for a listener. On loopback it always holds; elsewhere only where hosts are listed, because a public
    /// service may have any name.
    pub(crate) fn of(listen: SocketAddr, allowed: &[String]) -> Result<Self, String> {
        if allowed.iter().any(|name| name == "*") {
            return Ok(Self::Any);
        }
        let names = allowed.iter().map(|name| read(name)).collect::<Result<Vec<_>, _>>()?;
        let is_checked = listen.ip().to_canonical().is_loopback() || !names.is_empty();
        Ok(if is_checked { Self::Listed(names) } else { Self::Any })
    }

    /// Only names of this machine.
    pub(crate) fn local() -> Self {
        Self::Listed(Vec::new())
    }

    /// Why a request is refused; `None` when it is not. A request without a host passes: only HTTP/1.0 allows that, and no
    /// browser sends it.
    pub(crate) fn refusal(&self, parts: &request::Parts) -> Option<Refused> {
        let Self::Listed(names) = self else { return None };
        let is_allowed = |host: &str| is_this_machine(host) || names.contains(&plain(host).to_ascii_lowercase());
        // A target may name a host too, in HTTP/2 and in the absolute form. Both have to be allowed, because the reader
        // behind us may take either.
        let in_target = parts.uri.authority().into_iter().all(|authority| is_allowed(authority.host()));
        let in_headers = parts.headers.get_all(HOST).iter().all(|value| {
            let authority = value.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
            authority.is_some_and(|authority| is_allowed(authority.host()))
        });
        if !in_target || !in_headers {
            return Some(Refused::Host);
        }
        let is_trusted = parts.headers.get_all(ORIGIN).iter().all(|value| {
            let origin = value.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
            origin.is_some_and(|origin| origin.host().is_some_and(is_allowed))
        });
        (!is_trusted).then_some(Refused::Origin)
    }
}

/// Whether a host without its port is a name of this machine.
fn is_this_machine(host: &str) -> bool {
    let host = plain(host);
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    is_loopback || host.eq_ignore_ascii_case("localhost")
}

/// A host without brackets, and without the dot that ends a full name.
fn plain(host: &str) -> &str {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.strip_suffix('.').unwrap_or(host)
}

/// One name as it is configured.
fn read(name: &str) -> Result<String, String> {
    let wrong =
        || format!("{name:?} is not a host; write a name without scheme, port or path, as in `api.example.com`");
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let authority: Authority = name.parse().map_err(|_| wrong())?;
    let host = plain(authority.host());
    let is_bare = authority.as_str() == authority.host() && !host.is_empty() && !host.contains(':');
    if is_bare { Ok(host.to_ascii_lowercase()) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(listen: &str, allowed: &[&str]) -> Result<Hosts, String> {
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        Hosts::of(listen.parse().unwrap(), &allowed)
    }

    fn asked(hosts: &Hosts, host: &str, origin: Option<&str>) -> Option<Refused> {
        let mut request = http::Request::post("/").header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        hosts.refusal(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        let here = Hosts::local();
        for host in ["localhost", "LOCALHOST:8787", "localhost.", "127.0.0.1:80", "[::1]:8787", "[::ffff:127.0.0.1]"] {
            assert_eq!(asked(&here, host, None), None, "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "0.0.0.0", "localhost..", ""] {
            assert_eq!(asked(&here, host, None), Some(Refused::Host), "{host}");
        }
        assert_eq!(asked(&here, "localhost", Some("http://localhost:6274")), None);
        for origin in ["https://evil.example", "null", "", "file://", "http://localhost@evil.example"] {
            assert_eq!(asked(&here, "127.0.0.1", Some(origin)), Some(Refused::Origin), "{origin}");
        }
    }

    #[test]
    fn hosts_are_checked_on_loopback_and_where_some_are_listed() {
        for (listen, allowed, is_checked) in [
            ("127.0.0.1:80", &[][..], true),
            ("[::1]:80", &[], true),
            ("0.0.0.0:80", &[], false),
            ("[::]:80", &["a.example"], true),
            ("10.0.0.1:80", &["a.example"], true),
            ("127.0.0.1:80", &["*"], false),
        ] {
            let hosts = of(listen, allowed).unwrap();
            assert_eq!(asked(&hosts, "evil.example", None).is_some(), is_checked, "{listen} {allowed:?}");
            assert_eq!(asked(&hosts, "A.example:8080", None).is_some(), is_checked && allowed.is_empty(), "{listen}");
        }
        assert_eq!(asked(&of("127.0.0.1:80", &["2001:db8::1"]).unwrap(), "[2001:db8::1]:80", None), None);
        for wrong in ["", "a b", "a.example:80", "http://a.example", "a.example/x", "u@a.example", "."] {
            assert!(of("127.0.0.1:80", &[wrong]).is_err(), "{wrong}");
        }
    }
}
