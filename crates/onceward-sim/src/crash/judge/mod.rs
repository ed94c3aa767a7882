//! The rules that the journal alone can break. Each is a promise of the ledger; none trusts the ledger's own account of
//! what happened.

use std::collections::{BTreeMap, HashMap};

use onceward::step::Step;

use crate::crash::history::{Attempt, History, KnownOutcome, millis};
use crate::crash::intent_kind::IntentKind;
use crate::crash::journal::{CallResult, Ending, Event, Line};
use crate::crash::plan::RunPlan;

/// All intents, and what was broken.
#[derive(Debug)]
pub struct Judge {
    /// The plan of the run.
    pub plan: RunPlan,
    /// When the last worker was found to have ended.
    pub owners_gone_at: i64,
    /// The intents by number.
    pub histories: HashMap<u64, History>,
    /// What was broken, in the order in which it was found.
    pub violations: Vec<String>,
    /// What was seen.
    pub tally: Tally,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Kills at each step.
    pub steps: BTreeMap<String, u64>,
    /// Claims that were granted.
    pub claims: u64,
    /// Effects.
    pub effects: u64,
    /// Effects that came after the downstream had forgotten the key, by attempts that took longer than their policy
    /// says.
    pub overran: u64,
    /// Outcomes that the ledger acknowledged.
    pub acknowledged: u64,
    /// Outcomes that it replayed.
    pub replays: u64,
    /// Claims on an intent of which an earlier attempt had not ended.
    pub takeovers: u64,
    /// Keys that were used again after they were forgotten.
    pub renewals_of_keys: u64,
    /// The same for intents that had never happened.
    pub started_over: u64,
    /// Doubts that the parent settled.
    pub resolved: u64,
    /// Other answers.
    pub answers: BTreeMap<CallResult, u64>,
}

impl Judge {
    /// A judge that has seen nothing.
    pub fn new(plan: RunPlan) -> Self {
        Self { plan, owners_gone_at: 0, histories: HashMap::new(), violations: Vec::new(), tally: Tally::default() }
    }

    /// The history of an intent.
    pub fn history(&mut self, intent: u64) -> &mut History {
        let plan = self.plan;
        self.histories.entry(intent).or_insert_with(|| History::new(plan.kind(intent)))
    }

    /// The steps at which no worker died.
    pub fn missed_steps(&self) -> Vec<String> {
        let names = Step::OF_CALLS.into_iter().map(Step::name);
        names.filter(|name| !self.tally.steps.contains_key(name)).collect()
    }

    /// Records a violation.
    pub fn blame(&mut self, intent: u64, event: impl std::fmt::Display) {
        let history = self.history(intent);
        let kind = history.kind;
        self.violations.push(format!("intent {intent} ({}): {event}", describe(kind)));
    }

    /// Judges one line.
    pub fn add(&mut self, line: &Line) {
        let found = match &line.event {
            Event::Try { attempt, created, until, asked } => self.tried(line, *attempt, *created, (*until, *asked)),
            Event::Sending | Event::Sent | Event::End(_) => self.marked(line),
            Event::NotFound => {
                self.not_found(line);
                Ok(())
            }
            Event::Left => {
                self.history(line.intent).left += 1;
                Ok(())
            }
            Event::Effect { key } => self.happened(line, key),
            Event::Ack { value } => self.acknowledged(line, value),
            Event::Replay { value, asked } => self.replayed(line, value, *asked),
            Event::Answered { answer, asked, detail } => self.told(line, *answer, *asked, detail),
            Event::NoMismatch { got } => Err(format!("another request under the same key was not refused: {got}")),
            Event::Dies { step } => {
                *self.tally.steps.entry(step.clone()).or_default() += 1;
                Ok(())
            }
            Event::Settled { value, attempts, created, from } => {
                self.settled(line, value.as_deref(), *attempts, (*created, *from))
            }
        };
        if let Err(event) = found {
            let nonce = &line.nonce;
            self.blame(line.intent, format_args!("{event} (line of {nonce} at {})", line.at));
        }
    }

    fn tried(&mut self, line: &Line, number: u32, created: i64, (until, asked): (i64, i64)) -> Result<(), String> {
        self.tally.claims += 1;
        let history = self.history(line.intent);
        let kind = history.kind;
        let is_old = history.generations.last().is_some_and(|last| created < last.created);
        if created == 0 || (is_old && history.generations.iter().all(|generation| generation.created != created)) {
            history.lost.insert(line.nonce.clone(), asked);
            return Ok(());
        }
        let index = history.generation(created)?;
        let is_first = history.generations.len() == 1;
        let was_done = index.checked_sub(1).is_some_and(|last| history.generations[last].finished().is_some());
        let left = history.left;
        let generation = &mut history.generations[index];
        let is_new = !is_first && generation.attempts.is_empty();
        let attempt = Attempt {
            nonce: line.nonce.clone(),
            asked,
            tried: line.at,
            until,
            sending: false,
            sent: false,
            sent_by: (!kind.marks).then_some(line.at),
            effect: None,
            evaded_probe: false,
            ended: None,
            told: false,
        };
        let unproven = generation.unproven(number, kind, left);
        let unended = (1..number).any(|earlier| generation.attempts.get(&earlier).is_none_or(|a| a.ended.is_none()));
        let first_sent = generation.first_sent();
        let twin = generation.attempts.insert(number, attempt);
        let outcome = generation.outcome.clone();
        self.tally.takeovers += u64::from(unended);
        self.tally.renewals_of_keys += u64::from(is_new);
        self.tally.started_over += u64::from(is_new && !was_done);
        if let Some(twin) = twin {
            return Err(format!("attempt {number} was granted twice, before to {}", twin.nonce));
        }
        if let Some(known) = outcome
            && known.attempt.is_none_or(|finished| number > finished)
        {
            return Err(format!("attempt {number} was granted although the outcome is {}", known.value));
        }
        if kind.holds() && !unproven.is_empty() {
            return Err(format!("attempt {number} was granted although attempts {unproven:?} may have happened"));
        }
        let known_for = millis(kind.times.forgetful_memory);
        match first_sent {
            Some(first) if kind.forgetful && !unproven.is_empty() && asked >= first + known_for => Err(format!(
                "attempt {number} was granted {} ms after the first, and the downstream knows the key for {known_for} ms",
                asked - first
            )),
            _ => Ok(()),
        }
    }

    fn marked(&mut self, line: &Line) -> Result<(), String> {
        let history = self.history(line.intent);
        let kind = history.kind;
        let Some((index, number)) = history.attempt(&line.nonce) else {
            let is_sent = line.event == Event::Sent && kind.holds();
            return if is_sent { Err("`sent` succeeded although the claim was lost".to_owned()) } else { Ok(()) };
        };
        let generation = &mut history.generations[index];
        let superseded = generation.attempts.range(number + 1..).next().map(|(other, by)| (*other, by.tried));
        let Some(attempt) = generation.attempts.get_mut(&number) else { return Ok(()) };
        let until = attempt.until;
        match line.event {
            Event::Sending => attempt.sending = true,
            Event::Sent => (attempt.sent, attempt.sent_by) = (true, Some(line.at)),
            Event::End(ending) => attempt.ended = Some((ending, line.at)),
            _ => {}
        }
        match superseded {
            Some((other, _)) if line.event == Event::Sent && kind.holds() => {
                Err(format!("`sent` of attempt {number} succeeded although attempt {other} was granted"))
            }
            Some((other, tried)) if tried < until => Err(format!(
                "attempt {number} is alive and its lease lasts until {until}, yet attempt {other} began at {tried}"
            )),
            _ => Ok(()),
        }
    }

    fn happened(&mut self, line: &Line, key: &str) -> Result<(), String> {
        self.tally.effects += 1;
        let history = self.history(line.intent);
        let kind = history.kind;
        let first = history.key.get_or_insert_with(|| key.to_owned()).clone();
        let found = history.attempt(&line.nonce);
        let Some((index, number)) = found else {
            return match history.lost.get(&line.nonce) {
                Some(asked) if evades_probe(kind, line.at - asked) => {
                    self.tally.overran += 1;
                    Ok(())
                }
                Some(_) if kind.at_most_once() => Err("an effect took place under a claim that was lost".to_owned()),
                Some(_) => Ok(()),
                None => Err("an effect took place without a claim".to_owned()),
            };
        };
        if first != key {
            return Err(format!("the downstream key is {key}, and was {first} before"));
        }
        let generation = &mut history.generations[index];
        let is_superseded = generation.attempts.range(number + 1..).next().is_some();
        let Some(attempt) = generation.attempts.get_mut(&number) else { return Ok(()) };
        attempt.effect = Some(line.at);
        attempt.evaded_probe = is_superseded && evades_probe(kind, line.at - attempt.asked);
        let evaded = attempt.evaded_probe;
        let in_time = line.at - attempt.asked <= millis(kind.max_runtime());
        let known_since = generation.attempts.values().filter_map(|attempt| attempt.effect).min().unwrap_or(line.at);
        let memory = millis(kind.times.forgetful_memory);
        let forgotten = kind.forgetful && line.at >= known_since + memory;
        let effects = generation.effects().filter(|attempt| !attempt.evaded_probe);
        let effects: Vec<&str> = effects.map(|attempt| attempt.nonce.as_str()).collect();
        if kind.at_most_once() && effects.len() > 1 {
            return Err(format!("it happened {} times, by {effects:?}", effects.len()));
        }
        if forgotten && in_time {
            return Err(format!(
                "attempt {number} kept to its time, and reached the downstream {} ms after the first effect, which it \
                 remembers for {memory} ms: it happened twice",
                line.at - known_since
            ));
        }
        // The policy promised a shorter attempt: the ledger cannot stop what a process does late.
        self.tally.overran += u64::from(forgotten || evaded);
        Ok(())
    }

    fn acknowledged(&mut self, line: &Line, value: &str) -> Result<(), String> {
        self.tally.acknowledged += 1;
        let history = self.history(line.intent);
        let Some((index, number)) = history.attempt(&line.nonce) else {
            return Err(format!("{value} was acknowledged to an owner whose claim was lost"));
        };
        let generation = &mut history.generations[index];
        let nonce = value.strip_prefix("failed:").unwrap_or(value);
        if nonce != line.nonce && generation.effects().all(|attempt| attempt.nonce != nonce) {
            return Err(format!("{value} was acknowledged to an attempt that did not produce it"));
        }
        let earliest = match generation.attempts.get(&number).and_then(|attempt| attempt.ended) {
            Some((Ending::Finish, at)) => at,
            other => return Err(format!("{value} was acknowledged, but its attempt ended with {other:?}")),
        };
        if let Some((later, _)) = generation.attempts.range(number + 1..).next() {
            return Err(format!("{value} of attempt {number} was acknowledged after attempt {later} was granted"));
        }
        let known = KnownOutcome { value: value.to_owned(), earliest, latest: line.at, attempt: Some(number) };
        learn(&mut generation.outcome, known)
    }

    fn replayed(&mut self, line: &Line, value: &str, asked: i64) -> Result<(), String> {
        self.tally.replays += 1;
        let history = self.history(line.intent);
        let retention = millis(history.kind.retention());
        let Some((index, attempt, earliest)) = history.producer(value) else {
            return Err(format!("{value} was replayed, and no attempt produced it"));
        };
        let known = KnownOutcome { value: value.to_owned(), earliest, latest: line.at, attempt };
        let generation = &mut history.generations[index];
        learn(&mut generation.outcome, known)?;
        match &generation.outcome {
            Some(known) if asked > known.latest + retention => {
                Err(format!("{value} was replayed to a call that came {} ms after it", asked - known.latest))
            }
            _ => Ok(()),
        }
    }

    fn told(&mut self, line: &Line, answer: CallResult, asked: i64, detail: &str) -> Result<(), String> {
        *self.tally.answers.entry(answer).or_default() += 1;
        let history = self.history(line.intent);
        let kind = history.kind;
        let retention = millis(kind.retention());
        let finished = history.generations.iter().filter_map(|generation| generation.finished()).min();
        let outcome = history.latest().and_then(|generation| generation.outcome.clone());
        match answer {
            CallResult::Wrong => return Err(format!("a correct call got: {detail}")),
            CallResult::ClaimLost if kind.holds() && !kind.marks => {
                return Err("a claim was lost that no caller may take over".to_owned());
            }
            CallResult::NotKept if finished.is_none_or(|finished| line.at < finished + retention) => {
                return Err("the outcome was dropped before its time".to_owned());
            }
            CallResult::Store => {
                return Err(format!("the store failed, and nothing was done to it but kills: {detail}"));
            }
            CallResult::ClaimLost => {
                let ended = history.attempt(&line.nonce);
                let ended = ended.and_then(|(index, number)| history.generations[index].attempts[&number].ended);
                history.late += usize::from(matches!(ended, Some((Ending::Finish, _))));
            }
            CallResult::Failed => {
                if let Some((index, number)) = history.attempt(&line.nonce)
                    && let Some(attempt) = history.generations[index].attempts.get_mut(&number)
                {
                    attempt.told = true;
                }
            }
            _ => {}
        }
        match outcome {
            Some(known) if known.latest < asked && line.at < known.earliest + retention && !is_own(answer) => {
                Err(format!("the outcome {} was known, but the answer is {answer:?}: {detail}", known.value))
            }
            _ => Ok(()),
        }
    }

    /// A probe found nothing downstream.
    fn not_found(&mut self, line: &Line) {
        let history = self.history(line.intent);
        if let Some((index, number)) = history.attempt(&line.nonce) {
            let generation = &mut history.generations[index];
            generation.settled = generation.settled.max(number - 1);
        }
    }

    fn settled(
        &mut self,
        line: &Line,
        value: Option<&str>,
        attempts: u32,
        (created, from): (i64, i64),
    ) -> Result<(), String> {
        self.tally.resolved += 1;
        let history = self.history(line.intent);
        let index = history.generation(created)?;
        let generation = &mut history.generations[index];
        match value {
            None => (generation.settled, generation.settled_at) = (attempts, from),
            Some(value) => {
                let value = value.to_owned();
                generation.outcome = Some(KnownOutcome { value, earliest: from, latest: line.at, attempt: None });
            }
        }
        Ok(())
    }
}

/// Whether an effect that took place this long after its caller asked may be unknown to the probe of the next attempt. Its lease began
/// after the caller had asked, so that no other attempt can have probed before it was over. The policy promises a shorter attempt.
fn evades_probe(kind: IntentKind, after: i64) -> bool {
    kind.probes() && after > millis(kind.lease())
}

/// Answers about the caller's own attempt, which has its own lines.
fn is_own(answer: CallResult) -> bool {
    matches!(answer, CallResult::Gone | CallResult::Failed | CallResult::ClaimLost | CallResult::Contended)
}

fn learn(outcome: &mut Option<KnownOutcome>, known: KnownOutcome) -> Result<(), String> {
    match outcome {
        None => {
            *outcome = Some(known);
            Ok(())
        }
        Some(first) if first.value == known.value => Ok(()),
        Some(first) => Err(format!("two outcomes: {} and {}", first.value, known.value)),
    }
}

fn describe(kind: IntentKind) -> String {
    let mut text = format!("{:?}, on error {:?}", kind.in_doubt, kind.on_error).to_lowercase();
    for (is, word) in [
        (kind.marks, "marks sent"),
        (kind.slow, "short lease"),
        (kind.brief, "brief"),
        (kind.forgetful, "key soon forgotten"),
    ] {
        if is {
            text += ", ";
            text += word;
        }
    }
    text
}

#[cfg(test)]
mod tests;
