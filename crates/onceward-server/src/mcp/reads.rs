//! Whether a tool only reads, as far as its name says. Stale answers to reads would do more harm than good.

/// Words that begin or end the names of tools that read.
const READS: [&str; 24] = [
    "browse", "compare", "count", "describe", "exists", "fetch", "find", "get", "help", "info", "inspect", "list",
    "lookup", "ls", "peek", "ping", "preview", "query", "read", "search", "show", "status", "version", "view",
];

/// Words that say that something happens, wherever they stand.
const ACTS: [&str; 58] = [
    "add", "append", "apply", "approve", "archive", "assign", "book", "buy", "cancel", "charge", "click", "close",
    "commit", "create", "delete", "deploy", "drop", "edit", "email", "exec", "execute", "fill", "insert", "install",
    "invite", "kill", "make", "merge", "modify", "move", "notify", "order", "pay", "post", "publish", "purchase",
    "push", "put", "refund", "register", "remove", "rename", "reply", "restart", "run", "save", "schedule", "send",
    "set", "start", "stop", "submit", "transfer", "update", "upload", "upsert", "wire", "write",
];

/// Whether a name says that its tool reads and does nothing else.
pub(super) fn only_reads(name: &str) -> bool {
    let words = words(name);
    let says = |word: Option<&String>| word.is_some_and(|word| READS.contains(&word.as_str()));
    (says(words.first()) || says(words.last())) && !words.iter().any(|word| ACTS.contains(&word.as_str()))
}

/// The words of a name: `searchMail`, `search_mail`, `mail.search` and `mail/search` have two.
pub(super) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for character in name.chars() {
        if !character.is_alphanumeric() || (character.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut()
            && character.is_alphanumeric()
        {
            word.extend(character.to_lowercase());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_read_and_names_that_do_not() {
        for name in
            ["get_user", "listFiles", "read-file", "search", "mail.search", "server_status", "API/describe", "fetch"]
        {
            assert!(only_reads(name), "{name}");
        }
        for name in [
            "",
            "send_email",
            "get_or_create_user",
            "search_and_replace_then_write",
            "charge",
            "status_update",
            "getaway",
            "user",
            "read_and_delete",
            "listen",
            "run_query",
            "x",
        ] {
            assert!(!only_reads(name), "{name}");
        }
    }

    #[test]
    fn the_lists_are_sorted_and_apart() {
        for list in [&READS[..], &ACTS[..]] {
            assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "{list:?}");
        }
        assert!(READS.iter().all(|word| !ACTS.contains(word)));
    }
}
