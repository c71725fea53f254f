"""A program of the stock azure-ai-ml, played over and over behind a bad network, and what its user does: begin again.

Each line of stdin is a name and the address of a server; a process of its own plays the program with this name against this
address, and answers one line: how often it had to be begun, and what it ended with when that was no good end.
"""
import json
import os
import pathlib
import shutil
import sys
import tempfile

import client as begin
from azure.ai.ml import MLClient, command
from azure.ai.ml.entities import AmlCompute, Data, Environment, Model
from azure.ai.ml.exceptions import MlException
from azure.core.exceptions import IncompleteReadError, ResourceExistsError, ServiceRequestError, ServiceResponseError
from azure.identity import ClientSecretCredential
from azure.storage.blob import ContainerClient

# What a network may do to a program, wherever its server is. Everything else is the server's fault.
NETWORK = (ServiceRequestError, ServiceResponseError, IncompleteReadError)
# The SDK asks once where its cloud is, and does not say why it does not know.
LOST_CLOUD = "Unknown cloud environment"
BEGUN = 3
AT_ONCE = int(os.environ.get("AT_ONCE", "3"))


def program(name, url):
    secret = (begin.DATA / "token").read_text().strip()
    credential = ClientSecretCredential("adfs", "zaffre", secret, authority=url, disable_instance_discovery=True)
    ml = MLClient(credential, begin.SUBSCRIPTION, "default", "default")
    folder = pathlib.Path(tempfile.mkdtemp())
    for part in ("code", "model"):
        (folder / part).mkdir()
        (folder / part / "one.txt").write_text(f"{part} {name}")
    (folder / "code" / "run.sh").write_text("echo once >> marks.txt\ntest $(wc -l < marks.txt) = 1\n")
    (folder / "rows.csv").write_text(f"rows,{name}\n")
    ml.compute.begin_create_or_update(
        AmlCompute(name=f"c-{name}", size="Standard_D1_v2", min_instances=0, max_instances=1)).result(timeout=begin.PATIENCE)
    ml.data.create_or_update(Data(name=f"d-{name}", version="1", type="uri_file", path=str(folder / "rows.csv")))
    ml.models.create_or_update(Model(name=f"m-{name}", version="1", type="custom_model", path=str(folder / "model")))
    large(ml, name)
    job = ml.jobs.create_or_update(command(
        name=f"j-{name}", code=str(folder / "code"), command="sh run.sh", compute=f"c-{name}",
        environment=Environment(name=f"e-{name}", version="1", image="library/python:latest")))
    assert job.name == f"j-{name}", job.name
    shutil.rmtree(folder)


def large(ml, name):
    """A blob of many blocks, sent and read with azure-storage-blob alone."""
    store = ml.datastores.get("workspaceblobstore", include_secrets=True)
    box = ContainerClient(
        f"{store.protocol}://{store.account_name}.blob.{store.endpoint}", store.container_name, credential=store.credentials.sas_token,
        max_single_put_size=1000, max_block_size=1000, max_single_get_size=2000, max_chunk_get_size=2000)
    data = (name * 4000)[:4000].encode()
    box.upload_blob(f"large/{name}", data, overwrite=True, validate_content=True)
    assert box.download_blob(f"large/{name}").readall() == data
    assert [blob.size for blob in box.list_blobs(name_starts_with=f"large/{name}")] == [len(data)]


def wrong(name, said, error):
    text = f"{type(error).__module__}.{type(error).__name__}: {error}"
    return {"name": name, "network": said, "error": text[:1500]}


def play(name, url):
    os.environ["ARM_CLOUD_METADATA_URL"] = url + "/metadata/endpoints"
    sys.stderr = open(os.devnull, "w")
    said = []
    while len(said) < BEGUN:
        try:
            program(name, url)
            return {"name": name, "network": said}
        except NETWORK as error:
            said.append(f"{type(error).__name__}: {error}"[:200])
        except MlException as error:
            # The SDK wraps what happened.
            if LOST_CLOUD not in str(error) and not isinstance(error.__cause__ or error.__context__, NETWORK):
                return wrong(name, said, error)
            said.append(str(error)[:200])
        except ResourceExistsError as error:
            # The SDK sends a blob that must be new, and repeats that when no answer came. Azure answers the same.
            if error.error_code != "BlobAlreadyExists":
                return wrong(name, said, error)
            said.append(error.error_code)
        except Exception as error:  # told to the test, which fails
            return wrong(name, said, error)
    return {"name": name, "network": said, "error": "begun too often"}


running = 0
for line in sys.stdin:
    name, url = line.split()
    if running == AT_ONCE:
        os.wait()
        running -= 1
    if os.fork() == 0:
        answer = json.dumps(play(name, url)) + "\n"
        os.write(1, answer.encode())
        os._exit(0)
    running += 1
while running:
    os.wait()
    running -= 1
