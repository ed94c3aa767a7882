//! Who may come to a socket that is for this machine only. A page in a browser on this machine is a stranger: it could
//! reach us under a name of its own that points here.

use http::header::HOST;
use http::request;

use crate::hosts::{Hosts, Refused};

/// Why a request is not taken, if it is not.
pub(super) fn refusal(parts: &request::Parts) -> Option<&'static str> {
    let has_host = parts.headers.contains_key(HOST) || parts.uri.authority().is_some();
    match Hosts::local().refusal(parts) {
        Some(Refused::Origin) => Some("this gateway is for this machine only, and a page from elsewhere asks"),
        None if has_host => None,
        _ => Some("this gateway is for this machine only, and is asked for under another name"),
    }
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
