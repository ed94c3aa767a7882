//! A name for a server that nobody has named: from its command, so that the same command is the same server.

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

/// The name: a word that people recognise, and a few digits that tell servers apart whose words are the same.
pub(crate) fn server_name(command: &[OsString]) -> String {
    let mut fields = Fields::new().field(b"mcp server v1");
    let (mut word, mut is_value) = (None, false);
    for part in command {
        let text = part.to_string_lossy();
        // The same file is the same server, wherever its client was started.
        let path = Path::new(part);
        let whole = if path.is_file() { path.canonicalize().ok() } else { None };
        fields = match &whole {
            Some(path) => fields.field(path.to_string_lossy().as_bytes()),
            None => fields.field(text.as_bytes()),
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

    #[test]
    fn a_name_is_a_word_of_the_command_and_digits_of_all_of_it() {
        let name = |line: &str| server_name(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
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
