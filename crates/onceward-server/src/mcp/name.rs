//! A name for a server that nobody has named: from its command, so that the same command is the same server.

use std::ffi::OsString;
use std::path::Path;

use onceward::core::hash::Fields;

/// Programs that only start others, and words of theirs that are not the server either.
const LAUNCHERS: [&str; 21] = [
    "bun", "bunx", "cmd", "deno", "docker", "dlx", "env", "exec", "node", "npm", "npx", "pipx", "pnpm", "podman",
    "python", "python3", "run", "sh", "tool", "uv", "uvx",
];

/// The name: a word that people recognise, and a few digits that tell servers apart whose words are the same.
pub(crate) fn server_name(command: &[OsString]) -> String {
    let mut fields = Fields::new().field(b"mcp server v1");
    let mut word = None;
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
        if word.is_none() && !text.starts_with('-') && !stem.is_empty() && !LAUNCHERS.contains(&stem.as_str()) {
            word = Some(stem);
        }
    }
    format!("{}-{}", word.unwrap_or_else(|| "server".to_owned()), &fields.digest().to_hex()[..6])
}

/// `@scope/server-mail@1.2` and `/opt/server-mail.py` are `server-mail`.
fn stem(text: &str) -> String {
    let last = text.rsplit(['/', '\\']).next().unwrap_or_default();
    let last = last.split('@').find(|part| !part.is_empty()).unwrap_or_default();
    let last = last
        .strip_suffix(".py")
        .or_else(|| last.strip_suffix(".js"))
        .or_else(|| last.strip_suffix(".mjs"))
        .unwrap_or(last);
    last.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(60).collect()
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
