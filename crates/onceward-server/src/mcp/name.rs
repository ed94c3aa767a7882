//! A name for a server that nobody has named: from its command and the folder that it is started in, so that the same
//! command there is the same server. In another folder it may act on other things.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use onceward::core::hash::Fields;

/// Programs that only start others, and words of theirs that are not the server either.
const LAUNCHERS: [&str; 21] = [
    "bun", "bunx", "cmd", "deno", "docker", "dlx", "env", "exec", "node", "npm", "npx", "pipx", "pnpm", "podman",
    "python", "python3", "run", "sh", "tool", "uv", "uvx",
];

/// Those of them whose words are rather images than files.
const CONTAINERS: [&str; 2] = ["docker", "podman"];

/// How many links are followed: they may go round in circles.
const LINKS: usize = 40;

/// How many hexadecimal digits of a hash a name has: 128 bits, so that nobody can make a command or a folder whose name is that
/// of another one.
pub(super) const DIGITS: usize = 32;

/// The longest word in a name. With two hashes and a tool's name of 128 characters, an operation has at most 255.
const WORD: usize = 50;

/// Flags of theirs with a value.
const VALUED: [&str; 10] =
    ["-e", "--env", "-p", "--port", "-v", "--volume", "--name", "--network", "--env-file", "--mount"];

/// The name: a word that people recognise, and a hash that tells servers apart whose words are the same. Without a
/// folder it is the same wherever the command is started.
pub(crate) fn server_name(command: &[OsString], folder: Option<&Path>) -> String {
    let mut fields = Fields::new().field(b"mcp server v2").field(told(folder));
    let base = folder.map(Path::to_owned).or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let is_contained = command.first().is_some_and(|program| CONTAINERS.contains(&&*stem(&program.to_string_lossy())));
    let (mut word, mut is_value) = (None, false);
    for part in command {
        let text = part.to_string_lossy();
        // The same file or folder is the same, however it is written; and `.` is another one elsewhere.
        fields = if is_path(&text, is_contained) {
            fields.field(resolved(&base.join(part)).as_os_str().as_encoded_bytes())
        } else {
            fields.field(part.as_encoded_bytes())
        };
        let stem = stem(&text);
        // What is set for a server, or stands behind such a flag, may be a secret.
        let is_hidden = (text.contains('=') && !text.contains("://")) || text.starts_with('-') || is_value;
        is_value = VALUED.contains(&&*text);
        if word.is_none() && !is_hidden && !stem.is_empty() && !LAUNCHERS.contains(&stem.as_str()) {
            word = Some(stem);
        }
    }
    format!("{}-{}", word.unwrap_or_else(|| "server".to_owned()), &fields.digest().to_hex()[..DIGITS])
}

/// A name that somebody gave, for one folder only.
pub(crate) fn name_in(name: &str, folder: &Path) -> String {
    let digest = Fields::new().field(b"mcp folder v1").field(told(Some(folder))).digest();
    format!("{name}-{}", &digest.to_hex()[..DIGITS])
}

/// Whether an argument names a file or folder, as far as its text says so. What is there must not count: a server may make
/// its file when it is first started, and is the same one afterwards. So a bare word is none, whatever is there.
fn is_path(text: &str, is_contained: bool) -> bool {
    if text == "." || text == ".." || ["/", "./", "../"].iter().any(|start| text.starts_with(start)) {
        return true;
    }
    let is_other = text.starts_with(['-', '@']) || text.contains("://") || is_contained;
    text.contains('/') && !is_other
}

/// A path without links and detours, as far as it is there; the rest as it will be.
fn resolved(path: &Path) -> PathBuf {
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let (mut done, mut left, mut links) = (PathBuf::new(), parts(path), 0);
    while let Some(part) = left.pop() {
        if part == ".." {
            done.pop();
            continue;
        }
        if part == "." {
            continue;
        }
        let next = done.join(&part);
        match next.read_link() {
            Ok(target) if links < LINKS => {
                links += 1;
                left.extend(parts(&target));
            }
            // One that begins with the root begins anew.
            _ => done = next,
        }
    }
    done
}

fn told(folder: Option<&Path>) -> &[u8] {
    folder.map_or(b"", |folder| folder.as_os_str().as_encoded_bytes())
}

/// `@scope/server-mail@1.2` and `/opt/server-mail.py` are `server-mail`.
fn stem(text: &str) -> String {
    // An address is known by its host: the rest may hold a key.
    let text = text.split_once("://").map_or(text, |(_, rest)| {
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        host.rsplit('@').next().unwrap_or_default()
    });
    let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let last = last.split('@').find(|part| !part.is_empty()).unwrap_or_default();
    let last = last
        .strip_suffix(".py")
        .or_else(|| last.strip_suffix(".js"))
        .or_else(|| last.strip_suffix(".mjs"))
        .unwrap_or(last);
    // A port or a tag is a word of its own.
    let words = last.replace(':', "-");
    words.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(WORD).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn another_folder_is_another_server() {
        let folders = [None, Some(Path::new("/a")), Some(Path::new("/b"))];
        let names = folders.map(|folder| server_name(&words("npx server-files ."), folder));
        assert!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2], "{names:?}");
        assert!(names.iter().all(|name| name.starts_with("server-files-") && !name.contains("/a")));
        let given = [Path::new("/a"), Path::new("/b")].map(|folder| name_in("files", folder));
        assert!(given[0] != given[1] && given[0].starts_with("files-"), "{given:?}");
    }

    #[test]
    fn a_folder_is_the_same_however_it_is_written() {
        let place = tempfile::TempDir::new().unwrap();
        let (one, other) = (place.path().join("one"), place.path().join("other"));
        std::fs::create_dir(&one).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&one, place.path().join("link")).unwrap();
        let name = |folder: &Path| server_name(&["npx".into(), "files".into(), folder.into()], None);
        assert_eq!(name(&one), name(&place.path().join("link")));
        assert_eq!(name(&one), name(&other.join("../one/")));
        assert_ne!(name(&one), name(&other));
    }

    #[test]
    fn what_a_server_makes_when_it_is_started_does_not_make_it_another_one() {
        let place = tempfile::TempDir::new().unwrap();
        let folder = place.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("later", folder.join("link")).unwrap();
        let parts = ["data.db", "./data.db", "state", "state/", "./state/data.db", "new/../data.db", "link", "link/x"];
        let names = |base: Option<&Path>| {
            let of = |part: &str| {
                let whole = folder.join(part).into_os_string();
                // Written as a whole where the folder does not say where that is.
                let part = if base.is_some() { part.into() } else { whole };
                server_name(&["python3".into(), "mail.py".into(), part], base)
            };
            parts.map(of)
        };
        let before = (names(Some(&folder)), names(None));
        std::fs::write(folder.join("data.db"), "").unwrap();
        for made in ["state", "new", "later"] {
            std::fs::create_dir(folder.join(made)).unwrap();
        }
        std::fs::write(folder.join("state/data.db"), "").unwrap();
        assert_eq!((names(Some(&folder)), names(None)), before);
        assert_eq!(before.0[1], before.0[5], "a detour");
    }

    #[test]
    fn without_a_folder_only_what_is_a_path_depends_on_where_it_is_started() {
        for (text, is_contained, expected) in [
            (".", false, true),
            ("..", true, true),
            ("./x", true, true),
            ("/x:/y", true, true),
            ("data/x.db", false, true),
            ("mcp/github", true, false),
            ("@scope/server", false, false),
            ("--root=./x", false, false),
            ("https://example.com/mcp", false, false),
            ("data.db", false, false),
        ] {
            assert_eq!(is_path(text, is_contained), expected, "{text}");
        }
    }

    #[test]
    fn a_name_is_a_word_of_the_command_and_digits_of_all_of_it() {
        let name = |line: &str| server_name(&words(line), None);
        for (line, word) in [
            ("npx -y @modelcontextprotocol/server-filesystem /tmp", "server-filesystem"),
            ("uvx mcp-server-git@1.2 --repository x", "mcp-server-git"),
            ("python3 /opt/mail.py", "mail"),
            ("docker run -i mcp/github", "github"),
            ("npx", "server"),
            ("env API_KEY=sk-live-7 python3 /opt/mail.py", "mail"),
            ("docker run -e TOKEN -p 80 mcp/github", "github"),
            ("https://user:secret@mail.example.com/mcp?key=secret", "mail.example.com"),
            ("http://127.0.0.1:9100/mcp", "127.0.0.1-9100"),
        ] {
            let name = name(line);
            let (front, digits) = name.rsplit_once('-').unwrap();
            assert_eq!((front, digits.len()), (word, DIGITS), "{line}");
        }
        assert_eq!(name("npx a"), name("npx a"));
        assert_ne!(name("npx a b"), name("npx a c"));
        assert_ne!(name("npx a b"), name("npx ab"));
    }
}
