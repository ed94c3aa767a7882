//! Opens the sink that a table `[sink.NAME]` describes.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use onceward::StoreUrl;
use onceward::courier::Sink;
use onceward_runtime::config::SinkSettings;
use onceward_runtime::egress::{AddressRules, AllowedHosts, Resolve, SystemResolver, Trust};
use onceward_runtime::exit::Fault;

use crate::command::CommandSink;
use crate::http::HttpSink;
use crate::smtp::SmtpSink;
use crate::sql;

/// What sinks need beside their settings.
#[derive(Clone)]
pub struct Surroundings {
    /// The folder of the configuration, where relative paths start.
    pub folder: PathBuf,
    /// The CA certificates of the system.
    pub trust: Trust,
    pub resolver: Arc<dyn Resolve>,
    /// How many attempts a sink makes at the same time: the sum of the concurrency of the routes that lead to it.
    pub concurrent: usize,
    /// The store of the entries.
    pub store: StoreUrl,
}

impl Surroundings {
    /// With the certificates and the resolver of the system.
    pub fn new(folder: impl Into<PathBuf>, concurrent: usize, store: StoreUrl) -> Result<Self, Fault> {
        let resolver = Arc::new(SystemResolver::default());
        Ok(Self { folder: folder.into(), trust: Trust::load(true, None)?, resolver, concurrent, store })
    }

    /// The certificates for a sink: those of the system, and those in its own file.
    pub(crate) fn trust(&self, at: &SinkTable<'_>, ca_file: Option<&str>) -> Result<Trust, Fault> {
        match ca_file {
            None => Ok(self.trust.clone()),
            Some(path) => {
                let loaded = Trust::load(true, Some(&self.folder.join(path)));
                loaded.map_err(|fault| at.wrong("ca_file", fault.message))
            }
        }
    }
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Surroundings")
            .field("folder", &self.folder)
            .field("concurrent", &self.concurrent)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// An open sink.
#[derive(Clone)]
pub enum Opened {
    /// A courier delivers to it.
    Delivers(Arc<dyn Sink>),
    /// Workers take the entries with the API.
    Pulled,
}

impl fmt::Debug for Opened {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Delivers(_) => "Delivers",
            Self::Pulled => "Pulled",
        })
    }
}

/// Opens a sink: checks its settings and reads its secrets. Connects to nothing but the store.
pub async fn open(name: &str, settings: &SinkSettings, around: &Surroundings) -> Result<Opened, Fault> {
    match settings {
        SinkSettings::Http(settings) => Ok(Opened::Delivers(Arc::new(HttpSink::new(name, settings, around)?))),
        SinkSettings::Command(settings) => Ok(Opened::Delivers(Arc::new(CommandSink::new(name, settings, around)?))),
        SinkSettings::Pull(_) => Ok(Opened::Pulled),
        SinkSettings::Smtp(settings) => Ok(Opened::Delivers(Arc::new(SmtpSink::new(name, settings, around)?))),
        SinkSettings::Sql(settings) => Ok(Opened::Delivers(sql::open(name, settings, around).await?)),
    }
}

/// The table that is being read, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkTable<'a>(pub(crate) &'a str);

impl SinkTable<'_> {
    pub(crate) fn wrong(&self, field: &str, what: impl fmt::Display) -> Fault {
        Fault::config(format!("sink.{}.{field}: {what}", self.0))
    }
}

/// What a sink may reach.
pub(crate) fn address_rules(
    at: &SinkTable<'_>,
    allow_private: Option<bool>,
    allowed_hosts: Option<&[String]>,
) -> Result<AddressRules, Fault> {
    let allowed_hosts = allowed_hosts.map(AllowedHosts::parse).transpose();
    let allowed_hosts = allowed_hosts.map_err(|what| at.wrong("allowed_hosts", what))?;
    Ok(AddressRules { allow_private: allow_private.unwrap_or(false), allowed_hosts })
}
