-- Format 1 of the series.

CREATE TABLE series (
    id   INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE sample (
    series INTEGER NOT NULL,
    time   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    value  TEXT    NOT NULL,
    PRIMARY KEY (series, time, number)
) STRICT, WITHOUT ROWID;
