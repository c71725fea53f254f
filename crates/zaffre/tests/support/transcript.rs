//! Transcripts: a script of commands and what they must answer.
//!
//!     $ zaffre compute show -n nope      a command; words before the program's name that hold `=` are its environment
//!     > name                             its stdout
//!     ! error: ...                       its stderr
//!     ? 3                                its exit status, when it is not 0
//!
//! Lines that begin with `#` say what the transcript is about. Parts that differ from run to run are replaced before
//! comparing. `ZAFFRE_BLESS=1` writes the answers anew; read the difference before committing it.

use super::{Server, repository};
use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The subscription that every server has: it begins so, and is the same in every run.
const ZERO: &[u8] = b"00000000-";

/// A command of a script.
pub struct Asked {
    /// `NAME=VALUE` before the program.
    pub environment: Vec<(String, String)>,
    /// The program.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
}

impl Asked {
    fn of(line: &str) -> Asked {
        let mut words = words(line).into_iter().peekable();
        let mut environment = vec![];
        while let Some((name, value)) = words.peek().and_then(|word| word.split_once('=')) {
            environment.push((name.to_owned(), value.to_owned()));
            words.next();
        }
        Asked {
            environment,
            program: words.next().unwrap_or_default(),
            args: words.collect(),
        }
    }

    /// The arguments and the environment for a command that is begun.
    pub fn finish(&self, mut command: Command) -> Output {
        let environment = self.environment.iter().map(|(name, value)| (name, value));
        command.args(&self.args).envs(environment).output().unwrap()
    }
}

/// Where the script `suite/name` lies.
pub fn path(suite: &str, name: &str) -> PathBuf {
    let folder = repository().join("tests").join(suite);
    folder.join(format!("{name}.txt"))
}

/// Runs the commands of a script; the transcript of what they answered.
pub fn played(script: &str, server: &Server, run: impl Fn(&Asked) -> Output) -> String {
    let mut played = String::new();
    for line in script
        .lines()
        .filter(|line| line.starts_with("$ ") || line.starts_with('#') || line.is_empty())
    {
        let _ = writeln!(played, "{line}");
        let Some(command) = line.strip_prefix("$ ") else {
            continue;
        };
        let output = run(&Asked::of(command));
        for (mark, bytes) in [('>', &output.stdout), ('!', &output.stderr)] {
            for line in plain(&String::from_utf8_lossy(bytes), server).lines() {
                let _ = writeln!(played, "{mark} {line}");
            }
        }
        match output.status.code() {
            Some(0) => {}
            code => {
                let code = code.map_or("signal".into(), |code| code.to_string());
                let _ = writeln!(played, "? {code}");
            }
        }
    }
    played
}

/// Makes what was played the script, when that is asked for.
pub fn bless(path: &Path, played: &str) {
    if std::env::var_os("ZAFFRE_BLESS").is_some() {
        fs::write(path, played).unwrap();
    }
}

/// Compares what was played with the script.
pub fn compare(path: &Path, played: &str, by: &str) {
    let script = fs::read_to_string(path).unwrap();
    let lines = || script.lines().zip(played.lines());
    let odd = lines().position(|(a, b)| a != b).unwrap_or(lines().count());
    assert!(
        played == script,
        "{} differs with {by}, first in line {}:\n  {:?}\n  {:?}\nwhat was played:\n{played}",
        path.display(),
        odd + 1,
        script.lines().nth(odd),
        played.lines().nth(odd),
    );
}

/// Replaces what differs from run to run.
fn plain(text: &str, server: &Server) -> String {
    let text = text
        .replace(&server.url, "URL")
        .replace(&*server.folder.to_string_lossy(), "FOLDER");
    let bytes = text.as_bytes();
    let (mut at, mut kept) = (0, String::new());
    while at < bytes.len() {
        let rest = &bytes[at..];
        if let Some(len) = time(rest) {
            kept.push_str("TIME");
            at += len;
        } else if fits(rest, b"hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh") && !rest.starts_with(ZERO) {
            kept.push_str("UID");
            at += 36;
        } else {
            let c = text[at..].chars().next().unwrap();
            kept.push(c);
            at += c.len_utf8();
        }
    }
    kept
}

/// The length of `2026-11-30T04:35:13.168Z`, when that is what the bytes begin with.
fn time(bytes: &[u8]) -> Option<usize> {
    let begins = fits(bytes, b"dddd-dd-dd") && bytes.len() >= 19;
    if !begins || !matches!(bytes[10], b'T' | b' ') || bytes[13] != b':' {
        return None;
    }
    let more = bytes[19..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit() || **byte == b'.' || **byte == b'Z')
        .count();
    Some(19 + more)
}

fn fits(bytes: &[u8], shape: &[u8]) -> bool {
    bytes.len() >= shape.len()
        && bytes.iter().zip(shape).all(|(byte, form)| match form {
            b'd' => byte.is_ascii_digit(),
            b'h' => byte.is_ascii_hexdigit(),
            form => byte == form,
        })
}

fn words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote, mut some) = (vec![], String::new(), None, false);
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => (quote, some) = (Some(c), true),
            (c, Some(open)) if c == open => quote = None,
            (' ', None) => {
                if some || !word.is_empty() {
                    all.push(std::mem::take(&mut word));
                }
                some = false;
            }
            (c, _) => word.push(c),
        }
    }
    if some || !word.is_empty() {
        all.push(word);
    }
    all
}

/// Copies a folder and what is below.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
