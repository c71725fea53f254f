"""Trains a classifier on the breast cancer data of scikit-learn, saves it as an MLflow model, and sets aside rows to score."""

import argparse
import pathlib

import mlflow.sklearn
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split

FILES = 48
# A forest of this size makes scoring take a noticeable time, so that a node can be lost in the middle of it.
TREES = 1500


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--unlabelled", required=True)
    args = parser.parse_args()

    data = load_breast_cancer(as_frame=True)
    train, test, train_labels, test_labels = train_test_split(
        data.data, data.target, test_size=240, random_state=0, stratify=data.target
    )
    print(f"{len(train)} rows to learn from, {len(test)} to score", flush=True)

    forest = ExtraTreesClassifier(n_estimators=TREES, random_state=0)
    forest.fit(train, train_labels)
    print(f"accuracy on rows not seen: {accuracy_score(test_labels, forest.predict(test)):.3f}", flush=True)

    mlflow.sklearn.save_model(
        forest,
        args.model,
        serialization_format="cloudpickle",
        pip_requirements=["mlflow-skinny==3.17.2", "pandas==3.1.1", "scikit-learn==1.9.1"],
    )

    folder = pathlib.Path(args.unlabelled)
    folder.mkdir(parents=True, exist_ok=True)
    size = len(test) // FILES
    for number in range(FILES):
        rows = test.iloc[number * size : (number + 1) * size]
        rows.to_csv(folder / f"patients-{number:02}.csv", index=False)
    print(f"model saved, {FILES} files of {size} rows written", flush=True)


if __name__ == "__main__":
    main()
