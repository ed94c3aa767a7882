//! The status of a record at a moment, by a rule that belongs to the harness. It is written from the description of the
//! state machine and calls nothing of the ledger, so that a bug in the ledger's own rule is not repeated here.

use std::time::Duration;

use onceward::core::record::{Phase, Record, State, Status};
use onceward::core::time::Timestamp;

/// The status at this moment; `None` where the record counts as absent. `owner_gone`: the process that holds the lease
/// is known to have ended.
pub fn status(record: &Record, now: Timestamp, owner_gone: bool) -> Option<Status> {
    let has_come = |time: Timestamp| now.as_millis() >= time.as_millis();
    match &record.state {
        State::Queued { .. } => Some(Status::Queued),
        State::Dead => Some(Status::Dead),
        State::InDoubt { .. } => Some(Status::InDoubt),
        // Past its deadline it is in doubt, whether or not its owner lives.
        State::Leased(lease) if lease.phase == Phase::Overdue => Some(Status::InDoubt),
        State::Leased(lease) if !owner_gone && !has_come(lease.until) => Some(Status::Running),
        State::Leased(lease) => {
            let harmless = lease.phase == Phase::Claimed && record.doubt_since.is_none();
            Some(if harmless { Status::Open } else { Status::InDoubt })
        }
        State::Open { .. } => (!is_forgotten(record, now)).then_some(Status::Open),
        State::Done { expires_at, forget_at, .. } => match (expires_at, forget_at) {
            (Some(expires), Some(forget)) if has_come(*expires) && has_come(*forget) => None,
            (Some(expires), _) if has_come(*expires) => Some(Status::Tombstone),
            _ => Some(Status::Done),
        },
        State::Tombstone { forget_at, .. } => (!has_come(*forget_at)).then_some(Status::Tombstone),
    }
}

/// Whether the record may be gone from the store at this moment: it counts as absent, or it is a claim that lapsed
/// before anything was sent, so long ago that it may be forgotten like a released attempt.
pub fn may_be_gone(record: &Record, now: Timestamp) -> bool {
    let is_lapsed = |until: Timestamp| now.as_millis() >= until.as_millis();
    match &record.state {
        State::Leased(lease) => lease.phase == Phase::Claimed && is_lapsed(lease.until) && is_forgotten(record, now),
        _ => status(record, now, false).is_none(),
    }
}

/// Whether nothing has happened for long enough: as long as an outcome would have held the key, and as long as the
/// downstream may know the key. A doubt, an item of a stream and a payload are never forgotten.
fn is_forgotten(record: &Record, now: Timestamp) -> bool {
    if record.doubt_since.is_some() || record.sequence.is_some() || record.payload.is_some() {
        return false;
    }
    let Some(retention) = record.terms.retention else { return false };
    let since = match &record.state {
        State::Open { not_before } => not_before.as_millis().max(record.updated_at.as_millis()),
        State::Leased(lease) => lease.until.as_millis().max(record.updated_at.as_millis()),
        _ => return false,
    };
    let held = millis(retention).saturating_add(millis(record.terms.tombstone));
    let kept = held.max(millis(record.terms.honours_key_for));
    now.as_millis() >= since.saturating_add(kept)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use onceward::core::decide::{Again, Begin, Command, CommandResult, Take, Write, decide};
    use onceward::core::fingerprint::Fingerprint;
    use onceward::core::name::{Identity, Key, Operation, Tenant};
    use onceward::core::outcome::Outcome;
    use onceward::core::policy::{Policy, Retention};
    use onceward::core::record::{Fence, Seen};

    use super::*;

    const LEASE: Duration = Duration::from_millis(30);
    const FENCE: Fence = Fence::from_bits(7);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn written(write: Write, now: i64) -> Record {
        match write {
            Write::Insert(draft) | Write::Replace(draft) => draft.stamp(at(now)),
            other => panic!("nothing was written: {other:?}"),
        }
    }

    /// A record that was claimed at 0, kept for 100 ms when done, and held by its tombstone for 50 ms more.
    fn claimed(marks_sent: bool) -> Record {
        let policy = Policy {
            retention: Some(Retention::For(Duration::from_millis(100))),
            tombstone: Some(Duration::from_millis(50)),
            honours_key_for: Duration::from_millis(400),
            ..Policy::default()
        };
        let begin = Begin {
            identity: Identity {
                tenant: Tenant::default(),
                operation: Operation::new("charge").unwrap(),
                key: Key::new("k").unwrap(),
            },
            key_digest: None,
            fingerprint: Fingerprint::none(),
            terms: policy.terms(),
            take: Take { fence: FENCE, lease: LEASE, marks_sent, probes: false, owner: None, claim: None },
            again: Again::default(),
        };
        written(decide(None, &Command::Begin(begin)).write, 0)
    }

    fn then(record: Record, command: &Command, now: i64) -> Record {
        let transition = decide(Some(&Seen { record, now: at(now), owner_gone: false }), command);
        assert_eq!(transition.answer, CommandResult::Accepted);
        written(transition.write, now)
    }

    fn statuses(record: &Record, times: &[i64]) -> Vec<Option<Status>> {
        times.iter().map(|time| status(record, at(*time), false)).collect()
    }

    #[test]
    fn a_lapsed_lease_is_a_doubt_once_something_may_have_left() {
        assert_eq!(statuses(&claimed(false), &[29, 30]), [Some(Status::Running), Some(Status::InDoubt)]);
        assert_eq!(statuses(&claimed(true), &[29, 30]), [Some(Status::Running), Some(Status::Open)]);
        assert_eq!(status(&claimed(false), at(1), true), Some(Status::InDoubt));
    }

    #[test]
    fn an_outcome_is_kept_and_then_its_tombstone_and_then_nothing() {
        let done = then(claimed(false), &Command::Finish { fence: FENCE, outcome: Outcome::success("1") }, 10);
        let expected = [Some(Status::Done), Some(Status::Tombstone), Some(Status::Tombstone), None];
        assert_eq!(statuses(&done, &[109, 110, 159, 160]), expected);
    }

    #[test]
    fn what_did_not_happen_is_remembered_while_the_downstream_may_know_the_key() {
        let release = Command::Release { fence: FENCE, not_before: Duration::ZERO, error: None };
        let open = then(claimed(false), &release, 10);
        assert_eq!(statuses(&open, &[409, 410]), [Some(Status::Open), None]);
    }

    #[test]
    fn a_doubt_is_never_gone() {
        let doubt = then(claimed(false), &Command::Doubt { fence: FENCE, error: None }, 10);
        assert!(!may_be_gone(&doubt, at(i64::MAX / 2)) && !may_be_gone(&claimed(false), at(i64::MAX / 2)));
        assert!(!may_be_gone(&claimed(true), at(429)) && may_be_gone(&claimed(true), at(430)));
    }
}
