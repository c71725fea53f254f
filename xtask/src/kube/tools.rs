//! Calling the programs of the system: finding them, running them, waiting for something to become true.

use anyhow::{Context, Result, bail};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at something that is waited for; a look may cost a process.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Where administrators' programs are; an ordinary user's search path leaves them out.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// The folders that programs are looked for in.
pub fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = std::env::split_paths(&path);
    own.chain(SYSTEM_FOLDERS.map(PathBuf::from)).collect()
}

pub fn find(program: &str) -> Option<PathBuf> {
    let folders = search_path().into_iter();
    folders
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// A program of the system by its whole path; whoever calls has looked whether it is there, or takes the error.
pub fn program(name: &str) -> Command {
    Command::new(find(name).unwrap_or_else(|| PathBuf::from(name)))
}

/// Runs to its end and gives standard output; the error has what it wrote on standard error.
pub fn output(command: &mut Command) -> Result<String> {
    finished(command, command_name(command), None)
}

/// The same, with this text as its standard input.
pub fn output_with(command: &mut Command, input: &str) -> Result<String> {
    finished(command, command_name(command), Some(input))
}

/// The program and its first argument: tokens and scripts may come later.
fn command_name(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name();
    let name = program.unwrap_or_default().to_string_lossy().into_owned();
    match command.get_args().next() {
        Some(arg) => format!("{name} {}", arg.to_string_lossy()),
        None => name,
    }
}

fn finished(command: &mut Command, name: String, input: Option<&str>) -> Result<String> {
    let stdin = if input.is_some() {
        Stdio::piped()
    } else {
        Stdio::null()
    };
    let mut child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        // A program that does not read its input says why at its end.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} ended with {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Looks until there is a value. `look` gives an error for what no waiting mends.
pub fn wait_for<T>(
    what: &str,
    patience: Duration,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(value) = look()? {
            return Ok(value);
        }
        if began.elapsed() > patience {
            bail!("{what}: not within {} s", patience.as_secs());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_what_the_program_said() {
        let mut command = program("sh");
        let error = output(command.args(["-c", "echo no room >&2; exit 3"])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "sh -c ended with exit status: 3: no room"
        );
        let mut command = program("cat");
        assert_eq!(output_with(&mut command, "text").unwrap(), "text");
    }

    #[test]
    fn waiting_ends_with_a_value_an_error_or_the_end_of_patience() {
        let mut looks = 0;
        let second = wait_for("it", Duration::from_secs(5), || {
            looks += 1;
            Ok((looks == 2).then_some("there"))
        });
        assert_eq!(second.unwrap(), "there");
        let never = wait_for("it", Duration::ZERO, || Ok(None::<()>)).unwrap_err();
        assert_eq!(never.to_string(), "it: not within 0 s");
        let broken = wait_for("it", Duration::from_secs(5), || bail!("broken"));
        assert_eq!(broken.map(|(): ()| ()).unwrap_err().to_string(), "broken");
    }
}
