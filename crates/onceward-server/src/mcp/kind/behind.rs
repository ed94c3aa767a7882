//! What a tool does besides reading, as far as the words behind its verb tell.

use super::lexicon::{CONSUMED, DEEDS, JOINS, MAY_ACT, PREPOSITIONS, THINGS, Verb, acts, found, reads};
use super::words::is_plural;
use super::{Name, is_noun};

/// What stands behind `and` and is no verb that is known.
pub(super) static UNCLEAR: Verb = Verb { word: "", why: "its name does not say what else it does" };

/// What a verb is about that stands for something named before it: `find_order_refund_it`.
const PRONOUNS: &[&str] = &["her", "him", "it", "them"];

/// What is known of an act, and makes a thing of the verb before it: `get_issue_create_meta`.
#[rustfmt::skip]
const KNOWN_OF: &[&str] = &[
    "config", "fields", "link", "meta", "options", "policy", "schema", "template", "url",
];

/// What is worth nothing any more once somebody has found it to be good.
const REDEEMED: &[&str] = &["coupon", "pass", "ticket", "voucher"];

impl Name<'_> {
    /// The verb that acts although a name begins with one that reads: `get_or_create_user`, `search_replace`,
    /// `search_index_delete`, `search_contacts_send_newsletter`. Behind a thing even one that is a thing as well may be it.
    pub(super) fn acts_behind(&self, at: usize, is_thing: bool) -> Option<(usize, &'static Verb)> {
        let last = self.words.len() - 1;
        (at + 1..=last).find_map(|behind| {
            let word = &self.words[behind];
            let verb = acts(word).filter(|_| is_thing || self.is_joined(behind) || !DEEDS.contains(&word.as_str()));
            let is_edge = behind == at + 1 || behind == last;
            if let Some(verb) = verb.filter(|_| is_thing || self.is_joined(behind) || is_edge || self.is_second(behind))
            {
                return Some((behind, verb));
            }
            if let Some(verb) = self.joined(at, behind) {
                return Some((behind, verb));
            }
            let verb = found(MAY_ACT, word)?;
            let is_about_it = self.words.get(behind + 1).is_some_and(|next| PRONOUNS.contains(&next.as_str()));
            let is_next = word == "next" && !is_noun(word);
            let is_last = is_thing && behind == last && !is_noun(word);
            let is_behind_preposition = PREPOSITIONS.contains(&self.words[behind - 1].as_str());
            (is_about_it || ((is_next || is_last) && !is_behind_preposition)).then_some((behind, verb))
        })
    }

    fn is_joined(&self, at: usize) -> bool {
        JOINS.contains(&self.words[at - 1].as_str())
    }

    /// What is joined to a verb that reads, unless it reads as well or is a second thing that is read. Behind `find_and` or
    /// `then` only a verb can stand.
    pub(super) fn joined(&self, verb: usize, at: usize) -> Option<&'static Verb> {
        let word = &self.words[at];
        let reads_too = reads(word).is_some() || found(THINGS, word).is_some();
        if !self.is_joined(at) || reads_too {
            return None;
        }
        let is_known_of = self.words.get(at + 1).is_some_and(|next| found(THINGS, next).is_some());
        let must_act = at == verb + 2 || self.words[at - 1] == "then";
        // `find_user_by_phone_and_email`.
        let is_by = self.words[verb..at].iter().any(|word| word == "by") && at + 1 == self.words.len();
        if (is_known_of || is_by) && !must_act {
            return None;
        }
        // `get_name_and_email` may mean either; nobody is to be given an old answer for that.
        if at + 1 == self.words.len() && !must_act && is_noun(word) && found(MAY_ACT, word).is_some() {
            return Some(&UNCLEAR);
        }
        let is_thing = !must_act && (is_plural(word) || is_noun(word));
        found(MAY_ACT, word).or_else(|| (!is_thing).then_some(&UNCLEAR))
    }

    /// Whether a verb in the middle begins a second sentence: something is named before and behind it.
    fn is_second(&self, at: usize) -> bool {
        let is_known_of = |word: &String| found(THINGS, word).is_some() || KNOWN_OF.contains(&word.as_str());
        let is_behind_preposition = PREPOSITIONS.contains(&self.words[at - 1].as_str());
        // An add-on is a thing.
        let is_add_on = self.words[at..].starts_with(&["add".to_owned(), "on".to_owned()]);
        !is_behind_preposition && !is_add_on && !self.words[at + 1..].iter().any(is_known_of)
    }

    /// Whether what is read is taken, or somebody is let in: `read_messages`, `get_job_from_queue`, `validate_ticket`,
    /// `check_in_guest`, `recall_email`, `list_item_for_sale`.
    pub(super) fn takes(&self, at: usize) -> bool {
        let behind: Vec<&str> = self.words[at + 1..].iter().map(String::as_str).collect();
        let Some(last) = behind.last() else { return false };
        match self.words[at].as_str() {
            "read" if CONSUMED.contains(last) => true,
            "fetch" | "get" | "read" | "retrieve" => behind.ends_with(&["from", "queue"]),
            "validate" => REDEEMED.contains(last),
            "check" => matches!(behind[0], "in" | "out"),
            "recall" => matches!(*last, "email" | "mail" | "message"),
            "list" => behind.contains(&"for") && matches!(*last, "auction" | "rent" | "sale") && !is_plural(behind[0]),
            _ => false,
        }
    }
}
