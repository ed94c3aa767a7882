//! What the end of a request says about the attempt, by the table in `onceward_core::retry::http_status`.

use http::Response;
use http::header::CONTENT_LENGTH;
use onceward::core::hash::digest;
use onceward::core::json::Pointer;
use onceward::core::outcome::{self, Outcome};
use onceward::core::retry::http_status::{Downstream, Verdict, health, judge};
use onceward::courier::{Health, SinkResult};
use onceward::http::stored_response;
use onceward::http::truncation::is_truncated;
use onceward::http::verdict::retry_after;
use onceward_runtime::config;
use onceward_runtime::egress::{self, NotSent, Sent, Unknown};
use onceward_runtime::exit::Fault;

use crate::open::SinkTable;
use onceward_runtime::raw_json::{Found, find, id};

/// What the settings of a sink say about its answers.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    refusals: Vec<u16>,
    honours_key: bool,
    keeps_server_errors: bool,
    reference: Option<Pointer>,
}

impl Reading {
    pub(super) fn new(at: &SinkTable<'_>, settings: &config::HttpSink) -> Result<Self, Fault> {
        let refusals = settings.refusals.clone().unwrap_or_default();
        if let Some(status) = refusals.iter().find(|status| !(200..=599).contains(*status)) {
            return Err(at.wrong("refusals", format!("{status} is not a status of an answer")));
        }
        let reference = settings.reference.as_deref().map(Pointer::parse).transpose();
        Ok(Self {
            refusals,
            honours_key: settings.honours_key.unwrap_or(false),
            keeps_server_errors: settings.keeps_server_errors.unwrap_or(false),
            reference: reference.map_err(|error| at.wrong("reference", error))?,
        })
    }

    fn downstream(&self) -> Downstream<'_> {
        Downstream {
            refusals: &self.refusals,
            honours_key: self.honours_key,
            keeps_server_errors: self.keeps_server_errors,
            ..Downstream::COURIER
        }
    }

    /// What became of an attempt.
    pub(super) fn attempt(&self, sent: Sent, origin: &str) -> SinkResult {
        match sent {
            Sent::NotSent(why) => not_sent(&why),
            Sent::Answered(answer) => self.answered(answer, origin),
            Sent::Unknown(why) => self.unknown(&why),
        }
    }

    fn answered(&self, answer: egress::Response, origin: &str) -> SinkResult {
        let status = answer.status;
        let verdict = judge(status.as_u16(), retry_after(&answer.headers), &self.downstream());
        let health = health(status.as_u16(), verdict);
        let error = format!("{origin} answered {status}");
        let kept = match verdict {
            Verdict::Success => outcome::Verdict::Success,
            Verdict::FinalFailure => outcome::Verdict::Failure,
            Verdict::Refused { retry, retry_after } => {
                return SinkResult::Refused { error, retry_after, again: retry, health };
            }
            Verdict::MayHaveHappened { .. } => {
                return SinkResult::Unknown { error, retry_after: retry_after(&answer.headers), health };
            }
        };
        // A body that is longer than the limit was cut here, and the rest of it was never needed.
        if answer.unframed && !answer.cut && is_truncated(&answer.headers, &answer.body) {
            let error = format!("{error} and closed the connection in the middle of its body");
            return SinkResult::Unknown { error, retry_after: None, health: Health::Failing };
        }
        SinkResult::Ended(self.outcome(answer, kept))
    }

    /// The head of an answer can prove that nothing happened, even if its body was lost.
    fn unknown(&self, lost: &Unknown) -> SinkResult {
        let head = lost.status.map(|status| (status, judge(status.as_u16(), None, &self.downstream())));
        if let Some((status, Verdict::Refused { retry, .. })) = head {
            let error = format!("{} answered {status}", lost.to);
            let health = health(status.as_u16(), Verdict::Refused { retry, retry_after: None });
            return SinkResult::Refused { error, retry_after: None, again: retry, health };
        }
        SinkResult::Unknown { error: lost.to_string(), retry_after: None, health: Health::Failing }
    }

    /// The outcome of an answer: status, safe headers and body as they came.
    pub(super) fn outcome(&self, answer: egress::Response, verdict: outcome::Verdict) -> Outcome {
        let reference = self.reference_in(&answer.body).filter(|_| !answer.cut);
        let body = match answer.cut {
            false => outcome::Body::Kept(answer.body),
            true => outcome::Body::TooLarge { size: full_size(&answer), digest: digest(&answer.body) },
        };
        let (mut parts, ()) = Response::new(()).into_parts();
        parts.status = answer.status;
        parts.headers = answer.headers;
        stored_response::outcome(&parts, None, verdict, body).with_reference(reference)
    }

    /// The id that the downstream gave the effect.
    fn reference_in(&self, body: &[u8]) -> Option<String> {
        match find(body, self.reference.as_ref()?) {
            Found::Value(value) => id(value),
            Found::Nothing | Found::OtherForm => None,
        }
    }
}

/// The size that the answer declared, or at least that of what was read.
fn full_size(answer: &egress::Response) -> u64 {
    let declared = answer.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    declared.unwrap_or(0).max(answer.body.len() as u64)
}

fn not_sent(why: &NotSent) -> SinkResult {
    let health = match why {
        NotSent::Unresolved { .. } | NotSent::Unreachable { .. } | NotSent::Closed { .. } => Health::Failing,
        // About this process or this request.
        NotSent::Refused(_) | NotSent::Invalid(_) | NotSent::Busy | NotSent::Late => Health::Working,
        // Servers say this when they restart, too.
        NotSent::Unprocessed { .. } => Health::Working,
    };
    SinkResult::Refused { error: why.to_string(), retry_after: None, again: !why.is_refused(), health }
}
