"""Seed 001: a cluster of low-priority nodes, and a batch deployment that uses it, written with the classes of the SDK."""
import csv
import pathlib
import sys
import tempfile

from client import UNIQUE, client, done, ended, same

from azure.ai.ml import Input
from azure.ai.ml.constants import BatchDeploymentOutputAction
from azure.ai.ml.entities import (
    AmlCompute,
    BatchEndpoint,
    BatchRetrySettings,
    CodeConfiguration,
    Environment,
    Model,
    ModelBatchDeployment,
    ModelBatchDeploymentSettings,
)

ml = client()
folder = pathlib.Path(tempfile.mkdtemp())
hearts = pathlib.Path(sys.argv[1])

compute_name = "low-pri-" + UNIQUE
made = done(ml.begin_create_or_update(AmlCompute(
    name=compute_name, description="Low priority compute cluster", min_instances=0, max_instances=2, tier="LowPriority")))
same((made.tier, made.max_instances), ("low_priority", 2), "the cluster is of low priority")

# A model that is a threshold, and a driver that gives one row per row of its files.
(folder / "model").mkdir()
(folder / "model" / "threshold.txt").write_text("55")
(folder / "code").mkdir()
(folder / "code" / "driver.py").write_text('''
import csv, glob, os

def init():
    global threshold
    found = glob.glob(os.environ["AZUREML_MODEL_DIR"] + "/**/threshold.txt", recursive=True)
    threshold = int(open(found[0]).read())

def run(mini_batch):
    rows = []
    for path in mini_batch:
        with open(path) as file:
            for number, row in enumerate(csv.DictReader(file)):
                rows.append(f"{os.path.basename(path)} {number} {int(int(row['age']) > threshold)}")
    return rows
''')
model = ml.models.create_or_update(Model(name="heart-" + UNIQUE, path=str(folder / "model"), type="custom_model"))
endpoint = done(ml.batch_endpoints.begin_create_or_update(BatchEndpoint(name="heart-" + UNIQUE)))

deployment = ModelBatchDeployment(
    name="classifier-xgboost",
    description="A heart condition classifier based on XGBoost",
    endpoint_name=endpoint.name,
    model=model,
    compute=compute_name,
    environment=Environment(image="library/python:latest"),
    code_configuration=CodeConfiguration(code=str(folder / "code"), scoring_script="driver.py"),
    settings=ModelBatchDeploymentSettings(
        instance_count=2,
        max_concurrency_per_instance=2,
        mini_batch_size=2,
        output_action=BatchDeploymentOutputAction.APPEND_ROW,
        output_file_name="predictions.csv",
        retry_settings=BatchRetrySettings(max_retries=3, timeout=300),
    ),
)
done(ml.batch_deployments.begin_create_or_update(deployment))
found = ml.batch_deployments.get("classifier-xgboost", endpoint.name)
same((found.mini_batch_size, found.resources.instance_count, found.retry_settings.timeout), (2, 2, 300), "its settings")

job = ml.batch_endpoints.invoke(
    endpoint_name=endpoint.name, deployment_name="classifier-xgboost", input=Input(type="uri_folder", path=str(hearts)))
same(ended(ml, job.name), "Completed", "the batch job completes")
ml.jobs.download(job.name, download_path=str(folder / "out"), output_name="score")
scored = sorted((folder / "out" / "predictions.csv").read_text().splitlines())
wanted = []
for path in hearts.glob("*.csv"):
    with open(path) as file:
        for number, row in enumerate(csv.DictReader(file)):
            wanted.append(f"{path.name} {number} {int(int(row['age']) > 55)}")
same(scored, sorted(wanted), f"every one of {len(wanted)} rows is scored once")

done(ml.batch_endpoints.begin_delete(endpoint.name))
done(ml.compute.begin_delete(compute_name))
