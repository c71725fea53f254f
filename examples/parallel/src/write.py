"""Writes so many texts, each one word longer than the one before."""
import pathlib
import sys

count, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
for n in range(count):
    (folder / f"text{n:02}.txt").write_text("a parallel step " + "reads " * n)
print("wrote", count, "texts")
