//! Reads the URL of a PostgreSQL store. It is that of libpq, with parameters of our own; a password may be a reference.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::store::{Error, secret};
use crate::store_url;

/// How many connections write. Each is a thread of its own; the keys are divided among them, so that two writes of one key are
/// never under way at once.
const WRITERS: usize = 2;

/// The most connections that may write; with those that read, a process has at most eight.
const MAX_WRITERS: usize = 5;

/// How long one round trip may take before its connection is given up.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Everything that a connection needs.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// The password in it is a reference, which each connection resolves.
    pub(super) config: Config,
    pub(super) tls: Tls,
    pub(super) writers: usize,
    pub(super) timeout: Duration,
    /// The store, without secrets, for errors.
    pub(super) shown: String,
}

/// How the server's identity is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tls {
    /// No encryption.
    Off,
    /// Encrypted, and not checked: `sslmode=require`.
    Unchecked,
    /// Encrypted, with a certificate of a trusted authority.
    Checked {
        /// The certificate must also be for the host that is connected to: `verify-full`.
        host: bool,
        /// The authorities, instead of those of the system.
        root: Option<PathBuf>,
    },
}

impl Options {
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let shown = masked(url);
        let refused = |reason: String| Error::Refused { store: shown.clone(), reason };
        store_url::check_separators(url).map_err(refused)?;
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        check_password(address).map_err(refused)?;
        let (mut kept, mut sslmode, mut root, mut writers, mut timeout) = (Vec::new(), None, None, WRITERS, TIMEOUT);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "sslmode" => sslmode = Some(value.to_owned()),
                "sslrootcert" => root = Some(PathBuf::from(decoded(value))),
                "writers" => {
                    let number = value.parse().ok().filter(|number| (1..=MAX_WRITERS).contains(number));
                    writers =
                        number.ok_or_else(|| refused(format!("`writers` is a number from 1 to {MAX_WRITERS}")))?;
                }
                "timeout" => {
                    let seconds = value.parse().ok().filter(|seconds| (1..=60).contains(seconds));
                    let seconds = seconds.ok_or_else(|| refused("`timeout` is 1 to 60 seconds".to_owned()))?;
                    timeout = Duration::from_secs(seconds);
                }
                "channel_binding"
                | "connect_timeout"
                | "options"
                | "target_session_attrs"
                | "keepalives"
                | "keepalives_idle"
                | "application_name"
                | "host"
                | "port"
                | "user"
                | "dbname" => kept.push(pair),
                other => return Err(refused(format!("unknown parameter `{}`", store_url::parameter_name(other)))),
            }
        }
        let url = if kept.is_empty() { address.to_owned() } else { format!("{address}?{}", kept.join("&")) };
        // The parser's error may quote the URL, which may contain a password.
        let mut config: Config = url.parse().map_err(|_| refused("the URL is not a PostgreSQL URL".to_owned()))?;
        if let Some(password) = config.get_password() {
            let password =
                std::str::from_utf8(password).map_err(|_| refused("the password is not UTF-8".to_owned()))?;
            // Only a look whether it can be read: each connection reads it again, because a file may be replaced.
            secret::resolve(password).map_err(|error| refused(error.to_string()))?;
        }
        // With an encoded `@`, a login would be looked up as a host, and shown.
        if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
            return Err(refused("a host contains `@`: write the `@` after the password as it is".to_owned()));
        }
        if config.get_hosts().is_empty() {
            return Err(refused("the URL names no host".to_owned()));
        }
        // The parser gives every host of the address a port, so that another one has no place.
        if config.get_ports().len() > 1 && config.get_ports().len() != config.get_hosts().len() {
            return Err(refused(
                "its ports do not belong to its hosts one by one: write each port after its host, as in host:5433"
                    .to_owned(),
            ));
        }
        let tls = tls(sslmode.as_deref(), root, is_local(&config)).map_err(refused)?;
        config.ssl_mode(if tls == Tls::Off { SslMode::Disable } else { SslMode::Require });
        // Of several hosts, only the primary can be written.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(timeout);
        }
        if config.get_application_name().is_none() {
            config.application_name("onceward");
        }
        Ok(Self { config, tls, writers, timeout, shown })
    }

    /// The configuration of a connection to each host, with the password as it is now.
    pub(super) fn each_host(&self) -> Result<Vec<Config>, String> {
        let (config, ports) = (self.with_password()?, self.config.get_ports());
        let hosts = config.get_hosts().iter().enumerate();
        let hosts = hosts.map(|(place, host)| (host, ports.get(place).or(ports.first()).copied()));
        Ok(hosts.map(|(host, port)| to_host(&config, host, port)).collect())
    }

    fn with_password(&self) -> Result<Config, String> {
        let mut config = self.config.clone();
        let password = config.get_password().and_then(|reference| std::str::from_utf8(reference).ok());
        if let Some(password) = password.map(secret::resolve).transpose()? {
            config.password(password);
        }
        Ok(config)
    }
}

/// Without a mode, a server on this machine is not encrypted, and any other one is checked in full.
fn tls(mode: Option<&str>, root: Option<PathBuf>, is_local: bool) -> Result<Tls, String> {
    match mode {
        Some("disable") => Ok(Tls::Off),
        Some("require") if root.is_none() => Ok(Tls::Unchecked),
        // As libpq does: with certificates of authorities, `require` checks them.
        Some("verify-ca" | "require") => Ok(Tls::Checked { host: false, root }),
        Some("verify-full") => Ok(Tls::Checked { host: true, root }),
        None if is_local && root.is_none() => Ok(Tls::Off),
        None => Ok(Tls::Checked { host: true, root }),
        Some(other) => Err(format!(
            "unknown sslmode `{}`: use verify-full (the default for other machines), verify-ca, require or disable",
            decoded(other)
        )),
    }
}

/// The same connection to one of the hosts: everything that [`Options::parse`] takes from a URL.
fn to_host(all: &Config, host: &Host, port: Option<u16>) -> Config {
    let mut config = Config::new();
    match host {
        Host::Tcp(name) => config.host(name.as_str()),
        #[cfg(unix)]
        Host::Unix(path) => config.host_path(path),
    };
    port.map(|port| config.port(port));
    all.get_user().map(|user| config.user(user));
    all.get_password().map(|password| config.password(password));
    all.get_dbname().map(|name| config.dbname(name));
    all.get_options().map(|options| config.options(options));
    all.get_application_name().map(|name| config.application_name(name));
    all.get_connect_timeout().map(|timeout| config.connect_timeout(*timeout));
    config.ssl_mode(all.get_ssl_mode()).channel_binding(all.get_channel_binding());
    config.target_session_attrs(all.get_target_session_attrs());
    config.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
    config
}

fn is_local(config: &Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    })
}

/// The URL without its password and its parameters.
pub(super) fn masked(url: &str) -> String {
    let shown = store_url::shown(url);
    shown.split('?').next().unwrap_or_default().to_owned()
}

/// The parser takes everything after the first `@` for hosts, so that a part of a password would be looked up as a name.
fn check_password(address: &str) -> Result<(), String> {
    match address.matches('@').count() {
        0 | 1 => Ok(()),
        _ => Err("write `@` in a password as %40".to_owned()),
    }
}

/// A percent-encoded value as text, for errors as it is if it is not valid.
fn decoded(value: &str) -> String {
    secret::percent_decoded(value).unwrap_or_else(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "postgres://user:s3cret@host/db",
            "postgres://user:s3c@ret@host/db?sslmode=what",
            "postgres://user:s3cret@host/db?pasword=s3cret",
            "postgres://user:s3cret@/db?bogus=1",
            "postgres://user:s3cret@host:notaport/db",
            "postgres://user:hun?s3cret@host/db",
            "postgres://user:hun?s3c%40host/db",
            "postgres://user%3As3cret%40host/db",
        ] {
            let options = Options::parse(url);
            let shown = match &options {
                Ok(options) => format!("{} {options:?}", options.shown),
                Err(error) => error.to_string(),
            };
            assert!(!shown.contains("s3c"), "{shown}");
        }
        assert_eq!(masked("postgres://u:p@h:1,i:2/d?x=y"), "postgres://u:…@h:1,i:2/d");
    }

    #[test]
    fn a_password_that_is_not_encoded_is_refused_with_what_to_write() {
        for (url, written) in [
            ("postgres://user:s3?cret@host/db", "write `?` in a password as %3F"),
            ("postgres://user:s3@cret@host/db", "write `@` in a password as %40"),
        ] {
            let error = Options::parse(url).unwrap_err().to_string();
            assert!(error.contains(written) && !error.contains("cret"), "{error}");
        }
        let options = Options::parse("postgres://user:s3%3Fc%40ret@host/db").unwrap();
        assert_eq!(options.config.get_password(), Some(&b"s3?c@ret"[..]));
    }

    #[test]
    fn other_machines_are_checked_unless_told_otherwise() {
        let tls = |url: &str| Options::parse(url).unwrap().tls;
        assert_eq!(tls("postgres://u@127.0.0.1/d"), Tls::Off);
        assert_eq!(tls("postgres://u@localhost/d"), Tls::Off);
        assert_eq!(tls("postgres://u@db.example/d"), Tls::Checked { host: true, root: None });
        assert_eq!(tls("postgres://u@127.0.0.1,db.example/d"), Tls::Checked { host: true, root: None });
        assert_eq!(tls("postgres://u@db.example/d?sslmode=require"), Tls::Unchecked);
        assert_eq!(tls("postgres://u@db.example/d?sslmode=disable"), Tls::Off);
        let root = Some(PathBuf::from("/a b"));
        assert_eq!(tls("postgres://u@h/d?sslmode=verify-ca&sslrootcert=/a%20b"), Tls::Checked { host: false, root });
        assert!(Options::parse("postgres://u@h/d?sslmode=allow").is_err());
    }

    #[test]
    fn the_configuration_of_each_host_has_everything_else_of_the_url() {
        let parameters = "channel_binding=disable&connect_timeout=7&options=-c%20work_mem%3D8MB&keepalives=0&keepalives_idle=9\
                          &application_name=shop";
        let hosts = |url: &str| Options::parse(&format!("{url}?{parameters}")).unwrap().each_host().unwrap();
        let all = hosts("postgres://u:p@a:1,b:2/d");
        assert_eq!(all, [hosts("postgres://u:p@a:1/d"), hosts("postgres://u:p@b:2/d")].concat());
        let parsed = Options::parse(&format!("postgres://u:p@a:1/d?{parameters}")).unwrap();
        assert_eq!(all[0], parsed.config, "nothing of a single host is lost");
        let sockets = Options::parse("postgres://u@/d?host=/run/a&host=/run/b&port=7").unwrap().each_host().unwrap();
        assert_eq!(sockets.iter().map(Config::get_ports).collect::<Vec<_>>(), [[7], [7]]);
        for ambiguous in ["postgres://u@a/d?port=7", "postgres://u@a,b/d?port=7", "postgres://u@a:1,b:2/d?host=/run/c"]
        {
            assert!(Options::parse(ambiguous).unwrap_err().to_string().contains("ports"), "{ambiguous}");
        }
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (url, named) in [
            ("postgres://u@h/d?writers=0", "writers"),
            ("postgres://u@h/d?timeout=0", "timeout"),
            ("postgres://u@h/d?sslmod=disable", "sslmod"),
        ] {
            let error = Options::parse(url).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
