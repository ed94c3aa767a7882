//! When an equal call is a repeat of the last one, and the policy that carries that rule out.
//!
//! A repeat is a call that a client makes because it did not get the answer to the first. A call after the answer is meant,
//! except where the effect reaches other people: there, an equal call soon afterwards is more likely an agent that repeats
//! itself.

use std::time::Duration;

use onceward::core::policy::{InDoubt, Policy, Retention};

use super::call::Naming;
use super::tools::Tools;
use crate::config::Tool;

/// How long an answer that was not delivered is kept for its client to ask again.
const UNDELIVERED: Duration = Duration::from_secs(10 * 60);

/// How long a repeat waits for the running one: within the patience of most clients.
const WAIT: Duration = Duration::from_secs(45);

/// How long the outcome of a tool that may be called again, as it says itself, answers calls that waited for it.
const MOMENT: Duration = Duration::from_secs(1);

/// Which rule holds for the calls of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// A key or a recipe says which call it is, or the configuration how long its outcome is kept: equal calls are one until
    /// that time is over.
    Kept,
    /// The effect reaches other people: a call after the answer is a repeat for a while.
    Outward,
    /// A call after the answer is meant.
    Causal,
    /// A second call does nothing more than the first, as the tool says: only calls that overlap are one.
    Idempotent,
}

impl Rule {
    /// Whether it makes a difference that an answer was delivered.
    pub(super) fn needs_delivery(self) -> bool {
        matches!(self, Self::Outward | Self::Causal)
    }
}

/// The rule for a call that no key names.
pub(super) fn rule(tool: &str, tools: &Tools) -> Rule {
    let configured = tools.configured(tool);
    if tools.has_recipe(tool) || configured.is_some_and(Tool::chooses_retention) {
        return Rule::Kept;
    }
    tools.rule(tool)
}

/// The policy of a call.
pub(super) fn policy(tool: &str, naming: &Naming, tools: &Tools, rule: Rule, in_session: bool) -> Policy {
    let configured = tools.configured(tool);
    let mut policy = configured.map(Tool::policy).unwrap_or_default();
    let chooses_in_doubt = configured.is_some_and(Tool::chooses_in_doubt);
    let has_tier = policy.tier.is_some();
    match rule {
        Rule::Kept => {}
        Rule::Idempotent => {
            policy.retention = Some(Retention::For(MOMENT));
            policy.tombstone = Some(Duration::ZERO);
        }
        Rule::Outward | Rule::Causal => {
            let after = if rule == Rule::Outward { naming.echo } else { Duration::ZERO };
            let is_session_kept = in_session && rule == Rule::Outward;
            policy.after_delivery = Some(after).filter(|_| !is_session_kept);
            if !in_session && !has_tier {
                policy.retention = Some(Retention::For(UNDELIVERED.max(after)));
            }
            if !has_tier && !is_session_kept {
                policy.tombstone = Some(Duration::ZERO);
            }
        }
    }
    if rule == Rule::Causal && !has_tier && !chooses_in_doubt {
        policy.in_doubt = InDoubt::Tell;
    }
    // The server says that a second call does nothing more than the first; but not one with another key.
    let keeps_key = tools.slot(tool).is_none_or(|slot| tools.unfit_slot(tool, &slot).is_none());
    if tools.is_idempotent(tool) && keeps_key && !chooses_in_doubt {
        policy.in_doubt = InDoubt::Retry;
    }
    if !configured.is_some_and(Tool::chooses_wait) {
        policy.wait = WAIT;
    }
    policy.deadline = policy.deadline.or(naming.deadline);
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_waits_unless_the_file_says_how_long() {
        let naming = Naming {
            server: String::new(),
            shown: String::new(),
            session: None,
            echo: Duration::from_secs(60),
            patience: Duration::ZERO,
            deadline: None,
        };
        let wait = |seconds| crate::config::Length(Duration::from_secs(seconds));
        let tool = |wait| {
            let operation = crate::config::Operation { wait, ..Default::default() };
            ("t".to_owned(), Tool { operation, ..Tool::default() })
        };
        for (given, expected) in
            [(None, WAIT), (Some(wait(0)), Duration::ZERO), (Some(wait(7)), Duration::from_secs(7))]
        {
            let tools = Tools::new([tool(given)].into());
            assert_eq!(policy("t", &naming, &tools, Rule::Causal, false).wait, expected);
        }
        assert_eq!(policy("other", &naming, &Tools::default(), Rule::Causal, false).wait, WAIT);
    }
}
