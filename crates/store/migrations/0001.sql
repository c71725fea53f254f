-- Format 1. Names are compared without ASCII case: a "folded" column holds the lower-case form, a "spelled" one what was first written.
-- Numbers that the model has as u64 are stored with the same bits.

CREATE TABLE event (
    seq     INTEGER PRIMARY KEY,
    version INTEGER NOT NULL,
    crc     INTEGER NOT NULL,
    json    TEXT    NOT NULL
) STRICT;

CREATE TABLE checkpoint (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    at       INTEGER NOT NULL,
    crc      INTEGER NOT NULL,
    snapshot BLOB    NOT NULL
) STRICT;

CREATE TABLE workspace (
    id           INTEGER PRIMARY KEY,
    folded       TEXT NOT NULL UNIQUE,
    subscription TEXT NOT NULL,
    grp          TEXT NOT NULL,
    name         TEXT NOT NULL
) STRICT;

CREATE TABLE document (
    id         INTEGER PRIMARY KEY,
    workspace  INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    folded     TEXT    NOT NULL,
    spelled    TEXT    NOT NULL,
    generation INTEGER NOT NULL,
    json       TEXT    NOT NULL,
    created    INTEGER NOT NULL,
    modified   INTEGER NOT NULL,
    by         TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    crc        INTEGER NOT NULL,
    UNIQUE (workspace, kind, folded)
) STRICT;
CREATE INDEX document_by_time ON document (workspace, kind, created DESC, folded);

CREATE TABLE run (
    id      INTEGER PRIMARY KEY,
    folded  TEXT NOT NULL UNIQUE,
    seq     INTEGER NOT NULL,
    version INTEGER,
    crc     INTEGER,
    record  TEXT
) STRICT;

-- The segments that a run's spans lie in, numbered per run.
CREATE TABLE segment (
    run    INTEGER NOT NULL,
    number INTEGER NOT NULL,
    path   TEXT    NOT NULL,
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE span (
    run     INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    block   BLOB    NOT NULL,
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;
