//! `zaffre compute`.

use super::{ChangeArgs, DeleteArgs, FileArgs, NameArg};
use clap::{Args, Subcommand};

/// `zaffre compute`.
#[derive(Debug, Subcommand)]
pub enum Compute {
    /// Create a cluster or a compute instance
    Create(Box<Create>),
    /// Start a compute instance
    Start(Power),
    /// Stop a compute instance; work that runs on it ends first
    Stop(Power),
    /// Stop a compute instance and start it again
    Restart(Power),
    /// Change a cluster
    Update(Update),
    /// Show a cluster
    Show(NameArg),
    /// List the clusters
    List(List),
    /// Attach a Kubernetes cluster, or this machine as one
    Attach(Box<Attach>),
    /// Let a Kubernetes compute go; its cluster stays as it is
    Detach(Detach),
    /// Delete a cluster and its nodes
    Delete(DeleteArgs),
    /// List the nodes of a cluster
    ListNodes(NameArg),
    /// List the machine sizes
    ListSizes(Sizes),
    /// Show the cores in use and their limits
    ListUsage(Usage),
    /// Take nodes away, as the provider would: a drill
    Preempt(Preempt),
}

/// `compute create`.
#[derive(Args, Debug, Default)]
pub struct Create {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Kind of compute
    #[arg(short = 't', long, value_name = "KIND")]
    pub r#type: Option<String>,
    /// Machine size, as in Standard_DS3_v2
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// dedicated or low_priority
    #[arg(long, value_name = "TIER")]
    pub tier: Option<String>,
    /// Fewest nodes
    #[arg(long, value_name = "N")]
    pub min_instances: Option<String>,
    /// Most nodes
    #[arg(long, value_name = "N")]
    pub max_instances: Option<String>,
    /// Seconds without work after which a node goes
    #[arg(short = 'd', long, value_name = "SECONDS")]
    pub idle_time_before_scale_down: Option<String>,
    /// Description
    #[arg(long)]
    pub description: Option<String>,
    /// Location
    #[arg(short = 'l', long)]
    pub location: Option<String>,
    /// Tags
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub tags: Vec<String>,
    /// Kind of identity
    #[arg(long, value_name = "KIND")]
    pub identity_type: Option<String>,
    /// Ids of user-assigned identities, separated by commas
    #[arg(short = 'i', long, value_name = "IDS")]
    pub user_assigned_identities: Option<String>,
    /// Name of the administrator
    #[arg(long, value_name = "NAME")]
    pub admin_username: Option<String>,
    /// Password of the administrator
    #[arg(long, value_name = "PASSWORD")]
    pub admin_password: Option<String>,
    /// Public SSH key of the administrator
    #[arg(long, value_name = "KEY")]
    pub ssh_key_value: Option<String>,
    /// Whether SSH is open: true or false
    #[arg(short = 'p', long, value_name = "BOOL")]
    pub ssh_public_access_enabled: Option<String>,
    /// Whether nodes have a public address: true or false
    #[arg(long, value_name = "BOOL")]
    pub enable_node_public_ip: Option<String>,
    /// Virtual network
    #[arg(long, value_name = "NAME")]
    pub vnet_name: Option<String>,
    /// Subnet
    #[arg(long, value_name = "NAME")]
    pub subnet: Option<String>,
    /// User that a compute instance is made for
    #[arg(long, value_name = "ID")]
    pub user_object_id: Option<String>,
    /// Tenant of that user
    #[arg(long, value_name = "ID")]
    pub user_tenant_id: Option<String>,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `compute start`, `compute stop` and `compute restart`.
#[derive(Args, Debug)]
pub struct Power {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `compute attach`.
#[derive(Args, Debug, Default)]
pub struct Attach {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Kind of compute: kubernetes, virtualmachine or synapsespark
    #[arg(short = 't', long, value_name = "KIND")]
    pub r#type: Option<String>,
    /// Namespace of its pods [default: default]
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How the cluster is reached; without it the compute runs on this machine
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Context of the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", requires = "kubeconfig")]
    pub context: Option<String>,
    /// Labels of the nodes that all its workloads run on
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub node_selector: Vec<String>,
    /// User of an attached machine
    #[arg(long, value_name = "NAME")]
    pub admin_username: Option<String>,
    /// Password of this user; it is sealed
    #[arg(long, value_name = "PASSWORD")]
    pub admin_password: Option<String>,
    /// Port of an attached machine [default: 22]
    #[arg(long, value_name = "PORT")]
    pub ssh_port: Option<String>,
    /// Private key for an attached machine; it is sealed
    #[arg(long, value_name = "FILE")]
    pub ssh_private_key_file: Option<String>,
    /// Azure's id of the cluster or the machine; it is kept and shown
    #[arg(long, value_name = "ID")]
    pub resource_id: Option<String>,
    /// Kind of identity
    #[arg(long, value_name = "KIND")]
    pub identity_type: Option<String>,
    /// Ids of user-assigned identities, separated by commas
    #[arg(short = 'i', long, value_name = "IDS")]
    pub user_assigned_identities: Option<String>,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `compute detach`.
#[derive(Args, Debug)]
pub struct Detach {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `compute update`.
#[derive(Args, Debug)]
pub struct Update {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Fewest nodes
    #[arg(long, value_name = "N")]
    pub min_instances: Option<String>,
    /// Most nodes
    #[arg(long, value_name = "N")]
    pub max_instances: Option<String>,
    /// Seconds without work after which a node goes
    #[arg(short = 'd', long, value_name = "SECONDS")]
    pub idle_time_before_scale_down: Option<String>,
    /// Tags
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub tags: Vec<String>,
    /// Kind of identity
    #[arg(long, value_name = "KIND")]
    pub identity_type: Option<String>,
    /// Ids of user-assigned identities, separated by commas
    #[arg(short = 'i', long, value_name = "IDS")]
    pub user_assigned_identities: Option<String>,
    /// Changes by path.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `compute list`.
#[derive(Args, Debug)]
pub struct List {
    /// At most so many
    #[arg(short = 'r', long, value_name = "N")]
    pub max_results: Option<usize>,
    /// Only of this kind
    #[arg(long, value_name = "KIND")]
    pub r#type: Option<String>,
}

/// `compute list-sizes`.
#[derive(Args, Debug)]
pub struct Sizes {
    /// Location
    #[arg(short = 'l', long)]
    pub location: Option<String>,
    /// Only sizes for this kind of compute: amlcompute or computeinstance
    #[arg(short = 't', long, value_name = "KIND")]
    pub r#type: Option<String>,
}

/// `compute list-usage`.
#[derive(Args, Debug)]
pub struct Usage {
    /// Location
    #[arg(short = 'l', long)]
    pub location: Option<String>,
}

/// `compute preempt`.
#[derive(Args, Debug)]
pub struct Preempt {
    /// Name of the cluster
    #[arg(
        value_name = "NAME",
        required_unless_present = "name",
        conflicts_with = "name"
    )]
    pub cluster: Option<String>,
    /// Name of the cluster
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// How many nodes, or all
    #[arg(long, value_name = "N|all")]
    pub nodes: String,
    /// Notice before the nodes are killed, as in 30s
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub notice: String,
    /// Offer no new node for so long, as in 10m
    #[arg(long, value_name = "TIME")]
    pub hold_capacity: Option<String>,
}
