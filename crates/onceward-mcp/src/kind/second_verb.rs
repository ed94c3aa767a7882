//! What a reading tool does besides, judged by the words after its first verb. Pure.

use super::lexicon::{CONSUMED, DEEDS, JOINS, MAY_ACT, PREPOSITIONS, THINGS, Verb, acts, found, reads};
use super::name_words::is_plural;
use super::{Name, is_noun};

/// A word after `and` that is not a known verb.
pub(super) static UNCLEAR: Verb = Verb { word: "", why: "its name does not say what else it does" };

/// Objects that refer to an earlier noun: `find_order_refund_it`.
const PRONOUNS: &[&str] = &["her", "him", "it", "them"];

/// Nouns that make a noun of the verb in front of them: `get_issue_create_meta`.
#[rustfmt::skip]
const ATTRIBUTES: &[&str] = &[
    "config", "fields", "link", "meta", "options", "policy", "schema", "template", "url",
];

/// Things that a successful check uses up.
const REDEEMED: &[&str] = &["coupon", "pass", "ticket", "voucher"];

impl Name<'_> {
    /// An acting verb in a name that begins with a reading verb: `get_or_create_user`, `search_replace`, `search_index_delete`,
    /// `search_contacts_send_newsletter`. After a noun, even a word that is also a noun may be the verb.
    pub(super) fn acts_after(&self, at: usize, is_thing: bool) -> Option<(usize, &'static Verb)> {
        let last = self.words.len() - 1;
        (at + 1..=last).find_map(|next_verb| {
            let word = &self.words[next_verb];
            let verb = acts(word).filter(|_| is_thing || self.is_joined(next_verb) || !DEEDS.contains(&word.as_str()));
            let is_edge = next_verb == at + 1 || next_verb == last;
            if let Some(verb) =
                verb.filter(|_| is_thing || self.is_joined(next_verb) || is_edge || self.is_second(next_verb))
            {
                return Some((next_verb, verb));
            }
            if let Some(verb) = self.joined(at, next_verb) {
                return Some((next_verb, verb));
            }
            let verb = found(MAY_ACT, word)?;
            let is_about_it = self.words.get(next_verb + 1).is_some_and(|next| PRONOUNS.contains(&next.as_str()));
            let is_next = word == "next" && !is_noun(word);
            let is_last = is_thing && next_verb == last && !is_noun(word);
            let is_after_preposition = PREPOSITIONS.contains(&self.words[next_verb - 1].as_str());
            (is_about_it || ((is_next || is_last) && !is_after_preposition)).then_some((next_verb, verb))
        })
    }

    fn is_joined(&self, at: usize) -> bool {
        JOINS.contains(&self.words[at - 1].as_str())
    }

    /// The acting verb that is joined to a reading verb, unless the joined word also reads or is a second thing to read. Only a verb
    /// can follow `find_and` or `then`.
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
        // `get_name_and_email` may mean either, so it acts and is not outward: its caller never gets an old result.
        if at + 1 == self.words.len() && !must_act && is_noun(word) && found(MAY_ACT, word).is_some() {
            return Some(&UNCLEAR);
        }
        let is_thing = !must_act && (is_plural(word) || is_noun(word));
        found(MAY_ACT, word).or_else(|| (!is_thing).then_some(&UNCLEAR))
    }

    /// Whether a verb in the middle begins a second sentence, with nouns on both sides.
    fn is_second(&self, at: usize) -> bool {
        let is_known_of = |word: &String| found(THINGS, word).is_some() || ATTRIBUTES.contains(&word.as_str());
        let is_after_preposition = PREPOSITIONS.contains(&self.words[at - 1].as_str());
        // An add-on is a noun.
        let is_add_on = self.words[at..].starts_with(&["add".to_owned(), "on".to_owned()]);
        !is_after_preposition && !is_add_on && !self.words[at + 1..].iter().any(is_known_of)
    }

    /// Whether reading has an effect: `read_messages`, `get_job_from_queue`, `validate_ticket`, `check_in_guest`, `recall_email`,
    /// `list_item_for_sale`.
    pub(super) fn takes(&self, at: usize) -> bool {
        let after: Vec<&str> = self.words[at + 1..].iter().map(String::as_str).collect();
        let Some(last) = after.last() else { return false };
        match self.words[at].as_str() {
            "read" if CONSUMED.contains(last) => true,
            "fetch" | "get" | "read" | "retrieve" => after.ends_with(&["from", "queue"]),
            "validate" => REDEEMED.contains(last),
            "check" => matches!(after[0], "in" | "out"),
            "recall" => matches!(*last, "email" | "mail" | "message"),
            "list" => after.contains(&"for") && matches!(*last, "auction" | "rent" | "sale") && !is_plural(after[0]),
            _ => false,
        }
    }
}
