//! Local files on their way to the server.
//!
//! U1 what `.amlignore` of the root folder names is never touched, not even looked at; without that file `.gitignore` of the root
//! counts; ignore files further up or down do not;
//! U2 links are followed; a broken one and a loop are named before anything is sent;
//! U3 files lie under the hash of their content, so that an unchanged folder is sent once, and a broken upload is never taken for
//! a whole one.

pub mod hash;
pub mod tree;

use crate::{
    client::{
        Client,
        blob::{Container, Existing},
    },
    failure::Failure,
    progress::Progress,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::path::Path;
use tree::{Entry, Tree};

/// Files on their way at once: enough to hide the round trip of small ones, few enough for the descriptors of both sides.
const AT_ONCE: usize = 24;
/// The datastore for files when none is named.
const STORE: &str = "workspaceblobstore";
/// Metadata of the first file of a whole upload, as the SDK writes it.
const DONE: (&str, &str) = ("upload_status", "completed");

/// Uploads a file or folder to a datastore; answers its address, `azureml://datastores/D/paths/LocalUpload/HASH/NAME`.
pub async fn to_datastore(
    client: &Client,
    path: &Path,
    store: Option<&str>,
) -> Result<String, Failure> {
    let store = store.unwrap_or(STORE);
    let tree = tree::read(path)?;
    let digest = hash::content(&tree)?;
    let folder = format!("LocalUpload/{digest}/{}", tree.name);
    let container = client.container(store).await?;
    send(client, &container, &folder, &tree, Existing::Keep).await?;
    let slash = if tree.single { "" } else { "/" };
    Ok(format!(
        "azureml://datastores/{store}/paths/{folder}{slash}"
    ))
}

/// Uploads a folder of code and makes a code version of it; an unchanged one is found by its hash. Answers the version's id.
pub async fn code(client: &Client, path: &Path) -> Result<String, Failure> {
    let tree = tree::read(path)?;
    if tree.files.is_empty() {
        return Err(Failure::wrong(format!(
            "{}: the code folder holds no file",
            path.display()
        )));
    }
    let digest = hash::code(&tree)?;
    let name = uuid::Uuid::new_v4().to_string();
    let known = client
        .list(
            &client.at(&format!(
                "codes/{name}/versions?hash={digest}&hashVersion={}",
                hash::CODE_VERSION
            )),
            Some(1),
        )
        .await?;
    if let Some(id) = known.first().and_then(|version| version["id"].as_str()) {
        return Ok(id.to_owned());
    }
    let at = client.at(&format!("codes/{name}/versions/1"));
    let pending = client
        .post(
            &format!("{at}/startPendingUpload"),
            &serde_json::json!({"pendingUploadType": "TemporaryBlobReference"}),
            &[],
        )
        .await?;
    let reference = &pending["blobReferenceForConsumption"];
    let (Some(sas), Some(uri)) = (
        reference
            .pointer("/credential/sasUri")
            .and_then(|v| v.as_str()),
        reference["blobUri"].as_str(),
    ) else {
        return Err(Failure::failed(
            "the server gave no place to upload code to",
        ));
    };
    let container = client.container_at(sas)?;
    send(client, &container, &tree.name, &tree, Existing::Keep).await?;
    let body = serde_json::json!({"properties": {
        "codeUri": format!("{uri}/{}", tree.name),
        "isAnonymous": true,
        "properties": {"hash_sha256": digest, "hash_version": hash::CODE_VERSION},
    }});
    let version = client
        .put(&at, &body, crate::client::operation::Wait::ForEnd)
        .await?;
    version["id"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::failed("the server gave the code version no id"))
}

/// Sends the files of a tree that are not there, then marks the first one (U3).
async fn send(
    client: &Client,
    container: &Container,
    folder: &str,
    tree: &Tree,
    existing: Existing,
) -> Result<(), Failure> {
    let Some(first) = tree.files.first() else {
        return Ok(());
    };
    let name = |entry: &Entry| {
        if tree.single {
            folder.to_owned()
        } else {
            format!("{folder}/{}", entry.name)
        }
    };
    let mark = name(first);
    if client
        .blob_metadata(container, &mark)
        .await?
        .is_some_and(|found| found.get(DONE.0).is_some_and(|v| v == DONE.1))
    {
        return Ok(());
    }
    let progress = Progress::bar(
        &format!("uploading {}", tree.name),
        u64::try_from(tree.files.len()).unwrap_or(u64::MAX),
    );
    stream::iter(&tree.files)
        .map(|entry| {
            let name = name(entry);
            let progress = &progress;
            async move {
                client
                    .put_file(container, &name, &entry.path, entry.len, existing)
                    .await?;
                progress.step(1);
                Ok::<(), Failure>(())
            }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    client.set_blob_metadata(container, &mark, &[DONE]).await
}
