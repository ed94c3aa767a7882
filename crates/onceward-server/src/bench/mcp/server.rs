//! A tool server at its barest: it answers at once, and counts how often it has acted.

use std::io::{BufRead, Write};

use super::talk::{self, ACT, Called, LOOK, Request};
use crate::exit::{self, Fault};

/// Answers until its input is closed.
pub(in super::super) fn run() -> Result<u8, Fault> {
    let (mut from, mut to) = (std::io::stdin().lock(), std::io::stdout().lock());
    let (mut line, mut answer, mut acted) = (String::new(), String::new(), 0);
    while from.read_line(&mut line).map_err(gone)? > 0 {
        answer.clear();
        let request: Request<'_> = serde_json::from_str(&line).map_err(Fault::usage)?;
        if let Some(id) = request.id {
            match request.method {
                "initialize" => talk::result(&mut answer, id, talk::WELCOME),
                "tools/list" => talk::result(&mut answer, id, talk::TOOLS),
                "tools/call" => {
                    acted += u64::from(acts(&request)?);
                    talk::result(&mut answer, id, &talk::counted(acted));
                }
                other => return Err(Fault::usage(format!("nobody asks for {other}"))),
            }
            to.write_all(answer.as_bytes()).and_then(|()| to.flush()).map_err(gone)?;
        }
        line.clear();
    }
    Ok(0)
}

fn acts(request: &Request<'_>) -> Result<bool, Fault> {
    let parameters = request.params.map_or("", |parameters| parameters.get());
    let called: Called<'_> = serde_json::from_str(parameters).map_err(Fault::usage)?;
    match called.name {
        ACT => Ok(true),
        LOOK => Ok(false),
        other => Err(Fault::usage(format!("there is no tool {other}"))),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn gone(error: std::io::Error) -> Fault {
    Fault::new(exit::STORE, format!("the client is gone: {error}"))
}
