//! Names the store to open: a URL as text, or a path.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::{self, Store};

/// The store that a ledger opens. Made from text or from a path:
///
/// - Text is a URL: `memory:`, `file:PATH`, or just a path. A URL with another scheme is refused.
/// - A [`Path`] or [`PathBuf`] is always a file, whatever it is called, and need not be UTF-8.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(Location);

#[derive(Clone, PartialEq, Eq)]
enum Location {
    Url(String),
    Path(PathBuf),
}

impl StoreUrl {
    pub(crate) async fn open(self) -> Result<Arc<dyn Store>, store::Error> {
        match self.0 {
            Location::Url(url) => store::open(&url).await,
            Location::Path(path) => store::open_path(&path).await,
        }
    }
}

impl fmt::Debug for StoreUrl {
    /// A URL may hold a password, so only its scheme is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Location::Url(url) => match url.split_once("://") {
                Some((scheme, _)) => write!(f, "StoreUrl({scheme}://…)"),
                None => write!(f, "StoreUrl({url})"),
            },
            Location::Path(path) => write!(f, "StoreUrl({})", path.display()),
        }
    }
}

impl From<String> for StoreUrl {
    fn from(url: String) -> Self {
        Self(Location::Url(url))
    }
}

impl From<&str> for StoreUrl {
    fn from(url: &str) -> Self {
        url.to_owned().into()
    }
}

impl From<&String> for StoreUrl {
    fn from(url: &String) -> Self {
        url.clone().into()
    }
}

impl From<Cow<'_, str>> for StoreUrl {
    fn from(url: Cow<'_, str>) -> Self {
        url.into_owned().into()
    }
}

impl From<PathBuf> for StoreUrl {
    fn from(path: PathBuf) -> Self {
        Self(Location::Path(path))
    }
}

impl From<&Path> for StoreUrl {
    fn from(path: &Path) -> Self {
        path.to_owned().into()
    }
}

impl From<&PathBuf> for StoreUrl {
    fn from(path: &PathBuf) -> Self {
        path.clone().into()
    }
}

/// A store URL as it may be shown: without a password. One that is a reference, such as `env:PGPASSWORD`, is not a secret and
/// stays, so that the text still leads to the store.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (address, query) = match rest.split_once('?') {
        None => (rest, None),
        Some((address, query)) => (address, Some(query)),
    };
    // A password that is not encoded may contain a question mark.
    if query.is_some_and(|query| query.contains('@')) {
        return format!("{scheme}://…");
    }
    let address = match address.rsplit_once('@') {
        None => address.to_owned(),
        Some((credentials, host)) => match credentials.split_once(':') {
            None => format!("{credentials}@{host}"),
            Some((user, password)) if is_reference(password) => format!("{user}:{password}@{host}"),
            Some((user, _)) => format!("{user}:…@{host}"),
        },
    };
    let query = query.map(|query| query.split('&').map(shown_parameter).collect::<Vec<_>>().join("&"));
    format!("{scheme}://{address}{}", query.map(|query| format!("?{query}")).unwrap_or_default())
}

fn is_reference(password: &str) -> bool {
    (password.starts_with("env:") || password.starts_with("file:")) && !password.contains('@')
}

/// A parameter, whose value is hidden if it may be a secret.
fn shown_parameter(pair: &str) -> String {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    let lower = name.to_ascii_lowercase();
    let is_secret = ["pass", "secret", "token", "auth"].iter().any(|word| lower.contains(word)) && !is_reference(value);
    if is_secret { format!("{name}=…") } else { pair.to_owned() }
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
            ("redis+sentinel://user:s3cret@a:1,b:2/name", "redis+sentinel://user:…@a:1,b:2/name"),
        ] {
            assert_eq!(shown(url), expected);
            assert!(!shown(url).contains("cret"), "{url}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", StoreUrl::from("postgres://user:secret@host/db"));
        assert_eq!(shown, "StoreUrl(postgres://…)");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_path_is_a_file_whatever_it_is_called() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["memory:", "file:x", "a b.db"] {
            let path = folder.path().join(name);
            StoreUrl::from(&path).open().await.unwrap().close().await;
            assert!(path.is_file(), "{name}");
        }
        for name in ["", ":memory:"] {
            assert!(StoreUrl::from(Path::new(name)).open().await.is_err(), "{name:?} would not be a file");
        }
    }

    #[cfg(all(unix, feature = "sqlite"))]
    #[tokio::test]
    async fn a_path_need_not_be_utf_8() {
        use std::os::unix::ffi::OsStrExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(std::ffi::OsStr::from_bytes(b"ledger-\xff.db"));
        match StoreUrl::from(path.as_path()).open().await {
            Ok(store) => store.close().await,
            Err(error) => panic!("{error}"),
        }
        assert!(path.is_file());
    }
}
