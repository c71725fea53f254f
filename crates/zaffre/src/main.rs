//! `zaffre`: the server and its command line in one program. The only place where adapters meet the core.
//!
//! B1 stdout carries results and the one `ready` line, stderr everything else;
//! B2 one crypto provider is installed before anything uses TLS.

mod agent;
mod cli;
mod client;
mod command;
mod components;
mod draft;
mod failure;
mod home;
mod output;
mod progress;
mod quickstart;
mod serve;
mod shape;
mod upload;

use clap::{CommandFactory, Parser};
use cli::{Cli, Command, Globals};
use command::Context;
use failure::Failure;
use output::Output;
use std::{ffi::OsString, process::ExitCode};

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    // What the local engine starts this program as, before anything of the command line is built.
    match args.get(1).and_then(|word| word.to_str()) {
        Some("agent") => {
            logs(&Globals::default(), "info");
            return agent::main(&args[2..]);
        }
        Some("agent-exec") => return engine_local::launcher::main(&args[2..]),
        _ => {}
    }
    // `az ml compute create` with `az` replaced: the group in front says nothing here.
    if args.get(1).is_some_and(|word| word == "ml") {
        args.remove(1);
    }
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure);
            failure.exit_code()
        }
    }
}

/// Help goes to stdout and is a success, anything else is a wrong command.
fn usage(error: &clap::Error) -> ExitCode {
    let text = if output::colour_stderr() {
        error.render().ansi().to_string()
    } else {
        error.render().to_string()
    };
    if error.use_stderr() {
        output::say(text.trim_end());
        return ExitCode::from(2);
    }
    match output::write(&error.render().to_string()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.exit_code(),
    }
}

fn run(cli: Cli) -> Result<(), Failure> {
    let globals = cli.globals;
    if globals.only_show_errors {
        output::only_errors();
    }
    let output = Output::new(globals.output, globals.query.clone());
    match cli.command {
        Command::Completion(args) => {
            let mut script = vec![];
            clap_complete::generate(args.shell, &mut Cli::command(), "zaffre", &mut script);
            output::write_bytes(&script)?;
        }
        Command::Validate(args) => command::validate::run(&output, globals.output, &args)?,
        Command::Configure(args) => command::place::configure(&output, &args)?,
        Command::Kubeconfig(args) => command::kubeconfig::run(&globals, &args)?,
        Command::Env(args) => command::sign_in::env(&globals, &args)?,
        Command::Serve(args) => {
            logs(&globals, "info");
            provider();
            serve::run(&args)?;
        }
        Command::Quickstart(args) => {
            logs(&globals, "warn");
            provider();
            quickstart::run(&args)?;
        }
        asked => {
            logs(&globals, "warn");
            provider();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| Failure::failed(format!("no runtime: {error}")))?;
            runtime.block_on(ask(globals, asked))?;
        }
    }
    Ok(())
}

/// The commands that a server answers.
async fn ask(globals: Globals, asked: Command) -> Result<(), Failure> {
    let output = Output::new(globals.output, globals.query.clone());
    let asked = match asked {
        Command::Login(args) => return command::sign_in::login(&globals, &output, &args).await,
        Command::Account(args) => return command::sign_in::account(&globals, &output, args).await,
        other => other,
    };
    let context = Context::new(globals).await?;
    match asked {
        Command::Compute(command) => command::compute::run(&context, command).await,
        Command::InstanceType(command) => command::instance_type::run(&context, command).await,
        Command::Job(cli::job::Job::Validate(args)) => {
            command::validate::job(&args.file, &args.set)
        }
        Command::Job(command) => command::job::run(&context, command).await,
        Command::BatchEndpoint(command) => command::batch::endpoint(&context, command).await,
        Command::BatchDeployment(command) => command::batch::deployment(&context, command).await,
        Command::OnlineEndpoint(command) => command::online::endpoint(&context, command).await,
        Command::OnlineDeployment(command) => command::online::deployment(&context, command).await,
        Command::Model(command) => command::asset::model(&context, command).await,
        Command::Environment(command) => command::asset::environment(&context, command).await,
        Command::Component(command) => command::asset::component(&context, command).await,
        Command::Data(command) => command::asset::data(&context, command).await,
        Command::Datastore(command) => command::place::datastore(&context, command).await,
        Command::Workspace(command) => command::place::workspace(&context, command).await,
        Command::Metrics(command) => command::place::metrics(&context, command).await,
        Command::Quota(command) => command::place::quota(&context, command).await,
        Command::Identity(command) => command::identity::run(&context, command).await,
        Command::Role(command) => command::identity::role(&context, command).await,
        Command::Serve(_)
        | Command::Quickstart(_)
        | Command::Validate(_)
        | Command::Configure(_)
        | Command::Kubeconfig(_)
        | Command::Login(_)
        | Command::Account(_)
        | Command::Env(_)
        | Command::Completion(_) => unreachable!("answered without a server"),
    }
}

/// B2. Installing it twice is no error: the first one stays.
fn provider() {
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}

/// Diagnostics on stderr: `ZAFFRE_LOG`, else `RUST_LOG`, else what the flags and the command say.
fn logs(globals: &Globals, usual: &str) {
    let level = match (globals.debug, globals.verbose, globals.only_show_errors) {
        (true, ..) => "debug",
        (_, true, _) => "info",
        (.., true) => "error",
        _ => usual,
    };
    let asked = ["ZAFFRE_LOG", "RUST_LOG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|text| !text.is_empty()));
    // What the library warns of at every try is said once, by us, with what to do.
    let level = match level {
        "warn" | "info" => format!("{level},kube_runtime=error,kube_client=error"),
        _ => level.to_owned(),
    };
    let filter = tracing_subscriber::EnvFilter::try_new(asked.as_deref().unwrap_or(&level))
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(output::colour_stderr())
        .init();
}
