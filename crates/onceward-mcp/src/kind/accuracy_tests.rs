//! Measures the judgement by names on the tools of real servers. The class of each tool was decided by hand
//! (`tests/mcp/kinds/expected.json`); `tests/mcp/collect_tools.py` listed their names.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Effect, Kind, of, shared_prefix};

const TOOLS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp/kinds/tools.json"));
const EXPECTED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp/kinds/expected.json"));
const SERVERS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp/kinds/servers.json"));

#[derive(Deserialize)]
struct ListedServer {
    server: String,
    tools: Vec<NamedTool>,
}

#[derive(Deserialize)]
struct NamedTool {
    name: String,
}

#[derive(Deserialize)]
struct Server {
    name: String,
    /// `held out`: the lexicon was written without looking at this server.
    part: Option<String>,
}

/// The names of the tools of each class.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expected {
    reads: Vec<String>,
    query: Vec<String>,
    acts: Vec<String>,
    outward: Vec<String>,
    steps: Vec<String>,
    sets_state: Vec<String>,
    ends: Vec<String>,
}

impl Expected {
    fn of(&self, name: &str) -> Option<(Effect, [bool; 3])> {
        let is_in = |list: &[String]| list.iter().any(|other| other == name);
        let effects = [
            (&self.reads, Effect::Reads),
            (&self.query, Effect::Query),
            (&self.acts, Effect::Acts),
            (&self.outward, Effect::Outward),
        ];
        let mut effects = effects.into_iter().filter(|(list, _)| is_in(list));
        let (_, effect) = effects.next().filter(|_| effects.next().is_none())?;
        Some((effect, [is_in(&self.steps), is_in(&self.sets_state), is_in(&self.ends)]))
    }
}

/// Counts over some servers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    servers: usize,
    tools: usize,
    /// The class is the expected one.
    right: usize,
    /// Tools that act and would not be guarded.
    acts_pass: usize,
    /// Tools that reach other people and count as acting only.
    outward_missed: usize,
    outward: usize,
    /// Tools that reach no person and count as outward.
    outward_wrong: usize,
    /// Tools that read and would be guarded.
    reads_guarded: usize,
    /// Wrong marks: steps, sets_state, ends.
    marks: [usize; 3],
}

impl Count {
    fn add(&mut self, expected: (Effect, [bool; 3]), found: Kind) -> bool {
        let (effect, marks) = expected;
        let is_right = effect == found.effect;
        self.tools += 1;
        self.right += usize::from(is_right);
        self.acts_pass += usize::from(effect != Effect::Reads && found.effect == Effect::Reads);
        self.outward += usize::from(effect == Effect::Outward);
        self.outward_missed += usize::from(effect == Effect::Outward && !is_right);
        self.outward_wrong += usize::from(found.effect == Effect::Outward && !is_right);
        self.reads_guarded +=
            usize::from(effect == Effect::Reads && matches!(found.effect, Effect::Acts | Effect::Query));
        let wrong = [found.steps, found.sets_state, found.ends];
        for (at, wrong) in wrong.iter().enumerate() {
            self.marks[at] += usize::from(*wrong != marks[at]);
        }
        is_right && marks == wrong
    }
}

fn measure(is_held_out: bool) -> Count {
    let listed: Vec<ListedServer> = serde_json::from_str(TOOLS).unwrap();
    let expected: BTreeMap<String, Expected> = serde_json::from_str(EXPECTED).unwrap();
    let servers: Vec<Server> = serde_json::from_str(SERVERS).unwrap();
    let held_out = |name: &str| servers.iter().any(|server| server.name == name && server.part.is_some());
    let mut count = Count::default();
    for server in listed.iter().filter(|listed| held_out(&listed.server) == is_held_out) {
        count.servers += 1;
        let prefix = shared_prefix(server.tools.iter().map(|tool| tool.name.as_str()));
        let classes = expected.get(&server.server).unwrap_or_else(|| panic!("{} has no classes", server.server));
        for tool in &server.tools {
            let (server, name) = (&server.server, &tool.name);
            let class = classes.of(name).unwrap_or_else(|| panic!("{server} {name} has no class, or two"));
            let found = of(name, &prefix);
            if !count.add(class, found) {
                println!("{server} {name}: {class:?}, and not {found:?}");
            }
        }
    }
    count
}

/// Checks that the classification does not get worse. After an improvement, raise the numbers.
fn is_as_good(count: &Count, right: usize, acts_pass: usize, outward_missed: usize, outward_wrong: usize) {
    println!("{count:?}");
    assert!(count.right >= right, "{count:?}");
    assert!(count.acts_pass <= acts_pass, "{count:?}");
    assert!(count.outward_missed <= outward_missed && count.outward_wrong <= outward_wrong, "{count:?}");
}

#[test]
fn tools_of_real_servers_are_judged_right() {
    let (known, held_out) = (measure(false), measure(true));
    assert_eq!((known.servers, known.tools, known.outward), (59, 1690, 64));
    assert_eq!((held_out.servers, held_out.tools, held_out.outward), (21, 655, 38));
    is_as_good(&known, 1604, 6, 4, 5);
    is_as_good(&held_out, 607, 2, 7, 8);
}
