//! The API with two tokens: a tenant neither replays nor sees the intents of another.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{Outcome, same};
use crate::kills::product::end;
use crate::kills::{KillRun, web};

/// Tenants with the variables that hold their tokens, and the tokens.
const TOKENS: [(&str, &str, &str); 2] = [
    ("ann", "SIM_ANN", "ann-token-0123456789abcdef0123456789abcdef"),
    ("ben", "SIM_BEN", "ben-token-0123456789abcdef0123456789abcdef"),
];

pub(super) async fn play(run: &KillRun, check: &mut impl FnMut(&str, Outcome)) {
    let tokens = TOKENS.map(|(tenant, variable, _)| {
        format!("[[api.token]]\ntenant = {tenant:?}\nsecret = \"env:{variable}\"\nscopes = [\"use\"]\n")
    });
    let file = run.folder().join("onceward.toml");
    std::fs::write(&file, format!("[api]\n{}", tokens.concat())).expect("the folder can be written");
    let mut command = run.product.command(&["serve", "--listen", "127.0.0.1:0", "--config"]);
    command.arg(file).arg("--store").arg(run.store()).stdout(Stdio::piped()).stderr(Stdio::null());
    TOKENS.iter().for_each(|(_, variable, token)| {
        command.env(variable, token);
    });
    let mut child = command.spawn().expect("the product can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("its first line").unwrap_or_default();
    let address = line.rsplit_once("http://").map(|(_, at)| at.to_owned()).unwrap_or_default();
    check("api: two tenants may use the same key", tenants(&address).await);
    end(&mut child).await;
}

async fn tenants(address: &str) -> Outcome {
    let mut decisions = Vec::new();
    for (_, _, token) in [TOKENS[0], TOKENS[1], TOKENS[0]] {
        let bearer = format!("Bearer {token}");
        let body = json!({ "operation": "charge", "key": "shared" }).to_string();
        let asked = web::ask(address, "/v1/begin", &[("authorization", &bearer)], Some(body)).await;
        let (_, _, text) = asked.map_err(|error| format!("no answer: {error}"))?;
        let answer: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        decisions.push(answer["decision"].as_str().unwrap_or_default().to_owned());
    }
    same("the decisions", &decisions, &["acquired", "acquired", "in_flight"].map(str::to_owned).to_vec())
}
