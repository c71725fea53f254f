"""Trains a heart condition classifier on CSV rows and saves it as an MLflow model folder.

    python train.py heart-train.csv heart-classifier

needs mlflow-skinny, pandas and scikit-learn (`pip install -r requirements.txt`). The column `target` is what is learnt.
"""

import pathlib
import shutil
import sys

import mlflow.sklearn
import pandas
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder


def as_text(frame):
    """A file whose only value is missing has a column of numbers where others have text."""
    return frame.astype(str)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: train.py ROWS.csv MODEL_FOLDER")
    rows, folder = pandas.read_csv(sys.argv[1]), pathlib.Path(sys.argv[2])
    features, labels = rows.drop(columns="target"), rows["target"]
    text = [name for name in features.columns if not pandas.api.types.is_numeric_dtype(features[name])]
    encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    codes = make_pipeline(FunctionTransformer(as_text), encoder)
    model = make_pipeline(
        make_column_transformer((codes, text), remainder="passthrough"),
        HistGradientBoostingClassifier(random_state=0),
    )
    model.fit(features, labels)
    print(f"{len(rows)} rows, {model.score(features, labels):.3f} of them classified as labelled")
    shutil.rmtree(folder, ignore_errors=True)
    requirements = pathlib.Path(__file__).with_name("requirements.txt").read_text().split()
    mlflow.sklearn.save_model(model, folder, serialization_format="cloudpickle", pip_requirements=requirements)


if __name__ == "__main__":
    main()
