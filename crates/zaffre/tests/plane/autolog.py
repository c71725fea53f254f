"""A training script that leaves the logging to MLflow, and uses parts of it that are not offered: it ends well all the same."""

import mlflow

mlflow.autolog()
from sklearn.datasets import load_iris  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402

x, y = load_iris(return_X_y=True)
with mlflow.start_run():
    model = LogisticRegression(max_iter=200).fit(x, y)
    model.score(x, y)
    mlflow.sklearn.log_model(model, name="kept", registered_model_name="iris", input_example=x[:2])


@mlflow.trace
def doubled(number):
    with mlflow.start_span("inner") as span:
        span.set_inputs({"number": number})
    return 2 * number


assert doubled(21) == 42
mlflow.flush_trace_async_logging()

for call in (
    lambda: mlflow.search_traces(return_type="list"),
    lambda: mlflow.genai.register_prompt(name="greeting", template="hello {{name}}"),
    lambda: mlflow.MlflowClient().list_webhooks(),
):
    try:
        call()
    except mlflow.exceptions.MlflowException as error:
        assert "this part of MLflow is not offered here: " in str(error), error
        print("refused", str(error).rsplit(": ", 1)[1])
    else:
        raise AssertionError("it was offered")

found = mlflow.search_registered_models()
assert [m.name for m in found] == ["iris"], found
assert list(mlflow.pyfunc.load_model("models:/iris/1").predict(x[:2])) == [0, 0]
print("all is well")
