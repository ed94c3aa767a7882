//! The HTTP gateway: what is unknown is held, and a repeat gets the first answer, whole and to its own caller only.

use std::process::Stdio;

use http::HeaderMap;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::{Outcome, effects, same, upstream};
use crate::kills::product::end;
use crate::kills::{Stage, web};

/// One caller's credential.
const ANN: &str = "Bearer ann-key-1";
const BEN: &str = "Bearer ben-key-2";

struct Gateway {
    child: Child,
    address: String,
}

async fn start(stage: &Stage, port: u16) -> Gateway {
    let (store, upstream) = (stage.store(), format!("http://127.0.0.1:{port}"));
    let mut command = stage.product.command(&["gateway", "--listen", "127.0.0.1:0", "--wait", "0s", "--upstream"]);
    command.arg(upstream).arg("--store").arg(store).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the product can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("its first line").expect("a gateway says where it listens");
    let address = line.rsplit_once("http://").map(|(_, at)| at.to_owned()).expect("an address");
    Gateway { child, address }
}

impl Gateway {
    /// The status, the headers and the body of an answer; a problem has its name as body.
    async fn ask(&self, who: &str, path: &str, key: &str, body: &str) -> Result<(u16, HeaderMap, String), String> {
        let headers = [("authorization", who), ("idempotency-key", key)];
        let asked = web::ask(&self.address, path, &headers, Some(body.to_owned())).await;
        let (status, headers, text) = asked.map_err(|error| format!("no answer: {error}"))?;
        let problem = text.split("/problems/").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned);
        Ok((status.as_u16(), headers, problem.unwrap_or(text)))
    }

    /// The body of an answer.
    async fn said(&self, who: &str, path: &str, key: &str, body: &str) -> Result<String, String> {
        self.ask(who, path, key, body).await.map(|(_, _, text)| text)
    }
}

pub(super) async fn play(stage: &Stage, tell: &mut impl FnMut(&str, Outcome)) {
    let port = upstream::start(&stage.effects).await;
    let mut gateway = start(stage, port).await;
    tell("http: a 502 after the effect is held", unknown(stage, &gateway, "/bad-gateway", "bad").await);
    tell("http: a connection lost after the effect is held", unknown(stage, &gateway, "/lost", "lost").await);
    tell("http: another body under the same key is refused", body(stage, &gateway).await);
    tell("http: a repeat gets no cookie", cookie(&gateway).await);
    tell("http: a repeat gets the status", status(&gateway).await);
    tell("http: two callers may use the same key", callers(stage, &gateway).await);
    let killed = killed(stage, &mut gateway, port).await;
    tell("http: a gateway killed during the effect leaves a doubt", killed);
    end(&mut gateway.child).await;
}

async fn unknown(stage: &Stage, gateway: &Gateway, path: &str, key: &str) -> Outcome {
    gateway.said(ANN, path, key, "{}").await?;
    let again = gateway.said(ANN, path, key, "{}").await?;
    same("effects", &effects(stage, key), &1)?;
    same("the repeat", &again.as_str(), &"in-doubt")
}

async fn body(stage: &Stage, gateway: &Gateway) -> Outcome {
    gateway.said(ANN, "/plain", "body", r#"{"amount":1}"#).await?;
    let other = gateway.said(ANN, "/plain", "body", r#"{"amount":2}"#).await?;
    same("another body", &other.as_str(), &"mismatch")?;
    same("effects", &effects(stage, "body"), &1)
}

async fn cookie(gateway: &Gateway) -> Outcome {
    let (_, first, _) = gateway.ask(ANN, "/cookie", "cookie", "{}").await?;
    let (_, again, _) = gateway.ask(ANN, "/cookie", "cookie", "{}").await?;
    same("the cookie of the first", &first.contains_key("set-cookie"), &true)?;
    same("the mark of the repeat", &again.contains_key("idempotent-replayed"), &true)?;
    same("the cookie of the repeat", &again.contains_key("set-cookie"), &false)
}

async fn status(gateway: &Gateway) -> Outcome {
    let (first, _, text) = gateway.ask(ANN, "/created", "status", "{}").await?;
    let (again, _, repeated) = gateway.ask(ANN, "/created", "status", "{}").await?;
    same("the statuses", &(first, again), &(201, 201))?;
    same("the repeat", &repeated, &text)
}

async fn callers(stage: &Stage, gateway: &Gateway) -> Outcome {
    let ann = gateway.said(ANN, "/plain", "shared", "{}").await?;
    let ben = gateway.said(BEN, "/plain", "shared", "{}").await?;
    same("the answers", &(ann, ben), &(format!("{ANN} {{}}"), format!("{BEN} {{}}")))?;
    same("effects", &effects(stage, "shared"), &2)
}

/// The upstream has acted and holds its answer back; then the gateway is killed.
async fn killed(stage: &Stage, gateway: &mut Gateway, port: u16) -> Outcome {
    let asking = gateway.said(ANN, "/held", "held", "{}");
    let acted = async {
        while effects(stage, "held") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        answer = asking => return Err(format!("answered before the upstream did: {answer:?}")),
        () = acted => {}
    }
    end(&mut gateway.child).await;
    *gateway = start(stage, port).await;
    let again = gateway.said(ANN, "/held", "held", "{}").await?;
    same("effects", &effects(stage, "held"), &1)?;
    same("the repeat", &again.as_str(), &"in-doubt")
}
