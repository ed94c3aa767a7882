//! The HTTP gateway: unknown outcomes are held, and a repeat gets the whole first answer, for its own caller only.

use std::process::Stdio;

use http::HeaderMap;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use super::{Outcome, effects, same, upstream};
use crate::kills::product::end;
use crate::kills::{KillRun, web};

/// The credentials of two callers.
const ANN: &str = "Bearer ann-key-1";
const BEN: &str = "Bearer ben-key-2";

struct Gateway {
    child: Child,
    address: String,
}

async fn start(run: &KillRun, port: u16) -> Gateway {
    let (store, upstream) = (run.store(), format!("http://127.0.0.1:{port}"));
    let mut command = run.product.command(&["gateway", "--listen", "127.0.0.1:0", "--wait", "0s", "--upstream"]);
    command.arg(upstream).arg("--store").arg(store).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the product can be started");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = lines.next_line().await.expect("its first line").expect("a gateway says where it listens");
    let address = line.rsplit_once("http://").map(|(_, at)| at.to_owned()).expect("an address");
    Gateway { child, address }
}

impl Gateway {
    /// The status, headers and body of an answer; for a problem, its name is the body.
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

pub(super) async fn play(run: &KillRun, check: &mut impl FnMut(&str, Outcome)) {
    let port = upstream::start(&run.effects).await;
    let mut gateway = start(run, port).await;
    check("http: a 502 after the effect is held", unknown(run, &gateway, "/bad-gateway", "bad").await);
    check("http: a connection lost after the effect is held", unknown(run, &gateway, "/lost", "lost").await);
    check("http: another body under the same key is refused", body(run, &gateway).await);
    check("http: a repeat gets no cookie", cookie(&gateway).await);
    check("http: a repeat gets the status", status(&gateway).await);
    check("http: two callers may use the same key", callers(run, &gateway).await);
    let killed = killed(run, &mut gateway, port).await;
    check("http: a gateway killed during the effect leaves a doubt", killed);
    end(&mut gateway.child).await;
}

async fn unknown(run: &KillRun, gateway: &Gateway, path: &str, key: &str) -> Outcome {
    gateway.said(ANN, path, key, "{}").await?;
    let again = gateway.said(ANN, path, key, "{}").await?;
    same("effects", &effects(run, key), &1)?;
    same("the repeat", &again.as_str(), &"in-doubt")
}

async fn body(run: &KillRun, gateway: &Gateway) -> Outcome {
    gateway.said(ANN, "/plain", "body", r#"{"amount":1}"#).await?;
    let other = gateway.said(ANN, "/plain", "body", r#"{"amount":2}"#).await?;
    same("another body", &other.as_str(), &"mismatch")?;
    same("effects", &effects(run, "body"), &1)
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

async fn callers(run: &KillRun, gateway: &Gateway) -> Outcome {
    let ann = gateway.said(ANN, "/plain", "shared", "{}").await?;
    let ben = gateway.said(BEN, "/plain", "shared", "{}").await?;
    same("the answers", &(ann, ben), &(format!("{ANN} {{}}"), format!("{BEN} {{}}")))?;
    same("effects", &effects(run, "shared"), &2)
}

/// The upstream has acted and holds its answer back; then the gateway is killed.
async fn killed(run: &KillRun, gateway: &mut Gateway, port: u16) -> Outcome {
    let asking = gateway.said(ANN, "/held", "held", "{}");
    let acted = async {
        while effects(run, "held") == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        answer = asking => return Err(format!("answered before the upstream did: {answer:?}")),
        () = acted => {}
    }
    end(&mut gateway.child).await;
    *gateway = start(run, port).await;
    let again = gateway.said(ANN, "/held", "held", "{}").await?;
    same("effects", &effects(run, "held"), &1)?;
    same("the repeat", &again.as_str(), &"in-doubt")
}
