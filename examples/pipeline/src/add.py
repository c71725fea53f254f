"""Adds what the step before has written."""
import pathlib
import sys

numbers = pathlib.Path(sys.argv[1], "numbers.txt").read_text().split()
total = sum(map(int, numbers))
pathlib.Path(sys.argv[2], "sum.txt").write_text(str(total))
print("the sum is", total)
