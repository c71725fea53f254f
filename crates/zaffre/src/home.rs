//! What is kept per user: the current server, defaults, and the server's data unless it is told otherwise.
//!
//! H1 files here are written whole or not at all (a temporary name, then a rename), readable by their owner only.

use crate::failure::{Failure, about};
use serde::{Deserialize, Serialize};
use std::{
    fs,
    io::Write,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Names the folder that everything of this user lies in.
pub const HOME_VARIABLE: &str = "ZAFFRE_HOME";

/// The folder of this user.
#[derive(Clone, Debug)]
pub struct Home(PathBuf);

/// A server as a client finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its address.
    pub url: String,
    /// File with the token.
    pub token: PathBuf,
    /// File with the certificate of its authority.
    pub ca: PathBuf,
    /// Its process.
    pub pid: u32,
}

/// What flags are taken to be when they are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Defaults {
    /// `--subscription`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<String>,
    /// `--resource-group`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// `--workspace-name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

impl Home {
    /// Where `ZAFFRE_HOME` points, else `.zaffre` in the user's folder.
    pub fn find() -> Result<Home, Failure> {
        if let Some(folder) = std::env::var_os(HOME_VARIABLE).filter(|v| !v.is_empty()) {
            return Ok(Home(PathBuf::from(folder)));
        }
        let user = std::env::var_os("HOME")
            .filter(|v| !v.is_empty())
            .ok_or_else(|| {
                Failure::wrong(format!("neither {HOME_VARIABLE} nor HOME is set"))
                    .hint(format!("set {HOME_VARIABLE} to a folder"))
            })?;
        Ok(Home(Path::new(&user).join(".zaffre")))
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.0
    }

    /// Where the server keeps its data when it is not told.
    pub fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// The server that the user's commands go to.
    pub fn server(&self) -> Result<Option<Server>, Failure> {
        read(&self.0.join("server.json"))
    }

    /// Makes `server` the one that commands go to.
    pub fn register(&self, server: &Server) -> Result<(), Failure> {
        private_folder(&self.0)?;
        write(&self.0.join("server.json"), server)
    }

    /// Forgets `server` if it is the current one.
    pub fn unregister(&self, server: &Server) -> Result<(), Failure> {
        if self.server()?.as_ref() == Some(server) {
            let path = self.0.join("server.json");
            fs::remove_file(&path).map_err(about(&path))?;
        }
        Ok(())
    }

    /// The defaults.
    pub fn defaults(&self) -> Result<Defaults, Failure> {
        Ok(read(&self.0.join("defaults.json"))?.unwrap_or_default())
    }

    /// Keeps the defaults.
    pub fn set_defaults(&self, defaults: &Defaults) -> Result<(), Failure> {
        private_folder(&self.0)?;
        write(&self.0.join("defaults.json"), defaults)
    }
}

/// Reads JSON; `None` when there is no such file.
pub fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, Failure> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            Failure::wrong(format!("{}: {error}", path.display()))
                .hint("remove the file; it is written anew")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(about(path)(error)),
    }
}

/// Writes JSON for its owner only (H1).
pub fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), Failure> {
    let text = serde_json::to_vec_pretty(value).expect("plain data can be written as JSON");
    write_private(path, &text)
}

/// Writes a file for its owner only (H1).
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let fresh = PathBuf::from(name);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(about(&fresh))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(about(&fresh))?;
    fs::rename(&fresh, path).map_err(about(path))
}

/// A folder that only its owner can look into; made when it is not there.
pub fn private_folder(path: &Path) -> Result<(), Failure> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(about(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_server_is_registered_for_its_owner_only_and_forgotten_only_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home(folder.path().join("home"));
        assert_eq!(home.server().unwrap(), None);
        let first = Server {
            url: "https://127.0.0.1:1".into(),
            token: "t".into(),
            ca: "c".into(),
            pid: 1,
        };
        let second = Server {
            pid: 2,
            ..first.clone()
        };
        home.register(&first).unwrap();
        home.register(&second).unwrap();
        home.unregister(&first).unwrap();
        assert_eq!(home.server().unwrap(), Some(second.clone()));
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(home.0.join("server.json")), mode(home.0.clone())),
            (0o600, 0o700)
        );
        home.unregister(&second).unwrap();
        assert_eq!(home.server().unwrap(), None);
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("server.json"), "{").unwrap();
        let failure = Home(folder.path().to_owned()).server().unwrap_err();
        assert!(
            failure.message.contains("server.json"),
            "{}",
            failure.message
        );
    }
}
