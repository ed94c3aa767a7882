//! Host and origin checks for a loopback listener. A web page in a browser on this machine could reach it under a host name of its
//! own that resolves to loopback (DNS rebinding).

use http::header::HOST;
use http::request;

use onceward_runtime::net::host_check::{HostCheck, HostRefusal};

/// Why a request is refused, if it is.
pub(super) fn refusal(parts: &request::Parts) -> Option<&'static str> {
    let has_host = parts.headers.contains_key(HOST) || parts.uri.authority().is_some();
    match HostCheck::local().refusal(parts) {
        Some(HostRefusal::Origin) => {
            Some("this gateway serves this machine only; the request comes from a page of another origin")
        }
        None if has_host => None,
        _ => Some("this gateway serves this machine only; the request names another host"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_local_hosts_and_origins_are_accepted() {
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
