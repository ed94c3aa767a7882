//! When an equal call is a repeat, and the policy that implements the rule.
//!
//! A repeat is a call that a client makes because it did not get the response to the first. A call after the response is
//! deliberate, except where the effect reaches other people: there, an equal call soon afterwards is more likely an agent that
//! repeats itself.

use std::time::Duration;

use onceward::core::policy::{InDoubt, Policy, Retention};

use super::call::CallSettings;
use super::tools::Tools;
use onceward_runtime::config::Tool;

/// How long an undelivered response is stored for its client to ask again.
const UNDELIVERED_RETENTION: Duration = Duration::from_secs(10 * 60);

/// How long a repeat waits for the running call: shorter than the time-outs of most clients.
const REPEAT_WAIT: Duration = Duration::from_secs(45);

/// How long the outcome of an idempotent tool is stored, for calls that waited for it.
const IDEMPOTENT_RETENTION: Duration = Duration::from_secs(1);

/// When an equal call is a repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A key or a recipe identifies the call, or the configuration sets its retention: equal calls are repeats until the retention
    /// ends.
    Kept,
    /// The effect reaches other people: a call after the response is a repeat for a while.
    Outward,
    /// A call after the response is deliberate.
    Causal,
    /// The tool declares that a second call has no further effect: only overlapping calls are repeats.
    Idempotent,
}

impl Rule {
    /// Whether the rule depends on the delivery of the response.
    pub(super) fn needs_delivery(self) -> bool {
        matches!(self, Self::Outward | Self::Causal)
    }
}

/// The rule for a call without a key.
pub(super) fn rule(tool: &str, tools: &Tools) -> Rule {
    let configured = tools.configured(tool);
    if tools.has_recipe(tool) || configured.is_some_and(Tool::chooses_retention) {
        return Rule::Kept;
    }
    tools.rule(tool)
}

/// The policy of a call. The response to a queued call comes before the call is made, so that its delivery says nothing: equal calls
/// are repeats until the retention ends.
pub(super) fn policy(tool: &str, settings: &CallSettings, tools: &Tools, rule: Rule, in_session: bool) -> Policy {
    let rule = if tools.is_queued(tool) { Rule::Kept } else { rule };
    let configured = tools.configured(tool);
    let mut policy = configured.map(Tool::policy).unwrap_or_default();
    let chooses_in_doubt = configured.is_some_and(Tool::chooses_in_doubt);
    let has_tier = policy.tier.is_some();
    match rule {
        Rule::Kept => {}
        Rule::Idempotent => {
            policy.retention = Some(Retention::For(IDEMPOTENT_RETENTION));
            policy.tombstone = Some(Duration::ZERO);
        }
        Rule::Outward | Rule::Causal => {
            let after = if rule == Rule::Outward { settings.echo } else { Duration::ZERO };
            let is_session_kept = in_session && rule == Rule::Outward;
            policy.after_delivery = Some(after).filter(|_| !is_session_kept);
            if !in_session && !has_tier {
                policy.retention = Some(Retention::For(UNDELIVERED_RETENTION.max(after)));
            }
            if !has_tier && !is_session_kept {
                policy.tombstone = Some(Duration::ZERO);
            }
        }
    }
    if rule == Rule::Causal && !has_tier && !chooses_in_doubt {
        policy.in_doubt = InDoubt::Tell;
    }
    // The server declares that a second call has no further effect, but not for one with another key.
    let keeps_key = tools.key_slot(tool).is_none_or(|slot| tools.key_problem(tool, &slot).is_none());
    if tools.is_idempotent(tool) && keeps_key && !chooses_in_doubt {
        policy.in_doubt = InDoubt::Retry;
    }
    if !configured.is_some_and(Tool::chooses_wait) {
        policy.wait = REPEAT_WAIT;
    }
    policy.deadline = policy.deadline.or(settings.deadline);
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_waits_for_the_default_time_unless_configured() {
        let settings = CallSettings {
            server: String::new(),
            tool_prefix: String::new(),
            session: None,
            echo: Duration::from_secs(60),
            patience: Duration::ZERO,
            deadline: None,
        };
        let wait = |seconds| onceward_runtime::config::Length(Duration::from_secs(seconds));
        let tool = |wait| {
            let operation = onceward_runtime::config::Operation { wait, ..Default::default() };
            ("t".to_owned(), Tool { operation, ..Tool::default() })
        };
        for (given, expected) in
            [(None, REPEAT_WAIT), (Some(wait(0)), Duration::ZERO), (Some(wait(7)), Duration::from_secs(7))]
        {
            let tools = Tools::new([tool(given)].into());
            assert_eq!(policy("t", &settings, &tools, Rule::Causal, false).wait, expected);
        }
        assert_eq!(policy("other", &settings, &Tools::default(), Rule::Causal, false).wait, REPEAT_WAIT);
    }
}
