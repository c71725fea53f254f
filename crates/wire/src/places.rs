//! Where the things of a workspace lie, and what the addresses mean that clients write.
//!
//! P1 every path of a workspace begins with a container that no other workspace has, whatever the two are called;
//! P2 the server never opens a path that a client sent: an address becomes a `BlobPath` inside the workspace's own containers,
//!    or the name of a document, or it is refused with the rule;
//! P3 container names are legal for Azure: 3 to 63 lower-case letters, digits and single hyphens.

use crate::names::{self, NameError, Pin, Reference, shown, workspace_id};
use model::{BlobPath, JobId, Workspace};
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};
use std::{fmt::Write as _, sync::Arc};

/// The default datastore: inputs, models and outputs.
pub const BLOBSTORE: &str = "workspaceblobstore";
/// The datastore of logs and run artifacts.
pub const ARTIFACTSTORE: &str = "workspaceartifactstore";
/// The label of the newest version. A key of a document whose path is `NAME@latest` means that version.
pub const LATEST: &str = "latest";
/// The storage account that blob URLs name; there is one.
pub const ACCOUNT: &str = "zaffre";
/// Letters of the workspace's own name at the start of its containers, so that people recognise them. With the tag and a UUID
/// a container has exactly the 63 characters that Azure allows.
const SLUG: usize = 12;
/// Hex digits that keep containers of different workspaces apart (P1): 48 bits.
const TAG: usize = 12;

/// Why an address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It is not a reference at all.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It belongs to another workspace.
    #[error("`{}` belongs to another workspace than {workspace}", shown(.text))]
    OtherWorkspace {
        /// As written.
        text: String,
        /// Ours.
        workspace: String,
    },
    /// There can be no such datastore.
    #[error("{} is no name of a datastore", shown(.name))]
    NoDatastore {
        /// As written.
        name: String,
    },
    /// A kind of address that is not reached from here (P2).
    #[error("`{}` is {what}: {rule}", shown(.text))]
    Elsewhere {
        /// As written.
        text: String,
        /// What it is.
        what: &'static str,
        /// The rule.
        rule: &'static str,
    },
    /// The path has a segment that cannot be.
    #[error("the path `{}` has an empty segment, `.` or `..`", shown(.path))]
    BadPath {
        /// As written.
        path: String,
    },
    /// A label that is not known.
    #[error("`{}` names the label {}, known is {LATEST}", shown(.text), shown(.label))]
    Label {
        /// As written.
        text: String,
        /// The label.
        label: String,
    },
    /// A reference to an asset without a version.
    #[error("`{}` names no version", shown(.text))]
    NoVersion {
        /// As written.
        text: String,
    },
}

/// What an address means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A blob or folder of this workspace.
    Blob(BlobPath),
    /// A blob or folder of a datastore that was attached, if there is one of this name.
    Attached {
        /// The datastore, as written.
        datastore: String,
        /// Where it is once it was brought.
        path: BlobPath,
    },
    /// A version of an asset of this workspace.
    Asset {
        /// Its kind, when the address says it.
        kind: Option<names::Kind>,
        /// `name/version`, or `name@latest`.
        path: String,
    },
    /// An output of a job of this workspace.
    Output {
        /// The job.
        job: String,
        /// The output.
        output: String,
        /// Path inside it; empty means all.
        path: String,
    },
}

/// The containers of one workspace.
#[derive(Clone, Debug)]
pub struct Places {
    workspace: Arc<Workspace>,
    prefix: String,
    blobs: BlobPath,
    artifacts: BlobPath,
    runs: BlobPath,
}

impl Places {
    /// The places of a workspace.
    pub fn of(workspace: &Arc<Workspace>) -> Places {
        let prefix = format!("{}-{}-", slug(workspace.name.as_str()), tag(workspace));
        let container =
            |what: &str| BlobPath::new(&format!("{prefix}{what}")).expect("a slug holds no slash");
        Places {
            workspace: workspace.clone(),
            blobs: container("blobs"),
            artifacts: container("artifacts"),
            runs: container("runs"),
            prefix,
        }
    }
    /// The workspace.
    pub fn workspace(&self) -> &Arc<Workspace> {
        &self.workspace
    }
    /// The container of `workspaceblobstore`.
    pub fn blobs(&self) -> &BlobPath {
        &self.blobs
    }
    /// The container of `workspaceartifactstore`.
    pub fn artifacts(&self) -> &BlobPath {
        &self.artifacts
    }
    /// The container of segments and listings, which no client sees.
    pub fn runs(&self) -> &BlobPath {
        &self.runs
    }
    /// The container of a datastore.
    pub fn datastore(&self, name: &str) -> Option<&BlobPath> {
        if name.eq_ignore_ascii_case(BLOBSTORE) {
            Some(&self.blobs)
        } else if name.eq_ignore_ascii_case(ARTIFACTSTORE) {
            Some(&self.artifacts)
        } else {
            None
        }
    }
    /// The container that what is brought from an attached datastore lies in; `None` when there can be none of this name.
    pub fn attached(&self, name: &str) -> Option<BlobPath> {
        let legal = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if !legal || self.datastore(name).is_some() {
            return None;
        }
        let digest = hex(&Sha256::digest(name.to_ascii_lowercase().as_bytes()));
        BlobPath::new(&format!("{}d{}", self.prefix, &digest[..TAG]))
    }
    /// The datastore that a path lies in and the path inside it.
    pub fn datastore_of<'p>(&self, path: &'p BlobPath) -> Option<(&'static str, &'p str)> {
        [(BLOBSTORE, &self.blobs), (ARTIFACTSTORE, &self.artifacts)]
            .into_iter()
            .find(|(_, container)| container.as_str() == path.container())
            .map(|(name, container)| {
                let inner = &path.as_str()[container.as_str().len()..];
                (name, inner.trim_start_matches('/'))
            })
    }
    /// A fresh container for one pending upload; `unique` is made of letters, digits and hyphens (a UUID).
    pub fn upload(&self, unique: &str) -> Option<BlobPath> {
        let legal = (1..=36).contains(&unique.len())
            && unique
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-');
        legal
            .then(|| BlobPath::new(&format!("{}u{}", self.prefix, unique.to_ascii_lowercase())))
            .flatten()
    }
    /// Whether clients of this workspace may read and write the container.
    pub fn owns(&self, container: &str) -> bool {
        // what was brought from attached datastores is read by tasks alone
        let inner = container.strip_prefix(&self.prefix);
        inner.is_some_and(|inner| !inner.starts_with('d')) && container != self.runs.as_str()
    }

    /// Where an output of a job goes by default: `azureml/<job>/<output>`.
    pub fn output(&self, job: &str, output: &str) -> Option<BlobPath> {
        self.blobs.join(&format!("azureml/{job}/{output}"))
    }
    /// The artifacts of a run: `ExperimentRun/dcid.<run>`.
    pub fn artifacts_of(&self, run: &str) -> Option<BlobPath> {
        self.artifacts.join(&format!("ExperimentRun/dcid.{run}"))
    }
    /// The listing of a batch run's input.
    pub fn listing(&self, run: &JobId) -> Option<BlobPath> {
        self.runs.join(&format!("{}/listing", run.name()))
    }
    /// The committed rows of a batch run.
    pub fn segment(&self, run: &JobId) -> Option<BlobPath> {
        self.runs.join(&format!("{}/segment", run.name()))
    }

    /// The long `azureml://` address of a blob of a datastore; a folder gets a slash at its end.
    pub fn uri(&self, path: &BlobPath, end: End) -> Option<String> {
        let (datastore, inner) = self.datastore_of(path)?;
        Some(self.long(datastore, inner, end))
    }

    /// The long address of a path in the container of an attached datastore.
    pub fn uri_in(&self, datastore: &str, path: &BlobPath, end: End) -> String {
        let inner = path.as_str()[path.container().len()..].trim_start_matches('/');
        self.long(datastore, inner, end)
    }

    fn long(&self, datastore: &str, inner: &str, end: End) -> String {
        let w = &self.workspace;
        let slash = match end {
            End::Folder if !inner.is_empty() => "/",
            End::Folder | End::File => "",
        };
        format!(
            "azureml://subscriptions/{}/resourcegroups/{}/workspaces/{}/datastores/{datastore}/paths/{inner}{slash}",
            w.subscription, w.group, w.name
        )
    }

    /// What an address means (P2).
    pub fn locate(&self, text: &str) -> Result<Place, PlaceError> {
        if names::is_reference(text) {
            return self.reference(text, Reference::parse(text)?);
        }
        let lower = text.get(..12).unwrap_or(text).to_ascii_lowercase();
        if lower.starts_with("https://") || lower.starts_with("http://") {
            return self.url(text).map(Place::Blob);
        }
        let elsewhere = |what, rule| {
            Err(PlaceError::Elsewhere {
                text: text.to_owned(),
                what,
                rule,
            })
        };
        const UPLOAD: &str = "upload it to a datastore and name azureml://datastores/D/paths/P";
        match lower.split(':').next() {
            Some("file") => elsewhere("a path of your machine", UPLOAD),
            Some("wasb" | "wasbs" | "abfs" | "abfss" | "adl" | "s3" | "gs" | "hdfs" | "dbfs")
                if lower.contains("://") =>
            {
                elsewhere(
                    "an address of another storage, which is not reached",
                    UPLOAD,
                )
            }
            Some("runs" | "models") if lower.contains(":/") => elsewhere(
                "an address of MLflow's tracking",
                "name azureml://jobs/J/outputs/O/paths/P",
            ),
            Some(_) | None => {
                elsewhere("a path", "the server never opens a path that a client sent")
            }
        }
    }

    fn reference(&self, text: &str, reference: Reference) -> Result<Place, PlaceError> {
        match reference {
            Reference::Short { kind, name, pin } => Ok(Place::Asset {
                kind,
                path: pinned(text, &name, &pin)?,
            }),
            Reference::Located {
                group,
                workspace,
                kind,
                name,
                pin,
            } => {
                let w = &self.workspace;
                let id = crate::view::workspace::guid(w);
                let same = |ours: &model::Name, given: &str| *ours == model::Name::from(given);
                if !(same(&w.name, &workspace) || id.eq_ignore_ascii_case(&workspace))
                    || group.is_some_and(|g| !same(&w.group, &g))
                {
                    return Err(PlaceError::OtherWorkspace {
                        text: text.to_owned(),
                        workspace: workspace_id(w),
                    });
                }
                Ok(Place::Asset {
                    kind: Some(kind),
                    path: pinned(text, &name, &pin)?,
                })
            }
            Reference::Arm(id) => {
                self.ours(text, &id.subscription, &id.group, &id.workspace)?;
                Ok(Place::Asset {
                    kind: id.kind,
                    path: pinned(text, &id.name, &id.pin)?,
                })
            }
            Reference::Datastore {
                scope,
                datastore,
                path,
            } => {
                if let Some((s, g, w)) = &scope {
                    self.ours(text, s, g, w)?;
                }
                if let Some(container) = self.datastore(&datastore) {
                    return inside(container, &path).map(Place::Blob);
                }
                let container =
                    self.attached(&datastore)
                        .ok_or_else(|| PlaceError::NoDatastore {
                            name: datastore.clone(),
                        })?;
                let path = inside(&container, &path)?;
                Ok(Place::Attached { datastore, path })
            }
            Reference::JobOutput { job, output, path } => Ok(Place::Output { job, output, path }),
        }
    }

    fn ours(&self, text: &str, s: &str, g: &str, w: &str) -> Result<(), PlaceError> {
        if *Workspace::new(s, g, w) == *self.workspace {
            Ok(())
        } else {
            Err(PlaceError::OtherWorkspace {
                text: text.to_owned(),
                workspace: workspace_id(&self.workspace),
            })
        }
    }

    /// `https://HOST/storage/ACCOUNT[/.blob.SUFFIX]/CONTAINER/PATH[?SAS]`. The host is not compared: one server answers to
    /// several names, and the container says whose blob it is (P1).
    fn url(&self, text: &str) -> Result<BlobPath, PlaceError> {
        let elsewhere = || PlaceError::Elsewhere {
            text: text.to_owned(),
            what: "not in this server's storage",
            rule: "only https://SERVER/storage/ACCOUNT/CONTAINER/PATH of this workspace is read",
        };
        let address = text.split(['?', '#']).next().unwrap_or_default();
        let after_scheme = address.split_once("://").ok_or_else(elsewhere)?.1;
        let path = after_scheme.split_once('/').ok_or_else(elsewhere)?.1;
        let (container, inner) = storage_path(path).ok_or_else(elsewhere)?;
        if !self.owns(&container) {
            return Err(elsewhere());
        }
        let container = BlobPath::new(&container).ok_or_else(elsewhere)?;
        inside(&container, &inner)
    }
}

/// Whether an address is one of a file or of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// One blob.
    File,
    /// A folder: its address ends with a slash.
    Folder,
}

/// Takes `storage/ACCOUNT[/.blob.SUFFIX]/CONTAINER/PATH`, still percent-encoded, apart into container and path, decoded.
/// The SDK puts `.blob.<suffix>` behind whatever the datastore calls its account (wire §7).
pub fn storage_path(path: &str) -> Option<(String, String)> {
    let mut segments = path.trim_start_matches('/').split('/');
    if segments.next() != Some("storage") || !segments.next()?.eq_ignore_ascii_case(ACCOUNT) {
        return None;
    }
    let decoded: Vec<String> = segments
        .filter(|s| !s.starts_with(".blob."))
        .map(|s| percent_decode_str(s).decode_utf8().ok().map(String::from))
        .collect::<Option<_>>()?;
    let first = decoded.iter().position(|s| !s.is_empty())?;
    // a decoded slash would make one segment two
    if decoded[first].contains('/') {
        return None;
    }
    Some((decoded[first].clone(), decoded[first + 1..].join("/")))
}

fn pinned(text: &str, name: &str, pin: &Pin) -> Result<String, PlaceError> {
    match pin {
        Pin::Version(version) => Ok(format!("{name}/{version}")),
        // `default` is the SDK's word for a component without a version
        Pin::Label(label)
            if [LATEST, "default"]
                .iter()
                .any(|l| l.eq_ignore_ascii_case(label)) =>
        {
            Ok(format!("{name}@{LATEST}"))
        }
        Pin::Label(label) => Err(PlaceError::Label {
            text: text.to_owned(),
            label: label.clone(),
        }),
        Pin::Open => Err(PlaceError::NoVersion {
            text: text.to_owned(),
        }),
    }
}

/// `container/path`; an empty path is the container itself.
pub fn inside(container: &BlobPath, path: &str) -> Result<BlobPath, PlaceError> {
    let path = path.trim_matches('/');
    if path.is_empty() {
        return Ok(container.clone());
    }
    container.join(path).ok_or_else(|| PlaceError::BadPath {
        path: path.to_owned(),
    })
}

fn tag(workspace: &Workspace) -> String {
    let mut hash = Sha256::new();
    for part in [&workspace.subscription, &workspace.group, &workspace.name] {
        let folded = part.as_str().to_ascii_lowercase();
        // the length keeps (ab, c) and (a, bc) apart
        hash.update((folded.len() as u64).to_le_bytes());
        hash.update(folded.as_bytes());
    }
    hex(&hash.finalize())[..TAG].to_owned()
}

/// Bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut out, b| {
        write!(out, "{b:02x}").expect("writing to a String cannot fail");
        out
    })
}

/// The recognisable start of a container: `my_Workspace` → `my-workspace`; `w` when nothing of the name is legal.
fn slug(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars().map(|c| c.to_ascii_lowercase()) {
        if out.len() == SLUG {
            break;
        }
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            out.push(c);
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
    }
    match out.trim_end_matches('-') {
        "" => "w".into(),
        out => out.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places() -> Places {
        Places::of(&Workspace::new("S", "rg1", "My_Workspace"))
    }

    #[test]
    fn containers_are_legal_and_apart() {
        let p = places();
        assert!(p.blobs().as_str().starts_with("my-workspace-"));
        let same = Places::of(&Workspace::new("s", "RG1", "my_workspace"));
        assert_eq!(p.blobs(), same.blobs());
        for other in [
            ("S", "rg1", "my-workspace"),
            ("S", "rg", "1My_Workspace"),
            ("Sr", "g1", "My_Workspace"),
        ] {
            assert_ne!(
                p.blobs(),
                Places::of(&Workspace::new(other.0, other.1, other.2)).blobs()
            );
        }
        assert!(p.owns(p.blobs().as_str()));
        assert!(!p.owns(p.runs().as_str()), "segments are ours alone");
        let upload = p
            .upload("937972D6-9ffe64e2-b03b-5d11-b347-e16cb9dd3c16")
            .is_none();
        assert!(upload, "too long");
        let upload = p.upload("06CF1B28-9a11-4c9c-9d07-35f6a1d1c2ae").unwrap();
        assert!(p.owns(upload.as_str()));
        assert_eq!(upload.as_str().len(), 63);
    }

    #[test]
    fn addresses_of_this_workspace_are_found() {
        let p = places();
        let blob = |path: &str| Place::Blob(p.blobs().join(path).unwrap());
        for text in [
            "azureml://datastores/workspaceblobstore/paths/a/b c/".to_owned(),
            "azureml://subscriptions/s/resourcegroups/RG1/workspaces/my_workspace/datastores/WorkspaceBlobStore/paths/a/b c".to_owned(),
            format!("https://h:1/storage/zaffre/.blob.core.local/{}/a/b%20c?sv=1&sig=x", p.blobs()),
            format!("https://other/storage/zaffre/{}/a/b%20c", p.blobs()),
            format!("https://other/storage/zaffre//.blob.core.local/{}/a/b%20c", p.blobs()),
        ] {
            assert_eq!(p.locate(&text).unwrap(), blob("a/b c"), "{text}");
        }
        assert_eq!(
            p.locate("azureml:d:1.10").unwrap(),
            Place::Asset {
                kind: None,
                path: "d/1.10".into()
            }
        );
        assert_eq!(
            p.locate("azureml://jobs/j/outputs/o/paths/x/y").unwrap(),
            Place::Output {
                job: "j".into(),
                output: "o".into(),
                path: "x/y".into()
            }
        );
        let uri = p
            .uri(&p.output("j", "score").unwrap(), End::Folder)
            .unwrap();
        assert_eq!(p.locate(&uri).unwrap(), blob("azureml/j/score"));
        assert!(uri.ends_with("/datastores/workspaceblobstore/paths/azureml/j/score/"));
        assert_eq!(p.uri(p.runs(), End::Folder), None);
    }

    #[test]
    fn an_attached_datastore_has_a_container_that_no_client_reads() {
        let p = places();
        let Ok(Place::Attached { datastore, path }) =
            p.locate("azureml://datastores/Mine/paths/a/b")
        else {
            panic!("it is not one of the workspace's own")
        };
        assert_eq!(datastore, "Mine");
        assert_eq!(Some(path), p.attached("mIne").and_then(|c| c.join("a/b")));
        let container = p.attached("mine").unwrap();
        assert!(container.as_str().len() <= 63 && !p.owns(container.as_str()));
        assert_ne!(p.attached("mine"), p.attached("other"));
        assert_eq!(p.attached("workspaceBlobStore"), None);
        let at = format!("https://h/storage/zaffre/{container}/x");
        assert!(p.locate(&at).is_err(), "its own address opens nothing");
    }

    #[test]
    fn every_other_address_is_refused_with_the_rule() {
        let p = places();
        let says = |text: &str| p.locate(text).unwrap_err().to_string();
        assert_eq!(
            says("/etc/passwd"),
            "`/etc/passwd` is a path: the server never opens a path that a client sent"
        );
        assert!(says("file:///etc/passwd").contains("a path of your machine"));
        assert!(says("wasbs://c@a/p").contains("another storage"));
        assert!(says("abfss://c@a/p").contains("another storage"));
        assert!(says("https://example.org/x.csv").contains("not in this server's storage"));
        let other = Places::of(&Workspace::new("s", "g", "other"));
        assert!(
            says(&format!("https://h/storage/zaffre/{}/x", other.blobs()))
                .contains("not in this server's storage")
        );
        assert!(
            says(&format!("https://h/storage/zaffre/{}/x", p.runs()))
                .contains("not in this server's storage")
        );
        assert!(says(&format!("https://h/storage/zaffre/{}/%2e%2e/x", p.blobs())).contains("`..`"));
        assert!(says("azureml://datastores/workspaceblobstore/paths/a/../b").contains("`..`"));
        assert!(
            says("azureml://datastores/no:pe/paths/a").contains("no:pe is no name of a datastore")
        );
        assert!(says("azureml:m@best").contains("names the label best, known is latest"));
        assert!(says("azureml:m").contains("names no version"));
        assert!(says("azureml://subscriptions/s/resourcegroups/rg1/workspaces/w2/datastores/workspaceblobstore/paths/a").contains("another workspace"));
    }

    proptest! {
        #[test]
        fn any_workspace_has_legal_containers(s in "\\PC{0,20}", g in "\\PC{0,20}", w in "\\PC{0,80}") {
            let p = Places::of(&Workspace::new(&s, &g, &w));
            for c in [p.blobs(), p.artifacts(), p.runs()] {
                let c = c.as_str();
                prop_assert!((3..=63).contains(&c.len()));
                prop_assert!(c.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
                prop_assert!(!c.contains("--") && !c.starts_with('-') && !c.ends_with('-'));
            }
        }
        #[test]
        fn no_address_leaves_the_workspace(text in "(azureml:|https?://|file:|/)?\\PC{0,60}") {
            let p = places();
            if let Ok(Place::Blob(path)) = p.locate(&text) {
                prop_assert!(p.owns(path.container()));
            }
        }
        #[test]
        fn no_path_leaves_its_container(path in "[a./%2eE\\\\ ]{0,40}") {
            let p = places();
            for text in [
                format!("azureml://datastores/workspaceblobstore/paths/{path}"),
                format!("https://h/storage/zaffre/{}/{path}", p.blobs()),
            ] {
                if let Ok(Place::Blob(found)) = p.locate(&text) {
                    prop_assert_eq!(found.container(), p.blobs().as_str());
                    prop_assert!(found.as_str().split('/').all(|s| s != ".."));
                }
            }
        }
    }
}
