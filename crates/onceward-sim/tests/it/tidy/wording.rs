//! The rules about wording: plain English that names the actor. Applies to identifiers, comments, strings and docs alike.

/// Phrases that hide the actor, with what to write instead.
const PHRASES: [(&str, &str); 9] = [
    ("nobody", "name the actor: no caller, no owner, no client"),
    ("somebody", "name the actor: a caller, an operator, another process"),
    ("anybody", "name the actor: any caller"),
    ("everybody", "name the actors: every caller, all waiters"),
    ("whoever", "name the actor"),
    ("who asks", "name the actor: the caller"),
    ("in vain", "write: timed out"),
    ("the other side", "write: the client, the server, the upstream or the downstream"),
    ("without a word", "write: without a message, or kill"),
];

/// Words that may follow `is no`.
const AFTER_IS_NO: [&str; 6] = ["longer", "more", "less", "older", "newer", "later"];

/// Endings of files that people read.
const READ: [&str; 3] = [".rs", ".md", ".py"];

/// Places that may use a phrase: part of the path, part of the line, and the reason.
const EXCEPTIONS: [(&str, &str, &str); 1] = [("docs/internals/decisions", "instead of", "quotes the old wording")];

/// Lines that hide their actor, or say `is no` for `is not a`. `there is no` is plain.
pub(super) fn plain(path: &str, text: &str) -> Vec<String> {
    if !READ.iter().any(|ending| path.ends_with(ending)) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if EXCEPTIONS.iter().any(|(file, part, _)| path.contains(file) && line.contains(part)) {
            continue;
        }
        // Identifiers count too: an underscore separates words as a space does.
        let words: Vec<String> = line
            .split(|c: char| !c.is_alphanumeric() && c != '\'')
            .filter(|word| !word.is_empty())
            .map(str::to_lowercase)
            .collect();
        for (phrase, instead) in PHRASES {
            let parts: Vec<&str> = phrase.split(' ').collect();
            let count = words.windows(parts.len()).filter(|window| *window == parts.as_slice()).count();
            faults.extend((0..count).map(|_| format!("{path}:{}: `{phrase}`: {instead}", index + 1)));
        }
        let is_no = |(at, window): &(usize, &[String])| {
            let follows_there = *at > 0 && words[at - 1] == "there";
            window[0] == "is"
                && window[1] == "no"
                && !follows_there
                && !AFTER_IS_NO.contains(&window[2].as_str())
                && window[2].chars().all(char::is_alphabetic)
        };
        let found = words.windows(3).enumerate().filter(is_no).map(|(_, window)| window);
        let instead = "write `is not a`, or say what it is";
        faults.extend(found.map(|window| format!("{path}:{}: `is no {}`: {instead}", index + 1, window[2])));
    }
    faults
}

#[test]
fn hidden_actors_are_found_in_comments_strings_names_and_docs() {
    for (path, line) in [
        ("a.rs", "// Nobody waits for it."),
        ("a.rs", "fn whoever_waits_is_woken() {}"),
        ("a.rs", "panic!(\"`{x}` is no store\")"),
        ("README.md", "The other side answers."),
        ("tests/x.py", "# waited in vain"),
    ] {
        assert_eq!(plain(path, line).len(), 1, "{line}");
    }
    assert_eq!(plain("a.md", "one\nnobody and somebody").len(), 2);
}

#[test]
fn plain_sentences_pass() {
    for line in ["It is no longer kept.", "There is no.", "The caller waits.", "vanity, nobodyx", "it is not a store"] {
        assert!(plain("a.md", line).is_empty(), "{line}");
    }
    assert!(plain("a.json", "nobody").is_empty());
}
