//! The server of a quickstart, and the commands that it is given.

use super::{Address, CLUSTER, address};
use crate::{
    failure::{Failure, about},
    output,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A running server. Dropped, it is stopped with everything that it started (Q3).
pub struct Host {
    child: Option<Child>,
    exe: PathBuf,
    folder: PathBuf,
    url: String,
}

impl Host {
    /// Starts a server on a free port and waits until it answers.
    pub fn start(folder: &Path) -> Result<Host, Failure> {
        Host::start_with(folder, "127.0.0.1:0", &[])
    }

    /// The same on an address of the user's, with further flags of `serve`.
    pub fn start_with(folder: &Path, listen: &str, flags: &[&str]) -> Result<Host, Failure> {
        let exe = std::env::current_exe().map_err(|error| {
            Failure::failed(format!("this program's own file is unknown: {error}"))
        })?;
        let log = folder.join("server.log");
        let data = folder.join("data");
        output::say(&format!(
            "$ zaffre serve --data {} --listen {listen}{}",
            data.display(),
            flags
                .iter()
                .map(|flag| format!(" {flag}"))
                .collect::<String>()
        ));
        let mut child = Command::new(&exe)
            .args([
                "serve",
                "--no-register",
                "--stop-tasks",
                "--listen",
                listen,
                "--data",
            ])
            .arg(&data)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log).map_err(about(&log))?)
            .spawn()
            .map_err(about(&exe))?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let mut host = Host {
            child: Some(child),
            exe,
            folder: folder.to_owned(),
            url: String::new(),
        };
        let Some(url) = line.trim().strip_prefix("ready ") else {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            host.end();
            return Err(Failure::failed(format!(
                "the server did not start: {}",
                said.trim()
            )));
        };
        host.url = url.to_owned();
        output::say(&format!("  ready {url}\n"));
        Ok(host)
    }

    /// Where it is and how it is talked to.
    pub fn address(&self) -> Result<Address, Failure> {
        address(&self.url, &self.folder.join("data"))
    }

    /// Shows a command and runs it; its results are for the user's eyes.
    pub fn step(&self, title: &str, args: &[&str]) -> Result<(), Failure> {
        Host::shown(title, "zaffre", args, &mut self.command(args))
    }

    /// The same for another program, in the folder of the quickstart.
    pub fn program(&self, title: &str, program: &str, args: &[&str]) -> Result<(), Failure> {
        let mut command = Command::new(program);
        command.args(args).current_dir(&self.folder);
        Host::shown(title, program, args, &mut command)
    }

    fn shown(
        title: &str,
        program: &str,
        args: &[&str],
        command: &mut Command,
    ) -> Result<(), Failure> {
        let shown: Vec<String> = args
            .iter()
            .map(|arg| {
                if arg.contains(' ') {
                    format!("'{arg}'")
                } else {
                    (*arg).to_owned()
                }
            })
            .collect();
        output::say(&format!("# {title}\n$ {program} {}", shown.join(" ")));
        let status = command
            .stdin(Stdio::null())
            .status()
            .map_err(about(Path::new(program)))?;
        if !status.success() {
            return Err(Failure::failed(format!(
                "`{program} {}` ended with {status}",
                shown.join(" ")
            )));
        }
        output::say("");
        Ok(())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.exe);
        command
            .args(args)
            .args(["--output", "table"])
            .current_dir(&self.folder)
            .env("ZAFFRE_SERVER", &self.url)
            .env(
                "ZAFFRE_TOKEN",
                std::fs::read_to_string(self.folder.join("data/token")).unwrap_or_default(),
            )
            .env("ZAFFRE_CA", self.folder.join("data/ca.pem"));
        for name in [
            "ZAFFRE_RESOURCE_GROUP",
            "ZAFFRE_WORKSPACE",
            "ZAFFRE_SUBSCRIPTION",
        ] {
            command.env_remove(name);
        }
        // The user's own defaults are not for this server.
        command.args([
            "--subscription",
            crate::client::locate::SUBSCRIPTION,
            "-g",
            crate::client::locate::GROUP,
            "-w",
            crate::client::locate::WORKSPACE,
        ]);
        command
    }

    /// Deletes the cluster and stops the server; after a failure only the latter, which ends the nodes too.
    pub fn stop(self, well: bool) -> Result<(), Failure> {
        self.stop_with(
            well,
            (
                "the cluster is deleted",
                &["compute", "delete", "-n", CLUSTER, "--yes"],
            ),
        )
    }

    /// The same with a last step of one's own.
    pub fn stop_with(mut self, well: bool, last: (&str, &[&str])) -> Result<(), Failure> {
        if well {
            self.step(last.0, last.1)?;
        }
        self.end();
        Ok(())
    }

    fn end(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        // One that has ended by itself needs no signal.
        if let Some(pid) = pid
            && let Err(error) = kill_process(pid, Signal::TERM)
        {
            tracing::debug!(%error, "the server was gone already");
        }
        if let Err(error) = child.wait() {
            tracing::warn!(%error, "the server's end could not be waited for");
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end();
    }
}
