//! Whether a tool only reads, as far as its name says. Stale answers to reads would do more harm than good.

/// Words that begin the names of tools that read.
const FIRST: [&str; 23] = [
    "browse", "compare", "count", "describe", "exists", "fetch", "find", "get", "help", "info", "inspect", "list",
    "lookup", "ls", "peek", "preview", "query", "read", "search", "show", "status", "version", "view",
];

/// Of those, the ones that are things as well: in `list_create` a list is made, in `get_order` nothing is ordered.
const THINGS: [&str; 11] =
    ["count", "help", "info", "list", "preview", "query", "show", "status", "version", "view", "ls"];

/// Words that make an act even of what begins with another verb: `search_replace`.
const ALWAYS: [&str; 8] = ["create", "delete", "insert", "purge", "remove", "replace", "update", "write"];

/// Words that end the names of tools that read, as in `mail.search` and `server_status`.
const LAST: [&str; 11] =
    ["count", "describe", "fetch", "find", "get", "list", "lookup", "read", "search", "show", "status"];

/// Words that say that something happens: what ends like a tool that reads acts all the same.
#[rustfmt::skip]
const ACTS: [&str; 104] = [
    "accept", "add", "append", "apply", "approve", "archive", "assign", "book", "buy", "call", "cancel", "change",
    "charge", "clear", "click", "close", "commit", "complete", "confirm", "create", "delete", "deploy", "destroy",
    "disable", "do", "drop", "edit", "email", "enable", "exec", "execute", "fill", "finish", "fix", "force", "grant",
    "import", "insert", "install", "invite", "kill", "lock", "make", "mark", "merge", "modify", "move",
    "notification", "notify", "open", "order", "patch", "pay", "perform", "pin", "post", "publish", "purchase",
    "purge", "push", "put", "refresh", "refund", "register", "reject", "release", "remove", "rename", "reopen",
    "replace", "reply", "reset", "resolve", "restart", "restore", "revoke", "rotate", "run", "save", "schedule",
    "send", "set", "share", "sign", "start", "stop", "submit", "subscribe", "switch", "sync", "tag", "toggle",
    "transfer", "trigger", "unlock", "update", "upload", "upsert", "vote", "wipe", "wire", "withdraw", "work",
    "write",
];

/// Words that join a second thing to the first: `get_or_create_user`.
const JOINS: [&str; 5] = ["and", "else", "or", "then", "with"];

/// Whether a name says that its tool reads and does nothing else. A read that is guarded is stale for a minute; an act that
/// passes by happens twice. So a name has to be clear.
pub(super) fn only_reads(name: &str) -> bool {
    let words = words(name);
    let is = |list: &[&str], word: &String| list.contains(&word.as_str());
    let joined = words.windows(2).any(|pair| is(&JOINS, &pair[0]) && !is(&FIRST, &pair[1]));
    match words.split_first() {
        _ if joined => false,
        // What is done to a thing may stand anywhere behind it: `list_item_delete`.
        Some((first, rest)) if is(&THINGS, first) => !rest.iter().any(|word| is(&ACTS, word)),
        // Behind a verb there are things, unless it comes at once or at the end: `search_replace`, `search_index_delete`.
        Some((first, rest)) if is(&FIRST, first) => {
            let acts = |word: &String| is(&ALWAYS, word);
            !rest.first().is_some_and(acts) && !rest.last().is_some_and(|word| acts(word) || word == "send")
        }
        Some(_) => words.last().is_some_and(|last| is(&LAST, last)) && !words.iter().any(|word| is(&ACTS, word)),
        None => false,
    }
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
        for name in [
            "get_user",
            "listFiles",
            "read-file",
            "search",
            "mail.search",
            "server_status",
            "API/describe",
            "fetch",
            "find_charge",
            "get_order",
            "list_pull_requests",
            "read_email",
            "getRefundStatus",
            "find_and_count",
            "list_allowed_directories",
            "read_multiple_files",
            "directory_tree_read",
            "get_file_info",
            "get_me",
            "get_pull_request_status",
            "get_release_by_tag",
            "list_issues",
            "list_workflow_runs",
            "list_notifications",
            "search_code",
            "search_repositories",
            "query_database",
            "view_file",
        ] {
            assert!(only_reads(name), "{name}");
        }
        for name in [
            "",
            "send_email",
            "get_or_create_user",
            "search_and_replace",
            "charge",
            "status_update",
            "getaway",
            "user",
            "read_and_delete",
            "listen",
            "run_query",
            "x",
            "toggle_status",
            "post_status",
            "markAsRead",
            "set_list",
            "list_item_delete",
            "list_member_add",
            "status_message_send",
            "status_page_publish",
            "search_index_delete",
            "search_index_create",
            "query_history_clear",
            "view_settings_update",
            "show_booking_cancel",
            "info_mail_send",
            "help_ticket_create",
            "read_receipt_send",
            "preview_link_create",
            "version_tag_create",
            "countOrderSubmit",
            "list_item_delete_all",
        ] {
            assert!(!only_reads(name), "{name}");
        }
    }

    #[test]
    fn the_lists_are_sorted_and_apart() {
        for list in [&FIRST[..], &LAST, &ACTS, &ALWAYS, &JOINS] {
            assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "{list:?}");
        }
        assert!(FIRST.iter().all(|word| !ACTS.contains(word)) && LAST.iter().all(|word| FIRST.contains(word)));
        assert!(THINGS.iter().all(|word| FIRST.contains(word)) && ALWAYS.iter().all(|word| ACTS.contains(word)));
    }
}
