//! A name for a server that nobody has named: from its command and the folder that it is started in, so that the same
//! command there is the same server. In another folder it may act on other things.

use std::ffi::OsString;
use std::path::Path;

use onceward::core::hash::Fields;

/// Programs that only start others, and words of theirs that are not the server either.
const LAUNCHERS: [&str; 21] = [
    "bun", "bunx", "cmd", "deno", "docker", "dlx", "env", "exec", "node", "npm", "npx", "pipx", "pnpm", "podman",
    "python", "python3", "run", "sh", "tool", "uv", "uvx",
];

/// Flags of theirs with a value.
const VALUED: [&str; 10] =
    ["-e", "--env", "-p", "--port", "-v", "--volume", "--name", "--network", "--env-file", "--mount"];

/// The name: a word that people recognise, and a few digits that tell servers apart whose words are the same. Without a
/// folder it is the same wherever the command is started.
pub(crate) fn server_name(command: &[OsString], folder: Option<&Path>) -> String {
    let mut fields = Fields::new().field(b"mcp server v2").field(told(folder));
    let (mut word, mut is_value) = (None, false);
    for part in command {
        let text = part.to_string_lossy();
        // The same file or folder is the same, however it is written; and `.` is another one elsewhere.
        fields = match Path::new(part).canonicalize() {
            Ok(path) => fields.field(path.as_os_str().as_encoded_bytes()),
            Err(_) => fields.field(part.as_encoded_bytes()),
        };
        let stem = stem(&text);
        // What is set for a server, or stands behind such a flag, may be a secret.
        let is_hidden = (text.contains('=') && !text.contains("://")) || text.starts_with('-') || is_value;
        is_value = VALUED.contains(&&*text);
        if word.is_none() && !is_hidden && !stem.is_empty() && !LAUNCHERS.contains(&stem.as_str()) {
            word = Some(stem);
        }
    }
    format!("{}-{}", word.unwrap_or_else(|| "server".to_owned()), &fields.digest().to_hex()[..6])
}

/// A name that somebody gave, for one folder only.
pub(crate) fn name_in(name: &str, folder: &Path) -> String {
    let digest = Fields::new().field(b"mcp folder v1").field(told(Some(folder))).digest();
    format!("{name}-{}", &digest.to_hex()[..6])
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
    words.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(60).collect()
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
            assert_eq!((front, digits.len()), (word, 6), "{line}");
        }
        assert_eq!(name("npx a"), name("npx a"));
        assert_ne!(name("npx a b"), name("npx a c"));
        assert_ne!(name("npx a b"), name("npx ab"));
    }
}
