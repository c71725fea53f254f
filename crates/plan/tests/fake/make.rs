//! Short ways to make specs.

use model::{
    BatchSpec, BlobPath, ClusterSpec, Declared, DocKey, Document, JobId, Kind, Millis, Quotas,
    Resources, RunSpec, Size, TaskSpec, Tier, Time, Work, Workspace,
    batch::{BatchOutput, OnCapacityLoss},
    engine::{EnvironmentSpec, Packages, PoolSpec, Program, RowFormat},
};
use std::{collections::BTreeMap, sync::Arc};

pub fn path(text: &str) -> BlobPath {
    BlobPath::new(text).unwrap()
}

pub fn document(workspace: &Arc<Workspace>, kind: Kind, name: &str, at: Time) -> Document {
    Document {
        key: DocKey::new(workspace, kind, name),
        generation: 1,
        json: "{}".into(),
        created: at,
        modified: at,
        by: "test".into(),
    }
}

pub fn size(cores: u32) -> Size {
    Size {
        name: format!("Standard_D{cores}").as_str().into(),
        family: "standardDFamily".into(),
        cores,
        memory: model::Bytes(1 << 30),
        gpus: 0,
    }
}

pub fn cluster(tier: Tier, cores: u32, min: u32, max: u32, idle: Millis) -> ClusterSpec {
    ClusterSpec {
        size: size(cores),
        tier,
        min,
        max,
        idle,
        pods: None,
    }
}

fn task(program: Program) -> Arc<TaskSpec> {
    Arc::new(TaskSpec {
        program,
        environment: EnvironmentSpec {
            label: "env:1".into(),
            image: None,
            packages: Packages::None,
        },
        code: None,
        inputs: BTreeMap::new(),
        outputs: BTreeMap::new(),
        model: None,
        variables: BTreeMap::new(),
        limits: Resources::default(),
        artifacts: path("azureml/run"),
    })
}

pub fn command(compute: &model::ComputeId, instances: u32, timeout: Option<Millis>) -> RunSpec {
    RunSpec {
        compute: compute.clone(),
        instances,
        task: task(Program::Command {
            line: "true".into(),
        }),
        work: Work::Command,
        timeout,
        instance_type: None,
        part: None,
    }
}

/// What differs between batch runs in tests.
#[derive(Clone, Debug)]
pub struct BatchOf {
    pub group: u32,
    pub workers: u32,
    pub retries: u32,
    pub threshold: i64,
    pub mini_batch_threshold: i64,
    pub percent: u32,
    pub wait: bool,
    pub summary: bool,
    pub max_preemptions: Option<u32>,
    pub resume_from: Option<JobId>,
    pub fingerprint: String,
    /// Of a step of a pipeline: the input that it lists.
    pub input_from: Option<String>,
}
impl Default for BatchOf {
    fn default() -> Self {
        BatchOf {
            group: 1,
            workers: 2,
            retries: 3,
            threshold: -1,
            mini_batch_threshold: -1,
            percent: 100,
            wait: false,
            summary: false,
            max_preemptions: None,
            resume_from: None,
            fingerprint: "f".into(),
            input_from: None,
        }
    }
}

pub fn batch(compute: &model::ComputeId, instances: u32, of: &BatchOf) -> RunSpec {
    let pool = PoolSpec {
        workers: of.workers,
        script: Some("score.py".into()),
        arguments: Vec::new(),
        rows: None,
        shutdown: false,
        listing: path("azureml/run/listing"),
        root: path("data/in"),
        group: of.group,
        timeout: Millis::secs(30),
        format: RowFormat::Csv,
        collect: !of.summary,
        header: false,
        shared_output: path("azureml/run/shared"),
        logging_level: "info".into(),
    };
    let spec = BatchSpec {
        input: path("data/in"),
        input_is_folder: true,
        input_from: of.input_from.as_deref().map(Into::into),
        mini_batch_size: of.group,
        workers_per_node: of.workers,
        max_retries: of.retries,
        timeout: Millis::secs(30),
        error_threshold: of.threshold,
        mini_batch_error_threshold: of.mini_batch_threshold,
        allowed_failed_percent: of.percent,
        output: if of.summary {
            BatchOutput::SummaryOnly
        } else {
            BatchOutput::AppendRow {
                file: "predictions.csv".into(),
            }
        },
        output_folder: path("azureml/run/score"),
        segment: path("azureml/run/segment"),
        on_capacity_loss: if of.wait {
            OnCapacityLoss::Wait
        } else {
            OnCapacityLoss::Cancel
        },
        max_preemptions: of.max_preemptions,
        resume_from: of.resume_from.clone(),
        fingerprint: of.fingerprint.as_str().into(),
    };
    RunSpec {
        compute: compute.clone(),
        instances,
        task: task(Program::Pool(pool)),
        work: Work::Batch(Box::new(spec)),
        timeout: None,
        instance_type: None,
        part: None,
    }
}

pub fn quotas(dedicated: u32, family: u32, low_priority: u32) -> Declared {
    Declared::Quotas(Arc::new(Quotas {
        dedicated_total: dedicated,
        family_default: family,
        families: BTreeMap::new(),
        low_priority,
    }))
}
