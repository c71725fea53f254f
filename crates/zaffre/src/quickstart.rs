//! `zaffre quickstart`
use crate::{cli::QuickstartArgs, failure::Failure};
/// x
pub fn run(_args: &QuickstartArgs) -> Result<(), Failure> {
    Ok(())
}
