//! Each rule with a story that keeps it and one that breaks it.

use super::*;
use onceward::InDoubt;

fn plan() -> RunPlan {
    RunPlan::of(1, None)
}

const KEY: &str = "once";

/// A story about one intent, told line by line.
struct Story {
    judge: Judge,
    intent: u64,
    at: i64,
}

impl Story {
    fn of(is: impl Fn(IntentKind) -> bool) -> Self {
        let intent = (0..100_000).find(|intent| is(plan().kind(*intent))).unwrap();
        Self { judge: Judge::new(plan()), intent, at: 10_000 }
    }

    fn hold() -> Self {
        Self::of(|kind| kind.holds() && !kind.marks && !kind.brief)
    }

    fn marks() -> Self {
        Self::of(|kind| kind.holds() && kind.marks && !kind.brief)
    }

    fn retry() -> Self {
        Self::of(|kind| kind.in_doubt == InDoubt::Retry && !kind.marks && !kind.brief && !kind.forgetful)
    }

    fn brief() -> Self {
        Self::of(|kind| kind.holds() && !kind.marks && kind.brief)
    }

    fn say(mut self, nonce: &str, event: Event) -> Self {
        self.at += 1;
        let line = Line { at: self.at, intent: self.intent, nonce: nonce.to_owned(), event };
        self.judge.add(&line);
        self
    }

    fn later(mut self, millis: i64) -> Self {
        self.at += millis;
        self
    }

    fn tries(self, nonce: &str, attempt: u32) -> Self {
        self.tries_since(nonce, attempt, 1)
    }

    /// An attempt on a record that was created at `created`, with a lease that has lapsed already.
    fn tries_since(self, nonce: &str, attempt: u32, created: i64) -> Self {
        let (until, asked) = (self.at, self.at);
        self.say(nonce, Event::Try { attempt, created, until, asked })
    }

    fn happens(self, nonce: &str) -> Self {
        self.say(nonce, Event::Effect { key: KEY.to_owned() })
    }

    fn ends(self, nonce: &str, ending: Ending) -> Self {
        self.say(nonce, Event::End(ending))
    }

    fn acks(self, nonce: &str) -> Self {
        self.say(nonce, Event::Ack { value: nonce.to_owned() })
    }

    /// An attempt that goes well.
    fn done(self, nonce: &str, attempt: u32) -> Self {
        self.tries(nonce, attempt).happens(nonce).ends(nonce, Ending::Finish).acks(nonce)
    }

    fn replays(self, value: &str) -> Self {
        let asked = self.at;
        self.say("r", Event::Replay { value: value.to_owned(), asked })
    }

    fn told(self, answer: CallResult) -> Self {
        let asked = self.at;
        self.say("t", Event::Answered { answer, asked, detail: String::new() })
    }

    fn settled(self, value: Option<&str>, attempts: u32) -> Self {
        let from = self.at;
        self.say("", Event::Settled { value: value.map(str::to_owned), attempts, created: 1, from })
    }

    #[track_caller]
    fn fine(self) {
        assert!(self.judge.violations.is_empty(), "{:#?}", self.judge.violations);
    }

    #[track_caller]
    fn wrong(self, words: &str) {
        assert_eq!(self.judge.violations.len(), 1, "{:#?}", self.judge.violations);
        assert!(self.judge.violations[0].contains(words), "{}", self.judge.violations[0]);
    }
}

#[test]
fn a_call_and_its_repeats_are_fine() {
    Story::hold().done("a", 1).replays("a").replays("a").fine();
    Story::retry().done("a", 1).replays("a").fine();
}

#[test]
fn under_hold_an_attempt_that_may_have_happened_is_the_last() {
    Story::hold().tries("a", 1).tries("b", 2).wrong("attempt 2 was granted although attempts [1]");
    Story::hold().tries("a", 1).ends("a", Ending::Doubt).tries("b", 2).wrong("may have happened");
    Story::hold().tries("a", 1).ends("a", Ending::Release).tries("b", 2).fine();
    Story::hold().tries("a", 1).settled(None, 1).tries("b", 2).fine();
}

#[test]
fn a_claim_whose_work_never_began_counts_as_one_that_may_have_happened() {
    Story::hold().tries("b", 2).wrong("attempts [1] may have happened");
    Story::hold().say("a", Event::Left).tries("b", 2).fine();
    Story::marks().tries("b", 2).fine();
}

#[test]
fn what_marks_sent_may_be_taken_over_until_it_has_done_so() {
    Story::marks().tries("a", 1).say("a", Event::Sending).tries("b", 2).fine();
    Story::marks().tries("a", 1).say("a", Event::Sending).say("a", Event::Sent).tries("b", 2).wrong("attempts [1]");
    Story::marks().tries("a", 1).tries("b", 2).later(9).say("a", Event::Sent).wrong("`sent` of attempt 1 succeeded");
}

#[test]
fn under_hold_it_happens_once_even_if_an_operator_settled_it_wrongly() {
    Story::hold().tries("a", 1).settled(None, 1).tries("b", 2).happens("b").happens("a").wrong("2 times");
}

#[test]
fn under_retry_it_may_happen_again_with_the_same_key() {
    Story::retry().tries("a", 1).happens("a").tries("b", 2).happens("b").ends("b", Ending::Finish).acks("b").fine();
    let other = Event::Effect { key: "other".to_owned() };
    Story::retry().tries("a", 1).happens("a").tries("b", 2).say("b", other).wrong("the downstream key is other");
}

#[test]
fn nothing_begins_after_the_outcome_is_known() {
    Story::retry().done("a", 1).tries("b", 2).wrong("attempt 2 was granted although the outcome is a");
    let story = Story::hold().tries("a", 1).happens("a").settled(Some("a"), 1).tries("b", 2);
    story.wrong("the outcome is a");
    // An owner that was stopped before its first line begins late, but it was granted before.
    Story::retry().done("b", 2).tries("a", 1).happens("a").fine();
}

#[test]
fn a_lease_that_lasts_has_one_owner() {
    let until = 99_999;
    let a = Event::Try { attempt: 1, created: 1, until, asked: 1 };
    Story::retry().say("a", a.clone()).tries("b", 2).happens("a").ends("a", Ending::Doubt).wrong("is alive");
    Story::retry().say("a", a).tries("b", 2).fine();
    Story::retry().tries("a", 1).tries("b", 2).ends("a", Ending::Doubt).fine();
}

#[test]
fn an_attempt_is_granted_to_one() {
    Story::retry().tries("a", 1).tries("b", 1).wrong("granted twice");
}

#[test]
fn an_effect_needs_a_claim() {
    Story::retry().happens("a").wrong("without a claim");
    let lost = || Event::Try { attempt: 1, created: 0, until: 0, asked: 0 };
    Story::hold().say("a", lost()).happens("a").wrong("claim that was lost");
    Story::retry().say("a", lost()).happens("a").fine();
}

#[test]
fn a_superseded_owner_is_not_told_that_its_outcome_is_kept() {
    let story = Story::retry().tries("a", 1).tries("b", 2).ends("a", Ending::Finish).acks("a");
    story.wrong("acknowledged after attempt 2 was granted");
}

#[test]
fn all_repeats_agree() {
    let story = Story::retry().tries("a", 1).ends("a", Ending::Finish).tries("b", 2).ends("b", Ending::Finish);
    story.replays("a").replays("b").wrong("two outcomes: a and b");
    Story::hold().done("a", 1).replays("z").wrong("and no attempt produced it");
    Story::hold().tries("a", 1).ends("a", Ending::Doubt).replays("a").wrong("and no attempt produced it");
}

#[test]
fn a_known_outcome_is_the_only_answer() {
    for answer in [CallResult::InDoubt, CallResult::InFlight, CallResult::OwnerFailed] {
        Story::hold().done("a", 1).later(1).told(answer).wrong("was known, but the answer is");
    }
    Story::hold().tries("a", 1).told(CallResult::InFlight).fine();
    Story::hold().told(CallResult::Wrong).wrong("a correct call got");
    Story::hold().tries("a", 1).told(CallResult::ClaimLost).wrong("no caller may take over");
    Story::retry().tries("a", 1).told(CallResult::ClaimLost).fine();
}

#[test]
fn a_brief_outcome_is_kept_for_its_time_and_not_longer() {
    let kind = Story::brief().judge.history(0).kind;
    assert!(kind.brief);
    let (retention, horizon) = (millis(kind.retention()), millis(kind.horizon()));
    Story::brief().done("a", 1).told(CallResult::NotKept).wrong("dropped before its time");
    Story::brief().done("a", 1).later(retention).told(CallResult::NotKept).fine();
    Story::brief().done("a", 1).later(retention + 1).replays("a").wrong("was replayed to a call that came");
    Story::brief().done("a", 1).tries_since("b", 1, 10_005).wrong("the key was used again");
    Story::brief().done("a", 1).later(horizon).tries_since("b", 1, 10_003 + horizon).happens("b").fine();
    Story::brief().tries("a", 1).later(horizon).tries_since("b", 1, 20_000).wrong("the record was lost");
}

#[test]
fn what_never_happened_is_forgotten_when_its_key_is_known_nowhere_any_more() {
    let kind = plan().kind(Story::brief().intent);
    let untried = millis(kind.untried_horizon());
    assert!(untried > millis(kind.horizon()));
    let released = || Story::brief().tries("a", 1).ends("a", Ending::Release).later(untried);
    released().tries_since("b", 1, 10_002 + untried).happens("b").fine();
    released().tries_since("b", 1, 10_001 + untried).wrong("the record was lost");
    let doubted = Story::brief().tries("a", 1).ends("a", Ending::Doubt).later(untried);
    doubted.tries_since("b", 1, 10_002 + untried).wrong("the record was lost");
    let settled = || Story::brief().tries("a", 1).ends("a", Ending::Doubt).later(9).settled(None, 1).later(untried);
    settled().tries_since("b", 1, 10_011 + untried).fine();
    settled().tries_since("b", 1, 10_010 + untried).wrong("the record was lost");
    let again = Story::brief().tries("a", 1).ends("a", Ending::Release).tries("b", 2).later(untried);
    again.tries_since("c", 1, 20_000).wrong("the record was lost");
}

#[test]
fn a_probe_may_find_the_receipt_of_another_attempt() {
    let probe = || Story::of(|kind| kind.in_doubt == InDoubt::Probe && !kind.marks);
    let found = Event::Ack { value: "a".to_owned() };
    let story = probe().tries("a", 1).happens("a").tries("b", 2).ends("b", Ending::Finish);
    story.say("b", found.clone()).replays("a").fine();
    probe().tries("a", 1).happens("a").tries("b", 2).say("b", Event::NotFound).happens("b").wrong("2 times");
    probe().tries("a", 1).tries("b", 2).ends("b", Ending::Finish).say("b", found).wrong("did not produce it");
}

#[test]
fn an_effect_that_comes_after_the_lease_is_unknown_to_a_probe() {
    let probe = || Story::of(|kind| kind.in_doubt == InDoubt::Probe && !kind.marks);
    let lease = millis(plan().kind(probe().intent).lease());
    let story =
        |after| probe().tries("a", 1).later(after).tries("b", 2).say("b", Event::NotFound).happens("a").happens("b");
    story(lease).fine();
    story(lease - 10).wrong("2 times");
    // The probe of the second attempt could have seen it.
    let seen = probe().tries("a", 1).later(lease).happens("a").tries("b", 2).happens("b");
    seen.wrong("2 times");
    let lost = || probe().say("a", Event::Try { attempt: 1, created: 0, until: 0, asked: 10_000 });
    lost().later(lease).happens("a").fine();
    lost().happens("a").wrong("claim that was lost");
}

#[test]
fn a_store_that_fails_is_a_fault() {
    Story::hold().told(CallResult::Store).wrong("the store failed");
    Story::hold().say("a", Event::NoMismatch { got: "Ok".to_owned() }).wrong("was not refused");
}

#[test]
fn a_retry_becomes_a_hold_when_the_downstream_has_forgotten_the_key() {
    let forgetful = || Story::of(|kind| kind.forgetful && !kind.marks);
    let known_for = millis(plan().times.forgetful_memory);
    forgetful().tries("a", 1).later(known_for / 2).tries("b", 2).fine();
    forgetful().tries("a", 1).later(known_for + 1).tries("b", 2).wrong("the downstream knows the key for");
    forgetful().tries("a", 1).later(known_for + 1).settled(None, 1).tries("b", 2).fine();
    forgetful().tries("a", 1).ends("a", Ending::Release).later(known_for + 1).tries("b", 2).fine();
}

#[test]
fn an_effect_that_arrives_after_the_downstream_forgot_the_key_happens_twice() {
    let forgetful = || Story::of(|kind| kind.forgetful && !kind.marks);
    let (known_for, runtime) =
        (millis(plan().times.forgetful_memory), millis(plan().kind(forgetful().intent).max_runtime()));
    // The second attempt is granted while the key is known, and acts `after` that.
    let late = |granted, after| {
        let story = forgetful().tries("a", 1).happens("a").later(granted).tries("b", 2).later(after);
        story.happens("b")
    };
    late(known_for / 2, 1).fine();
    late(known_for - runtime / 2, runtime / 2).wrong("it happened twice");
    // An attempt that takes longer than it promised is not the ledger's fault.
    let overran = late(known_for / 2, known_for);
    assert_eq!(overran.judge.tally.overran, 1);
    overran.fine();
}
