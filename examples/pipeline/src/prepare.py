"""Writes the first squares."""
import pathlib
import sys

count, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
squares = [n * n for n in range(count)]
(folder / "numbers.txt").write_text("\n".join(map(str, squares)))
print("prepared", count, "squares")
