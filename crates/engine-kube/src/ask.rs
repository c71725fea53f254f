//! What is asked of an API server, one request or two at a time. Everything here is idempotent.
//!
//! A1 a pod that exists under the name of an attempt is that attempt's, or a stranger's, which is an error that names it;
//! A2 nothing is removed that does not carry this server's id: it is looked at first, and removed by its uid.

use crate::{
    pod::{self, Claim, Settings},
    trouble::{self, Asked, Kind},
};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Secret},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use model::ComputeId;
use std::time::Duration;

/// Longest wait for one answer: an API server that admits by webhooks takes up to ten seconds.
pub const ANSWER: Duration = Duration::from_secs(15);
/// Claims that are mounted at most.
const MAX_CLAIMS: u32 = 32;

/// Why something could not be done.
#[derive(Clone, Debug)]
pub struct Failed {
    /// How to treat it.
    pub kind: Kind,
    /// What went wrong.
    pub words: Box<str>,
    /// The resource, where a right is missing.
    pub resource: &'static str,
}

/// The way to one cluster.
#[derive(Clone)]
pub struct Way {
    /// The client.
    pub client: Client,
    /// Its URL, for messages.
    pub url: String,
    /// The namespace of our pods.
    pub namespace: String,
}

impl Way {
    async fn asked<T>(
        &self,
        asked: Asked,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failed> {
        match tokio::time::timeout(ANSWER, request).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Failed {
                kind: trouble::kind(&error),
                words: trouble::words(asked, &self.url, &error),
                resource: asked.resource,
            }),
            Err(_) => Err(Failed {
                kind: Kind::Unknown,
                words: format!(
                    "the API server {} gives no answer to {} {} for {} s",
                    self.url,
                    asked.verb,
                    asked.resource,
                    ANSWER.as_secs()
                )
                .into(),
                resource: asked.resource,
            }),
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The one object that owns everything of a compute here: with it all of it goes.
    pub async fn anchor(
        &self,
        server: &str,
        compute: &ComputeId,
    ) -> Result<OwnerReference, Failed> {
        let labels = pod::labels(server, compute);
        let name = format!(
            "zaffre-{server}-{}",
            labels[pod::COMPUTE].to_ascii_lowercase()
        );
        let name: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || c == '-' {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = self
            .asked(Asked::new("get", "configmaps"), maps.get_opt(&name))
            .await?;
        let map = match found {
            Some(map) => map,
            None => {
                let map = ConfigMap {
                    metadata: ObjectMeta {
                        name: Some(name.clone()),
                        labels: Some(labels),
                        ..ObjectMeta::default()
                    },
                    ..ConfigMap::default()
                };
                let post = PostParams::default();
                self.asked(Asked::new("create", "configmaps"), maps.create(&post, &map))
                    .await?
            }
        };
        Ok(OwnerReference {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            name,
            uid: map.metadata.uid.unwrap_or_default(),
            ..OwnerReference::default()
        })
    }

    /// Whether the pods of all namespaces may be seen.
    pub async fn sees_all_pods(&self) -> Result<(), Failed> {
        let all: Api<Pod> = Api::all(self.client.clone());
        let one = ListParams::default().limit(1);
        let asked = Asked::new("list", "pods");
        self.asked(asked, all.list_metadata(&one)).await.map(drop)
    }

    /// The claims that jobs find mounted; none where they cannot be listed.
    pub async fn claims(&self) -> Vec<Claim> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &self.namespace);
        let list = ListParams::default()
            .labels("ml.azure.com/pvc=true")
            .limit(MAX_CLAIMS);
        let asked = Asked::new("list", "persistentvolumeclaims");
        match self.asked(asked, api.list(&list)).await {
            Ok(found) => {
                let mut claims: Vec<Claim> = found.items.iter().filter_map(pod::claim).collect();
                claims.sort();
                claims
            }
            Err(failed) => {
                tracing::warn!("no claim is mounted: {}", failed.words);
                Vec::new()
            }
        }
    }

    /// Makes secret and pod of an attempt (A1).
    pub async fn create(
        &self,
        settings: &Settings,
        secret: &Secret,
        pod: &Pod,
    ) -> Result<(), Failed> {
        let post = PostParams::default();
        let made = self
            .asked(
                Asked::new("create", "secrets"),
                self.secrets().create(&post, secret),
            )
            .await;
        match made {
            Ok(_) => {}
            // Of an attempt to make the pod before; another one's would let its agent in nowhere, and say nothing.
            Err(failed) if failed.kind == Kind::Conflict => {
                self.same_secret(secret, &settings.server).await?;
            }
            Err(failed) => return Err(failed),
        }
        let made = self
            .asked(Asked::new("create", "pods"), self.pods().create(&post, pod))
            .await;
        let failed = match made {
            Ok(_) => return Ok(()),
            Err(failed) if failed.kind == Kind::Conflict => failed,
            Err(failed) => return Err(failed),
        };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let found = self
            .asked(Asked::new("get", "pods"), self.pods().get_opt(name))
            .await?;
        match found {
            Some(there) if same_task(&there.metadata, &pod.metadata, &settings.server) => Ok(()),
            Some(_) => Err(self.stranger("pod", name)),
            None => Err(Failed {
                kind: Kind::Later,
                ..failed
            }), // a conflict of another kind: a quota being counted
        }
    }

    async fn same_secret(&self, wanted: &Secret, server: &str) -> Result<(), Failed> {
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        let secrets = self.secrets();
        let asked = Asked::new("get", "secrets");
        match self.asked(asked, secrets.get_opt(name)).await? {
            Some(there) if same_task(&there.metadata, &wanted.metadata, server) => Ok(()),
            Some(_) => Err(self.stranger("secret", name)),
            // It went meanwhile: the next try makes it.
            None => Err(Failed {
                kind: Kind::Later,
                words: format!("secret {name} was there and is gone").into(),
                resource: "secrets",
            }),
        }
    }

    /// A name that somebody else has taken: another server on this cluster, or people.
    fn stranger(&self, what: &str, name: &str) -> Failed {
        Failed {
            kind: Kind::Refused,
            words: format!(
                "a {what} {STRANGER} {name} exists in namespace {} and is not this task's",
                self.namespace
            )
            .into(),
            resource: "pods",
        }
    }

    /// Whether a pod is there; `None` says that it is not.
    pub async fn find(&self, name: &str) -> Result<Option<Pod>, Failed> {
        self.asked(Asked::new("get", "pods"), self.pods().get_opt(name))
            .await
    }

    /// Whether a machine is there.
    pub async fn machine(&self, name: &str) -> Result<Option<Node>, Failed> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        self.asked(Asked::new("get", "nodes"), nodes.get_opt(name))
            .await
    }

    /// Removes pod and secret of that name, if they are ours (A2); the pod has `grace` seconds, else what it says itself.
    pub async fn remove(&self, server: &str, name: &str, grace: Option<u32>) -> Result<(), Failed> {
        let params = |uid: Option<String>| DeleteParams {
            grace_period_seconds: grace,
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        if let Some(pod) = self.find(name).await?
            && ours(&pod.metadata, server)
        {
            let gone = self
                .asked(
                    Asked::new("delete", "pods"),
                    self.pods().delete(name, &params(pod.metadata.uid)),
                )
                .await;
            tolerate_absence(gone.map(drop))?;
        }
        let secrets = self.secrets();
        let found = self
            .asked(Asked::new("get", "secrets"), secrets.get_opt(name))
            .await?;
        if let Some(secret) = found
            && ours(&secret.metadata, server)
        {
            let gone = self
                .asked(
                    Asked::new("delete", "secrets"),
                    secrets.delete(name, &params(secret.metadata.uid)),
                )
                .await;
            tolerate_absence(gone.map(drop))?;
        }
        Ok(())
    }

    /// Removes the object that owns everything of a compute.
    pub async fn forsake(&self, name: &str, uid: &str) -> Result<(), Failed> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.namespace);
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        let gone = self
            .asked(
                Asked::new("delete", "configmaps"),
                maps.delete(name, &params),
            )
            .await;
        tolerate_absence(gone.map(drop))
    }

    /// Installs the definition of instance types; done when it is there already.
    pub async fn define_types(&self) -> Result<(), Failed> {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let resource = ApiResource::from_gvk_with_plural(&kind, "customresourcedefinitions");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let definition: DynamicObject = serde_json::from_value(wire::crd::definition())
            .expect("our definition is a Kubernetes object");
        let asked = Asked::new("create", "customresourcedefinitions");
        let post = PostParams::default();
        match self.asked(asked, api.create(&post, &definition)).await {
            Ok(_) => Ok(()),
            Err(failed) if failed.kind == Kind::Conflict => Ok(()),
            Err(failed) => Err(failed),
        }
    }
}

/// What a message holds when a name is taken by somebody else.
pub const STRANGER: &str = "of the name";

fn tolerate_absence(gone: Result<(), Failed>) -> Result<(), Failed> {
    match gone {
        // A conflict means another uid: ours is gone, and what is there now is not.
        Err(failed) if matches!(failed.kind, Kind::NotFound | Kind::Conflict) => Ok(()),
        other => other,
    }
}

/// Whether a thing carries this server's id.
pub fn ours(meta: &ObjectMeta, server: &str) -> bool {
    let labels = meta.labels.as_ref();
    labels.is_some_and(|l| l.contains_key(&format!("{}/{server}", pod::SERVER)))
}

/// Whether both are for the same task or node of this server.
fn same_task(there: &ObjectMeta, wanted: &ObjectMeta, server: &str) -> bool {
    let said = |meta: &ObjectMeta, key: &str| meta.annotations.as_ref()?.get(key).cloned();
    let same = |key| said(there, key) == said(wanted, key);
    let any = [pod::TASK, pod::NODE]
        .into_iter()
        .any(|key| said(there, key).is_some());
    ours(there, server) && any && same(pod::TASK) && same(pod::NODE)
}
