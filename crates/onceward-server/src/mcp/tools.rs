//! Which tools are guarded, and why; and what a server says of its tools.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::members::Members;
use super::reads::only_reads;
use crate::config::Tool;

/// What is known of the tools of one server.
#[derive(Debug, Default)]
pub(super) struct Tools {
    configured: BTreeMap<String, Tool>,
    listed: Mutex<Listing>,
}

/// What the server has listed.
#[derive(Debug, Default)]
struct Listing {
    /// To the end, and nothing has changed since.
    is_whole: bool,
    tools: HashMap<String, Listed>,
}

/// What the server says of one tool: hints.
#[derive(Clone, Copy, Debug, Default)]
struct Listed {
    reads: Option<bool>,
    is_idempotent: bool,
    /// It promises its results in a certain form.
    is_typed: bool,
    /// It has an argument of its own that is named like ours.
    takes_ours: bool,
}

/// Why a tool is guarded, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Configured(bool),
    /// Its annotation `readOnlyHint` says so.
    Declared(bool),
    /// Its name says that it reads, and nothing says otherwise.
    Named,
    /// It may act.
    MayAct,
}

impl Why {
    pub(super) fn is_guarded(self) -> bool {
        match self {
            Self::Configured(guard) => guard,
            Self::Declared(reads) => !reads,
            Self::Named => false,
            Self::MayAct => true,
        }
    }

    /// For people.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Configured(_) => "the configuration says so",
            Self::Declared(true) => "it declares readOnlyHint: true",
            Self::Declared(false) => "it declares readOnlyHint: false",
            Self::Named => "its name says that it reads",
            Self::MayAct => "nothing says that it only reads",
        }
    }
}

impl Tools {
    pub(super) fn new(configured: BTreeMap<String, Tool>) -> Self {
        Self { configured, listed: Mutex::default() }
    }

    /// What is configured for a tool.
    pub(super) fn configured(&self, name: &str) -> Option<&Tool> {
        self.configured.get(name)
    }

    /// The configuration decides over annotations, which are hints of the server, and those over names.
    pub(super) fn why(&self, name: &str) -> Why {
        if let Some(guard) = self.configured.get(name).and_then(Tool::guarded) {
            return Why::Configured(guard);
        }
        match self.listed(name).and_then(|listed| listed.reads) {
            Some(reads) => Why::Declared(reads),
            None if only_reads(name) => Why::Named,
            None => Why::MayAct,
        }
    }

    /// Whether the server has to be asked before [`Tools::why`] can be believed.
    pub(super) fn is_unknown(&self, name: &str) -> bool {
        let is_decided = self.configured.get(name).is_some_and(|tool| tool.guarded().is_some());
        !is_decided && !self.listing().is_whole
    }

    /// Whether our own argument is ours in this tool.
    pub(super) fn takes_repeat(&self, name: &str) -> bool {
        self.listed(name).is_none_or(|listed| !listed.takes_ours)
    }

    /// Whether a tool says that calling it twice is calling it once.
    pub(super) fn is_idempotent(&self, name: &str) -> bool {
        self.listed(name).is_some_and(|listed| listed.is_idempotent)
    }

    /// Whether a tool promises structured results: clients refuse others from it.
    pub(super) fn is_typed(&self, name: &str) -> bool {
        self.listed(name).is_some_and(|listed| listed.is_typed)
    }

    /// Whether the server itself has a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.listed(name).is_some()
    }

    /// Remembers what a server says of one of its tools.
    pub(super) fn learn(&self, name: &str, tool: &Members, argument: &str) {
        let hints = tool.object("annotations").unwrap_or_default();
        let hint = |name| hints.get(name).and_then(|hint| serde_json::from_str::<bool>(hint.get()).ok());
        let properties = tool.object("inputSchema").and_then(|schema| schema.object("properties"));
        let reads = match (hint("readOnlyHint"), hint("destructiveHint")) {
            // What destroys does not only read.
            (None, Some(true)) => Some(false),
            (reads, _) => reads,
        };
        let mut listing = self.listing();
        // Several clients may be told different things: one that it acts is enough.
        let has_acted = listing.tools.get(name).is_some_and(|listed| listed.reads == Some(false));
        let listed = Listed {
            reads: if has_acted { Some(false) } else { reads },
            is_idempotent: hint("idempotentHint") == Some(true),
            is_typed: tool.object("outputSchema").is_some(),
            takes_ours: properties.is_some_and(|properties| properties.get(argument).is_some()),
        };
        listing.tools.insert(name.to_owned(), listed);
    }

    /// The list has come to its end; or it is out of date.
    pub(super) fn is_whole(&self, is_whole: bool) {
        self.listing().is_whole = is_whole;
    }

    fn listed(&self, name: &str) -> Option<Listed> {
        self.listing().tools.get(name).copied()
    }

    fn listing(&self) -> MutexGuard<'_, Listing> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_outranks_hints_and_hints_outrank_names() {
        let guard = |guard| Tool { guard: Some(guard), ..Tool::default() };
        let configured = [("get_and_log".to_owned(), guard(true)), ("ping_all".to_owned(), guard(false))];
        let tools = Tools::new(configured.into());
        let learn = |name: &str, text: &str| tools.learn(name, &Members::read(text).unwrap(), "ours");
        learn("get_and_log", r#"{"annotations":{"readOnlyHint":true}}"#);
        learn("lookup", r#"{"annotations":{"readOnlyHint":false}}"#);
        learn("frobnicate", r#"{"annotations":{"readOnlyHint":true}}"#);
        learn("list_things", r#"{"annotations":{"title":"x"}}"#);
        assert_eq!(tools.why("get_and_log"), Why::Configured(true));
        assert_eq!(tools.why("ping_all"), Why::Configured(false));
        assert_eq!(tools.why("lookup"), Why::Declared(false));
        assert_eq!(tools.why("frobnicate"), Why::Declared(true));
        assert_eq!(tools.why("list_things"), Why::Named);
        assert_eq!(tools.why("send_email"), Why::MayAct);
        let guarded = ["get_and_log", "ping_all", "lookup", "frobnicate", "list_things", "send_email"];
        let guarded = guarded.map(|name| tools.why(name).is_guarded());
        assert_eq!(guarded, [true, false, true, false, false, true]);
    }

    #[test]
    fn what_destroys_acts_and_what_acted_once_stays_guarded() {
        let tools = Tools::default();
        let learn = |name: &str, text: &str| tools.learn(name, &Members::read(text).unwrap(), "ours");
        learn("list_wiped", r#"{"annotations":{"destructiveHint":true}}"#);
        assert_eq!(tools.why("list_wiped"), Why::Declared(false));
        learn("query", r#"{"annotations":{"readOnlyHint":false}}"#);
        learn("query", r#"{"annotations":{"readOnlyHint":true}}"#);
        assert_eq!(tools.why("query"), Why::Declared(false));
    }

    #[test]
    fn a_server_is_asked_unless_the_configuration_says_all_or_the_list_is_there() {
        let tool = Tool { guard: Some(true), ..Tool::default() };
        let tools = Tools::new([("charge".to_owned(), tool), ("noted".to_owned(), Tool::default())].into());
        assert_eq!(["charge", "noted", "other"].map(|name| tools.is_unknown(name)), [false, true, true]);
        tools.is_whole(true);
        assert!(!tools.is_unknown("other"));
        tools.is_whole(false);
        assert!(tools.is_unknown("other"));
    }

    #[test]
    fn an_argument_that_the_tool_has_itself_is_not_ours() {
        let tools = Tools::default();
        let text =
            r#"{"inputSchema":{"properties":{"ours":{}}},"annotations":{"idempotentHint":true},"outputSchema":{}}"#;
        tools.learn("nested", &Members::read(text).unwrap(), "ours");
        assert!(tools.is_typed("nested") && !tools.is_typed("other"));
        assert!(!tools.takes_repeat("nested") && tools.takes_repeat("other"));
        assert!(tools.is_idempotent("nested") && !tools.is_idempotent("other"));
    }
}
