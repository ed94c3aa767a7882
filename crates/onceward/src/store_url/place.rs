//! Where a store is, without how it is reached: two URLs that name one store have one place.

use std::path::Path;

use super::{Location, StoreUrl};

impl StoreUrl {
    /// A text that is the same for every URL of one store, as far as that can be seen without opening it. It contains no password.
    /// `None` for a store in memory: each of them is new.
    pub fn place(&self) -> Option<String> {
        if self.is_memory() {
            return None;
        }
        Some(match (self.file(), &self.0) {
            (Some(path), _) => place_of_file(path),
            (None, Location::Url(url)) => place_on_server(url),
            (None, Location::Path(path)) => place_of_file(path),
        })
    }
}

fn place_of_file(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // The ledger may not exist yet, so only its folder is looked up then.
    let folder = || Some(absolute.parent()?.canonicalize().ok()?.join(absolute.file_name()?));
    let place = absolute.canonicalize().ok().or_else(folder).unwrap_or(absolute);
    place.to_string_lossy().into_owned()
}

fn place_on_server(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (address, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, place) = address.rsplit_once('@').unwrap_or(("", address));
    let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
    let (family, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    let parameter = |wanted: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned()).next_back()
    };
    if family.starts_with("postgres") {
        let user = login.split(':').next().unwrap_or_default();
        let hosts = parameter("host").unwrap_or_else(|| with_ports(hosts, "5432"));
        let database = parameter("dbname").unwrap_or_else(|| if path.is_empty() { user } else { path }.to_owned());
        return format!("postgres {hosts} {} {database}", parameter("port").unwrap_or_default());
    }
    let port = if kind == "sentinel" { "26379" } else { "6379" };
    let (name, database) = match kind {
        "sentinel" => path.split_once('/').unwrap_or((path, "")),
        _ => ("", path),
    };
    let database = if database.is_empty() { "0" } else { database };
    let prefix = parameter("prefix").unwrap_or_else(|| "onceward".to_owned());
    format!("redis {kind} {} {name} {database} {prefix}", with_ports(hosts, port))
}

/// Hosts in one spelling, each with its port, in one order.
fn with_ports(hosts: &str, default: &str) -> String {
    let one = |host: &str| {
        let host = host.to_ascii_lowercase().replace("localhost", "127.0.0.1");
        let has_port = host.rsplit_once(':').is_some_and(|(before, _)| !before.contains(':') || before.ends_with(']'));
        if has_port { host } else { format!("{host}:{default}") }
    };
    let mut hosts: Vec<String> = hosts.split(',').map(one).collect();
    hosts.sort_unstable();
    hosts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is_one_place(one: &str, other: &str, expected: bool) {
        let place = |url: &str| StoreUrl::from(url).place();
        assert_eq!(place(one) == place(other), expected, "{one} and {other}");
    }

    #[test]
    fn urls_of_one_store_have_one_place() {
        for (one, other) in [
            ("a.db", "file:a.db"),
            ("a.db", "./a.db"),
            ("postgres://u:a@host/db", "postgresql://v:b@HOST:5432/db?sslmode=require&timeout=2"),
            ("postgres://db@host", "postgres://u@host/db"),
            ("redis://host", "rediss://:secret@host:6379/0?prefix=onceward"),
            ("redis://localhost", "redis://127.0.0.1/0"),
            ("redis+cluster://a,b:6379", "redis+cluster://b,a"),
            ("redis+sentinel://a/main", "redis+sentinel://a:26379/main/0"),
        ] {
            is_one_place(one, other, true);
        }
        for (one, other) in [
            ("a.db", "b.db"),
            ("postgres://u@host/a", "postgres://u@host/b"),
            ("postgres://u@host:1/a", "postgres://u@host:2/a"),
            ("redis://host/0", "redis://host/1"),
            ("redis://host", "redis://host?prefix=mail"),
            ("redis+sentinel://a/main", "redis+sentinel://a/other"),
            ("redis://[::1]", "redis://[::2]"),
        ] {
            is_one_place(one, other, false);
        }
        assert_eq!(StoreUrl::from("memory:").place(), None);
    }
}
