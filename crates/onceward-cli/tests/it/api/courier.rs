//! `onceward serve` and `onceward courier` deliver to a real HTTP server, are killed, and share one ledger.

use std::process::{Child, Stdio};

use serde_json::json;

use super::downstream::{Downstream, Mode};
use super::server::TestServer;
use crate::test_folder::{TestFolder, wait_until};

fn config(downstream: &Downstream, more: &str) -> String {
    format!(
        "[operation.charge]\nsink = \"pay\"\n[sink.pay]\ntype = \"http\"\nurl = \"{}/v1/charges\"\nallow_private = true\n\
         reference = \"/id\"\nretry = {{ base = \"1ms\", cap = \"20ms\", max_attempts = 50 }}\n\
         budget = {{ percent = 1000, per_second = 1000 }}\nbreaker = {{ failures = 10000 }}\n{more}",
        downstream.url()
    )
}

fn states(folder: &TestFolder, state: &str) -> usize {
    let page = folder.json(&["list", "--state", state, "--limit", "1000", "--json"]);
    page["intents"].as_array().unwrap().len()
}

fn start_courier(folder: &TestFolder) -> Child {
    let mut courier = folder.command(&["courier"]);
    courier.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill(mut courier: Child) {
    courier.kill().unwrap();
    courier.wait().unwrap();
}

#[test]
fn what_is_queued_over_the_api_is_delivered_by_the_server() {
    let downstream = Downstream::start(Mode::Busy, true);
    let server = TestServer::start(&config(&downstream, ""));
    let client = server.client();
    let entry = json!({"operation": "charge", "key": "invoice-1", "payload": {"cents": 1999}});
    let first = client.post("/v1/enqueue", &entry);
    assert_eq!(first.status, 200, "{first:?}");
    wait_until(|| downstream.bodies().len() > 2);
    assert_eq!(downstream.effects().len(), 0, "it refuses");
    downstream.set(Mode::Works);
    wait_until(|| states(&server.folder, "done") == 1);
    assert_eq!(downstream.effects().into_values().collect::<Vec<_>>(), [1]);
    assert!(downstream.bodies().iter().all(|body| body == "{\"cents\":1999}"), "{:?}", downstream.bodies());
    let again = client.post("/v1/enqueue", &entry);
    assert!(again.text.contains("already_enqueued") && again.text.contains("ch_1"), "{again:?}");
    let found = server.folder.json(&["list", "--reference", "ch_1", "--json"]);
    assert_eq!(found["intents"][0]["key"], "invoice-1");
}

#[test]
fn entries_that_a_courier_delivers_are_not_leased_to_workers() {
    let downstream = Downstream::start(Mode::Busy, true);
    let server = TestServer::start(&config(&downstream, ""));
    let lease = json!({"lease_id": "worker-1-0001", "operation": "charge", "limit": 1});
    let refused = server.client().post("/v1/lease", &lease);
    assert!((400..500).contains(&refused.status) && refused.text.contains("pay"), "{refused:?}");
}

#[test]
fn under_hold_a_lost_answer_waits_for_a_person() {
    let downstream = Downstream::start(Mode::Silent, false);
    let folder = TestFolder::new();
    folder.write("onceward.toml", &format!("store = \"ledger.db\"\n{}", config(&downstream, "")));
    folder.onceward(&["enqueue", "--operation", "charge", "--key", "a", "--payload", "1"]).says(0, &[]);
    folder.onceward(&["courier", "--until-idle"]).says(0, &[]);
    assert_eq!(states(&folder, "in_doubt"), 1);
    folder.onceward(&["courier", "--until-idle"]).says(0, &[]);
    assert_eq!(downstream.effects().into_values().collect::<Vec<_>>(), [1], "it is not sent again");
    folder.onceward(&["resolve", "--operation", "charge", "--key", "a", "--did-not-happen"]).says(0, &[]);
    downstream.set(Mode::Works);
    folder.onceward(&["courier", "--until-idle"]).says(0, &[]);
    assert_eq!(states(&folder, "done"), 1);
}

/// Couriers are killed in the middle of attempts again and again, while ten commands queue the same entries.
fn killed_couriers(honours_keys: bool, more: &str) -> (TestFolder, Downstream) {
    let downstream = Downstream::start(Mode::Slow, honours_keys);
    let folder = TestFolder::new();
    folder.write("onceward.toml", &format!("store = \"ledger.db\"\n{}", config(&downstream, more)));
    let lines: String = (0..40).map(|number| format!("{{\"key\": \"{number}\", \"payload\": {number}}}\n")).collect();
    folder.write("entries", &lines);
    for _ in 0..2 {
        let script = "\"$0\" enqueue --operation charge --batch < entries";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_onceward")]).current_dir(folder.path("."));
        let queued = command.stdin(Stdio::null()).output().unwrap();
        assert!(queued.status.success(), "{queued:?}");
    }
    for round in 1..=3 {
        let courier = start_courier(&folder);
        let wanted = 32 * round;
        wait_until(|| downstream.bodies().len() >= wanted.min(40));
        kill(courier);
    }
    downstream.set(Mode::Works);
    (folder, downstream)
}

#[test]
fn couriers_that_are_killed_lose_nothing_and_double_nothing_where_keys_are_honoured() {
    let (folder, downstream) = killed_couriers(true, "honours_key = true\n");
    let courier = start_courier(&folder);
    wait_until(|| states(&folder, "done") == 40);
    kill(courier);
    let effects = downstream.effects();
    assert_eq!((effects.len(), effects.values().sum::<usize>()), (40, 40));
}

#[test]
fn couriers_that_are_killed_double_nothing_under_hold_and_every_doubt_is_listed() {
    let (folder, downstream) = killed_couriers(false, "");
    let courier = start_courier(&folder);
    wait_until(|| states(&folder, "done") + states(&folder, "in_doubt") == 40);
    kill(courier);
    let effects = downstream.effects();
    assert!(effects.values().all(|times| *times == 1), "{effects:?}");
    assert!(states(&folder, "in_doubt") > 0, "the killed attempts may have happened");
}

#[test]
fn a_paused_queue_is_shown_and_goes_on() {
    let downstream = Downstream::start(Mode::Works, true);
    let folder = TestFolder::new();
    folder.write("onceward.toml", &format!("store = \"ledger.db\"\n{}", config(&downstream, "")));
    folder.onceward(&["enqueue", "--operation", "charge", "--key", "a", "--payload", "1"]).says(0, &[]);
    folder.onceward(&["breakers", "--pause", "charge", "--by", "ana"]).says(0, &[]);
    folder.onceward(&["courier", "--until-idle"]).says(0, &[]);
    assert_eq!(downstream.effects().len(), 0);
    let shown = folder.json(&["breakers", "--json"]);
    assert_eq!((&shown["breakers"][0]["state"], &shown["breakers"][0]["by"]), (&json!("paused"), &json!("ana")));
    assert_eq!(states(&folder, "open"), 0, "notes of couriers are not intents");
    folder.onceward(&["breakers", "--resume", "charge"]).says(0, &[]);
    folder.onceward(&["courier", "--until-idle"]).says(0, &[]);
    assert_eq!(downstream.effects().len(), 1);
}

#[test]
fn mistakes_in_sinks_are_reported_with_their_place() {
    let folder = TestFolder::new();
    let file = "[operation.charge]\nsink = \"stripe\"\n[sink.pay]\ntype = \"http\"\nurl = \"https://pay.example\"\nhonors_key = true\n";
    folder.write("onceward.toml", file);
    folder
        .onceward(&["courier"])
        .says(78, &["operation.charge.sink", "unknown sink", "sink.pay.honors_key", "honours_key"]);
    folder.write("onceward.toml", "[operation.charge]\n");
    folder.onceward(&["courier"]).says(78, &["no operation in the configuration names a sink"]);
}

#[test]
fn a_private_address_is_refused_before_anything_is_sent() {
    let downstream = Downstream::start(Mode::Works, true);
    let folder = TestFolder::new();
    let without = config(&downstream, "").replace("allow_private = true\n", "");
    folder.write("onceward.toml", &format!("store = \"ledger.db\"\n{without}"));
    folder.onceward(&["enqueue", "--operation", "charge", "--key", "a", "--payload", "1"]);
    let refused = folder.onceward(&["courier", "--until-idle"]);
    assert!(refused.code != 0 || states(&folder, "dead") == 1, "{refused:?}");
    assert_eq!(downstream.bodies().len(), 0);
}
