//! What an acting verb does, and whether it reaches other people. Pure.

use super::lexicon::{
    ACTS, ENDS, FILES, JOINS, MAKES, MAY_ACT, MONEY, MOVES, OUTWARD, OUTWARD_THINGS, PANES, POSTED, PREPOSITIONS,
    PUBLIC_THINGS, REQUEST_TARGETS, SESSION_THINGS, STATE, STEPS, THINGS, TO_PROGRAMS, TURNS, Verb, acts, found,
    found_thing, reads,
};
use super::name_words::{bases, is_one_or_several};
use super::{Effect, Kind, Name, is_to_pull};

/// Input that is typed, not sent to a person: `send_keys`.
const TYPED: &[&str] = &["hotkey", "input", "key", "keys", "keystroke", "keystrokes"];

/// Existing things that are added to something else: `add_issue_to_project`.
const PUT: &[&str] = &["issue", "order", "pr", "request", "ticket"];

/// Calls that are not phone calls.
const UNHEARD: &[&str] = &["api", "function", "http", "rpc", "system", "tool"];

/// Things that are not sent yet.
const UNSENT: &[&str] = &["draft", "drafts", "template", "templates"];

/// Things that are sorted, not bought, with `order`.
const ARRANGED: &[&str] =
    &["columns", "fields", "layers", "lines", "nodes", "rows", "shapes", "slides", "tabs", "tasks"];

/// Words after which `post` and `comment` reach no person: `post_process_image`, `comment_out_lines`.
const NOT_SAID: &[&str] = &["build", "deploy", "install", "out", "process", "processing"];

/// Words that may follow the object of a verb: `create_issues_bulk`.
const ENDINGS: &[&str] = &["async", "batch", "bulk", "multiple", "series"];

/// Verbs that reach their object and are also nouns: `page_oncall`, but not `page_count`.
const REACHES: &[&str] = &["alert", "call", "contact", "page", "phone", "ping", "text"];

/// The people whom these verbs reach.
#[rustfmt::skip]
const PEOPLE: &[&str] = &[
    "attendee", "candidate", "customer", "employee", "engineer", "everyone", "guest", "lead", "manager", "oncall",
    "patient", "people", "person", "recipient", "staff", "subscriber", "supplier", "support", "team", "user", "vendor",
];

/// Whether a name says that the tool reaches a person.
pub(super) fn reaches(words: &[String]) -> bool {
    let [first, between @ .., last] = words else { return false };
    let has_verb =
        between.iter().any(|word| acts(word).is_some() || reads(word).is_some() || found(THINGS, word).is_some());
    !has_verb && REACHES.contains(&first.as_str()) && PEOPLE.iter().any(|one| is_one_or_several(last, one))
}

/// Whether a word is a number, a version or another ending of a name: `create_payment_v3`.
fn is_ending(word: &str) -> bool {
    let number = word.strip_prefix('v').unwrap_or(word);
    ENDINGS.contains(&word) || number.bytes().all(|digit| digit.is_ascii_digit())
}

impl Name<'_> {
    /// The kind of a tool whose verb acts.
    pub(super) fn acting(&self, at: usize, verb: &'static Verb) -> Kind {
        let is_joined = |at: &usize| JOINS.contains(&self.words[at - 1].as_str());
        let verbs: Vec<usize> = std::iter::once(at).chain((at + 2..self.words.len()).filter(is_joined)).collect();
        let outward = verbs.iter().filter(|_| !verb.word.is_empty()).find_map(|at| self.outward(*at));
        let ends = |at: &usize| self.is_in(ENDS, *at);
        let is_binned = self.words[at] == "move" && self.has_after(at, &["archive", "bin", "trash"]);
        Kind {
            effect: if outward.is_some() { Effect::Outward } else { Effect::Acts },
            steps: outward.is_none() && self.steps(at),
            sets_state: outward.is_none() && verbs.iter().any(|at| self.sets_state(*at)),
            ends: is_binned || verbs.iter().any(ends),
            why: outward.unwrap_or(verb.why),
        }
    }

    fn steps(&self, at: usize) -> bool {
        let word = self.words[at].as_str();
        let types = word == "send" && self.has_after(at, TYPED);
        types || self.is_in(STEPS, at) || self.turns(at)
    }

    /// `next`, `go_back`, `navigate_forward`, but not `port_forward`.
    fn turns(&self, at: usize) -> bool {
        let is_turn = |word: &String| TURNS.contains(&word.as_str());
        let goes = |word: &String| matches!(word.as_str(), "go" | "history" | "move" | "navigate" | "page");
        let before = at.checked_sub(1).filter(|before| *before >= self.start).map(|before| &self.words[before]);
        let is_first = is_turn(&self.words[at]) && before.is_none_or(|before| goes(before) || before == "get");
        is_first || (goes(&self.words[at]) && self.words.last().is_some_and(is_turn))
    }

    fn sets_state(&self, at: usize) -> bool {
        let is_about = |list: &[&str]| {
            self.about(at).last().is_some_and(|head| list.iter().any(|one| is_one_or_several(head, one)))
        };
        match self.words[at].as_str() {
            "create" | "init" | "initialize" | "start" => is_about(SESSION_THINGS),
            "close" | "end" | "new" => is_about(SESSION_THINGS) || is_about(PANES),
            "set" => self.has_after(at, &["active", "context", "current", "working"]),
            "go" | "log" | "sign" => self.has_after(at, &["back", "forward", "in", "out", "to"]),
            _ => self.is_in(STATE, at),
        }
    }

    fn is_in(&self, list: &[&str], at: usize) -> bool {
        bases(&self.words[at]).iter().any(|base| list.contains(&base.as_str()))
    }

    fn has_after(&self, at: usize, list: &[&str]) -> bool {
        self.words[at + 1..].iter().any(|word| list.contains(&word.as_str()))
    }

    /// The object of a verb, whose last word is the noun: `jira issue` in `create_jira_issue_for_board`.
    fn about(&self, at: usize) -> &[String] {
        let ends = |word: &String| PREPOSITIONS.contains(&word.as_str()) || JOINS.contains(&word.as_str());
        let after = &self.words[at + 1..];
        let after = &after[..after.iter().position(ends).unwrap_or(after.len())];
        let after = &after[..after.iter().rposition(|word| !is_ending(word)).map_or(after.len(), |last| last + 1)];
        if after.is_empty() { &self.words[..at] } else { after }
    }

    /// Why a verb reaches other people.
    fn outward(&self, at: usize) -> Option<&'static str> {
        let word = self.words[at].as_str();
        // `resend` sends once more; `replace` and `release` are separate words.
        let is_own = found(ACTS, word).or_else(|| found(MAY_ACT, word)).is_some();
        let again = word.strip_prefix("re").filter(|_| !is_own).map(str::to_owned);
        let forms: Vec<String> = bases(word).into_iter().chain(again).collect();
        if let Some(verb) = forms.iter().find_map(|form| found(OUTWARD, form)) {
            return (!self.is_elsewhere(at, verb.word)).then_some(verb.why);
        }
        let about = self.about(at);
        if about.iter().any(|word| UNSENT.contains(&word.as_str())) {
            return None;
        }
        let is = |list: &[&str]| forms.iter().any(|form| list.contains(&form.as_str()));
        // `createOrder2` makes an order.
        let head = about.last().map(|head| head.trim_end_matches(|digit: char| digit.is_ascii_digit()));
        let made = head.filter(|_| is(MAKES)).and_then(|head| found_thing(PUBLIC_THINGS, head));
        let moved = head.filter(|_| is(MOVES)).and_then(|head| found_thing(MONEY, head));
        let direct = found(OUTWARD_THINGS, word).filter(|_| self.is_verb_at(at) && !self.is_elsewhere(at, word));
        let made = made.filter(|seen| self.is_seen(at, seen.word));
        let reason = made.or(moved).or(direct).map(|verb| verb.why).or_else(|| self.posts(at));
        reason.or_else(|| self.merges(at))
    }

    /// Whether the word here is a verb, not the object of another one.
    fn is_verb_at(&self, at: usize) -> bool {
        at == self.start || JOINS.contains(&self.words[at - 1].as_str())
    }

    /// Whether the tool reaches no person although its verb usually does: `send_keys`, `transfer_focus`, `comment_out_lines`.
    fn is_elsewhere(&self, at: usize, verb: &str) -> bool {
        let head = self.words[at + 1..].last().and(self.about(at).last());
        let is_in = |list: &[&str]| head.is_some_and(|head| list.contains(&head.as_str()));
        let says = |head: &String| {
            head != "request"
                && [PUBLIC_THINGS, OUTWARD_THINGS, MONEY].iter().any(|list| found_thing(list, head).is_some())
        };
        match verb {
            "send" => {
                let is_said = head.is_some_and(says) && self.is_seen(at, head.map_or("", String::as_str));
                (self.has_after(at, TO_PROGRAMS) && !is_said) || self.words[at + 1..] == ["request"]
            }
            "charge" => is_in(&["battery", "device", "phone"]),
            "message" => is_in(&["box", "bus", "queue"]),
            "order" => is_in(ARRANGED),
            "respond" => self.has_after(at, &["dialog", "popup", "prompt"]),
            "transfer" => is_in(FILES),
            "comment" => self.words.get(at + 1).is_some_and(|next| NOT_SAID.contains(&next.as_str())),
            _ => false,
        }
    }

    /// Other people see the merge of a pull request, but not of branches, cells and contacts.
    fn merges(&self, at: usize) -> Option<&'static str> {
        let about = self.about(at);
        let is_pulled = is_to_pull(about) || about.last().is_some_and(|head| ["mr", "pr"].contains(&head.as_str()));
        let is_merged = matches!(self.words[at].as_str(), "accept" | "merge") && is_pulled;
        is_merged.then_some("its name says that it reaches other people: merge")
    }

    /// Whether other people see the thing that is made. Other things have the same names.
    fn is_seen(&self, at: usize, seen: &str) -> bool {
        let about = self.about(at);
        let before = about.len().checked_sub(2).map_or("", |before| about[before].as_str());
        let is_put = self.words[at] == "add" && PUT.contains(&seen) && self.has_after(at, &["into", "to"]);
        match seen {
            "request" => REQUEST_TARGETS.contains(&before) && !is_put,
            "call" => !UNHEARD.contains(&before),
            _ => !is_put,
        }
    }

    /// `post_photo`, `forward_email`. Otherwise `post` is an HTTP method, and `forward` is about ports.
    fn posts(&self, at: usize) -> Option<&'static str> {
        let last = self.words[at + 1..].last().map(String::as_str);
        let is_after = self.words.get(at + 1).is_some_and(|next| NOT_SAID.contains(&next.as_str()));
        let is_posted = last.is_none_or(|last| POSTED.contains(&last)) && self.is_verb_at(at) && !is_after;
        match (self.words[at].as_str(), last) {
            ("post", _) if is_posted => Some("its name says that it reaches other people: post"),
            ("forward", Some("email" | "mail" | "message")) => {
                Some("its name says that it reaches other people: forward")
            }
            _ => None,
        }
    }
}
