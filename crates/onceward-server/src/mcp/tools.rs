//! Which tools are guarded, and why; and what a server says of its tools.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::key_argument::{Form, Slot, is_key};
use super::kind::{self, Effect, Kind};
use super::members::Members;
use super::repeats::Rule;
use super::typed::Typed;
use super::volatile;
use super::warned::{About, Warned};
use crate::config::{KeyArgument, Repeats, Tool, instead};
use crate::output;

/// How long a server is not asked again that was asked in vain: at first, and at the most.
const PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What is known of the tools of one server, as one of its callers sees them.
#[derive(Debug, Default)]
pub(super) struct Tools {
    configured: Arc<Configured>,
    listed: Mutex<Listing>,
}

/// What is the same for every caller.
#[derive(Debug, Default)]
struct Configured {
    tools: BTreeMap<String, Tool>,
    /// The rule for tools of which nothing else is configured.
    repeats: Option<Repeats>,
    warned: Warned,
}

/// What the server has listed.
#[derive(Debug, Default)]
struct Listing {
    /// The server has said that its list is another one now.
    is_stale: bool,
    tools: HashMap<String, Listed>,
    /// The words with which all their names begin.
    prefix: Vec<String>,
    /// How often in a row it was asked in vain, and until when it is left alone.
    in_vain: u32,
    pause: Option<Instant>,
}

/// What the server says of one tool: hints.
#[derive(Clone, Debug, Default)]
struct Listed {
    reads: Option<bool>,
    is_idempotent: bool,
    /// What it promises of its results.
    typed: Typed,
    /// It has an argument of its own that is named like ours.
    takes_ours: bool,
    /// The argument that takes a key.
    slot: Option<Arc<Slot>>,
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
    /// The server has not said anything of it.
    Unlisted,
}

impl Why {
    pub(super) fn is_guarded(self) -> bool {
        match self {
            Self::Configured(guard) => guard,
            Self::Declared(reads) => !reads,
            Self::Named => false,
            Self::MayAct | Self::Unlisted => true,
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
            Self::Unlisted => "the server does not list it",
        }
    }
}

impl Tools {
    #[cfg(test)]
    pub(super) fn new(configured: BTreeMap<String, Tool>) -> Self {
        Self::of(configured, None)
    }

    /// With a rule for all tools that have none of their own.
    pub(super) fn of(tools: BTreeMap<String, Tool>, repeats: Option<Repeats>) -> Self {
        let configured = Configured { tools, repeats, warned: Warned::default() };
        Self { configured: Arc::new(configured), listed: Mutex::default() }
    }

    /// The same server before another caller sees it, who may be shown another list.
    pub(super) fn for_another(&self) -> Self {
        Self { configured: Arc::clone(&self.configured), listed: Mutex::default() }
    }

    /// What is configured for a tool.
    pub(super) fn configured(&self, name: &str) -> Option<&Tool> {
        self.configured.tools.get(name)
    }

    /// The configuration decides over annotations, which are hints of the server, and those over names. A name says nothing
    /// of a tool whose annotations nobody has seen.
    pub(super) fn why(&self, name: &str) -> Why {
        if let Some(guard) = self.configured(name).and_then(Tool::guarded) {
            return Why::Configured(guard);
        }
        let listing = self.listing();
        match listing.tools.get(name).filter(|_| !listing.is_stale) {
            None => Why::Unlisted,
            Some(Listed { reads: Some(reads), .. }) => Why::Declared(*reads),
            Some(_) if kind::of(name, &listing.prefix).effect == Effect::Reads => Why::Named,
            Some(_) => Why::MayAct,
        }
    }

    /// What a tool does, as far as its name tells.
    pub(super) fn kind(&self, name: &str) -> Kind {
        kind::of(name, &self.listing().prefix)
    }

    /// Whether a call passes although its tool is guarded: its name does not say whether it acts, and its statement says that
    /// it only reads.
    pub(super) fn passes(&self, name: &str, arguments: &Members) -> bool {
        self.why(name) == Why::MayAct
            && self.configured(name).is_none()
            && self.kind(name).effect == Effect::Query
            && kind::is_plain_read(arguments)
    }

    /// When a call of a tool is a repeat, where no key or recipe says so.
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

    /// Whether the server has to be asked before a call can be passed by.
    pub(super) fn is_unknown(&self, name: &str) -> bool {
        self.why(name) == Why::Unlisted
    }

    /// Whether the server has to be asked before a call is guarded: how a key is written depends on the tool's schema, and has
    /// to be the same on every attempt.
    pub(super) fn needs_schema(&self, name: &str) -> bool {
        let listing = self.listing();
        let is_listed = listing.tools.contains_key(name) && !listing.is_stale;
        let is_off = self.configured(name).is_some_and(|tool| tool.key_argument == Some(KeyArgument::Off));
        !is_listed && !is_off
    }

    /// Whether the server may be asked for its list now. One that has none, or fails, is not asked with every call.
    pub(super) fn may_ask(&self, now: Instant) -> bool {
        self.listing().pause.is_none_or(|pause| pause <= now)
    }

    /// It was asked, and what was wanted is not there.
    pub(super) fn asked_in_vain(&self, now: Instant) {
        let mut listing = self.listing();
        let pause = PAUSE.saturating_mul(1 << listing.in_vain.min(10)).min(LONGEST_PAUSE);
        listing.in_vain += 1;
        listing.pause = Some(now + pause);
    }

    /// Whether models are offered to repeat a call of a tool on purpose: where an equal call would not run by itself.
    pub(super) fn offers_repeat(&self, name: &str) -> bool {
        let is_kept = self.has_recipe(name) || self.configured(name).is_some_and(Tool::chooses_retention);
        self.takes_repeat(name) && (is_kept || self.rule(name) == Rule::Outward)
    }

    /// Whether our own argument is ours in this tool.
    pub(super) fn takes_repeat(&self, name: &str) -> bool {
        self.listed(name).is_none_or(|listed| !listed.takes_ours)
    }

    /// The argument of a guarded tool that the gateway fills, and how. The configuration outranks what a schema says.
    pub(super) fn fills(&self, name: &str) -> Option<(String, Form)> {
        let slot = self.slot(name);
        match self.configured(name).and_then(|tool| tool.key_argument.as_ref()) {
            Some(KeyArgument::Off) => None,
            Some(KeyArgument::Named(argument)) => {
                let form = slot.and_then(|slot| slot.form.ok()).unwrap_or(Form::Whole);
                Some((argument.clone(), form))
            }
            None => {
                let slot = slot.filter(|slot| self.is_key(name, &slot.name))?;
                Some((slot.name.clone(), slot.form.ok()?))
            }
        }
    }

    /// Whether an argument of a guarded tool holds a key, so that what a model writes there does not tell calls apart. That
    /// depends on its name alone: a server may list its tools late, or in another way.
    pub(super) fn is_key(&self, name: &str, argument: &str) -> bool {
        let configured = self.configured(name);
        match configured.and_then(|tool| tool.key_argument.as_ref()) {
            Some(KeyArgument::Off) => false,
            Some(KeyArgument::Named(named)) if named == argument => true,
            _ => is_key(argument) && !configured.is_some_and(|tool| tool.recipe_names(argument)),
        }
    }

    /// The argument of a tool that takes a key, as far as its schema tells.
    pub(super) fn slot(&self, name: &str) -> Option<Arc<Slot>> {
        self.listed(name)?.slot
    }

    /// Whether a tool says that calling it twice is calling it once.
    pub(super) fn is_idempotent(&self, name: &str) -> bool {
        self.listed(name).is_some_and(|listed| listed.is_idempotent)
    }

    /// What a tool promises of its structured results.
    pub(super) fn typed(&self, name: &str) -> Typed {
        self.listed(name).map_or(Typed::Unlisted, |listed| listed.typed)
    }

    /// Whether any tool is guarded, as far as the server has listed its tools or the configuration names them.
    pub(super) fn guards_any(&self) -> bool {
        let listed: Vec<String> = self.listing().tools.keys().cloned().collect();
        let is_configured = self.configured.tools.values().any(|tool| tool.guarded() == Some(true));
        is_configured || listed.iter().any(|name| self.why(name).is_guarded())
    }

    /// Whether the server itself has a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.listed(name).is_some()
    }

    /// Remembers what a server says of one of its tools.
    pub(super) fn learn(&self, name: &str, tool: &Members, argument: &str) {
        let hints = tool.object("annotations").unwrap_or_default();
        let hint = |name| hints.get(name).and_then(|hint| serde_json::from_str::<bool>(hint.get()).ok());
        let schema = tool.object("inputSchema").unwrap_or_default();
        let properties = schema.object("properties");
        let named = match self.configured(name).and_then(|tool| tool.key_argument.as_ref()) {
            Some(KeyArgument::Named(named)) => Some(named.as_str()),
            Some(KeyArgument::Off) | None => None,
        };
        let slot = Slot::find(&schema, named).map(Arc::new);
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
            typed: Typed::of(tool),
            takes_ours: properties.is_some_and(|properties| properties.get(argument).is_some()),
            slot,
        };
        listing.tools.insert(name.to_owned(), listed);
    }

    /// The list has come to its end; or it is out of date.
    pub(super) fn is_whole(&self, is_whole: bool) {
        let mut listing = self.listing();
        listing.is_stale = !is_whole;
        if is_whole {
            listing.prefix = kind::shared_prefix(listing.tools.keys().map(String::as_str));
        }
        // Whatever it is, it is news.
        (listing.in_vain, listing.pause) = (0, None);
        drop(listing);
        if is_whole {
            // Not while anything is held that others wait for.
            for message in self.missing().into_iter().chain(self.unfilled()) {
                output::say(&message);
            }
        }
    }

    /// Tools that the file names and the server does not have: most likely a slip, and then nothing guards as it should.
    fn missing(&self) -> Vec<String> {
        let mut messages = Vec::new();
        let listing = self.listing();
        let probes = self.configured.tools.values().filter_map(|tool| tool.probe.as_ref()).map(|probe| &probe.tool);
        for name in self.configured.tools.keys().chain(probes) {
            if !listing.tools.contains_key(name) && self.configured.warned.is_first(About::Missing, name) {
                let instead = instead(name, listing.tools.keys().map(String::as_str));
                messages.push(format!(
                    "the configuration names the tool {}, which the server does not list; {}",
                    output::tame(name),
                    output::tame(&instead)
                ));
            }
        }
        messages
    }

    /// Guarded tools with an argument for a key that the gateway cannot fill.
    fn unfilled(&self) -> Vec<String> {
        let listing = self.listing();
        let slots = listing.tools.iter().filter_map(|(name, listed)| Some((name.clone(), listed.slot.clone()?)));
        let slots: Vec<(String, Arc<Slot>)> = slots.collect();
        drop(listing);
        let unfilled = slots.iter().filter_map(|(name, slot)| {
            let why = self.unfit_slot(name, slot)?;
            let is_new = self.configured.warned.is_first(About::KeyArgument, name);
            is_new.then(|| format!("the tool {}: {}.", output::tame(name), output::tame(&why)))
        });
        unfilled.collect()
    }

    /// Says once that calls of a tool are never recognised as repeats, if a name among their arguments looks so. A recipe says
    /// what makes them the same.
    pub(super) fn warn_of_volatile(&self, name: &str, arguments: &Members) {
        let warned = &self.configured.warned;
        if self.has_recipe(name) || !warned.is_due(About::Volatile, name) {
            return;
        }
        if let Some(warning) = volatile::warning(&volatile::in_arguments(arguments))
            && warned.is_first(About::Volatile, name)
        {
            output::say(&format!("the tool {}: {}.", output::tame(name), output::tame(&warning)));
        }
    }

    /// Whether the configuration says what makes calls of a tool the same.
    pub(super) fn has_recipe(&self, name: &str) -> bool {
        self.configured(name).is_some_and(|tool| tool.operation.key.is_some())
    }

    /// Why the argument of a guarded tool that takes a key does not get one that its schema accepts.
    pub(super) fn unfit_slot(&self, name: &str, slot: &Slot) -> Option<String> {
        let why = slot.form.err().filter(|_| self.why(name).is_guarded() && self.is_key(name, &slot.name))?;
        let argument = &slot.name;
        Some(if self.fills(name).is_some() {
            format!("the gateway fills {argument} as configured, although {why}")
        } else {
            format!(
                "the gateway does not fill {argument}, because {why}; a retry may reach the server with another key"
            )
        })
    }

    fn listed(&self, name: &str) -> Option<Listed> {
        self.listing().tools.get(name).cloned()
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
        learn("send_email", "{}");
        assert_eq!(tools.why("send_email"), Why::MayAct);
        assert_eq!(tools.why("get_what_nobody_listed"), Why::Unlisted);
        let guarded = ["get_and_log", "ping_all", "lookup", "frobnicate", "list_things", "send_email"];
        let guarded = guarded.map(|name| tools.why(name).is_guarded());
        assert_eq!(guarded, [true, false, true, false, false, true]);
    }

    #[test]
    fn something_is_guarded_once_it_is_listed_or_configured() {
        let guard = |guard| Tool { guard: Some(guard), ..Tool::default() };
        let learn = |tools: &Tools, name: &str| tools.learn(name, &Members::read("{}").unwrap(), "ours");
        let tools = Tools::new([("send".to_owned(), guard(false)), ("noted".to_owned(), Tool::default())].into());
        assert!(!tools.guards_any());
        learn(&tools, "get_x");
        learn(&tools, "send");
        assert!(!tools.guards_any());
        tools.is_whole(false);
        assert!(tools.guards_any(), "the list is another one now");
        tools.is_whole(true);
        learn(&tools, "create");
        assert!(tools.guards_any());
        assert!(Tools::new([("get_x".to_owned(), guard(true))].into()).guards_any());
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
    fn a_server_is_asked_unless_the_configuration_says_all_or_the_tool_is_listed() {
        let tool = Tool { guard: Some(true), ..Tool::default() };
        let tools = Tools::new([("charge".to_owned(), tool), ("noted".to_owned(), Tool::default())].into());
        assert_eq!(["charge", "noted", "get_x"].map(|name| tools.is_unknown(name)), [false, true, true]);
        tools.learn("get_x", &Members::read("{}").unwrap(), "ours");
        tools.is_whole(true);
        assert_eq!(["noted", "get_x", "get_y"].map(|name| tools.is_unknown(name)), [true, false, true]);
        assert!(tools.why("get_y").is_guarded() && !tools.why("get_x").is_guarded());
        tools.is_whole(false);
        assert!(tools.is_unknown("get_x") && tools.why("get_x").is_guarded(), "the list is another one now");
        let other = tools.for_another();
        tools.is_whole(true);
        assert!(other.is_unknown("get_x") && !tools.is_unknown("get_x"), "what one is shown says nothing to another");
    }

    #[test]
    fn a_server_that_was_asked_in_vain_is_left_alone_for_a_while() {
        let (tools, now) = (Tools::default(), Instant::now());
        assert!(tools.may_ask(now));
        tools.asked_in_vain(now);
        assert!(!tools.may_ask(now + PAUSE / 2) && tools.may_ask(now + PAUSE));
        for _ in 0..100 {
            tools.asked_in_vain(now);
        }
        assert!(!tools.may_ask(now + LONGEST_PAUSE / 2) && tools.may_ask(now + LONGEST_PAUSE));
        tools.is_whole(false);
        assert!(tools.may_ask(now), "it says that its list has changed");
    }

    #[test]
    fn an_argument_that_the_tool_has_itself_is_not_ours() {
        let tools = Tools::default();
        let text =
            r#"{"inputSchema":{"properties":{"ours":{}}},"annotations":{"idempotentHint":true},"outputSchema":{}}"#;
        tools.learn("nested", &Members::read(text).unwrap(), "ours");
        assert!(tools.typed("nested").is_promised() && !tools.typed("other").is_promised());
        assert!(!tools.takes_repeat("nested") && tools.takes_repeat("other"));
        assert!(tools.is_idempotent("nested") && !tools.is_idempotent("other"));
    }
}
