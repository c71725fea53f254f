//! `zaffre datastore`, `zaffre workspace`, `zaffre metrics`, `zaffre quota`.

use super::{FileArgs, NameArg};
use clap::{Args, Subcommand};

/// `zaffre datastore`.
#[derive(Debug, Subcommand)]
pub enum Datastore {
    /// Attach a datastore; one of this name is changed
    Create(DatastoreCreate),
    /// Detach a datastore; what it holds stays
    Delete(Removal),
    /// Show a datastore
    Show(NameArg),
    /// List the datastores
    List(Limit),
}

/// `zaffre workspace`.
#[derive(Debug, Subcommand)]
pub enum Workspace {
    /// Create a workspace
    Create(WorkspaceCreate),
    /// Delete a workspace without computes; what it held is there again when it is created again
    Delete(WorkspaceDelete),
    /// Show a workspace
    Show(WorkspaceName),
    /// List the workspaces
    List(Limit),
}

/// `datastore create`.
#[derive(Args, Debug)]
pub struct DatastoreCreate {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
}

/// `datastore delete`.
#[derive(Args, Debug)]
pub struct Removal {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// `workspace delete`.
#[derive(Args, Debug)]
pub struct WorkspaceDelete {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Remove what it holds for good
    #[arg(short = 'p', long)]
    pub permanently_delete: bool,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `workspace create`.
#[derive(Args, Debug)]
pub struct WorkspaceCreate {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Description
    #[arg(long)]
    pub description: Option<String>,
    /// Name to show
    #[arg(long, value_name = "NAME")]
    pub display_name: Option<String>,
    /// Location
    #[arg(short = 'l', long)]
    pub location: Option<String>,
    /// Tags
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub tags: Vec<String>,
}

/// `workspace show`.
#[derive(Args, Debug)]
pub struct WorkspaceName {
    /// Name [default: that of -w]
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
}

/// `--max-results -r`.
#[derive(Args, Debug)]
pub struct Limit {
    /// At most so many
    #[arg(short = 'r', long, value_name = "N")]
    pub max_results: Option<usize>,
}

/// `zaffre metrics`.
#[derive(Debug, Subcommand)]
pub enum Metrics {
    /// Values over time, as in `--metric "Preempted Nodes" --interval PT1M --aggregation Maximum`
    List(Box<MetricsList>),
}

/// `metrics list`, spelled as `az monitor metrics list`.
#[derive(Args, Debug)]
pub struct MetricsList {
    /// Names of metrics, as in "Preempted Nodes"
    #[arg(long, visible_alias = "metrics", value_name = "NAME", num_args = 1.., required = true)]
    pub metric: Vec<String>,
    /// Id of the resource [default: the workspace]
    #[arg(long, value_name = "ID")]
    pub resource: Option<String>,
    /// Length of one value, as in PT1M
    #[arg(long, value_name = "TIME", default_value = "PT1M")]
    pub interval: String,
    /// Average, Maximum, Minimum, Total, Count
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub aggregation: Vec<String>,
    /// From when, as in 2026-11-30T10:00:00Z
    #[arg(long, value_name = "TIME")]
    pub start_time: Option<String>,
    /// Until when
    #[arg(long, value_name = "TIME")]
    pub end_time: Option<String>,
    /// How far back when no start is given, as in 1h
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub offset: String,
    /// Only these dimensions, as in "ClusterName eq 'low-pri-cluster'"
    #[arg(long, value_name = "EXPRESSION")]
    pub filter: Option<String>,
    /// One series per value of these dimensions
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub dimension: Vec<String>,
}

/// `zaffre quota`.
#[derive(Debug, Subcommand)]
pub enum Quota {
    /// Show limits and what is in use
    Show,
    /// Change limits; needs at least one of the flags
    Update(QuotaUpdate),
}

/// `quota update`.
#[derive(Args, Debug)]
#[group(required = true, multiple = true)]
pub struct QuotaUpdate {
    /// Low-priority cores, over all families
    #[arg(long, value_name = "CORES")]
    pub low_priority: Option<u32>,
    /// Dedicated cores, in total
    #[arg(long, value_name = "CORES")]
    pub dedicated: Option<u32>,
    /// Dedicated cores of a family, as in standardDSv2Family=48
    #[arg(long, value_name = "FAMILY=CORES", num_args = 1..)]
    pub family: Vec<String>,
}
