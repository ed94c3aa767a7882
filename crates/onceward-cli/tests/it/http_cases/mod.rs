//! One table of HTTP cases for both the gateway and the layer: the same requests, the same upstream, the same responses, and
//! the same number of effects.
//!
//! - `case`: a case. `script`: the upstream. `surface`: gateway and layer. `client`: the client. `play`: runs cases.
//! - `keys`, `cookies`, `kept_responses`, `repeats`, `bodies`, `faults`: the table.

mod bodies;
mod case;
mod client;
mod cookies;
mod faults;
mod kept_responses;
mod keys;
mod play;
mod repeats;
mod script;
mod surface;

use std::collections::HashSet;

use onceward::http::Kind;

use case::{Case, On};
use surface::{SurfaceKind, needs_file};

use crate::test_folder::TestFolder;

/// Problems that cannot occur on either surface yet.
const NOWHERE: [(Kind, &str); 4] = [
    (Kind::TenantUnknown, "only an upstream that is asked for the tenant can fail to name it, which has its own tests"),
    (Kind::Queued, "nothing can be queued before the outbox exists"),
    (Kind::Dead, "only queued intents can be dead"),
    (
        Kind::Overloaded,
        "excess connections wait to be accepted; only the ten-thousandth WebSocket gets it, and a request that exceeds the \
         memory for all requests",
    ),
];

/// Problems that cannot occur in a layer.
const NOT_IN_A_LAYER: [(Kind, &str); 4] = [
    (Kind::WrongHost, "the server checks hosts"),
    (Kind::Unreachable, "a handler is always reachable"),
    (Kind::TimedOut, "a handler has no time-out"),
    (Kind::NoRoute, "the router has the routes"),
];

fn table() -> Vec<Case> {
    [keys::cases(), cookies::cases(), kept_responses::cases(), repeats::cases(), bodies::cases(), faults::cases()]
        .concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_passes_the_table() {
    let flags = table().into_iter().filter(|case| !needs_file(&case.setting)).collect();
    play::all(SurfaceKind::Gateway, flags).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_a_configuration_file_passes_the_table() {
    if TestFolder::new().onceward(&["serve", "--help"]).code != 0 {
        return println!("skipped: cases that need a configuration: there is no `onceward serve`");
    }
    let file = table().into_iter().filter(|case| needs_file(&case.setting)).collect();
    play::all(SurfaceKind::Gateway, file).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layer_passes_the_table() {
    play::all(SurfaceKind::Layer, table()).await;
}

#[test]
fn every_problem_has_a_case_on_every_surface_where_it_can_occur() {
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
fn case_names_are_unique() {
    let mut names = HashSet::new();
    for case in table() {
        assert!(names.insert(case.name.clone()), "{}", case.name);
    }
}
