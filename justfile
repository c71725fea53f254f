# Shorter names for `cargo xtask`; nothing here that is not there.

# what the CI runs
check:
    cargo xtask test

# while you work
quick filter="":
    cargo xtask test --quick {{filter}}

tidy:
    cargo xtask tidy

fmt:
    cargo fmt --all

# the simulation: just sim --seeds 1_000_000, just sim --from 7 --seeds 1
sim *args:
    cargo xtask sim {{args}}

stories:
    cargo xtask stories

bench:
    cargo xtask bench

quickstart:
    cargo run --release -- quickstart
