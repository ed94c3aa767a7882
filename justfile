# Conveniences. Nothing needs `just`: each line is a command that works by itself.

# The product in 15 seconds.
demo:
    cargo run --release -- demo

# Everything that continuous integration runs.
test:
    ./test

# A long crash run: real processes, real kill -9.
crash cycles="10000" seed="1":
    cargo run --release -p onceward-sim -- crash --cycles {{cycles}} --seed {{seed}}

# Writes the reference pages anew from the code.
reference:
    UPDATE_REFERENCE=1 cargo test -p onceward-server reference
