//! Judges by its name what a tool does: it reads, carries a statement, acts, or reaches other people. Pure.
//!
//! A name is read as a sentence without grammar: the first verb says what happens, and its object says to whom. A tool with an unclear
//! name counts as acting, so its calls are recorded. A read that is recorded costs a write to the ledger; an act that is not recorded
//! may happen twice.
//!
//! - `lexicon`: the words. `acting`: whom an acting verb reaches. `second_verb`: what a reading tool does besides. `name_words`:
//!   splits names. `statement`: whether a statement only reads.

#[cfg(test)]
mod accuracy_tests;
mod acting;
mod lexicon;
mod name_words;
mod second_verb;
mod statement;
#[cfg(test)]
mod tests;

use acting::reaches;
use lexicon::{ADDRESSES, CODE, DEEDS, MAY_ACT, NOUNS, PREPOSITIONS, STATEMENTS, THINGS, Verb, acts, found, reads};
pub(super) use name_words::words;
use name_words::{bases, is_plural};
pub(super) use statement::is_plain_read;

/// What a tool does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    /// It carries a statement, and acts unless the statement only reads.
    Query,
    Acts,
    /// It reaches other people.
    Outward,
}

/// What a tool does, judged by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) effect: Effect,
    /// Equal calls are steps: pressing a key twice is deliberate.
    pub(super) steps: bool,
    /// It sets state inside the server's process, which another process does not have.
    pub(super) sets_state: bool,
    /// It ends the effect of earlier outward calls, which may then be wanted again.
    pub(super) ends: bool,
    /// The reason for the user.
    pub(super) why: &'static str,
}

/// Verbs that count as acting when they are the whole name: `fetch` may use any HTTP method, and `browse` may click.
const BARE: [&str; 2] = ["browse", "fetch"];

/// Verbs in front of a statement that runs.
const RUN: [&str; 8] = ["do", "exec", "execute", "explain", "perform", "read", "run", "select"];

/// What a tool of this name does. `prefix` holds the words that begin all names of its server.
pub(super) fn of(name: &str, prefix: &[String]) -> Kind {
    let words = words(name);
    let start = if words.len() > prefix.len() && words.starts_with(prefix) { prefix.len() } else { 0 };
    let judged = Name { words: &words, start }.kind().or_else(|| Name { words: &words, start: 0 }.kind());
    judged.unwrap_or_else(|| kind(Effect::Acts, "nothing says that it only reads"))
}

/// The words that begin all tool names of a server, to be left out. A verb is left out only if every name has another one:
/// `send_email` and `send_sms` do not have the prefix `send`.
pub(super) fn shared_prefix<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<Vec<String>> = names.map(words).collect();
    let Some((first, others)) = names.split_first().filter(|(_, others)| !others.is_empty()) else { return Vec::new() };
    let mut length = 0;
    while let Some(word) = first.get(length) {
        let is_shared = others.iter().all(|other| other.get(length) == Some(word));
        let is_last = names.iter().any(|name| name.len() <= length + 1);
        let says_nothing =
            !is_verb(word) || names.iter().all(|name| name[length + 1..].iter().any(|word| is_verb(word)));
        if !is_shared || is_last || !says_nothing {
            break;
        }
        length += 1;
    }
    first[..length].to_vec()
}

/// Whether a word is only a verb.
fn is_verb(word: &str) -> bool {
    acts(word).is_some() || reads(word).is_some() || word == "list"
}

fn kind(effect: Effect, why: &'static str) -> Kind {
    Kind { effect, steps: false, sets_state: false, ends: false, why }
}

/// A name and where it begins after the prefix of its server.
struct Name<'a> {
    words: &'a [String],
    start: usize,
}

/// The verb of a name.
enum MainVerb {
    Acts(usize, &'static Verb),
    Reads(usize, &'static Verb),
    /// A word that reads and is also a noun.
    Shows(usize, &'static Verb),
}

impl Name<'_> {
    /// `None` if no word is known.
    fn kind(&self) -> Option<Kind> {
        let words = &self.words[self.start..];
        if let [only] = words
            && BARE.contains(&only.as_str())
        {
            return Some(kind(Effect::Acts, "its name does not say which method it uses"));
        }
        if reaches(words) {
            return Some(kind(Effect::Outward, "its name says that it reaches other people"));
        }
        if let Some(query) = self.query() {
            return Some(query);
        }
        Some(match self.main()? {
            MainVerb::Acts(at, verb) => self.acting(at, verb),
            MainVerb::Reads(at, verb) => match self.acts_after(at, false) {
                Some((at, verb)) => self.acting(at, verb),
                None if self.takes(at) => kind(Effect::Acts, "its name says that it consumes what it reads"),
                None => kind(Effect::Reads, verb.why),
            },
            MainVerb::Shows(at, verb) => match self.acts_after(at, true) {
                Some((at, verb)) => self.acting(at, verb),
                None if self.takes(at) => kind(Effect::Acts, "its name says that it does more than read"),
                None => kind(Effect::Reads, verb.why),
            },
        })
    }

    /// A tool that carries a statement or code.
    fn query(&self) -> Option<Kind> {
        let words = &self.words[self.start..];
        let (first, rest) = words.split_first()?;
        let carried = |word: &String| found(STATEMENTS, word);
        let has_joined = (self.start + 2..self.words.len()).any(|at| self.joined(self.start, at).is_some());
        let has_act = has_joined || rest.iter().any(|word| acts(word).is_some());
        if let Some(verb) = carried(first) {
            // `query_users` reads things, named in the plural; `query_postgres` carries a statement to a database.
            let is_of_things =
                first == "query" && rest.last().is_some_and(|last| is_plural(last) && !last.ends_with("es"));
            return match (has_act, is_of_things) {
                (true, _) => None,
                (false, true) => Some(kind(Effect::Reads, "its name says that it reads: query")),
                (false, false) => Some(kind(Effect::Query, verb.why)),
            };
        }
        let runs = |word: &String| RUN.contains(&word.as_str());
        let is_known = |word: &String| acts(word).is_some() || reads(word).is_some() || found(THINGS, word).is_some();
        let until = words.iter().position(|word| PREPOSITIONS.contains(&word.as_str())).unwrap_or(words.len());
        if let Some(verb) = words[..until].last().and_then(carried) {
            let is_run = words.iter().any(runs) || !words.iter().any(is_known);
            let writes = words.iter().any(|word| acts(word).is_some() && !runs(word));
            return (is_run && !writes).then(|| kind(Effect::Query, verb.why));
        }
        let is_bare = !rest.iter().any(|word| is_known(word) || found(MAY_ACT, word).is_some());
        let last = rest.last().filter(|_| runs(first)).and_then(|last| found(CODE, last));
        found(CODE, first).or(last).filter(|_| is_bare).map(|verb| kind(Effect::Acts, verb.why))
    }

    /// The verb that says what happens.
    fn main(&self) -> Option<MainVerb> {
        let words = &self.words[self.start..];
        let (first, rest) = words.split_first()?;
        if first == "resolve"
            && rest.last().is_some_and(|last| ADDRESSES.contains(&last.as_str()))
            && !rest.iter().any(|word| PREPOSITIONS.contains(&word.as_str()))
        {
            return Some(MainVerb::Reads(self.start, &RESOLVES));
        }
        if let Some(main) = self.begins_with_verb(first, rest) {
            return Some(main);
        }
        for (at, word) in rest.iter().enumerate().map(|(at, word)| (self.start + at + 1, word)) {
            if let Some(verb) = acts(word) {
                return Some(MainVerb::Acts(at, verb));
            }
            if let Some(verb) = reads(word) {
                return Some(MainVerb::Reads(at, verb));
            }
            if let Some(verb) = found(THINGS, word)
                && self.words[self.start..at].iter().all(|word| is_noun(word))
            {
                return Some(MainVerb::Shows(at, verb));
            }
        }
        // A word that is both a verb and a noun is the verb at the end of a name, or else where it does not look like a noun.
        let may_act = |at: usize| Some(MainVerb::Acts(at, found(MAY_ACT, &self.words[at])?));
        let last = self.words.len() - 1;
        let likely = std::iter::once(last).chain(self.start..last).filter(|at| !self.is_noun_at(*at));
        likely.chain(self.start..=last).find_map(may_act)
    }

    /// Whether a word is a noun here, as in `pull_request` and `merge_request`.
    fn is_noun_at(&self, at: usize) -> bool {
        let is_pair = |at: usize| self.words.get(at..at + 2).is_some_and(is_to_pull);
        is_noun(&self.words[at]) || is_pair(at) || at.checked_sub(1).is_some_and(is_pair)
    }

    /// The verb, if the first word is one or points to another.
    fn begins_with_verb(&self, first: &str, rest: &[String]) -> Option<MainVerb> {
        let start = self.start;
        for base in bases(first) {
            match (acts(&base), reads(&base)) {
                (Some(verb), _) => return Some(MainVerb::Acts(start, verb)),
                (None, Some(verb)) => return Some(MainVerb::Reads(start, verb)),
                (None, None) => {}
            }
        }
        if let Some(verb) = found(THINGS, first) {
            return Some(MainVerb::Shows(start, verb));
        }
        let verb = found(MAY_ACT, first).or_else(|| {
            let bases = bases(first).into_iter().filter(|_| first.ends_with("ing"));
            bases.into_iter().find_map(|base| found(MAY_ACT, &base))
        })?;
        // `tag_create`, `queue_purge`, `schedule_send_email`: another verb is next to it or at the end.
        let other = |at: Option<usize>| at.and_then(|at| Some((at, acts(self.words.get(at)?)?)));
        let is_deed = |(at, _): &(usize, &Verb)| DEEDS.contains(&self.words[*at].as_str()) && !self.is_noun_at(start);
        let other = other(Some(start + 1)).or_else(|| other(self.words.len().checked_sub(1)));
        match other.filter(|other| !rest.is_empty() && !is_deed(other) && verb.word != "set") {
            Some((at, verb)) => Some(MainVerb::Acts(at, verb)),
            None if self.is_noun_at(start) => None,
            None => Some(MainVerb::Acts(start, verb)),
        }
    }
}

/// `resolve_username` looks something up; `resolve_thread` acts.
static RESOLVES: Verb = Verb { word: "resolve", why: "its name says that it reads: resolve" };

/// `pull_request`, `merge_request`.
fn is_to_pull(about: &[String]) -> bool {
    let [.., before, last] = about else { return false };
    matches!(before.as_str(), "merge" | "pull") && matches!(last.as_str(), "request" | "requests")
}

/// Whether a word is a noun.
fn is_noun(word: &str) -> bool {
    NOUNS.contains(&word) || is_plural(word)
}
