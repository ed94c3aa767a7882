//! From a `tools/call` to a guarded call: which tool, which intent, and what is passed on.

use std::time::Duration;

use onceward::core::decide::Again;
use onceward::core::hash::Fields;
use onceward::core::json::MAX_BYTES;
use onceward::core::name::{self, Identity, Key, Operation, Tenant};
use onceward::core::plant::{Plant, planted};
use onceward::core::policy::Policy;
use onceward::{Call, Ledger};
use serde_json::value::RawValue;

use super::gate::Request;
use super::members::Members;
use super::message::ended;
use super::repeats::{self, Rule};
use super::tools::Tools;

/// The argument with which somebody says that a repeat is meant.
pub(super) const REPEAT: &str = "onceward_repeat";

/// Where a client puts a key of its own, and the session that the call belongs to.
const KEY: &str = "onceward/key";
const SESSION: &str = "onceward/session";

/// What a call is made of.
pub(super) const NAMES: [&str; 3] = ["name", "arguments", "_meta"];

/// What is the same for every call of one gateway.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    /// The server's name in operations.
    pub(super) server: String,
    /// What stands before the names of its tools, where several servers are behind one gateway.
    pub(super) shown: String,
    /// The session that the agent goes on in, if it has one.
    pub(super) session: Option<String>,
    /// How long an outcome of an outward tool answers equal calls after it was delivered, when nothing says which call it is.
    pub(super) echo: Duration,
    /// The shortest time after which a client that does not announce it may have given up on a call.
    pub(super) patience: Duration,
    /// How long a call may run before it counts as in doubt, when its tool does not say.
    pub(super) deadline: Option<Duration>,
}

impl Naming {
    /// The name of the operation that a tool is.
    pub(super) fn operation(&self, tool: &str, scope: &str) -> String {
        let tool = if planted(Plant::ToolNotNamed) { "tool" } else { tool };
        format!("{}{tool}", self.prefix(scope))
    }

    /// What the operations of this server begin with. A slash in its name is none between names.
    pub(super) fn prefix(&self, scope: &str) -> String {
        format!("mcp:{}{scope}/", self.server.replace('%', "%25").replace('/', "%2F"))
    }
}

/// A call of a tool, as a client asks for it.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) tenant: Tenant,
    /// What tells apart several servers of one name, such as the address that it was sent to.
    scope: String,
    pub(super) tool: String,
    /// Without its parameters, which may be large.
    message: Members,
    /// Without their arguments.
    parameters: Members,
    /// Without what is ours.
    given: Members,
    /// Something was ours.
    has_ours: bool,
    /// What tells calls apart, where that is not all of what is given: without keys, too.
    arguments: Option<Members>,
    key: Option<String>,
    session: Option<String>,
    /// Which client asks, and in which process or connection of its own.
    from: From,
    /// 1, unless a repeat is meant.
    pub(super) repeat: u32,
}

/// Where a call comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct From {
    /// What the client calls itself.
    pub(super) client: String,
    /// What lasts as long as the state inside the server: our process, or the session of a server that is reached by HTTP.
    pub(super) connection: String,
}

/// Why a call cannot be guarded, for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit(pub(super) String);

impl Asked {
    /// Reads the parameters of a call.
    pub(super) fn read(request: &Request, tools: &Tools) -> Result<Self, Unfit> {
        let message = &request.members;
        let twice = |what: &str| Unfit(format!("{what} must be an object that names nothing twice"));
        let mut parameters = message.object("params").ok_or_else(|| twice("params"))?;
        if !parameters.is_plain(&NAMES) {
            return Err(twice("params"));
        }
        let tool = parameters.text("name").ok_or_else(|| Unfit("the name of a tool must be a text".to_owned()))?;
        let given = match parameters.get("arguments").map(|arguments| arguments.get()) {
            None | Some("null") => Members::default(),
            // Said before anything is made from them, which would take much memory.
            Some(text) if text.len() > MAX_BYTES => {
                let length = text.len();
                return Err(Unfit(format!("the arguments have {length} bytes; at most {MAX_BYTES} are read")));
            }
            Some(text) => Members::read(text).ok_or_else(|| twice("arguments"))?,
        };
        let meta = match parameters.get("_meta").map(|meta| meta.get()) {
            None | Some("null") => Members::default(),
            Some(text) => Members::read(text).ok_or_else(|| twice("_meta"))?,
        };
        let named = |name: &str| match meta.get(name) {
            None => Ok(None),
            Some(_) => meta.text(name).map(Some).ok_or_else(|| Unfit(format!("_meta[\"{name}\"] must be a text"))),
        };
        // An empty name is none, as in the environment.
        let (key, session) = (named(KEY)?, named(SESSION)?.filter(|session| !session.is_empty()));
        let key = match (key, request.key.clone()) {
            (Some(one), Some(other)) if one != other => {
                let why =
                    format!("_meta[\"{KEY}\"] and the header Idempotency-Key hold different keys; send one of them");
                return Err(Unfit(why));
            }
            (key, other) => key.or(other),
        };
        let (tenant, scope, message) = (request.tenant.clone(), request.scope.clone(), message.without("params"));
        parameters = parameters.without("arguments");
        let (has_ours, arguments, repeat, from) = (false, None, 1, request.from.clone());
        let mut asked =
            Self { tenant, scope, tool, message, parameters, given, has_ours, arguments, key, session, from, repeat };
        asked.take_ours(tools)?;
        Ok(asked)
    }

    /// A call that somebody asks about in another one, and that is not made.
    pub(super) fn about(&self, tool: &str, given: Members, key: Option<String>, tools: &Tools) -> Result<Self, Unfit> {
        let (message, parameters) = (Members::default(), Members::default());
        let (tenant, session, scope) = (self.tenant.clone(), self.session.clone(), self.scope.clone());
        let (tool, has_ours, arguments, repeat, from) = (tool.to_owned(), false, None, 1, self.from.clone());
        let mut about =
            Self { tenant, scope, tool, message, parameters, given, has_ours, arguments, key, session, from, repeat };
        about.take_ours(tools)?;
        Ok(about)
    }

    /// The intent of a tool that has this key.
    pub(super) fn identity(&self, naming: &Naming, tool: &str, key: &str) -> Result<Identity, Unfit> {
        let unfit = |error: name::Error| Unfit(error.to_string());
        let operation = Operation::new(naming.operation(tool, &self.scope)).map_err(unfit)?;
        Ok(Identity { tenant: self.tenant.clone(), operation, key: Key::new(key).map_err(unfit)? })
    }

    /// Takes what is for us out of the arguments.
    fn take_ours(&mut self, tools: &Tools) -> Result<(), Unfit> {
        if tools.takes_repeat(&self.tool)
            && let Some(given) = self.given.remove(REPEAT)
        {
            self.repeat = times(&given).ok_or_else(|| Unfit(format!("{REPEAT} is a whole number from 2 on")))?;
            self.has_ours = true;
        }
        let keys = self.given.names().filter(|argument| tools.is_key(&self.tool, argument));
        let keys: Vec<String> = keys.map(str::to_owned).collect();
        if !keys.is_empty() {
            let mut arguments = self.given.clone();
            for key in keys {
                arguments.remove(&key);
            }
            self.arguments = Some(arguments);
        }
        Ok(())
    }

    pub(super) fn scope(&self) -> &str {
        &self.scope
    }

    /// Whether the client says which call it is.
    pub(super) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The arguments of the tool itself, without keys.
    pub(super) fn arguments(&self) -> &Members {
        self.arguments.as_ref().unwrap_or(&self.given)
    }

    /// The arguments that the server gets, with the key where one is filled.
    pub(super) fn filled(&self, tools: &Tools, downstream_key: &str) -> Members {
        match tools.fills(&self.tool) {
            None => self.given.clone(),
            Some((argument, form)) => {
                let mut arguments = self.arguments().clone();
                match planted(Plant::KeyArgumentPerAttempt) {
                    true => arguments.set(&argument, &form.write(&format!("{downstream_key}-{}", std::process::id()))),
                    false => arguments.set(&argument, &form.write(downstream_key)),
                }
                arguments
            }
        }
    }

    /// What the client says besides, for requests of ours on its behalf: without what is about this one request alone.
    pub(super) fn meta(&self) -> Option<Members> {
        let mut meta = self.parameters.object("_meta")?;
        for name in ["progressToken", KEY, SESSION] {
            meta.remove(name);
        }
        Some(meta)
    }

    /// The line to pass on: the one that came, unless something in it is for us, or from us.
    pub(super) fn passed_on(&self, line: &[u8], tools: &Tools, downstream_key: &str) -> Vec<u8> {
        if !self.has_ours && tools.fills(&self.tool).is_none() {
            let mut line = line.to_vec();
            // The last line of a client need not have an end, and the pipe stays open.
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            return line;
        }
        let (mut parameters, mut message) = (self.parameters.clone(), self.message.clone());
        parameters.set("arguments", &self.filled(tools, downstream_key));
        message.set("params", &parameters);
        ended(&message)
    }

    /// Whether a key, a recipe or a session says which call it is, and not only equal arguments for a while.
    pub(super) fn is_named(&self, naming: &Naming, tools: &Tools) -> bool {
        self.key.is_some() || tools.has_recipe(&self.tool) || self.session(naming).is_some()
    }

    fn session<'a>(&'a self, naming: &'a Naming) -> Option<&'a String> {
        self.session.as_ref().or(naming.session.as_ref())
    }

    /// The rule that says whether it is a repeat.
    pub(super) fn rule(&self, tools: &Tools) -> Rule {
        if self.key.is_some() { Rule::Kept } else { repeats::rule(&self.tool, tools) }
    }

    pub(super) fn policy(&self, naming: &Naming, tools: &Tools) -> Policy {
        repeats::policy(&self.tool, naming, tools, self.rule(tools), self.session(naming).is_some())
    }

    /// What tells equal arguments apart: the session; or the client, where a call after the answer is meant. What sets state
    /// inside the server has to be called in each of its processes.
    fn apart(&self, naming: &Naming, tools: &Tools) -> String {
        let (rule, session) = (self.rule(tools), self.session(naming));
        let is_causal = matches!(rule, Rule::Causal | Rule::Idempotent);
        let sets_state = is_causal && tools.kind(&self.tool).sets_state;
        match session {
            Some(session) if !sets_state => session.clone(),
            None if !is_causal => String::new(),
            _ => {
                let mut fields = Fields::new().field(b"mcp caller v1");
                fields = match session {
                    Some(session) => fields.field(b"session").field(session),
                    None => fields.field(b"client").field(&self.from.client),
                };
                if sets_state {
                    fields = fields.field(&self.from.connection);
                }
                format!("caller-{}", &fields.digest().to_hex()[..32])
            }
        }
    }

    /// The guarded call. With `repeat` 1 it is the first of its kind, with 2 the second.
    pub(super) fn call(&self, ledger: &Ledger, naming: &Naming, tools: &Tools, repeat: u32) -> Result<Call, Unfit> {
        let unfit = |error: &dyn std::fmt::Display| Unfit(error.to_string());
        let configured = tools.configured(&self.tool);
        let mut operation = ledger.operation(&naming.operation(&self.tool, &self.scope)).tenant(self.tenant.as_str());
        operation = operation.session(&self.apart(naming, tools));
        operation = operation.intent_json(self.arguments().written().as_bytes());
        if let Some(key) = &self.key {
            operation = operation.key(key);
        }
        let recipe = configured.map(crate::config::Tool::recipe).transpose().map_err(|error| unfit(&error))?.flatten();
        if let Some(recipe) = recipe {
            operation = operation.recipe(recipe);
        }
        operation = operation.policy(self.policy(naming, tools));
        let mut call = operation.call().map_err(|error| unfit(&error))?;
        if self.rule(tools) == Rule::Idempotent {
            call.again = Again::Always;
        }
        if repeat > 1 {
            let digest = Fields::new()
                .field(b"repeat v1")
                .field(call.identity.key.as_str())
                .field(repeat.to_be_bytes())
                .digest();
            let key = Key::new(format!("repeat_v1_{}", &digest.to_hex()[..32]));
            call.identity.key = key.map_err(|error| unfit(&error))?;
            call.key_digest = call.key_digest.map(|_| digest);
        }
        Ok(call)
    }
}

/// How often it is meant to be done.
fn times(given: &RawValue) -> Option<u32> {
    let text = given.get();
    let text = text.strip_suffix(".0").unwrap_or(text);
    if text == "null" { Some(1) } else { text.parse().ok().filter(|number| *number >= 2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{KeyArgument, Tool};

    fn asked(parameters: &str, tools: &Tools) -> Result<Asked, Unfit> {
        let message = format!(r#"{{"id":1,"method":"tools/call","params":{parameters}}}"#);
        Asked::read(&request(&message), tools)
    }

    fn request(line: &str) -> Request {
        let members = Members::read(line).unwrap();
        let (written, id) = (members.get("id").unwrap().to_owned(), super::super::message::Id::Number("1".to_owned()));
        Request::new(Tenant::default(), id, written, line.as_bytes().to_vec().into(), members)
    }

    #[test]
    fn what_is_for_us_goes_no_further_and_the_rest_stays_as_it_came() {
        let tools = Tools::default();
        let line = r#"{"id":1,"method":"tools/call","params":{"arguments":{"b":1.0,"onceward_repeat":2},"name":"t"}}"#;
        let repeat = Asked::read(&request(line), &tools).unwrap();
        let expected = "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"arguments\":{\"b\":1.0},\"name\":\"t\"}}\n";
        assert_eq!((repeat.passed_on(line.as_bytes(), &tools, "k"), repeat.repeat), (expected.as_bytes().to_vec(), 2));
        let plain = asked(r#"{ "name":"t" }"#, &tools).unwrap();
        assert_eq!(plain.passed_on(b"as it came\r\n", &tools, "k"), b"as it came\r\n");
        assert_eq!(plain.passed_on(b"without an end", &tools, "k"), b"without an end\n");
    }

    #[test]
    fn an_argument_that_the_gateway_fills_is_no_part_of_the_intent() {
        let tool = Tool { key_argument: Some(KeyArgument::Named("idempotency_key".to_owned())), ..Tool::default() };
        let tools = Tools::new([("pay".to_owned(), tool)].into());
        let asked = asked(r#"{"name":"pay","arguments":{"idempotency_key":"made up","n":1}}"#, &tools).unwrap();
        assert_eq!(asked.arguments().written(), r#"{"n":1}"#);
        let passed = String::from_utf8(asked.passed_on(b"", &tools, "once_1")).unwrap();
        assert!(passed.contains(r#""arguments":{"n":1,"idempotency_key":"once_1"}"#), "{passed}");
    }

    #[test]
    fn servers_whose_names_run_into_their_tools_are_told_apart() {
        let naming = |server: &str| Naming {
            server: server.to_owned(),
            shown: String::new(),
            session: None,
            echo: Duration::ZERO,
            patience: Duration::ZERO,
            deadline: None,
        };
        assert_ne!(naming("a").operation("b/send", ""), naming("a/b").operation("send", ""));
        assert_ne!(naming("a%2Fb").operation("send", ""), naming("a/b").operation("send", ""));
        assert_ne!(naming("a").operation("send", "?1"), naming("a").operation("send", "?2"));
    }

    #[test]
    fn how_often_is_a_whole_number_from_two_on() {
        let times = |given: &str| {
            asked(&format!(r#"{{"name":"t","arguments":{{"onceward_repeat":{given}}}}}"#), &Tools::default())
        };
        for (given, expected) in [("2", 2), ("4.0", 4), ("null", 1)] {
            assert_eq!(times(given).unwrap().repeat, expected, "{given}");
        }
        for given in ["1", "0", "-2", "2.5", "\"2\"", "[2]", "true", "99999999999"] {
            assert!(times(given).is_err(), "{given}");
        }
    }

    #[test]
    fn an_empty_session_is_none() {
        let session = |given: &str| {
            asked(&format!(r#"{{"name":"t","_meta":{{"onceward/session":{given}}}}}"#), &Tools::default())
        };
        assert_eq!((session("\"\"").unwrap().session, session("\"s\"").unwrap().session), (None, Some("s".to_owned())));
        assert!(session("7").is_err());
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for parameters in [
            "[]",
            r#"{"name":7}"#,
            r#"{"name":"a","name":"b"}"#,
            r#"{"name":"a","Name":"b"}"#,
            r#"{"name":"a","arguments":{"x":1,"x":2}}"#,
            r#"{"name":"a","arguments":[1]}"#,
            r#"{"name":"a","_meta":{"onceward/key":7}}"#,
            r#"{"name":"a","_meta":{"a":1,"a":2}}"#,
        ] {
            assert!(asked(parameters, &Tools::default()).is_err(), "{parameters}");
        }
    }
}
