//! The URL of a Redis store: where the servers are, how to reach them, and which keys are the ledger's.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use onceward_core::duration;

use crate::store::Error;
use crate::store::secret::{percent_decoded, resolve};
use crate::store_url;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The namespace of a ledger whose URL names none.
const DEFAULT_PREFIX: &str = "onceward";

/// Part of every key, so a long one would cost memory for each record.
const MAX_PREFIX: usize = 64;

/// How long an operation may take with all its retries, unless the URL says otherwise. It is longer than the failover of a
/// well-tuned Sentinel, and shorter than the patience of most HTTP clients.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(8);

/// Below this, a pause of the garbage collector of a client machine would count as a lost server.
const MIN_TIMEOUT: Duration = Duration::from_millis(100);

/// How long a write waits for its replicas, unless the URL says otherwise: a replica in the same region answers far sooner.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// Sentinels and cluster nodes in one URL. One that answers is enough.
const MAX_HOSTS: usize = 64;

/// Which servers there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Topology {
    /// One server.
    Single,
    /// A primary with this name, which the hosts of the URL watch.
    Sentinel(String),
    /// The hosts of the URL are some nodes of a cluster.
    Cluster,
}

/// A user and a password. `Debug` shows neither.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

/// The parts of a URL, with secrets resolved.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) topology: Topology,
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) tls: bool,
    pub(super) ca: Option<PathBuf>,
    pub(super) login: Login,
    pub(super) sentinel_login: Login,
    pub(super) database: i64,
    pub(super) prefix: String,
    pub(super) replicas: u32,
    pub(super) wait: Duration,
    pub(super) timeout: Duration,
}

/// The URL without anything secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let kind = match &self.topology {
            Topology::Single => "",
            Topology::Sentinel(_) => "+sentinel",
            Topology::Cluster => "+cluster",
        };
        write!(f, "{scheme}{kind}://")?;
        for (number, (host, port)) in self.hosts.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match host.contains(':') {
                true => write!(f, "{comma}[{host}]:{port}")?,
                false => write!(f, "{comma}{host}:{port}")?,
            }
        }
        if let Topology::Sentinel(name) = &self.topology {
            write!(f, "/{name}")?;
        }
        if self.database != 0 {
            write!(f, "/{}", self.database)?;
        }
        if self.prefix != DEFAULT_PREFIX {
            write!(f, "?prefix={}", self.prefix)?;
        }
        Ok(())
    }
}

impl Address {
    /// Reads a URL. Errors show it without its password.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        parse(url).map_err(|reason| {
            let shown = store_url::shown(url);
            Error::Refused { store: shown.split('?').next().unwrap_or_default().to_owned(), reason }
        })
    }
}

fn parse(url: &str) -> Result<Address, String> {
    store_url::check_separators(url)?;
    let (scheme, rest) = url.split_once("://").ok_or("it is not a URL")?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    // The reference to a file contains slashes, so the password ends at the last `@` and not at the first slash.
    let (login, place) = rest.rsplit_once('@').map_or(("", rest), |(login, place)| (login, place));
    let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
    let (family, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    let default_port = if kind == "sentinel" { SENTINEL_PORT } else { REDIS_PORT };
    let (name, database) = match kind {
        "sentinel" => path.split_once('/').unwrap_or((path, "")),
        _ => ("", path),
    };
    let topology = match kind {
        "" => Topology::Single,
        "sentinel" if name.is_empty() => {
            return Err("the name of the primary is missing, as in redis+sentinel://host:26379/NAME".to_owned());
        }
        "sentinel" => Topology::Sentinel(decoded(name, "name")?),
        "cluster" => Topology::Cluster,
        other => return Err(format!("unknown kind `{other}`: use redis+sentinel or redis+cluster")),
    };
    let mut address = Address {
        topology,
        hosts: parse_hosts(hosts, default_port)?,
        tls: match family {
            "redis" => false,
            "rediss" => true,
            _ => return Err("the scheme is not redis or rediss".to_owned()),
        },
        ca: None,
        login: parse_login(login)?,
        sentinel_login: Login::default(),
        database: match database {
            "" => 0,
            number => number.parse().ok().filter(|number| *number >= 0).ok_or("the database is not a number")?,
        },
        prefix: DEFAULT_PREFIX.to_owned(),
        replicas: 0,
        wait: DEFAULT_WAIT,
        timeout: DEFAULT_TIMEOUT,
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        set_parameter(&mut address, name, &decoded(value, name)?)?;
    }
    if !query.split('&').any(|pair| pair.starts_with("wait_ms=")) {
        address.wait = DEFAULT_WAIT.min(address.timeout / 4);
    }
    check(address)
}

fn check(address: Address) -> Result<Address, String> {
    if address.topology == Topology::Cluster && address.database != 0 {
        return Err("a cluster has only database 0".to_owned());
    }
    if address.topology == Topology::Single && address.hosts.len() > 1 {
        return Err("several hosts need redis+sentinel:// or redis+cluster://".to_owned());
    }
    if address.ca.is_some() && !address.tls {
        return Err("`ca` needs TLS: use rediss".to_owned());
    }
    if address.sentinel_login != Login::default() && !matches!(address.topology, Topology::Sentinel(_)) {
        return Err("`sentinel_user` and `sentinel_password` need redis+sentinel://".to_owned());
    }
    // An attempt takes half of the time at most, and must be able to say that replicas are missing.
    if address.wait.is_zero() || address.wait >= address.timeout / 2 {
        return Err("`wait_ms` must be above 0 and less than half of `timeout`".to_owned());
    }
    Ok(address)
}

fn set_parameter(address: &mut Address, name: &str, value: &str) -> Result<(), String> {
    let number = |what: &str| value.parse().map_err(|_| format!("`{what}` is not a number"));
    match name {
        "prefix" => {
            let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
            if value.is_empty() || value.len() > MAX_PREFIX || !value.chars().all(is_part) {
                return Err(format!("`prefix` must be 1 to {MAX_PREFIX} letters, digits or -_.:"));
            }
            address.prefix = value.to_owned();
        }
        "replicas" => address.replicas = number("replicas")?,
        "wait_ms" => address.wait = Duration::from_millis(number("wait_ms")?.into()),
        "timeout" => {
            let timeout = duration::parse(value).map_err(|error| format!("`timeout`: {error}"))?;
            if timeout < MIN_TIMEOUT {
                return Err("`timeout` must be at least 100ms".to_owned());
            }
            address.timeout = timeout;
        }
        "tls" => {
            address.tls = match value {
                "true" => true,
                "false" if !address.tls => false,
                _ => return Err("`tls` is `true`, or `false` without rediss".to_owned()),
            }
        }
        "ca" => address.ca = Some(value.into()),
        "sentinel_user" => address.sentinel_login.user = Some(value.to_owned()),
        "sentinel_password" => address.sentinel_login.password = Some(resolve(value)?),
        other => {
            return Err(format!(
                "unknown parameter `{}`: use prefix, replicas, wait_ms, timeout, tls, ca, sentinel_user or \
                 sentinel_password",
                store_url::parameter_name(other)
            ));
        }
    }
    Ok(())
}

fn parse_login(text: &str) -> Result<Login, String> {
    let (user, password) = text.split_once(':').map_or((text, None), |(user, password)| (user, Some(password)));
    let user = decoded(user, "user")?;
    let password = match password {
        None | Some("") => None,
        Some(password) => Some(resolve(&decoded(password, "password")?)?),
    };
    Ok(Login { user: Some(user).filter(|user| !user.is_empty()), password })
}

fn parse_hosts(text: &str, default_port: u16) -> Result<Vec<(String, u16)>, String> {
    let hosts: Vec<_> = text.split(',').map(|host| parse_host(host, default_port)).collect::<Result<_, _>>()?;
    if hosts.len() > MAX_HOSTS {
        return Err(format!("more than {MAX_HOSTS} hosts"));
    }
    Ok(hosts)
}

fn parse_host(text: &str, default_port: u16) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("a host is missing".to_owned());
    }
    // An encoded `@` or `:` belongs to a login, which would be looked up as a host, and shown.
    if !text.starts_with('[') && host.contains('%') {
        return Err("a host contains `%`: write the `@` after the password as it is".to_owned());
    }
    let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| "a port is not a number".to_owned()))?;
    Ok((host.to_owned(), port))
}

fn decoded(text: &str, what: &str) -> Result<String, String> {
    percent_decoded(text).ok_or_else(|| format!("`{what}` has an invalid escape"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn refusal(url: &str) -> String {
        Address::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn each_topology_is_read() {
        let single = Address::parse("redis://ana:p%40ss@db.local/3?prefix=mail&timeout=2s").unwrap();
        assert_eq!((&single.topology, &single.hosts[..]), (&Topology::Single, &[("db.local".to_owned(), 6379)][..]));
        assert_eq!(single.login, Login { user: Some("ana".into()), password: Some("p@ss".into()) });
        assert_eq!((single.database, single.prefix.as_str(), single.timeout), (3, "mail", Duration::from_secs(2)));
        let sentinel = Address::parse("rediss+sentinel://a,[::1]:5/main/2?replicas=1&wait_ms=50").unwrap();
        assert_eq!(sentinel.topology, Topology::Sentinel("main".into()));
        assert_eq!(sentinel.hosts, [("a".to_owned(), 26379), ("::1".to_owned(), 5)]);
        assert_eq!((sentinel.tls, sentinel.database, sentinel.replicas), (true, 2, 1));
        let cluster = Address::parse("redis+cluster://:secret@a:1,b:2").unwrap();
        assert_eq!((cluster.topology, cluster.hosts.len()), (Topology::Cluster, 2));
    }

    #[test]
    fn a_password_can_be_a_reference_to_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "hunter2\n").unwrap();
        let address = Address::parse(&format!("redis://:file:{}@host:1/0", path.display())).unwrap();
        assert_eq!(address.login.password.as_deref(), Some("hunter2"));
    }

    #[test]
    fn secrets_are_never_shown() {
        let address = Address::parse("redis+sentinel://ana:hunter2@h:1/main?sentinel_password=hunter2").unwrap();
        for shown in [address.to_string(), format!("{address:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        assert_eq!(address.to_string(), "redis+sentinel://h:1/main");
        for wrong in [
            "redis://:hunter2@h:x",
            "redis://:hunter2@h?x=1",
            "redis+x://:hunter2@h",
            "redis://:hunter2@h/x",
            "redis://:a?hunter2@h",
            "redis://u%3Ahunter2%40h",
            "redis://:hunter2",
            "redis://h?hunter2%40=1",
        ] {
            assert!(!refusal(wrong).contains("hunter2"), "{}", refusal(wrong));
        }
    }

    #[test]
    fn a_question_mark_in_a_password_is_refused_with_what_to_write() {
        assert!(refusal("redis://:hun?ter@h").contains("write `?` in a password as %3F"));
        let address = Address::parse("redis://:hun%3Fter@h").unwrap();
        assert_eq!(address.login.password.as_deref(), Some("hun?ter"));
    }

    #[test]
    fn an_unknown_parameter_is_refused_by_name() {
        assert!(refusal("redis://h?prefx=a").contains("`prefx`"));
        for wrong in [
            "redis://h?prefix=",
            "redis://h?prefix=a{b",
            "redis://h?timeout=1ms",
            "redis://h?wait_ms=0",
            "redis://h?wait_ms=4000",
            "redis://h?ca=x",
            "rediss://h?tls=false",
            "redis://a,b",
            "redis+cluster://a/1",
            "redis+sentinel://a",
            "redis://",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
