//! The two families of the protocol: versions that begin with `initialize` (legacy), and the one that carries everything in every
//! request (modern). Translates messages of the client for a server that knows only the other family.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::super::members::Members;

/// The version without `initialize`.
pub(super) const MODERN: &str = "2026-07-28";

/// The newest version with `initialize`.
const LEGACY: &str = "2025-11-25";

/// The envelope: what every request of the modern protocol has in its `_meta`.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LEVEL: &str = "io.modelcontextprotocol/logLevel";

/// The requested protocol version is not supported. Also the error for `initialize` after `server/discover`: a client that gave up
/// on discovery too early learns that it was understood.
const UNSUPPORTED_VERSION: i32 = -32022;
/// The client lacks a capability that the server needs. By its definition this error comes before the work.
const MISSING_CAPABILITY: i32 = -32021;
/// An internal error, which says nothing about what was done.
const INTERNAL_ERROR: i32 = -32603;
/// The parameters lack something.
const INVALID_PARAMS: i32 = -32602;
/// The request does not fit what was sent before.
const INVALID_REQUEST: i32 = -32600;

/// A family of protocol versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProtocolFamily {
    /// With `initialize`.
    Legacy,
    /// With `server/discover`, or nothing.
    Modern,
}

/// How the client introduces itself with its first request.
#[derive(Clone, Debug)]
pub(super) struct ClientIntroduction {
    pub(super) family: ProtocolFamily,
    parameters: Members,
}

impl ClientIntroduction {
    pub(super) fn new(family: ProtocolFamily, parameters: &Members) -> Self {
        Self { family, parameters: parameters.clone() }
    }

    /// The parameters of `initialize`. A server of the other family is told that the client has no capabilities, so that it makes
    /// no requests of it.
    pub(super) fn initialize(&self) -> Members {
        if self.family == ProtocolFamily::Legacy {
            return self.parameters.clone();
        }
        let mut parameters = Members::default();
        parameters.set("protocolVersion", &LEGACY);
        parameters.set("capabilities", &json!({}));
        let meta = self.parameters.object("_meta").unwrap_or_default();
        parameters.set("clientInfo", &meta.get(CLIENT).map_or_else(gateway_info, ToOwned::to_owned));
        parameters
    }

    /// The parameters of `server/discover`.
    pub(super) fn discover(&self) -> Members {
        let mut parameters = Members::default();
        parameters.set("_meta", &self.envelope());
        parameters
    }

    /// What every request carries in its `_meta`.
    pub(super) fn envelope(&self) -> Members {
        let mut envelope = Members::default();
        if self.family == ProtocolFamily::Modern {
            let meta = self.parameters.object("_meta").unwrap_or_default();
            for name in [VERSION, CLIENT, CAPABILITIES] {
                if let Some(value) = meta.get(name) {
                    envelope.set(name, &value);
                }
            }
            return envelope;
        }
        envelope.set(VERSION, &MODERN);
        envelope.set(CLIENT, &self.parameters.get("clientInfo").map_or_else(gateway_info, ToOwned::to_owned));
        envelope.set(CAPABILITIES, &json!({}));
        envelope
    }
}

/// How messages between the client and a server are translated.
#[derive(Clone, Debug)]
pub(super) enum Translation {
    /// Not at all: both use the same family.
    None,
    /// Requests lose the envelope, which the server does not know.
    StripEnvelope,
    /// Requests get this envelope, which the server needs.
    AddEnvelope(Members),
}

impl Translation {
    pub(super) fn between(client: &ClientIntroduction, server: ProtocolFamily) -> Self {
        match (client.family, server) {
            (ProtocolFamily::Modern, ProtocolFamily::Legacy) => Self::StripEnvelope,
            (ProtocolFamily::Legacy, ProtocolFamily::Modern) => Self::AddEnvelope(client.envelope()),
            _ => Self::None,
        }
    }

    /// Translates the parameters of a request for the server.
    pub(super) fn to_server(&self, parameters: &mut Members) {
        let mut meta = parameters.object("_meta").unwrap_or_default();
        match self {
            Self::None => return,
            Self::StripEnvelope => {
                for name in [VERSION, CLIENT, CAPABILITIES, LEVEL] {
                    meta.remove(name);
                }
            }
            Self::AddEnvelope(envelope) => {
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

    /// The log level that a legacy client sets once goes with every request.
    pub(super) fn set_level(&mut self, level: &RawValue) {
        if let Self::AddEnvelope(envelope) = self {
            envelope.set(LEVEL, &level);
        }
    }

    /// Translates a response for the client; `None` when it stays as it is.
    pub(super) fn to_client(&self, response: &Members) -> Option<Members> {
        let mut result = response.object("result")?;
        let mut response = response.clone();
        match self {
            Self::None => return None,
            Self::StripEnvelope => complete(&mut result),
            Self::AddEnvelope(_) => {
                let kind = result.text("resultType").filter(|kind| kind != "complete");
                result.remove("resultType");
                if let Some(kind) = kind {
                    let (code, why) = unknown_result(&kind);
                    response.remove("result");
                    response.set("error", &json!({ "code": code, "message": format!("onceward: {why}") }));
                    return Some(response);
                }
            }
        }
        response.set("result", &result);
        Some(response)
    }
}

/// The error for a kind of result that the client does not know. Only a server that asks for input has not begun the work: it
/// was told that the client cannot be asked, and asks all the same.
fn unknown_result(kind: &str) -> (i32, String) {
    match kind {
        "input_required" => {
            (MISSING_CAPABILITY, "the server asks for input, which this client cannot be asked for".to_owned())
        }
        "task" => {
            let why = "the server continues the call as a task, which this client cannot follow. If the call is guarded, make \
                       exactly the same call again later: it gets the result, and does not run twice.";
            (INTERNAL_ERROR, why.to_owned())
        }
        _ => (
            INTERNAL_ERROR,
            format!("the server answers with a result of type {kind}, which this client does not know"),
        ),
    }
}

/// Completes a result for clients of the modern protocol. A result that could be cached says for how long: not at all.
pub(super) fn complete(result: &mut Members) {
    if result.get("resultType").is_none() {
        result.set("resultType", &"complete");
    }
    let cacheable = ["contents", "tools", "prompts", "resources", "resourceTemplates", "supportedVersions"];
    if cacheable.iter().any(|name| result.get(name).is_some()) && result.get("ttlMs").is_none() {
        result.set("ttlMs", &0);
        result.set("cacheScope", &"private");
    }
}

/// The protocol family that a request shows, if any: a modern one always does.
pub(super) fn family_of(method: &str, parameters: &Members) -> Option<ProtocolFamily> {
    let meta = parameters.object("_meta");
    match method {
        "initialize" => Some(ProtocolFamily::Legacy),
        "server/discover" => Some(ProtocolFamily::Modern),
        _ => meta.is_some_and(|meta| meta.get(VERSION).is_some()).then_some(ProtocolFamily::Modern),
    }
}

/// The error for a request that does not fit the family of the connection, or that is not complete.
pub(super) fn refusal(connection: Option<ProtocolFamily>, method: &str, parameters: &Members) -> Option<Box<RawValue>> {
    use ProtocolFamily::{Legacy, Modern};
    let meta = parameters.object("_meta").unwrap_or_default();
    let asked = if method == "initialize" { parameters.text("protocolVersion") } else { meta.text(VERSION) };
    let (code, why) = match (connection, family_of(method, parameters)) {
        (Some(Legacy), Some(Modern)) => (INVALID_REQUEST, "this connection began with initialize"),
        // A client that gave up on its first request too early learns from this that the gateway understood it.
        (Some(Modern), Some(Legacy)) => (UNSUPPORTED_VERSION, "this connection uses a version without initialize"),
        (_, Some(Modern)) if asked.as_ref().is_some_and(|asked| asked != MODERN) => {
            (UNSUPPORTED_VERSION, "this protocol version is not supported")
        }
        (_, Some(Modern)) | (Some(Modern), None) if asked.is_none() || meta.object(CAPABILITIES).is_none() => {
            (INVALID_PARAMS, "params._meta lacks the protocol version or the capabilities of the client")
        }
        _ => return None,
    };
    let mut error = json!({ "code": code, "message": format!("onceward: {why}") });
    if code == UNSUPPORTED_VERSION {
        error["data"] = json!({ "supported": [MODERN], "requested": asked });
    }
    to_raw_value(&error).ok()
}

/// The name of the gateway, for a client that does not name itself.
fn gateway_info() -> Box<RawValue> {
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
    fn a_server_of_the_other_family_is_told_that_the_client_has_no_capabilities() {
        let client = ClientIntroduction::new(ProtocolFamily::Modern, &modern());
        let said = client.initialize().to_json();
        assert_eq!(said, r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c"}}"#);
        let asked = client.discover().object("_meta").unwrap();
        assert_eq!((asked.len(), asked.object(CAPABILITIES).unwrap().len()), (3, 1));
        let client = ClientIntroduction::new(ProtocolFamily::Legacy, &legacy());
        assert_eq!(client.initialize().to_json(), legacy().to_json());
        let envelope = client.envelope();
        assert_eq!(envelope.text(VERSION).as_deref(), Some(MODERN));
        assert_eq!(envelope.object(CAPABILITIES).unwrap().len(), 0);
    }

    #[test]
    fn a_request_gets_the_envelope_that_its_server_needs_or_loses_it() {
        let translation =
            Translation::between(&ClientIntroduction::new(ProtocolFamily::Modern, &modern()), ProtocolFamily::Legacy);
        let mut parameters = modern();
        translation.to_server(&mut parameters);
        assert_eq!(parameters.to_json(), "{}");
        let mut parameters = members(&json!({ "_meta": { VERSION: MODERN, "progressToken": 7 } }));
        translation.to_server(&mut parameters);
        assert_eq!(parameters.to_json(), r#"{"_meta":{"progressToken":7}}"#);
        let mut translation =
            Translation::between(&ClientIntroduction::new(ProtocolFamily::Legacy, &legacy()), ProtocolFamily::Modern);
        translation.set_level(&to_raw_value("info").unwrap());
        let mut parameters = members(&json!({ "name": "t", "_meta": { "progressToken": 7 } }));
        translation.to_server(&mut parameters);
        let meta = parameters.object("_meta").unwrap();
        assert_eq!((meta.text(VERSION).as_deref(), meta.text(LEVEL).as_deref()), (Some(MODERN), Some("info")));
        assert_eq!(meta.get("progressToken").unwrap().get(), "7");
    }

    #[test]
    fn only_modern_clients_get_the_type_of_a_result() {
        let strips =
            Translation::between(&ClientIntroduction::new(ProtocolFamily::Modern, &modern()), ProtocolFamily::Legacy);
        let told = |translation: &Translation, result: Value| {
            translation.to_client(&members(&json!({ "id": 1, "result": result }))).map(|response| response.to_json())
        };
        assert_eq!(told(&strips, json!({ "a": 1 })).unwrap(), r#"{"id":1,"result":{"a":1,"resultType":"complete"}}"#);
        assert!(told(&strips, json!({ "contents": [] })).unwrap().contains(r#""ttlMs":0,"cacheScope":"private""#));
        let adds =
            Translation::between(&ClientIntroduction::new(ProtocolFamily::Legacy, &legacy()), ProtocolFamily::Modern);
        assert_eq!(told(&adds, json!({ "resultType": "complete" })).unwrap(), r#"{"id":1,"result":{}}"#);
        // Only the first of them says that nothing was done.
        for (kind, code) in [("input_required", "-32021"), ("task", "-32603"), ("partial", "-32603")] {
            assert!(told(&adds, json!({ "resultType": kind })).unwrap().contains(code), "{kind}");
        }
        assert!(told(&Translation::None, json!({})).is_none());
        assert!(strips.to_client(&members(&json!({ "id": 1, "error": {} }))).is_none());
    }

    #[test]
    fn a_connection_stays_with_the_family_in_which_it_began() {
        let code = |so_far, method: &str, parameters: &Members| {
            let error = refusal(so_far, method, parameters)?;
            Members::read(error.get()).unwrap().get("code").map(|code| code.get().to_owned())
        };
        let (none, code_of) = (Members::default(), |code: &str| Some(code.to_owned()));
        assert_eq!(code(None, "server/discover", &modern()), None);
        assert_eq!(code(None, "server/discover", &none), code_of("-32602"));
        assert_eq!(code(None, "initialize", &legacy()), None);
        assert_eq!(code(None, "tools/list", &none), None);
        assert_eq!(code(Some(ProtocolFamily::Modern), "initialize", &legacy()), code_of("-32022"));
        assert_eq!(code(Some(ProtocolFamily::Modern), "tools/list", &none), code_of("-32602"));
        assert_eq!(code(Some(ProtocolFamily::Modern), "tools/list", &modern()), None);
        assert_eq!(code(Some(ProtocolFamily::Legacy), "tools/list", &modern()), code_of("-32600"));
        assert_eq!(code(Some(ProtocolFamily::Legacy), "tools/list", &none), None);
        let later = members(&json!({ "_meta": { VERSION: "2027-01-01", CAPABILITIES: {} } }));
        assert_eq!(code(None, "tools/list", &later), code_of("-32022"));
    }
}
