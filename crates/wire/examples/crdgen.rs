//! Prints the definition of instance types; `cargo xtask crdgen` writes it to `deploy/crd/instancetypes.yaml`.

use std::io::Write as _;

fn main() -> std::io::Result<()> {
    std::io::stdout().write_all(wire::crd::definition_yaml().as_bytes())
}
