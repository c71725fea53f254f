//! Keys of tokens and of jobs, and what jobs find their identity with.
//!
//! I1 a job gets its own secret and no other: it is made when a process starts, from a key that only the server has;
//! I2 a job that trusts this server trusts everything that the machine trusts, too: its programs reach other places as before.

use super::folder::Folder;
use crate::{
    cli::ServeArgs,
    failure::{Failure, about},
    home,
};
use api::{Fetch, Identities, JobKey, Outside, RunKey};
use engine_local::Variables;
use model::JobId;
use port::Clock;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Where systems keep the certificates of the authorities that they trust.
const AUTHORITIES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];
/// For an answer of an outside issuer.
const ISSUER_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of an answer of an outside issuer; theirs are some thousand.
const ISSUER_BYTES: usize = 1024 * 1024;

/// Who may sign in, with what was kept.
pub fn identities(args: &ServeArgs, folder: &Folder, jobs: JobKey) -> Result<Identities, Failure> {
    let path = folder.at("signing.json");
    let kept = match fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(about(&path)(error)),
    };
    let to = path.clone();
    let keep = move |bytes: &[u8]| {
        home::write_private(&to, bytes).map_err(|failure| io::Error::other(failure.message))
    };
    let identities = Identities::open(
        kept.as_deref(),
        Box::new(keep),
        Box::new(|| port::Machine.now()),
    );
    let identities = identities.map_err(|error| {
        Failure::wrong(format!("{}: {error}", path.display())).hint(
            "remove the file; new keys are made at the next start, and everybody signs in again",
        )
    })?;
    let identities = identities.with_jobs(jobs);
    Ok(match outside(args)? {
        Some(outside) => identities.with_outside(outside),
        None => identities,
    })
}

/// The outside issuer of the flags.
fn outside(args: &ServeArgs) -> Result<Option<Outside>, Failure> {
    let (Some(issuer), Some(audience)) = (&args.oidc_issuer, &args.oidc_audience) else {
        return Ok(None);
    };
    if !issuer.starts_with("https://") {
        return Err(Failure::wrong(format!(
            "--oidc-issuer {issuer}: an issuer is reached over https"
        )));
    }
    let mut builder = reqwest::Client::builder()
        .https_only(true)
        .timeout(ISSUER_LIMIT)
        .redirect(reqwest::redirect::Policy::none());
    if let Some(path) = &args.oidc_ca {
        let pem = fs::read(path).map_err(about(path))?;
        let roots = reqwest::Certificate::from_pem_bundle(&pem)
            .map_err(|error| Failure::wrong(format!("--oidc-ca {}: {error}", path.display())))?;
        builder = builder.tls_certs_only(roots);
    }
    let http = builder
        .build()
        .map_err(|error| Failure::failed(format!("no HTTP client: {error}")))?;
    let fetch: Fetch = Box::new(move |url| {
        let http = http.clone();
        Box::pin(async move { read(&http, &url).await.map_err(|e| format!("{url}: {e}")) })
    });
    Ok(Some(Outside {
        issuer: issuer.clone(),
        audience: audience.clone(),
        fetch,
    }))
}

/// A JSON document, read as far as its limit.
async fn read(http: &reqwest::Client, url: &str) -> Result<Value, String> {
    let answer = http.get(url).send().await.map_err(|e| e.to_string())?;
    let mut answer = answer.error_for_status().map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(|e| e.to_string())? {
        if bytes.len() + piece.len() > ISSUER_BYTES {
            return Err(format!("longer than {ISSUER_BYTES} bytes"));
        }
        bytes.extend_from_slice(&piece);
    }
    serde_json::from_slice(&bytes).map_err(|e| e.to_string())
}

/// The variables of every job of this machine: what Azure sets, what `DefaultAzureCredential()` looks for (wire §1), and how
/// `mlflow` finds the job's own run (wire §11).
pub fn variables(
    folder: &Folder,
    url: &str,
    jobs: &JobKey,
    runs: &RunKey,
) -> Result<Variables, Failure> {
    let bundle = folder.at("ca-bundle.pem");
    let ours = folder.at("ca.pem");
    let ours = fs::read(&ours).map_err(about(&ours))?;
    write_bundle(&bundle, &ours, None)?;
    let (url, jobs, runs) = (url.to_owned(), jobs.clone(), runs.clone());
    Ok(Variables::new(move |job| {
        let authorities = bundle.display().to_string();
        let mut all = of_job(&url, &jobs, job);
        all.extend(tracking(&url, &authorities, &runs, job));
        all.insert("REQUESTS_CA_BUNDLE".to_owned(), authorities);
        all
    }))
}

/// The same for jobs on other machines, which find the server's certificate at `authority`; the agent there says where the
/// authorities of its image are.
pub fn variables_elsewhere(
    url: &str,
    authority: &'static str,
    jobs: &JobKey,
    runs: &RunKey,
) -> Variables {
    let url = url.trim_end_matches('/').to_owned();
    let (jobs, runs) = (jobs.clone(), runs.clone());
    Variables::new(move |job| {
        let mut all = of_job(&url, &jobs, job);
        all.extend(tracking(&url, authority, &runs, job));
        all
    })
}

fn of_job(url: &str, jobs: &JobKey, job: &JobId) -> BTreeMap<String, String> {
    let workspace = job.workspace();
    let all = [
        (
            "AZUREML_ARM_SUBSCRIPTION",
            workspace.subscription.to_string(),
        ),
        ("AZUREML_ARM_RESOURCEGROUP", workspace.group.to_string()),
        ("AZUREML_ARM_WORKSPACE_NAME", workspace.name.to_string()),
        (
            "ARM_CLOUD_METADATA_URL",
            format!("{url}/metadata/endpoints"),
        ),
        ("AZUREML_CURRENT_CLOUD", api::CLOUD.to_owned()),
        ("IDENTITY_ENDPOINT", format!("{url}/msi/token")),
        ("IDENTITY_HEADER", jobs.secret(job)),
    ];
    all.map(|(name, value)| (name.to_owned(), value)).into()
}

/// What a job logs with: plain MLflow needs nothing else. `authorities` is where the job finds the certificates to trust.
fn tracking(url: &str, authorities: &str, runs: &RunKey, job: &JobId) -> BTreeMap<String, String> {
    let workspace = wire::names::workspace_id(job.workspace());
    BTreeMap::from(
        [
            (
                "MLFLOW_TRACKING_URI",
                format!("{url}/mlflow/v2.0{workspace}"),
            ),
            ("MLFLOW_TRACKING_TOKEN", runs.credential(job)),
            ("MLFLOW_TRACKING_SERVER_CERT_PATH", authorities.to_owned()),
            ("MLFLOW_RUN_ID", job.name().to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    )
}

/// Writes the authorities of this machine, or those of `theirs` where that is there, and one of ours to a file that everybody may
/// read (I2).
pub fn write_bundle(path: &Path, ours: &[u8], theirs: Option<PathBuf>) -> Result<(), Failure> {
    let mut all = ours.to_vec();
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let usual = AUTHORITIES.iter().map(PathBuf::from);
    if let Some(theirs) = theirs
        .into_iter()
        .chain(named)
        .chain(usual)
        .find_map(|p| fs::read(p).ok())
    {
        all.push(b'\n');
        all.extend(theirs);
    }
    home::write_private(path, &all)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(about(path))
}
