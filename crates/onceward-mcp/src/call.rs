//! Reads a `tools/call`: which tool, which intent, and which line to forward.

use std::time::Duration;

use onceward::core::decide::Again;
use onceward::core::hash::Fields;
use onceward::core::json::MAX_BYTES;
use onceward::core::name::{self, Identity, Key, Operation, Tenant};
use onceward::core::policy::Policy;
use onceward::plant::{Plant, planted};
use onceward::{Call, Ledger};
use serde_json::value::RawValue;

use super::gate::Request;
use super::members::Members;
use super::message::to_line;
use super::repeat_rule::{self, Rule};
use super::tools::Tools;
use onceward_runtime::config::operation_prefix;

/// The argument that asks for a deliberate repeat.
pub(super) const REPEAT: &str = "onceward_repeat";

/// The members of `_meta` with a client's own key and with the session of the call.
const KEY: &str = "onceward/key";
const SESSION: &str = "onceward/session";

/// The members of a call's parameters.
pub(super) const NAMES: [&str; 3] = ["name", "arguments", "_meta"];

/// Settings that are the same for every call through one gateway.
#[derive(Clone, Debug)]
pub(super) struct CallSettings {
    /// The server's name in operations.
    pub(super) server: String,
    /// The prefix of its tools' names, where several servers are behind one gateway.
    pub(super) tool_prefix: String,
    /// The agent's session, if it has one.
    pub(super) session: Option<String>,
    /// How long equal calls of an outward tool get the stored outcome after it was delivered, where no key identifies them.
    pub(super) echo: Duration,
    /// The shortest time after which a client may have given up on a call without a cancellation.
    pub(super) patience: Duration,
    /// How long a call may run before it is in doubt, unless its tool has a deadline.
    pub(super) deadline: Option<Duration>,
}

impl CallSettings {
    /// The operation of a tool.
    pub(super) fn operation(&self, tool: &str, scope: &str) -> String {
        let tool = if planted(Plant::ToolNotNamed) { "tool" } else { tool };
        format!("{}{tool}", self.prefix(scope))
    }

    /// The prefix of this server's operations.
    pub(super) fn prefix(&self, scope: &str) -> String {
        operation_prefix(&self.server, scope)
    }
}

/// A call of a tool as the client requests it.
#[derive(Clone, Debug)]
pub(super) struct ToolCall {
    pub(super) tenant: Tenant,
    /// Distinguishes several servers with one name, for example by URL.
    scope: String,
    pub(super) tool: String,
    /// The message without its parameters, which may be large.
    message: Members,
    /// The parameters without the arguments.
    parameters: Members,
    /// The arguments without those for the gateway.
    given: Members,
    /// Whether there were arguments for the gateway.
    has_own_arguments: bool,
    /// The arguments without keys, if there are keys among them. They identify the call.
    arguments: Option<Members>,
    key: Option<String>,
    session: Option<String>,
    /// The client and its connection.
    source: CallSource,
    /// 1, or higher for a deliberate repeat.
    pub(super) repeat: u32,
}

/// The client and connection of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CallSource {
    /// The client's name for itself.
    pub(super) client: String,
    /// Lives as long as the state inside the server: this process, or the session of a server that is reached by HTTP.
    pub(super) connection: String,
}

/// Why a call cannot be guarded; a text for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidCall(pub(super) String);

impl ToolCall {
    /// Reads the parameters of a call.
    pub(super) fn read(request: &Request, tools: &Tools) -> Result<Self, InvalidCall> {
        let message = &request.members;
        let twice = |what: &str| InvalidCall(format!("{what} must be an object without duplicate names"));
        let mut parameters = message.object("params").ok_or_else(|| twice("params"))?;
        if !parameters.has_no_lookalikes(&NAMES) {
            return Err(twice("params"));
        }
        let tool =
            parameters.text("name").ok_or_else(|| InvalidCall("the name of a tool must be a string".to_owned()))?;
        let given = match parameters.get("arguments").map(|arguments| arguments.get()) {
            None | Some("null") => Members::default(),
            // Checked before parsing, which would take much memory.
            Some(text) if text.len() > MAX_BYTES => {
                let length = text.len();
                return Err(InvalidCall(format!("the arguments have {length} bytes; the limit is {MAX_BYTES}")));
            }
            Some(text) => Members::read(text).ok_or_else(|| twice("arguments"))?,
        };
        let meta = match parameters.get("_meta").map(|meta| meta.get()) {
            None | Some("null") => Members::default(),
            Some(text) => Members::read(text).ok_or_else(|| twice("_meta"))?,
        };
        let named = |name: &str| match meta.get(name) {
            None => Ok(None),
            Some(_) => {
                meta.text(name).map(Some).ok_or_else(|| InvalidCall(format!("_meta[\"{name}\"] must be a string")))
            }
        };
        // An empty session counts as none, as in the environment variable.
        let (key, session) = (named(KEY)?, named(SESSION)?.filter(|session| !session.is_empty()));
        let key = match (key, request.key.clone()) {
            (Some(one), Some(other)) if one != other => {
                let why =
                    format!("_meta[\"{KEY}\"] and the header Idempotency-Key hold different keys; send one of them");
                return Err(InvalidCall(why));
            }
            (key, other) => key.or(other),
        };
        let (tenant, scope, message) = (request.tenant.clone(), request.scope.clone(), message.without("params"));
        parameters = parameters.without("arguments");
        let (has_own_arguments, arguments, repeat, source) = (false, None, 1, request.source.clone());
        let mut tool_call = Self {
            tenant,
            scope,
            tool,
            message,
            parameters,
            given,
            has_own_arguments,
            arguments,
            key,
            session,
            source,
            repeat,
        };
        tool_call.take_own_arguments(tools)?;
        Ok(tool_call)
    }

    /// A call that the client asks about and does not make.
    pub(super) fn about(
        &self,
        tool: &str,
        given: Members,
        key: Option<String>,
        tools: &Tools,
    ) -> Result<Self, InvalidCall> {
        let (message, parameters) = (Members::default(), Members::default());
        let (tenant, session, scope) = (self.tenant.clone(), self.session.clone(), self.scope.clone());
        let (tool, has_own_arguments, arguments, repeat, source) =
            (tool.to_owned(), false, None, 1, self.source.clone());
        let mut about = Self {
            tenant,
            scope,
            tool,
            message,
            parameters,
            given,
            has_own_arguments,
            arguments,
            key,
            session,
            source,
            repeat,
        };
        about.take_own_arguments(tools)?;
        Ok(about)
    }

    /// The identity of a tool's intent with this key.
    pub(super) fn identity(&self, settings: &CallSettings, tool: &str, key: &str) -> Result<Identity, InvalidCall> {
        let unfit = |error: name::Error| InvalidCall(error.to_string());
        let operation = Operation::new(settings.operation(tool, &self.scope)).map_err(unfit)?;
        Ok(Identity { tenant: self.tenant.clone(), operation, key: Key::new(key).map_err(unfit)? })
    }

    /// Takes the gateway's own arguments and the keys out of the arguments.
    fn take_own_arguments(&mut self, tools: &Tools) -> Result<(), InvalidCall> {
        if tools.takes_repeat(&self.tool)
            && let Some(given) = self.given.remove(REPEAT)
        {
            self.repeat =
                times(&given).ok_or_else(|| InvalidCall(format!("{REPEAT} must be an integer of 2 or more")))?;
            self.has_own_arguments = true;
        }
        self.arguments = without_keys(&self.tool, &self.given, tools);
        Ok(())
    }

    pub(super) fn scope(&self) -> &str {
        &self.scope
    }

    /// Whether the client sent a key.
    pub(super) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The arguments that identify the call: without keys.
    pub(super) fn arguments(&self) -> &Members {
        self.arguments.as_ref().unwrap_or(&self.given)
    }

    /// The arguments for the server, with the downstream key where the gateway fills it.
    pub(super) fn filled(&self, tools: &Tools, downstream_key: &str) -> Members {
        filled_arguments(&self.tool, &self.given, tools, downstream_key)
    }

    /// The arguments as the client gave them, without those for the gateway.
    pub(super) fn given(&self) -> &Members {
        &self.given
    }

    /// The client's `_meta` for requests that the gateway makes on its behalf: without members about this request alone.
    pub(super) fn meta(&self) -> Option<Members> {
        let mut meta = self.parameters.object("_meta")?;
        for name in ["progressToken", KEY, SESSION] {
            meta.remove(name);
        }
        Some(meta)
    }

    /// The line to forward: the client's own line, unless the gateway takes out or fills an argument.
    pub(super) fn passed_on(&self, line: &[u8], tools: &Tools, downstream_key: &str) -> Vec<u8> {
        if !self.has_own_arguments && tools.fills(&self.tool).is_none() {
            let mut line = line.to_vec();
            // The last line of a client may lack a line end, and the pipe to the server stays open.
            if !line.ends_with(b"\n") {
                line.push(b'\n');
            }
            return line;
        }
        let (mut parameters, mut message) = (self.parameters.clone(), self.message.clone());
        parameters.set("arguments", &self.filled(tools, downstream_key));
        message.set("params", &parameters);
        to_line(&message)
    }

    /// Whether a key, a recipe or a session identifies the call, and not only equal arguments for a while.
    pub(super) fn is_named(&self, settings: &CallSettings, tools: &Tools) -> bool {
        self.key.is_some() || tools.has_recipe(&self.tool) || self.session(settings).is_some()
    }

    fn session<'a>(&'a self, settings: &'a CallSettings) -> Option<&'a String> {
        self.session.as_ref().or(settings.session.as_ref())
    }

    /// When an equal call is a repeat.
    pub(super) fn rule(&self, tools: &Tools) -> Rule {
        if self.key.is_some() { Rule::Kept } else { repeat_rule::rule(&self.tool, tools) }
    }

    pub(super) fn policy(&self, settings: &CallSettings, tools: &Tools) -> Policy {
        repeat_rule::policy(&self.tool, settings, tools, self.rule(tools), self.session(settings).is_some())
    }

    /// Separates calls with equal arguments: by session, or by client where a call after the response is deliberate. A tool that
    /// sets state inside the server must run in each of the server's processes.
    fn separator(&self, settings: &CallSettings, tools: &Tools) -> String {
        let (rule, session) = (self.rule(tools), self.session(settings));
        let is_causal = matches!(rule, Rule::Causal | Rule::Idempotent);
        // The state inside the courier's server outlives every connection of a client.
        let sets_state = is_causal && tools.kind(&self.tool).sets_state && !tools.is_queued(&self.tool);
        match session {
            Some(session) if !sets_state => session.clone(),
            None if !is_causal => String::new(),
            _ => {
                let mut fields = Fields::new().field(b"mcp caller v1");
                fields = match session {
                    Some(session) => fields.field(b"session").field(session),
                    None => fields.field(b"client").field(&self.source.client),
                };
                if sets_state {
                    fields = fields.field(&self.source.connection);
                }
                format!("caller-{}", &fields.digest().to_hex()[..32])
            }
        }
    }

    /// The guarded call. `repeat` is 1 for the first call and 2 for its first deliberate repeat.
    pub(super) fn call(
        &self,
        ledger: &Ledger,
        settings: &CallSettings,
        tools: &Tools,
        repeat: u32,
    ) -> Result<Call, InvalidCall> {
        let unfit = |error: &dyn std::fmt::Display| InvalidCall(error.to_string());
        let configured = tools.configured(&self.tool);
        let mut operation = ledger.operation(&settings.operation(&self.tool, &self.scope)).tenant(self.tenant.as_str());
        operation = operation.session(&self.separator(settings, tools));
        operation = operation.intent_json(self.arguments().to_json().as_bytes());
        if let Some(key) = &self.key {
            operation = operation.key(key);
        }
        let recipe = configured
            .map(onceward_runtime::config::Tool::recipe)
            .transpose()
            .map_err(|error| unfit(&error))?
            .flatten();
        if let Some(recipe) = recipe {
            operation = operation.recipe(recipe);
        }
        operation = operation.policy(self.policy(settings, tools));
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

/// The arguments of a tool without keys; `None` if there are no keys among them.
fn without_keys(tool: &str, given: &Members, tools: &Tools) -> Option<Members> {
    let keys: Vec<String> = given.names().filter(|argument| tools.is_key(tool, argument)).map(str::to_owned).collect();
    let mut arguments = (!keys.is_empty()).then(|| given.clone())?;
    for key in keys {
        arguments.remove(&key);
    }
    Some(arguments)
}

/// The arguments for the server, with the downstream key where the gateway fills it.
pub(super) fn filled_arguments(tool: &str, given: &Members, tools: &Tools, downstream_key: &str) -> Members {
    let Some((argument, form)) = tools.fills(tool) else { return given.clone() };
    let mut arguments = without_keys(tool, given, tools).unwrap_or_else(|| given.clone());
    match planted(Plant::KeyArgumentPerAttempt) {
        true => arguments.set(&argument, &form.write(&format!("{downstream_key}-{}", std::process::id()))),
        false => arguments.set(&argument, &form.write(downstream_key)),
    }
    arguments
}

/// The value of the repeat argument.
fn times(given: &RawValue) -> Option<u32> {
    let text = given.get();
    let text = text.strip_suffix(".0").unwrap_or(text);
    if text == "null" { Some(1) } else { text.parse().ok().filter(|number| *number >= 2) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onceward_runtime::config::{KeyArgument, Tool};

    fn tool_call(parameters: &str, tools: &Tools) -> Result<ToolCall, InvalidCall> {
        let message = format!(r#"{{"id":1,"method":"tools/call","params":{parameters}}}"#);
        ToolCall::read(&request(&message), tools)
    }

    fn request(line: &str) -> Request {
        let members = Members::read(line).unwrap();
        let (written, id) = (members.get("id").unwrap().to_owned(), super::super::message::Id::Number("1".to_owned()));
        Request::new(Tenant::default(), id, written, line.as_bytes().to_vec().into(), members)
    }

    #[test]
    fn the_gateways_argument_is_removed_and_the_rest_stays_as_it_came() {
        let tools = Tools::default();
        let line = r#"{"id":1,"method":"tools/call","params":{"arguments":{"b":1.0,"onceward_repeat":2},"name":"t"}}"#;
        let repeat = ToolCall::read(&request(line), &tools).unwrap();
        let expected = "{\"id\":1,\"method\":\"tools/call\",\"params\":{\"arguments\":{\"b\":1.0},\"name\":\"t\"}}\n";
        assert_eq!((repeat.passed_on(line.as_bytes(), &tools, "k"), repeat.repeat), (expected.as_bytes().to_vec(), 2));
        let plain = tool_call(r#"{ "name":"t" }"#, &tools).unwrap();
        assert_eq!(plain.passed_on(b"as it came\r\n", &tools, "k"), b"as it came\r\n");
        assert_eq!(plain.passed_on(b"without an end", &tools, "k"), b"without an end\n");
    }

    #[test]
    fn an_argument_that_the_gateway_fills_is_not_part_of_the_intent() {
        let tool = Tool { key_argument: Some(KeyArgument::Named("idempotency_key".to_owned())), ..Tool::default() };
        let tools = Tools::new([("pay".to_owned(), tool)].into());
        let tool_call = tool_call(r#"{"name":"pay","arguments":{"idempotency_key":"made up","n":1}}"#, &tools).unwrap();
        assert_eq!(tool_call.arguments().to_json(), r#"{"n":1}"#);
        let passed = String::from_utf8(tool_call.passed_on(b"", &tools, "once_1")).unwrap();
        assert!(passed.contains(r#""arguments":{"n":1,"idempotency_key":"once_1"}"#), "{passed}");
    }

    #[test]
    fn a_slash_in_a_server_name_does_not_mix_up_operations() {
        let settings = |server: &str| CallSettings {
            server: server.to_owned(),
            tool_prefix: String::new(),
            session: None,
            echo: Duration::ZERO,
            patience: Duration::ZERO,
            deadline: None,
        };
        assert_ne!(settings("a").operation("b/send", ""), settings("a/b").operation("send", ""));
        assert_ne!(settings("a%2Fb").operation("send", ""), settings("a/b").operation("send", ""));
        assert_ne!(settings("a").operation("send", "?1"), settings("a").operation("send", "?2"));
    }

    #[test]
    fn a_repeat_is_an_integer_of_two_or_more() {
        let times = |given: &str| {
            tool_call(&format!(r#"{{"name":"t","arguments":{{"onceward_repeat":{given}}}}}"#), &Tools::default())
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
            tool_call(&format!(r#"{{"name":"t","_meta":{{"onceward/session":{given}}}}}"#), &Tools::default())
        };
        assert_eq!((session("\"\"").unwrap().session, session("\"s\"").unwrap().session), (None, Some("s".to_owned())));
        assert!(session("7").is_err());
    }

    #[test]
    fn ambiguous_parameters_are_refused() {
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
            assert!(tool_call(parameters, &Tools::default()).is_err(), "{parameters}");
        }
    }
}
