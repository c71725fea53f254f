"""A hill with its top at rate 0.3 and depth 2, in place of a model that takes hours."""
import json
import os
import ssl
import sys
import urllib.request


def log_metric(name, value):
    """mlflow.log_metric(name, value), where mlflow is installed; else the request that it would send."""
    try:
        import mlflow
    except ImportError:
        pass
    else:
        return mlflow.log_metric(name, value)
    body = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": name, "value": value, "timestamp": 0, "step": 0}
    urllib.request.urlopen(
        urllib.request.Request(
            os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric",
            json.dumps(body).encode(),
            {
                "Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"],
                "Content-Type": "application/json",
            },
        ),
        context=ssl.create_default_context(cafile=os.environ["REQUESTS_CA_BUNDLE"]),
    )


rate, depth = float(sys.argv[1]), int(sys.argv[2])
accuracy = 1 - (rate - 0.3) ** 2 - (depth - 2) ** 2 / 10
log_metric("accuracy", accuracy)
print("accuracy", accuracy)
