//! Names the store to open: a URL as text, or a path. `shown` hides passwords, `place` tells whether two URLs name one store.

mod place;
mod shown;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::store::{self, Store};

pub use shown::shown;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) use shown::{check_separators, parameter_name};

/// The store that a ledger opens. Made from text or from a path:
///
/// - Text is a URL: `memory:`, `file:PATH`, or just a path. A URL with another scheme is refused.
/// - A [`Path`] or [`PathBuf`] is always a file, whatever it is called, and need not be UTF-8.
///
/// A URL may contain a password. `Display` and `Debug` hide it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct StoreUrl(Location);

#[derive(Clone, PartialEq, Eq)]
enum Location {
    Url(String),
    Path(PathBuf),
}

impl StoreUrl {
    /// Opens the store.
    pub async fn open(self) -> Result<Arc<dyn Store>, store::Error> {
        match self.0 {
            Location::Url(url) => store::open(&url).await,
            Location::Path(path) => store::open_path(&path).await,
        }
    }

    /// The file that it names; `None` for a store in memory or on a server.
    pub fn file(&self) -> Option<&Path> {
        match &self.0 {
            Location::Path(path) => Some(path),
            Location::Url(url) if self.is_memory() || names_server(url) => None,
            Location::Url(url) => Some(Path::new(url.strip_prefix("file:").unwrap_or(url))),
        }
    }

    /// Whether the store is in memory.
    pub fn is_memory(&self) -> bool {
        matches!(&self.0, Location::Url(url) if url == "memory:")
    }

    /// Whether the text is empty.
    pub fn is_empty(&self) -> bool {
        matches!(&self.0, Location::Url(url) if url.is_empty())
    }

    /// The same store, with a relative path resolved against this folder.
    pub fn within(self, folder: &Path) -> Self {
        match self.file() {
            Some(path) if !folder.as_os_str().is_empty() => Self(Location::Path(folder.join(path))),
            _ => self,
        }
    }

    /// The text, with its password: to open the store, never to be shown.
    pub fn with_password(&self) -> Cow<'_, str> {
        match &self.0 {
            Location::Url(url) => Cow::Borrowed(url),
            Location::Path(path) => path.to_string_lossy(),
        }
    }
}

/// Whether a text names a server rather than a file. A URL with a spelling mistake, such as `redis:/:password@host`, does too: a
/// file with such a name would be made, and would be shown in messages.
pub(crate) fn names_server(text: &str) -> bool {
    if text.starts_with("file:") {
        return false;
    }
    if shown::is_keywords(text) {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    // One letter is a drive.
    let is_scheme = scheme.len() > 1 && shown::is_scheme(scheme);
    text.contains("://") || shown::is_server(scheme) || (is_scheme && rest.contains('@'))
}

/// Without the password.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Location::Url(url) => f.write_str(&shown(url)),
            Location::Path(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
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

impl From<&StoreUrl> for StoreUrl {
    fn from(url: &StoreUrl) -> Self {
        url.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", StoreUrl::from("postgres://user:secret@host/db"));
        assert_eq!(shown, "StoreUrl(postgres://user:…@host/db)");
    }

    #[test]
    fn files_and_servers_are_told_apart() {
        for (text, file) in [
            ("onceward.db", Some("onceward.db")),
            ("file:a@b:c", Some("a@b:c")),
            ("C:\\a@b.db", Some("C:\\a@b.db")),
            ("a:b.db", Some("a:b.db")),
            ("memory:", None),
            ("postgres://host/db", None),
            ("redis:/:secret@host", None),
            ("Redis:host", None),
            ("user:secret@host", None),
            ("host=/tmp dbname=app", None),
            ("file:host=a", Some("host=a")),
            ("/data/host=a/ledger.db", Some("/data/host=a/ledger.db")),
        ] {
            let url = StoreUrl::from(text);
            assert_eq!(url.file(), file.map(Path::new), "{text}");
            let within = url.within(Path::new("/folder"));
            assert_eq!(within.file(), file.map(|file| Path::new("/folder").join(file)).as_deref(), "{text}");
        }
    }

    #[test]
    fn a_relative_path_starts_at_a_folder() {
        let within =
            |folder: &str, url: &str| StoreUrl::from(url).within(Path::new(folder)).with_password().into_owned();
        for (url, expected) in [
            ("a.db", "/etc/a.db"),
            ("file:a.db", "/etc/a.db"),
            ("/var/a.db", "/var/a.db"),
            ("memory:", "memory:"),
            ("postgres://user:env:PGPASSWORD@host/db", "postgres://user:env:PGPASSWORD@host/db"),
        ] {
            assert_eq!(within("/etc", url), expected);
        }
        assert_eq!(within("", "a.db"), "a.db");
    }

    #[tokio::test]
    async fn a_misspelled_url_is_refused_and_not_shown() {
        for text in [
            "redis:/:hunter2@host",
            "redis:hunter2",
            "user:hunter2@host",
            "postgres:user:hunter2@host/db",
            "host=db.internal dbname=app password=hunter2",
            "user=ana password='hunter2'",
        ] {
            let Err(error) = StoreUrl::from(text).open().await else { panic!("{text}") };
            assert!(error.to_string().contains("unknown store") && !error.to_string().contains("hunter2"), "{error}");
        }
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
