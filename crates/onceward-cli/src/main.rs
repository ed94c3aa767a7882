//! The binary `onceward`.

use std::process::ExitCode;

/// A record is made on one thread and dropped on another, all the time: the system's allocator has locks for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    onceward_cli::main()
}
