//! One guarded call of a tool, from start to end: identifies the intent, claims it, forwards the call, judges the response, records
//! the outcome, and responds. Independent of the transport.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::{Again, Decision};
use onceward::core::name::Tenant;
use onceward::core::outcome::Verdict;
use onceward::core::policy::StoreDown;
use onceward::core::record::downstream_key;
use onceward::plant::{Plant, planted};
use onceward::{Call, Delivery, Error, Guard, Ledger, StartOptions, Started, store};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::call::{CallSettings, CallSource, ToolCall};
use super::delivery::{EqualCalls, OutgoingResponse, Receipt, StepQueues, next_in_order};
use super::kind::Kind;
use super::lazy_ledger::LazyLedger;
use super::list::status_name;
use super::members::Members;
use super::message::{Id, RequestId, to_line};
use super::owners::{Owner, OwnerResponse, Owners};
use super::repeat_rule::Rule;
use super::repeated_call::{DELIVERY_WRITE_TIME, is_recent};
use super::reply::{Replies, Reply, ReplyContext, invalid_call, ledger_down, no_response};
use super::result_schema::ResultSchema;
use super::tools::Tools;
use super::transport::{CallResponse, NoResponse, Transport};
use super::verdict::{self, Ending};
use super::{call, status, task};

/// The most equal steps that a step waits for.
const MAX_STEPS_AHEAD: u32 = 100;

/// The line for the client, and what records its delivery.
type ResponseLine = (Vec<u8>, Option<Delivery>);

/// Another running call of the same intent.
struct Running {
    /// Its owner, if that is in this process.
    owner: Option<Arc<OwnerResponse>>,
    /// The owner's response, while its work continues.
    answer: Option<Arc<Members>>,
}

/// The gateway between a client and one server.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) settings: CallSettings,
    pub(super) tools: Tools,
    pub(super) replies: Replies,
    pub(super) lazy_ledger: Arc<LazyLedger>,
    pub(super) owners: Owners,
    /// Equal calls without a response yet.
    pub(super) equals: EqualCalls,
    /// Equal calls that run one after the other.
    pub(super) lines: StepQueues,
}

/// How a request to call a tool is handled.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handling {
    /// Forward it as it is.
    Pass,
    /// Guard it, or find out first whether it must be guarded.
    Guard,
}

/// A request to call a tool.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) tenant: Tenant,
    /// Distinguishes several servers with one name.
    pub(super) scope: String,
    pub(super) id: Id,
    /// The id as the client wrote it.
    pub(super) written: Box<RawValue>,
    pub(super) line: Bytes,
    pub(super) members: Members,
    /// The key that the client sent in a header.
    pub(super) key: Option<String>,
    pub(super) source: CallSource,
    /// The client sends a cancellation when it gives up.
    pub(super) announces: bool,
    /// When it arrived: by the clock, and in the order of calls and responses.
    pub(super) since: Instant,
    pub(super) came: u64,
}

impl Request {
    /// A request without headers, source or scope.
    pub(super) fn new(tenant: Tenant, id: Id, written: Box<RawValue>, line: Bytes, members: Members) -> Self {
        let (scope, key, source) = (String::new(), None, CallSource::default());
        let (since, came) = (Instant::now(), next_in_order());
        Self { tenant, scope, id, written, line, members, key, source, announces: false, since, came }
    }

    /// Its connection and id.
    pub(super) fn request_id(&self) -> RequestId {
        RequestId { connection: self.source.connection.clone(), id: self.id.clone() }
    }

    /// Whether the request names its protocol version itself, as requests without a handshake do.
    pub(super) fn is_modern(&self) -> bool {
        is_modern(&self.members)
    }
}

/// Whether a request names its protocol version itself, as requests without a handshake do.
pub(super) fn is_modern(members: &Members) -> bool {
    let meta = members.object("params").and_then(|parameters| parameters.object("_meta"));
    meta.is_some_and(|meta| meta.get("io.modelcontextprotocol/protocolVersion").is_some())
}

/// A guarded call and everything known about it.
pub(super) struct GuardedCall<'a> {
    pub(super) tool_call: &'a ToolCall,
    /// The tool's name as the client sees it.
    pub(super) shown: &'a str,
    /// The tool's schema for structured results.
    pub(super) result_schema: ResultSchema,
    pub(super) call: &'a Call,
    /// When an equal call is a repeat.
    pub(super) rule: Rule,
    pub(super) kind: Kind,
    pub(super) request: &'a Request,
}

impl GuardedCall<'_> {
    /// Whether it is a step that runs after an equal running step, because the client wants both.
    fn follows(&self, call: &Call) -> bool {
        self.kind.steps && self.rule == Rule::Causal && call.again != Again::Never
    }

    pub(super) fn about(&self) -> ReplyContext<'_> {
        let (call, repeat, rule) = (self.call, self.tool_call.repeat, self.rule);
        ReplyContext { tool: self.shown, result_schema: self.result_schema, call, rule, repeat }
    }
}

impl Gate {
    /// Whether a call can be forwarded at once. The server refuses calls that it cannot run.
    pub(super) fn handling(&self, members: &Members) -> Handling {
        let Some(parameters) = members.get("params") else { return Handling::Pass };
        let Some(parameters) = Members::read(parameters.get()) else { return Handling::Guard };
        match parameters.text("name") {
            None if parameters.all("name").next().is_none() => Handling::Pass,
            None => Handling::Guard,
            Some(_) if !parameters.has_no_lookalikes(&call::NAMES) => Handling::Guard,
            Some(name) if self.is_own(&name) => Handling::Guard,
            Some(name) if self.tools.is_unknown(&name) => Handling::Guard,
            Some(name) if self.tools.guard_reason(&name).is_guarded() => {
                let arguments = parameters.object("arguments").unwrap_or_default();
                if self.tools.passes(&name, &arguments) { Handling::Pass } else { Handling::Guard }
            }
            Some(_) => Handling::Pass,
        }
    }

    /// Whether it is the gateway's own tool.
    pub(super) fn is_own(&self, name: &str) -> bool {
        name == status_name(&self.tools)
    }

    /// Carries out a call or says why not. `None` when the client does not wait for a response.
    pub(super) async fn carry_out<T: Transport>(
        self: &Arc<Self>,
        request: &Request,
        transport: &Arc<T>,
    ) -> Option<OutgoingResponse> {
        let mut tool_call = match ToolCall::read(request, &self.tools) {
            Ok(tool_call) => tool_call,
            Err(why) => return Some(invalid_call(&why.0).answer(request)),
        };
        if self.is_own(&tool_call.tool) {
            // It is not forwarded, and reading the ledger may take long.
            transport.step_back();
            return Some(status::answer(self, &tool_call).await.answer(request));
        }
        if self.is_to_ask(&tool_call.tool) {
            self.ask_for_tools(&tool_call, &**transport).await;
            // Which arguments belong to the gateway depends on the server's list of tools.
            tool_call = match ToolCall::read(request, &self.tools) {
                Ok(tool_call) => tool_call,
                Err(why) => return Some(invalid_call(&why.0).answer(request)),
            };
        }
        if !self.tools.guard_reason(&tool_call.tool).is_guarded()
            || self.tools.passes(&tool_call.tool, tool_call.arguments())
        {
            return self.unguarded(request, &request.line, &tool_call, &**transport).await.map(OutgoingResponse::from);
        }
        if !tool_call.has_key() {
            self.tools.warn_of_volatile(&tool_call.tool, tool_call.arguments());
        }
        let ledger = match self.lazy_ledger.ledger().await {
            Ok(ledger) => ledger,
            Err(error) => return self.without_ledger(request, &tool_call, &error, &**transport).await,
        };
        let mut call = match tool_call.call(&ledger, &self.settings, &self.tools, tool_call.repeat) {
            Ok(call) => call,
            Err(why) => return Some(invalid_call(&why.0).answer(request)),
        };
        let (rule, kind) = (tool_call.rule(&self.tools), self.tools.kind(&tool_call.tool));
        call.again = self.again(&call, rule, kind.steps, request).await;
        let shown = format!("{}{}", self.settings.tool_prefix, tool_call.tool);
        let result_schema = self.tools.result_schema(&tool_call.tool);
        let guarded =
            GuardedCall { tool_call: &tool_call, shown: &shown, result_schema, call: &call, rule, kind, request };
        if let Some(reply) = self.check_previous_repeat(&ledger, &guarded).await {
            return Some(reply.answer(request));
        }
        if self.tools.is_queued(&tool_call.tool) {
            transport.step_back();
            return Some(self.enqueue(&ledger, &guarded).await.answer(request));
        }
        let open = self.equals.enter(call.identity.digest(), request.request_id(), request.came);
        // Held until the step is done: an equal later step runs after it.
        let _place = if kind.steps && rule == Rule::Causal {
            if call.again == Again::Always {
                transport.step_back();
            }
            Some(self.lines.wait(call.identity.digest()).await)
        } else {
            None
        };
        let (line, delivery) = self.run_guarded(&ledger, &guarded, transport).await?;
        let receipt =
            delivery.filter(|_| rule.needs_delivery()).map(|delivery| Receipt { delivery, since: request.since, open });
        Some(OutgoingResponse { line, receipt })
    }

    async fn run_guarded<T: Transport>(
        self: &Arc<Self>,
        ledger: &Ledger,
        guarded: &GuardedCall<'_>,
        transport: &Arc<T>,
    ) -> Option<ResponseLine> {
        let (mut turns, mut call) = (0, guarded.call.clone());
        let reply = loop {
            // The owner in this process, if another call is running. Its response is also for this call, even if the response is not
            // recorded; then there is nothing to wait for.
            let running: OnceLock<Running> = OnceLock::new();
            let on_running = || {
                let owner = self.owners.find(&guarded.call.identity);
                let answer = owner.as_ref().and_then(|owner| owner.goes_on());
                let waits = answer.is_none();
                if waits {
                    transport.step_back();
                }
                let _ = running.set(Running { owner, answer });
                waits
            };
            let started = ledger.start(&call, StartOptions::default().on_running(&on_running)).await;
            let running = running.get();
            if let Some(answer) = running.and_then(|running| running.answer.as_ref()) {
                break Reply::Same((**answer).clone());
            }
            match started {
                Ok(Started::Acquired(guard)) => return self.run_as_owner(ledger, guarded, guard, transport).await,
                Ok(Started::Unguarded { .. }) => {
                    let line = self.without_store(guarded.request, guarded.tool_call, guarded.call, &**transport).await;
                    return line.map(|line| (line, None));
                }
                // This step runs after the running one.
                Ok(Started::Answered(Decision::Replay { .. } | Decision::OutcomeNotKept { .. }))
                    if running.is_some() && guarded.follows(&call) && turns < MAX_STEPS_AHEAD =>
                {
                    turns += 1;
                    call.again = Again::Always;
                }
                Ok(Started::Answered(Decision::Replay { finished_at, .. }))
                    if running.is_none()
                        && guarded.rule == Rule::Causal
                        && call.again == Again::IfDelivered
                        && is_recent(finished_at) =>
                {
                    transport.step_back();
                    // Another process may have delivered it and not recorded that yet.
                    sleep(DELIVERY_WRITE_TIME.saturating_sub(finished_at.until(SystemClock.now()))).await;
                }
                Ok(Started::Answered(decision)) => {
                    transport.step_back();
                    if call.again == Again::IfDelivered
                        && let Some(end) = self.ended_before(ledger, guarded, &decision).await
                    {
                        call.again = Again::IfDeliveredBefore(end);
                        continue;
                    }
                    let (reply, delivery) = self.decided(ledger, guarded, decision).await;
                    return Some((reply.line(guarded.request), delivery));
                }
                Err(error) => match running.and_then(|running| running.owner.as_ref()?.answer()) {
                    Some(answer) => break Reply::Same((*answer).clone()),
                    None => break self.replies.failed(guarded.about(), &error),
                },
            }
        };
        Some((reply.line(guarded.request), None))
    }

    /// Forwards the call: this caller owns the claim.
    async fn run_as_owner<T: Transport>(
        self: &Arc<Self>,
        ledger: &Ledger,
        guarded: &GuardedCall<'_>,
        guard: Guard,
        transport: &Arc<T>,
    ) -> Option<ResponseLine> {
        let key = self.key_for(guarded, &guard);
        let delivery = guard.delivery();
        let owner = self.owners.enter(&guarded.call.identity);
        let guard = match self.probe_first(ledger, guarded, guard, &key, &**transport).await {
            Ok(guard) => guard,
            Err(reply) => return Some((reply.line(guarded.request), Some(delivery))),
        };
        let line = guarded.tool_call.passed_on(&guarded.request.line, &self.tools, &key);
        transport.set_key(&key);
        match transport.send(&guarded.request.id, line).await {
            Ok(answer) => {
                let line = self.judge(ledger, guarded, guard, answer, owner, transport).await;
                if planted(Plant::DeliveredOnArrival) {
                    delivery.arrived();
                }
                Some((line, Some(delivery)))
            }
            Err(no_answer) => self.no_answer(guarded, guard, no_answer).await.map(|line| (line, Some(delivery))),
        }
    }

    /// The key that the server gets. Where only equal arguments identify a call, they do so for a while, and a later equal call is
    /// deliberate. It needs another key, because the provider behind the server may remember keys for longer. So the key belongs to
    /// the record and is the same on each of its attempts. With `store_down = "open"` the key belongs to the call, since without a
    /// store there is no record.
    fn key_for(&self, guarded: &GuardedCall<'_>, guard: &Guard) -> String {
        let claim = guard.claim();
        let is_fixed = guarded.tool_call.is_named(&self.settings, &self.tools)
            || guarded.call.policy.store_down == StoreDown::Open;
        if is_fixed { claim.downstream_key().to_owned() } else { guard.record_key() }
    }

    async fn judge<T: Transport>(
        self: &Arc<Self>,
        ledger: &Ledger,
        guarded: &GuardedCall<'_>,
        guard: Guard,
        answer: CallResponse,
        owner: Owner,
        transport: &Arc<T>,
    ) -> Vec<u8> {
        let ended_with = match verdict::of(&answer.members, &guarded.call.policy, answer.cancelled) {
            Ending::Keep(outcome) => {
                if guarded.kind.ends && outcome.verdict == Verdict::Success {
                    self.end_echo(ledger, guarded.tool_call).await;
                }
                let Err(error) = guard.finish(outcome).await else { return answer.line };
                log_error(Some(error));
                let noted = self.replies.not_recorded(guarded.about(), &answer.members);
                owner.set_response(noted.as_ref().unwrap_or(&answer.members));
                return noted.map_or(answer.line, |members| to_line(&members));
            }
            Ending::Release(why) => {
                owner.set_response(&answer.members);
                guard.release(Duration::ZERO, Some(why)).await
            }
            Ending::Doubt(why) => {
                let doubted = self.replies.doubted(guarded.about(), &answer.members);
                owner.set_response(doubted.as_ref().unwrap_or(&answer.members));
                log_error(guard.doubt(Some(why)).await.err());
                return doubted.map_or(answer.line, |members| to_line(&members));
            }
            Ending::Task(id) => {
                owner.set_ongoing(&answer.members);
                let (transport, meta, policy) =
                    (Arc::clone(transport), guarded.tool_call.meta(), Arc::clone(&guarded.call.policy));
                tokio::spawn(async move {
                    task::follow(guard, &*transport, &id, meta, &policy).await;
                    drop(owner);
                });
                return answer.line;
            }
        };
        // The client gets the response even if it could not be recorded.
        log_error(ended_with.err());
        answer.line
    }

    async fn no_answer(&self, guarded: &GuardedCall<'_>, guard: Guard, no_answer: NoResponse) -> Option<Vec<u8>> {
        match no_answer {
            NoResponse::Cancelled => {
                log_error(guard.withdraw(Some("the client cancelled it before it was sent")).await.err());
                None
            }
            NoResponse::NotSent(why) => {
                log_error(guard.release(Duration::ZERO, Some(&why)).await.err());
                Some(self.replies.not_sent(guarded.about(), &why).line(guarded.request))
            }
            NoResponse::Lost(why) => {
                log_error(guard.doubt(Some(&why)).await.err());
                Some(self.replies.lost(guarded.about(), &why, SystemClock.now()).line(guarded.request))
            }
            NoResponse::GaveUp(late) => {
                let owner = guard.late_owner();
                log_error(guard.doubt(Some("the client cancelled it, and the server has not responded")).await.err());
                let policy = Arc::clone(&guarded.call.policy);
                tokio::spawn(async move {
                    let Some(answer) = late.answer().await else { return };
                    if let Ending::Keep(outcome) = verdict::of(&answer.members, &policy, true) {
                        log_error(owner.finish(outcome).await.err());
                    }
                });
                None
            }
        }
    }

    /// Answers a call whose ledger cannot be opened.
    async fn without_ledger(
        &self,
        request: &Request,
        tool_call: &ToolCall,
        error: &store::Error,
        transport: &impl Transport,
    ) -> Option<OutgoingResponse> {
        // The key and the policy of a call do not depend on the store.
        let call = match Ledger::open("memory:").await {
            Ok(ledger) => tool_call.call(&ledger, &self.settings, &self.tools, tool_call.repeat),
            Err(error) => Err(call::InvalidCall(error.to_string())),
        };
        match call {
            Ok(call) if call.may_run_without_store(error) => {
                tracing::warn!(%error, "a call runs unguarded: the ledger is not available");
                self.without_store(request, tool_call, &call, transport).await.map(OutgoingResponse::from)
            }
            Ok(_) => {
                tracing::error!(%error, "a guarded call was refused: the ledger is not available");
                Some(ledger_down(&tool_call.tool).answer(request))
            }
            Err(why) => Some(invalid_call(&why.0).answer(request)),
        }
    }

    /// Runs a call without a record, as `store_down = "open"` allows. It has the key of a guarded call, so that a server which honours
    /// keys still acts once. The guarded key differs only after `resolve` has said that a call did not happen.
    async fn without_store(
        &self,
        request: &Request,
        tool_call: &ToolCall,
        call: &Call,
        transport: &impl Transport,
    ) -> Option<Vec<u8>> {
        let key = downstream_key(&call.identity, "", 0);
        let line = tool_call.passed_on(&request.line, &self.tools, &key);
        transport.set_key(&key);
        self.unguarded(request, &line, tool_call, transport).await
    }

    /// Forwards a call without a guard, and its response as it comes.
    async fn unguarded(
        &self,
        request: &Request,
        line: &[u8],
        tool_call: &ToolCall,
        transport: &impl Transport,
    ) -> Option<Vec<u8>> {
        let reply = |why: &str| no_response(&tool_call.tool, why).line(request);
        match transport.send(&request.id, line.to_vec()).await {
            Ok(answer) => Some(answer.line),
            Err(NoResponse::NotSent(why) | NoResponse::Lost(why)) => Some(reply(&why)),
            Err(NoResponse::Cancelled) => None,
            Err(NoResponse::GaveUp(late)) => {
                tokio::spawn(late.answer());
                None
            }
        }
    }
}

/// Logs that an outcome could not be recorded, without details of the call.
pub(super) fn log_error(error: Option<Error>) {
    if let Some(error) = error {
        tracing::error!(%error, "the outcome of a guarded call could not be recorded");
    }
}
