//! The words that say what a tool does. Each list is sorted; a verb carries the reason for the user. Pure.

use super::name_words::is_one_or_several;

/// A word of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verb {
    pub(super) word: &'static str,
    /// The reason for the user.
    pub(super) why: &'static str,
}

macro_rules! verbs {
    ($why:literal; $($word:literal)*) => { &[$(Verb { word: $word, why: concat!($why, $word) }),*] };
}

/// Words that are only verbs and read.
pub(super) const READS: &[Verb] = verbs!["its name says that it reads: ";
    "analyse" "analyze" "browse" "calculate" "compare" "compute" "describe" "echo" "enumerate" "estimate" "examine"
    "exists" "explain" "extract" "fetch" "find" "geocode" "get" "inspect" "look" "lookup" "ls" "parse" "peek" "ping"
    "read" "recall" "retrieve" "scan" "scrape" "screenshot" "search" "stat" "suggest" "summarise" "summarize"
    "validate" "wait" "whoami"
];

/// Words that read as verbs and are also nouns: `list_create` makes a list.
pub(super) const THINGS: &[Verb] = verbs!["its name says that it reads: ";
    "check" "count" "details" "diff" "help" "history" "info" "list" "logs" "metadata" "overview" "preview" "show"
    "stats" "status" "summary" "tree" "version" "view"
];

/// Redis commands that read. Their names are one word.
pub(super) const COMMANDS: &[Verb] = verbs!["its name is a command that reads: ";
    "dbsize" "hexists" "hget" "hgetall" "hkeys" "hlen" "hmget" "hscan" "hvals" "lindex" "llen" "lrange" "mget" "scard"
    "sismember" "smembers" "sscan" "strlen" "ttl" "xlen" "xrange" "zcard" "zrange" "zscan" "zscore"
];

/// Verbs whose effect reaches other people.
pub(super) const OUTWARD: &[Verb] = verbs!["its name says that it reaches other people: ";
    "announce" "broadcast" "buy" "charge" "dial" "disburse" "donate" "invite" "notify" "pay" "publish" "purchase"
    "refund" "remit" "reply" "respond" "retweet" "rsvp" "sell" "send" "transfer" "tweet" "withdraw"
];

/// Nouns that do so as verbs, if there is no other verb: `email_customer`, but not `delete_email`.
pub(super) const OUTWARD_THINGS: &[Verb] = verbs!["its name says that it reaches other people: ";
    "book" "comment" "dm" "email" "fax" "mail" "message" "order" "sms"
];

/// Verbs that make something that other people see.
#[rustfmt::skip]
pub(super) const MAKES: &[&str] = &[
    "add", "book", "create", "file", "issue", "leave", "make", "manage", "open", "place", "post", "push", "raise",
    "schedule", "submit",
];

/// Things that other people see.
pub(super) const PUBLIC_THINGS: &[Verb] = verbs!["its name says that it makes something that reaches other people: ";
    "announcement" "appointment" "bet" "booking" "call" "charge" "comment" "discussion" "event" "incident"
    "invitation" "invite" "invoice" "issue" "meeting" "message" "mr" "note" "notification" "order" "payment" "payout"
    "post" "pr" "purchase" "refund" "reply" "request" "reservation" "review" "sms" "story" "thread" "ticket" "trade"
    "transfer" "tweet"
];

/// Verbs that move money, if money is their object: `capture_payment`.
#[rustfmt::skip]
pub(super) const MOVES: &[&str] = &[
    "authorize", "capture", "confirm", "execute", "initiate", "process", "release", "request", "wire",
];

/// The objects of those verbs.
pub(super) const MONEY: &[Verb] = verbs!["its name says that money moves: ";
    "charge" "fund" "money" "order" "payment" "payout" "refund" "trade" "transaction" "transfer"
];

/// More things that are posted. Otherwise `post` is an HTTP method.
pub(super) const POSTED: &[&str] =
    &["article", "blog", "image", "photo", "status", "story", "thread", "update", "video"];

/// Things that are sent to a program, not to a person.
#[rustfmt::skip]
pub(super) const TO_PROGRAMS: &[&str] = &[
    "api", "bytes", "command", "commands", "ctrl", "graphql", "hotkey", "http", "input", "inputs", "interrupt", "key",
    "keys", "keystroke", "keystrokes", "packet", "prompt", "query", "raw", "signal", "stdin", "terminal",
];

/// Things whose transfer reaches no person.
#[rustfmt::skip]
pub(super) const FILES: &[&str] = &[
    "cells", "columns", "data", "document", "documents", "domain", "file", "files", "focus", "images", "issue",
    "issues", "layers", "memories", "nodes", "objects", "ownership", "pages", "pdf", "pdfs",
    "project", "repo", "repository", "rows", "videos",
];

/// Verbs whose equal calls are deliberate steps.
#[rustfmt::skip]
pub(super) const STEPS: &[&str] = &[
    "advance", "blpop", "brpop", "bump", "claim", "click", "consume", "decr", "decrement", "dequeue", "drag",
    "hincrby", "incr", "increment", "key", "lpop", "pop", "press", "redo", "roll", "rpop", "scroll", "spop", "step",
    "swipe", "tap", "toggle", "type", "undo",
];

/// Verbs that set state inside the server's process.
#[rustfmt::skip]
pub(super) const STATE: &[&str] = &[
    "authenticate", "connect", "disconnect", "goto", "launch", "login", "logout", "navigate", "open", "reconnect",
    "select", "signin", "signout", "switch", "use", "visit",
];

/// Acting verbs that are nouns after a reading verb: `get_contact_import`.
#[rustfmt::skip]
pub(super) const DEEDS: &[&str] = &[
    "change", "copy", "download", "export", "fix", "import", "trigger", "update", "upgrade", "upload", "vote",
];

/// Directions after a verb like `go`: equal calls are deliberate.
pub(super) const TURNS: &[&str] = &["back", "forward", "next", "prev", "previous"];

/// Things that `resolve` looks up.
pub(super) const ADDRESSES: &[&str] = &["address", "handle", "id", "ids", "uri", "url", "username"];

/// Things that `close`, `end` and `new` change inside the server's process, but `create` does not.
pub(super) const PANES: &[&str] = &["page", "tab", "window"];

/// Words in front of `request` that make it one that other people see.
pub(super) const REQUEST_TARGETS: &[&str] =
    &["access", "connection", "customer", "friend", "merge", "payment", "pull", "service", "support"];

/// Things that live inside the server's process.
#[rustfmt::skip]
pub(super) const SESSION_THINGS: &[&str] = &[
    "browser", "connection", "session", "workspace",
];

/// Verbs that undo what was sent or made before, so that the same may be wanted again.
pub(super) const ENDS: &[&str] = &[
    "abort",
    "archive",
    "cancel",
    "cleanup",
    "clear",
    "close",
    "decline",
    "del",
    "delete",
    "destroy",
    "discard",
    "dismiss",
    "drop",
    "erase",
    "expunge",
    "hdel",
    "lrem",
    "purge",
    "recall",
    "reject",
    "remove",
    "reset",
    "retract",
    "revert",
    "revoke",
    "rollback",
    "srem",
    "trash",
    "undo",
    "uninstall",
    "uninvite",
    "unpublish",
    "unschedule",
    "unsend",
    "unsubscribe",
    "unwatch",
    "void",
    "wipe",
    "xdel",
    "zrem",
];

/// Words of tools that carry code or a command.
pub(super) const CODE: &[Verb] = verbs!["it carries code or a command: ";
    "bash" "cli" "cmd" "code" "command" "eval" "evaluate" "exec" "execute" "kubectl" "python" "repl" "script" "shell"
    "terminal"
];

/// Words of tools that carry a statement.
pub(super) const STATEMENTS: &[Verb] = verbs!["it carries a statement: ";
    "cypher" "query" "sparql" "sql"
];

/// Things that reading consumes.
#[rustfmt::skip]
pub(super) const CONSUMED: &[&str] = &[
    "messages", "output", "outputs", "queue", "stream",
];

/// Verbs that act, wherever they are in a name.
pub(super) const ACTS: &[Verb] = verbs!["its name says that it acts: ";
    "abort" "accept" "ack" "acknowledge" "activate" "add" "adjust" "advance" "allow" "amend" "announce" "append"
    "apply" "approve" "assign" "attach" "authenticate" "authorize" "ban" "blpop" "brpop" "bump" "buy" "cancel"
    "capture" "change" "cleanup" "clear" "click" "clone" "close" "complete" "compose" "configure" "confirm" "connect"
    "consume" "convert" "copy" "create" "deactivate" "decline" "decr" "decrement" "del" "delete" "deny" "dequeue"
    "destroy" "detach" "dial" "disable" "disburse" "discard" "disconnect" "dismiss" "donate" "download" "drag" "drop"
    "duplicate" "edit" "eject" "emit" "enable" "end" "enqueue" "enroll" "enter" "erase" "execute" "expire" "export"
    "expunge" "fill" "finalize" "finish" "fix" "flush" "force" "generate" "give" "goto" "grant" "hdel" "hide"
    "hincrby" "import" "incr" "increment" "ingest" "init" "initialize" "insert" "install" "invalidate" "invite"
    "invoke" "join" "kick" "kill" "launch" "leave" "login" "logout" "lpop" "lrem" "make" "manage" "mark" "migrate"
    "modify" "move" "mute" "navigate" "notify" "overwrite" "pause" "pay" "perform" "persist" "pop" "press" "promote"
    "provision" "publish" "purge" "rebase" "reboot" "rebuild" "redeem" "redo" "refresh" "register" "reject" "reload"
    "remit" "remove" "rename" "reopen" "reorder" "replace" "rerun" "reschedule" "reset" "resize" "resolve" "respond"
    "restart" "restore" "resume" "retract" "retry" "revert" "revoke" "rollback" "rpop" "save" "scroll" "sell" "send"
    "signin" "signout" "skip" "snooze" "spawn" "split" "spop" "srem" "start" "stop" "submit" "subscribe" "suspend"
    "swap" "swipe" "tap" "terminate" "toggle" "transition" "trash" "trigger" "truncate" "undo" "uninstall"
    "unsubscribe" "update" "upgrade" "upload" "upsert" "verify" "vote" "wipe" "withdraw" "write" "xdel" "zrem"
];

/// Words that act as verbs and are also nouns: `get_order` orders nothing. They act where a verb is expected.
pub(super) const MAY_ACT: &[Verb] = verbs!["its name says that it acts: ";
    "archive" "back" "backup" "block" "book" "branch" "broadcast" "build" "call" "charge" "checkout" "claim" "comment"
    "commit" "crawl" "deploy" "dm" "draft" "dump" "email" "exec" "fax" "file" "flag" "follow" "fork" "forward" "go"
    "invoice" "issue" "key" "label" "like" "link" "lock" "log" "mail" "merge" "message" "mount" "new" "next" "note"
    "open" "order" "patch" "pin" "place" "plan" "post" "prev" "previous" "process" "pull" "purchase" "push" "put"
    "queue" "raise" "rate" "react" "record" "refund" "release" "reply" "report" "request" "reserve" "retweet" "review"
    "roll" "rotate" "rsvp" "run" "sample" "schedule" "select" "set" "share" "sign" "sms" "star" "step" "store"
    "stream" "switch" "sync" "tag" "test" "transfer" "tweet" "type" "use" "visit" "watch" "wire" "work" "zoom"
];

/// Nouns in front of a word that reads: `server_status`. In contrast, `duplicate_list` acts.
#[rustfmt::skip]
pub(super) const NOUNS: &[&str] = &[
    "account", "agent", "alert", "api", "app", "application", "article", "asset", "base", "board", "booking",
    "branch", "bucket", "build", "calendar", "card", "cart", "channel", "client", "cluster", "collection", "column",
    "comment", "commit", "contact", "container", "content", "context", "customer", "data", "database", "dataset",
    "db", "device", "directory", "docker", "document", "domain", "email", "event", "field", "file", "folder",
    "function", "git", "graph", "group", "health", "image", "index", "instance", "invoice", "issue", "item", "job",
    "key", "kubectl", "label", "mail", "member", "memory", "message", "model", "network", "node", "note", "object",
    "order", "organization", "page", "payment", "pod", "policy", "process", "product", "profile", "project", "queue",
    "record", "release", "repo", "repository", "role", "room", "schema", "server", "service", "session", "site",
    "space", "system", "table", "task", "team",
];

/// Words that join a second verb to the first: `get_or_create_user`.
#[rustfmt::skip]
pub(super) const JOINS: &[&str] = &[
    "and", "else", "or", "then",
];

/// Words that end the object of a verb.
pub(super) const PREPOSITIONS: &[&str] = &[
    "as", "at", "between", "by", "for", "from", "in", "into", "of", "on", "onto", "over", "per", "to", "using", "via",
    "with",
];

/// The entry of a word.
pub(super) fn found(list: &'static [Verb], word: &str) -> Option<&'static Verb> {
    list.iter().find(|verb| verb.word == word)
}

/// The entry of a noun, in the singular or plural.
pub(super) fn found_thing(list: &'static [Verb], word: &str) -> Option<&'static Verb> {
    list.iter().find(|verb| is_one_or_several(word, verb.word))
}

/// The entry of a verb that acts wherever it is. The prefixes `re` and `un` change what it does, not whether it acts.
pub(super) fn acts(word: &str) -> Option<&'static Verb> {
    let bare = ["re", "un"].into_iter().filter_map(|before| word.strip_prefix(before));
    let of_bare = |bare: &str| found(ACTS, bare).or_else(|| found(MAY_ACT, bare).filter(|verb| verb.word.len() > 2));
    found(ACTS, word).or_else(|| {
        // `read`, `release` and others are separate words.
        let is_own = found(READS, word).is_some() || found(MAY_ACT, word).is_some() || found(OUTWARD, word).is_some();
        bare.filter(|_| !is_own).find_map(of_bare)
    })
}

/// The entry of a verb that reads.
pub(super) fn reads(word: &str) -> Option<&'static Verb> {
    found(READS, word).or_else(|| found(COMMANDS, word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted_and_do_not_overlap() {
        let verbs =
            [READS, THINGS, COMMANDS, OUTWARD, OUTWARD_THINGS, PUBLIC_THINGS, MONEY, CODE, STATEMENTS, ACTS, MAY_ACT];
        let words = |list: &[Verb]| list.iter().map(|verb| verb.word).collect::<Vec<_>>();
        let plain: [&[&str]; 18] = [
            MAKES,
            MOVES,
            POSTED,
            TO_PROGRAMS,
            FILES,
            STEPS,
            STATE,
            SESSION_THINGS,
            DEEDS,
            TURNS,
            ADDRESSES,
            PANES,
            REQUEST_TARGETS,
            ENDS,
            CONSUMED,
            NOUNS,
            JOINS,
            PREPOSITIONS,
        ];
        let all = verbs.iter().map(|list| words(list)).chain(plain.iter().map(|list| list.to_vec()));
        for list in all {
            assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "{list:?}");
        }
        let apart = [READS, THINGS, COMMANDS, ACTS, MAY_ACT];
        for (at, list) in apart.iter().enumerate() {
            for verb in apart[at + 1..].iter().flat_map(|other| other.iter()) {
                assert!(found(list, verb.word).is_none(), "{}", verb.word);
            }
        }
        for verb in OUTWARD.iter().chain(OUTWARD_THINGS) {
            assert!(found(ACTS, verb.word).or_else(|| found(MAY_ACT, verb.word)).is_some(), "{}", verb.word);
        }
    }
}
