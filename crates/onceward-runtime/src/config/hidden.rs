//! Hides secrets in error messages about `onceward.toml`: the parser quotes the text that it did not expect, which may be a URL
//! with a password, or a token.

use toml::de::{DeTable, DeValue};

use super::error::Mistake;

/// A shorter text may be a part of many words, and not a token.
const MIN_SECRET: usize = 6;

/// Replaces in the messages every text of the file that may hold a password.
pub(super) fn hide_secrets(tree: &DeTable<'_>, problems: &mut [Mistake]) {
    let mut secrets = Vec::new();
    collect(tree, &mut secrets);
    // A secret may be a part of another one.
    secrets.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    for problem in problems {
        for secret in &secrets {
            problem.what = without(&problem.what, secret);
            problem.path = without(&problem.path, secret);
        }
    }
}

fn without(message: &str, secret: &str) -> String {
    let quoted = format!("{secret:?}");
    message.replace(&quoted[1..quoted.len() - 1], "…").replace(secret, "…")
}

/// Texts that look like a URL, names too, and a text in place of the tables of tokens.
fn collect(table: &DeTable<'_>, secrets: &mut Vec<String>) {
    for (name, value) in table {
        let name = name.get_ref();
        if may_be_url(name) {
            secrets.push(name.to_string());
        }
        collect_value(value.get_ref(), name == "token", secrets);
    }
}

fn collect_value(value: &DeValue<'_>, is_secret: bool, secrets: &mut Vec<String>) {
    match value {
        DeValue::Table(table) => collect(table, secrets),
        DeValue::Array(array) => array.iter().for_each(|each| collect_value(each.get_ref(), is_secret, secrets)),
        DeValue::String(text) if may_be_url(text) || (is_secret && text.len() >= MIN_SECRET) => {
            secrets.push(text.to_string());
        }
        _ => {}
    }
}

/// Whether a text may be a URL with a password, also with a spelling mistake.
fn may_be_url(text: &str) -> bool {
    text.contains(":/") || (text.contains(':') && text.contains('@'))
}

#[cfg(test)]
mod tests {
    use super::super::check;

    #[test]
    fn no_message_shows_a_url_of_the_file() {
        for text in [
            "[stores]\nfast = \"redis://:hunter2@h\"",
            "stores = \"redis://:hunter2@h\"",
            "stores = [\"redis://:hunter2@h\"]",
            "[[stores]]\nurl = \"redis://:hunter2@h\"",
            "[operation]\na = \"redis://:hunter2@h\"",
            "[operation]\na = \"redis://:hun\\\"hunter2@h\"",
            "[operation]\na = 'redis:\\hunter2@h'",
            "operation = \"redis:/:hunter2@h\"",
            "limits = \"redis://:hunter2@h\"",
            "gateway = \"redis://:hunter2@h\"",
            "api = \"redis://:hunter2@h\"",
            "mcp = \"redis://:hunter2@h\"",
            "[operation.a]\ntier = \"redis://:hunter2@h\"",
            "[operation.a]\nwait = \"redis://:hunter2@h\"",
            "[operation.a]\nkey = [\"redis://:hunter2@h\"]",
            "[operation.\"redis://:hunter2@h\"]\nfoo = 1",
            "\"redis://:hunter2@h\" = 1",
            "[api]\nlisten = \"redis://:hunter2@h\"",
            "[api]\ntoken = \"hunter2-hunter2-hunter2\"",
            "[api]\ntoken = [\"hunter2-hunter2-hunter2\"]",
            "tenant_secret = \"hunter2\"",
            "store = \"redis://:hunter2@h",
            "store = redis://:hunter2@h",
            "store = \"a\"\nstore = \"redis://:hunter2@h\"",
            "store = \"redis://:hunter2@h\"\n[store]",
            "store = \"redis://:hunter2@h\"\nstore.url = 1",
        ] {
            let problems = check::read(text).expect_err(text);
            assert!(!problems.is_empty() && !format!("{problems:?}").contains("hunter2"), "{text}: {problems:?}");
        }
    }

    #[test]
    fn a_url_in_place_of_a_table_is_told_how_to_be_written() {
        let problems = check::read("[stores]\nfast = \"redis://h\"\nslow = \"s.db\"").unwrap_err();
        let paths: Vec<_> = problems.iter().map(|problem| problem.path.as_str()).collect();
        assert_eq!(paths, ["stores.fast", "stores.slow"]);
        assert!(problems[0].what.contains("write `[stores.fast]`, and its `url = "), "{problems:?}");
        let problems = check::read("stores = \"redis://h\"").unwrap_err();
        assert!(problems.len() == 1 && problems[0].what.contains("[stores.NAME]"), "{problems:?}");
    }

    #[test]
    fn the_settings_of_a_file_do_not_show_passwords() {
        let text = "store = \"redis://:hunter2@h\"\n[stores.fast]\nurl = \"redis://:hunter2@i\"";
        let file = format!("{:?}", check::read(text).unwrap());
        assert!(!file.contains("hunter2") && file.contains("redis://"), "{file}");
    }
}
