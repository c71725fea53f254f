//! `zaffre instance-type` and `zaffre kubeconfig`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `zaffre instance-type`.
#[derive(Debug, Subcommand)]
pub enum InstanceType {
    /// Create or change the instance types of files, as `kubectl apply` does
    Apply(Apply),
    /// Show an instance type
    Show(Show),
    /// List the instance types, the built-in one too
    List(OfCompute),
    /// Delete an instance type; where it replaced the built-in one, that is back
    Delete(Delete),
}

/// Which types are meant.
#[derive(Args, Debug)]
pub struct OfCompute {
    /// Those that this Kubernetes compute offers at the moment; for an attached cluster, what is applied there
    #[arg(long, value_name = "NAME")]
    pub compute: Option<String>,
}

/// `instance-type show`.
#[derive(Args, Debug)]
pub struct Show {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub of: OfCompute,
}

/// `instance-type apply`.
#[derive(Args, Debug)]
pub struct Apply {
    /// YAML files: kind InstanceType or InstanceTypeList
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,
}

/// `instance-type delete`.
#[derive(Args, Debug)]
pub struct Delete {
    /// Name
    #[arg(
        short = 'n',
        long,
        value_name = "NAME",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub name: Option<String>,
    /// All of them
    #[arg(long)]
    pub all: bool,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// `zaffre kubeconfig`.
#[derive(Args, Debug)]
pub struct Kubeconfig {
    /// Write it there, readable by you only, instead of printing it
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}
