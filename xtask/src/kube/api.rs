//! Asking the API server as its administrator, with curl: there is no TLS in this program, on purpose.

use super::tools;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;

pub struct Api {
    pub state: PathBuf,
    pub port: u16,
}

impl Api {
    /// The server's answer, whatever it is: its status and its text.
    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, String)> {
        let mut curl = self.curl();
        // The token is in a file: a command line is shown to everybody.
        let header = format!("@{}", self.state.join("pki/admin.header").display());
        curl.args(["-H", &header, "-X", method]);
        curl.arg(self.url(path));
        let said = match body {
            Some(body) => {
                curl.args(["-H", "Content-Type: application/json"]);
                curl.args(["--data-binary", "@-"]);
                tools::output_with(&mut curl, &body.to_string())?
            }
            None => tools::output(&mut curl)?,
        };
        split(&said)
    }

    /// The status of the same question without a token.
    pub fn status_for_anybody(&self, path: &str) -> Result<u16> {
        let mut curl = self.curl();
        Ok(split(&tools::output(curl.arg(self.url(path)))?)?.0)
    }

    fn curl(&self) -> Command {
        let mut curl = tools::program("curl");
        // No proxy of the environment for the loopback.
        curl.args(["--silent", "--show-error", "--noproxy", "*"]);
        curl.args(["--max-time", "30", "--write-out", "\n%{http_code}"]);
        curl.arg("--cacert").arg(self.state.join("pki/ca.crt"));
        curl
    }

    fn url(&self, path: &str) -> String {
        format!("https://127.0.0.1:{}{path}", self.port)
    }

    /// None while there is no such thing, or while the server does not answer yet.
    pub fn get(&self, path: &str) -> Option<Value> {
        let (status, text) = self.ask("GET", path, None).ok()?;
        let value = serde_json::from_str(&text).ok()?;
        (status == 200).then_some(value)
    }

    pub fn is_ready(&self) -> bool {
        self.ask("GET", "/readyz", None)
            .is_ok_and(|(status, _)| status == 200)
    }

    pub fn create(&self, path: &str, body: &Value) -> Result<()> {
        let (status, text) = self.ask("POST", path, Some(body))?;
        if !(200..300).contains(&status) {
            bail!("POST {path}: {status} {text}");
        }
        Ok(())
    }
}

/// The body, and in a last line the status.
fn split(said: &str) -> Result<(u16, String)> {
    let (text, status) = said.rsplit_once('\n').context("curl said nothing")?;
    let status = status.trim().parse().context("curl told no status")?;
    Ok((status, text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_the_last_line() {
        let (status, text) = split("{\n}\n404").unwrap();
        assert_eq!((status, text.as_str()), (404, "{\n}"));
        assert!(split("").is_err());
    }
}
