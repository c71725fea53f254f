"""Which files do the stock loaders of azure-ai-ml take? Reads JSON from stdin: {"files": FOLDER, "cases": [{"kind", "name", "text"}]};
writes a JSON list with one object per case: {"accepted": bool, "why": first line of the refusal}.
Each text is written into FOLDER, so that the paths in it are found, and loaded by the loader of its kind."""
import json
import logging
import os
import sys
import warnings

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)

import azure.ai.ml as ml  # noqa: E402
from azure.ai.ml.entities._load_functions import load_model_batch_deployment  # noqa: E402

LOADERS = {
    "compute": ml.load_compute,
    "job": ml.load_job,
    "pipeline": ml.load_job,
    "component": ml.load_component,
    "model": ml.load_model,
    "environment": ml.load_environment,
    "data": ml.load_data,
    "batch_endpoint": ml.load_batch_endpoint,
    "batch_deployment": ml.load_batch_deployment,
    "model_batch_deployment": load_model_batch_deployment,
    "online_endpoint": ml.load_online_endpoint,
    "online_deployment": ml.load_online_deployment,
    "datastore": ml.load_datastore,
    "workspace": ml.load_workspace,
}


def judged(folder, case):
    path = os.path.join(folder, "case.yml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(case["text"])
    try:
        LOADERS[case["kind"]](path)
        return {"accepted": True, "why": ""}
    except Exception as error:  # the loaders raise many kinds; each is a refusal
        lines = [line for line in str(error).splitlines() if line.strip()]
        return {"accepted": False, "why": " ".join(lines)[:300]}


asked = json.load(sys.stdin)
answers = [judged(asked["files"], case) for case in asked["cases"]]
json.dump(answers, sys.stdout)
