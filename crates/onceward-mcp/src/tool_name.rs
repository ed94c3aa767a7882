//! The names under which clients show tools to models: some put the server's name in front, as `mcp__mail__send_email`.

use super::tools::Tools;

/// A name as it is, and, if it has the prefix of a client, without more and more of its parts.
pub(super) fn without_prefix(name: &str) -> impl Iterator<Item = &str> {
    let rest = name.strip_prefix("mcp__");
    let parts = rest.into_iter().flat_map(|rest| rest.match_indices("__").map(|(at, _)| &rest[at + 2..]));
    std::iter::once(name).chain(parts)
}

/// The name under which the server itself knows a tool; `None` if it has no such tool.
pub(super) fn on_server<'a>(name: &'a str, tools: &Tools) -> Option<&'a str> {
    without_prefix(name).find(|name| tools.may_have(name))
}

#[cfg(test)]
mod tests {
    use super::super::members::Members;
    use super::*;

    #[test]
    fn the_name_that_a_client_shows_is_found_among_the_tools_of_the_server() {
        let names = |name| without_prefix(name).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names("mcp__mail__send__all"), ["mcp__mail__send__all", "send__all", "all"]);
        assert_eq!(names("mail__send"), ["mail__send"]);
        let tools = Tools::default();
        assert_eq!(on_server("mcp__mail__send", &tools), Some("mcp__mail__send"), "nothing is known of the server yet");
        tools.learn("send", &Members::default(), "onceward_repeat");
        assert_eq!((on_server("mcp__mail__send", &tools), on_server("send", &tools)), (Some("send"), Some("send")));
        assert_eq!((on_server("mcp__mail__sent", &tools), on_server("sent", &tools)), (None, None));
    }
}
