//! `zaffre online-endpoint`, `zaffre online-deployment`.

use super::{DeleteArgs, FileArgs, NameArg, place::Limit};
use clap::{Args, Subcommand};

/// `zaffre online-endpoint`.
#[derive(Debug, Subcommand)]
pub enum Endpoint {
    /// Create an endpoint; one of this name is changed
    Create(Create),
    /// Show an endpoint
    Show(NameArg),
    /// List the endpoints
    List(Limit),
    /// Delete an endpoint
    Delete(DeleteArgs),
    /// Show the keys of an endpoint
    GetCredentials(NameArg),
    /// Make a new key
    RegenerateKeys(Regenerate),
}

/// `online-endpoint create`.
#[derive(Args, Debug)]
pub struct Create {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// How a caller shows who it is: key, aml_token or aad_token
    #[arg(long, value_name = "MODE")]
    pub auth_mode: Option<String>,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `online-endpoint regenerate-keys`.
#[derive(Args, Debug)]
pub struct Regenerate {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Which key
    #[arg(long, value_parser = ["primary", "secondary"], default_value = "primary")]
    pub key_type: String,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}

/// `zaffre online-deployment`.
#[derive(Debug, Subcommand)]
pub enum Deployment {
    /// Check a deployment on the server; serving is not there yet, so it is refused when it is valid
    Create(DeploymentCreate),
}

/// `online-deployment create`.
#[derive(Args, Debug)]
pub struct DeploymentCreate {
    /// The file.
    #[command(flatten)]
    pub file: FileArgs,
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Endpoint
    #[arg(short = 'e', long, value_name = "NAME")]
    pub endpoint_name: Option<String>,
    /// Do not look for the scoring script before anything is sent
    #[arg(long)]
    pub skip_script_validation: bool,
    /// Do not wait for the end of the operation
    #[arg(long)]
    pub no_wait: bool,
}
