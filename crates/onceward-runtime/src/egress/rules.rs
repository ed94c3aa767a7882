//! Which hosts and addresses a sink may reach. Pure.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::address::{self, Network};
use super::target::{Host, UrlFault};

/// Why nothing was dialled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the URL is refused: {0}")]
    Url(#[from] UrlFault),
    #[error("{0} is not among the hosts that the sink allows (allowed_hosts)")]
    Host(String),
    #[error("{address} is refused: {network}{}", advice(*.network))]
    Address { address: IpAddr, network: Network },
}

fn advice(network: Network) -> &'static str {
    if network.is_permittable() { "; allow_private = true permits it" } else { ", which is never permitted" }
}

/// What a sink may reach. The default is every public address and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Permits private networks and this machine, but never cloud metadata.
    pub allow_private: bool,
    /// If there is a list, no other host is dialled.
    pub allowed_hosts: Option<AllowedHosts>,
}

/// An address that the rules permit. Only such addresses are dialled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permitted(SocketAddr);

impl Permitted {
    pub(super) fn address(self) -> SocketAddr {
        self.0
    }
}

impl AddressRules {
    /// Checks the address that is about to be dialled.
    pub(super) fn permit(&self, address: IpAddr, port: u16) -> Result<Permitted, Refusal> {
        match address::network(address) {
            Some(network) if !self.allow_private || !network.is_permittable() => {
                Err(Refusal::Address { address, network })
            }
            // A mapped address is dialled as the IPv4 address that was judged.
            _ => Ok(Permitted(SocketAddr::new(address.to_canonical(), port))),
        }
    }

    /// Checks the host of a URL, before it is resolved.
    pub(super) fn check_host(&self, host: &Host) -> Result<(), Refusal> {
        if self.allowed_hosts.as_ref().is_some_and(|allowed| !allowed.contains(host)) {
            return Err(Refusal::Host(host.to_string()));
        }
        match host {
            Host::Address(address) => self.permit(*address, 0).map(|_| ()),
            Host::Name(_) => Ok(()),
        }
    }
}

/// The hosts of `allowed_hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedHosts(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exact(Host),
    /// Every name below this domain, but not the domain itself. Starts with a dot.
    Below(String),
}

/// Every request compares its host with each of them.
const MAX_ALLOWED: usize = 1_000;

impl AllowedHosts {
    /// Parses exact names, addresses, and `*.DOMAIN` for every name below a domain.
    pub fn parse<T: AsRef<str>>(list: &[T]) -> Result<Self, String> {
        if list.is_empty() {
            return Err(
                "the list of allowed hosts is empty, so nothing could be sent; leave it out to allow every host"
                    .to_owned(),
            );
        }
        if list.len() > MAX_ALLOWED {
            return Err(format!("the list of allowed hosts has more than {MAX_ALLOWED} entries"));
        }
        list.iter().map(|entry| Pattern::parse(entry.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    fn contains(&self, host: &Host) -> bool {
        self.0.iter().any(|pattern| match (pattern, host) {
            (Pattern::Exact(exact), host) => exact == host,
            // The dot is part of the suffix, so `evil-example.com` is not below `example.com`.
            (Pattern::Below(suffix), Host::Name(name)) => name.ends_with(suffix.as_str()) && name.len() > suffix.len(),
            (Pattern::Below(_), Host::Address(_)) => false,
        })
    }
}

impl Pattern {
    fn parse(entry: &str) -> Result<Self, String> {
        let parse = |host: &str| {
            let shown = onceward::shown_store(entry);
            Host::parse(host).map_err(|fault| format!("allowed host {shown:?}: {fault}"))
        };
        match entry.strip_prefix("*.") {
            Some(domain) => match parse(domain)? {
                Host::Name(name) => Ok(Self::Below(format!(".{name}"))),
                Host::Address(_) => Err(format!("allowed host {entry:?}: `*.` needs a domain after it")),
            },
            None => parse(entry).map(Self::Exact),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => to.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(to, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(to, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(list: &[&str], host: &str) -> bool {
        AllowedHosts::parse(list).unwrap().contains(&Host::parse(host).unwrap())
    }

    #[test]
    fn a_suffix_allows_names_below_a_domain_and_nothing_else() {
        for host in ["a.example.com", "a.b.example.com", "A.EXAMPLE.com"] {
            assert!(allows(&["*.example.com"], host), "{host}");
        }
        for host in ["example.com", "evil-example.com", "evilexample.com", "a.example.com.evil", "example.co"] {
            assert!(!allows(&["*.example.com"], host), "{host}");
        }
        assert!(allows(&["EXAMPLE.com"], "example.com"));
        assert!(!allows(&["example.com"], "a.example.com"));
        assert!(allows(&["[2001:DB8::0:1]", "10.0.0.1"], "[2001:db8::1]"));
    }

    #[test]
    fn a_list_that_cannot_mean_what_it_says_is_refused() {
        let none: &[&str] = &[];
        assert!(AllowedHosts::parse(none).is_err());
        for entry in [
            "*",
            "*.",
            "*.*.com",
            "a.*.com",
            "*example.com",
            "http://a",
            "a:80",
            "a/b",
            "a.",
            "*.10.0.0.1",
            "",
            "ex ample",
        ] {
            assert!(AllowedHosts::parse(&[entry]).is_err(), "{entry}");
        }
    }
}
