//! The two ways of speaking: generations that begin with `initialize`, and the one that says everything in every request. What
//! a client says in one of them is put into the other for a server that knows only that one.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::super::members::Members;

/// The generation without `initialize`.
pub(super) const MODERN: &str = "2026-07-28";

/// The newest one that has it.
const LEGACY: &str = "2025-11-25";

/// What every request of the newest generation has in its `_meta`.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// The version that is asked for is not spoken here.
const UNSUPPORTED: i32 = -32022;
/// The client cannot do what the server needs of it. By its definition it comes before the work.
const INCAPABLE: i32 = -32021;
/// Something that says nothing about what was done.
const UNKNOWN: i32 = -32603;
/// The parameters lack something.
const INCOMPLETE: i32 = -32602;
/// It does not fit what was said before.
const OUT_OF_PLACE: i32 = -32600;

/// A way of speaking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Era {
    /// With `initialize`.
    Legacy,
    /// With `server/discover`, or nothing.
    Modern,
}

/// Who the client is, as its first request says it.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) era: Era,
    parameters: Members,
}

impl Client {
    pub(super) fn new(era: Era, parameters: &Members) -> Self {
        Self { era, parameters: parameters.clone() }
    }

    /// How it introduces itself. To a server that does not speak as it does, it can do nothing that the server could ask for.
    pub(super) fn initialize(&self) -> Members {
        if self.era == Era::Legacy {
            return self.parameters.clone();
        }
        let mut parameters = Members::default();
        parameters.set("protocolVersion", &LEGACY);
        parameters.set("capabilities", &json!({}));
        let meta = self.parameters.object("_meta").unwrap_or_default();
        parameters.set("clientInfo", &meta.get(CLIENT).map_or_else(ourselves, ToOwned::to_owned));
        parameters
    }

    /// How it asks who a server is.
    pub(super) fn discover(&self) -> Members {
        let mut parameters = Members::default();
        parameters.set("_meta", &self.envelope());
        parameters
    }

    /// What it says in every request.
    pub(super) fn envelope(&self) -> Members {
        let mut envelope = Members::default();
        if self.era == Era::Modern {
            let meta = self.parameters.object("_meta").unwrap_or_default();
            for name in [VERSION, CLIENT, CAPABILITIES] {
                if let Some(value) = meta.get(name) {
                    envelope.set(name, &value);
                }
            }
            return envelope;
        }
        envelope.set(VERSION, &MODERN);
        envelope.set(CLIENT, &self.parameters.get("clientInfo").map_or_else(ourselves, ToOwned::to_owned));
        envelope.set(CAPABILITIES, &json!({}));
        envelope
    }
}

/// What has to be done with messages between a client and a server.
#[derive(Clone, Debug)]
pub(super) enum Between {
    /// Nothing: they speak the same way.
    Same,
    /// The client says more than the server understands.
    Bare,
    /// The server wants this in every request.
    Enveloped(Members),
}

impl Between {
    pub(super) fn of(client: &Client, server: Era) -> Self {
        match (client.era, server) {
            (Era::Modern, Era::Legacy) => Self::Bare,
            (Era::Legacy, Era::Modern) => Self::Enveloped(client.envelope()),
            _ => Self::Same,
        }
    }

    /// Parameters for the server.
    pub(super) fn to_server(&self, parameters: &mut Members) {
        let mut meta = parameters.object("_meta").unwrap_or_default();
        match self {
            Self::Same => return,
            Self::Bare => {
                for name in [VERSION, CLIENT, CAPABILITIES, LEVEL] {
                    meta.remove(name);
                }
            }
            Self::Enveloped(envelope) => {
                for name in envelope.names() {
                    if let Some(value) = envelope.get(name) {
                        meta.set(name, &value);
                    }
                }
            }
        }
        if meta.len() == 0 {
            parameters.remove("_meta");
        } else {
            parameters.set("_meta", &meta);
        }
    }

    /// The log level that a client of the older generations sets once goes with every request.
    pub(super) fn set_level(&mut self, level: &RawValue) {
        if let Self::Enveloped(envelope) = self {
            envelope.set(LEVEL, &level);
        }
    }

    /// An answer for the client; `None` when it can stay as it is.
    pub(super) fn to_client(&self, answer: &Members) -> Option<Members> {
        let mut result = answer.object("result")?;
        let mut answer = answer.clone();
        match self {
            Self::Same => return None,
            Self::Bare => complete(&mut result),
            Self::Enveloped(_) => {
                let kind = result.text("resultType").filter(|kind| kind != "complete");
                result.remove("resultType");
                if let Some(kind) = kind {
                    let (code, why) = unheard(&kind);
                    answer.remove("result");
                    answer.set("error", &json!({ "code": code, "message": format!("onceward: {why}") }));
                    return Some(answer);
                }
            }
        }
        answer.set("result", &result);
        Some(answer)
    }
}

/// What a client is told of a kind of result that it does not know. Only a server that asks has not begun the work: it was
/// told that this client cannot be asked, and asks all the same.
fn unheard(kind: &str) -> (i32, String) {
    match kind {
        "input_required" => (INCAPABLE, "the server asks for input, which this client cannot be asked for".to_owned()),
        "task" => {
            let why = "the server goes on with it as a task, which this client cannot follow. If the call is guarded, make \
                       exactly the same call again later: it gets the result, and does not run twice.";
            (UNKNOWN, why.to_owned())
        }
        _ => (UNKNOWN, format!("the server answers with {kind}, which this client does not know")),
    }
}

/// A result, as clients of the newest generation want it. What can be kept says for how long: not at all.
pub(super) fn complete(result: &mut Members) {
    if result.get("resultType").is_none() {
        result.set("resultType", &"complete");
    }
    let is_kept = ["contents", "tools", "prompts", "resources", "resourceTemplates", "supportedVersions"];
    if is_kept.iter().any(|name| result.get(name).is_some()) && result.get("ttlMs").is_none() {
        result.set("ttlMs", &0);
        result.set("cacheScope", &"private");
    }
}

/// What a client says of itself with a request, if that says anything: the newest generation always does.
pub(super) fn said(method: &str, parameters: &Members) -> Option<Era> {
    let meta = parameters.object("_meta");
    match method {
        "initialize" => Some(Era::Legacy),
        "server/discover" => Some(Era::Modern),
        _ => meta.is_some_and(|meta| meta.get(VERSION).is_some()).then_some(Era::Modern),
    }
}

/// Why a request cannot be taken from a client that has spoken in this way so far: an error, or nothing.
pub(super) fn refusal(so_far: Option<Era>, method: &str, parameters: &Members) -> Option<Box<RawValue>> {
    let now = said(method, parameters);
    let meta = parameters.object("_meta").unwrap_or_default();
    let asked = if method == "initialize" { parameters.text("protocolVersion") } else { meta.text(VERSION) };
    let (code, why) = match (so_far, now) {
        (Some(Era::Legacy), Some(Era::Modern)) => (OUT_OF_PLACE, "this connection began with initialize"),
        // A client that gave up on its first question too early learns from this that it was understood.
        (Some(Era::Modern), Some(Era::Legacy)) => (UNSUPPORTED, "this connection speaks a version without initialize"),
        (_, Some(Era::Modern)) if asked.as_ref().is_some_and(|asked| asked != MODERN) => {
            (UNSUPPORTED, "this version is not spoken here")
        }
        (_, Some(Era::Modern)) | (Some(Era::Modern), None)
            if asked.is_none() || meta.object(CAPABILITIES).is_none() =>
        {
            (INCOMPLETE, "params._meta lacks the version or the capabilities of the client")
        }
        _ => return None,
    };
    let mut error = json!({ "code": code, "message": format!("onceward: {why}") });
    if code == UNSUPPORTED {
        error["data"] = json!({ "supported": [MODERN], "requested": asked });
    }
    to_raw_value(&error).ok()
}

/// Who asks, where a client does not say.
fn ourselves() -> Box<RawValue> {
    to_raw_value(&json!({ "name": "onceward", "version": env!("CARGO_PKG_VERSION") })).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn members(value: &Value) -> Members {
        Members::read(&value.to_string()).unwrap()
    }

    fn modern() -> Members {
        members(&json!({ "_meta": { VERSION: MODERN, CLIENT: { "name": "c" }, CAPABILITIES: { "sampling": {} } } }))
    }

    fn legacy() -> Members {
        let capabilities = json!({ "sampling": {} });
        members(
            &json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": { "name": "c" } }),
        )
    }

    #[test]
    fn a_server_of_another_generation_is_told_that_the_client_cannot_be_asked() {
        let client = Client::new(Era::Modern, &modern());
        let said = client.initialize().written();
        assert_eq!(said, r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c"}}"#);
        let asked = client.discover().object("_meta").unwrap();
        assert_eq!((asked.len(), asked.object(CAPABILITIES).unwrap().len()), (3, 1));
        let client = Client::new(Era::Legacy, &legacy());
        assert_eq!(client.initialize().written(), legacy().written());
        let envelope = client.envelope();
        assert_eq!(envelope.text(VERSION).as_deref(), Some(MODERN));
        assert_eq!(envelope.object(CAPABILITIES).unwrap().len(), 0);
    }

    #[test]
    fn a_request_gets_what_its_server_wants_and_loses_what_it_does_not_know() {
        let between = Between::of(&Client::new(Era::Modern, &modern()), Era::Legacy);
        let mut parameters = modern();
        between.to_server(&mut parameters);
        assert_eq!(parameters.written(), "{}");
        let mut parameters = members(&json!({ "_meta": { VERSION: MODERN, "progressToken": 7 } }));
        between.to_server(&mut parameters);
        assert_eq!(parameters.written(), r#"{"_meta":{"progressToken":7}}"#);
        let mut between = Between::of(&Client::new(Era::Legacy, &legacy()), Era::Modern);
        between.set_level(&to_raw_value("info").unwrap());
        let mut parameters = members(&json!({ "name": "t", "_meta": { "progressToken": 7 } }));
        between.to_server(&mut parameters);
        let meta = parameters.object("_meta").unwrap();
        assert_eq!((meta.text(VERSION).as_deref(), meta.text(LEVEL).as_deref()), (Some(MODERN), Some("info")));
        assert_eq!(meta.get("progressToken").unwrap().get(), "7");
    }

    #[test]
    fn an_answer_says_its_kind_to_those_who_want_to_know_and_to_nobody_else() {
        let bare = Between::of(&Client::new(Era::Modern, &modern()), Era::Legacy);
        let told = |between: &Between, result: Value| {
            between.to_client(&members(&json!({ "id": 1, "result": result }))).map(|answer| answer.written())
        };
        assert_eq!(told(&bare, json!({ "a": 1 })).unwrap(), r#"{"id":1,"result":{"a":1,"resultType":"complete"}}"#);
        assert!(told(&bare, json!({ "contents": [] })).unwrap().contains(r#""ttlMs":0,"cacheScope":"private""#));
        let enveloped = Between::of(&Client::new(Era::Legacy, &legacy()), Era::Modern);
        assert_eq!(told(&enveloped, json!({ "resultType": "complete" })).unwrap(), r#"{"id":1,"result":{}}"#);
        // Only the first of them says that nothing was done.
        for (kind, code) in [("input_required", "-32021"), ("task", "-32603"), ("partial", "-32603")] {
            assert!(told(&enveloped, json!({ "resultType": kind })).unwrap().contains(code), "{kind}");
        }
        assert!(told(&Between::Same, json!({})).is_none());
        assert!(bare.to_client(&members(&json!({ "id": 1, "error": {} }))).is_none());
    }

    #[test]
    fn a_connection_stays_with_the_way_in_which_it_began() {
        let code = |so_far, method: &str, parameters: &Members| {
            let error = refusal(so_far, method, parameters)?;
            Members::read(error.get()).unwrap().get("code").map(|code| code.get().to_owned())
        };
        let (none, code_of) = (Members::default(), |code: &str| Some(code.to_owned()));
        assert_eq!(code(None, "server/discover", &modern()), None);
        assert_eq!(code(None, "server/discover", &none), code_of("-32602"));
        assert_eq!(code(None, "initialize", &legacy()), None);
        assert_eq!(code(None, "tools/list", &none), None);
        assert_eq!(code(Some(Era::Modern), "initialize", &legacy()), code_of("-32022"));
        assert_eq!(code(Some(Era::Modern), "tools/list", &none), code_of("-32602"));
        assert_eq!(code(Some(Era::Modern), "tools/list", &modern()), None);
        assert_eq!(code(Some(Era::Legacy), "tools/list", &modern()), code_of("-32600"));
        assert_eq!(code(Some(Era::Legacy), "tools/list", &none), None);
        let later = members(&json!({ "_meta": { VERSION: "2027-01-01", CAPABILITIES: {} } }));
        assert_eq!(code(None, "tools/list", &later), code_of("-32022"));
    }
}
