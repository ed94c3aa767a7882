//! Which entries of the outbox are due, and in which order a courier gets them: the higher priority first, and within a
//! priority from every tenant in turn, so that no tenant waits behind the backlog of another one.

use onceward_core::name::{Operation, Tenant};
use onceward_core::outbox::Priority;
use onceward_core::record::{Record, Seen};

use crate::plant::{Plant, planted};

/// How many tenants one look visits in each priority. Those whose entries are all delayed take a step too, so the next look goes
/// on where this one has stopped.
const MAX_TENANTS: usize = 256;

/// What a courier asks for.
#[derive(Clone, Debug)]
pub struct DueQuery {
    /// The entries of this operation.
    pub operation: Operation,
    /// Only the entries of this tenant; `None` means every tenant in turn.
    pub tenant: Option<Tenant>,
    /// Begin with the tenant after this one: where the last look has stopped.
    pub after: Option<Tenant>,
    /// At most this many entries.
    pub limit: usize,
    /// Also those that are claimed by a process that is known to have ended, if the store can detect that.
    pub with_abandoned: bool,
}

impl DueQuery {
    /// Whether it asks for the entries of this record's tenant.
    pub fn is_for(&self, record: &Record) -> bool {
        let tenant = record.identity.as_ref().map(|identity| &identity.tenant);
        self.tenant.as_ref().is_none_or(|wanted| tenant == Some(wanted))
    }
}

/// The entries that a courier may take now.
#[derive(Clone, Debug, Default)]
pub struct DueEntries {
    /// The entries.
    pub entries: Vec<Seen>,
    /// The tenant after which the next look begins; `None` if this one has seen all.
    pub reached: Option<Tenant>,
}

/// The entries of one operation, by priority and tenant.
pub(super) trait DueReader {
    /// What reading them may fail with.
    type Error;
    /// An entry.
    type Found;

    /// The first tenant after this one that has entries of this priority, due or not.
    fn next_tenant(&mut self, priority: Priority, after: Option<&Tenant>) -> Result<Option<Tenant>, Self::Error>;

    /// The first due entries of a tenant with this priority.
    fn due(&mut self, priority: Priority, tenant: &Tenant, limit: usize) -> Result<Vec<Self::Found>, Self::Error>;
}

/// Entries, and the tenant after which the next look begins; `None` if this one has seen all.
pub(super) type Collected<L> = (Vec<<L as DueReader>::Found>, Option<Tenant>);

/// Collects what is due.
pub(super) fn collect<L: DueReader>(lanes: &mut L, queue: &DueQuery) -> Result<Collected<L>, L::Error> {
    let (mut found, mut stopped_at) = (Vec::new(), None);
    for priority in priorities() {
        let room = queue.limit.saturating_sub(found.len());
        if room == 0 {
            break;
        }
        let after = queue.after.as_ref().filter(|_| !planted(Plant::TurnsNotTaken));
        let (tenants, reached) = match &queue.tenant {
            Some(tenant) => (vec![tenant.clone()], None),
            None => tenants_in_turn(lanes, priority, after, room)?,
        };
        found.extend(shared_fairly(lanes, priority, &tenants, room)?);
        stopped_at = stopped_at.or(reached);
    }
    Ok((found, stopped_at))
}

fn priorities() -> [Priority; 3] {
    let [high, normal, low] = Priority::ALL;
    if planted(Plant::PriorityIgnored) { [low, normal, high] } else { [high, normal, low] }
}

/// The tenants with due entries, beginning after `after` and once around. The second value is the last one that was visited, if
/// there may be more.
fn tenants_in_turn<L: DueReader>(
    lanes: &mut L,
    priority: Priority,
    after: Option<&Tenant>,
    room: usize,
) -> Result<(Vec<Tenant>, Option<Tenant>), L::Error> {
    let (mut tenants, mut at, mut is_around) = (Vec::new(), after.cloned(), after.is_none());
    for _ in 0..MAX_TENANTS {
        let next = lanes.next_tenant(priority, at.as_ref())?;
        match next {
            None if is_around => return Ok((tenants, None)),
            None => (at, is_around) = (None, true),
            Some(tenant) => {
                if is_around && after.is_some_and(|after| tenant > *after) {
                    return Ok((tenants, None));
                }
                if !lanes.due(priority, &tenant, 1)?.is_empty() {
                    tenants.push(tenant.clone());
                }
                at = Some(tenant);
            }
        }
        if tenants.len() == room {
            break;
        }
    }
    Ok((tenants, at))
}

/// The same number from every tenant. What some do not use goes to the first that have more.
fn shared_fairly<L: DueReader>(
    lanes: &mut L,
    priority: Priority,
    tenants: &[Tenant],
    room: usize,
) -> Result<Vec<L::Found>, L::Error> {
    let share = room.checked_div(tenants.len()).unwrap_or_default().max(1);
    let mut entries = Vec::new();
    let mut with_more = Vec::new();
    for tenant in tenants.iter().take(room) {
        let due = lanes.due(priority, tenant, share)?;
        if due.len() == share {
            with_more.push(tenant);
        }
        entries.extend(due);
    }
    for tenant in with_more {
        let left = room.saturating_sub(entries.len());
        if left == 0 {
            break;
        }
        entries.extend(lanes.due(priority, tenant, share + left)?.into_iter().skip(share));
    }
    Ok(entries)
}
