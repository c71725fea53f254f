//! `zaffre login`, `account`, `env`, `identity` and `role`.

use super::NameArg;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `zaffre login`.
#[derive(Args, Debug)]
pub struct Login {
    /// Identity to sign in as, with its secret [default: a code that somebody who is signed in approves]
    #[arg(short = 'u', long, value_name = "NAME", requires = "secret_file")]
    pub username: Option<String>,
    /// File with the secret; `-` reads it from stdin
    #[arg(long, value_name = "FILE", requires = "username")]
    pub secret_file: Option<PathBuf>,
    /// Certificate of the server's authority, its `ca.pem` [default: that of the registered server]
    #[arg(long, value_name = "FILE", env = "ZAFFRE_CA", hide_env = true)]
    pub ca: Option<PathBuf>,
}

/// `zaffre account`.
#[derive(Debug, Subcommand)]
pub enum Account {
    /// Show what commands use: server, identity, workspace
    Show,
    /// List what this user is signed in to
    List,
    /// Use another of them
    Set(NameArg),
    /// Forget one of them, or all
    Clear(Clear),
    /// Print an access token
    GetAccessToken(GetAccessToken),
}

/// `account clear`.
#[derive(Args, Debug)]
pub struct Clear {
    /// Name [default: all]
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
}

/// `account get-access-token`.
#[derive(Args, Debug)]
pub struct GetAccessToken {
    /// What the token is for [default: the server itself]
    #[arg(long, value_name = "URL")]
    pub resource: Option<String>,
    /// Account, as `account list` names it [default: the one in use]
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print it as kubectl takes it from a credential plugin
    #[arg(long, conflicts_with = "resource")]
    pub exec_credential: bool,
}

/// `zaffre env`.
#[derive(Args, Debug)]
pub struct Env {
    /// Whose lines to print [default: fish where SHELL is that, else bash]
    #[arg(long, value_enum)]
    pub shell: Option<Shell>,
    /// Print a JSON object instead
    #[arg(long, conflicts_with = "shell")]
    pub json: bool,
    /// Print the lines that take them back
    #[arg(long, conflicts_with = "json")]
    pub unset: bool,
}

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// bash, zsh, sh
    Bash,
    /// fish
    Fish,
    /// PowerShell
    Powershell,
}

/// `zaffre identity`.
#[derive(Debug, Subcommand)]
pub enum Identity {
    /// Make an identity; its secret is shown once
    Create(Create),
    /// List the identities
    List,
    /// Show an identity
    Show(NameArg),
    /// Give an identity a new secret; the old one and its tokens end at once
    Rotate(NameArg),
    /// Delete an identity and its roles
    Delete(Delete),
    /// Let the device that shows this code sign in as you
    Approve(Approve),
}

/// `identity create`.
#[derive(Args, Debug)]
pub struct Create {
    /// Name: the client id it signs in with
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// What it stands for
    #[arg(long, value_enum, default_value_t = Kind::Service)]
    pub kind: Kind,
}

/// What an identity stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// A program
    Service,
    /// A person
    User,
}

/// `identity delete`.
#[derive(Args, Debug)]
pub struct Delete {
    /// Name
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// `identity approve`.
#[derive(Args, Debug)]
pub struct Approve {
    /// The code
    #[arg(value_name = "CODE")]
    pub code: String,
}

/// `zaffre role`.
#[derive(Debug, Subcommand)]
pub enum Role {
    /// Who has which role where
    #[command(subcommand)]
    Assignment(Assignment),
    /// What a role may, and roles of your own
    #[command(subcommand)]
    Definition(Definition),
}

/// `zaffre role definition`.
#[derive(Debug, Subcommand)]
pub enum Definition {
    /// Define a role
    Create(Define),
    /// Give a role of yours another meaning
    Update(Define),
    /// List roles
    List(DefinitionList),
    /// Delete a role of yours that nobody holds
    Delete(DefinitionDelete),
}

/// `role definition create` and `update`.
#[derive(Args, Debug)]
pub struct Define {
    /// The definition, a JSON object or a file of one: Name, Actions, NotActions, DataActions, NotDataActions, AssignableScopes
    #[arg(long, value_name = "JSON|FILE|@FILE")]
    pub role_definition: String,
}

/// `role definition list`.
#[derive(Args, Debug)]
pub struct DefinitionList {
    /// Only this role, by name or id
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: Option<String>,
    /// At which scope, above and below [default: the workspace]
    #[arg(long, value_name = "ID")]
    pub scope: Option<String>,
    /// Without Azure's
    #[arg(long)]
    pub custom_role_only: bool,
}

/// `role definition delete`.
#[derive(Args, Debug)]
pub struct DefinitionDelete {
    /// Name or id
    #[arg(short = 'n', long, value_name = "NAME")]
    pub name: String,
    /// At which scope, above and below [default: the workspace]
    #[arg(long, value_name = "ID")]
    pub scope: Option<String>,
}

/// `zaffre role assignment`.
#[derive(Debug, Subcommand)]
pub enum Assignment {
    /// Give an identity a role
    Create(AssignmentCreate),
    /// List the roles at a scope, above it and below it
    List(AssignmentList),
    /// Take roles back
    Delete(AssignmentDelete),
}

/// `role assignment create`.
#[derive(Args, Debug)]
pub struct AssignmentCreate {
    /// Identity, or oidc:SUBJECT of the outside issuer
    #[arg(long, value_name = "NAME")]
    pub assignee: String,
    /// Name or id: Owner, Contributor, Reader, "AzureML Data Scientist", "AzureML Compute Operator", or one of yours
    #[arg(long, value_name = "ROLE")]
    pub role: String,
    /// Where, and below: `/`, or the id of a subscription, resource group, workspace or something in one [default: the workspace]
    #[arg(long, value_name = "ID")]
    pub scope: Option<String>,
}

/// `role assignment list`.
#[derive(Args, Debug)]
pub struct AssignmentList {
    /// Only those of this identity
    #[arg(long, value_name = "NAME")]
    pub assignee: Option<String>,
    /// Only those of this role
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// At which scope, above and below [default: the workspace]
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    pub scope: Option<String>,
    /// At every scope
    #[arg(long)]
    pub all: bool,
}

/// `role assignment delete`.
#[derive(Args, Debug)]
pub struct AssignmentDelete {
    /// Of which identity
    #[arg(long, value_name = "NAME")]
    pub assignee: String,
    /// Only this role
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// At exactly this scope [default: the workspace]
    #[arg(long, value_name = "ID")]
    pub scope: Option<String>,
}
