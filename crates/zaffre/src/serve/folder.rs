//! The server's data folder.
//!
//! D1 every secret is its owner's only (0600); the folder itself lets tasks, which have users of their own, pass to the blobs.
//!
//!     DIR/token  ca.pem  ca.key  server.pem  server.key  tls.json  sas.key  agents.key  server.id  server.json
//!     DIR/signing.json  jobs.key                 keys of tokens, and of the secrets of jobs
//!     DIR/ca-bundle.pem                          the machine's authorities and ours, for jobs
//!     DIR/kube/DIGEST                            kubeconfigs of attached clusters
//!     DIR/zaffre.db  series.db  blobs/  lock     the store's
//!     DIR/nodes/                                 nodes and tasks of the local engine
//!     DIR/kube/tasks/  kube/agents/              what was started in attached clusters

use crate::{
    failure::{Failure, about},
    home::{self, Server, private_folder, write_private},
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Bytes of randomness in a token: nobody guesses 256 bits.
const TOKEN_BYTES: usize = 32;

/// The part of a data folder that the server itself keeps; the store holds the folder and its lock.
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// The folder that `held` holds.
    pub fn of(held: &store::DataFolder) -> Folder {
        Folder {
            root: held.path().to_owned(),
        }
    }

    /// A file or folder in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The token of this server; made at the first start.
    pub fn token(&self) -> Result<String, Failure> {
        let path = self.at("token");
        match fs::read_to_string(&path) {
            Ok(token) if !token.trim().is_empty() => Ok(token.trim().to_owned()),
            Ok(_) => self.new_token(&path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.new_token(&path),
            Err(error) => Err(about(&path)(error)),
        }
    }

    fn new_token(&self, path: &Path) -> Result<String, Failure> {
        let token: String = random::<TOKEN_BYTES>()?
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        write_private(path, format!("{token}\n").as_bytes())?;
        Ok(token)
    }

    /// The key that signs shared access signatures; made at the first start.
    pub fn sas_key<const N: usize>(&self) -> Result<[u8; N], Failure> {
        self.key("sas.key")
    }

    /// Who this server is to others: the same for as long as its folder lives.
    pub fn id(&self) -> Result<String, Failure> {
        let bytes: [u8; 5] = self.key("server.id")?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// A key of its own; made at the first start.
    pub fn key<const N: usize>(&self, name: &str) -> Result<[u8; N], Failure> {
        let path = self.at(name);
        match fs::read(&path) {
            Ok(bytes) => bytes.try_into().map_err(|bytes: Vec<u8>| {
                Failure::wrong(format!(
                    "{}: a key has {N} bytes, this one has {}",
                    path.display(),
                    bytes.len()
                ))
                .hint("remove the file; a new key is made at the next start")
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = random::<N>()?;
                write_private(&path, &key)?;
                Ok(key)
            }
            Err(error) => Err(about(&path)(error)),
        }
    }

    /// Says where the server is.
    pub fn publish(&self, url: &str) -> Result<Server, Failure> {
        let server = Server {
            url: url.to_owned(),
            token: self.at("token"),
            ca: self.at("ca.pem"),
            pid: std::process::id(),
        };
        home::write(&self.at("server.json"), &server)?;
        Ok(server)
    }

    /// Says that it is gone.
    pub fn withdraw(&self) -> Result<(), Failure> {
        let path = self.at("server.json");
        fs::remove_file(&path).map_err(about(&path))
    }
}

impl Folder {
    /// Keeps a kubeconfig for the server alone, under its digest; the same one twice is one file.
    pub fn kubeconfigs(&self) -> impl Fn(&str, &[u8]) -> io::Result<()> + Send + Sync + use<> {
        let folder = self.at("kube");
        move |digest, bytes| {
            private_folder(&folder)
                .and_then(|()| write_private(&folder.join(digest), bytes))
                .map_err(|failure| io::Error::other(failure.message))
        }
    }
}

fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed(format!("the system gives no randomness: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn secrets_stay_the_same_and_are_the_owners_only() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("data");
        let (token, key) = {
            let held = store::DataFolder::open(&root).unwrap();
            let folder = Folder::of(&held);
            (folder.token().unwrap(), folder.sas_key::<32>().unwrap())
        };
        let held = store::DataFolder::open(&root).unwrap();
        let folder = Folder::of(&held);
        assert_eq!(
            (folder.token().unwrap(), folder.sas_key::<32>().unwrap()),
            (token, key)
        );
        for name in ["token", "sas.key"] {
            assert_eq!(
                fs::metadata(root.join(name)).unwrap().permissions().mode() & 0o777,
                0o600,
                "{name}"
            );
        }
    }
}
