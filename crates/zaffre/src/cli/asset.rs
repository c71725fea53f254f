//! `zaffre model`, `zaffre environment`, `zaffre data`.

use super::{ChangeArgs, FileArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `zaffre model`.
#[derive(Debug, Subcommand)]
pub enum Model {
    /// Register a model
    Create(ModelCreate),
    /// Show a model
    Show(Version),
    /// List the models, or the versions of one
    List(ModelList),
    /// Change tags or description
    Update(ModelUpdate),
    /// Fetch the files of a model
    Download(Download),
    /// Hide from lists
    Archive(Version),
    /// Show in lists again
    Restore(Version),
}

/// `zaffre environment`.
#[derive(Debug, Subcommand)]
pub enum Environment {
    /// Register an environment
    Create(EnvironmentCreate),
    /// Show an environment
    Show(Version),
    /// List the environments, or the versions of one
    List(List),
    /// Change tags or description
    Update(Update),
    /// Hide from lists
    Archive(Version),
    /// Show in lists again
    Restore(Version),
}

/// `zaffre data`.
#[derive(Debug, Subcommand)]
pub enum Data {
    /// Register data
    Create(DataCreate),
    /// Show data
    Show(Version),
    /// List the data, or the versions of one
    List(List),
    /// Change tags or description
    Update(Update),
    /// Hide from lists
    Archive(Version),
    /// Show in lists again
    Restore(Version),
}

/// `model create`.
#[derive(Args, Debug)]
pub struct ModelCreate {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Version [default: the next one]
    #[arg(short = 'v', long, value_name = "VERSION")]
    pub version: Option<String>,
    /// File or folder of the model, or a URI
    #[arg(short = 'p', long, value_name = "PATH")]
    pub path: Option<String>,
    /// custom_model or mlflow_model
    #[arg(short = 't', long, value_name = "KIND")]
    pub r#type: Option<String>,
    /// Description
    #[arg(long)]
    pub description: Option<String>,
    /// Tags
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub tags: Vec<String>,
    /// Stage
    #[arg(short = 's', long)]
    pub stage: Option<String>,
    /// Datastore that files are uploaded to
    #[arg(long, value_name = "NAME")]
    pub datastore: Option<String>,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `environment create`.
#[derive(Args, Debug)]
pub struct EnvironmentCreate {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Version [default: the next one]
    #[arg(short = 'v', long, value_name = "VERSION")]
    pub version: Option<String>,
    /// Conda file
    #[arg(short = 'c', long, value_name = "FILE")]
    pub conda_file: Option<String>,
    /// Container image
    #[arg(short = 'i', long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Folder of a container build
    #[arg(short = 'b', long, value_name = "DIR")]
    pub build_context: Option<String>,
    /// Dockerfile inside that folder
    #[arg(short = 'd', long, value_name = "FILE")]
    pub dockerfile_path: Option<String>,
    /// linux or windows
    #[arg(long, value_name = "OS")]
    pub os_type: Option<String>,
    /// Description
    #[arg(long)]
    pub description: Option<String>,
    /// Tags
    #[arg(long, value_name = "KEY=VALUE", num_args = 1..)]
    pub tags: Vec<String>,
    /// Datastore that files are uploaded to
    #[arg(long, value_name = "NAME")]
    pub datastore: Option<String>,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `data create`.
#[derive(Args, Debug)]
pub struct DataCreate {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Version [default: the next one]
    #[arg(short = 'v', long, value_name = "VERSION")]
    pub version: Option<String>,
    /// File or folder, or a URI
    #[arg(short = 'p', long, value_name = "PATH")]
    pub path: Option<String>,
    /// uri_folder or uri_file
    #[arg(short = 't', long, value_name = "KIND")]
    pub r#type: Option<String>,
    /// Description
    #[arg(short = 'd', long)]
    pub description: Option<String>,
    /// Datastore that files are uploaded to
    #[arg(long, value_name = "NAME")]
    pub datastore: Option<String>,
    /// Leave the check of the path to the server
    #[arg(long)]
    pub skip_validation: bool,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// Which version of an asset.
#[derive(Args, Clone, Debug)]
pub struct Version {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Version
    #[arg(short = 'v', long, value_name = "VERSION", conflicts_with = "label")]
    pub version: Option<String>,
    /// Label, as in latest
    #[arg(short = 'l', long, value_name = "LABEL")]
    pub label: Option<String>,
}

/// `model list` and the others.
#[derive(Args, Debug)]
pub struct List {
    /// Versions of this one
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// At most so many
    #[arg(short = 'r', long, value_name = "N")]
    pub max_results: Option<usize>,
    /// Only hidden ones
    #[arg(long, conflicts_with = "include_archived")]
    pub archived_only: bool,
    /// Hidden ones too
    #[arg(long)]
    pub include_archived: bool,
}

/// `model update` and the others.
#[derive(Args, Debug)]
pub struct Update {
    /// Which.
    #[command(flatten)]
    pub which: Version,
    /// Changes by path.
    #[command(flatten)]
    pub change: ChangeArgs,
}

/// `model list`.
#[derive(Args, Debug)]
pub struct ModelList {
    /// As for every asset.
    #[command(flatten)]
    pub list: List,
    /// Only of this stage
    #[arg(short = 's', long)]
    pub stage: Option<String>,
}

/// `model update`.
#[derive(Args, Debug)]
pub struct ModelUpdate {
    /// As for every asset.
    #[command(flatten)]
    pub update: Update,
    /// Stage
    #[arg(short = 's', long)]
    pub stage: Option<String>,
}

/// `model download`.
#[derive(Args, Debug)]
pub struct Download {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Version
    #[arg(short = 'v', long, value_name = "VERSION")]
    pub version: String,
    /// Folder to write to [default: the current one]
    #[arg(short = 'p', long, value_name = "DIR")]
    pub download_path: Option<PathBuf>,
}
