# Conveniences. Nothing needs `just`: each line is a command that works by itself.

# The product in 15 seconds.
demo:
    cargo run --release -- demo

# Everything that continuous integration runs.
test:
    ./test

# Onceward beside Redis, PostgreSQL and idemkit, and the gateway beside nginx; writes docs/benchmarks.md and its plot. About
# ten minutes; see --help.
bench *options:
    cargo build --release -p onceward-server -p onceward-bench
    cargo run --release -p onceward-bench -- --out docs/benchmarks.md {{options}}

# A long crash run: real processes, real kill -9.
crash cycles="10000" seed="1":
    cargo run --release -p onceward-sim -- crash --cycles {{cycles}} --seed {{seed}}

# Power cuts under one ledger.
power cycles="2000" seed="1":
    cargo run --release -p onceward-sim -- power --cycles {{cycles}} --seed {{seed}}

# Every single operation on the disk fails once.
disk:
    cargo run --release -p onceward-sim -- disk

# Every order of events within bounds.
model begins="5" ticks="9":
    cargo run --release -p onceward-sim -- model --begins {{begins}} --ticks {{ticks}}

# Clocks that jump.
clock runs="2000" seed="1":
    cargo run --release -p onceward-sim -- clock --runs {{runs}} --seed {{seed}}

# Callers that overtake each other.
interleave schedules="100000" seed="1":
    cargo run --release -p onceward-sim -- interleave --schedules {{schedules}} --seed {{seed}}

# Every planted bug, and the check that catches it.
plants:
    cargo run --release -p onceward-sim -- plants

# A million executions of each fuzz target.
fuzz *targets:
    fuzz/run {{targets}}

# Changes core in one place at a time, to see whether a test notices.
mutants:
    cargo mutants -p onceward-core

# Writes the reference pages anew from the code.
reference:
    UPDATE_REFERENCE=1 cargo test -p onceward-server reference
