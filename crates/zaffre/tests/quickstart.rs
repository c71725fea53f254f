//! `zaffre quickstart` as a new user types it: it runs `examples/quickstart` (train.yml and the files beside it) for real.

use std::{fs, process::Command};

#[test]
fn quickstart_ends_with_every_row() {
    let home = "/tmp/zaffre-tests-home";
    fs::create_dir_all(home).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let out = Command::new(env!("CARGO_BIN_EXE_zaffre"))
        .arg("quickstart")
        .current_dir(folder.path())
        .env("ZAFFRE_HOME", home)
        .env_remove("ZAFFRE_SERVER")
        .output()
        .unwrap();
    let (said, log) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(out.status.success(), "{said}\n{log}");
    assert!(
        said.contains("240 rows, each exactly once") || log.contains("240 rows, each exactly once"),
        "{said}\n{log}"
    );
    assert!(
        said.contains("preempted") || log.contains("preempted"),
        "a node was taken"
    );
}
