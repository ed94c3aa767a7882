//! Decides which tools are guarded, and why; keeps what a server lists about its tools.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::key_argument::{KeyForm, KeySlot, is_key};
use super::kind::{self, Effect, Kind};
use super::members::Members;
use super::repeat_rule::Rule;
use super::result_schema::ResultSchema;
use super::volatile_arguments;
use super::warning_log::{WarningKind, WarningLog};
use onceward_runtime::config::{KeyArgument, Repeats, Tool, suggestion};
use onceward_runtime::output;

/// The pause after a failed request for the list of tools: the first one, and the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The tools of one server, as one caller sees them.
#[derive(Debug, Default)]
pub(super) struct Tools {
    configured: Arc<ToolSettings>,
    listed: Mutex<ToolList>,
}

/// The settings, which all callers share.
#[derive(Debug, Default)]
struct ToolSettings {
    tools: BTreeMap<String, Tool>,
    /// The rule for tools without a rule of their own.
    repeats: Option<Repeats>,
    warnings: WarningLog,
}

/// The server's list of tools.
#[derive(Debug, Default)]
struct ToolList {
    /// The server has announced that its list changed.
    is_stale: bool,
    tools: HashMap<String, ListedTool>,
    /// The words that begin all their names.
    prefix: Vec<String>,
    /// What each tool does. Cached, because each call needs it several times.
    kinds: HashMap<String, Kind>,
    /// The failed requests for the list in a row, and when the next one may be made.
    failures: u32,
    pause: Option<Instant>,
}

/// What the server's list says about one tool.
#[derive(Clone, Debug, Default)]
struct ListedTool {
    reads: Option<bool>,
    is_idempotent: bool,
    /// Its schema for structured results.
    result_schema: ResultSchema,
    /// It has an argument of its own with the name of the gateway's repeat argument.
    has_repeat_argument: bool,
    /// The argument that takes a key.
    key_slot: Option<Arc<KeySlot>>,
}

/// Why a tool is guarded or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuardReason {
    Configured(bool),
    /// Its annotation `readOnlyHint` says so.
    Declared(bool),
    /// Its name says that it reads.
    Named,
    /// It may act.
    MayAct,
    /// The server has not listed it.
    Unlisted,
}

impl GuardReason {
    pub(super) fn is_guarded(self) -> bool {
        match self {
            Self::Configured(guard) => guard,
            Self::Declared(reads) => !reads,
            Self::Named => false,
            Self::MayAct | Self::Unlisted => true,
        }
    }

    /// The reason for the user.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Configured(_) => "the configuration says so",
            Self::Declared(true) => "it declares readOnlyHint: true",
            Self::Declared(false) => "it declares readOnlyHint: false",
            Self::Named => "its name says that it reads",
            Self::MayAct => "nothing says that it only reads",
            Self::Unlisted => "the server does not list it",
        }
    }
}

impl ToolList {
    fn kind(&self, name: &str) -> Kind {
        self.kinds.get(name).copied().unwrap_or_else(|| kind::of(name, &self.prefix))
    }

    /// Judges all listed tools by their names.
    fn classify(&mut self) {
        self.prefix = kind::shared_prefix(self.tools.keys().map(String::as_str));
        self.kinds = self.tools.keys().map(|name| (name.clone(), kind::of(name, &self.prefix))).collect();
    }
}

impl Tools {
    #[cfg(test)]
    pub(super) fn new(configured: BTreeMap<String, Tool>) -> Self {
        Self::of(configured, None)
    }

    /// With a rule for tools without a rule of their own.
    pub(super) fn of(tools: BTreeMap<String, Tool>, repeats: Option<Repeats>) -> Self {
        let configured = ToolSettings { tools, repeats, warnings: WarningLog::default() };
        Self { configured: Arc::new(configured), listed: Mutex::default() }
    }

    /// The same settings with an empty list, for a caller to whom the server may list other tools.
    pub(super) fn for_another_caller(&self) -> Self {
        Self { configured: Arc::clone(&self.configured), listed: Mutex::default() }
    }

    /// The settings of a tool.
    pub(super) fn configured(&self, name: &str) -> Option<&Tool> {
        self.configured.tools.get(name)
    }

    /// Why a tool is guarded or not. The configuration outranks annotations, which are the server's hints, and annotations outrank
    /// names. The name does not count while the tool's annotations are unknown.
    pub(super) fn guard_reason(&self, name: &str) -> GuardReason {
        if let Some(guard) = self.configured(name).and_then(Tool::guarded) {
            return GuardReason::Configured(guard);
        }
        let listing = self.listing();
        match listing.tools.get(name).filter(|_| !listing.is_stale) {
            None => GuardReason::Unlisted,
            Some(ListedTool { reads: Some(reads), .. }) => GuardReason::Declared(*reads),
            Some(_) if listing.kind(name).effect == Effect::Reads => GuardReason::Named,
            Some(_) => GuardReason::MayAct,
        }
    }

    /// Whether any tool is outward: equal calls after the response are repeats for a while.
    pub(super) fn has_outward(&self) -> bool {
        let names: Vec<String> = self.listing().tools.keys().cloned().collect();
        names.iter().any(|name| self.rule(name) == Rule::Outward)
    }

    /// What a tool does, judged by its name.
    pub(super) fn kind(&self, name: &str) -> Kind {
        self.listing().kind(name)
    }

    /// Whether a call of a guarded tool is forwarded without a guard: the tool carries a statement, and this one only reads.
    pub(super) fn passes(&self, name: &str, arguments: &Members) -> bool {
        self.guard_reason(name) == GuardReason::MayAct
            && self.configured(name).is_none()
            && self.kind(name).effect == Effect::Query
            && kind::is_plain_read(arguments)
    }

    /// When an equal call is a repeat, where no key or recipe identifies it.
    pub(super) fn rule(&self, name: &str) -> Rule {
        let configured = self.configured(name);
        let repeats = configured.and_then(|tool| tool.repeats).or(self.configured.repeats);
        let has_tier = configured.is_some_and(|tool| tool.operation.tier.is_some());
        match repeats {
            Some(Repeats::Outward) => Rule::Outward,
            Some(Repeats::Causal) => Rule::Causal,
            None if has_tier => Rule::Outward,
            None if self.is_idempotent(name) => Rule::Idempotent,
            None if self.kind(name).effect == Effect::Outward => Rule::Outward,
            None => Rule::Causal,
        }
    }

    /// Whether the list of tools is needed to decide about a call.
    pub(super) fn is_unknown(&self, name: &str) -> bool {
        self.guard_reason(name) == GuardReason::Unlisted
    }

    /// Whether the list of tools is needed before a call is guarded: the form of a key depends on the tool's schema and must be the
    /// same on every attempt.
    pub(super) fn needs_schema(&self, name: &str) -> bool {
        let listing = self.listing();
        let is_listed = listing.tools.contains_key(name) && !listing.is_stale;
        let is_off = self.configured(name).is_some_and(|tool| tool.key_argument == Some(KeyArgument::Off));
        !is_listed && !is_off
    }

    /// Whether the list may be requested now. A server without a list, or whose list fails, is not asked with every call.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        self.listing().pause.is_none_or(|pause| pause <= now)
    }

    /// Notes that a request for the list did not help.
    pub(super) fn list_failed(&self, now: Instant) {
        let mut listing = self.listing();
        let pause = FIRST_PAUSE.saturating_mul(1 << listing.failures.min(10)).min(MAX_PAUSE);
        listing.failures += 1;
        listing.pause = Some(now + pause);
    }

    /// Whether models are offered the repeat argument: where an equal call would not run again by itself.
    pub(super) fn offers_repeat(&self, name: &str) -> bool {
        let is_kept = self.has_recipe(name) || self.configured(name).is_some_and(Tool::keeps_repeats);
        self.takes_repeat(name) && (is_kept || self.rule(name) == Rule::Outward)
    }

    /// Whether the repeat argument belongs to the gateway, not to the tool.
    pub(super) fn takes_repeat(&self, name: &str) -> bool {
        self.listed(name).is_none_or(|listed| !listed.has_repeat_argument)
    }

    /// The argument of a guarded tool that the gateway fills with a key, and its form. The configuration outranks the schema.
    pub(super) fn fills(&self, name: &str) -> Option<(String, KeyForm)> {
        let key_slot = self.key_slot(name);
        match self.configured(name).and_then(|tool| tool.key_argument.as_ref()) {
            Some(KeyArgument::Off) => None,
            Some(KeyArgument::Named(argument)) => {
                let form = key_slot.and_then(|key_slot| key_slot.form.ok()).unwrap_or(KeyForm::Whole);
                Some((argument.clone(), form))
            }
            None => {
                let key_slot = key_slot.filter(|key_slot| self.is_key(name, &key_slot.name))?;
                Some((key_slot.name.clone(), key_slot.form.ok()?))
            }
        }
    }

    /// Whether an argument of a guarded tool holds a key, so that its value does not identify the call. This depends on its name
    /// alone: a server may list its tools late, or differently.
    pub(super) fn is_key(&self, name: &str, argument: &str) -> bool {
        let configured = self.configured(name);
        match configured.and_then(|tool| tool.key_argument.as_ref()) {
            Some(KeyArgument::Off) => false,
            Some(KeyArgument::Named(named)) if named == argument => true,
            _ => is_key(argument) && !configured.is_some_and(|tool| tool.recipe_names(argument)),
        }
    }

    /// The argument that takes a key according to the tool's schema.
    pub(super) fn key_slot(&self, name: &str) -> Option<Arc<KeySlot>> {
        self.listed(name)?.key_slot
    }

    /// Whether a tool declares itself idempotent.
    pub(super) fn is_idempotent(&self, name: &str) -> bool {
        self.listed(name).is_some_and(|listed| listed.is_idempotent)
    }

    /// The schema of a tool's structured results.
    pub(super) fn result_schema(&self, name: &str) -> ResultSchema {
        self.listed(name).map_or(ResultSchema::Unlisted, |listed| listed.result_schema)
    }

    /// Whether any listed or configured tool is guarded.
    pub(super) fn guards_any(&self) -> bool {
        let listed: Vec<String> = self.listing().tools.keys().cloned().collect();
        let is_configured = self.configured.tools.values().any(|tool| tool.guarded() == Some(true));
        is_configured || listed.iter().any(|name| self.guard_reason(name).is_guarded())
    }

    /// Whether a tool of this name may exist: it is listed or configured, or the server has listed nothing yet.
    pub(super) fn may_have(&self, name: &str) -> bool {
        self.listing().tools.is_empty() || self.has(name) || self.configured(name).is_some()
    }

    /// Whether the server itself has a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.listed(name).is_some()
    }

    /// Remembers what a server's list says about a tool.
    pub(super) fn learn(&self, name: &str, tool: &Members, argument: &str) {
        let hints = tool.object("annotations").unwrap_or_default();
        let hint = |name| hints.get(name).and_then(|hint| serde_json::from_str::<bool>(hint.get()).ok());
        let schema = tool.object("inputSchema").unwrap_or_default();
        let properties = schema.object("properties");
        let named = match self.configured(name).and_then(|tool| tool.key_argument.as_ref()) {
            Some(KeyArgument::Named(named)) => Some(named.as_str()),
            Some(KeyArgument::Off) | None => None,
        };
        let key_slot = KeySlot::find(&schema, named).map(Arc::new);
        let reads = match (hint("readOnlyHint"), hint("destructiveHint")) {
            // A destructive tool does not only read.
            (None, Some(true)) => Some(false),
            (reads, _) => reads,
        };
        let mut listing = self.listing();
        // The server may tell clients different things; if it says once that the tool acts, the tool is guarded.
        let has_acted = listing.tools.get(name).is_some_and(|listed| listed.reads == Some(false));
        let listed = ListedTool {
            reads: if has_acted { Some(false) } else { reads },
            is_idempotent: hint("idempotentHint") == Some(true),
            result_schema: ResultSchema::of(tool),
            has_repeat_argument: properties.is_some_and(|properties| properties.get(argument).is_some()),
            key_slot,
        };
        listing.tools.insert(name.to_owned(), listed);
    }

    /// Notes that the list is complete, or that it is out of date.
    pub(super) fn set_complete(&self, set_complete: bool) {
        let mut listing = self.listing();
        listing.is_stale = !set_complete;
        if set_complete {
            listing.classify();
        }
        // Either way, the server may be asked again.
        (listing.failures, listing.pause) = (0, None);
        drop(listing);
        if set_complete {
            // Written without holding the lock.
            for message in self.unlisted_tools().into_iter().chain(self.unfilled_keys()) {
                output::say(&message);
            }
        }
    }

    /// Warnings about configured tools that the server does not have: most likely typing errors, whose settings have no effect.
    fn unlisted_tools(&self) -> Vec<String> {
        let mut messages = Vec::new();
        let listing = self.listing();
        let probes = self.configured.tools.values().filter_map(|tool| tool.probe.as_ref()).map(|probe| &probe.tool);
        for name in self.configured.tools.keys().chain(probes) {
            if !listing.tools.contains_key(name) && self.configured.warnings.insert(WarningKind::Missing, name) {
                let instead = suggestion(name, listing.tools.keys().map(String::as_str));
                messages.push(format!(
                    "the configuration names the tool {}, which the server does not list; {}",
                    output::printable(name),
                    output::printable(&instead)
                ));
            }
        }
        messages
    }

    /// Warnings about guarded tools with an argument for a key that the gateway cannot fill.
    fn unfilled_keys(&self) -> Vec<String> {
        let listing = self.listing();
        let slots = listing.tools.iter().filter_map(|(name, listed)| Some((name.clone(), listed.key_slot.clone()?)));
        let slots: Vec<(String, Arc<KeySlot>)> = slots.collect();
        drop(listing);
        let unfilled_keys = slots.iter().filter_map(|(name, key_slot)| {
            let why = self.key_problem(name, key_slot)?;
            let is_new = self.configured.warnings.insert(WarningKind::KeyArgument, name);
            is_new.then(|| format!("the tool {}: {}.", output::printable(name), output::printable(&why)))
        });
        unfilled_keys.collect()
    }

    /// Warns once if an argument's name suggests that repeats of a call are never recognised. With a recipe they are.
    pub(super) fn warn_of_volatile(&self, name: &str, arguments: &Members) {
        let warnings = &self.configured.warnings;
        if self.has_recipe(name) || !warnings.is_new(WarningKind::Volatile, name) {
            return;
        }
        if let Some(warning) = volatile_arguments::warning(&volatile_arguments::in_arguments(arguments))
            && warnings.insert(WarningKind::Volatile, name)
        {
            output::say(&format!("the tool {}: {}.", output::printable(name), output::printable(&warning)));
        }
    }

    /// Whether the configuration has a recipe for a tool.
    pub(super) fn has_recipe(&self, name: &str) -> bool {
        self.configured(name).is_some_and(|tool| tool.operation.key.is_some())
    }

    /// Why the argument of a guarded tool that takes a key gets none that its schema accepts.
    pub(super) fn key_problem(&self, name: &str, key_slot: &KeySlot) -> Option<String> {
        let why = key_slot
            .form
            .err()
            .filter(|_| self.guard_reason(name).is_guarded() && self.is_key(name, &key_slot.name))?;
        let argument = &key_slot.name;
        Some(if self.fills(name).is_some() {
            format!("the gateway fills {argument} as configured, although {why}")
        } else {
            format!(
                "the gateway does not fill {argument}, because {why}; a retry may reach the server with another key"
            )
        })
    }

    fn listed(&self, name: &str) -> Option<ListedTool> {
        self.listing().tools.get(name).cloned()
    }

    fn listing(&self) -> MutexGuard<'_, ToolList> {
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
        assert_eq!(tools.guard_reason("get_and_log"), GuardReason::Configured(true));
        assert_eq!(tools.guard_reason("ping_all"), GuardReason::Configured(false));
        assert_eq!(tools.guard_reason("lookup"), GuardReason::Declared(false));
        assert_eq!(tools.guard_reason("frobnicate"), GuardReason::Declared(true));
        assert_eq!(tools.guard_reason("list_things"), GuardReason::Named);
        learn("send_email", "{}");
        assert_eq!(tools.guard_reason("send_email"), GuardReason::MayAct);
        assert_eq!(tools.guard_reason("get_unlisted"), GuardReason::Unlisted);
        let guarded = ["get_and_log", "ping_all", "lookup", "frobnicate", "list_things", "send_email"];
        let guarded = guarded.map(|name| tools.guard_reason(name).is_guarded());
        assert_eq!(guarded, [true, false, true, false, false, true]);
    }

    #[test]
    fn a_tool_is_guarded_once_it_is_listed_or_configured() {
        let guard = |guard| Tool { guard: Some(guard), ..Tool::default() };
        let learn = |tools: &Tools, name: &str| tools.learn(name, &Members::read("{}").unwrap(), "ours");
        let tools = Tools::new([("send".to_owned(), guard(false)), ("noted".to_owned(), Tool::default())].into());
        assert!(!tools.guards_any());
        learn(&tools, "get_x");
        learn(&tools, "send");
        assert!(!tools.guards_any());
        tools.set_complete(false);
        assert!(tools.guards_any(), "the list is another one now");
        tools.set_complete(true);
        learn(&tools, "create");
        assert!(tools.guards_any());
        assert!(Tools::new([("get_x".to_owned(), guard(true))].into()).guards_any());
    }

    #[test]
    fn destructive_tools_act_and_a_tool_that_once_acted_stays_guarded() {
        let tools = Tools::default();
        let learn = |name: &str, text: &str| tools.learn(name, &Members::read(text).unwrap(), "ours");
        learn("list_wiped", r#"{"annotations":{"destructiveHint":true}}"#);
        assert_eq!(tools.guard_reason("list_wiped"), GuardReason::Declared(false));
        learn("query", r#"{"annotations":{"readOnlyHint":false}}"#);
        learn("query", r#"{"annotations":{"readOnlyHint":true}}"#);
        assert_eq!(tools.guard_reason("query"), GuardReason::Declared(false));
    }

    #[test]
    fn the_list_is_needed_unless_the_tool_is_configured_or_listed() {
        let tool = Tool { guard: Some(true), ..Tool::default() };
        let tools = Tools::new([("charge".to_owned(), tool), ("noted".to_owned(), Tool::default())].into());
        assert_eq!(["charge", "noted", "get_x"].map(|name| tools.is_unknown(name)), [false, true, true]);
        tools.learn("get_x", &Members::read("{}").unwrap(), "ours");
        tools.set_complete(true);
        assert_eq!(["noted", "get_x", "get_y"].map(|name| tools.is_unknown(name)), [true, false, true]);
        assert!(tools.guard_reason("get_y").is_guarded() && !tools.guard_reason("get_x").is_guarded());
        tools.set_complete(false);
        assert!(tools.is_unknown("get_x") && tools.guard_reason("get_x").is_guarded(), "the list is another one now");
        let other = tools.for_another_caller();
        tools.set_complete(true);
        assert!(other.is_unknown("get_x") && !tools.is_unknown("get_x"), "what one is shown says nothing to another");
    }

    #[test]
    fn a_failed_request_for_the_list_is_followed_by_a_pause() {
        let (tools, now) = (Tools::default(), Instant::now());
        assert!(tools.may_ask(now));
        tools.list_failed(now);
        assert!(!tools.may_ask(now + FIRST_PAUSE / 2) && tools.may_ask(now + FIRST_PAUSE));
        for _ in 0..100 {
            tools.list_failed(now);
        }
        assert!(!tools.may_ask(now + MAX_PAUSE / 2) && tools.may_ask(now + MAX_PAUSE));
        tools.set_complete(false);
        assert!(tools.may_ask(now), "the server announced a new list");
    }

    #[test]
    fn a_tools_own_argument_does_not_belong_to_the_gateway() {
        let tools = Tools::default();
        let text =
            r#"{"inputSchema":{"properties":{"ours":{}}},"annotations":{"idempotentHint":true},"outputSchema":{}}"#;
        tools.learn("nested", &Members::read(text).unwrap(), "ours");
        assert!(tools.result_schema("nested").is_declared() && !tools.result_schema("other").is_declared());
        assert!(!tools.takes_repeat("nested") && tools.takes_repeat("other"));
        assert!(tools.is_idempotent("nested") && !tools.is_idempotent("other"));
    }
}
