"""Workspaces, datastores, online endpoints and computes of every type as an SDK program handles them."""
import pathlib
import tempfile
import time

import requests
from client import DATA, SUBSCRIPTION, UNIQUE, URL, client, done, ended, refused, same

from azure.ai.ml import Input, command
from azure.ai.ml.entities import (
    AccountKeyConfiguration,
    AmlCompute,
    AzureBlobDatastore,
    AzureDataLakeGen1Datastore,
    AzureDataLakeGen2Datastore,
    AzureFileDatastore,
    CertificateConfiguration,
    ComputeInstance,
    Data,
    Environment,
    ManagedOnlineEndpoint,
    SasTokenConfiguration,
    ServicePrincipalConfiguration,
    SynapseSparkCompute,
    VirtualMachineCompute,
    VirtualMachineSshSettings,
    Workspace,
)
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

ml = client()

# workspaces
name = "ws-" + UNIQUE
made = done(ml.workspaces.begin_create(
    Workspace(name=name, location="local", description="mine", display_name="Mine", tags={"a": "b"})))
same((made.name, made.display_name, made.tags.get("a")), (name, "Mine", "b"), "a workspace is created")
made.description = "another"
same(done(ml.workspaces.begin_update(made)).description, "another", "it is updated")
same(name in [w.name for w in ml.workspaces.list()], True, "it is listed")
done(ml.workspaces.begin_create(Workspace(name=name, location="local")))
done(ml.workspaces.begin_delete(name, delete_dependent_resources=True, permanently_delete=True))
refused(lambda: ml.workspaces.get(name), ResourceNotFoundError, "was not found")

# datastores
principal = {"tenant_id": "t", "client_id": "c"}
for store, secret in [
    (AzureBlobDatastore(name="key_" + UNIQUE, account_name="acc", container_name="c",
                        credentials=AccountKeyConfiguration(account_key="k1")), "account_key"),
    (AzureBlobDatastore(name="sas_" + UNIQUE, account_name="acc", container_name="c",
                        credentials=SasTokenConfiguration(sas_token="sv=1&sig=x")), "sas_token"),
    (AzureBlobDatastore(name="open_" + UNIQUE, account_name="acc", container_name="c"), None),
    (AzureFileDatastore(name="file_" + UNIQUE, account_name="acc", file_share_name="f",
                        credentials=AccountKeyConfiguration(account_key="k1")), "account_key"),
    (AzureDataLakeGen2Datastore(name="gen2_" + UNIQUE, account_name="acc", filesystem="f",
                                credentials=ServicePrincipalConfiguration(client_secret="s", **principal)), "client_secret"),
    (AzureDataLakeGen1Datastore(name="gen1_" + UNIQUE, store_name="lake",
                                credentials=CertificateConfiguration(certificate="x", thumbprint="y", **principal)), "certificate"),
]:
    ml.datastores.create_or_update(store)
    found = ml.datastores.get(store.name)
    same(type(found), type(store), f"{store.name} has its class")
    if secret:
        same(getattr(found.credentials, secret), None, "its secret is not given back")
        ml.datastores.create_or_update(found)
        again = ml.datastores.get(store.name, include_secrets=True)
        same(getattr(again.credentials, secret), getattr(store.credentials, secret), "and is there when it is asked for")
    ml.datastores.delete(store.name)
same(ml.datastores.get_default().name, "workspaceblobstore", "the default datastore")

# jobs read from attached ones: a folder that the server names, and a container of Azure's protocol, which is the server's own
default = ml.datastores.get_default(include_secrets=True)
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "note.txt").write_text("in blobs " + UNIQUE)
asset = ml.data.create_or_update(Data(name="note-" + UNIQUE, path=str(folder), type="uri_folder"))
inside = asset.path.split("/paths/")[1]
ml.datastores.create_or_update(AzureBlobDatastore(name="folder_" + UNIQUE, account_name="-", container_name="-",
                                                  tags={"zaffre.folder": "rows"}))
ml.datastores.create_or_update(AzureBlobDatastore(
    name="blobs_" + UNIQUE, account_name=default.account_name, container_name=default.container_name, protocol="http",
    credentials=SasTokenConfiguration(sas_token=default.credentials.sas_token)))
cluster = "reads-" + UNIQUE
done(ml.begin_create_or_update(AmlCompute(name=cluster, min_instances=0, max_instances=1)))
for path, wanted in [(f"folder_{UNIQUE}/paths/in/", "in the folder"), (f"blobs_{UNIQUE}/paths/{inside}", "in blobs " + UNIQUE)]:
    job = ml.jobs.create_or_update(command(
        command="cat ${{inputs.rows}}/*.txt", environment=Environment(image="x"), compute=cluster,
        inputs={"rows": Input(type="uri_folder", path="azureml://datastores/" + path)}))
    same(ended(ml, job.name), "Completed", "a job reads from " + path.split("/")[0])
    ml.jobs.download(job.name, download_path=str(folder / job.name), all=True)
    text = (folder / job.name / "artifacts" / "user_logs" / "std_log.txt").read_text()
    same(wanted in text, True, "what is there")
for name in ["folder_", "blobs_"]:
    ml.datastores.delete(name + UNIQUE)
done(ml.compute.begin_delete(cluster))

# computes that run, and those that are only known
instance = "ci-" + UNIQUE
done(ml.compute.begin_create_or_update(ComputeInstance(name=instance, size="Standard_DS3_v2")))
same(ml.compute.get(instance).state, "Running", "an instance runs")
done(ml.compute.begin_stop(instance))
refused(lambda: ml.jobs.create_or_update(command(command="true", environment=Environment(image="x"), compute=instance)),
        HttpResponseError, "is stopped")
done(ml.compute.begin_start(instance))
job = ml.jobs.create_or_update(command(command="echo on the instance", environment=Environment(image="x"), compute=instance))
ml.jobs.stream(job.name)
same(ml.jobs.get(job.name).status, "Completed", "a job runs on it")
done(ml.compute.begin_delete(instance))
resource = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/rg1/providers/"
for compute in [
    VirtualMachineCompute(name="vm-" + UNIQUE, resource_id=resource + "Microsoft.Compute/virtualMachines/box1",
                          ssh_settings=VirtualMachineSshSettings(admin_username="me", admin_password="hunter2hunter2")),
    SynapseSparkCompute(name="sp-" + UNIQUE, resource_id=resource + "Microsoft.Synapse/workspaces/w/bigDataPools/p"),
]:
    done(ml.compute.begin_attach(compute))
    same(type(ml.compute.get(compute.name)), type(compute), f"{compute.name} has its class")
    refused(lambda: ml.jobs.create_or_update(command(command="true", environment=Environment(image="x"), compute=compute.name)),
            HttpResponseError, "no work runs on one yet")
    refused(lambda: done(ml.compute.begin_start(compute.name)), HttpResponseError, "only a compute instance")
    done(ml.compute.begin_delete(compute.name, action="Detach"))

# what the SDK has no class for is made over REST and read by it
token = (DATA / "token").read_text().strip()
at = f"{URL}/subscriptions/{SUBSCRIPTION}/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default"
for kind in ["HDInsight", "Databricks", "DataLakeAnalytics"]:
    body = {"location": "local", "properties": {"computeType": kind, "resourceId": resource + kind, "properties": {}}}
    path = f"{at}/computes/c-{kind.lower()}?api-version=2099-01-01-preview"
    answer = requests.put(path, json=body, headers={"Authorization": "Bearer " + token}, timeout=30)
    same(answer.status_code, 201, f"{kind} is attached")
    same(type(ml.compute.get("c-" + kind.lower())).__name__, "UnsupportedCompute", "the SDK shows it")
    done(ml.compute.begin_delete("c-" + kind.lower(), action="Detach"))

# an online endpoint and its keys
endpoint = "ep-" + UNIQUE
done(ml.online_endpoints.begin_create_or_update(ManagedOnlineEndpoint(name=endpoint, auth_mode="key")))
same(type(ml.online_endpoints.get(endpoint)).__name__, "ManagedOnlineEndpoint", "the endpoint has its class")
first = ml.online_endpoints.get_keys(endpoint)
done(ml.online_endpoints.begin_regenerate_keys(endpoint, key_type="secondary"))
second = ml.online_endpoints.get_keys(endpoint)
same((first.primary_key == second.primary_key, first.secondary_key == second.secondary_key), (True, False), "one key is new")
done(ml.online_endpoints.begin_delete(endpoint))

# endpoints whose callers show tokens: one of their own, or one of whoever calls
for mode, kind in (("aml_token", "EndpointAuthToken"), ("aad_token", "EndpointAadToken")):
    endpoint = f"{mode.replace('_', '-')}-{UNIQUE}"
    done(ml.online_endpoints.begin_create_or_update(ManagedOnlineEndpoint(name=endpoint, auth_mode=mode)))
    token = ml.online_endpoints.get_keys(endpoint)
    same((type(token).__name__, bool(token.access_token)), (kind, True), f"a {mode} endpoint has a token")
    assert 0 < token.expiry_time_utc - time.time() <= 3700, token.expiry_time_utc
    done(ml.online_endpoints.begin_delete(endpoint))
