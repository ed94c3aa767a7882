//! Splits a tool's name into words, and finds their base forms in the lexicon. Pure.

/// The words of a name: `searchMail`, `search_mail`, `mail.search` and `mail/search` have two, `APIGetUser` has three.
pub(crate) fn words(name: &str) -> Vec<String> {
    let characters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (at, character) in characters.iter().enumerate() {
        let begins = !character.is_alphanumeric() || (at > 0 && is_hump(&characters, at));
        if begins {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut()
            && character.is_alphanumeric()
        {
            word.extend(character.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether a capital letter begins a word: after a lower-case letter or a digit, or as the last of several capitals before a
/// lower-case letter. The `s` of a plural belongs to its acronym, as in `listPRs`.
fn is_hump(characters: &[char], at: usize) -> bool {
    let (before, this) = (characters[at - 1], characters[at]);
    if !this.is_uppercase() {
        return false;
    }
    let next = characters.get(at + 1).copied().unwrap_or(' ');
    let after = characters.get(at + 2).copied().unwrap_or(' ');
    let is_plural = next == 's' && !after.is_lowercase();
    before.is_lowercase() || before.is_ascii_digit() || (before.is_uppercase() && next.is_lowercase() && !is_plural)
}

/// Whether a word is the singular or plural of `one`: `issue`, `issues`; `reply`, `replies`; `box`, `boxes`.
pub(super) fn is_one_or_several(word: &str, one: &str) -> bool {
    word == one
        || word.strip_suffix('s') == Some(one)
        || word.strip_suffix("es") == Some(one)
        || word.strip_suffix("ies").is_some_and(|stem| one.strip_suffix('y') == Some(stem))
}

/// Whether a word looks like a plural.
pub(super) fn is_plural(word: &str) -> bool {
    word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") && !word.ends_with("us") && !word.ends_with("is")
}

/// The possible base forms of a verb: `sends`, `sending`, `deletes`, `cancelling`.
pub(super) fn bases(word: &str) -> Vec<String> {
    let mut bases = vec![word.to_owned()];
    let stems = ["ing", "es", "s"].into_iter().filter_map(|ending| word.strip_suffix(ending));
    for stem in stems.filter(|stem| stem.len() > 2) {
        bases.extend([stem.to_owned(), format!("{stem}e")]);
        let mut letters = stem.chars().rev();
        if letters.next() == letters.next() {
            bases.push(stem[..stem.len() - stem.chars().next_back().map_or(0, char::len_utf8)].to_owned());
        }
    }
    bases.extend(word.strip_suffix("ies").map(|stem| format!("{stem}y")));
    bases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_signs_and_humps() {
        for (name, expected) in [
            ("send_email", "send email"),
            ("slack.get-channel/history", "slack get channel history"),
            ("APIGetUser", "api get user"),
            ("getHTTPResponse2Go", "get http response2 go"),
            ("listPRs", "list prs"),
            ("listURLsOfPage", "list urls of page"),
            ("XMLHttpGet", "xml http get"),
            ("__x--y ", "x y"),
            ("éÉtat", "é état"),
            ("", ""),
        ] {
            assert_eq!(words(name).join(" "), expected, "{name}");
        }
    }

    #[test]
    fn base_forms_of_inflected_words_are_found() {
        for (word, base) in [
            ("sends", "send"),
            ("deleting", "delete"),
            ("cancelling", "cancel"),
            ("publishes", "publish"),
            ("replies", "reply"),
            ("notifying", "notify"),
        ] {
            assert!(bases(word).iter().any(|one| one == base), "{word}");
        }
        assert!(is_one_or_several("replies", "reply") && is_one_or_several("issues", "issue"));
        assert!(!is_one_or_several("issuer", "issue") && !is_plural("status") && is_plural("users"));
    }
}
