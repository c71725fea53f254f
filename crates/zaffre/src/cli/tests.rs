//! The command line against its oracle, and against its own documentation.

mod compatibility;
mod guides;

use super::Cli;
use clap::{Command, CommandFactory};
use std::{collections::BTreeSet, fmt::Write as _, fs, path::PathBuf};

/// Flags of `az ml` that do not exist here, with the reason (L1).
const ABSENT: [(&str, &str); 17] = [
    ("--local", "endpoints are the server's"),
    ("--local-enable-gpu", "endpoints are the server's"),
    ("--vscode-debug", "endpoints are the server's"),
    ("--all-traffic", "online deployments are not served yet"),
    ("--package-model", "there are no model packages"),
    ("--web", "there is no studio page"),
    ("--registry-name", "there are no registries"),
    ("compute connect-ssh", "nodes have no SSH"),
    (
        "compute enable-sso",
        "an instance has no page to sign on to",
    ),
    (
        "online-endpoint invoke",
        "online deployments are not served yet",
    ),
    (
        "online-endpoint update",
        "create changes an endpoint that is there",
    ),
    (
        "online-deployment delete",
        "online deployments are not served yet",
    ),
    (
        "online-deployment get-logs",
        "online deployments are not served yet",
    ),
    (
        "online-deployment list",
        "online deployments are not served yet",
    ),
    (
        "online-deployment show",
        "online deployments are not served yet",
    ),
    (
        "online-deployment update",
        "online deployments are not served yet",
    ),
    ("--all-resources", "a workspace has none of its own"),
];
/// Commands that do not exist here, or (the last two) that leave out what a workspace of this server has not.
const ABSENT_COMMANDS: [&str; 19] = [
    "component prepare-for-sign",
    "job connect-ssh",
    "job show-services",
    "model package",
    "model share",
    "environment share",
    "data import",
    "data list-materialization-status",
    "data mount",
    "data share",
    "datastore mount",
    "datastore update",
    "workspace diagnose",
    "workspace list-keys",
    "workspace provision-network",
    "workspace sync-keys",
    "workspace update",
    "workspace create",
    "workspace list",
];

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// An option: long name, short letter.
type Flag = (String, Option<char>);

/// `group command` and its options.
fn oracle() -> Option<Vec<(String, Vec<Flag>)>> {
    let shared = std::env::var_os("ZAFFRE_SHARED")
        .map_or_else(|| repository().join("../shared"), PathBuf::from);
    let text = fs::read_to_string(shared.join("design/dependencies.md")).ok()?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("- `ml "));
    Some(
        lines
            .filter_map(|line| {
                let (name, rest) = line.split_once('`')?;
                let options = rest
                    .split(['[', ']', ';', ','])
                    .flat_map(|part| part.split("req:"))
                    .flat_map(|part| part.split("opt:"));
                let options = options.filter_map(|part| {
                    let mut words = part.split_whitespace();
                    let long = words.next()?.strip_prefix("--")?;
                    let clean = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
                    let short = words
                        .next()
                        .and_then(|word| clean(word).strip_prefix('-')?.chars().next());
                    Some((format!("--{}", clean(long)), short))
                });
                Some((name.to_owned(), options.collect()))
            })
            .collect(),
    )
}

#[test]
fn flags_and_letters_are_those_of_az() {
    let Some(oracle) = oracle() else {
        panic!(
            "the flags of az are read from ../shared/design/dependencies.md, which is missing; ZAFFRE_SHARED says where it is"
        );
    };
    assert!(oracle.len() > 100, "{} commands", oracle.len());
    let mut cli = Cli::command();
    cli.build();
    let mut wrong = vec![];
    let mut looked = 0;
    for (name, options) in &oracle {
        let (group, verb) = name.split_once(' ').unwrap();
        let Some(group) = cli.find_subcommand(group) else {
            continue;
        };
        let Some(command) = group.find_subcommand(verb) else {
            if !ABSENT.iter().any(|(absent, _)| absent == name)
                && !ABSENT_COMMANDS.contains(&name.as_str())
            {
                wrong.push(format!("{name} does not exist"));
            }
            continue;
        };
        if ABSENT_COMMANDS.contains(&name.as_str()) {
            continue;
        }
        for (long, short) in options {
            looked += 1;
            let found = command
                .get_arguments()
                .find(|arg| arg.get_long() == Some(&long[2..]));
            match found {
                None if ABSENT.iter().any(|(absent, _)| absent == long) => {}
                None => wrong.push(format!("{name} has no {long}")),
                Some(arg) if arg.get_short() != *short => {
                    wrong.push(format!(
                        "{name} {long}: letter {:?}, az has {short:?}",
                        arg.get_short()
                    ));
                }
                Some(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(looked > 150, "only {looked} flags were compared");
}

#[test]
fn no_letter_is_used_twice() {
    // clap checks every command's arguments when it is built for debugging.
    Cli::command().debug_assert();
}

#[test]
fn the_reference_is_current() {
    let path = repository().join("docs/reference/cli.md");
    let text = reference();
    if std::env::var_os("ZAFFRE_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/reference/cli.md is not current: run the test with ZAFFRE_BLESS=1 and read the difference"
    );
}

fn reference() -> String {
    let mut cli = Cli::command().term_width(100);
    cli.build();
    let mut out = String::from(
        "# Commands\n\nEvery command takes these:\n\n```\n  -g, --resource-group NAME    -w, --workspace-name NAME    --subscription ID\n  -o, --output FORM            --query JMESPATH             --server URL\n      --only-show-errors           --verbose                    --debug\n```\n\nVariables of the environment: `ZAFFRE_HOME`, `ZAFFRE_DATA`, `ZAFFRE_SERVER`, `ZAFFRE_TOKEN`, `ZAFFRE_CA`, `ZAFFRE_RESOURCE_GROUP`,\n`ZAFFRE_WORKSPACE`, `ZAFFRE_SUBSCRIPTION`, `ZAFFRE_OUTPUT`, `ZAFFRE_LOG`, `NO_COLOR`, `CI`.\n",
    );
    let names: Vec<String> = cli
        .get_subcommands()
        .filter(|c| !c.is_hide_set())
        .map(|c| c.get_name().to_owned())
        .collect();
    for name in names.iter().filter(|name| *name != "help") {
        let command = cli.find_subcommand(name).unwrap();
        describe(&mut out, &format!("zaffre {name}"), command, 2);
    }
    out
}

fn describe(out: &mut String, name: &str, command: &Command, level: usize) {
    let about = command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default();
    let _ = write!(out, "\n{} {name}\n\n{about}.\n", "#".repeat(level));
    let subcommands: Vec<&Command> = command
        .get_subcommands()
        .filter(|c| c.get_name() != "help")
        .collect();
    for inner in &subcommands {
        describe(
            out,
            &format!("{name} {}", inner.get_name()),
            inner,
            level + 1,
        );
    }
    if !subcommands.is_empty() {
        return;
    }
    let globals: BTreeSet<&str> = [
        "resource_group",
        "workspace_name",
        "subscription",
        "output",
        "query",
        "server",
        "only_show_errors",
        "verbose",
        "debug",
        "help",
        "version",
    ]
    .into();
    let args: Vec<_> = command
        .get_arguments()
        .filter(|arg| !globals.contains(arg.get_id().as_str()) && !arg.is_hide_set())
        .collect();
    if args.is_empty() {
        return;
    }
    out.push_str("\n| flag | |\n|---|---|\n");
    for arg in args {
        let value = arg
            .get_value_names()
            .filter(|_| arg.get_action().takes_values());
        let value = value
            .map(|names| format!(" {}", names.join(" ")))
            .unwrap_or_default();
        let flag = match (arg.get_short(), arg.get_long()) {
            (Some(short), Some(long)) => format!("`-{short}, --{long}{value}`"),
            (None, Some(long)) => format!("`--{long}{value}`"),
            _ => format!("`{}`", value.trim()),
        };
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let needed = if arg.is_required_set() {
            " (required)"
        } else {
            ""
        };
        let default: Vec<String> = arg
            .get_default_values()
            .iter()
            .map(|value| value.to_string_lossy().into_owned())
            .collect();
        let default = if default.is_empty() || !arg.get_action().takes_values() {
            String::new()
        } else {
            format!(" [default: {}]", default.join(" "))
        };
        let row = format!(
            "| {} | {}{needed}{default} |\n",
            flag.replace('|', "\\|"),
            help.replace('|', "\\|")
        );
        out.push_str(&row);
    }
}
