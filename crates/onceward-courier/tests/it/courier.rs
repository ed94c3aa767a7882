//! Real couriers with real sinks: the rows of the classification table from end to end.

use onceward::core::retry::{backoff, budget};
use onceward::courier::{Courier, Route};
use onceward::record::Status;
use onceward::{EnqueueOptions, InDoubt, Ledger, Policy};
use tokio::sync::oneshot;

use super::http_server::{Behaviour, Server, answer};
use super::*;

const CHARGE: &str = "charge";

fn route(sink: Arc<dyn Sink>) -> Route {
    let retry = backoff::Settings {
        base: Duration::from_millis(1),
        cap: Duration::from_millis(2),
        ..backoff::Settings::default()
    };
    let budget = budget::Settings { percent: 100, per_second: 1000, burst: 1000 };
    Route { retry, budget, settle: Duration::ZERO, ..Route::to("test", sink) }
}

async fn ledger(policy: Policy) -> Ledger {
    Ledger::builder().policy(CHARGE, policy).open("memory:").await.unwrap()
}

async fn queue(ledger: &Ledger, key: &str, payload: &str) {
    let entry = ledger.operation(CHARGE).key(key);
    entry.enqueue_json(payload.as_bytes().to_vec(), EnqueueOptions::default()).await.unwrap();
}

async fn status(ledger: &Ledger, key: &str) -> Option<Status> {
    let identity =
        Identity { tenant: Tenant::default(), operation: Operation::new(CHARGE).unwrap(), key: Key::new(key).unwrap() };
    ledger.get(&identity).await.unwrap().and_then(|intent| intent.status())
}

/// Runs a courier until every entry has a status in which it rests.
async fn deliver(ledger: &Ledger, sink: Arc<dyn Sink>, keys: &[String], rests: &[Status]) {
    let courier = Courier::new(ledger.clone()).route(CHARGE, route(sink)).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(courier.run(async {
        let _ = stopped.await;
    }));
    let waiting = async {
        for key in keys {
            while !status(ledger, key).await.is_some_and(|status| rests.contains(&status)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("every entry comes to rest");
    stop.send(()).unwrap();
    running.await.unwrap();
}

fn http(server: &Server, more: &str) -> Arc<dyn Sink> {
    sink(&format!("type = \"http\"\nurl = {:?}\nallow_private = true\n{more}", server.url("/v1/charges")))
}

#[tokio::test]
async fn an_entry_comes_to_rest_as_its_row_says_with_its_requests_counted() {
    let ok = || answer("200 OK", "", "{}");
    let plain = |status: &str| answer(status, "", "{}");
    let later = |status: &str| answer(status, "retry-after: 0\r\n", "{}");
    let lost = || Behaviour::CloseInsteadOfAnswer;
    let rows = [
        (vec![ok()], InDoubt::Hold, Status::Done, 1),
        (vec![plain("404 X")], InDoubt::Hold, Status::Done, 1),
        (vec![plain("500 X"), ok()], InDoubt::Hold, Status::InDoubt, 1),
        (vec![plain("500 X"), ok()], InDoubt::Retry, Status::Done, 2),
        (vec![plain("401 X")], InDoubt::Hold, Status::Dead, 1),
        (vec![lost(), plain("409 X"), ok()], InDoubt::Retry, Status::Done, 3),
        (vec![plain("403 X")], InDoubt::Retry, Status::Dead, 1),
        (vec![plain("429 X"), later("503 X"), ok()], InDoubt::Hold, Status::Done, 3),
        (vec![plain("429 X")], InDoubt::Hold, Status::Dead, 3),
        (vec![plain("503 X"), ok()], InDoubt::Hold, Status::InDoubt, 1),
        (vec![plain("504 X"), ok()], InDoubt::Hold, Status::InDoubt, 1),
        (vec![plain("302 X"), ok()], InDoubt::Hold, Status::InDoubt, 1),
        (vec![lost(), ok()], InDoubt::Hold, Status::InDoubt, 1),
        (vec![plain("503 X"), lost(), ok()], InDoubt::Retry, Status::Done, 3),
    ];
    for (behaviours, in_doubt, expected, requests) in rows {
        let shown = format!("{behaviours:?} {in_doubt:?}");
        let server = Server::sequence(behaviours).await;
        let ledger = ledger(Policy { in_doubt, max_attempts: Some(3), ..Policy::default() }).await;
        queue(&ledger, "a", "{}").await;
        let rests = [Status::Done, Status::Dead, Status::InDoubt];
        // A doubt that may be retried does not rest.
        let rests = if in_doubt == InDoubt::Retry { &rests[..2] } else { &rests[..] };
        deliver(&ledger, http(&server, "honours_key = true"), &["a".to_owned()], rests).await;
        assert_eq!(status(&ledger, "a").await, Some(expected), "{shown}");
        assert_eq!(server.effects(), requests, "{shown}");
        let keys = server.requests();
        let key_of =
            |request: &String| request.lines().find(|line| line.starts_with("idempotency-key: ")).map(str::to_owned);
        assert!(keys.iter().all(|request| key_of(request) == key_of(&keys[0]) && key_of(request).is_some()), "{shown}");
    }
}

#[tokio::test]
async fn a_probe_settles_a_doubt_without_a_second_effect() {
    let charges = Server::start(Behaviour::CloseInsteadOfAnswer).await;
    let found = answer("200 OK", "content-type: application/json\r\n", "{\"data\":[{\"id\":\"ch_1\"}]}");
    let list = Server::sequence(vec![answer("500 X", "", ""), found]).await;
    let probe =
        format!("probe = {{ url = {:?}, found = \"/data/0\" }}", list.url("/v1/charges?key={{ downstream_key }}"));
    let ledger = ledger(Policy { in_doubt: InDoubt::Probe, ..Policy::default() }).await;
    queue(&ledger, "a", "{}").await;
    deliver(&ledger, http(&charges, &probe), &["a".to_owned()], &[Status::Done]).await;
    assert_eq!((charges.effects(), list.effects()), (1, 2));
}

#[tokio::test]
async fn poisoned_entries_die_and_every_neighbour_is_delivered_once() {
    let server = Server::answering("200 OK", "", "{}").await;
    let folder = tempfile::tempdir().unwrap();
    let effects = folder.path().join("effects");
    let script = format!("grep -q ann || exit 64; echo x >> {}", effects.display());
    let sinks = [
        http(&server, "body = '{\"to\": \"{{ payload.to|upper }}\"}'\nheaders = { X-To = \"{{ payload.to }}\" }"),
        sink(&format!("type = \"command\"\ncommand = [\"sh\", \"-c\", {script:?}]")),
    ];
    for sink in sinks {
        let ledger = ledger(Policy::default()).await;
        let poison = ["{}", "[]", "{\"to\":null}", "{\"to\":\"a\\r\\nX: 1\"}", "{\"to\":{}}"];
        let mut keys = Vec::new();
        for number in 0..30 {
            let payload = if number % 2 == 0 { "{\"to\":\"ann\"}" } else { poison[number / 2 % 5] };
            keys.push(format!("{number}"));
            queue(&ledger, &keys[number], payload).await;
        }
        deliver(&ledger, sink, &keys, &[Status::Done, Status::Dead]).await;
        for key in keys.iter().step_by(2) {
            assert_eq!(status(&ledger, key).await, Some(Status::Done), "{key}");
        }
    }
    assert_eq!(server.effects(), 15);
    assert_eq!(std::fs::read_to_string(&effects).unwrap().lines().count(), 15);
}
