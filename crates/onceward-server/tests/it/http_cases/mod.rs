//! One table of HTTP cases, against the gateway and the layer alike: the same requests, the same other side, the same
//! answers, and the same number of effects.
//!
//! - `case`: what a case is. `script`: the other side. `surface`: gateway and layer. `client`: who sends.
//! - `keys`, `cookies`, `answers`, `repeats`, `bodies`, `faults`: the table.

mod answers;
mod bodies;
mod case;
mod client;
mod cookies;
mod faults;
mod keys;
mod play;
mod repeats;
mod script;
mod surface;

use std::collections::HashSet;

use onceward::http::Kind;

use case::{Case, On};
use surface::{Kind as Where, needs_file};

use crate::place::Place;

/// Problems that cannot arise on either surface yet.
const NOWHERE: [(Kind, &str); 4] = [
    (Kind::TenantUnknown, "only an upstream that is asked can fail to say, which has tests of its own"),
    (Kind::Queued, "nothing can be queued before the outbox is there"),
    (Kind::Dead, "only what was queued can be dead"),
    (
        Kind::Overloaded,
        "more connections than allowed wait to be accepted; only the ten-thousandth websocket is told so, and whose \
         request would be one too many for the memory of all",
    ),
];

/// Problems that a layer cannot have.
const NOT_IN_A_LAYER: [(Kind, &str); 4] = [
    (Kind::WrongHost, "hosts are the server's"),
    (Kind::Unreachable, "a handler is always reached"),
    (Kind::TimedOut, "a handler may take as long as it likes"),
    (Kind::NoRoute, "routes are the router's"),
];

fn table() -> Vec<Case> {
    [keys::cases(), cookies::cases(), answers::cases(), repeats::cases(), bodies::cases(), faults::cases()].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_answers_as_the_table_says() {
    let flags = table().into_iter().filter(|case| !needs_file(&case.setting)).collect();
    play::all(Where::Gateway, flags).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_set_up_by_a_file_answers_as_the_table_says() {
    if Place::new().onceward(&["serve", "--help"]).code != 0 {
        return println!("skipped: cases that need a configuration: there is no `onceward serve`");
    }
    let file = table().into_iter().filter(|case| needs_file(&case.setting)).collect();
    play::all(Where::Gateway, file).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layer_answers_as_the_table_says() {
    play::all(Where::Layer, table()).await;
}

#[test]
fn every_problem_has_a_case_on_every_surface_where_it_can_arise() {
    for (surface, excused) in [(On::Gateway, Vec::new()), (On::Layer, NOT_IN_A_LAYER.to_vec())] {
        let here = table().into_iter().filter(|case| case.on == On::Both || case.on == surface);
        let expected: HashSet<Kind> = here.flat_map(|case| case.problems()).collect();
        let excused: HashSet<Kind> = NOWHERE.iter().chain(&excused).map(|(kind, _)| *kind).collect();
        for kind in Kind::ALL {
            assert_ne!(expected.contains(&kind), excused.contains(&kind), "{kind:?} on {surface:?}");
        }
    }
}

#[test]
fn no_two_cases_have_one_name() {
    let mut names = HashSet::new();
    for case in table() {
        assert!(names.insert(case.name.clone()), "{}", case.name);
    }
}
