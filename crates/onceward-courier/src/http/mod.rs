//! The sink `http`: one request for each attempt.
//!
//! - `request`: makes the request of an entry from the templates. `key_place`: puts the downstream key into it.
//! - `answer`: what the answer says about the attempt. `probe`: asks whether an earlier attempt happened. `document`:
//!   finds values in JSON answers.

mod answer;
mod key_place;
mod probe;
mod request;

use onceward::courier::{Health, LookUp, Parcel, Sink, SinkResult, async_trait};
use onceward_runtime::config;
use onceward_runtime::egress::{Client, Limits, Settings};
use onceward_runtime::exit::Fault;

use self::answer::Reading;
use self::key_place::KeyPlace;
use self::probe::Probe;
use self::request::RequestTemplate;
use crate::open::{SinkTable, Surroundings, address_rules};
use crate::template::Values;

/// Sends entries to an API.
#[derive(Clone, Debug)]
pub struct HttpSink {
    client: Client,
    request: RequestTemplate,
    key_place: KeyPlace,
    reading: Reading,
    probe: Option<Probe>,
}

impl HttpSink {
    /// Checks the settings and reads the secrets. Connects to nothing.
    pub fn new(name: &str, settings: &config::HttpSink, around: &Surroundings) -> Result<Self, Fault> {
        let at = SinkTable(name);
        let rules = address_rules(&at, settings.allow_private, settings.allowed_hosts.as_deref())?;
        let key_place = KeyPlace::parse(settings.downstream_key.as_deref());
        let key_place = key_place.map_err(|what| at.wrong("downstream_key", what))?;
        let request = RequestTemplate::of_sink(&at, settings, &rules, around)?;
        request.check_key_place(&key_place).map_err(|what| at.wrong("downstream_key", what))?;
        let reading = Reading::new(&at, settings)?;
        let probe =
            settings.probe.as_ref().map(|probe| Probe::new(&at, probe, settings, &rules, around)).transpose()?;
        let mut limits =
            Limits { concurrent: around.concurrent.max(1), total: settings.timeout(), ..Limits::default() };
        limits.connect = limits.connect.min(limits.total);
        let trust = around.trust(&at, settings.ca_file.as_deref())?;
        let client = Settings { rules, limits, trust, resolver: around.resolver.clone() };
        let client = Client::new(client).map_err(|fault| at.wrong("timeout", fault.message))?;
        Ok(Self { client, request, key_place, reading, probe })
    }
}

#[async_trait]
impl Sink for HttpSink {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        let request = self.request.render(parcel, &Values::of(parcel));
        match request.and_then(|request| self.key_place.put(&parcel.downstream_key, request)) {
            Ok(request) => self.reading.attempt(self.client.send(request).await, self.request.origin()),
            // The same entry would fail in the same way again, before anything is sent.
            Err(error) => SinkResult::Refused { error, retry_after: None, again: false, health: Health::Working },
        }
    }

    async fn look_up(&self, parcel: &Parcel) -> LookUp {
        match &self.probe {
            Some(probe) => probe.ask(&self.client, parcel).await,
            None => LookUp::Unknown("the sink has no `probe`".to_owned()),
        }
    }

    fn can_look_up(&self) -> bool {
        self.probe.is_some()
    }
}
