//! The fairness harness: processes that share one ledger file each get their share of writes.

use crate::command::passes;

/// The limits are wide, for a machine that does other things too: without the write order one process gets a few per cent, and
/// waits for seconds. `onceward-sim fairness` alone has the limits that are aimed at.
#[test]
fn no_process_that_shares_a_ledger_starves() {
    passes("fairness --processes 3 --seconds 4 --least 20 --longest 2000");
}

#[test]
fn a_process_that_stops_while_it_may_write_does_not_stop_the_others() {
    passes("fairness --stop");
}
