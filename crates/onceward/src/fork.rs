//! For programs that fork without starting another program, as Python's `multiprocessing` does. The threads of the parent do not
//! exist in the child, so no ledger that the parent has open can be used there: forget it, without dropping it, and open the
//! store again.
//!
//! Call [`prepare`] before the fork, on the thread that forks, and after it [`resume_parent`] or [`resume_child`] on the same
//! thread. Forks that are followed by `exec` need none of this.

/// Call it before a fork. Until the fork is over, other threads cannot open or close a ledger.
pub fn prepare() {
    #[cfg(all(feature = "sqlite", unix))]
    crate::store::sqlite::before_fork();
}

/// Call it in the parent after the fork.
pub fn resume_parent() {
    #[cfg(all(feature = "sqlite", unix))]
    crate::store::sqlite::after_fork_in_parent();
}

/// Call it in the child after the fork. It closes the files of the parent's ledgers: otherwise the parent's claims would seem
/// to be alive for as long as the child lives.
pub fn resume_child() {
    #[cfg(all(feature = "sqlite", unix))]
    crate::store::sqlite::after_fork_in_child();
}
