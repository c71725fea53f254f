//! Environments: built once for all who wait, named when they cannot be. Needs uv, or pip to install it; says so when neither works.

mod support;

use model::{BlobPath, Exit, TaskId, TaskSpec, engine::Packages};
use std::{
    io::{Write, stderr},
    process::Command,
};
use support::{Rig, task};

const WHEEL: &str = "import zipfile, sys\n\
    z = zipfile.ZipFile(sys.argv[1], 'w')\n\
    z.writestr('zaffre_probe.py', 'WORD = \"from the wheel\"\\n')\n\
    z.writestr('zaffre_probe-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: zaffre-probe\\nVersion: 1.0\\n')\n\
    z.writestr('zaffre_probe-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
    z.writestr('zaffre_probe-1.0.dist-info/RECORD', '')\n";

fn conda(rig: &Rig, line: &str, pip: &str) -> TaskSpec {
    let mut spec = rig.command(line);
    spec.environment.label = "probe:1".into();
    spec.environment.image = Some("example/image:1".into());
    let text = format!(
        "channels: [x]\ndependencies:\n  - python>=3.8\n  - pip\n  - pip:\n    - \"{pip}\"\n"
    );
    spec.environment.packages = Packages::Conda(text.into());
    spec
}

#[test]
fn one_build_serves_two_nodes_and_a_failed_one_says_why() {
    let rig = Rig::new("venv");
    let wheel = rig.dir.join("zaffre_probe-1.0-py3-none-any.whl");
    let made = Command::new("python3")
        .args(["-c", WHEEL])
        .arg(&wheel)
        .status();
    assert!(made.unwrap().success());
    let pip = format!("zaffre-probe @ file://{}", wheel.display());
    let line = "python -c 'import zaffre_probe, sys; print(zaffre_probe.WORD, sys.prefix)'";
    let tasks: Vec<TaskId> = (0..2).map(|index| TaskId { index, ..task(1) }).collect();
    for (ordinal, task) in (0..).zip(&tasks) {
        let node = rig.node(ordinal);
        let mut spec = conda(&rig, line, &pip);
        spec.artifacts = BlobPath::new(&format!("runs/{ordinal}")).unwrap();
        rig.start(task, &node, spec);
    }
    for (ordinal, task) in tasks.iter().enumerate() {
        let exit = rig.exit(task);
        if matches!(&exit, Exit::NotStarted { message } if message.contains(": uv: ")) {
            let _ = writeln!(
                stderr(),
                "not tested: uv is not there and cannot be installed: {exit}"
            );
            return;
        }
        let log = rig.text(&format!("runs/{ordinal}/user_logs/std_log.txt"));
        assert_eq!(exit, Exit::Code(0), "{log}");
        assert!(
            log.contains("image example/image:1 is not run by this engine"),
            "{log}"
        );
        assert!(log.contains("from the wheel"), "{log}");
        assert!(log.contains("home/envs/"), "{log}");
    }
    let envs = std::fs::read_dir(rig.dir.join("home/envs")).unwrap();
    let folders = envs.filter(|e| e.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(folders, 1, "one environment, nothing half-built");

    let failing = TaskId {
        index: 2,
        ..task(1)
    };
    let missing = format!("zaffre-probe @ file://{}/no.whl", rig.dir.display());
    rig.start(&failing, &support::node(0), conda(&rig, line, &missing));
    let Exit::NotStarted { message } = rig.exit(&failing) else {
        panic!("it cannot be built")
    };
    assert!(
        message.starts_with("environment probe:1: uv failed"),
        "{message}"
    );
    assert!(message.contains("no.whl"), "{message}");
}
