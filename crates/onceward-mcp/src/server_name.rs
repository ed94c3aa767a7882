//! Derives a name for a server from its command and its working directory. In another folder the same command may act on other
//! things, so it is another server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use onceward::core::hash::Fields;

/// Programs that start servers, and their subcommands. They do not name the server.
const LAUNCHERS: [&str; 21] = [
    "bun", "bunx", "cmd", "deno", "docker", "dlx", "env", "exec", "node", "npm", "npx", "pipx", "pnpm", "podman",
    "python", "python3", "run", "sh", "tool", "uv", "uvx",
];

/// Launchers whose arguments are images, not files.
const CONTAINERS: [&str; 2] = ["docker", "podman"];

/// The most symbolic links that are followed, since they may form a cycle.
const MAX_LINKS: usize = 40;

/// The hexadecimal digits of the hash in a name: 128 bits, so that no command or folder can be made up to get another one's name.
pub(super) const DIGITS: usize = 32;

/// The longest word in a name. With two hashes and a tool's name of 128 characters, an operation has at most 255.
const MAX_WORD: usize = 50;

/// Flags of launchers that take a value.
const FLAGS_WITH_VALUE: [&str; 10] =
    ["-e", "--env", "-p", "--port", "-v", "--volume", "--name", "--network", "--env-file", "--mount"];

/// The name of a server: a word that users recognise, and a hash that distinguishes servers with the same word. Without a folder it
/// does not depend on where the command is started.
pub fn server_name(command: &[OsString], folder: Option<&Path>) -> String {
    let mut fields = Fields::new().field(b"mcp server v2").field(path_bytes(folder));
    let base = folder.map(Path::to_owned).or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let is_container = command.first().is_some_and(|program| CONTAINERS.contains(&&*stem(&program.to_string_lossy())));
    let (mut word, mut is_value) = (None, false);
    for part in command {
        let text = part.to_string_lossy();
        // Resolved, so that all spellings of a path are equal and `.` differs between folders.
        fields = if is_path(&text, is_container) {
            fields.field(resolved(&base.join(part)).as_os_str().as_encoded_bytes())
        } else {
            fields.field(part.as_encoded_bytes())
        };
        let stem = stem(&text);
        // The value of a variable or a flag may be a secret.
        let is_hidden = (text.contains('=') && !text.contains("://")) || text.starts_with('-') || is_value;
        is_value = FLAGS_WITH_VALUE.contains(&&*text);
        if word.is_none() && !is_hidden && !stem.is_empty() && !LAUNCHERS.contains(&stem.as_str()) {
            word = Some(stem);
        }
    }
    format!("{}-{}", word.unwrap_or_else(|| "server".to_owned()), &fields.digest().to_hex()[..DIGITS])
}

/// A configured name, made specific to a folder.
pub fn name_in(name: &str, folder: &Path) -> String {
    let digest = Fields::new().field(b"mcp folder v1").field(path_bytes(Some(folder))).digest();
    format!("{name}-{}", &digest.to_hex()[..DIGITS])
}

/// Whether an argument looks like a path. Whether the file exists must not matter: a server may create its file when it first
/// starts, and must keep its name. So a bare word is not a path, even if such a file exists.
fn is_path(text: &str, is_container: bool) -> bool {
    if text == "." || text == ".." || ["/", "./", "../"].iter().any(|start| text.starts_with(start)) {
        return true;
    }
    let is_other = text.starts_with(['-', '@']) || text.contains("://") || is_container;
    text.contains('/') && !is_other
}

/// A path without links, `.` and `..`; parts that do not exist yet are kept.
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
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                left.extend(parts(&target));
            }
            // Joining an absolute part replaces the path.
            _ => done = next,
        }
    }
    done
}

fn path_bytes(folder: Option<&Path>) -> &[u8] {
    folder.map_or(b"", |folder| folder.as_os_str().as_encoded_bytes())
}

/// `@scope/server-mail@1.2` and `/opt/server-mail.py` are `server-mail`.
fn stem(text: &str) -> String {
    // Of a URL only the host is used: the rest may hold a key.
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
    // `host:8080` becomes `host-8080`.
    let words = last.replace(':', "-");
    words.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(MAX_WORD).collect()
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
    fn all_spellings_of_a_folder_give_the_same_name() {
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
    fn files_that_a_server_creates_do_not_change_its_name() {
        let place = tempfile::TempDir::new().unwrap();
        let folder = place.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("later", folder.join("link")).unwrap();
        let parts = ["data.db", "./data.db", "state", "state/", "./state/data.db", "new/../data.db", "link", "link/x"];
        let names = |base: Option<&Path>| {
            let of = |part: &str| {
                let whole = folder.join(part).into_os_string();
                // Without a folder, the path is absolute.
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
    fn arguments_that_look_like_paths_are_recognised() {
        for (text, is_container, expected) in [
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
            assert_eq!(is_path(text, is_container), expected, "{text}");
        }
    }

    #[test]
    fn a_name_is_a_word_of_the_command_and_a_hash_of_all_of_it() {
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
