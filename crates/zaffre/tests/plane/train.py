"""A training script as people write it: it knows MLflow and nothing of where it runs."""

import pathlib
import sys

import mlflow

with mlflow.start_run() as run:
    mlflow.log_param("lr", 0.1)
    for step in range(5):
        mlflow.log_metric("accuracy", 0.5 + step / 10, step=step)
    mlflow.log_metrics({"f1": 0.25, "loss/学習": float("inf")})
    mlflow.set_tag("team", "赤")
    folder = pathlib.Path("model")
    folder.mkdir()
    (folder / "MLmodel").write_text("flavors:\n  python_function:\n    loader_module: none\n")
    (folder / "重み.bin").write_bytes(bytes(range(256)) * 4096)
    (folder / ".hidden").write_text("")
    mlflow.log_artifacts("model", artifact_path="model")
    mlflow.log_text("日本", "notes/読む.txt")
    version = mlflow.register_model(f"runs:/{run.info.run_id}/model", "trained")
    with mlflow.start_run(run_name="inner", nested=True) as inner:
        mlflow.log_metric("accuracy", 1.0)
    found = mlflow.MlflowClient().search_runs(
        [run.info.experiment_id], "metrics.accuracy > 0.95", order_by=["metrics.accuracy DESC"]
    )
    assert [r.info.run_name for r in found] == ["inner"], found
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "accuracy")
    assert [(m.step, round(m.value, 1)) for m in history] == [(i, round(0.5 + i / 10, 1)) for i in range(5)], history
    assert inner.info.experiment_id == run.info.experiment_id

local = mlflow.artifacts.download_artifacts("models:/trained/1", dst_path=sys.argv[1])
assert (pathlib.Path(local) / "重み.bin").read_bytes() == bytes(range(256)) * 4096
assert (pathlib.Path(local) / ".hidden").read_text() == ""
model = mlflow.initialize_logged_model(name="kept")
mlflow.MlflowClient().log_model_artifacts(model.model_id, "model")
mlflow.finalize_logged_model(model.model_id, "READY")
second = mlflow.register_model(f"models:/{model.model_id}", "trained")
assert (version.version, second.version) == ("1", "2") or (version.version, second.version) == (1, 2), (version, second)
print("logged", run.info.run_id)
