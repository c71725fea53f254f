//! The contract of the ports, kept by the durable adapters. Each case has a folder of its own; opening it again after
//! everything of before was dropped is a restart.

use port::{Blobs, Series, Store};
use std::sync::Arc;
use store::{Attached, DataFolder, Folder, Sqlite};

#[test]
fn sqlite_keeps_the_contract_of_the_store() {
    port::contract::store(&|| {
        let dir = tempfile::tempdir().unwrap();
        Box::new(move || -> Arc<dyn Store> {
            let folder = DataFolder::open(dir.path()).unwrap();
            Arc::new(Sqlite::open(&folder).unwrap())
        })
    });
}

#[test]
fn sqlite_keeps_the_contract_of_the_series() {
    port::contract::series(&|| {
        let dir = tempfile::tempdir().unwrap();
        Box::new(move || -> Arc<dyn Series> {
            let folder = DataFolder::open(dir.path()).unwrap();
            Arc::new(Sqlite::open(&folder).unwrap())
        })
    });
}

#[test]
fn the_folder_keeps_the_contract_of_the_blobs() {
    port::contract::blobs(&|| {
        let dir = tempfile::tempdir().unwrap();
        Box::new(move || -> Arc<dyn Blobs> {
            let folder = DataFolder::open(dir.path()).unwrap();
            Arc::new(Folder::open(&folder).unwrap())
        })
    });
}

#[test]
fn blobs_with_attached_datastores_keep_the_contract_of_the_blobs() {
    port::contract::blobs(&|| {
        let dir = tempfile::tempdir().unwrap();
        Box::new(move || -> Arc<dyn Blobs> {
            let folder = DataFolder::open(dir.path()).unwrap();
            let blobs = Attached::new(Arc::new(Folder::open(&folder).unwrap())).unwrap();
            blobs.ready();
            Arc::new(blobs)
        })
    });
}
