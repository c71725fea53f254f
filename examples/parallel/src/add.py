"""Adds the counts of all files."""
import csv
import pathlib
import sys

with open(sys.argv[1], newline="") as file:
    counts = {name: int(count) for name, count in csv.reader(file)}
pathlib.Path(sys.argv[2], "sum.txt").write_text(f"{len(counts)} files, {sum(counts.values())} words")
