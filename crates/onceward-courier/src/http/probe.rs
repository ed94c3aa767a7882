//! Asks an API whether an earlier attempt happened.

use bytes::Bytes;
use onceward::core::json::Pointer;
use onceward::core::outcome::{self, Outcome};
use onceward::courier::{LookUp, Parcel};
use onceward::http::truncation::is_truncated;
use onceward_runtime::config;
use onceward_runtime::egress::{AddressRules, Client, Response, Sent};
use onceward_runtime::exit::Fault;

use super::answer::Reading;
use super::request::RequestTemplate;
use crate::open::{SinkTable, Surroundings};
use crate::template::Values;
use onceward_runtime::raw_json::{Found, find, is_empty};

/// A request that asks whether an earlier attempt happened.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    request: RequestTemplate,
    found: Option<Pointer>,
    reading: Reading,
}

impl Probe {
    pub(super) fn new(
        at: &SinkTable<'_>,
        settings: &config::HttpProbe,
        sink: &config::HttpSink,
        rules: &AddressRules,
        around: &Surroundings,
    ) -> Result<Self, Fault> {
        let found = settings.found.as_deref().map(Pointer::parse).transpose();
        Ok(Self {
            request: RequestTemplate::of_probe(at, settings, sink, rules, around)?,
            found: found.map_err(|error| at.wrong("probe.found", error))?,
            reading: Reading::new(at, sink)?,
        })
    }

    pub(super) async fn ask(&self, client: &Client, parcel: &Parcel) -> LookUp {
        let request = match self.request.render(parcel, &Values::of(parcel)) {
            Ok(request) => request,
            Err(error) => return LookUp::Unknown(error),
        };
        match client.send(request).await {
            Sent::NotSent(why) => LookUp::Unknown(why.to_string()),
            Sent::Unknown(why) => LookUp::Unknown(why.to_string()),
            Sent::Answered(answer) => self.read(answer),
        }
    }

    fn read(&self, answer: Response) -> LookUp {
        let unknown = |why: &str| LookUp::Unknown(format!("{} {why}", self.request.origin()));
        let status = answer.status;
        if status == http::StatusCode::NOT_FOUND {
            return LookUp::NotFound;
        }
        if !status.is_success() {
            return unknown(&format!("answered {status} when it was asked"));
        }
        if answer.unframed && !answer.cut && is_truncated(&answer.headers, &answer.body) {
            return unknown("closed the connection in the middle of its answer");
        }
        let Some(pointer) = &self.found else {
            return LookUp::Happened(self.reading.outcome(answer, outcome::Verdict::Success));
        };
        if answer.cut {
            return unknown("gave an answer that is too long to look for the effect in it");
        }
        let body = answer.body.clone();
        match find(&body, pointer) {
            Found::Value(value) if is_empty(value) => LookUp::NotFound,
            Found::Value(effect) => LookUp::Happened(self.effect(answer, effect.get())),
            Found::Nothing => LookUp::NotFound,
            // An answer of another form, such as an error with status 200, says nothing about the effect.
            Found::OtherForm => unknown("gave an answer without the place where the effect would be"),
        }
    }

    /// An object is what the effect would have answered. Anything else only shows that it happened.
    fn effect(&self, mut answer: Response, effect: &str) -> Outcome {
        if effect.starts_with('{') {
            answer.body = Bytes::copy_from_slice(effect.as_bytes());
        }
        self.reading.outcome(answer, outcome::Verdict::Success)
    }
}
