//! `zaffre job`.

use super::{ChangeArgs, NameArg};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `zaffre job`.
#[derive(Debug, Subcommand)]
pub enum Job {
    /// Start a job
    Create(Create),
    /// Show a job
    Show(NameArg),
    /// List the jobs
    List(List),
    /// Print the logs of a job until it ends
    Stream(NameArg),
    /// Stop a job
    Cancel(NameArg),
    /// Fetch outputs and logs of a job that has ended
    Download(Download),
    /// Say what a job waits for, or why it ended
    Explain(NameArg),
    /// Check a job file without a server
    Validate(Validate),
    /// Change tags, display name or description
    Update(Update),
    /// Hide a job from lists
    Archive(NameArg),
    /// Show a hidden job in lists again
    Restore(NameArg),
}

/// `job create`.
#[derive(Args, Debug)]
pub struct Create {
    /// YAML file
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: PathBuf,
    /// Name [default: a generated one]
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Write the job as it was accepted to this file
    #[arg(short = 'a', long, value_name = "FILE")]
    pub save_as: Option<PathBuf>,
    /// Set a field of the file, as in `--set inputs.rate=0.5`
    #[arg(long, value_name = "PATH=VALUE", num_args = 1.., action = clap::ArgAction::Append)]
    pub set: Vec<String>,
    /// Leave the check of the file to the server
    #[arg(long)]
    pub skip_validation: bool,
    /// Print the logs until the job ends
    #[arg(short = 's', long)]
    pub stream: bool,
}

/// `job list`.
#[derive(Args, Debug)]
pub struct List {
    /// At most so many
    #[arg(short = 'r', long, value_name = "N", default_value = "50")]
    pub max_results: usize,
    /// All of them
    #[arg(long)]
    pub all_results: bool,
    /// Only hidden ones
    #[arg(long, conflicts_with = "include_archived")]
    pub archived_only: bool,
    /// Hidden ones too
    #[arg(long)]
    pub include_archived: bool,
    /// Only children of this job
    #[arg(short = 'p', long, value_name = "NAME")]
    pub parent_job_name: Option<String>,
}

/// `job download`.
#[derive(Args, Debug)]
pub struct Download {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Folder to write to [default: the current one]
    #[arg(short = 'p', long, value_name = "DIR")]
    pub download_path: Option<PathBuf>,
    /// All outputs and logs
    #[arg(long)]
    pub all: bool,
    /// Only this output
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    pub output_name: Option<String>,
}

/// `job validate`.
#[derive(Args, Debug)]
pub struct Validate {
    /// YAML file
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: PathBuf,
    /// Set a field of the file
    #[arg(long, value_name = "PATH=VALUE", num_args = 1.., action = clap::ArgAction::Append)]
    pub set: Vec<String>,
}

/// `job update`.
#[derive(Args, Debug)]
pub struct Update {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Changes by path.
    #[command(flatten)]
    pub change: ChangeArgs,
}
