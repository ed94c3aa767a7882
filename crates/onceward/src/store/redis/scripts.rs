//! The Lua scripts. Each begins with the part that checks epoch and seal, and touches only keys of one hash tag.

use std::sync::LazyLock;

use redis::{Cmd, cmd};

#[cfg(feature = "sim")]
use crate::plant::{Plant, planted};

/// A script and its hash, by which the server knows it.
pub(super) struct Script {
    text: String,
    hash: String,
}

impl Script {
    fn of(parts: &[&str]) -> Self {
        let text = parts.concat();
        #[cfg(feature = "sim")]
        let text = with_planted_bug(text);
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    /// A call by its hash, or with its whole text for a server that does not know it yet.
    pub(super) fn call(&self, whole: bool) -> Cmd {
        let mut call = match whole {
            false => cmd("EVALSHA"),
            true => cmd("EVAL"),
        };
        call.arg(if whole { &self.text } else { &self.hash });
        call
    }
}

/// The bugs that can be planted in scripts: what is replaced, and by what.
#[cfg(feature = "sim")]
const BUGS: [(Plant, &str, &str); 6] = [
    (
        Plant::StoreFenceNotCompared,
        "string.sub(head, 2, 26) ~= ARGV[18]",
        "string.sub(head, 2, 9) ~= string.sub(ARGV[18], 1, 8)",
    ),
    (Plant::ExpiryKept, "redis.call('SET', KEYS[2], value)", "redis.call('SET', KEYS[2], value, 'KEEPTTL')"),
    (Plant::EpochNotChecked, "if epoch ~= ARGV[1]", "if false"),
    (Plant::EntryNotListed, "redis.call('ZADD', index, 0, member)", ""),
    (Plant::EntryStaysListed, "if last then redis.call('ZREM', index, last) end", ""),
    (Plant::SealNotChecked, "if mark ~= '+' and (mark ~= '~' or ARGV[3] ~= 'o')", "if not mark"),
];

#[cfg(feature = "sim")]
fn with_planted_bug(text: String) -> String {
    let bug = BUGS.iter().find(|(plant, ..)| planted(*plant));
    bug.map(|(_, right, wrong)| text.replace(right, wrong)).unwrap_or(text)
}

/// All scripts.
pub(super) struct Scripts {
    pub(super) insert: Script,
    pub(super) replace: Script,
    pub(super) get: Script,
    pub(super) due: Script,
    pub(super) waiting: Script,
    pub(super) referred: Script,
    pub(super) remove: Script,
    pub(super) append: Script,
    pub(super) trail: Script,
    pub(super) check: Script,
    pub(super) page: Script,
    pub(super) unsettled: Script,
    pub(super) counts: Script,
    pub(super) reserve: Script,
    pub(super) unreserve: Script,
    pub(super) seal: Script,
    pub(super) seal_shard: Script,
    pub(super) seal_finished: Script,
    pub(super) import: Script,
    pub(super) claim_operations: Script,
    pub(super) operations: Script,
}

const WRITES: &str = include_str!("scripts/open_for_writes.lua");
const READS: &str = include_str!("scripts/open_for_reads.lua");
const IMPORTS: &str = include_str!("scripts/open_for_imports.lua");
const MOMENTS: &str = include_str!("scripts/moments.lua");
const PLACES: &str = include_str!("scripts/places.lua");

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| {
    // What frees memory must run when memory is short. A server refuses any other script before its first line.
    let removals = WRITES.replacen("#!lua", "#!lua flags=allow-oom", 1);
    Scripts {
        insert: Script::of(&[WRITES, MOMENTS, PLACES, include_str!("scripts/insert.lua")]),
        replace: Script::of(&[WRITES, MOMENTS, PLACES, include_str!("scripts/replace.lua")]),
        get: Script::of(&[READS, include_str!("scripts/get.lua")]),
        due: Script::of(&[READS, include_str!("scripts/due.lua")]),
        waiting: Script::of(&[READS, include_str!("scripts/waiting.lua")]),
        referred: Script::of(&[READS, include_str!("scripts/referred.lua")]),
        remove: Script::of(&[&removals, PLACES, include_str!("scripts/remove.lua")]),
        append: Script::of(&[WRITES, include_str!("scripts/append.lua")]),
        trail: Script::of(&[READS, include_str!("scripts/trail.lua")]),
        check: Script::of(&[WRITES, include_str!("scripts/check.lua")]),
        page: Script::of(&[READS, include_str!("scripts/page.lua")]),
        unsettled: Script::of(&[READS, include_str!("scripts/unsettled.lua")]),
        counts: Script::of(&[READS, include_str!("scripts/counts.lua")]),
        reserve: Script::of(&[WRITES, include_str!("scripts/reserve.lua")]),
        unreserve: Script::of(&[&removals, include_str!("scripts/unreserve.lua")]),
        seal: Script::of(&[include_str!("scripts/seal.lua")]),
        seal_shard: Script::of(&[include_str!("scripts/seal_shard.lua")]),
        seal_finished: Script::of(&[include_str!("scripts/seal_finished.lua")]),
        import: Script::of(&[IMPORTS, MOMENTS, PLACES, include_str!("scripts/import.lua")]),
        claim_operations: Script::of(&[include_str!("scripts/claim_operations.lua")]),
        operations: Script::of(&[READS, include_str!("scripts/operations.lua")]),
    }
});
