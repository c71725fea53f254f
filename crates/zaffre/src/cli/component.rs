//! `zaffre component`.

use super::{
    FileArgs,
    asset::{List, Update, Version},
};
use clap::{Args, Subcommand};

/// `zaffre component`.
#[derive(Debug, Subcommand)]
pub enum Component {
    /// Register a component
    Create(ComponentCreate),
    /// Show a component
    Show(Version),
    /// List the components, or the versions of one
    List(List),
    /// Change tags or description
    Update(Update),
    /// Hide from lists
    Archive(Version),
    /// Show in lists again
    Restore(Version),
}

/// `component create`.
#[derive(Args, Debug)]
pub struct ComponentCreate {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Version [default: the next one]
    #[arg(short = 'v', long, value_name = "VERSION")]
    pub version: Option<String>,
    /// Leave the check of the file to the server
    #[arg(long)]
    pub skip_validation: bool,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}
