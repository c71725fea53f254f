"""What every program here begins with: a client of the stock azure-ai-ml that speaks to the server of the test.

ZAFFRE_URL is its address, ZAFFRE_DATA its data folder: the certificate to trust and the token lie there."""
import logging
import os
import pathlib
import time
import uuid
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
DATA = pathlib.Path(os.environ["ZAFFRE_DATA"])
URL = os.environ["ZAFFRE_URL"]
os.environ["REQUESTS_CA_BUNDLE"] = str(DATA / "ca.pem")
os.environ["ARM_CLOUD_METADATA_URL"] = URL + "/metadata/endpoints"

from azure.ai.ml import MLClient  # noqa: E402
from azure.core.credentials import AccessToken  # noqa: E402

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
# Names that no run before has used.
UNIQUE = uuid.uuid4().hex[:6]
PATIENCE = 240


class Token:
    """The token of the server, as its file has it."""

    def get_token(self, *scopes, **options):
        return AccessToken((DATA / "token").read_text().strip(), int(time.time()) + 3600)


def client():
    return MLClient(Token(), SUBSCRIPTION, "default", "default")


def signed_in():
    """A client that has signed in: pipelines want a token that can be read (wire §1)."""
    from azure.identity import EnvironmentCredential

    os.environ.update(
        AZURE_AUTHORITY_HOST=URL, AZURE_TENANT_ID="adfs", AZURE_CLIENT_ID="zaffre",
        AZURE_CLIENT_SECRET=(DATA / "token").read_text().strip())
    return MLClient(EnvironmentCredential(), SUBSCRIPTION, "default", "default")


def done(poller):
    """The result of a long-running operation."""
    return poller.result(timeout=PATIENCE)


def ended(ml, name):
    """The status that a job ends with."""
    end = time.time() + PATIENCE
    while time.time() < end:
        status = ml.jobs.get(name).status
        if status in ("Completed", "Failed", "Canceled"):
            return status
        time.sleep(0.5)
    raise AssertionError(f"job {name} has not ended")


def same(got, wanted, what):
    assert got == wanted, f"{what}: {got!r}, not {wanted!r}"
    print("ok", what, flush=True)


def refused(act, kind, text):
    """`act` fails with `kind`, and the message says `text`."""
    try:
        act()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {error}"
        print("ok refused:", text, flush=True)
        return error
    raise AssertionError(f"nothing was refused: {text}")


def kubernetes(ml, name):
    """This machine as a Kubernetes compute with two types of its own."""
    from azure.ai.ml.entities import KubernetesCompute

    def of(gpus, selector):
        limits = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": gpus}
        requests = {"cpu": "100m", "memory": "100Mi"}
        return {"nodeSelector": selector, "resources": {"requests": requests, "limits": limits}}

    types = {"cpusmall": of(0, None), "gpusmall": of(1, {"mylabel": "mylabelvalue"})}
    return done(ml.compute.begin_create_or_update(
        KubernetesCompute(name=name, namespace="azureml", properties={"instanceTypes": types})))
