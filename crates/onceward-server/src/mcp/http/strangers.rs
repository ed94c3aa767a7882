//! Who may come to a socket that is for this machine only. A page in a browser on this machine is a stranger: it could
//! reach us under a name of its own that points here.

use http::header::{HOST, ORIGIN};
use http::request;
use http::uri::{Authority, Uri};

/// Why a request is not taken, if it is not.
pub(super) fn refusal(parts: &request::Parts) -> Option<&'static str> {
    let host = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| parts.uri.authority().map(Authority::as_str));
    let name = host.and_then(|host| host.parse::<Authority>().ok());
    if !name.is_some_and(|authority| is_here(authority.host())) {
        return Some("this gateway is for this machine only, and is asked for under another name");
    }
    let origin = parts.headers.get(ORIGIN)?;
    let origin = origin.to_str().ok().and_then(|origin| origin.parse::<Uri>().ok());
    let is_here = origin.is_some_and(|origin| origin.host().is_some_and(is_here));
    (!is_here).then_some("this gateway is for this machine only, and a page from elsewhere asks")
}

fn is_here(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    is_loopback || host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_no_stranger() {
        let asked = |host: &str, origin: Option<&str>| {
            let mut request = http::Request::post("/mcp").header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            refusal(&request.body(()).unwrap().into_parts().0).is_none()
        };
        for host in ["127.0.0.1:80", "localhost", "LOCALHOST:1", "[::1]:9"] {
            assert!(asked(host, None), "{host}");
        }
        assert!(asked("localhost", Some("http://localhost:6274")));
        assert!(!asked("evil.example:80", None));
        assert!(!asked("127.0.0.1", Some("https://evil.example")));
        assert!(!asked("127.0.0.1", Some("null")));
        assert!(!asked("127.0.0.1.evil.example", None));
    }
}
