//! The two surfaces: the real gateway as a process in front of the script, and an axum server with the layer around it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Arc;

use http::HeaderName;
use onceward::Ledger;
use onceward::core::recipe::{Definition, Recipe};
use onceward::http::rules::DEFAULT_WINDOW;
use onceward::http::{KeyFrom, KeyMode, Profile, Rules, tenant};
use onceward::layer::IdempotencyLayer;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use super::case::Setting;
use super::script::{self, Script};
use crate::test_folder::TestFolder;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SurfaceKind {
    Gateway,
    Layer,
}

/// A running surface.
pub(super) struct Surface {
    pub(super) address: SocketAddr,
    pub(super) script: Arc<Script>,
    upstream: SocketAddr,
    /// The reserved port of the upstream, which does not listen yet: connections are refused, and no other process can take it.
    reserved: Option<TcpSocket>,
    folder: TestFolder,
    tasks: Vec<JoinHandle<()>>,
    process: Option<Child>,
}

impl Surface {
    pub(super) async fn start(kind: SurfaceKind, setting: &Setting, script: Arc<Script>) -> Self {
        let free: SocketAddr = ([127, 0, 0, 1], 0).into();
        let reserved = TcpSocket::new_v4().unwrap();
        reserved.bind(free).unwrap();
        let mut surface = Self {
            address: free,
            script,
            upstream: reserved.local_addr().unwrap(),
            reserved: Some(reserved),
            folder: TestFolder::new(),
            tasks: Vec::new(),
            process: None,
        };
        match kind {
            SurfaceKind::Gateway => surface.start_gateway(setting),
            SurfaceKind::Layer => surface.start_layer(setting).await,
        }
        surface
    }

    pub(super) fn ledger(&self) -> PathBuf {
        self.folder.path("ledger.db")
    }

    pub(super) fn upstream_comes_up(&mut self) {
        let listener = self.reserved.take().unwrap().listen(128).unwrap();
        self.tasks.push(tokio::spawn(script::serve(Arc::clone(&self.script), listener)));
    }

    fn start_gateway(&mut self, setting: &Setting) {
        if !setting.upstream_is_down {
            self.upstream_comes_up();
        }
        let store = self.ledger().to_string_lossy().into_owned();
        let arguments = match flags(setting, &format!("http://{}", self.upstream)) {
            Some(flags) => flags,
            None => {
                self.folder.write("onceward.toml", &configuration(setting, self.upstream));
                ["serve", "--config", "onceward.toml"].map(str::to_owned).to_vec()
            }
        };
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--store", &store]).collect();
        let mut child = self.folder.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.process = Some(child);
        let address = line.trim().rsplit_once("http://").map(|(_, address)| address);
        self.address = address.unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
    }

    async fn start_layer(&mut self, setting: &Setting) {
        let ledger = Ledger::builder().records_per_tenant(setting.records_per_tenant);
        let ledger = ledger.open(self.ledger()).await.unwrap();
        let layer = layer(ledger, setting);
        let script = Arc::clone(&self.script);
        let app =
            axum::Router::new().fallback(move |request| script::handle(Arc::clone(&script), request)).layer(layer);
        let listener = tokio::net::TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        self.tasks.push(tokio::spawn(async move { axum::serve(listener, app).await.unwrap() }));
    }
}

impl Drop for Surface {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn profile(setting: &Setting) -> &'static str {
    match setting.profile {
        Profile::Ietf => "ietf",
        Profile::Stripe => "stripe",
        Profile::Acp => "acp",
    }
}

fn key_mode(setting: &Setting) -> &'static str {
    match setting.key_mode {
        KeyMode::Required => "required",
        KeyMode::Optional => "optional",
        KeyMode::Derived => "derived",
    }
}

/// Whether the gateway needs a configuration file.
pub(super) fn needs_file(setting: &Setting) -> bool {
    let has_more = !setting.refusals.is_empty() || setting.in_flight_status.is_some() || setting.recipe.is_some();
    let has_limits = setting.body_timeout.is_some() || setting.records_per_tenant.is_some();
    setting.key_from.is_some() || has_more || has_limits
}

/// The flags of `onceward gateway`, if they can express the setting.
fn flags(setting: &Setting, upstream: &str) -> Option<Vec<String>> {
    if needs_file(setting) {
        return None;
    }
    let mut flags: Vec<String> =
        ["gateway", "--listen", "127.0.0.1:0", "--upstream", upstream].map(str::to_owned).into();
    flags.extend(
        ["--profile", profile(setting), "--key-mode", key_mode(setting), "--tenant", setting.tenant].map(str::to_owned),
    );
    if setting.honours_key {
        flags.push("--honours-key".to_owned());
    }
    for (flag, time) in [("--wait", setting.wait), ("--timeout", setting.timeout), ("--window", setting.window)] {
        if let Some(time) = time {
            flags.extend([flag.to_owned(), format!("{}ms", time.as_millis())]);
        }
    }
    let listed = [("--identity-header", &setting.identity_headers), ("--ignored-header", &setting.ignored_headers)];
    for (flag, names) in listed {
        flags.extend(names.iter().flat_map(|name| [flag.to_owned(), (*name).to_owned()]));
    }
    Some(flags)
}

/// The setting as a configuration file.
fn configuration(setting: &Setting, upstream: SocketAddr) -> String {
    let limit = setting.records_per_tenant.map(|most| format!("[limits]\nrecords_per_tenant = {most}\n"));
    let mut text = limit.unwrap_or_default();
    text += &format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\n[[gateway.route]]\nupstream = \"http://{upstream}\"\nprofile = {:?}\n\
         key_mode = {:?}\ntenant = {:?}\nhonours_key = {}\nrefusals = {:?}\n",
        profile(setting),
        key_mode(setting),
        setting.tenant,
        setting.honours_key,
        setting.refusals,
    );
    text += &format!(
        "identity_headers = {:?}\nignored_headers = {:?}\n",
        setting.identity_headers, setting.ignored_headers
    );
    if let Some(status) = setting.in_flight_status {
        text += &format!("in_flight_status = {status}\n");
    }
    if let Some(from) = setting.key_from {
        text += &format!("key_from = {from:?}\n");
    }
    let times = [
        ("wait", setting.wait),
        ("timeout", setting.timeout),
        ("window", setting.window),
        ("body_timeout", setting.body_timeout),
    ];
    for (name, time) in times {
        if let Some(time) = time {
            text += &format!("{name} = \"{}ms\"\n", time.as_millis());
        }
    }
    if let Some((key, match_field)) = setting.recipe {
        text += &format!("operation = \"pay\"\n[operation.pay]\nkey = [{key:?}]\nmatch = [{match_field:?}]\n");
    }
    text
}

/// The setting for the layer.
fn layer(ledger: Ledger, setting: &Setting) -> IdempotencyLayer {
    let mut rules = Rules { profile: setting.profile, refusals: setting.refusals.clone(), ..Rules::default() };
    rules.body_timeout = setting.body_timeout.unwrap_or(rules.body_timeout);
    let names = |names: &[&'static str]| names.iter().map(|name| HeaderName::try_from(*name).unwrap()).collect();
    if let Some(status) = setting.in_flight_status {
        rules.in_flight_status = status.try_into().unwrap();
    }
    rules.identity_headers = names(&setting.identity_headers);
    rules.ignored_headers = names(&setting.ignored_headers);
    rules.recipe = setting.recipe.map(|(key, match_field)| {
        let (key, match_fields) = (vec![key.to_owned()], vec![match_field.to_owned()]);
        Arc::new(Recipe::new(Definition { key, match_fields, ..Definition::default() }).unwrap())
    });
    rules = match setting.key_mode {
        KeyMode::Derived => rules.derived(setting.window.unwrap_or(DEFAULT_WINDOW)),
        mode => Rules { key_mode: mode, ..rules },
    };
    rules.key_from = match setting.key_from.and_then(|from| from.split_once(':')) {
        Some(("body", pointer)) => KeyFrom::Body(pointer.to_owned()),
        Some((_, name)) => KeyFrom::Header(HeaderName::try_from(name).unwrap()),
        None => rules.key_from,
    };
    let mut layer = IdempotencyLayer::with_rules(ledger, rules.honours_key(setting.honours_key));
    if let Some(wait) = setting.wait {
        layer = layer.wait(wait);
    }
    match setting.tenant.split_once(':') {
        Some(("fixed", name)) => layer.tenant_fixed(name),
        Some((_, name)) => {
            let name = HeaderName::try_from(name).unwrap();
            layer.tenant(move |parts| tenant::of_header(parts, &name))
        }
        None => layer.tenant_authorization(),
    }
}
