"""Seed 002: a job and a model deployment that name an instance type; the imports are those that azure-ai-ml has
(behaviour §2.0)."""
import pathlib
import tempfile

from client import UNIQUE, client, done, ended, kubernetes, refused, same

from azure.ai.ml import command
from azure.ai.ml.entities import (
    CodeConfiguration,
    Environment,
    KubernetesOnlineDeployment,
    KubernetesOnlineEndpoint,
    Model,
    ResourceRequirementsSettings,
    ResourceSettings,
)
from azure.core.exceptions import HttpResponseError

ml = client()
name = "k8s-" + UNIQUE
kubernetes(ml, name)
folder = pathlib.Path(tempfile.mkdtemp())

job = ml.jobs.create_or_update(command(
    command="python -c \"print('Hello world!')\"",
    environment=Environment(image="python:3.12-slim"),
    compute=name,
    instance_type="cpusmall",
))
same(job.resources.instance_type, "cpusmall", "the job names its type")
same(ended(ml, job.name), "Completed", "the job completes")
ml.jobs.download(job.name, download_path=str(folder), all=True)
text = (folder / "artifacts" / "user_logs" / "std_log.txt").read_text()
same("Hello world!" in text, True, "it said what it was to say")

# without a type it gets the default one, which clients see
plain = ml.jobs.create_or_update(command(command="true", environment=Environment(image="python:3.12-slim"), compute=name))
same(ml.jobs.get(plain.name).resources.instance_type, "defaultinstancetype", "the default type")
same(ended(ml, plain.name), "Completed", "the job of the default type completes")
same("defaultinstancetype" in ml.compute.get(name).properties["instanceTypes"], True, "clients see the default type")

(folder / "script").mkdir()
(folder / "script" / "score.py").write_text("def init(): pass\ndef run(data): return data\n")
(folder / "model.pkl").write_text("weights")
endpoint = done(ml.online_endpoints.begin_create_or_update(
    KubernetesOnlineEndpoint(name="ep-" + UNIQUE, compute=name, auth_mode="key")))


def deployment(requests, limits, instance_type):
    return KubernetesOnlineDeployment(
        name="blue",
        endpoint_name=endpoint.name,
        model=Model(path=str(folder / "model.pkl")),
        environment=Environment(image="mcr.microsoft.com/azureml/openmpi3.1.2-ubuntu18.04:latest"),
        code_configuration=CodeConfiguration(code=str(folder / "script"), scoring_script="score.py"),
        resources=ResourceRequirementsSettings(requests=requests, limits=limits),
        instance_count=1,
        instance_type=instance_type,
    )


small = ResourceSettings(cpu="0.1", memory="0.2G")
for resources, instance_type, message in [
    (ResourceSettings(cpu="0.2", memory="0.5G", gpu="1"), "gpusmall", "serving is not there yet"),
    (ResourceSettings(cpu="0.2", memory="0.5G", gpu="1"), "cpusmall", "gpu limit 1 is above the limit 0"),
    (ResourceSettings(cpu="2", memory="0.5G"), "cpusmall", "cpu limit 2 is above the limit 1000m"),
    (ResourceSettings(cpu="3", memory="1G"), None, "above the limit 2000m of instance type defaultinstancetype"),
]:
    ask = deployment(small, resources, instance_type)
    refused(lambda: done(ml.online_deployments.begin_create_or_update(ask)), HttpResponseError, message)

done(ml.online_endpoints.begin_delete(endpoint.name))
done(ml.compute.begin_delete(name, action="Detach"))
