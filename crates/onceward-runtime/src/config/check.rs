//! Parses the text of `onceward.toml`: every name is known, every value has the right type, every recipe makes sense.
//! Pure: returns all mistakes, with their positions in the text.

use std::collections::BTreeSet;
use std::ops::Range;

use onceward::core::policy::{LARGEST_KEEP_LIMIT, LONGEST_MAX_RUNTIME};
use onceward::core::recipe;
use schemars::{JsonSchema, schema_for};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::api::{Api, Token};
use super::error::{Mistake, suggestion};
use super::file::{File, Limits, NamedStore, Operation, Window};
use super::gateway::{Gateway, Route};
use super::hidden::hide_secrets;
use super::inbox::{HmacTable, Inbox};
use super::mcp::{Mcp, Probe, Server, Tool};
use super::route::{Sink, SinkUse};
use super::sink::{CommandSink, HttpProbe, HttpSink, PullSink, SmtpSink, SqlSink};
use crate::proxy::unreachable_route;

/// The default path of a route.
const EVERYTHING: &str = "/*";

/// Parses the text, or returns all mistakes.
pub(super) fn read(text: &str) -> Result<File, Vec<Mistake>> {
    let tree = DeTable::parse(text).map_err(|error| vec![syntax(&error)])?;
    let tree = tree.get_ref();
    let mut problems = unknown_names(tree);
    problems.extend(misplaced_urls(tree));
    match toml::from_str::<File>(text) {
        Ok(file) => {
            problems.extend(invalid_values(&file, tree));
            if problems.is_empty() {
                return Ok(file);
            }
        }
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let path = path_at(tree, at);
            if problems.iter().all(|problem| problem.path != path) {
                problems.push(Mistake { at, path, what: one_line(error.message()) });
            }
        }
    }
    hide_secrets(tree, &mut problems);
    Err(problems)
}

/// URLs that are written where a table must be.
fn misplaced_urls(tree: &DeTable<'_>) -> Vec<Mistake> {
    let mistake = |at: usize, path: String, table: &str| {
        let what = format!("a store is a table: write `[stores.{table}]`, and its `url = \"…\"` on the next line");
        Mistake { at, path, what }
    };
    match entry(tree, "stores") {
        Some((span, value)) => match value.get_ref() {
            DeValue::String(_) => vec![mistake(span.start, "stores".to_owned(), "NAME")],
            DeValue::Table(stores) => {
                let urls = stores.iter().filter(|(_, value)| matches!(value.get_ref(), DeValue::String(_)));
                let named = urls.map(|(name, _)| (name.span().start, toml_name(name.get_ref())));
                named.map(|(at, name)| mistake(at, format!("stores.{name}"), &name)).collect()
            }
            _ => Vec::new(),
        },
        None => Vec::new(),
    }
}

fn syntax(error: &toml::de::Error) -> Mistake {
    let what = format!("invalid TOML: {}", one_line(error.message()));
    Mistake { at: error.span().map_or(0, |span| span.start), path: String::new(), what }
}

fn one_line(message: &str) -> String {
    message.trim().replace('\n', "; ")
}

/// The fields that a table may have: those of the type that it is parsed into.
fn names<T: JsonSchema>() -> BTreeSet<String> {
    let schema = schema_for!(T);
    let properties = schema.get("properties").and_then(|properties| properties.as_object());
    properties.map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
}

fn unknown_names(root: &DeTable<'_>) -> Vec<Mistake> {
    let mut problems = Vec::new();
    check_names(root, "", &names::<File>(), &mut problems);
    if let Some(DeValue::Table(limits)) = value(root, "limits") {
        check_names(limits, "limits", &names::<Limits>(), &mut problems);
    }
    for (name, store) in named_tables(root, "stores") {
        check_names(store, &format!("stores.{name}"), &names::<NamedStore>(), &mut problems);
    }
    for (name, sink) in named_tables(root, "sink") {
        check_sink_names(sink, &format!("sink.{name}"), &mut problems);
    }
    for (index, inbox) in tables(root, "inbox").enumerate() {
        let path = format!("inbox[{index}]");
        check_names(inbox, &path, &names::<Inbox>(), &mut problems);
        if let Some(DeValue::Table(hmac)) = value(inbox, "hmac") {
            check_names(hmac, &format!("{path}.hmac"), &names::<HmacTable>(), &mut problems);
        }
    }
    if let Some(DeValue::Table(api)) = value(root, "api") {
        check_names(api, "api", &names::<Api>(), &mut problems);
        for (index, token) in tables(api, "token").enumerate() {
            check_names(token, &format!("api.token[{index}]"), &names::<Token>(), &mut problems);
        }
    }
    if let Some(DeValue::Table(gateway)) = value(root, "gateway") {
        check_names(gateway, "gateway", &names::<Gateway>(), &mut problems);
        for (index, route) in tables(gateway, "route").enumerate() {
            check_names(route, &format!("gateway.route[{index}]"), &names::<Route>(), &mut problems);
        }
    }
    if let Some(DeValue::Table(mcp)) = value(root, "mcp") {
        check_names(mcp, "mcp", &names::<Mcp>(), &mut problems);
        for (name, server) in named_tables(mcp, "server") {
            let path = format!("mcp.server.{name}");
            check_names(server, &path, &names::<Server>(), &mut problems);
            for (name, tool) in named_tables(server, "tool") {
                let path = format!("{path}.tool.{name}");
                check_names(tool, &path, &names::<Tool>(), &mut problems);
                if let Some(DeValue::Table(probe)) = value(tool, "probe") {
                    check_names(probe, &format!("{path}.probe"), &names::<Probe>(), &mut problems);
                }
            }
        }
    }
    let Some(DeValue::Table(operations)) = value(root, "operation") else { return problems };
    for (name, operation) in operations {
        let DeValue::Table(operation) = operation.get_ref() else { continue };
        let path = format!("operation.{}", toml_name(name.get_ref()));
        check_names(operation, &path, &names::<Operation>(), &mut problems);
        if let Some(DeValue::Table(window)) = value(operation, "window") {
            check_names(window, &format!("{path}.window"), &names::<Window>(), &mut problems);
        }
    }
    problems
}

/// A sink has the fields of its type, and those that every sink has.
fn check_sink_names(sink: &DeTable<'_>, path: &str, problems: &mut Vec<Mistake>) {
    let mut known = match value(sink, "type").and_then(DeValue::as_str) {
        Some("http") => names::<HttpSink>(),
        Some("command") => names::<CommandSink>(),
        Some("smtp") => names::<SmtpSink>(),
        Some("sql") => names::<SqlSink>(),
        Some("pull") => names::<PullSink>(),
        // The type itself is the mistake.
        _ => return,
    };
    known.extend(names::<SinkUse>());
    known.insert("type".to_owned());
    check_names(sink, path, &known, problems);
    if let Some(DeValue::Table(probe)) = value(sink, "probe") {
        check_names(probe, &format!("{path}.probe"), &names::<HttpProbe>(), problems);
    }
}

/// The subtables of a table, with their names.
fn named_tables<'a>(table: &'a DeTable<'a>, name: &str) -> impl Iterator<Item = (String, &'a DeTable<'a>)> {
    let tables = value(table, name).and_then(DeValue::as_table).into_iter().flatten();
    tables.filter_map(|(name, table)| Some((toml_name(name.get_ref()).to_string(), table.get_ref().as_table()?)))
}

fn check_names(table: &DeTable<'_>, path: &str, known: &BTreeSet<String>, problems: &mut Vec<Mistake>) {
    for (name, _) in table {
        let written = name.get_ref().as_ref();
        if known.contains(written) {
            continue;
        }
        let what = format!("unknown field; {}", suggestion(written, known.iter().map(String::as_str)));
        let dot = if path.is_empty() { "" } else { "." };
        problems.push(Mistake { at: name.span().start, path: format!("{path}{dot}{}", toml_name(written)), what });
    }
}

/// Checks that types cannot express: limits and recipes.
fn invalid_values(file: &File, tree: &DeTable<'_>) -> Vec<Mistake> {
    let mut problems = Vec::new();
    for (name, operation) in &file.operation {
        for (field, what) in wrong(name, operation) {
            let at = position(tree, &["operation", name, field]).or_else(|| position(tree, &["operation", name]));
            let path = format!("operation.{}{}{field}", toml_name(name), if field.is_empty() { "" } else { "." });
            problems.push(Mistake { at: at.unwrap_or(0), path, what });
        }
    }
    problems.extend(invalid_stores(file, tree));
    problems.extend(invalid_sinks(file, tree));
    problems.extend(invalid_inboxes(file, tree));
    if file.limits.records_per_tenant == Some(0) {
        let at = position(tree, &["limits", "records_per_tenant"]).unwrap_or(0);
        let what = "0 would refuse every key; leave it out for no limit".to_owned();
        problems.push(Mistake { at, path: "limits.records_per_tenant".to_owned(), what });
    }
    problems.extend(invalid_tokens(file, tree));
    problems.extend(invalid_routes(file, tree));
    problems
}

/// Operations name stores that exist, and no store has the name of the one at the top level.
fn invalid_stores(file: &File, tree: &DeTable<'_>) -> Vec<Mistake> {
    let mut problems = Vec::new();
    for name in file.stores.keys().filter(|name| name.is_empty() || *name == "default") {
        let at = position(tree, &["stores", name]).unwrap_or(0);
        let what = "the store at the top level has this name: choose another one".to_owned();
        problems.push(Mistake { at, path: format!("stores.{}", toml_name(name)), what });
    }
    for (name, operation) in &file.operation {
        let Some(store) = operation.store.as_deref().filter(|store| !file.stores.contains_key(*store)) else {
            continue;
        };
        let at = position(tree, &["operation", name, "store"]).unwrap_or(0);
        let what = match store.contains([':', '/']) {
            true => {
                "this is the name of a store: write its URL as `url` in [stores.NAME], and the name here".to_owned()
            }
            false => format!("unknown store; {}", suggestion(store, file.stores.keys().map(String::as_str))),
        };
        problems.push(Mistake { at, path: format!("operation.{}.store", toml_name(name)), what });
    }
    problems
}

fn invalid_inboxes(file: &File, tree: &DeTable<'_>) -> Vec<Mistake> {
    let tables: Vec<_> = tables(tree, "inbox").collect();
    let at = |number: usize, field: &str| tables.get(number).and_then(|table| position(table, &[field])).unwrap_or(0);
    let mistake = |(number, field, what): (usize, &'static str, String)| Mistake {
        at: at(number, field),
        path: format!("inbox[{number}].{field}"),
        what,
    };
    let mut problems: Vec<Mistake> = Inbox::mistakes(&file.inbox).into_iter().map(mistake).collect();
    for (number, inbox) in file.inbox.iter().enumerate() {
        if !file.operation.contains_key(&inbox.operation) {
            let known = file.operation.keys().map(String::as_str);
            let what = format!("unknown operation; {}", suggestion(&inbox.operation, known));
            problems.push(mistake((number, "operation", what)));
        }
    }
    problems
}

/// Operations name sinks that exist, and the settings of sinks make sense.
fn invalid_sinks(file: &File, tree: &DeTable<'_>) -> Vec<Mistake> {
    let mut problems = Vec::new();
    for (name, sink) in &file.sink {
        for (field, what) in sink.wrong() {
            let at = position(tree, &["sink", name, field]).unwrap_or(0);
            problems.push(Mistake { at, path: format!("sink.{}.{field}", toml_name(name)), what });
        }
        let sharing = file.operation.values().filter(|operation| operation.sink.as_deref() == Some(name)).count();
        if sink.passes_key() && sharing > 1 {
            let what =
                format!("{sharing} operations deliver to this sink: equal keys of them would be one request to it");
            let at = position(tree, &["sink", name, "passes_key"]).unwrap_or(0);
            problems.push(Mistake { at, path: format!("sink.{}.passes_key", toml_name(name)), what });
        }
        if let Some(what) = wrong_fallback(file, name, sink) {
            let at = position(tree, &["sink", name, "fallback"]).unwrap_or(0);
            problems.push(Mistake { at, path: format!("sink.{}.fallback", toml_name(name)), what });
        }
    }
    for (name, operation) in &file.operation {
        let Some(sink) = operation.sink.as_deref().filter(|sink| !file.sink.contains_key(*sink)) else { continue };
        let at = position(tree, &["operation", name, "sink"]).unwrap_or(0);
        let what = format!("unknown sink; {}", suggestion(sink, file.sink.keys().map(String::as_str)));
        problems.push(Mistake { at, path: format!("operation.{}.sink", toml_name(name)), what });
    }
    problems
}

fn wrong_fallback(file: &File, name: &str, sink: &Sink) -> Option<String> {
    let fallback = sink.fallback()?;
    if fallback == name {
        return Some("a sink is not its own fallback".to_owned());
    }
    match file.sink.get(fallback) {
        Some(other) => sink.refuses_fallback(other).map(|why| format!("`{fallback}`: {why}")),
        None => Some(format!("unknown sink; {}", suggestion(fallback, file.sink.keys().map(String::as_str)))),
    }
}

fn invalid_routes(file: &File, tree: &DeTable<'_>) -> Vec<Mistake> {
    let Some(gateway) = &file.gateway else { return Vec::new() };
    let at = position(tree, &["gateway"]).unwrap_or(0);
    let mut problems = Vec::new();
    if gateway.route.is_empty() {
        let what = "a gateway needs at least one `[[gateway.route]]`".to_owned();
        problems.push(Mistake { at, path: "gateway.route".to_owned(), what });
    }
    let path = |route: &'_ Route| route.path.clone().unwrap_or_else(|| EVERYTHING.to_owned());
    let paths: Vec<String> = gateway.route.iter().map(path).collect();
    if let Some((index, earlier)) = unreachable_route(paths.iter().map(String::as_str)) {
        let table = value(tree, "gateway").and_then(|gateway| tables(gateway.as_table()?, "route").nth(index));
        let here = table.and_then(|table| position(table, &["path"])).unwrap_or(at);
        let what = format!(
            "this route is never reached: the earlier route with {earlier:?} matches all of its paths, and the first match is used"
        );
        problems.push(Mistake { at: here, path: format!("gateway.route[{index}].path"), what });
    }
    let routes = match value(tree, "gateway") {
        Some(DeValue::Table(gateway)) => value(gateway, "route"),
        _ => None,
    };
    for (index, route) in gateway.route.iter().enumerate() {
        let table = match routes {
            Some(DeValue::Array(routes)) => routes.get(index).map(Spanned::get_ref),
            _ => None,
        };
        let Some(name) = &route.operation else { continue };
        if !file.operation.contains_key(name) {
            let here = match table {
                Some(DeValue::Table(table)) => position(table, &["operation"]),
                _ => None,
            };
            let what = format!("unknown operation; {}", suggestion(name, file.operation.keys().map(String::as_str)));
            problems.push(Mistake { at: here.unwrap_or(at), path: format!("gateway.route[{index}].operation"), what });
        }
    }
    problems
}

fn invalid_tokens(file: &File, tree: &DeTable<'_>) -> Vec<Mistake> {
    let mut problems = Vec::new();
    for (index, token) in file.api.iter().flat_map(|api| &api.token).enumerate() {
        let table = value(tree, "api").and_then(|api| tables(api.as_table()?, "token").nth(index));
        for (field, what) in token.wrong() {
            let at = table.and_then(|table| position(table, &[field])).unwrap_or(0);
            problems.push(Mistake { at, path: format!("api.token[{index}].{field}"), what });
        }
    }
    problems
}

fn wrong(name: &str, operation: &Operation) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    if let Err(error) = onceward::core::name::Operation::new(name) {
        wrong.push(("", error.to_string()));
    }
    if operation.max_runtime.is_some_and(|length| length.0 > LONGEST_MAX_RUNTIME) {
        wrong.push(("max_runtime", "the maximum is 24h: a lease is three times as long".to_owned()));
    }
    if operation.keep_limit.is_some_and(|size| size.0 > LARGEST_KEEP_LIMIT) {
        wrong.push(("keep_limit", "the maximum is 8MiB: a ledger is not a file store".to_owned()));
    }
    if operation.dedup.is_some() {
        let instead = [
            ("tier", operation.tier.is_some()),
            ("retention", operation.retention.is_some()),
            ("tombstone", operation.tombstone.is_some()),
            ("window", operation.window.is_some()),
        ];
        let why = "`dedup` already sets how long the key is held: use one or the other";
        wrong.extend(instead.into_iter().filter(|(_, given)| *given).map(|(field, _)| (field, why.to_owned())));
    }
    let needs_key = [
        ("match", operation.match_fields.is_some()),
        ("normalise", operation.normalise.is_some()),
        ("window", operation.window.is_some()),
    ];
    if operation.key.is_none() {
        let alone = needs_key.into_iter().filter(|(_, given)| *given);
        wrong.extend(
            alone.map(|(field, _)| (field, "this needs `key`: the fields that identify the intent".to_owned())),
        );
    } else if let Err(error) = operation.recipe() {
        wrong.push((field_of(&error), error.to_string()));
    }
    wrong
}

/// The field that a recipe error belongs to.
fn field_of(error: &recipe::Error) -> &'static str {
    use recipe::{Error, Role};
    match error {
        Error::Pointer { role, .. }
        | Error::Repeated { role, .. }
        | Error::AlreadyInKey { role, .. }
        | Error::Volatile { role, .. }
        | Error::Missing { role, .. } => match role {
            Role::Key => "key",
            Role::Match => "match",
            Role::Window => "window",
        },
        Error::EmptyKey => "key",
        Error::UnknownNormaliser { .. } => "normalise",
        Error::NowNotAllowed | Error::UnknownEvery { .. } | Error::UnknownZone { .. } | Error::BadTime { .. } => {
            "window"
        }
    }
}

fn entry<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<(Range<usize>, &'t Spanned<DeValue<'i>>)> {
    table.iter().find(|(key, _)| key.get_ref() == name).map(|(key, value)| (key.span(), value))
}

fn value<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> Option<&'t DeValue<'i>> {
    entry(table, name).map(|(_, value)| value.get_ref())
}

/// The tables of `[[NAME]]`.
fn tables<'t, 'i>(table: &'t DeTable<'i>, name: &str) -> impl Iterator<Item = &'t DeTable<'i>> {
    let array = value(table, name).and_then(DeValue::as_array);
    array.into_iter().flat_map(|array| array.iter()).filter_map(|each| each.get_ref().as_table())
}

/// The position of the last name of a path.
fn position(table: &DeTable<'_>, path: &[&str]) -> Option<usize> {
    let (name, rest) = path.split_first()?;
    let (span, value) = entry(table, name)?;
    match (rest, value.get_ref()) {
        ([], _) => Some(span.start),
        (rest, DeValue::Table(inner)) => position(inner, rest),
        _ => None,
    }
}

/// The path of the innermost field at a position in the text.
fn path_at(table: &DeTable<'_>, at: usize) -> String {
    for (name, value) in table {
        let here = toml_name(name.get_ref());
        let inner = match value.get_ref() {
            DeValue::Table(inner) => path_at(inner, at),
            DeValue::Array(array) => {
                let inner = array.iter().enumerate().find_map(|(number, each)| {
                    let inner = each.get_ref().as_table().map(|table| path_at(table, at)).unwrap_or_default();
                    match inner.is_empty() {
                        false => Some(format!("[{number}].{inner}")),
                        true => each.span().contains(&at).then(|| format!("[{number}]")),
                    }
                });
                inner.unwrap_or_default()
            }
            _ => String::new(),
        };
        if !inner.is_empty() {
            let dot = if inner.starts_with('[') { "" } else { "." };
            return format!("{here}{dot}{inner}");
        }
        if name.span().contains(&at) || value.span().contains(&at) {
            return here;
        }
    }
    String::new()
}

/// A name in TOML syntax.
fn toml_name(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if is_bare { name.to_owned() } else { format!("{name:?}") }
}
