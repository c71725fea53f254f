"""Counts the words of a few files at a time."""
import argparse
import pathlib


def init():
    """Once in each worker: reads the arguments, among others that are not ours."""
    global options
    parser = argparse.ArgumentParser()
    parser.add_argument("--at-least", type=int)
    parser.add_argument("--long-words", type=pathlib.Path)
    options, _ = parser.parse_known_args()


def run(mini_batch):
    """For each mini-batch: one row for every file, and a file of our own beside."""
    rows = []
    for path in map(pathlib.Path, mini_batch):
        words = path.read_text().split()
        long = [word for word in words if len(word) > options.at_least]
        (options.long_words / path.name).write_text("\n".join(long))
        rows.append((path.stem, len(words)))
    return rows


def shutdown():
    """At the end of each worker."""
    print("this worker has nothing left to do")
