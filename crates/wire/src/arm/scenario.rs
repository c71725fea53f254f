//! Which kind of compute is for what: the support table of training targets (R-74, with R-73), as a rule.
//!
//! S1 a cell that the table leaves empty is refused by the name of both, target and use, whoever asks;
//! S2 a cell that the table fills may still be something that Zaffre has not built: that is said elsewhere, in other words.

use super::{Invalid, field::Field, link::Look};
use crate::names::shown;
use model::{DocKey, Kind, Workspace};
use serde_json::Value;
use std::sync::Arc;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The user's own computer (`local`).
    Local,
    /// A compute cluster.
    Cluster,
    /// Serverless compute.
    Serverless,
    /// A compute instance.
    Instance,
    /// A Kubernetes cluster.
    Kubernetes,
    /// A remote virtual machine.
    VirtualMachine,
    /// An Apache Spark pool.
    Spark,
    /// Azure Databricks.
    Databricks,
    /// Azure Data Lake Analytics.
    DataLakeAnalytics,
    /// Azure HDInsight.
    HdInsight,
    /// Azure Batch.
    AzureBatch,
}

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Automated ML.
    AutoMl,
    /// ML pipelines.
    Pipeline,
    /// The designer.
    Designer,
}

/// The table: for each target whether Automated ML, pipelines and the designer may use it.
const TABLE: [(Target, &str, [bool; 3]); 11] = [
    (Target::Local, "the local computer", [true, false, false]),
    (Target::Cluster, "a compute cluster", [true, true, true]),
    (Target::Serverless, "serverless compute", [true, true, true]),
    (Target::Instance, "a compute instance", [true, true, true]),
    (
        Target::Kubernetes,
        "a Kubernetes compute",
        [false, true, true],
    ),
    (
        Target::VirtualMachine,
        "a remote virtual machine",
        [true, true, false],
    ),
    (Target::Spark, "a Spark pool", [true, true, false]),
    (Target::Databricks, "Azure Databricks", [true, true, false]),
    (
        Target::DataLakeAnalytics,
        "Azure Data Lake Analytics",
        [false, true, false],
    ),
    (Target::HdInsight, "Azure HDInsight", [false, true, false]),
    (Target::AzureBatch, "Azure Batch", [false, true, false]),
];

/// `computeType` of a document, and the row that it is.
const KINDS: [(&str, Target); 8] = [
    ("AmlCompute", Target::Cluster),
    ("ComputeInstance", Target::Instance),
    ("Kubernetes", Target::Kubernetes),
    ("VirtualMachine", Target::VirtualMachine),
    ("SynapseSpark", Target::Spark),
    ("Databricks", Target::Databricks),
    ("DataLakeAnalytics", Target::DataLakeAnalytics),
    ("HDInsight", Target::HdInsight),
];

impl Target {
    /// Every row.
    pub fn all() -> impl Iterator<Item = Target> {
        TABLE.iter().map(|(target, ..)| *target)
    }

    /// The row of a compute's document.
    pub fn of(document: &Value) -> Option<Target> {
        let word = document.pointer("/properties/computeType")?.as_str()?;
        let found = KINDS.iter().find(|(w, _)| w.eq_ignore_ascii_case(word));
        found.map(|(_, target)| *target)
    }

    /// The row of a name that is no compute of a workspace.
    pub fn named(text: &str) -> Option<Target> {
        match text.trim().to_ascii_lowercase().as_str() {
            "local" => Some(Target::Local),
            "serverless" => Some(Target::Serverless),
            _ => None,
        }
    }

    fn row(self) -> (&'static str, [bool; 3]) {
        let found = TABLE.iter().find(|(target, ..)| *target == self);
        let (_, words, cells) = found.expect("every target has a row");
        (words, *cells)
    }
}

impl Use {
    /// Every column.
    pub const ALL: [Use; 3] = [Use::AutoMl, Use::Pipeline, Use::Designer];

    fn words(self) -> &'static str {
        match self {
            Use::AutoMl => "Automated ML",
            Use::Pipeline => "pipelines",
            Use::Designer => "the designer",
        }
    }
}

/// Whether the compute that a body names is for a use. One that is not there is refused by whoever needs it.
pub fn suits(
    workspace: &Arc<Workspace>,
    look: Look<'_>,
    field: &Field<'_>,
    of: Use,
) -> Result<(), Invalid> {
    let text = field.text()?.unwrap_or("serverless");
    let name = text.rsplit(['/', ':']).next().unwrap_or(text);
    let target = Target::named(text).or_else(|| {
        let document = look(&DocKey::new(workspace, Kind::Compute, name))?;
        Target::of(&serde_json::from_str(&document.json).ok()?)
    });
    target.map_or(Ok(()), |target| check(field, target, of, name))
}

/// Whether a target is for a use (S1). `name` is what the document calls it.
pub fn check(field: &Field<'_>, target: Target, of: Use, name: &str) -> Result<(), Invalid> {
    let (words, cells) = target.row();
    let column = match of {
        Use::AutoMl => 0,
        Use::Pipeline => 1,
        Use::Designer => 2,
    };
    if cells[column] {
        return Ok(());
    }
    let fit: Vec<&str> = TABLE
        .iter()
        .filter(|(.., cells)| cells[column])
        .map(|(_, words, _)| *words)
        .collect();
    Err(field
        .unsupported(format!(
            "names {}, {words}, which is no target for {}",
            shown(name),
            of.words()
        ))
        .hint(format!("targets for {} are {}", of.words(), fit.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// R-74 as the specification prints it, row by row.
    const SEED: [(Target, &str); 11] = [
        (Target::Local, "y--"),
        (Target::Cluster, "yyy"),
        (Target::Serverless, "yyy"),
        (Target::Instance, "yyy"),
        (Target::Kubernetes, "-yy"),
        (Target::VirtualMachine, "yy-"),
        (Target::Spark, "yy-"),
        (Target::Databricks, "yy-"),
        (Target::DataLakeAnalytics, "-y-"),
        (Target::HdInsight, "-y-"),
        (Target::AzureBatch, "-y-"),
    ];

    #[test]
    fn r74_each_cell_is_taken_or_refused_by_name() {
        assert!(Target::all().eq(SEED.iter().map(|(target, _)| *target)));
        let place = Field::at("/properties/computeId");
        for (target, cells) in SEED {
            for (of, cell) in Use::ALL.into_iter().zip(cells.chars()) {
                let said = check(&place, target, of, "mine");
                assert_eq!(said.is_ok(), cell == 'y', "{target:?} for {of:?}");
                if let Err(refused) = said {
                    let (words, _) = target.row();
                    assert!(
                        refused.message.contains(words) && refused.message.contains(of.words()),
                        "{refused}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_document_says_its_row() {
        let document = json!({"properties": {"computeType": "amlcompute"}});
        assert_eq!(Target::of(&document), Some(Target::Cluster));
        assert_eq!(
            Target::of(&json!({"properties": {"computeType": "DataFactory"}})),
            None
        );
        assert_eq!(Target::named(" Local"), Some(Target::Local));
    }
}
