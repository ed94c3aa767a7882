//! One guarded call of a tool, in a straight line: which intent, claim, pass on, judge the answer, keep it, answer. Knows
//! nothing of how messages travel.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use onceward::clock::{Clock, SystemClock};
use onceward::core::decide::{Again, Decision, Resolution};
use onceward::core::name::Tenant;
use onceward::core::outcome::Verdict;
use onceward::core::plant::{Plant, planted};
use onceward::core::policy::StoreDown;
use onceward::core::record::{State, downstream_key};
use onceward::{Begun, Call, Delivery, Error, Guard, Ledger};
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::books::Books;
use super::call::{Asked, From, Naming};
use super::delivery::{Answered, Equals, Lines, Receipt, next_in_order};
use super::kind::Kind;
use super::link::{Answer, Link, NoAnswer};
use super::list::status_name;
use super::members::Members;
use super::message::{Id, ended};
use super::owners::{Owner, Owners};
use super::repeated::{WRITTEN_WITHIN, is_recent};
use super::repeats::Rule;
use super::reply::{About, Replies, Reply, ledger_down, unfit};
use super::tools::Tools;
use super::typed::Typed;
use super::verdict::{self, Ending};
use super::{call, delivery, status, task};

/// What a record says of an attempt that its client cancelled before the server knew of it.
const NEVER_SENT: &str = "it was cancelled before it was sent";

/// How often a call waits for another one that was cancelled before it began.
const TURNS: u32 = 10;

/// How many equal steps one waits for.
const STEPS: u32 = 100;

/// The line for a client, and what records that it has it.
type Handed = (Vec<u8>, Option<Delivery>);

/// What stands between a client and one server.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) naming: Naming,
    pub(super) tools: Tools,
    pub(super) replies: Replies,
    pub(super) books: Arc<Books>,
    pub(super) owners: Owners,
    /// Which equal calls are unanswered.
    pub(super) equals: Equals,
    /// Equal calls that run one after the other.
    pub(super) lines: Lines,
}

/// What becomes of a request to call a tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It is none of ours.
    Pass,
    /// It is guarded; or it cannot be told yet.
    Guard,
}

/// A request to call a tool.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) tenant: Tenant,
    /// What tells apart several servers of one name.
    pub(super) scope: String,
    pub(super) id: Id,
    /// The id, as it was written.
    pub(super) written: Box<RawValue>,
    pub(super) line: Bytes,
    pub(super) members: Members,
    /// The key that the client sent besides the message.
    pub(super) key: Option<String>,
    pub(super) from: From,
    /// The client says so when it gives up.
    pub(super) announces: bool,
    /// When it came: by the clock, and among other calls and answers.
    pub(super) since: Instant,
    pub(super) came: u64,
}

impl Request {
    /// A request that came as one line, which says all there is.
    pub(super) fn new(tenant: Tenant, id: Id, written: Box<RawValue>, line: Bytes, members: Members) -> Self {
        let (scope, key, from) = (String::new(), None, From::default());
        let (since, came) = (Instant::now(), next_in_order());
        Self { tenant, scope, id, written, line, members, key, from, announces: false, since, came }
    }

    /// Which request of which connection it is.
    pub(super) fn place(&self) -> delivery::Request {
        delivery::Request { connection: self.from.connection.clone(), id: self.id.clone() }
    }

    /// Whether it is of the generation that says so in every request.
    pub(super) fn is_modern(&self) -> bool {
        is_modern(&self.members)
    }
}

/// Whether a request is of the generation that says so in every request.
pub(super) fn is_modern(members: &Members) -> bool {
    let meta = members.object("params").and_then(|parameters| parameters.object("_meta"));
    meta.is_some_and(|meta| meta.get("io.modelcontextprotocol/protocolVersion").is_some())
}

/// One call, on its way.
pub(super) struct One<'a> {
    pub(super) asked: &'a Asked,
    /// The tool's name, as the client knows it.
    pub(super) shown: &'a str,
    /// What the tool has promised of its results.
    pub(super) typed: Typed,
    pub(super) call: &'a Call,
    /// Which calls are repeats.
    pub(super) rule: Rule,
    pub(super) kind: Kind,
    pub(super) request: &'a Request,
}

impl One<'_> {
    /// Whether it runs after an equal one that runs now, because the client means both of them.
    fn follows(&self, call: &Call) -> bool {
        self.rule == Rule::Causal && call.again != Again::Never && (self.kind.steps || call.again == Again::Always)
    }

    pub(super) fn about(&self) -> About<'_> {
        let (call, repeat, rule) = (self.call, self.asked.repeat, self.rule);
        About { tool: self.shown, typed: self.typed, call, rule, repeat }
    }
}

impl Gate {
    /// Whether a call can be passed on at once. What no server could run is for the server to refuse.
    pub(super) fn way(&self, members: &Members) -> Way {
        let Some(parameters) = members.get("params") else { return Way::Pass };
        let Some(parameters) = Members::read(parameters.get()) else { return Way::Guard };
        match parameters.text("name") {
            None if parameters.all("name").next().is_none() => Way::Pass,
            None => Way::Guard,
            Some(_) if !parameters.is_plain(&call::NAMES) => Way::Guard,
            Some(name) if self.is_own(&name) => Way::Guard,
            Some(name) if self.tools.is_unknown(&name) => Way::Guard,
            Some(name) if self.tools.why(&name).is_guarded() => {
                let arguments = parameters.object("arguments").unwrap_or_default();
                if self.tools.passes(&name, &arguments) { Way::Pass } else { Way::Guard }
            }
            Some(_) => Way::Pass,
        }
    }

    /// Whether it is our own tool.
    pub(super) fn is_own(&self, name: &str) -> bool {
        name == status_name(&self.tools)
    }

    /// Carries a call out, or says why not. `None` when nobody waits for an answer.
    pub(super) async fn carry_out<L: Link>(self: &Arc<Self>, request: &Request, link: &Arc<L>) -> Option<Answered> {
        let mut asked = match Asked::read(request, &self.tools) {
            Ok(asked) => asked,
            Err(why) => return Some(unfit(&why.0).answer(request)),
        };
        if self.is_own(&asked.tool) {
            // It is not passed on, and a ledger that is stuck takes its time.
            link.step_back();
            return Some(status::answer(self, &asked).await.answer(request));
        }
        if self.is_to_ask(&asked.tool) {
            self.ask_for_tools(&asked, &**link).await;
            // What is ours among the arguments depends on what the server lists.
            asked = match Asked::read(request, &self.tools) {
                Ok(asked) => asked,
                Err(why) => return Some(unfit(&why.0).answer(request)),
            };
        }
        if !self.tools.why(&asked.tool).is_guarded() || self.tools.passes(&asked.tool, asked.arguments()) {
            return self.unguarded(request, &request.line, &asked, &**link).await.map(Answered::from);
        }
        if !asked.has_key() {
            self.tools.warn_of_volatile(&asked.tool, asked.arguments());
        }
        let ledger = match self.books.ledger().await {
            Ok(ledger) => ledger,
            Err(error) => {
                let may_run = asked.policy(&self.naming, &self.tools).store_down == StoreDown::Open;
                if may_run {
                    tracing::warn!(%error, "a call runs unguarded: there is no ledger");
                    // Which call it is can be told without a store.
                    let call = match Ledger::open("memory:").await {
                        Ok(ledger) => asked.call(&ledger, &self.naming, &self.tools, asked.repeat),
                        Err(error) => Err(call::Unfit(error.to_string())),
                    };
                    return match call {
                        Ok(call) => self.without_store(request, &asked, &call, &**link).await.map(Answered::from),
                        Err(why) => Some(unfit(&why.0).answer(request)),
                    };
                }
                tracing::error!(%error, "a guarded call was refused: there is no ledger");
                return Some(ledger_down(&asked.tool).answer(request));
            }
        };
        let mut call = match asked.call(&ledger, &self.naming, &self.tools, asked.repeat) {
            Ok(call) => call,
            Err(why) => return Some(unfit(&why.0).answer(request)),
        };
        let (rule, kind) = (asked.rule(&self.tools), self.tools.kind(&asked.tool));
        call.again = self.again(&ledger, &call, rule, kind.steps, request).await;
        let shown = format!("{}{}", self.naming.shown, asked.tool);
        let typed = self.tools.typed(&asked.tool);
        let one = One { asked: &asked, shown: &shown, typed, call: &call, rule, kind, request };
        if let Some(reply) = self.before_a_repeat(&ledger, &one).await {
            return Some(reply.answer(request));
        }
        let open = self.equals.enter(call.identity.digest(), request.place(), request.came);
        // Until its work is done: an equal one that came later follows it.
        let waits_in_line = rule == Rule::Causal && (call.again == Again::Always || kind.steps);
        let _place = match waits_in_line {
            true => {
                if call.again == Again::Always {
                    link.step_back();
                }
                Some(self.lines.wait(call.identity.digest()).await)
            }
            false => None,
        };
        let (line, delivery) = self.guarded(&ledger, &one, link).await?;
        let receipt =
            delivery.filter(|_| rule.needs_delivery()).map(|delivery| Receipt { delivery, since: request.since, open });
        Some(Answered { line, receipt })
    }

    async fn guarded<L: Link>(self: &Arc<Self>, ledger: &Ledger, one: &One<'_>, link: &Arc<L>) -> Option<Handed> {
        let (mut turns, mut call) = (0, one.call.clone());
        let reply = loop {
            let begun = match ledger.begin(&call).await {
                Err(Error::Store(error)) if one.call.runs_without(&error) => {
                    tracing::warn!(%error, "a call runs unguarded: the store is down");
                    let line = self.without_store(one.request, one.asked, one.call, &**link).await;
                    return line.map(|line| (line, None));
                }
                Err(error) => break self.replies.failed(one.about(), &error),
                Ok(Begun::Acquired(guard)) => return self.own(ledger, one, guard, link).await,
                Ok(begun) => begun,
            };
            // Whoever does it in this process has an answer for us, also when it is not kept.
            let owner = self.owners.find(&one.call.identity);
            let is_running = matches!(begun, Begun::Answered(Decision::InFlight { running: true, .. }));
            if let Some(answer) = owner.as_ref().filter(|_| is_running).and_then(|owner| owner.goes_on()) {
                break Reply::Same((*answer).clone());
            }
            link.step_back();
            match ledger.wait_for(&call, begun, one.call.policy.wait).await {
                Ok(Begun::Acquired(guard)) => return self.own(ledger, one, guard, link).await,
                // Its own turn comes after the running one's.
                Ok(Begun::Answered(Decision::Replay { .. } | Decision::OutcomeNotKept { .. }))
                    if is_running && one.follows(&call) && turns < STEPS =>
                {
                    turns += 1;
                    call.again = Again::Always;
                }
                Ok(Begun::Answered(Decision::Replay { finished_at, .. }))
                    if !is_running
                        && one.rule == Rule::Causal
                        && call.again == Again::IfDelivered
                        && is_recent(finished_at) =>
                {
                    // Another process may have delivered it, and not have written so yet.
                    sleep(WRITTEN_WITHIN.saturating_sub(finished_at.until(SystemClock.now()))).await;
                }
                Ok(Begun::Answered(decision)) => {
                    let (reply, delivery) = self.decided(ledger, one, decision).await;
                    return Some((reply.line(one.request), delivery));
                }
                // Then it is our turn.
                Err(Error::OwnerFailed { reason, .. }) if turns < TURNS && reason == NEVER_SENT => turns += 1,
                Err(error) => match owner.and_then(|owner| owner.answer()) {
                    Some(answer) => break Reply::Same((*answer).clone()),
                    None => break self.replies.failed(one.about(), &error),
                },
            }
        };
        Some((reply.line(one.request), None))
    }

    /// This caller is the one.
    async fn own<L: Link>(
        self: &Arc<Self>,
        ledger: &Ledger,
        one: &One<'_>,
        guard: Guard,
        link: &Arc<L>,
    ) -> Option<Handed> {
        let key = self.key_for(one, &guard);
        let delivery = guard.delivery();
        let owner = self.owners.enter(&one.call.identity);
        let guard = match self.probed(ledger, one, guard, &key, &**link).await {
            Ok(guard) => guard,
            Err(reply) => return Some((reply.line(one.request), Some(delivery))),
        };
        let line = one.asked.passed_on(&one.request.line, &self.tools, &key);
        link.set_key(&key);
        match link.send(&one.request.id, line).await {
            Ok(answer) => {
                let line = self.judge(ledger, one, guard, answer, owner, link).await;
                if planted(Plant::DeliveredOnArrival) {
                    delivery.arrived();
                }
                Some((line, Some(delivery)))
            }
            Err(missing) => self.missing(ledger, one, guard, missing).await.map(|line| (line, Some(delivery))),
        }
    }

    /// The key that the server gets. Where only equal arguments make calls one, they do so for a while, and a later equal call is
    /// meant: it must have another key, because the provider behind the server may remember keys for longer. So the key
    /// belongs to the record, and is the same on each of its attempts. With `store_down = "open"` it belongs to the call,
    /// since without a store there is no record.
    fn key_for(&self, one: &One<'_>, guard: &Guard) -> String {
        let claim = guard.claim();
        let is_fixed = one.asked.is_named(&self.naming, &self.tools) || one.call.policy.store_down == StoreDown::Open;
        if is_fixed { claim.downstream_key().to_owned() } else { guard.record_key() }
    }

    async fn judge<L: Link>(
        self: &Arc<Self>,
        ledger: &Ledger,
        one: &One<'_>,
        guard: Guard,
        answer: Answer,
        owner: Owner,
        link: &Arc<L>,
    ) -> Vec<u8> {
        let ended_with = match verdict::of(&answer.members, &one.call.policy, answer.cancelled) {
            Ending::Keep(outcome) => {
                if one.kind.ends && outcome.verdict == Verdict::Success {
                    self.end_echo(ledger, one.asked).await;
                }
                let Err(error) = guard.finish(outcome).await else { return answer.line };
                log(Some(error));
                let told = self.replies.not_recorded(one.about(), &answer.members);
                owner.says(told.as_ref().unwrap_or(&answer.members));
                return told.map_or(answer.line, |members| ended(&members));
            }
            Ending::Release(why) => {
                owner.says(&answer.members);
                guard.release(Duration::ZERO, Some(why)).await
            }
            Ending::Doubt(why) => {
                let doubted = self.replies.doubted(one.about(), &answer.members);
                owner.says(doubted.as_ref().unwrap_or(&answer.members));
                log(guard.doubt(Some(why)).await.err());
                return doubted.map_or(answer.line, |members| ended(&members));
            }
            Ending::Task(id) => {
                owner.continues(&answer.members);
                let (link, meta, policy) = (Arc::clone(link), one.asked.meta(), Arc::clone(&one.call.policy));
                tokio::spawn(async move {
                    task::follow(guard, &*link, &id, meta, &policy).await;
                    drop(owner);
                });
                return answer.line;
            }
        };
        // The answer is true although it could not be recorded, so it is handed over all the same.
        log(ended_with.err());
        answer.line
    }

    async fn missing(
        self: &Arc<Self>,
        ledger: &Ledger,
        one: &One<'_>,
        guard: Guard,
        missing: NoAnswer,
    ) -> Option<Vec<u8>> {
        match missing {
            NoAnswer::Cancelled => {
                log(guard.release(Duration::ZERO, Some(NEVER_SENT)).await.err());
                None
            }
            NoAnswer::NotSent(why) => {
                log(guard.release(Duration::ZERO, Some(&why)).await.err());
                Some(self.replies.not_sent(one.about(), &why).line(one.request))
            }
            NoAnswer::Lost(why) => {
                log(guard.doubt(Some(&why)).await.err());
                Some(self.replies.lost(one.about(), &why, SystemClock.now()).line(one.request))
            }
            NoAnswer::GaveUp(late) => {
                let attempt = guard.claim().attempt();
                log(guard.doubt(Some("it was cancelled, and the server has not answered")).await.err());
                let (ledger, call) = (ledger.clone(), one.call.clone());
                tokio::spawn(async move {
                    if let Some(answer) = late.answer().await {
                        log(settled_late(&ledger, &call, attempt, &answer).await.err());
                    }
                });
                None
            }
        }
    }

    /// A call that `store_down = "open"` lets run without a record. It has the key of a guarded one, so that a server which
    /// honours keys still acts once. Only after `resolve` has said that a call did not happen is the guarded key another one.
    async fn without_store(&self, request: &Request, asked: &Asked, call: &Call, link: &impl Link) -> Option<Vec<u8>> {
        let key = downstream_key(&call.identity, "", 0);
        let line = asked.passed_on(&request.line, &self.tools, &key);
        link.set_key(&key);
        self.unguarded(request, &line, asked, link).await
    }

    /// A call that nothing guards, and whose answer is passed on as it comes.
    async fn unguarded(&self, request: &Request, line: &[u8], asked: &Asked, link: &impl Link) -> Option<Vec<u8>> {
        let reply = |why: &str| unfit(&format!("{} has no answer: {why}", asked.tool)).line(request);
        match link.send(&request.id, line.to_vec()).await {
            Ok(answer) => Some(answer.line),
            Err(NoAnswer::NotSent(why) | NoAnswer::Lost(why)) => Some(reply(&why)),
            Err(NoAnswer::Cancelled) => None,
            Err(NoAnswer::GaveUp(late)) => {
                tokio::spawn(late.answer());
                None
            }
        }
    }
}

/// News that came after a doubt was recorded settle it, unless somebody else did.
async fn settled_late(ledger: &Ledger, call: &Call, attempt: u32, answer: &Answer) -> Result<(), Error> {
    let Ending::Keep(outcome) = verdict::of(&answer.members, &call.policy, true) else { return Ok(()) };
    let Some(intent) = ledger.get(&call.identity).await? else { return Ok(()) };
    let record = &intent.seen.record;
    if matches!(record.state, State::InDoubt { .. }) && record.attempts == attempt {
        let outcome = outcome.within(call.policy.keep_limit);
        let happened = Resolution::Happened(outcome);
        let note = Some("the server answered after the call was cancelled");
        ledger.resolve(&call.identity, record.version, happened, Some("onceward mcp"), note).await?;
    }
    Ok(())
}

/// What could not be recorded is said on stderr, and nothing of the call besides its name.
pub(super) fn log(error: Option<Error>) {
    if let Some(error) = error {
        tracing::error!(%error, "what came of a guarded call could not be recorded");
    }
}
