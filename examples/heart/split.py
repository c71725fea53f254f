"""Splits CSV files into one file per row, each with the header: `python split.py FOLDER ROWS.csv...`."""

import pathlib
import sys


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: split.py FOLDER ROWS.csv...")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for name in sys.argv[2:]:
        header, *rows = pathlib.Path(name).read_text().splitlines()
        for row in filter(str.strip, rows):
            (folder / f"row-{number:04}.csv").write_text(f"{header}\n{row}\n")
            number += 1
    print(f"{number} files in {folder}")


if __name__ == "__main__":
    main()
