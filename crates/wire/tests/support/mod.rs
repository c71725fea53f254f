//! What the tests of views share.

use model::{
    Resources, TaskSpec,
    engine::{BlobPath, EnvironmentSpec, Packages, Program},
};
use std::collections::BTreeMap;

/// A command without anything around it.
pub fn command(artifacts: BlobPath) -> TaskSpec {
    TaskSpec {
        program: Program::Command {
            line: "true".into(),
        },
        environment: EnvironmentSpec {
            label: "e:1".into(),
            image: None,
            packages: Packages::None,
        },
        code: None,
        inputs: BTreeMap::new(),
        outputs: BTreeMap::new(),
        model: None,
        variables: BTreeMap::new(),
        limits: Resources::default(),
        artifacts,
    }
}
