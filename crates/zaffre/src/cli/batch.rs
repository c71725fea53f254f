//! `zaffre batch-endpoint` and `zaffre batch-deployment`.

use super::{ChangeArgs, DeleteArgs, FileArgs, NameArg};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `zaffre batch-endpoint`.
#[derive(Debug, Subcommand)]
pub enum Endpoint {
    /// Create an endpoint; a file that holds a deployment makes the deployment too
    Create(EndpointCreate),
    /// Show an endpoint
    Show(NameArg),
    /// List the endpoints
    List,
    /// Change an endpoint
    Update(EndpointUpdate),
    /// Delete an endpoint and its deployments
    Delete(DeleteArgs),
    /// Score data
    Invoke(Box<Invoke>),
    /// List the jobs of an endpoint
    ListJobs(NameArg),
}

/// `batch-endpoint create`.
#[derive(Args, Debug)]
pub struct EndpointCreate {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `batch-endpoint update`.
#[derive(Args, Debug)]
pub struct EndpointUpdate {
    /// YAML file
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Name
    #[arg(
        short = 'n',
        long,
        value_name = "NAME",
        required_unless_present = "file"
    )]
    pub name: Option<String>,
    /// Defaults, as in `deployment_name=blue`
    #[arg(long, value_name = "KEY=VALUE")]
    pub defaults: Option<String>,
    /// Changes by path.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `batch-endpoint invoke`.
#[derive(Args, Debug, Default)]
pub struct Invoke {
    /// Name of the endpoint
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Deployment [default: the endpoint's default]
    #[arg(short = 'd', long, value_name = "NAME")]
    pub deployment_name: Option<String>,
    /// YAML file with inputs and outputs
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// What to score: a folder, a file, azureml:NAME:VERSION, or a URI of a datastore
    #[arg(long, value_name = "PATH|URI")]
    pub input: Option<String>,
    /// Kind of --input: uri_folder or uri_file [default: what it is]
    #[arg(long, value_name = "KIND")]
    pub input_type: Option<String>,
    /// Inputs by name, as in `data.path=DIR data.type=uri_folder`
    #[arg(long, value_name = "NAME.KEY=VALUE", num_args = 1..)]
    pub inputs: Vec<String>,
    /// Nodes for this job only
    #[arg(short = 'c', long, value_name = "N")]
    pub instance_count: Option<String>,
    /// Files per mini-batch for this job only
    #[arg(short = 'm', long, value_name = "N")]
    pub mini_batch_size: Option<String>,
    /// Name of the job [default: a generated one]
    #[arg(long, value_name = "NAME")]
    pub job_name: Option<String>,
    /// Experiment
    #[arg(long, value_name = "NAME")]
    pub experiment_name: Option<String>,
    /// Folder of a datastore for the output
    #[arg(long, value_name = "URI")]
    pub output_path: Option<String>,
    /// Outputs by name, as in `score.path=URI`
    #[arg(long, value_name = "NAME.KEY=VALUE", num_args = 1..)]
    pub outputs: Vec<String>,
    /// Change a setting for this job only, as in `retry_settings.max_retries=1`
    #[arg(long, value_name = "PATH=VALUE", num_args = 1.., action = clap::ArgAction::Append)]
    pub set: Vec<String>,
    /// Show progress and wait for the end
    #[arg(long)]
    pub stream: bool,
    /// Take over the finished mini-batches of this cancelled job
    #[arg(long, value_name = "JOB")]
    pub resume_from: Option<String>,
}

/// `zaffre batch-deployment`.
#[derive(Debug, Subcommand)]
pub enum Deployment {
    /// Create a deployment, or replace one
    Create(DeploymentCreate),
    /// Show a deployment
    Show(DeploymentName),
    /// List the deployments of an endpoint
    List(EndpointName),
    /// Change a deployment
    Update(DeploymentUpdate),
    /// Delete a deployment
    Delete(DeploymentDelete),
    /// List the jobs of a deployment
    ListJobs(DeploymentName),
}

/// `batch-deployment create`.
#[derive(Args, Debug)]
pub struct DeploymentCreate {
    /// YAML file
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: PathBuf,
    /// Endpoint
    #[arg(short = 'e', long, value_name = "NAME")]
    pub endpoint_name: Option<String>,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Set a field of the file
    #[arg(long, value_name = "PATH=VALUE", num_args = 1.., action = clap::ArgAction::Append)]
    pub set: Vec<String>,
    /// Make it the endpoint's default
    #[arg(long)]
    pub set_default: bool,
    /// Do not look whether the scoring script is there
    #[arg(long)]
    pub skip_script_validation: bool,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `batch-deployment update`.
#[derive(Args, Debug)]
pub struct DeploymentUpdate {
    /// YAML file
    #[arg(short = 'f', long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Endpoint
    #[arg(
        short = 'e',
        long,
        value_name = "NAME",
        required_unless_present = "file"
    )]
    pub endpoint_name: Option<String>,
    /// Name
    #[arg(
        short = 'n',
        long,
        value_name = "NAME",
        required_unless_present = "file"
    )]
    pub name: Option<String>,
    /// Changes by path.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `--endpoint-name -e`.
#[derive(Args, Debug)]
pub struct EndpointName {
    /// Endpoint
    #[arg(short = 'e', long, value_name = "NAME")]
    pub endpoint_name: String,
}

/// `--endpoint-name -e --name -n`.
#[derive(Args, Debug)]
pub struct DeploymentName {
    /// Endpoint
    #[arg(short = 'e', long, value_name = "NAME")]
    pub endpoint_name: String,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
}

/// `batch-deployment delete`.
#[derive(Args, Debug)]
pub struct DeploymentDelete {
    /// Which.
    #[command(flatten)]
    pub which: DeploymentName,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}
