"""Workspaces, datastores, online endpoints and computes of every type as an SDK program handles them."""
import requests
from client import DATA, SUBSCRIPTION, UNIQUE, URL, client, done, refused, same

from azure.ai.ml import command
from azure.ai.ml.entities import (
    AccountKeyConfiguration,
    AzureBlobDatastore,
    AzureDataLakeGen1Datastore,
    AzureDataLakeGen2Datastore,
    AzureFileDatastore,
    CertificateConfiguration,
    ComputeInstance,
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
done(ml.workspaces.begin_delete(name, delete_dependent_resources=False, permanently_delete=True))
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
