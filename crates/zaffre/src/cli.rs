//! The command line as types. Flags and letters are those of `az ml`, command by command: the same letter means different
//! things in different commands, so only `-g -w -o -h` are reserved everywhere.
//!
//! L1 nothing is silently ignored: a flag that is accepted has its effect, one that cannot have it does not exist here.

pub mod asset;
pub mod batch;
pub mod component;
pub mod compute;
pub mod identity;
pub mod instance_type;
pub mod job;
pub mod online;
pub mod place;
#[cfg(test)]
mod tests;

use crate::output::Format;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Azure Machine Learning's compute, anywhere: run `az ml` files on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "zaffre",
    version,
    max_term_width = 100,
    propagate_version = false,
    arg_required_else_help = true,
    after_help = "Every command is that of `az ml`; `zaffre ml ...` works too.\nResults go to stdout, everything else to stderr. Exit status: 0 done, 1 the work failed, 2 the command was wrong, 3 not found."
)]
pub struct Cli {
    /// What every command takes.
    #[command(flatten)]
    pub globals: Globals,
    /// Which command.
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Everywhere")]
pub struct Globals {
    /// Resource group [default: default]
    #[arg(
        short = 'g',
        long,
        global = true,
        value_name = "NAME",
        env = "ZAFFRE_RESOURCE_GROUP",
        hide_env = true
    )]
    pub resource_group: Option<String>,
    /// Workspace [default: default]
    #[arg(
        short = 'w',
        long,
        global = true,
        value_name = "NAME",
        env = "ZAFFRE_WORKSPACE",
        hide_env = true
    )]
    pub workspace_name: Option<String>,
    /// Subscription [default: 00000000-0000-0000-0000-000000000000]
    #[arg(
        long,
        global = true,
        value_name = "ID",
        env = "ZAFFRE_SUBSCRIPTION",
        hide_env = true
    )]
    pub subscription: Option<String>,
    /// Form of the result [default: table on a terminal, else json]
    #[arg(
        short = 'o',
        long,
        global = true,
        value_name = "FORM",
        value_enum,
        env = "ZAFFRE_OUTPUT",
        hide_env = true
    )]
    pub output: Option<Format>,
    /// JMESPath expression applied to the result
    #[arg(long, global = true, value_name = "JMESPATH")]
    pub query: Option<String>,
    /// Address of the server [default: the one that `zaffre serve` registered]
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "ZAFFRE_SERVER",
        hide_env = true
    )]
    pub server: Option<String>,
    /// Print errors only: no warnings, no progress
    #[arg(long, global = true)]
    pub only_show_errors: bool,
    /// Say more on stderr
    #[arg(long, global = true)]
    pub verbose: bool,
    /// Say everything on stderr
    #[arg(long, global = true)]
    pub debug: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server
    Serve(ServeArgs),
    /// See all of it work once: train, deploy, score, lose a node, get every row
    Quickstart(QuickstartArgs),
    /// Check files without a server
    Validate(ValidateArgs),
    /// Clusters and their nodes, compute instances, attached computes
    #[command(subcommand)]
    Compute(compute::Compute),
    /// Jobs
    #[command(subcommand)]
    Job(job::Job),
    /// Instance types: named sizes of pods, as `kubectl` sees them
    #[command(subcommand)]
    InstanceType(instance_type::InstanceType),
    /// Batch endpoints
    #[command(subcommand)]
    BatchEndpoint(batch::Endpoint),
    /// Batch deployments
    #[command(subcommand)]
    BatchDeployment(batch::Deployment),
    /// Online endpoints: documents with keys; serving is not there yet
    #[command(subcommand)]
    OnlineEndpoint(online::Endpoint),
    /// Online deployments: checked, not served yet
    #[command(subcommand)]
    OnlineDeployment(online::Deployment),
    /// Models
    #[command(subcommand)]
    Model(asset::Model),
    /// Environments
    #[command(subcommand)]
    Environment(asset::Environment),
    /// Data assets
    #[command(subcommand)]
    Data(asset::Data),
    /// Components: what steps of pipelines are made of
    #[command(subcommand)]
    Component(component::Component),
    /// Datastores
    #[command(subcommand)]
    Datastore(place::Datastore),
    /// Workspaces
    #[command(subcommand)]
    Workspace(place::Workspace),
    /// Metrics of the workspace, as Azure Monitor has them
    #[command(subcommand)]
    Metrics(place::Metrics),
    /// Core quotas
    #[command(subcommand)]
    Quota(place::Quota),
    /// Identities: who may sign in to this server
    #[command(subcommand)]
    Identity(identity::Identity),
    /// Roles: what identities may do, and where
    #[command(subcommand)]
    Role(identity::Role),
    /// Sign in to a server
    Login(identity::Login),
    /// What this user is signed in to
    #[command(subcommand)]
    Account(identity::Account),
    /// Print what programs of the Azure SDK need in their environment: `eval "$(zaffre env)"`
    Env(identity::Env),
    /// Print what `kubectl` needs to reach the instance types of this server
    Kubeconfig(instance_type::Kubeconfig),
    /// Set defaults: `zaffre configure --defaults group=G workspace=W`
    Configure(ConfigureArgs),
    /// Print a completion script
    Completion(CompletionArgs),
}

/// `zaffre serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Folder of everything the server keeps [default: data in ZAFFRE_HOME]
    #[arg(long, value_name = "DIR", env = "ZAFFRE_DATA", hide_env = true)]
    pub data: Option<PathBuf>,
    /// Address and port; port 0 picks a free one. Addresses other than loopback serve TLS only
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8443")]
    pub listen: String,
    /// Do not become the current server of this user
    #[arg(long)]
    pub no_register: bool,
    /// Another name or address that clients reach this server by; part of its certificate
    #[arg(long, value_name = "NAME")]
    pub host_name: Vec<String>,
    /// On SIGTERM and SIGINT stop the running tasks too, instead of leaving them to the next start
    #[arg(long)]
    pub stop_tasks: bool,
    /// Label of this machine as the node of the embedded cluster; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_label: Vec<String>,
    /// Device of that node, such as `nvidia.com/gpu=1`, in place of those found; may be given several times
    #[arg(long, value_name = "NAME=COUNT")]
    pub node_device: Vec<String>,
    /// Label that the node of all work on the embedded cluster must carry; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub node_selector: Vec<String>,
    /// Folder of this machine that may be attached as a datastore, which jobs read and write, by a name; may be given several times
    #[arg(long, value_name = "NAME=PATH")]
    pub folder: Vec<String>,
    /// Where pods of attached clusters reach this server [default: the first --host-name, else the address of --listen]
    #[arg(
        long,
        value_name = "https://HOST:PORT",
        env = "ZAFFRE_AGENTS_URL",
        hide_env = true
    )]
    pub agents_url: Option<String>,
    /// Image that brings this program into pods
    #[arg(long, value_name = "IMAGE", env = "ZAFFRE_AGENT_IMAGE", hide_env = true, default_value = concat!("zaffre:", env!("CARGO_PKG_VERSION")))]
    pub agent_image: String,
    /// Issuer of OpenID Connect whose tokens are taken too; role assignments call its subjects oidc:SUBJECT
    #[arg(long, value_name = "https://ISSUER", requires = "oidc_audience")]
    pub oidc_issuer: Option<String>,
    /// Which audience its tokens for this server have
    #[arg(long, value_name = "AUDIENCE", requires = "oidc_issuer")]
    pub oidc_audience: Option<String>,
    /// Certificate of the authority that its server is trusted by [default: those of this machine]
    #[arg(long, value_name = "FILE", requires = "oidc_issuer")]
    pub oidc_ca: Option<PathBuf>,
}

/// `zaffre quickstart`.
#[derive(Args, Clone, Debug)]
pub struct QuickstartArgs {
    /// Folder for everything it makes [default: a fresh one below the temporary folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where the work runs
    #[arg(long, value_enum, default_value_t = Engine::Local)]
    pub engine: Engine,
    /// With --engine kubernetes: the cluster [default: KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// With --engine kubernetes: the namespace of its pods
    #[arg(long, value_name = "NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// With --engine kubernetes: where the server listens; pods must reach it
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// With --engine kubernetes: where pods reach the server, when that is not --listen
    #[arg(long, value_name = "https://HOST:PORT")]
    pub agents_url: Option<String>,
    /// With --engine kubernetes: the image that brings this program into pods
    #[arg(long, value_name = "IMAGE", default_value = concat!("zaffre:", env!("CARGO_PKG_VERSION")))]
    pub agent_image: String,
}

/// Where the work of a quickstart runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Engine {
    /// Processes of this machine: training, a model, batch scoring while a node is taken away
    Local,
    /// Pods of a cluster: instance types, ranks, reasons, a pod that is deleted
    Kubernetes,
}

/// `zaffre validate`.
#[derive(Args, Debug)]
pub struct ValidateArgs {
    /// Files to check
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// Set a field before checking, as in `--set resources.instance_count=2`
    #[arg(long, value_name = "PATH=VALUE", num_args = 1..)]
    pub set: Vec<String>,
}

/// `zaffre configure`.
#[derive(Args, Debug)]
pub struct ConfigureArgs {
    /// Defaults: `group=`, `workspace=`, `subscription=`; an empty value removes one
    #[arg(short = 'd', long, value_name = "KEY=VALUE", num_args = 1.., required_unless_present = "list_defaults")]
    pub defaults: Vec<String>,
    /// Show the defaults
    #[arg(short = 'l', long)]
    pub list_defaults: bool,
}

/// `zaffre completion`.
#[derive(Args, Debug)]
pub struct CompletionArgs {
    /// Which shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `--file -f` and `--set` of the `create` commands.
#[derive(Args, Clone, Debug, Default)]
pub struct FileArgs {
    /// YAML file
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Set a field of the file, as in `--set resources.instance_count=2`
    #[arg(long, value_name = "PATH=VALUE", num_args = 1.., action = clap::ArgAction::Append)]
    pub set: Vec<String>,
}

/// `--set --add --remove --force-string` of the `update` commands.
#[derive(Args, Clone, Debug, Default)]
pub struct ChangeArgs {
    /// Set a field, as in `--set tags.owner=me`
    #[arg(long, value_name = "PATH=VALUE", num_args = 1.., action = clap::ArgAction::Append)]
    pub set: Vec<String>,
    /// Add to a list, once: `--add PATH VALUE`, `--add PATH KEY=VALUE ...`
    #[arg(long, value_name = "PATH VALUE", num_args = 1.., action = clap::ArgAction::Set)]
    pub add: Vec<String>,
    /// Remove fields or items of lists: `--remove PATH`, `--remove PATH INDEX`
    #[arg(long, value_name = "PATH", num_args = 1.., action = clap::ArgAction::Append)]
    pub remove: Vec<String>,
    /// Take the values of --set and --add as text
    #[arg(long)]
    pub force_string: bool,
}

/// `--name -n`.
#[derive(Args, Clone, Debug)]
pub struct NameArg {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
}

/// `--name -n`, and `--no-wait`.
#[derive(Args, Clone, Debug)]
pub struct DeleteArgs {
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
