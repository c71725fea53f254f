//! Datastores that were attached, from their documents to what brings their files.

use crate::{cli::ServeArgs, failure::Failure};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};
use wire::arm::datastore::{Opens, Reach};

/// The folders of this machine that may be attached as datastores, by name.
pub fn folders(args: &ServeArgs) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let mut found = BTreeMap::new();
    for folder in &args.folder {
        let Some((name, path)) = folder.split_once('=') else {
            return Err(Failure::wrong(format!(
                "--folder {folder}: a folder is NAME=PATH"
            )));
        };
        let path = PathBuf::from(path);
        if !path.is_dir() {
            return Err(Failure::wrong(format!(
                "--folder {folder}: {} is no folder",
                path.display()
            )));
        }
        found.insert(name.to_owned(), path);
    }
    Ok(found)
}

/// Attaches datastores as their documents say. No client opens a folder of this machine that its owner did not name.
pub fn attach(
    blobs: &Arc<store::Attached>,
    folders: BTreeMap<String, PathBuf>,
) -> impl Fn(&model::BlobPath, Option<&Reach>) -> Result<(), String> + Send + Sync + use<> {
    let blobs = blobs.clone();
    move |container, reach| {
        let Some(reach) = reach else {
            blobs.detach(container.as_str());
            return Ok(());
        };
        let storage = match reach.clone() {
            Reach::Azure {
                endpoint,
                account,
                container,
                opens,
            } => store::Storage::Azure {
                endpoint,
                account,
                container,
                credential: match opens {
                    Opens::Nothing => store::AzureCredential::None,
                    Opens::Key(key) => store::AzureCredential::Key(key),
                    Opens::Sas(sas) => store::AzureCredential::Sas(sas),
                },
            },
            Reach::S3 {
                endpoint,
                region,
                bucket,
                key,
            } => store::Storage::S3 {
                endpoint,
                region,
                bucket,
                key,
            },
            Reach::Folder { name } => match folders.get(&name) {
                Some(path) => store::Storage::Folder(path.clone()),
                None => {
                    return Err(format!(
                        "the server has no folder {name}: start it with --folder {name}=PATH"
                    ));
                }
            },
        };
        blobs.attach(container.as_str(), &storage)
    }
}
