//! Datastores that were attached: S3, Azure Blob and folders of this machine, brought into a container of the blobs when a task
//! reads them.
//!
//! R1 what is brought is what is there now: a blob that changed is brought again, one that is gone goes here too;
//! R2 an unchanged blob is not brought twice: its ETag stands in the metadata of what was brought;
//! R3 a blob that was brought is read as every other; what was brought is never written back;
//! R4 what is sent replaces blobs of the same names and touches no other; begun again it ends in the same;
//! R5 what machines are told their secrets at is no storage (`near`).

mod near;

use futures_util::StreamExt;
use model::BlobPath;
use object_store::{
    ClientOptions, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig, WriteMultipart,
    aws::AmazonS3Builder, azure::MicrosoftAzureBuilder, local::LocalFileSystem, path::Path,
};
use port::{BlobError, BlobInfo, BlobWriter, Blobs};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, PoisonError, RwLock},
    time::Duration,
};

use crate::Folder;

/// Where the ETag of what was brought stands (R2).
const ETAG: &str = "zaffre-etag";
/// Blobs of one folder that are brought: as many as a batch may list, and it bounds what is held in memory.
const MAX_OBJECTS: usize = 1_000_000;
/// Blobs looked at together when what is gone is removed.
const PAGE: usize = 1000;
/// A blob up to this size is sent at once, a larger one in parts of at least as much.
const PART: u64 = 8 << 20;
/// Parts of one blob: S3 takes 10,000.
const PARTS: u64 = 9_000;
/// Parts that are on their way together.
const PARTS_AT_ONCE: usize = 4;
/// Longest wait for a storage to answer at all.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest silence while it answers.
const ANSWER: Duration = Duration::from_secs(120);
/// Longest time that is spent on repeating a request.
const RETRIES: Duration = Duration::from_secs(30);
/// Longest wait for the server to say which datastores there are, when it has just started.
const START: Duration = Duration::from_secs(60);

/// Where an attached datastore is, and what opens it.
#[derive(Clone)]
pub enum Storage {
    /// A container of Azure Blob storage, or of what speaks its protocol.
    Azure {
        /// Address that containers follow, `https://acc.blob.core.windows.net`.
        endpoint: String,
        /// Account.
        account: String,
        /// Container.
        container: String,
        /// What opens it.
        credential: AzureCredential,
    },
    /// A bucket of S3, or of what speaks its protocol.
    S3 {
        /// Address; `None` is AWS itself.
        endpoint: Option<String>,
        /// Region.
        region: String,
        /// Bucket.
        bucket: String,
        /// Id and secret of an access key; `None` is a bucket that is open.
        key: Option<(String, String)>,
    },
    /// A folder of this machine.
    Folder(PathBuf),
}

/// What opens a container of Azure Blob storage.
#[derive(Clone)]
pub enum AzureCredential {
    /// It is open.
    None,
    /// The key of the account.
    Key(String),
    /// A shared access signature.
    Sas(String),
}

/// The blobs of a server with what was attached to it.
pub struct Attached {
    own: Arc<Folder>,
    stores: RwLock<HashMap<Box<str>, Arc<Remote>>>,
    ready: (Mutex<bool>, Condvar),
    runtime: tokio::runtime::Runtime,
}

struct Remote {
    store: Box<dyn ObjectStore>,
    /// One is brought after the other: two tasks that want the same bring it once.
    turn: Mutex<()>,
}

impl Attached {
    /// Nothing attached yet.
    pub fn new(own: Arc<Folder>) -> io::Result<Self> {
        Ok(Attached {
            own,
            stores: RwLock::default(),
            ready: (Mutex::new(false), Condvar::new()),
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .thread_name("datastores")
                .enable_all()
                .build()?,
        })
    }

    /// Attaches what lies behind `container`, in place of what was there. Nothing is asked of it yet.
    pub fn attach(&self, container: &str, storage: &Storage) -> Result<(), String> {
        // clients of storages begin their pools where they are made
        let _inside = self.runtime.enter();
        let store = open(storage).map_err(|error| error.to_string())?;
        let remote = Remote {
            store,
            turn: Mutex::default(),
        };
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        stores.insert(container.into(), Arc::new(remote));
        Ok(())
    }

    /// Detaches it; what was brought stays until it is brought again or removed.
    pub fn detach(&self, container: &str) {
        let mut stores = self.stores.write().unwrap_or_else(PoisonError::into_inner);
        stores.remove(container);
    }

    /// Says that everything that was attached before is attached again: tasks that wait for it go on.
    pub fn ready(&self) {
        *self.ready.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ready.1.notify_all();
    }

    fn remote(&self, path: &BlobPath) -> Option<Arc<Remote>> {
        let stores = self.stores.read().unwrap_or_else(PoisonError::into_inner);
        stores.get(path.container()).cloned()
    }

    fn wait(&self) {
        let ready = self.ready.0.lock().unwrap_or_else(PoisonError::into_inner);
        drop(
            self.ready
                .1
                .wait_timeout_while(ready, START, |ready| !*ready),
        );
    }

    /// The blobs that `path` means: itself, or everything below it.
    async fn found(remote: &Remote, path: &BlobPath) -> Result<Vec<ObjectMeta>, BlobError> {
        let key = path.as_str()[path.container().len()..].trim_start_matches('/');
        let at = Path::parse(key).map_err(|e| BlobError::Io(io::Error::other(e)))?;
        if !key.is_empty() {
            match remote.store.head(&at).await {
                Ok(one) => return Ok(vec![one]),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(BlobError::Io(io::Error::other(error))),
            }
        }
        let mut all = Vec::new();
        let mut list = remote.store.list((!key.is_empty()).then_some(&at));
        while let Some(object) = list.next().await {
            all.push(object.map_err(|e| BlobError::Io(io::Error::other(e)))?);
            if all.len() > MAX_OBJECTS {
                return Err(BlobError::Io(io::Error::other(format!(
                    "more than {MAX_OBJECTS} blobs lie below {path}"
                ))));
            }
        }
        if all.is_empty() {
            return Err(BlobError::NotFound(path.clone()));
        }
        Ok(all)
    }

    async fn copy(
        &self,
        remote: &Remote,
        from: &ObjectMeta,
        to: &BlobPath,
    ) -> Result<(), BlobError> {
        let etag = etag(from);
        if let Ok(here) = self.own.info(to)
            && here.len == from.size
            && here.metadata.get(ETAG) == Some(&etag)
        {
            return Ok(()); // R2
        }
        let other = |e: object_store::Error| BlobError::Io(io::Error::other(e));
        let got = remote.store.get(&from.location).await.map_err(other)?;
        let mut writer = self.own.write(to)?;
        let mut bytes = got.into_stream();
        while let Some(piece) = bytes.next().await {
            io::Write::write_all(&mut writer, &piece.map_err(other)?)?;
        }
        writer.finish(false, None, BTreeMap::from([(ETAG.to_owned(), etag)]))?;
        Ok(())
    }

    /// Sends one blob of our own.
    async fn put(&self, remote: &Remote, from: &BlobPath, key: &str) -> Result<(), BlobError> {
        let other = |e: object_store::Error| BlobError::Io(io::Error::other(e));
        let to = Path::parse(key).map_err(|e| BlobError::Io(io::Error::other(e)))?;
        let len = self.own.info(from)?.len;
        if len <= PART {
            let bytes = self.own.read(from, PART)?;
            remote.store.put(&to, bytes.into()).await.map_err(other)?;
            return Ok(());
        }
        let size = usize::try_from(PART.max(len.div_ceil(PARTS))).map_err(io::Error::other)?;
        let upload = remote.store.put_multipart(&to).await.map_err(other)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, size);
        let mut piece = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            let read = self.own.read_at(from, at, &mut piece)?;
            if read == 0 {
                break;
            }
            upload
                .wait_for_capacity(PARTS_AT_ONCE)
                .await
                .map_err(other)?;
            upload.write(&piece[..read]);
            at += read as u64;
        }
        upload.finish().await.map_err(other)?;
        Ok(())
    }

    /// Removes what was brought below `folder` and is not among `kept` (R1).
    fn remove_others(&self, folder: &BlobPath, kept: &HashSet<BlobPath>) -> Result<(), BlobError> {
        let mut after = None;
        loop {
            let page = self.own.list(folder, after.as_ref(), PAGE)?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = Some(last.clone());
            for (path, _) in page.iter().filter(|(path, _)| !kept.contains(path)) {
                self.own.delete(path)?;
            }
        }
    }
}

/// What changes with every write of a blob.
fn etag(object: &ObjectMeta) -> String {
    match &object.e_tag {
        Some(etag) => etag.clone(),
        None => format!(
            "{}-{}",
            object.last_modified.timestamp_micros(),
            object.size
        ),
    }
}

fn open(storage: &Storage) -> object_store::Result<Box<dyn ObjectStore>> {
    let plain = |endpoint: &str| endpoint.starts_with("http://");
    let options = |endpoint: &str| ClientOptions::new().with_allow_http(plain(endpoint));
    let connector = |endpoint: &str| near::Connector {
        plain: plain(endpoint),
        connect: CONNECT,
        answer: ANSWER,
    };
    if let Storage::Azure { endpoint, .. }
    | Storage::S3 {
        endpoint: Some(endpoint),
        ..
    } = storage
    {
        near::check(endpoint).map_err(|error| object_store::Error::Generic {
            store: "attached",
            source: Box::new(error),
        })?;
    }
    let retry = RetryConfig {
        retry_timeout: RETRIES,
        ..RetryConfig::default()
    };
    Ok(match storage {
        Storage::Azure {
            endpoint,
            account,
            container,
            credential,
        } => {
            let builder = MicrosoftAzureBuilder::new()
                .with_client_options(options(endpoint))
                .with_http_connector(connector(endpoint))
                .with_retry(retry)
                .with_account(account)
                .with_container_name(container)
                .with_endpoint(endpoint.clone());
            Box::new(
                match credential {
                    AzureCredential::None => builder.with_skip_signature(true),
                    AzureCredential::Key(key) => builder.with_access_key(key),
                    AzureCredential::Sas(sas) => builder.with_sas_authorization(pairs(sas)),
                }
                .build()?,
            )
        }
        Storage::S3 {
            endpoint,
            region,
            bucket,
            key,
        } => {
            let address = endpoint.as_deref().unwrap_or_default();
            let mut builder = AmazonS3Builder::new()
                .with_client_options(options(address))
                .with_http_connector(connector(address))
                .with_retry(retry)
                .with_region(region)
                .with_bucket_name(bucket);
            if let Some(endpoint) = endpoint {
                builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
            }
            builder = match key {
                Some((id, secret)) => builder
                    .with_access_key_id(id)
                    .with_secret_access_key(secret),
                None => builder.with_skip_signature(true),
            };
            Box::new(builder.build()?)
        }
        Storage::Folder(path) => Box::new(LocalFileSystem::new_with_prefix(path)?),
    })
}

/// The pairs of a signature, decoded: the client encodes them again.
fn pairs(sas: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            let hex = |b: Option<u8>| b.and_then(|b| (b as char).to_digit(16));
            match byte {
                b'%' => {
                    let (high, low) = (hex(rest.next()), hex(rest.next()));
                    let value = high.zip(low).map(|(high, low)| high * 16 + low);
                    bytes.extend(value.and_then(|v| u8::try_from(v).ok()));
                }
                other => bytes.push(other),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let whole = sas.trim_start_matches('?').split('&');
    whole
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

impl Blobs for Attached {
    fn write(&self, path: &BlobPath) -> Result<Box<dyn BlobWriter>, BlobError> {
        self.own.write(path)
    }
    fn info(&self, path: &BlobPath) -> Result<BlobInfo, BlobError> {
        self.own.info(path)
    }
    fn read_at(&self, path: &BlobPath, offset: u64, buf: &mut [u8]) -> Result<usize, BlobError> {
        self.own.read_at(path, offset, buf)
    }
    fn read(&self, path: &BlobPath, limit: u64) -> Result<Vec<u8>, BlobError> {
        self.own.read(path, limit)
    }
    fn set_metadata(
        &self,
        path: &BlobPath,
        metadata: BTreeMap<String, String>,
    ) -> Result<BlobInfo, BlobError> {
        self.own.set_metadata(path, metadata)
    }
    fn delete(&self, path: &BlobPath) -> Result<(), BlobError> {
        self.own.delete(path)
    }
    fn delete_folder(&self, path: &BlobPath) -> Result<(), BlobError> {
        self.own.delete_folder(path)
    }
    fn list(
        &self,
        folder: &BlobPath,
        after: Option<&BlobPath>,
        limit: usize,
    ) -> Result<Vec<(BlobPath, BlobInfo)>, BlobError> {
        self.own.list(folder, after, limit)
    }
    fn walk(&self, folder: &BlobPath, take: &mut dyn FnMut(BlobPath)) -> Result<(), BlobError> {
        self.own.walk(folder, take)
    }
    fn append(&self, segment: &BlobPath, pieces: &[Arc<[u8]>]) -> Result<u64, BlobError> {
        self.own.append(segment, pieces)
    }
    fn local(&self, path: &BlobPath) -> Option<PathBuf> {
        self.own.local(path)
    }
    fn is_far(&self, path: &BlobPath) -> bool {
        // before the server has said what is attached, everything may be: it is looked at beside the loop
        let ready = *self.ready.0.lock().unwrap_or_else(PoisonError::into_inner);
        !ready || self.remote(path).is_some()
    }
    fn send(&self, from: &BlobPath, to: &BlobPath) -> Result<(), BlobError> {
        self.wait();
        let remote = self.remote(to).ok_or_else(|| {
            BlobError::Io(io::Error::other("the datastore is not attached any more"))
        })?;
        let mut all = Vec::new();
        if self.own.info(from).is_ok() {
            all.push(from.clone());
        } else {
            self.own.walk(from, &mut |path| all.push(path))?;
        }
        let key = to.as_str()[to.container().len()..].trim_start_matches('/');
        self.runtime.block_on(async {
            for path in all {
                let inner = &path.as_str()[from.as_str().len()..];
                self.put(&remote, &path, &format!("{key}{inner}")).await?;
            }
            Ok(())
        })
    }
    fn bring(&self, path: &BlobPath) -> Result<(), BlobError> {
        self.wait();
        let Some(remote) = self.remote(path) else {
            return Ok(());
        };
        let _turn = remote.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let container =
            BlobPath::new(path.container()).ok_or_else(|| BlobError::NotFound(path.clone()))?;
        self.runtime.block_on(async {
            let mut kept = HashSet::new();
            for object in Attached::found(&remote, path).await? {
                let to =
                    container
                        .join(object.location.as_ref())
                        .ok_or_else(|| BlobError::BadName {
                            path: object.location.to_string(),
                            rule: "it cannot be a path of this machine",
                        })?;
                self.copy(&remote, &object, &to).await?;
                kept.insert(to);
            }
            self.remove_others(path, &kept)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_taken_apart() {
        assert_eq!(
            pairs("?sv=2024-11-04&sig=a%2Bb%3D"),
            [
                ("sv".to_owned(), "2024-11-04".to_owned()),
                ("sig".to_owned(), "a+b=".to_owned())
            ]
        );
    }
}
