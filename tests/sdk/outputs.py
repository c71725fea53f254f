"""Outputs with a name become assets (`Output(name=…, version=…)`): of a command, of a step and of the pipeline around it, of
the best trial of a sweep; and a later job reads them by `azureml:NAME@latest`."""
import pathlib
import tempfile

from client import UNIQUE, done, ended, refused, same, signed_in

from azure.ai.ml import Input, Output, command, dsl
from azure.ai.ml.entities import AmlCompute, Environment
from azure.ai.ml.sweep import Choice
from azure.core.exceptions import HttpResponseError

ml = signed_in()
done(ml.compute.begin_create_or_update(
    AmlCompute(name="cpu", size="STANDARD_DS2_v2", min_instances=0, max_instances=2)))
environment = Environment(image="library/python:latest")
rows, model, whole, best = ("rows-" + UNIQUE, "clf-" + UNIQUE, "whole-" + UNIQUE, "best-" + UNIQUE)
folder = pathlib.Path(tempfile.mkdtemp())


def make(version=None):
    return command(
        command="echo 7 > ${{outputs.rows}}/n && mkdir -p ${{outputs.model}} && echo w > ${{outputs.model}}/MLmodel",
        environment=environment,
        compute="cpu",
        outputs={
            "rows": Output(type="uri_folder", name=rows),
            "model": Output(type="mlflow_model", name=model, version=version),
        },
    )


job = ml.jobs.create_or_update(make("3"))
same(ended(ml, job.name), "Completed", "a command whose outputs have names")
same(ml.data.get(rows, "1").type, "uri_folder", "its data asset")
same(ml.models.get(model, "3").type, "mlflow_model", "its model")
same(ml.models.get(model, "3").job_name, job.name, "the model names its job")
shown = ml.jobs.get(job.name).outputs["model"]
same(shown.name, model, "the job names its asset")
ml.jobs.download(job.name, download_path=str(folder), output_name="rows")
same((folder / "named-outputs" / "rows" / "n").read_text(), "7\n", "an output that is registered is downloaded")
ml.models.download(model, "3", download_path=str(folder))
same([p.read_text() for p in folder.rglob("MLmodel")], ["w\n"], "so is the model")
refused(lambda: ml.jobs.create_or_update(make("3")), HttpResponseError, f"model {model}:3 exists already")

use = command(
    command="cat ${{inputs.rows}}/n",
    environment=environment,
    compute="cpu",
    inputs={"rows": Input(type="uri_folder", path=f"azureml:{rows}@latest")},
)
used = ml.jobs.create_or_update(use)
same(ended(ml, used.name), "Completed", "a job that reads the newest version")


@dsl.pipeline(default_compute="cpu")
def pipeline():
    first = make()()
    first.outputs.rows.name, first.outputs.rows.version = rows, "9"
    first.outputs.model.name = model
    second = command(
        command="cp ${{inputs.rows}}/n ${{outputs.out}}/m",
        environment=environment,
        inputs={"rows": Input(type="uri_folder")},
        outputs={"out": Output(type="uri_folder")},
    )(rows=first.outputs.rows)
    return {"out": second.outputs.out}


asked = pipeline()
asked.outputs.out.name = whole
made = ml.jobs.create_or_update(asked)
same(ended(ml, made.name), "Completed", "a pipeline whose outputs have names")
same(ml.data.get(rows, "9").type, "uri_folder", "the data asset of its step")
same(sorted(m.version for m in ml.models.list(model)), ["3", "4"], "the model of its step is the next version")
same(ml.data.get(whole, "1").type, "uri_folder", "the data asset of the pipeline")

source = pathlib.Path(__file__).parents[2] / "examples" / "sweep" / "src"
trial = command(
    command="python train.py ${{inputs.rate}} 2 && echo ${{inputs.rate}} > ${{outputs.out}}/rate",
    code=str(source),
    environment=environment,
    compute="cpu",
    inputs={"rate": 0.1},
    outputs={"out": Output(type="uri_folder", name=best)},
)
sweep = trial(rate=Choice([0.1, 0.3])).sweep(
    compute="cpu", sampling_algorithm="grid", primary_metric="accuracy", goal="maximize")
sweep.set_limits(max_total_trials=2, max_concurrent_trials=1)
hill = ml.jobs.create_or_update(sweep)
same(ended(ml, hill.name), "Completed", "a sweep whose output has a name")
same([d.version for d in ml.data.list(best)], ["1"], "one version for all trials")
top = ml.jobs.get(hill.name).properties["best_child_run_id"]
same(f"/{top}/" in ml.data.get(best, "1").path, True, "it is what the best trial has made")
