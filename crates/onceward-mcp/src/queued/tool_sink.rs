//! The courier's sink for one queued tool: calls it, and says what became of the call.

use std::sync::Arc;
use std::time::Duration;

use onceward::core::duration;
use onceward::core::outcome::{Outcome, Verdict};
use onceward::core::policy::Policy;
use onceward::courier::{Health, LookUp, Parcel, Sink, SinkResult, async_trait};
use onceward_runtime::config::{Probe, Tool};
use tokio::time::timeout;

use super::super::call::filled_arguments;
use super::super::members::Members;
use super::super::probe_call::{self, ProbeResult};
use super::super::verdict::{self, Ending, RESULT};
use super::own_server::OwnServer;
use super::server_pipes::RequestEnd;

/// How long a call may take before it is in doubt, unless the tool has a `deadline`: no client is there to give up on a server
/// that hangs.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(10 * 60);

/// One queued tool of a server.
#[derive(Debug)]
pub(super) struct ToolSink {
    server: Arc<OwnServer>,
    tool: String,
    policy: Policy,
    probe: Option<Probe>,
}

impl ToolSink {
    pub(super) fn new(server: Arc<OwnServer>, tool: &str, configured: &Tool) -> Self {
        Self { server, tool: tool.to_owned(), policy: configured.policy(), probe: configured.probe.clone() }
    }

    /// Calls a tool of the server. An error proves that it was not called.
    async fn call(&self, tool: &str, arguments: &Members, limit: Duration) -> RequestEnd {
        let server = match self.server.running().await {
            Ok(server) => server,
            Err(why) => return RequestEnd::NotSent(format!("the server cannot be started: {why}")),
        };
        let mut parameters = Members::default();
        parameters.set("name", &tool);
        parameters.set("arguments", arguments);
        match timeout(limit, server.call(parameters)).await {
            Ok(end) => end,
            Err(_) => {
                // What hangs now may hang again.
                self.server.retire(&server).await;
                RequestEnd::Lost(format!("the server did not answer within {}", duration::format(limit)))
            }
        }
    }

    /// The arguments of an entry, with the downstream key in the argument that takes one.
    async fn arguments(&self, parcel: &Parcel) -> Result<Members, SinkResult> {
        let payload = std::str::from_utf8(&parcel.payload).ok().and_then(Members::read);
        let Some(payload) = payload else {
            let error = "the payload is not an object with the arguments of the tool".to_owned();
            return Err(SinkResult::Refused { error, retry_after: None, again: false, health: Health::Working });
        };
        // Which argument takes the key is known once the server has listed its tools.
        match self.server.running().await {
            Ok(server) => Ok(filled_arguments(&self.tool, &payload, &server.tools, &parcel.downstream_key)),
            Err(why) => Err(refused(format!("the server cannot be started: {why}"), Health::Failing)),
        }
    }

    /// What a response says about the attempt.
    fn judged(&self, answer: &Members) -> SinkResult {
        if verdict::asks_for_input(answer) {
            let error = "the tool asked for input, and there is no user who could be asked".to_owned();
            return SinkResult::AwaitsPerson { error, health: Health::Working };
        }
        match verdict::of(answer, &self.policy, false) {
            Ending::Keep(outcome) => SinkResult::Ended(outcome),
            Ending::Release(why) => refused(why.to_owned(), Health::Working),
            Ending::Doubt(why) => {
                SinkResult::Unknown { error: why.to_owned(), retry_after: None, health: Health::Working }
            }
            Ending::Task(_) => {
                let error = "the server goes on with it as a task, which a courier does not follow".to_owned();
                SinkResult::AwaitsPerson { error, health: Health::Working }
            }
        }
    }
}

fn refused(error: String, health: Health) -> SinkResult {
    SinkResult::Refused { error, retry_after: None, again: true, health }
}

#[async_trait]
impl Sink for ToolSink {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        let arguments = match self.arguments(parcel).await {
            Ok(arguments) => arguments,
            Err(result) => return result,
        };
        match self.call(&self.tool, &arguments, self.policy.deadline.unwrap_or(DEFAULT_DEADLINE)).await {
            RequestEnd::Answered(answer) => self.judged(&answer),
            RequestEnd::NotSent(why) => refused(why, Health::Failing),
            RequestEnd::Lost(error) => SinkResult::Unknown { error, retry_after: None, health: Health::Failing },
        }
    }

    async fn look_up(&self, parcel: &Parcel) -> LookUp {
        let Some(probe) = &self.probe else { return LookUp::Unknown("no probe is configured".to_owned()) };
        let Ok(sent) = self.arguments(parcel).await else {
            return LookUp::Unknown(format!("{} could not be called", probe.tool));
        };
        let arguments = match probe_call::parameters(probe, &sent, None).map(|filled| filled.object("arguments")) {
            Ok(arguments) => arguments.unwrap_or_default(),
            Err(why) => return LookUp::Unknown(why),
        };
        // The courier gives up on a look-up by itself.
        let RequestEnd::Answered(answer) = self.call(&probe.tool, &arguments, DEFAULT_DEADLINE).await else {
            return LookUp::Unknown(format!("{} did not respond", probe.tool));
        };
        match probe_call::read(probe, &answer) {
            ProbeResult::Happened => {
                let found = probe_call::found(probe, &self.tool, &answer);
                LookUp::Happened(Outcome::of(Verdict::Success, RESULT, found.to_json()))
            }
            ProbeResult::DidNotHappen => LookUp::NotFound,
            ProbeResult::Unknown(why) => LookUp::Unknown(why),
        }
    }

    fn can_look_up(&self) -> bool {
        self.probe.is_some()
    }

    async fn close(&self) {
        self.server.close().await;
    }
}
