//! Runs cases against a surface, a few concurrently, and reports everything unexpected.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use onceward::Ledger;

use super::case::{Case, Expect, On, Step, TestRequest};
use super::client::send;
use super::script::Script;
use super::surface::{Surface, SurfaceKind};

/// Each case has its own process.
const CONCURRENT_CASES: usize = 6;

/// Runs all cases that can occur on a surface.
pub(super) async fn all(kind: SurfaceKind, cases: Vec<Case>) {
    let here = match kind {
        SurfaceKind::Gateway => On::Gateway,
        SurfaceKind::Layer => On::Layer,
    };
    let cases: Vec<Case> = cases.into_iter().filter(|case| case.on == On::Both || case.on == here).collect();
    assert!(!cases.is_empty());
    let playing = futures_util::stream::iter(cases).map(|case| tokio::spawn(play(kind, case)));
    let mut playing = playing.buffer_unordered(CONCURRENT_CASES);
    let mut faults = Vec::new();
    while let Some(played) = playing.next().await {
        faults.extend(played.unwrap());
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Runs a case and returns everything unexpected.
async fn play(kind: SurfaceKind, case: Case) -> Vec<String> {
    let effects = case.script.len();
    let script = Script::new(case.script.clone());
    let mut surface = Surface::start(kind, &case.setting, Arc::clone(&script)).await;
    let mut faults = Vec::new();
    for (index, step) in case.steps.into_iter().enumerate() {
        let found = take(&mut surface, step).await;
        faults.extend(found.into_iter().map(|fault| format!("{kind:?}: {}: step {}: {fault}", case.name, index + 1)));
    }
    let reached = script.effects();
    if reached != effects {
        faults.push(format!("{kind:?}: {}: {reached} effects instead of {effects}", case.name));
    }
    faults
}

async fn take(surface: &mut Surface, step: Step) -> Vec<String> {
    let (address, script) = (surface.address, Arc::clone(&surface.script));
    let exchanged = move |sent: TestRequest, expect: Expect| async move {
        match send(address, sent, |_| {}).await {
            Ok(answer) => answer.faults(&expect),
            Err(what) => vec![what],
        }
    };
    // The declared length is one more than the actual one, so that the surface waits for the rest.
    let unfinished = |mut sent: TestRequest| {
        sent.headers.push(("content-length", (sent.body.len() + 1).to_string().into_bytes()));
        sent
    };
    match step {
        Step::Send(sent, expect) => exchanged(sent, expect).await,
        Step::Unfinished(sent, expect) => exchanged(unfinished(sent), expect).await,
        Step::Together(requests) => {
            let mut running = Vec::new();
            for (index, (sent, expect)) in requests.into_iter().enumerate() {
                let before = script.effects();
                running.push(tokio::spawn(exchanged(sent, expect)));
                if index == 0 {
                    script.wait_for(before + 1).await;
                }
            }
            let mut faults = Vec::new();
            for one in running {
                faults.extend(one.await.unwrap());
            }
            faults
        }
        Step::GivesUp(sent) => {
            let before = script.effects();
            let client = tokio::spawn(send(address, sent, |_| {}));
            script.wait_for(before + 1).await;
            client.abort();
            Vec::new()
        }
        Step::PieceByPiece(sent, pieces) => {
            let allowed = Arc::clone(&script.pieces);
            let mut seen = Vec::new();
            let answer = send(address, sent, |piece| {
                seen.push(String::from_utf8_lossy(piece).into_owned());
                allowed.add_permits(1);
            });
            match answer.await {
                Ok(answer) if answer.whole && seen == pieces => Vec::new(),
                Ok(answer) => vec![format!("{seen:?}, whole: {}", answer.whole)],
                Err(what) => vec![what],
            }
        }
        Step::Wait(time) => {
            tokio::time::sleep(time).await;
            Vec::new()
        }
        Step::UpstreamComesUp => {
            surface.upstream_comes_up();
            Vec::new()
        }
        Step::LedgerBreaks => {
            let ledger = rusqlite::Connection::open(surface.ledger()).unwrap();
            ledger.busy_timeout(Duration::from_secs(10)).unwrap();
            ledger.execute_batch("ALTER TABLE intent RENAME TO gone").unwrap();
            Vec::new()
        }
        Step::StreamTakes(stream) => {
            let ledger = Ledger::open(surface.ledger()).await.unwrap();
            let item = ledger.operation("POST /v1/charges").tenant("acme").item(stream, 1);
            item.run(|_| async { Ok(()) }).await.unwrap();
            ledger.close().await;
            Vec::new()
        }
    }
}
