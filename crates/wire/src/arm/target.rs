//! The kinds of compute, by the word that a document calls them.
//!
//! T1 a compute never changes its kind: jobs and deployments know what they run on;
//! T2 the secrets of each kind lie at known places, and nowhere else is a secret kept (I9).

use super::{Invalid, field::Field};
use crate::names::shown;
use serde_json::Value;

/// A kind of compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A cluster of nodes.
    AmlCompute,
    /// One node for one person.
    ComputeInstance,
    /// An attached Kubernetes cluster, or this machine as one.
    Kubernetes,
    /// An attached machine.
    VirtualMachine,
    /// An attached Spark pool.
    SynapseSpark,
    /// An attached Databricks workspace.
    Databricks,
    /// An attached HDInsight cluster.
    HdInsight,
    /// An attached Data Lake Analytics account.
    DataLakeAnalytics,
    /// An attached Data Factory.
    DataFactory,
    /// An attached AKS cluster of the first API.
    Aks,
}

impl Target {
    /// Every kind.
    pub const ALL: [Target; 10] = [
        Target::AmlCompute,
        Target::ComputeInstance,
        Target::Kubernetes,
        Target::VirtualMachine,
        Target::SynapseSpark,
        Target::Databricks,
        Target::HdInsight,
        Target::DataLakeAnalytics,
        Target::DataFactory,
        Target::Aks,
    ];

    /// Azure's word.
    pub fn word(self) -> &'static str {
        match self {
            Target::AmlCompute => "AmlCompute",
            Target::ComputeInstance => "ComputeInstance",
            Target::Kubernetes => "Kubernetes",
            Target::VirtualMachine => "VirtualMachine",
            Target::SynapseSpark => "SynapseSpark",
            Target::Databricks => "Databricks",
            Target::HdInsight => "HDInsight",
            Target::DataLakeAnalytics => "DataLakeAnalytics",
            Target::DataFactory => "DataFactory",
            Target::Aks => "AKS",
        }
    }

    /// The kind that a body says, when it says one that there is.
    pub fn of(body: &Value) -> Option<Target> {
        let word = body.pointer("/properties/computeType")?.as_str()?;
        Target::ALL
            .into_iter()
            .find(|t| t.word().eq_ignore_ascii_case(word))
    }

    /// The kind that the body of `name` says.
    pub fn read(name: &str, body: &Value) -> Result<Target, Invalid> {
        let field = Field::root(body)
            .get("properties")
            .need_object()?
            .get("computeType");
        let word = field.need_text()?;
        let found = Target::ALL
            .into_iter()
            .find(|t| t.word().eq_ignore_ascii_case(word));
        found.ok_or_else(|| {
            let known: Vec<&str> = Target::ALL.iter().map(|t| t.word()).collect();
            field.refuse(format!(
                "of {} is `{}`, known are {}",
                shown(name),
                shown(word),
                known.join(", ")
            ))
        })
    }

    /// Where the secrets of the kind lie in a body (T2), as JSON pointers.
    pub fn secrets(self) -> &'static [&'static str] {
        match self {
            Target::VirtualMachine | Target::HdInsight => &[
                "/properties/properties/administratorAccount/password",
                "/properties/properties/administratorAccount/privateKeyData",
            ],
            Target::Databricks => &["/properties/properties/databricksAccessToken"],
            Target::Aks => &[
                "/properties/properties/sslConfiguration/key",
                "/properties/properties/sslConfiguration/cert",
            ],
            // a kubeconfig is kept apart, and a cluster's password is refused
            Target::AmlCompute
            | Target::ComputeInstance
            | Target::Kubernetes
            | Target::SynapseSpark
            | Target::DataLakeAnalytics
            | Target::DataFactory => &[],
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}
