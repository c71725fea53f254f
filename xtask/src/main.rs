//! The project's own commands: `cargo xtask COMMAND`.
//!
//! One place says how the project is built, checked and measured, so that a person, `just` and the CI
//! run the same thing. Only `anyhow` and `serde_json` are used: this program is compiled before anything
//! else can be checked, and its build time is paid by everybody.
//!
//! Exit status: 0 done, 1 a check failed, 2 the command was wrong.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool for developers: text on the terminal is what it makes"
)]

mod cargo;
mod commands;
mod deny;
mod kube;
mod leftover;
mod python;
mod steps;
mod suites;
mod test;
mod tidy;
mod whole;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  test [--quick] [FILTER]    everything the project promises: format, tidy, clippy, deny, all tests
                             --quick: format, tidy, clippy and unit tests only
                             FILTER: run only the tests whose name contains it
  tidy                       compare the sources with the rules written in ARCHITECTURE.md and STYLE.md
  sim [--seeds N] [--from S] the seeded simulation, optimised; N seeds starting at seed S
  crdgen                     write deploy/crd/instancetypes.yaml anew from the rules of instance types
  stories                    write the golden story transcripts anew; read the diff before you commit it
  bench                      the benchmarks of every crate that has them
  bench whole [PART]         what a user gets, through a release server, beside peers and floors of the same run
                             PART: starts, commands, files, dispatch, restart,
                             documents or blobs alone
  kube up [--nodes real|none] [--fake N] [--state DIR]
                             a throw-away Kubernetes; prints the export of KUBECONFIG. Default: a real node when this
                             machine can run one
  kube down [--state DIR]    ends all of it
  kube restart [--state DIR] NAME   ends a process of it by force and starts it again
  kube check [--nodes real|none]
                             a Kubernetes of its own: up, does it work, down, is nothing left
  kube build                 only builds the programs, and prints their folder
  kube kubectl [VERSION]     prints the path of a stock kubectl";

/// What was asked for, before anything runs.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Help,
    Test {
        quick: bool,
        filter: Option<String>,
    },
    Tidy,
    Sim {
        seeds: Option<u64>,
        from: Option<u64>,
    },
    Crdgen,
    Stories,
    Bench,
    BenchWhole {
        part: Option<whole::Part>,
    },
    Kube(kube::Kube),
}

/// Reads the arguments after the program's name. The error is one line for stderr.
fn parse(args: &[&str]) -> Result<Command, String> {
    let Some((&name, rest)) = args.split_first() else {
        return Err("no command is given".into());
    };
    match name {
        "test" => parse_test(rest),
        "sim" => parse_sim(rest),
        "tidy" => no_arguments(name, rest).map(|()| Command::Tidy),
        "crdgen" => no_arguments(name, rest).map(|()| Command::Crdgen),
        "stories" => no_arguments(name, rest).map(|()| Command::Stories),
        "bench" if rest.first() == Some(&"whole") => parse_whole(&rest[1..]),
        "bench" => no_arguments(name, rest).map(|()| Command::Bench),
        "kube" => kube::parse(rest).map(Command::Kube),
        "help" | "--help" | "-h" => Ok(Command::Help),
        other => Err(format!("unknown command {other:?}")),
    }
}

fn parse_whole(args: &[&str]) -> Result<Command, String> {
    let part = match args {
        [] => None,
        [name] => {
            let found = whole::PARTS.iter().find(|(known, _)| known == name);
            Some(
                found
                    .ok_or_else(|| format!("bench whole has no part {name:?}"))?
                    .1,
            )
        }
        [_, extra, ..] => return Err(format!("bench whole takes one part, got {extra:?} too")),
    };
    Ok(Command::BenchWhole { part })
}

fn no_arguments(name: &str, rest: &[&str]) -> Result<(), String> {
    match rest.first() {
        None => Ok(()),
        Some(extra) => Err(format!("{name} takes no argument, got {extra:?}")),
    }
}

fn parse_test(args: &[&str]) -> Result<Command, String> {
    let (mut quick, mut filter) = (false, None);
    for &arg in args {
        match arg {
            "--quick" => quick = true,
            // `cargo test NAME` and `cargo test -- NAME` are both habits; both work here.
            "--" => {}
            flag if flag.starts_with('-') => {
                return Err(format!("unknown option {flag:?} of test"));
            }
            name if filter.is_none() => filter = Some(name.to_owned()),
            extra => return Err(format!("test takes one filter, got {extra:?} too")),
        }
    }
    Ok(Command::Test { quick, filter })
}

fn parse_sim(args: &[&str]) -> Result<Command, String> {
    let (mut seeds, mut from) = (None, None);
    let mut rest = args.iter();
    while let Some(&flag) = rest.next() {
        let slot = match flag {
            "--seeds" => &mut seeds,
            "--from" => &mut from,
            other => return Err(format!("unknown option {other:?} of sim")),
        };
        let text = rest.next().ok_or(format!("{flag} needs a number"))?;
        // Underscores as in Rust, so that a million is readable.
        let number = text.replace('_', "").parse::<u64>();
        *slot = Some(number.map_err(|_| format!("{flag} needs a number, got {text:?}"))?);
    }
    Ok(Command::Sim { seeds, from })
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let command = match parse(&args) {
        Ok(command) => command,
        Err(message) => {
            eprintln!("error: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let done = match command {
        Command::Help => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Command::Test { quick, filter } => test::run(quick, filter.as_deref()),
        Command::Tidy => tidy::run(),
        Command::Sim { seeds, from } => commands::sim(seeds, from),
        Command::Crdgen => commands::crdgen(),
        Command::Stories => commands::stories(),
        Command::Bench => commands::bench(),
        Command::BenchWhole { part } => whole::whole(part),
        Command::Kube(command) => kube::run(command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        let test = |quick, filter: Option<&str>| Command::Test {
            quick,
            filter: filter.map(str::to_owned),
        };
        assert_eq!(parse(&["test"]), Ok(test(false, None)));
        assert_eq!(
            parse(&["test", "--quick", "lease"]),
            Ok(test(true, Some("lease")))
        );
        assert_eq!(
            parse(&["test", "--", "lease"]),
            Ok(test(false, Some("lease")))
        );
        let sim = Command::Sim {
            seeds: Some(1_000_000),
            from: Some(7),
        };
        assert_eq!(
            parse(&["sim", "--from", "7", "--seeds", "1_000_000"]),
            Ok(sim)
        );
    }

    #[test]
    fn wrong_commands_name_what_is_wrong() {
        let refused = |args: &[&str]| parse(args).unwrap_err();
        assert_eq!(refused(&[]), "no command is given");
        assert_eq!(refused(&["tset"]), r#"unknown command "tset""#);
        assert_eq!(
            refused(&["tidy", "x"]),
            r#"tidy takes no argument, got "x""#
        );
        assert_eq!(refused(&["sim", "--seeds"]), "--seeds needs a number");
        assert_eq!(
            refused(&["sim", "--seeds", "many"]),
            r#"--seeds needs a number, got "many""#
        );
        assert_eq!(
            refused(&["test", "--fast"]),
            r#"unknown option "--fast" of test"#
        );
    }
}
