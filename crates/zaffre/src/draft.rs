//! A file and its flags on their way to a document: read by `wire::yaml`, what lies beside it uploaded, labels resolved, names
//! made ids.

use crate::{
    client::{Client, operation::Wait},
    failure::{Failure, about},
    output, upload,
};
use model::Workspace;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use wire::yaml::{AssetKind, Draft, Kind, LabelRef, LoadOptions, LocalAsset, Override, Refused};

/// Largest YAML file: the documents of a workspace are kilobytes; a larger file is a mistake.
const FILE_LIMIT: u64 = 4 * 1024 * 1024;
/// Name under which the SDK keeps environments written inside a file.
const ANONYMOUS_ENVIRONMENT: &str = "CliV2AnonymousEnvironment";

/// A draft and the folder that its paths are relative to.
pub struct Found {
    /// The draft.
    pub draft: Draft,
    base: PathBuf,
}

/// The overrides of `--set`.
pub fn sets(arguments: &[String]) -> Result<Vec<Override>, Failure> {
    arguments
        .iter()
        .map(|argument| {
            Override::set(argument).map_err(|diagnostic| Failure::wrong(diagnostic.render()))
        })
        .collect()
}

/// Adds a flag that stands for one key, if it was given.
pub fn flag(overrides: &mut Vec<Override>, name: &str, keys: &[&str], value: Option<&str>) {
    if let Some(value) = value {
        overrides.push(Override::flag(name, keys, value));
    }
}

/// Adds `--tags a=b c=d`.
pub fn tags(overrides: &mut Vec<Override>, tags: &[String]) -> Result<(), Failure> {
    for tag in tags {
        let Some((key, value)) = tag.split_once('=') else {
            return Err(Failure::wrong(format!(
                "--tags {tag:?}: a tag is KEY=VALUE"
            )));
        };
        overrides.push(Override::flag("--tags", &["tags", key], value));
    }
    Ok(())
}

/// Reads a file, or nothing but flags.
pub fn read(file: Option<&Path>, overrides: &[Override], hint: Kind) -> Result<Found, Failure> {
    load(file, overrides, Some(hint))
}

/// Reads a file that says by itself what it is.
pub fn read_any(file: &Path, overrides: &[Override]) -> Result<Found, Failure> {
    load(Some(file), overrides, None)
}

fn load(file: Option<&Path>, overrides: &[Override], hint: Option<Kind>) -> Result<Found, Failure> {
    let base = file
        .and_then(Path::parent)
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
        .to_owned();
    let files = |path: &str| beside(&base, path);
    let options = LoadOptions {
        hint,
        overrides: overrides.to_vec(),
        files: &files,
    };
    let draft = match file {
        Some(path) => wire::yaml::load(&bytes_of(path)?, &path.display().to_string(), &options),
        None => wire::yaml::load_flags(&options),
    };
    let found = Found {
        draft: draft.map_err(|refused| refused_file(&refused))?,
        base,
    };
    found.folders_are_there()?;
    Ok(found)
}

/// Reads a document that is there already, changed by flags.
pub fn change(document: &Value, overrides: &[Override], hint: Kind) -> Result<Found, Failure> {
    let base = PathBuf::from(".");
    let files = |path: &str| beside(&base, path);
    let options = LoadOptions {
        hint: Some(hint),
        overrides: overrides.to_vec(),
        files: &files,
    };
    // JSON is YAML.
    let text = serde_json::to_string_pretty(document).expect("a JSON value can be written");
    let draft = wire::yaml::load(text.as_bytes(), "the document", &options)
        .map_err(|refused| refused_file(&refused))?;
    Ok(Found { draft, base })
}

/// The bytes of a YAML file. A missing file is a wrong command, not a missing resource.
pub fn bytes_of(path: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |error| Failure {
        status: crate::failure::Status::Wrong,
        ..about(path)(error)
    };
    let metadata = fs::metadata(path).map_err(wrong)?;
    if metadata.len() > FILE_LIMIT {
        return Err(Failure::wrong(format!(
            "{}: a file of {} bytes, at most {FILE_LIMIT} are read",
            path.display(),
            metadata.len()
        )));
    }
    fs::read(path).map_err(wrong)
}

/// A file that the YAML names.
fn beside(base: &Path, path: &str) -> Result<Vec<u8>, String> {
    let path = base.join(path);
    match fs::metadata(&path) {
        Ok(metadata) if metadata.len() > FILE_LIMIT => {
            return Err(format!(
                "has {} bytes, at most {FILE_LIMIT} are read",
                metadata.len()
            ));
        }
        _ => {}
    }
    fs::read(&path).map_err(|error| crate::failure::plain(&error))
}

/// Everything that is wrong with a file, in one failure.
fn refused_file(refused: &Refused) -> Failure {
    let texts: Vec<String> = match refused {
        Refused::Invalid(diagnostics) => diagnostics
            .iter()
            .map(wire::yaml::Diagnostic::render)
            .collect(),
        Refused::Unsupported { diagnostic, .. } => vec![diagnostic.render()],
    };
    Failure::wrong(texts.join("\nerror: "))
}

impl Found {
    /// Says what deserves a look.
    pub fn warn(&self) {
        for warning in &self.draft.warnings {
            output::warn(&warning.render());
        }
    }

    /// Refuses what Zaffre does not run.
    pub fn runnable(&self) -> Result<(), Failure> {
        let missing = &self.draft.unsupported;
        if missing.is_empty() {
            return Ok(());
        }
        Err(Failure::wrong(format!(
            "{}: not built yet: {}",
            self.draft.kind,
            missing.join(", ")
        ))
        .hint("`zaffre validate -f FILE` checks such a file; nothing was created"))
    }

    /// Looks whether the folders of code and of build contexts are there, as the SDK does when it loads a file.
    fn folders_are_there(&self) -> Result<(), Failure> {
        for asset in &self.draft.locals {
            let what = match asset.kind {
                AssetKind::Code => "code",
                AssetKind::BuildContext => "build.path",
                AssetKind::Environment if asset.path.is_some() => "environment.build.path",
                AssetKind::Environment | AssetKind::Model | AssetKind::Data | AssetKind::Input => {
                    continue;
                }
            };
            let Some(path) = &asset.path else { continue };
            let place = self.base.join(path);
            if !place.exists() {
                return Err(Failure::wrong(format!(
                    "{what} is {path}, and {} does not exist",
                    place.display()
                )));
            }
        }
        Ok(())
    }

    /// Looks whether the scoring script lies in the code folder, before anything is sent.
    pub fn script_is_there(&self) -> Result<(), Failure> {
        let script = self
            .draft
            .body
            .pointer("/properties/codeConfiguration/scoringScript")
            .and_then(Value::as_str);
        let code = self
            .draft
            .locals
            .iter()
            .find(|asset| asset.kind == AssetKind::Code)
            .and_then(|asset| asset.path.as_deref());
        let (Some(script), Some(code)) = (script, code) else {
            return Ok(());
        };
        let path = self.base.join(code).join(script);
        if path.is_file() {
            return Ok(());
        }
        Err(Failure::wrong(format!(
            "scoring_script {script}: no such file in {}",
            self.base.join(code).display()
        ))
        .hint("--skip-script-validation sends it all the same"))
    }

    /// Brings everything to the server that the document needs, and makes its references ids.
    pub async fn settle(&mut self, client: &Client) -> Result<(), Failure> {
        self.runnable()?;
        for asset in std::mem::take(&mut self.draft.locals) {
            let value = self.bring(client, &asset).await?;
            self.draft.put(&asset.pointer, value);
        }
        let workspace = workspace(client);
        for label in std::mem::take(&mut self.draft.labels) {
            let version = version_of(client, &label).await?;
            self.draft.resolve(&label, &version, &workspace);
        }
        self.draft.expand(&workspace);
        crate::components::register(client, &mut self.draft.body).await
    }

    async fn bring(&self, client: &Client, asset: &LocalAsset) -> Result<String, Failure> {
        let path = asset.path.as_deref().map(|path| self.base.join(path));
        if let (AssetKind::Code, Some(path)) = (asset.kind, &path) {
            return upload::code(client, path).await;
        }
        let address = match &path {
            Some(path) => {
                Some(upload::to_datastore(client, path, asset.datastore.as_deref()).await?)
            }
            None => None,
        };
        let Some(mut body) = asset.body.clone() else {
            return address.ok_or_else(|| {
                Failure::failed(format!("{} names nothing to upload", asset.pointer))
            });
        };
        if let (Some(pointer), Some(address)) = (&asset.upload_pointer, address) {
            wire::yaml::put(&mut body, pointer, address.into());
        }
        inline(client, asset, body).await
    }
}

/// Makes a version of an asset that is written inside a file.
async fn inline(client: &Client, asset: &LocalAsset, mut body: Value) -> Result<String, Failure> {
    let collection = match asset.kind {
        AssetKind::Environment => "environments",
        AssetKind::Model => "models",
        AssetKind::Code => "codes",
        AssetKind::Data | AssetKind::Input | AssetKind::BuildContext => "data",
    };
    let (name, version) = match (&asset.name, asset.kind) {
        (Some(name), _) => {
            let version = match &asset.version {
                Some(version) => version.clone(),
                None => next_version(client, collection, name).await?,
            };
            (name.clone(), version)
        }
        (None, AssetKind::Environment) => {
            body["properties"]["isAnonymous"] = json!(true);
            (
                ANONYMOUS_ENVIRONMENT.to_owned(),
                upload::hash::document(&body),
            )
        }
        (None, _) => {
            let name = upload::hash::document(&body);
            body["properties"]["isAnonymous"] = json!(true);
            (name, "1".to_owned())
        }
    };
    let at = client.at(&format!("{collection}/{name}/versions/{version}"));
    client.put(&at, &body, Wait::ForEnd).await?;
    Ok(at)
}

/// The version that comes next, as the container of the asset says.
pub async fn next_version(
    client: &Client,
    collection: &str,
    name: &str,
) -> Result<String, Failure> {
    let container = client
        .find(&client.at(&format!("{collection}/{name}")))
        .await?;
    let next = container
        .as_ref()
        .map(|document| &document["properties"]["nextVersion"]);
    Ok(match next {
        Some(Value::String(text)) if !text.is_empty() => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "1".to_owned(),
    })
}

/// The newest version of an asset: what `@latest` means.
async fn version_of(client: &Client, label: &LabelRef) -> Result<String, Failure> {
    if label.label != "latest" {
        return Err(Failure::not_found(format!(
            "{} {} has no label {}",
            label.kind, label.name, label.label
        ))
        .hint("the label that every asset has is latest"));
    }
    match latest(client, label.kind.collection(), &label.name).await? {
        Some(document) => Ok(document["name"].as_str().unwrap_or_default().to_owned()),
        None => Err(
            Failure::not_found(format!("{} {} does not exist", label.kind, label.name))
                .hint(format!("register it with `zaffre {} create`", label.kind)),
        ),
    }
}

/// The newest version of an asset, if it has one.
pub async fn latest(
    client: &Client,
    collection: &str,
    name: &str,
) -> Result<Option<Value>, Failure> {
    let at = client.at(&format!(
        "{collection}/{name}/versions?$orderBy=createdtime%20desc&$top=1"
    ));
    match client.find(&at).await? {
        Some(mut page) => Ok(page["value"]
            .as_array_mut()
            .filter(|list| !list.is_empty())
            .map(|list| list.swap_remove(0))),
        None => Ok(None),
    }
}

/// The scope as `wire` wants it.
pub fn workspace(client: &Client) -> Arc<Workspace> {
    let scope = client.scope();
    Workspace::new(&scope.subscription, &scope.group, &scope.workspace)
}
