//! A store URL as it may be shown. Everything that prints a store URL uses this: what is not known to be harmless is hidden.

/// The parameters of store URLs that hold no secret.
const HARMLESS: [&str; 21] = [
    "application_name",
    "ca",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "keepalives",
    "keepalives_idle",
    "options",
    "port",
    "prefix",
    "replicas",
    "sentinel_user",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "timeout",
    "tls",
    "user",
    "wait_ms",
    "writers",
];

/// The parameters whose value is a password.
const PASSWORDS: [&str; 2] = ["password", "sentinel_password"];

/// A store URL as it may be shown: without a password. One that is a reference, such as `env:PGPASSWORD`, is not a secret and
/// stays, so that the text still leads to the store.
pub fn shown(url: &str) -> String {
    if url.strip_prefix("file:").is_some_and(|path| !path.contains("://")) {
        return url.to_owned();
    }
    match url.split_once("://") {
        Some(("file", _)) => url.to_owned(),
        Some((scheme, rest)) if is_server(scheme) => format!("{scheme}://{}", shown_address(scheme, rest)),
        Some((scheme, _)) if is_scheme(scheme) => format!("{scheme}://…"),
        Some(_) => "…".to_owned(),
        None => shown_path(url),
    }
}

/// A path, or a URL without `//`.
fn shown_path(text: &str) -> String {
    match text.split_once(':') {
        _ if is_keywords(text) => "…".to_owned(),
        Some((before, after)) if after.contains('@') || is_server(before) => format!("{before}:…"),
        _ => text.to_owned(),
    }
}

/// Whether this is a connection string of libpq, such as `host=db password=…`. As a file it would be made, with a password for its
/// name, and each machine would have its own.
pub(super) fn is_keywords(text: &str) -> bool {
    const KEYWORDS: [&str; 5] = ["host", "hostaddr", "dbname", "password", "service"];
    text.split_whitespace().any(|word| word.split_once('=').is_some_and(|(name, _)| KEYWORDS.contains(&name)))
}

/// Whether this is the scheme of a store on a server, in any spelling.
pub(super) fn is_server(scheme: &str) -> bool {
    let family = scheme.split('+').next().unwrap_or_default().to_ascii_lowercase();
    is_scheme(scheme) && ["postgres", "postgresql", "redis", "rediss"].contains(&family.as_str())
}

pub(super) fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

fn shown_address(scheme: &str, rest: &str) -> String {
    if check_separators(rest).is_err() {
        return "…".to_owned();
    }
    let (address, query) = match rest.split_once('?') {
        None => (rest, None),
        Some((address, query)) => (address, Some(query)),
    };
    // The reference to a file contains slashes, so the password ends at the last `@` and not at the first slash.
    let (login, place) = match address.rsplit_once('@') {
        None => (String::new(), address),
        Some((login, place)) => (format!("{}@", shown_login(scheme, login)), place),
    };
    let (hosts, path) = place.find('/').map_or((place, ""), |slash| place.split_at(slash));
    let hosts = hosts.split(',').map(shown_host).collect::<Vec<_>>().join(",");
    let query = query.map(|query| query.split('&').map(shown_parameter).collect::<Vec<_>>().join("&"));
    format!("{login}{hosts}{path}{}", query.map(|query| format!("?{query}")).unwrap_or_default())
}

fn shown_login(scheme: &str, login: &str) -> String {
    match login.split_once(':') {
        // Clients of Redis disagree whether this is the user or the password.
        None if scheme.to_ascii_lowercase().starts_with("redis") || hides_separator(login) => "…".to_owned(),
        None => login.to_owned(),
        Some((user, _)) if hides_separator(user) => "…".to_owned(),
        Some((user, password)) if is_reference(password) => format!("{user}:{password}"),
        Some((user, _)) => format!("{user}:…"),
    }
}

/// A host with its port. Anything else may be a login whose `@` is missing or encoded.
fn shown_host(text: &str) -> &str {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) => (host, port.strip_prefix(':')),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let is_port = port.is_none_or(|port| !port.is_empty() && port.chars().all(|c| c.is_ascii_digit()));
    if is_port && (port.is_none() || !host.is_empty()) && !hides_separator(host) { text } else { "…" }
}

/// Whether a part contains an encoded `:` or `@`: what is behind it may be a password.
fn hides_separator(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    lower.contains("%3a") || lower.contains("%40")
}

fn is_reference(password: &str) -> bool {
    (password.starts_with("env:") || password.starts_with("file:")) && !password.contains('@')
}

fn shown_parameter(pair: &str) -> String {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    if HARMLESS.contains(&name) || (PASSWORDS.contains(&name) && is_reference(value)) {
        return pair.to_owned();
    }
    format!("{}=…", if PASSWORDS.contains(&name) { name } else { "…" })
}

/// Refuses an `@` after a `?`: a password that is not encoded may contain both, and would be taken for the host and for parameters,
/// which messages show.
pub(crate) fn check_separators(url: &str) -> Result<(), String> {
    match url.split_once('?') {
        Some((_, query)) if query.contains('@') => {
            Err("an `@` follows a `?`: write `?` in a password as %3F, and `@` in a parameter as %40".to_owned())
        }
        _ => Ok(()),
    }
}

/// The name of an unknown parameter, for a message. It may be a part of a password.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) fn parameter_name(name: &str) -> &str {
    let is_name = name.len() <= 32 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    if is_name { name } else { "…" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, expected) in [
            ("onceward.db", "onceward.db"),
            ("file:a@b:c", "file:a@b:c"),
            ("memory:", "memory:"),
            ("postgres://user:s3cret@host/db", "postgres://user:…@host/db"),
            ("postgres://user:s3@cret@host/db?sslmode=verify-full", "postgres://user:…@host/db?sslmode=verify-full"),
            ("postgres://user:env:PGPASSWORD@host/db", "postgres://user:env:PGPASSWORD@host/db"),
            ("postgres://user:file:/run/pw@host/db", "postgres://user:file:/run/pw@host/db"),
            ("postgres://user:env:x@s3cret@host/db", "postgres://user:…@host/db"),
            ("postgres://user:s3?cret@host/db", "postgres://…"),
            ("postgres://host/db?password=s3cret&user=a", "postgres://host/db?password=…&user=a"),
            ("redis://:s3cret@host:6379/0", "redis://:…@host:6379/0"),
            ("redis://host", "redis://host"),
            ("redis://[::1]:5,b/3?prefix=mail", "redis://[::1]:5,b/3?prefix=mail"),
            ("redis://:s3?cret@host", "redis://…"),
            ("redis://s3cret@host", "redis://…@host"),
            ("redis://:s3cret", "redis://…"),
            ("redis://user:s3cret/0", "redis://…/0"),
            ("redis://user%3As3cret%40host", "redis://…"),
            ("postgres://user%3as3cret@host/db", "postgres://…@host/db"),
            ("postgres://a:s3cret@h,b:s3cret@i/db", "postgres://a:…@i/db"),
            ("postgres://host/db?pasword=s3cret", "postgres://host/db?…=…"),
            ("redis+sentinel://a/n?sentinel_password=s3cret", "redis+sentinel://a/n?sentinel_password=…"),
            ("redis+sentinel://a/n?sentinel_password=env:PW", "redis+sentinel://a/n?sentinel_password=env:PW"),
            ("user:s3cret@redis://host", "…"),
            ("mysql://user:s3cret@host", "mysql://…"),
            ("redis:/:s3cret@host", "redis:…"),
            ("/etc/redis:/:s3cret@host", "/etc/redis:…"),
            ("Postgres:user:s3cret", "Postgres:…"),
            ("user:s3cret@host", "user:…"),
            ("file:///var/lib/a.db", "file:///var/lib/a.db"),
            ("redis+sentinel://user:s3cret@a:1,b:2/name", "redis+sentinel://user:…@a:1,b:2/name"),
        ] {
            assert_eq!(shown(url), expected);
            assert!(!shown(url).contains("cret"), "{url}");
        }
    }
}
