# Shortcuts. Nothing needs `just`: each line is a command that works by itself.

# The product in 15 seconds.
demo:
    cargo run --release -- demo

# Everything that continuous integration runs.
test:
    ./test

# Compare Onceward with Redis, PostgreSQL and idemkit, and the gateway with nginx; writes docs/benchmarks.md, its plot and
# docs/internals/benchmark-aims.md. About ten minutes; see --help.
bench *options:
    cargo build --profile dist -p onceward-cli -p onceward-bench
    cargo run --profile dist -p onceward-bench -- --out docs/benchmarks.md {{options}}

# A store on a server beside one statement per call, in databases of its own: just bench-server postgres://user@host/postgres
bench-server url *options:
    cargo run --profile dist -- bench store --store {{url}} {{options}}

# The Python package beside idemkit and CTRLRun; writes docs/benchmarks-python.md. Needs redis-server. About four minutes.
bench-python *options:
    cargo build --profile dist -p onceward-python
    tests/python/assemble.py --module target/dist/lib_native.so --out target/bench-python/package
    python3 -m venv target/bench-python/peers
    target/bench-python/peers/bin/pip install --quiet --requirement sdk/python/benchmarks/requirements.txt
    sdk/python/benchmarks/compare.py --package target/bench-python/package --peers target/bench-python/peers/bin/python {{options}}

# A crew of crewAI whose model repeats itself. Installs a gigabyte, so it is not a part of the tests.
crewai:
    cargo build -p onceward-python
    tests/python/assemble.py --module target/debug/lib_native.so --out target/tests/python-package
    python3 -m venv target/crewai
    target/crewai/bin/pip install --quiet crewai==1.15.30
    PYTHONPATH=target/tests/python-package target/crewai/bin/python sdk/python/by_hand/crewai_tools.py

# The wheel for this machine, in dist/. Needs maturin (pip install maturin).
wheel:
    sdk/python/build.py --out dist

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

# Interleaved callers.
interleave schedules="100000" seed="1":
    cargo run --release -p onceward-sim -- interleave --schedules {{schedules}} --seed {{seed}}

# Every planted bug, and the check that catches it.
plants:
    cargo run --release -p onceward-sim -- plants

# A million executions of each fuzz target.
fuzz *targets:
    fuzz/run {{targets}}

# Changes core in one place at a time, to see whether a test fails.
mutants:
    cargo mutants -p onceward-core

# Packages and builds every published crate as the registry would, without uploading anything. Needs the registry's index.
publish-check:
    cargo publish --dry-run --workspace --allow-dirty

# Writes the reference pages from the code.
reference:
    UPDATE_REFERENCE=1 cargo test -p onceward-cli reference

# Records the demo anew for the README: docs/images/demo.svg.
record-demo:
    cargo build --release
    docs/images/record_demo.py

# Licences, bans and sources of all dependencies. Advisories need a network that reaches GitHub: `cargo deny check advisories`.
deny:
    command -v cargo-deny >/dev/null || cargo install --locked cargo-deny
    cargo deny check bans licenses sources
