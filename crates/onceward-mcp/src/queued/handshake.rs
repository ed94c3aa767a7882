//! Agrees on a protocol version with a server that was started, without offering it any capability, and asks for its tools.

use serde_json::{Value, json};

use super::super::inspect::conversation::{
    ErrorResponse, HANDSHAKE_VERSION, STATELESS_VERSION, client_info, error_response,
};
use super::super::list::{cursor, learned};
use super::super::members::Members;
use super::super::tools::Tools;
use super::server_pipes::{RequestEnd, ServerPipes};

/// The most pages that a list of tools may have, as in the gateway.
const MAX_PAGES: usize = 50;

/// The error of a server that does not know a method.
const UNKNOWN_METHOD: i64 = -32601;

/// Why a request of the handshake has no result.
enum HandshakeError {
    Refused(ErrorResponse),
    Failed(String),
}

impl HandshakeError {
    fn text(self, method: &str) -> String {
        match self {
            Self::Refused(ErrorResponse { code, message, .. }) => {
                format!("it refused {method}: error {code}: {message}")
            }
            Self::Failed(why) => why,
        }
    }
}

/// Begins to talk to a server. Returns the `_meta` of every further request.
pub(super) async fn begin(pipes: &ServerPipes) -> Result<Option<Members>, String> {
    let refused = match initialize(pipes, HANDSHAKE_VERSION).await {
        Ok(()) => return Ok(None),
        Err(HandshakeError::Refused(refused)) => refused,
        Err(error) => return Err(error.text("initialize")),
    };
    let is_stateless = refused.supported.is_empty() || refused.supported.iter().any(|one| one == STATELESS_VERSION);
    if let Some(other) = refused.supported.last().filter(|_| !is_stateless) {
        let initialized = initialize(pipes, other).await.map_err(|error| error.text("initialize"));
        return initialized.map(|()| None);
    }
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": STATELESS_VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client_info(),
    });
    let meta = members(&meta);
    match ask(pipes, "server/discover", json!({}), Some(&meta)).await {
        Ok(_) => Ok(Some(meta)),
        Err(HandshakeError::Refused(_)) => Err(HandshakeError::Refused(refused).text("initialize")),
        Err(error) => Err(error.text("server/discover")),
    }
}

async fn initialize(pipes: &ServerPipes, version: &str) -> Result<(), HandshakeError> {
    let parameters = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client_info() });
    ask(pipes, "initialize", parameters, None).await?;
    pipes.notify("notifications/initialized").await;
    Ok(())
}

/// Learns the tools of a server: the form of a key depends on the schema of its argument.
pub(super) async fn learn_tools(pipes: &ServerPipes, meta: Option<&Members>, tools: &Tools) -> Result<(), String> {
    let mut parameters = json!({});
    for _ in 0..MAX_PAGES {
        let page = match ask(pipes, "tools/list", parameters, meta).await {
            Err(HandshakeError::Refused(refused)) if refused.code == UNKNOWN_METHOD => return Ok(()),
            page => page.map_err(|error| error.text("tools/list"))?,
        };
        if learned(&page, tools).is_none() {
            return Err("its list of tools cannot be read".to_owned());
        }
        match cursor(&page) {
            Some(next) => parameters = json!({ "cursor": next }),
            None => return Ok(()),
        }
    }
    Err(format!("its list of tools has no end; {MAX_PAGES} pages were read"))
}

async fn ask(
    pipes: &ServerPipes,
    method: &str,
    parameters: Value,
    meta: Option<&Members>,
) -> Result<Members, HandshakeError> {
    let mut parameters = members(&parameters);
    if let Some(meta) = meta {
        parameters.set("_meta", meta);
    }
    let answer = match pipes.request(method, &parameters).await {
        RequestEnd::Answered(answer) => answer,
        RequestEnd::NotSent(why) | RequestEnd::Lost(why) => return Err(HandshakeError::Failed(why)),
    };
    if let Some(result) = answer.object("result") {
        return Ok(result);
    }
    match answer.object("error") {
        Some(error) => Err(HandshakeError::Refused(error_response(&error))),
        None => Err(HandshakeError::Failed(format!("its response to {method} has neither a result nor an error"))),
    }
}

fn members(value: &Value) -> Members {
    Members::read(&value.to_string()).unwrap_or_default()
}
