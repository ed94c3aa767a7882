//! Edits the text of one server's entry: puts the gateway in front of its command, or removes it. Every other byte stays, and
//! removing the gateway restores the original bytes. Pure.

use std::ops::Range;

use super::json_tree::{Kind, Member, Node};

/// A byte range and its new text.
pub(super) type Edit = (Range<usize>, String);

/// A server's command in the text of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandEntry<'t> {
    pub(super) text: &'t str,
    pub(super) command: &'t Member,
    pub(super) arguments: Option<&'t Member>,
    /// Where the server's object begins.
    pub(super) start: usize,
}

impl CommandEntry<'_> {
    /// Makes `program` the command, with these arguments followed by the server's own command.
    pub(super) fn wrapped(&self, program: &str, arguments: &[String]) -> Vec<Edit> {
        let command = &self.command.value.at;
        let mut first: Vec<String> = arguments.iter().map(|argument| json(argument)).collect();
        first.push(self.text[command.clone()].to_owned());
        vec![(command.clone(), json(program)), self.with_first(&first)]
    }

    /// Makes the argument at `own` the command again, and the arguments after it its arguments.
    pub(super) fn unwrapped(&self, own: usize) -> Option<Vec<Edit>> {
        let list = &self.arguments?.value;
        let Kind::List(items) = &list.kind else { return None };
        let command = self.text[items.get(own)?.at.clone()].to_owned();
        let kept = items.get(own + 1).map_or(items.last()?.at.end, |next| next.at.start);
        Some(vec![(self.command.value.at.clone(), command), (items.first()?.at.start..kept, String::new())])
    }

    /// Inserts these in front of the arguments.
    fn with_first(&self, first: &[String]) -> Edit {
        let Some(arguments) = self.arguments else {
            // Formatted like the command next to it.
            let name_at = &self.command.name_at;
            let between = &self.text[name_at.end..self.command.value.at.start];
            let member = format!("\"args\"{between}[{}]", first.join(&self.comma()));
            let end = self.command.value.at.end;
            return (end..end, format!(",{}{member}", self.spaces_before(name_at.start)));
        };
        let list = &arguments.value;
        let Kind::List(items) = &list.kind else {
            return (list.at.clone(), format!("[{}]", first.join(&self.comma())));
        };
        let Some(next) = items.first() else {
            let inside = list.at.start + 1;
            return (inside..inside, first.join(&self.comma()));
        };
        let before = self.spaces_before(next.at.start);
        let comma = match items.get(1) {
            _ if before.contains('\n') => format!(",{before}"),
            Some(second) if is_comma(&self.text[next.at.end..second.at.start]) => {
                self.text[next.at.end..second.at.start].to_owned()
            }
            _ => self.comma(),
        };
        (next.at.start..next.at.start, first.iter().map(|item| format!("{item}{comma}")).collect())
    }

    /// A comma with a space if the file writes one after colons.
    fn comma(&self) -> String {
        let between = &self.text[self.command.name_at.end..self.command.value.at.start];
        if between.ends_with(' ') { ", ".to_owned() } else { ",".to_owned() }
    }

    fn spaces_before(&self, at: usize) -> &str {
        let before = &self.text[self.start..at];
        &before[before.trim_end_matches([' ', '\t', '\r', '\n']).len()..]
    }
}

fn is_comma(text: &str) -> bool {
    text.trim() == ","
}

/// A JSON string.
fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The text with these edits, which must not overlap.
pub(super) fn edited(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|(at, _)| (at.start, at.end));
    let (mut edited, mut done) = (String::with_capacity(text.len()), 0);
    for (at, new) in edits {
        edited += text.get(done..at.start).unwrap_or_default();
        edited += &new;
        done = at.end;
    }
    edited += text.get(done..).unwrap_or_default();
    edited
}

/// The arguments of a server; empty without `args`.
pub(super) fn arguments(node: Option<&Node>, text: &str) -> Option<Vec<String>> {
    let Some(node) = node.filter(|node| &text[node.at.clone()] != "null") else { return Some(Vec::new()) };
    Some(node.texts()?.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::super::json_tree::read;
    use super::*;

    /// The text with the gateway, and after removing it again.
    fn both(text: &str) -> (String, String) {
        let first = ["mcp", "--"].map(str::to_owned);
        let apply = |text: &str, work: &dyn Fn(CommandEntry<'_>) -> Vec<Edit>| {
            let tree = read(text).unwrap();
            let (command, arguments) = (tree.root.member("command").unwrap(), tree.root.member("args"));
            edited(text, work(CommandEntry { text, command, arguments, start: tree.root.at.start }))
        };
        let wrapped = apply(text, &|it| it.wrapped("o", &first));
        let unwrapped = apply(&wrapped, &|it| it.unwrapped(2).unwrap());
        (wrapped, unwrapped)
    }

    #[test]
    fn a_list_keeps_its_formatting_and_is_restored_byte_for_byte() {
        for (before, after) in [
            (r#"{"command":"a\u0062","args":["x","y"]}"#, r#"{"command":"o","args":["mcp","--","a\u0062","x","y"]}"#),
            (r#"{"args": ["x"], "command": "ab"}"#, r#"{"args": ["mcp", "--", "ab", "x"], "command": "o"}"#),
            (r#"{ "command": "ab", "args": [] }"#, r#"{ "command": "o", "args": ["mcp", "--", "ab"] }"#),
            (
                "{\n \"command\": \"ab\",\n \"args\": [\n  \"x\"\n ]\n}",
                "{\n \"command\": \"o\",\n \"args\": [\n  \"mcp\",\n  \"--\",\n  \"ab\",\n  \"x\"\n ]\n}",
            ),
            (
                "{\n\t\"args\": [\n\t\t\"x\",\n\t\t\"y\"\n\t],\n\t\"command\": \"ab\"\n}\n",
                "{\n\t\"args\": [\n\t\t\"mcp\",\n\t\t\"--\",\n\t\t\"ab\",\n\t\t\"x\",\n\t\t\"y\"\n\t],\n\t\"command\": \"o\"\n}\n",
            ),
        ] {
            assert_eq!(both(before), (after.to_owned(), before.to_owned()));
        }
    }

    #[test]
    fn a_server_without_arguments_gets_them() {
        for (before, after, again) in [
            (r#"{"command":"ab"}"#, r#"{"command":"o","args":["mcp","--","ab"]}"#, r#"{"command":"ab","args":[]}"#),
            (
                r#"{"command": "ab", "args": null}"#,
                r#"{"command": "o", "args": ["mcp", "--", "ab"]}"#,
                r#"{"command": "ab", "args": []}"#,
            ),
            (
                "{\n  \"command\": \"ab\",\n  \"env\": {}\n}",
                "{\n  \"command\": \"o\",\n  \"args\": [\"mcp\", \"--\", \"ab\"],\n  \"env\": {}\n}",
                "{\n  \"command\": \"ab\",\n  \"args\": [],\n  \"env\": {}\n}",
            ),
        ] {
            assert_eq!(both(before), (after.to_owned(), again.to_owned()));
        }
    }
}
