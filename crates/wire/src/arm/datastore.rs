//! Datastores: the body of `PUT datastores/NAME`.
//!
//! D1 a datastore never changes its type: what names it knows what it reads;
//! D2 its secrets lie below `credentials/secrets`, and are shown by `listSecrets` alone.

use super::{Invalid, field::Field};
use crate::{
    names::shown,
    places::{ARTIFACTSTORE, BLOBSTORE},
};
use model::Document;
use serde_json::{Map, Value, json};

/// Where the secrets of a datastore lie (D2), and what `listSecrets` calls them.
pub const SECRETS: [&str; 4] = [
    "/properties/credentials/secrets/key",
    "/properties/credentials/secrets/sasToken",
    "/properties/credentials/secrets/clientSecret",
    "/properties/credentials/secrets/certificate",
];

/// The tag of an `AzureBlob` datastore that is a bucket of S3: the address of its server, or `aws`. `accountName` is the id of
/// the access key, `containerName` the bucket, the account key the secret.
pub const S3_ENDPOINT: &str = "zaffre.s3_endpoint";
/// The tag with its region.
pub const S3_REGION: &str = "zaffre.s3_region";
/// The tag of an `AzureBlob` datastore that is a folder of the server's machine: the name that the server was started with.
pub const FOLDER: &str = "zaffre.folder";
/// Region of a bucket that names none.
const DEFAULT_REGION: &str = "us-east-1";
/// Where Azure's storage is, when nothing is said.
const AZURE: &str = "core.windows.net";

/// Where the files of a datastore are, and what opens them.
#[derive(Clone, PartialEq, Eq)]
pub enum Reach {
    /// A container of Azure Blob storage.
    Azure {
        /// Address that containers follow.
        endpoint: String,
        /// Account.
        account: String,
        /// Container.
        container: String,
        /// What opens it.
        opens: Opens,
    },
    /// A bucket of S3.
    S3 {
        /// Address; `None` is AWS itself.
        endpoint: Option<String>,
        /// Region.
        region: String,
        /// Bucket.
        bucket: String,
        /// Id and secret of the access key; `None` when the bucket is open.
        key: Option<(String, String)>,
    },
    /// A folder that the server's owner gave this name.
    Folder {
        /// The name.
        name: String,
    },
}

/// What opens a container of Azure Blob storage.
#[derive(Clone, PartialEq, Eq)]
pub enum Opens {
    /// It is open.
    Nothing,
    /// The key of the account.
    Key(String),
    /// A shared access signature.
    Sas(String),
}

/// Where the files of a datastore are whose secrets are open in `body`; a refusal when they are not reached yet.
pub fn reach(name: &str, body: &Value) -> Result<Reach, Invalid> {
    let p = Field::root(body).get("properties");
    let kind = p.get("datastoreType");
    if StoreType::of(body) != Some(StoreType::AzureBlob) {
        let word = StoreType::of(body).map_or("", StoreType::word);
        return Err(Invalid::unsupported(
            kind.path(),
            format!(
                "datastore {} is of type {word}: its files are not reached yet, those of AzureBlob are",
                shown(name)
            ),
        ));
    }
    let tags = p.get("tags");
    if let Some(folder) = tags.get(FOLDER).text()? {
        return Ok(Reach::Folder {
            name: folder.to_owned(),
        });
    }
    let secrets = p.get("credentials").get("secrets");
    let account = p.get("accountName").need_text()?.to_owned();
    let container = p.get("containerName").need_text()?.to_owned();
    if let Some(endpoint) = tags.get(S3_ENDPOINT).text()? {
        let secret = secrets.get("key").text()?;
        return Ok(Reach::S3 {
            endpoint: (!endpoint.eq_ignore_ascii_case("aws")).then(|| endpoint.to_owned()),
            region: tags
                .get(S3_REGION)
                .text()?
                .unwrap_or(DEFAULT_REGION)
                .to_owned(),
            bucket: container,
            key: secret.map(|secret| (account, secret.to_owned())),
        });
    }
    let opens = match Credential::of(body) {
        Credential::None => Opens::Nothing,
        Credential::AccountKey => Opens::Key(secrets.get("key").need_text()?.to_owned()),
        Credential::Sas => Opens::Sas(secrets.get("sasToken").need_text()?.to_owned()),
        other => {
            return Err(Invalid::unsupported(
                p.get("credentials").path(),
                format!(
                    "datastore {} is opened by {}: accounts keys, signatures and open containers are reached",
                    shown(name),
                    other.word()
                ),
            ));
        }
    };
    let protocol = p.get("protocol").text()?.unwrap_or("https");
    // an account with a path in it is an address: a storage that is none of Azure's, as this server's own is (wire §7)
    let endpoint = if account.contains('/') {
        format!("{protocol}://{}", account.trim_end_matches('/'))
    } else {
        let suffix = p.get("endpoint").text()?.unwrap_or(AZURE);
        format!("{protocol}://{account}.blob.{suffix}")
    };
    let account = account.trim_end_matches('/').rsplit('/').next();
    Ok(Reach::Azure {
        endpoint,
        account: account.unwrap_or_default().to_owned(),
        container,
        opens,
    })
}

/// Our tags on a datastore.
fn ours(p: &Field<'_>, kind: StoreType) -> Result<(), Invalid> {
    let tags = p.get("tags").maybe_object()?;
    tags.known_only("zaffre.", &[S3_ENDPOINT, S3_REGION, FOLDER])?;
    let (s3, folder) = (tags.get(S3_ENDPOINT), tags.get(FOLDER));
    let any = [&s3, &folder].into_iter().find(|tag| tag.value().is_some());
    if let (Some(tag), true) = (any, kind != StoreType::AzureBlob) {
        return Err(tag.refuse(format!(
            "is a tag of AzureBlob datastores, and this one is {}",
            kind.word()
        )));
    }
    if s3.value().is_some() && folder.value().is_some() {
        return Err(folder.refuse("and zaffre.s3_endpoint exclude each other"));
    }
    if let Some(endpoint) = s3.text()? {
        let known = endpoint.eq_ignore_ascii_case("aws")
            || endpoint.starts_with("https://")
            || endpoint.starts_with("http://");
        if !known {
            return Err(s3.refuse(format!(
                "is `{}`, expected the address of a server, or aws",
                shown(endpoint)
            )));
        }
    }
    Ok(())
}

/// Azure's limit on the name of a datastore.
const MAX_NAME: usize = 255;

/// What kind of storage a datastore is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreType {
    /// A container of Azure Blob storage.
    AzureBlob,
    /// A share of Azure Files.
    AzureFile,
    /// A store of the first Data Lake.
    AzureDataLakeGen1,
    /// A file system of the second Data Lake.
    AzureDataLakeGen2,
    /// An item of OneLake.
    OneLake,
}

const TYPES: [(&str, StoreType); 5] = [
    ("AzureBlob", StoreType::AzureBlob),
    ("AzureFile", StoreType::AzureFile),
    ("AzureDataLakeGen1", StoreType::AzureDataLakeGen1),
    ("AzureDataLakeGen2", StoreType::AzureDataLakeGen2),
    ("OneLake", StoreType::OneLake),
];

impl StoreType {
    /// Azure's word.
    pub fn word(self) -> &'static str {
        TYPES
            .iter()
            .find(|(_, t)| *t == self)
            .map_or("", |(word, _)| word)
    }
    /// What a body says.
    pub fn of(body: &Value) -> Option<StoreType> {
        let field = Field::root(body).get("properties").get("datastoreType");
        field.choice(&TYPES).ok().flatten()
    }
    fn required(self) -> &'static [&'static str] {
        match self {
            StoreType::AzureBlob => &["accountName", "containerName"],
            StoreType::AzureFile => &["accountName", "fileShareName"],
            StoreType::AzureDataLakeGen1 => &["storeName"],
            StoreType::AzureDataLakeGen2 => &["accountName", "filesystem"],
            StoreType::OneLake => &["oneLakeWorkspaceName"],
        }
    }
}

/// How a datastore is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By nothing, or by who asks.
    None,
    /// By the account's key.
    AccountKey,
    /// By a shared access signature.
    Sas,
    /// By the secret of an application.
    ServicePrincipal,
    /// By the certificate of an application.
    Certificate,
}

const CREDENTIALS: [(&str, Credential); 5] = [
    ("None", Credential::None),
    ("AccountKey", Credential::AccountKey),
    ("Sas", Credential::Sas),
    ("ServicePrincipal", Credential::ServicePrincipal),
    ("Certificate", Credential::Certificate),
];

impl Credential {
    /// Azure's word.
    pub fn word(self) -> &'static str {
        CREDENTIALS
            .iter()
            .find(|(_, c)| *c == self)
            .map_or("", |(word, _)| word)
    }
    /// What a body says.
    pub fn of(body: &Value) -> Credential {
        let credentials = Field::root(body).get("properties").get("credentials");
        let kind = credentials.get("credentialsType").choice(&CREDENTIALS);
        kind.ok().flatten().unwrap_or(Credential::None)
    }
}

/// Whether a name is one of the workspace's own datastores, which always exist and never change.
pub fn is_own(name: &str) -> bool {
    [BLOBSTORE, ARTIFACTSTORE]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(name))
}

/// Checks the body of a datastore.
pub fn datastore(
    name: &str,
    body: &Value,
    before: Option<&Document>,
    warnings: &mut Vec<String>,
) -> Result<(), Invalid> {
    let legal = (1..=MAX_NAME).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if !legal {
        return Err(Invalid::validation(
            "/name",
            format!(
                "datastore name `{}` is not 1 to {MAX_NAME} letters, digits, - and _",
                shown(name)
            ),
        ));
    }
    if is_own(name) {
        return Err(Invalid::user(
            "/name",
            format!("datastore {name} is the workspace's own and cannot be changed"),
        ));
    }
    let p = Field::root(body).get("properties").need_object()?;
    let kind_field = p.get("datastoreType");
    let Some(kind) = kind_field.choice(&TYPES)? else {
        return Err(kind_field.missing());
    };
    for required in kind.required() {
        p.get(required).need_text()?;
    }
    p.get("endpoint").text()?;
    const PROTOCOLS: [(&str, ()); 4] = [("https", ()), ("http", ()), ("abfss", ()), ("wasbs", ())];
    p.get("protocol").choice(&PROTOCOLS)?;
    p.get("description").text()?;
    p.get("tags").texts(warnings)?;
    p.get("properties").maybe_object()?;
    credentials(&p.get("credentials"))?;
    ours(&p, kind)?;
    if let Some(before) = before {
        let old = super::link::body(before)?;
        if let Some(was) = StoreType::of(&old)
            && was != kind
        {
            return Err(Invalid::conflict(
                kind_field.path(),
                format!(
                    "datastore {} is of type {} and cannot become {}",
                    before.key.path,
                    was.word(),
                    kind.word()
                ),
            )
            .hint("delete it first"));
        }
    }
    Ok(())
}

fn credentials(field: &Field<'_>) -> Result<(), Invalid> {
    let field = field.clone().maybe_object()?;
    if field.value().is_none() {
        return Ok(());
    }
    let word = field.get("credentialsType");
    let Some(kind) = word.choice(&CREDENTIALS)? else {
        return Err(word.missing());
    };
    if matches!(kind, Credential::ServicePrincipal | Credential::Certificate) {
        field.get("tenantId").need_text()?;
        field.get("clientId").need_text()?;
    }
    if kind == Credential::Certificate {
        field.get("thumbprint").need_text()?;
    }
    field.get("secrets").maybe_object()?;
    Ok(())
}

/// The answer of `listSecrets` for a body whose secrets are open; `None` when it has none.
pub fn secrets_view(open: &Value) -> Option<Value> {
    let kind = Credential::of(open);
    let secrets = Field::root(open)
        .get("properties")
        .get("credentials")
        .get("secrets");
    let member = match kind {
        Credential::None => return None,
        Credential::AccountKey => "key",
        Credential::Sas => "sasToken",
        Credential::ServicePrincipal => "clientSecret",
        Credential::Certificate => "certificate",
    };
    let mut out = Map::new();
    out.insert("secretsType".into(), json!(kind.word()));
    out.insert(
        member.into(),
        secrets.get(member).value().cloned().unwrap_or_default(),
    );
    Some(Value::Object(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, body: &Value) -> Result<(), String> {
        datastore(name, body, None, &mut Vec::new()).map_err(|e| e.message)
    }

    #[test]
    fn a_datastore_names_its_storage() {
        let good = json!({"properties": {"datastoreType": "azureblob", "accountName": "a", "containerName": "c",
            "credentials": {"credentialsType": "accountkey", "secrets": {"secretsType": "AccountKey", "key": "k"}}}});
        assert_eq!(of("mine", &good), Ok(()));
        assert_eq!(Credential::of(&good), Credential::AccountKey);
        assert_eq!(
            secrets_view(&good),
            Some(json!({"secretsType": "AccountKey", "key": "k"}))
        );
        let own = of("WorkspaceBlobStore", &good).unwrap_err();
        assert!(own.contains("is the workspace's own"), "{own}");
        assert!(of("a b", &good).unwrap_err().contains("is not 1 to 255"));
        for (properties, message) in [
            (json!({}), "datastoreType is required"),
            (
                json!({"datastoreType": "AzureFile", "accountName": "a"}),
                "fileShareName is required",
            ),
            (
                json!({"datastoreType": "AzureBlob", "accountName": "a", "containerName": "c", "credentials": {"credentialsType": "ServicePrincipal"}}),
                "tenantId is required",
            ),
            // A secret that stands a level too high is not repeated in the message (I9).
            (
                json!({"datastoreType": "AzureBlob", "accountName": "a", "containerName": "c", "credentials": {"credentialsType": "AccountKey", "secrets": "k3y"}}),
                "secrets is a text, expected an object",
            ),
        ] {
            assert_eq!(
                of("mine", &json!({"properties": properties})),
                Err(message.into())
            );
        }
    }
}
