//! Following what a document names: the compute, the model, the environment, the code, the data, down to blobs.
//!
//! L1 what is named exists now, or the submission is refused and names it: a run never fails later for a missing document;
//! L2 an id keeps the spelling under which the thing was first written.

use super::{
    Invalid,
    asset::{self, DataType, ModelType, document_kind},
    compute, datastore,
    field::Field,
    instance,
    job::named_compute,
    kubernetes,
    target::Target,
};
use crate::{
    names::{self, Reference, is_reference, shown},
    places::{ARTIFACTSTORE, BLOBSTORE, End, Place, Places, inside},
    view::history::output_of_asset,
};
use model::{
    BlobPath, ClusterSpec, ComputeId, DEFAULT_INSTANCE_TYPE, DocKey, Document, JobId, Kind,
    engine::{EnvironmentSpec, Packages},
};
use serde_json::Value;

/// Finds a document by its key. A key whose path is `NAME@latest` finds the newest version of that asset.
pub type Look<'a> = &'a dyn Fn(&DocKey) -> Option<Document>;

/// An asset may lie in the output of a job, whose output may lie at a path; nothing honest goes deeper.
const MAX_STEPS: usize = 4;
/// The end of the name of a batch run's only step, as Azure names it.
const STEP: &str = "-batchscoring";

/// The name of the step of a batch run: `<job>-batchscoring`.
pub fn child_of(job: &str) -> String {
    format!("{job}{STEP}")
}
/// The batch run whose step this name would be.
pub fn parent_of(child: &str) -> Option<&str> {
    child.strip_suffix(STEP).filter(|job| !job.is_empty())
}

/// Follows addresses inside one workspace.
#[derive(Clone, Copy)]
pub struct Links<'a> {
    /// Where things lie.
    pub places: &'a Places,
    /// The documents.
    pub look: Look<'a>,
}

/// Where a job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compute {
    /// Nodes of a cluster.
    Cluster(Box<ClusterSpec>),
    /// The node of a compute instance.
    Instance(Box<ClusterSpec>),
    /// Pods; what they are is looked up when the job is admitted.
    Kubernetes {
        /// The type of work that names none.
        default_type: Box<str>,
    },
}

/// A blob or folder at the end of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where.
    pub path: BlobPath,
    /// What the asset says it is, when an asset was on the way.
    pub kind: Option<DataType>,
    /// The attached datastore that it lies in.
    pub datastore: Option<Box<str>>,
    /// The address that led here at last.
    pub text: String,
}

impl Found {
    /// The address that says it best: the long one of its datastore, else the one that led here (`https://…`).
    pub fn address(&self, places: &Places, end: End) -> String {
        match &self.datastore {
            Some(name) => places.uri_in(name, &self.path, end),
            None => {
                let long = places.uri(&self.path, end);
                long.unwrap_or_else(|| self.text.clone())
            }
        }
    }
}

/// A model at the end of its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundModel {
    /// `name/version`, or the address itself when it is not registered.
    pub label: String,
    /// Where.
    pub path: BlobPath,
    /// What it is.
    pub kind: ModelType,
}

/// The JSON of a stored document.
pub fn body(document: &Document) -> Result<Value, Invalid> {
    serde_json::from_str(&document.json).map_err(|e| {
        Invalid::conflict(
            "/",
            format!(
                "the stored document {} cannot be read: {e}",
                document.key.path
            ),
        )
    })
}

impl<'a> Links<'a> {
    /// The cluster that `field` names; 404 with Azure's code when there is none.
    pub fn cluster(&self, field: &Field<'_>) -> Result<(ComputeId, ClusterSpec), Invalid> {
        match self.compute(field)? {
            (id, Compute::Cluster(spec)) => Ok((id, *spec)),
            (id, Compute::Kubernetes { .. }) => Err(field
                .refuse(format!(
                    "names {id}, a Kubernetes compute, and batch deployments run on clusters"
                ))
                .hint("name a cluster: `zaffre compute create -n NAME --type amlcompute`")),
            (id, Compute::Instance(_)) => Err(field
                .refuse(format!(
                    "names {id}, a compute instance, and batch deployments run on clusters"
                ))
                .hint("name a cluster: `zaffre compute create -n NAME --type amlcompute`")),
        }
    }

    /// The compute that `field` names; 404 with Azure's code when there is none.
    pub fn compute(&self, field: &Field<'_>) -> Result<(ComputeId, Compute), Invalid> {
        let text = named_compute(field)?;
        let name = self.compute_name(field, &text)?;
        let workspace = self.places.workspace();
        let document = (self.look)(&DocKey::new(workspace, Kind::Compute, name.as_str()))
            .ok_or_else(|| {
                Invalid::not_found(
                    "ComputeNotFound",
                    field.path(),
                    format!(
                        "compute {} does not exist in workspace {}",
                        shown(&name),
                        workspace.name
                    ),
                )
                .hint("`zaffre compute list` shows what there is")
            })?;
        let value = body(&document)?;
        let compute = match Target::read(document.key.path.as_str(), &value)? {
            Target::Kubernetes => Compute::Kubernetes {
                default_type: kubernetes::kubernetes(&value)?
                    .spec
                    .default_type
                    .unwrap_or_else(|| DEFAULT_INSTANCE_TYPE.into()),
            },
            Target::AmlCompute => Compute::Cluster(Box::new(compute::cluster(&value)?.spec)),
            Target::ComputeInstance => {
                Compute::Instance(Box::new(instance::instance(&value)?.spec))
            }
            other => {
                return Err(field
                    .unsupported(format!(
                        "names {}, a compute of type {other}: no work runs on one yet",
                        document.key.path
                    ))
                    .hint("AmlCompute, ComputeInstance and Kubernetes run jobs"));
            }
        };
        Ok((
            ComputeId::new(workspace, document.key.path.clone()),
            compute,
        ))
    }

    fn compute_name(&self, field: &Field<'_>, text: &str) -> Result<String, Invalid> {
        if !is_reference(text) {
            return Ok(text.to_owned());
        }
        let refuse = |rule: String| field.refuse(format!("is `{}`: {rule}", shown(text)));
        match Reference::parse(text).map_err(|e| refuse(e.to_string()))? {
            Reference::Short {
                kind: None | Some(names::Kind::Compute),
                name,
                pin: names::Pin::Open,
            } => Ok(name),
            Reference::Arm(id) if id.kind == Some(names::Kind::Compute) => {
                let w = self.places.workspace();
                if *model::Workspace::new(&id.subscription, &id.group, &id.workspace) == **w {
                    Ok(id.name)
                } else {
                    Err(refuse(format!(
                        "it belongs to another workspace than {}",
                        w.name
                    )))
                }
            }
            Reference::Short { .. }
            | Reference::Located { .. }
            | Reference::Arm(_)
            | Reference::Datastore { .. }
            | Reference::JobOutput { .. } => Err(refuse("it does not name a compute".into())),
        }
    }

    /// The document of an asset that `text` names, which must be of this kind.
    fn asset(&self, field: &Field<'_>, text: &str, kind: names::Kind) -> Result<Document, Invalid> {
        let place = self.locate(field, text)?;
        let Place::Asset { kind: said, path } = place else {
            return Err(field.refuse(format!("is `{}`, expected a {kind}", shown(text))));
        };
        self.stored(field, said.unwrap_or(kind), kind, &path)
    }

    fn stored(
        &self,
        field: &Field<'_>,
        said: names::Kind,
        kind: names::Kind,
        path: &str,
    ) -> Result<Document, Invalid> {
        if said != kind {
            return Err(field.refuse(format!("names {}, expected {}", said.one(), kind.one())));
        }
        let key = DocKey::new(self.places.workspace(), document_kind(kind), path);
        (self.look)(&key).ok_or_else(|| {
            Invalid::not_found(
                "ResourceNotFound",
                field.path(),
                format!(
                    "{kind} {} does not exist in workspace {}",
                    shown(&path.replacen('/', ":", 1)),
                    self.places.workspace().name
                ),
            )
        })
    }

    fn locate(&self, field: &Field<'_>, text: &str) -> Result<Place, Invalid> {
        let place = self
            .places
            .locate(text)
            .map_err(|e| field.refuse(format!("cannot be used: {e}")))?;
        if let Place::Attached { datastore, .. } = &place {
            self.attached(field, datastore)?;
        }
        Ok(place)
    }

    /// A datastore that was attached is there, and of a kind whose files are reached.
    pub fn attached(&self, field: &Field<'_>, name: &str) -> Result<(), Invalid> {
        let workspace = self.places.workspace();
        let found = (self.look)(&DocKey::new(workspace, Kind::Datastore, name));
        let document = found.ok_or_else(|| {
            Invalid::not_found(
                "ResourceNotFound",
                field.path(),
                format!(
                    "datastore {} does not exist in workspace {}",
                    shown(name),
                    workspace.name
                ),
            )
            .hint("`zaffre datastore list` shows what there is")
        })?;
        datastore::reach(name, &body(&document)?).map(drop)
    }

    /// The blob or folder that `text` means; a bare asset name is one of `kind`.
    pub fn source(
        &self,
        field: &Field<'_>,
        text: &str,
        kind: names::Kind,
    ) -> Result<Found, Invalid> {
        self.follow(field, text.to_owned(), kind)
    }

    fn follow(
        &self,
        field: &Field<'_>,
        mut text: String,
        kind: names::Kind,
    ) -> Result<Found, Invalid> {
        let mut found_kind = None;
        for _ in 0..MAX_STEPS {
            match self.locate(field, &text)? {
                Place::Blob(path) => {
                    return Ok(Found {
                        path,
                        kind: found_kind,
                        datastore: None,
                        text,
                    });
                }
                Place::Attached { datastore, path } => {
                    return Ok(Found {
                        path,
                        kind: found_kind,
                        datastore: Some(datastore.into()),
                        text,
                    });
                }
                Place::Asset { kind: said, path } => {
                    let kind = said.unwrap_or(kind);
                    let (member, legal) = match kind {
                        names::Kind::Data => ("dataUri", true),
                        names::Kind::Model => ("modelUri", true),
                        names::Kind::Code => ("codeUri", true),
                        names::Kind::Compute
                        | names::Kind::Environment
                        | names::Kind::Component => ("", false),
                    };
                    if !legal {
                        return Err(
                            field.refuse(format!("names {}, which has no files", kind.one()))
                        );
                    }
                    if kind == names::Kind::Data
                        && let Some(found) = self.made_by_a_job(&path)?
                    {
                        text = found;
                        continue;
                    }
                    let document = self.stored(field, kind, kind, &path)?;
                    let value = body(&document)?;
                    let properties = Field::root(&value).get("properties");
                    if kind == names::Kind::Data {
                        found_kind = Some(asset::data_type(&properties.get("dataType"))?);
                    }
                    text = properties.get(member).need_text()?.to_owned();
                }
                Place::Output { job, output, path } => match self.output(field, &job, &output)? {
                    OutputPlace::At(folder) => {
                        return Ok(Found {
                            path: inside(&folder, &path)
                                .map_err(|e| field.refuse(format!("cannot be used: {e}")))?,
                            kind: found_kind,
                            datastore: None,
                            text,
                        });
                    }
                    OutputPlace::Named(uri) => {
                        text = if path.is_empty() {
                            uri
                        } else {
                            format!("{}/{path}", uri.trim_end_matches('/'))
                        };
                    }
                },
            }
        }
        Err(field.refuse("leads from one address to the next without end"))
    }

    /// The output that a data asset stands for which nobody wrote: `azureml_JOB_output_data_OUTPUT:1`, as the run history
    /// calls what a job has made.
    fn made_by_a_job(&self, path: &str) -> Result<Option<String>, Invalid> {
        let workspace = self.places.workspace();
        let key = DocKey::new(workspace, Kind::Data, path);
        let Some(name) = path.strip_suffix("/1") else {
            return Ok(None);
        };
        if (self.look)(&key).is_some() {
            return Ok(None);
        }
        let asset = format!("/data/{name}");
        for (job, output) in output_of_asset(&asset) {
            let key = DocKey::job(&JobId::new(workspace, parent_of(job).unwrap_or(job)));
            let known = (self.look)(&key)
                .or_else(|| (self.look)(&DocKey::job(&JobId::new(workspace, job))));
            if let Some(document) = known {
                let value = body(&document)?;
                let outputs = Field::root(&value).get("properties").get("outputs");
                if outputs.get(output).value().is_some() {
                    return Ok(Some(format!("azureml://jobs/{job}/outputs/{output}")));
                }
            }
        }
        Ok(None)
    }

    /// Where an output of a job lies: where its document says, else at the default place. Known before the job ends.
    fn output(&self, field: &Field<'_>, job: &str, output: &str) -> Result<OutputPlace, Invalid> {
        let workspace = self.places.workspace();
        let find = |name: &str| (self.look)(&DocKey::job(&JobId::new(workspace, name)));
        let document = find(job)
            .or_else(|| parent_of(job).and_then(find))
            .ok_or_else(|| {
                Invalid::not_found(
                    "ResourceNotFound",
                    field.path(),
                    format!(
                        "job {} does not exist in workspace {}",
                        shown(job),
                        workspace.name
                    ),
                )
            })?;
        let name = document.key.path.as_str();
        let illegal = || {
            field.refuse(format!(
                "names the output `{}`, which cannot be",
                shown(output)
            ))
        };
        if output.eq_ignore_ascii_case("artifacts") || output == "default" {
            return Ok(OutputPlace::At(
                self.places.artifacts_of(job).ok_or_else(illegal)?,
            ));
        }
        let value = body(&document)?;
        let outputs = Field::root(&value).get("properties").get("outputs");
        let declared = outputs.get(output);
        if declared.value().is_none() {
            let names: Vec<&str> = outputs.entries()?.into_iter().map(|(n, _)| n).collect();
            return Err(Invalid::not_found(
                "ResourceNotFound",
                field.path(),
                format!("job {name} has no output {}", shown(output)),
            )
            .hint(format!("it has {}", names.join(", "))));
        }
        match declared.get("uri").text()?.filter(|u| !u.is_empty()) {
            Some(uri) => Ok(OutputPlace::Named(uri.to_owned())),
            None => Ok(OutputPlace::At(
                self.places.output(name, output).ok_or_else(illegal)?,
            )),
        }
    }

    /// The `componentSpec` of the component that `field` names, and `name:version`.
    pub fn component(&self, field: &Field<'_>) -> Result<(Value, String), Invalid> {
        let text = field.need_text()?;
        let document = self.asset(field, text, names::Kind::Component)?;
        let mut value = body(&document)?;
        let spec = value
            .pointer_mut("/properties/componentSpec")
            .map(Value::take)
            .unwrap_or_default();
        Ok((spec, document.key.path.as_str().replacen('/', ":", 1)))
    }

    /// The folder of a code version.
    pub fn code(&self, field: &Field<'_>) -> Result<Option<BlobPath>, Invalid> {
        match field.text()?.filter(|t| !t.is_empty()) {
            None => Ok(None),
            Some(text) => Ok(Some(self.source(field, text, names::Kind::Code)?.path)),
        }
    }

    /// The model that an address means.
    pub fn model(&self, field: &Field<'_>, text: &str) -> Result<FoundModel, Invalid> {
        if let Place::Asset { .. } = self.locate(field, text)? {
            let document = self.asset(field, text, names::Kind::Model)?;
            let value = body(&document)?;
            let properties = Field::root(&value).get("properties");
            let uri = properties.get("modelUri").need_text()?;
            return Ok(FoundModel {
                label: document.key.path.as_str().to_owned(),
                path: self.source(field, uri, names::Kind::Model)?.path,
                kind: asset::model_type(&properties)?,
            });
        }
        Ok(FoundModel {
            label: text.to_owned(),
            path: self.source(field, text, names::Kind::Model)?.path,
            kind: ModelType::Custom,
        })
    }

    /// A path in a datastore that is named by its name or its id.
    pub fn data_path(
        &self,
        field: &Field<'_>,
        datastore: Option<&str>,
        path: &str,
    ) -> Result<BlobPath, Invalid> {
        let name = datastore.map_or(BLOBSTORE, |d| {
            let d = d.trim_end_matches('/');
            d.rsplit('/')
                .next()
                .unwrap_or(d)
                .trim_start_matches("azureml:")
        });
        let container = self.places.datastore(name).ok_or_else(|| {
            field.refuse(format!(
                "names datastore {}, there are {BLOBSTORE} and {ARTIFACTSTORE}",
                shown(name)
            ))
        })?;
        inside(container, path).map_err(|e| field.refuse(format!("cannot be used: {e}")))
    }

    /// Where a user wants an output of a job to go: a path of a datastore, and its name when it was attached.
    pub fn target_of_job(
        &self,
        field: &Field<'_>,
        text: &str,
    ) -> Result<(BlobPath, Option<String>), Invalid> {
        match self.locate(field, text)? {
            Place::Attached { path, .. } if path.as_str() == path.container() => {
                Err(field.refuse("is a whole datastore; name a folder in it"))
            }
            Place::Attached { datastore, path } => Ok((path, Some(datastore))),
            Place::Blob(_) | Place::Asset { .. } | Place::Output { .. } => {
                Ok((self.target(field, text)?, None))
            }
        }
    }

    /// Where a batch run's output goes: a path of a datastore of the workspace's own, nothing else.
    pub fn target(&self, field: &Field<'_>, text: &str) -> Result<BlobPath, Invalid> {
        if let Ok(Place::Attached { datastore, .. }) = self.places.locate(text) {
            return Err(field.unsupported(format!(
                "goes to datastore {}, which was attached: outputs of jobs go there, those of batch endpoints do not yet",
                shown(&datastore)
            )));
        }
        match self.locate(field, text)? {
            Place::Blob(path) if self.places.datastore_of(&path).is_some() => {
                if path.as_str() == path.container() {
                    return Err(field.refuse("is a whole datastore; name a folder in it"));
                }
                Ok(path)
            }
            Place::Blob(_)
            | Place::Attached { .. }
            | Place::Asset { .. }
            | Place::Output { .. } => Err(field.refuse(format!(
                "is `{}`; output goes to azureml://datastores/D/paths/P",
                shown(text)
            ))),
        }
    }

    /// The environment that `field` names.
    pub fn environment(&self, field: &Field<'_>) -> Result<EnvironmentSpec, Invalid> {
        let text = field.need_text()?;
        let document = self.asset(field, text, names::Kind::Environment)?;
        let value = body(&document)?;
        let p = Field::root(&value).get("properties");
        let label = document.key.path.as_str().replacen('/', ":", 1);
        if p.get("build").value().is_some() {
            return Err(field
                .unsupported(format!(
                    "names environment {label}, which is built from a Dockerfile: that is not built yet"
                ))
                .hint("give it image and conda_file instead"));
        }
        Ok(EnvironmentSpec {
            label: label.into(),
            image: p.get("image").text()?.map(Into::into),
            packages: match p.get("condaFile").text()? {
                Some(text) if !text.trim().is_empty() => Packages::Conda(text.into()),
                _ => Packages::None,
            },
        })
    }
}

enum OutputPlace {
    At(BlobPath),
    Named(String),
}
