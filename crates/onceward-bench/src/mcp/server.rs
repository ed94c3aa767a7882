//! A minimal tool server: responds at once, and counts how often it has acted.

use std::io::{BufRead, Write};

use super::messages::{self, ACT, CallParameters, ClientMessage, LOOK};
use onceward_runtime::exit::{self, Fault};

/// Responds until its stdin is closed.
pub(in super::super) fn run() -> Result<u8, Fault> {
    let (mut from, mut to) = (std::io::stdin().lock(), std::io::stdout().lock());
    let (mut line, mut answer, mut acted) = (String::new(), String::new(), 0);
    while from.read_line(&mut line).map_err(gone)? > 0 {
        answer.clear();
        let request: ClientMessage<'_> = serde_json::from_str(&line).map_err(Fault::usage)?;
        if let Some(id) = request.id {
            match request.method {
                "initialize" => messages::result(&mut answer, id, messages::WELCOME),
                "tools/list" => messages::result(&mut answer, id, messages::TOOLS),
                "tools/call" => {
                    acted += u64::from(acts(&request)?);
                    messages::result(&mut answer, id, &messages::counted(acted));
                }
                other => return Err(Fault::usage(format!("unknown method {other}"))),
            }
            to.write_all(answer.as_bytes()).and_then(|()| to.flush()).map_err(gone)?;
        }
        line.clear();
    }
    Ok(0)
}

fn acts(request: &ClientMessage<'_>) -> Result<bool, Fault> {
    let parameters = request.params.map_or("", |parameters| parameters.get());
    let called: CallParameters<'_> = serde_json::from_str(parameters).map_err(Fault::usage)?;
    match called.name {
        ACT => Ok(true),
        LOOK => Ok(false),
        other => Err(Fault::usage(format!("unknown tool {other}"))),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn gone(error: std::io::Error) -> Fault {
    Fault::new(exit::STORE, format!("the client is gone: {error}"))
}
