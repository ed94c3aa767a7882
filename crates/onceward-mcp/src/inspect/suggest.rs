//! Suggests a configuration. Guesses are commented out with `#`, for the user to check and uncomment; explanations have a space
//! after the `#`. Pure.

use std::ffi::OsString;

use super::super::key_argument::{is_candidate, is_key};
use super::super::kind::words;
use super::super::members::Members;
use super::super::volatile_arguments::is_stable;
use super::ToolReport;

/// Words in names of tools that move money.
const MONEY: [&str; 15] = [
    "buy", "charge", "charges", "checkout", "invoice", "invoices", "order", "pay", "payment", "payments", "payout",
    "purchase", "refund", "refunds", "transfer",
];

/// Words in names of tools that send mail.
const MAIL: [&str; 4] = ["email", "emails", "mail", "mails"];

/// Words in names of tools that notify people.
const NOTICE: [&str; 11] = [
    "alert",
    "message",
    "messages",
    "notification",
    "notifications",
    "notify",
    "post",
    "publish",
    "reply",
    "send",
    "sms",
];

/// Suggested settings for a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suggestion {
    /// JSON pointers to the arguments that identify the intent; empty if all of them do.
    pub key: Vec<String>,
    /// JSON pointers to the arguments that must also match, so that a different call is never treated as the same.
    pub match_fields: Vec<String>,
    pub tier: Option<&'static str>,
    /// An argument that may take an idempotency key. One that certainly does is filled without a setting.
    pub key_argument: Option<String>,
}

impl Suggestion {
    pub(super) fn of(name: &str, tool: &Members) -> Self {
        let schema = tool.object("inputSchema").unwrap_or_default();
        let properties = schema.object("properties").unwrap_or_default();
        let names = |text: &str| serde_json::from_str::<Vec<String>>(text).unwrap_or_default();
        let required = schema.get("required").map(|names_of| names(names_of.get())).unwrap_or_default();
        let has_key = properties.names().any(is_key);
        let key_argument = properties.names().find(|name| !has_key && is_candidate(name)).map(str::to_owned);
        let mut key = Vec::new();
        let mut match_fields = Vec::new();
        for name in required.iter().map(String::as_str).chain(properties.names()) {
            let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
            let is_there = key.contains(&pointer) || match_fields.contains(&pointer);
            if is_there || is_key(name) || key_argument.as_deref() == Some(name) || !is_stable(&pointer) {
                continue;
            }
            // Only required arguments can be part of a key.
            let is_required = required.iter().any(|required| required == name);
            if is_required { key.push(pointer) } else { match_fields.push(pointer) }
        }
        if key.is_empty() {
            match_fields.clear();
        }
        Self { key, match_fields, tier: tier(name), key_argument }
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.key.is_empty() {
            lines.push(format!("key = {}", list(&self.key)));
        }
        if !self.match_fields.is_empty() {
            lines.push(format!("match = {}", list(&self.match_fields)));
        }
        if let Some(tier) = self.tier {
            lines.push(format!("tier = {}", text(tier)));
        }
        if let Some(argument) = &self.key_argument {
            lines.push(format!("key_argument = {}", text(argument)));
        }
        if lines.is_empty() {
            lines.push("guard = true".to_owned());
        }
        lines
    }
}

fn tier(name: &str) -> Option<&'static str> {
    let words = words(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    match () {
        () if has(&MONEY) => Some("payment"),
        () if has(&MAIL) => Some("email"),
        () if has(&NOTICE) => Some("notification"),
        () => None,
    }
}

/// The text for `onceward.toml`.
pub(super) fn configuration(server: &str, command: &[OsString], tools: &[ToolReport]) -> String {
    let command: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let table = format!("mcp.server.{}", name(server));
    let mut lines = vec![format!("[{table}]"), format!("command = {}", list(&command))];
    for (tool, suggestion) in tools.iter().filter_map(|tool| Some((tool, tool.suggestion.as_ref()?))) {
        lines.push(String::new());
        let same = match (suggestion.key.is_empty(), suggestion.match_fields.is_empty()) {
            (true, _) => "# Calls with the same arguments are one intent.",
            (false, true) => "# Calls with the same key arguments are one intent.",
            (false, false) => {
                "# Calls with the same key arguments are one intent; their match arguments must be equal."
            }
        };
        lines.push(same.to_owned());
        lines.push(format!("#[{table}.tool.{}]", name(&tool.name)));
        lines.extend(suggestion.lines().iter().map(|line| format!("#{line}")));
    }
    lines.join("\n")
}

/// A TOML key.
fn name(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_bare { name.to_owned() } else { text(name) }
}

/// A TOML string on one line.
fn text(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => quoted += &format!("\\u{:04x}", u32::from(character)),
            _ => quoted.push(character),
        }
    }
    quoted + "\""
}

fn list(texts: &[String]) -> String {
    format!("[{}]", texts.iter().map(|each| text(each)).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::ToolClass;
    use super::*;
    use onceward_runtime::config::checked;

    fn suggested(name: &str, schema: &str) -> Suggestion {
        Suggestion::of(name, &Members::read(&format!(r#"{{"name":"x","inputSchema":{schema}}}"#)).unwrap())
    }

    #[test]
    fn required_stable_arguments_are_the_key_and_the_others_must_match() {
        let schema = r#"{"type":"object","properties":{"note":{"type":"string"},"to":{"type":"string"},"ts":{},
            "list":{"type":"array"},"a/b~c":{"type":"integer"},"request_id":{"type":"string"},
            "idempotencyKey":{"type":"string"}},
            "required":["to","to","list","a/b~c","request_id","idempotencyKey"]}"#;
        let suggestion = suggested("createPayment", schema);
        assert_eq!(suggestion.key, ["/to", "/list", "/a~1b~0c"]);
        assert_eq!(suggestion.match_fields, ["/note"]);
        assert_eq!((suggestion.tier, suggestion.key_argument.as_deref()), (Some("payment"), None));
        let schema = schema.replace("idempotencyKey", "clientToken");
        assert_eq!(suggested("createPayment", &schema).key_argument.as_deref(), Some("clientToken"));
        for odd in ["{}", "7", r#"{"properties":[],"required":"x"}"#, r#"{"properties":{"a":1},"required":["a",1]}"#] {
            assert_eq!(suggested("do", odd).lines(), ["guard = true"], "{odd}");
        }
    }

    #[test]
    fn tiers_are_guessed_by_name() {
        for (name, expected) in [
            ("refund_customer", Some("payment")),
            ("send_invoice_email", Some("payment")),
            ("sendEmail", Some("email")),
            ("slack.send", Some("notification")),
            ("write_file", None),
            ("repay", None),
        ] {
            assert_eq!(tier(name), expected, "{name}");
        }
    }

    #[test]
    fn the_suggested_configuration_is_valid_for_any_names() {
        let row = |name: &str, schema: &str| ToolReport {
            name: name.to_owned(),
            class: ToolClass::Acts,
            steps: false,
            sets_state: false,
            ends: false,
            guarded: true,
            queued: false,
            why: "",
            in_doubt: None,
            fills: None,
            warnings: Vec::new(),
            suggestion: Some(suggested(name, schema)),
        };
        let schema = "{\"properties\":{\"a\\\"b\\nc\":{},\"d\\te\":{}},\"required\":[\"a\\\"b\\nc\"]}";
        let rows = [
            row("send", schema),
            row("x\n[api]\nlisten = 1 #\u{7f}", schema),
            row("quote\"d\\", "{}"),
            row("", "{}"),
            row("pay/é", schema),
        ];
        let command = ["sh", "-c", "echo \"a\\b\"\n\t'c'"].map(OsString::from);
        for server in ["mail", "", "a b\"c\n"] {
            let text = configuration(server, &command, &rows);
            checked(&text).unwrap();
            let mut settings = 0;
            let uncommented = text.lines().map(|line| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') => {
                    settings += 1;
                    rest
                }
                _ => line,
            });
            let uncommented = uncommented.collect::<Vec<_>>().join("\n");
            checked(&uncommented).unwrap();
            let value: toml::Table = uncommented.parse().unwrap();
            let server = &value["mcp"]["server"][server];
            assert_eq!(server["command"][2].as_str(), command[2].to_str());
            assert_eq!((server["tool"].as_table().unwrap().len(), settings), (rows.len(), 15));
            assert_eq!(server["tool"]["send"]["key"][0].as_str(), Some("/a\"b\nc"));
            assert_eq!(server["tool"]["send"]["match"][0].as_str(), Some("/d\te"));
        }
    }
}
