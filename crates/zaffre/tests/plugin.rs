//! `azureml-mlflow`, unmodified: what a program needs that says `mlflow.set_tracking_uri(workspace.mlflow_tracking_uri)`.
//!
//! Its Python is made once per target folder, or is the one that `ZAFFRE_PLUGIN_PYTHON` names.

mod support;

use std::process::Command;
use support::{Server, plain::WS, venv};

/// It pins the MLflow and the blob client that it wants.
const REQUIREMENTS: [&str; 1] = ["azureml-mlflow==1.62.0.post6"];

const PROGRAM: &str = r#"
import pathlib, sys, tempfile
import mlflow
mlflow.set_tracking_uri(sys.argv[1])
mlflow.set_experiment("心臓")
with mlflow.start_run() as run:
    mlflow.log_metric("m", 1.5)
    mlflow.log_text("hello", "a/b.txt")
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "deep").mkdir()
    (folder / "MLmodel").write_text("flavors: {}")
    (folder / "deep" / "語.txt").write_text("z")
    mlflow.log_artifacts(str(folder), "tree")
    print(mlflow.artifacts.load_text(run.info.artifact_uri + "/a/b.txt"))
id = run.info.run_id
client = mlflow.MlflowClient()
print(client.get_run(id).data.metrics, [(f.path, f.is_dir) for f in client.list_artifacts(id)])
got = client.download_artifacts(id, "tree", tempfile.mkdtemp())
print(sorted(p.name for p in pathlib.Path(got).rglob("*")))
client.create_registered_model("rm")
version = client.create_model_version("rm", run.info.artifact_uri + "/tree", run_id=id)
print(version.version, version.status)
at = client.get_model_version_download_uri("rm", version.version)
print(sorted(p.name for p in pathlib.Path(mlflow.artifacts.download_artifacts(at)).rglob("*")))
"#;

#[test]
fn the_plugin_of_azure_logs_artifacts_and_registers_what_it_has_logged() {
    let server = Server::start();
    let python = venv::python("ZAFFRE_PLUGIN_PYTHON", &REQUIREMENTS);
    let host = server.url.strip_prefix("https://").unwrap();
    let output = Command::new(python)
        .args([
            "-W",
            "ignore",
            "-c",
            PROGRAM,
            &format!("azureml://{host}/mlflow/v1.0{WS}"),
        ])
        .current_dir(&server.folder)
        .env("HOME", &server.folder)
        .env("TMPDIR", &server.folder)
        .env("NO_PROXY", "*")
        .env("REQUESTS_CA_BUNDLE", server.data().join("ca.pem"))
        .env(
            "ARM_CLOUD_METADATA_URL",
            format!("{}/metadata/endpoints", server.url),
        )
        .env("AZURE_AUTHORITY_HOST", &server.url)
        .env("AZURE_TENANT_ID", "adfs")
        .env("AZURE_CLIENT_ID", "zaffre")
        .env("AZURE_CLIENT_SECRET", server.token())
        .env_remove("AZUREML_CURRENT_CLOUD")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}{error}");
    let said: Vec<&str> = said.lines().filter(|l| !l.contains("View ")).collect();
    assert_eq!(
        said,
        [
            "hello",
            "{'m': 1.5} [('a', True), ('tree', True)]",
            "['MLmodel', 'deep', '語.txt']",
            "1 READY",
            "['MLmodel', 'deep', '語.txt']",
        ],
        "{error}"
    );
    let model = server.value(&["model", "show", "-n", "rm", "-v", "1"], "type");
    assert_eq!(model, "mlflow_model");
    server.stop();
}
