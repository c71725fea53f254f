"""The batch worker: runs the user's init() once and run(mini_batch) for every index it is sent.

Started by the agent as `python3 batch.py SETTINGS PROGRESS` (a JSON text, see `settings()`, and a file of one page); only the
standard library is needed.

Channel. Descriptor 0 is a socket to the agent. It moves to a high number at once, is closed in every child, and 0 becomes
/dev/null: prints and tqdm never touch it. All numbers are little endian.

  agent -> worker   4 bytes for each index to run, in order
  worker -> agent   a head of 24 bytes (kind, index, items, rows, length of the payload, microseconds that run() took), then
                    the payload
      kind 1  done        payload: the rows, each with its line end
      kind 2  raised      payload: "Type: text", a NUL, the traceback
      kind 3  bad result  payload: the rule and the value
      kind 4  ready       init() is through
      kind 5  init failed payload as for kind 2
      kind 6  header      payload: column names of the first DataFrame

Listing. `"ZLIST01\\n"`, the paths without separators, count + 1 offsets of 8 bytes, count, position of the first offset,
`"ZLIST01\\n"`. Paths are bytes relative to the input's folder; a name that is not UTF-8 reaches run() as os.fsdecode gives it.

Progress. The first four bytes of the page count the indices begun. The agent reads them when the worker is dead or late.

P1 an index is counted before it begins, so the agent knows which one ran; answers come in order. The answer of an index that
   took less than TINY may travel with the next one's: two writes and two wake-ups would cost more than the work;
P2 user code never holds the channel: not in a child, not as descriptor 0, 1 or 2;
P3 whatever user code raises (SystemExit and KeyboardInterrupt too) is one failed attempt, never the end of the worker.
"""
import fcntl
import json
import mmap
import os
import struct
import sys
import time

DONE, RAISED, BAD, READY, INIT_FAILED, HEADER = 1, 2, 3, 4, 5, 6
HEAD = struct.Struct("<6I")
MAGIC = b"ZLIST01\n"
# The channel's descriptor: above what code closes by habit (0, 1, 2, or "everything below 256").
CHANNEL_FD = 900
# Seconds: below this an answer may wait for the next one.
TINY = 200e-6
# Bytes of answers that wait together.
MAX_HELD = 16 << 10
# Bytes of one mini-batch's rows. The server holds a few results in memory at once.
MAX_RESULT = 64 << 20
# Characters of an error message (it goes into the log of events) and of a traceback (it goes into a file).
MAX_MESSAGE = 4000
MAX_TRACEBACK = 64 << 10


class BadResult(Exception):
    """What run() returned cannot become rows."""


class Channel:
    """The socket to the agent (P2)."""

    def __init__(self):
        try:
            self.fd = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, CHANNEL_FD)
        except OSError:  # a lower limit of descriptors
            self.fd = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.close(null)
        self.pid = os.getpid()
        os.register_at_fork(after_in_child=self.forget)

    def forget(self):
        """In a child: the channel is not its own."""
        if self.fd >= 0:
            try:
                os.close(self.fd)
            except OSError:
                pass
            self.fd = -1

    def send(self, kind, index=0, items=0, rows=0, payload=b""):
        self.write(HEAD.pack(kind, index, items, rows, len(payload), 0) + payload)

    def write(self, view):
        sent = os.write(self.fd, view)
        while sent < len(view):
            sent += os.write(self.fd, view[sent : sent + (1 << 20)])


class Listing:
    """The paths of the input, read in place."""

    def __init__(self, path, root):
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.count, table = struct.unpack_from("<2Q", self.data, len(self.data) - 24)
        if self.data[-8:] != MAGIC or table + 8 * (self.count + 1) + 24 != len(self.data):
            raise ValueError("listing %s is damaged" % path)
        self.table = table
        self.root = root if root.endswith("/") else root + "/"
        self.offsets = memoryview(self.data)[table : table + 8 * (self.count + 1)].cast("Q") if sys.byteorder == "little" else None

    def paths(self, first, last):
        """Absolute paths of the items first..last."""
        data, root, at = self.data, self.root, self.offsets
        if last - first == 1 and at is not None:
            return [root + data[at[first] : at[last]].decode("utf-8", "surrogateescape")]
        last = min(last, self.count)
        if at is None:
            at = struct.unpack_from("<%dQ" % (last - first + 1), data, self.table + 8 * first)
            return [root + data[a:b].decode("utf-8", "surrogateescape") for a, b in zip(at, at[1:])]
        return [root + data[at[i] : at[i + 1]].decode("utf-8", "surrogateescape") for i in range(first, last)]


# --- rows ---------------------------------------------------------------------------------------------------------------


def field(value):
    """One RFC 4180 field."""
    text = "" if value is None else str(value)
    if '"' in text or "," in text or "\n" in text or "\r" in text:
        return '"' + text.replace('"', '""') + '"'
    return text


def csv_line(values):
    line = ",".join([field(v) for v in values])
    return line or '""'


def azure_line(values):
    return " ".join(["" if v is None else str(v) for v in values])


def module_of(value):
    return (type(value).__module__ or "").split(".", 1)[0]


def is_frame(value):
    return hasattr(value, "to_csv") and hasattr(value, "columns") and module_of(value) in ("pandas", "geopandas", "modin")


class Rows:
    """Turns what run() returned into text."""

    def __init__(self, azure, collect, header):
        self.azure, self.collect, self.header = azure, collect, header
        self.line = azure_line if azure else csv_line

    def take(self, result, send_header):
        """(items, rows, bytes); raises BadResult."""
        if type(result) is list and len(result) == 1 and type(result[0]) is str and self.collect:
            text = result[0]  # by far the most common result
            if "\n" not in text and "\r" not in text:
                return 1, 1, encode(text + "\n")
        if is_frame(result):
            return self.frame(result, send_header)
        if isinstance(result, (list, tuple)) or (
            hasattr(result, "tolist") and hasattr(result, "__len__") and module_of(result) in ("numpy", "pandas")
        ):
            try:
                items = len(result)
            except TypeError:  # a numpy array without dimensions
                raise BadResult("run() returned a %s without length, not a DataFrame, list or tuple" % type(result).__name__)
            if not self.collect:
                return items, 0, b""
            lines = [e if type(e) is str else self.element(e) for e in result]
            # One look for all elements: a line break inside any of them shows as a count that does not fit.
            text = "\n".join(lines)
            if text.count("\n") != max(items - 1, 0) or "\r" in text:
                self.name_break(result, lines)
            return items, items, encode(text + "\n" if items else "")
        if result is None:
            raise BadResult("run() returned None")
        raise BadResult("run() returned a %s, not a DataFrame, list or tuple" % type(result).__name__)

    def element(self, value):
        if isinstance(value, str):
            return str(value)
        if isinstance(value, (tuple, list)) or (getattr(value, "ndim", 0) and hasattr(value, "tolist")):
            return self.line(value)
        return str(value)

    def name_break(self, result, lines):
        for i, (element, line) in enumerate(zip(result, lines)):
            if "\n" in line or "\r" in line:
                if isinstance(element, (tuple, list)) or getattr(element, "ndim", 0):
                    if not self.azure:
                        continue  # quoted: RFC 4180 allows it
                raise BadResult("element %d of the result has a line break inside: %s" % (i, clip(repr(line), 80)))

    def frame(self, frame, send_header):
        items = len(frame)
        if not self.collect:
            return items, 0, b""
        if self.header:
            self.header = False
            send_header(encode(self.line(list(frame.columns))))
        separator = " " if self.azure else ","
        text = frame.to_csv(index=False, header=False, sep=separator)
        if os.linesep != "\n":
            text = text.replace(os.linesep, "\n")
        return items, items, encode(text)


def encode(text):
    """UTF-8; file names that are not UTF-8 come out as the bytes they were."""
    return text.encode("utf-8", "surrogateescape")


def clip(text, limit):
    return text if len(text) <= limit else text[:limit] + "..."


def describe(error):
    """"Type: text" on one line, a NUL, the traceback."""
    try:
        text = str(error)
    except BaseException as e:
        text = "(its text cannot be had: %s)" % type(e).__name__
    name = type(error).__name__
    line = " ".join((name + ": " + text if text else name).split())
    try:
        import traceback

        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except BaseException:
        trace = ""
    return safe(clip(line, MAX_MESSAGE).replace("\0", " ")) + b"\0" + safe(trace[-MAX_TRACEBACK:])


def safe(text):
    return text.encode("utf-8", "backslashreplace")


# --- scorers ------------------------------------------------------------------------------------------------------------


def load_script(path):
    """run and shutdown of the user's script, imported as Azure does, from its own folder; init() is called."""
    import importlib.util

    folder, name = os.path.split(os.path.abspath(path))
    sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(os.path.splitext(name)[0], path)
    if spec is None or spec.loader is None:
        raise ImportError("scoring script %s is not a Python file" % name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    run = getattr(module, "run", None)
    if not callable(run):
        raise AttributeError("scoring script %s has no function run(mini_batch)" % name)
    init = getattr(module, "init", None)
    if callable(init):
        init()
    shutdown = getattr(module, "shutdown", None)
    return run, shutdown if callable(shutdown) else None


TABLES = {".csv": "read_csv", ".parquet": "read_parquet", ".pqt": "read_parquet"}
IMAGES = (".png", ".jpg", ".jpeg", ".tiff", ".bmp", ".gif")


def load_mlflow(path):
    """The scorer of an MLflow model without a script: one predict per file, columns row, prediction, file."""
    import mlflow.pyfunc
    import pandas

    # MLflow refuses a folder that is reached through a link, and that is how the model is shown to the task.
    model = mlflow.pyfunc.load_model(os.path.realpath(path))

    def read(file):
        suffix = os.path.splitext(file)[1].lower()
        if suffix in TABLES:
            return getattr(pandas, TABLES[suffix])(file), True
        if suffix in IMAGES:
            import numpy
            from PIL import Image

            with Image.open(file) as image:
                return numpy.expand_dims(numpy.asarray(image), 0), False
        raise ValueError("File type '%s' is not supported" % suffix.lstrip("."))

    def score(file):
        base = os.path.basename(file)
        try:
            data, table = read(file)
        except ValueError as error:
            if "is not supported" in str(error):
                raise RuntimeError("Error processing input file: '%s'. %s" % (base, error)) from None
            raise RuntimeError("Error processing input file: '%s'. Exception: %s" % (base, error)) from error
        except Exception as error:
            raise RuntimeError("Error processing input file: '%s'. Exception: %s" % (base, error)) from error
        try:
            predictions = model.predict(data)
        except Exception as error:
            raise RuntimeError("Error processing input file: '%s'. Exception: %s" % (base, error)) from error
        return as_frame(pandas, predictions, base, table)

    def run(mini_batch):
        frames = [score(file) for file in mini_batch]
        return pandas.concat(frames, ignore_index=True) if frames else pandas.DataFrame()

    return run


def as_frame(pandas, predictions, base, table):
    """Columns row (tables only), prediction, file; several predicted columns are one text each."""
    if hasattr(predictions, "to_numpy"):
        predictions = predictions.to_numpy()
    values = predictions.tolist() if hasattr(predictions, "tolist") else list(predictions)
    values = [v[0] if isinstance(v, list) and len(v) == 1 else v for v in values]
    columns = {"row": range(len(values))} if table else {}
    columns["prediction"] = values
    columns["file"] = [base] * len(values)
    return pandas.DataFrame(columns)


# --- the loop -----------------------------------------------------------------------------------------------------------


def settings():
    """What the agent tells: script or model, listing, root, group, azure, collect, header, logging_level; and arguments and
    shutdown, which an agent of an older server does not know."""
    return json.loads(sys.argv[1])


def serve(channel, page, run, listing, group, rows):
    """Runs every index that comes, until the agent closes the channel."""
    read, fd, paths, take, write = os.read, channel.fd, listing.paths, rows.take, channel.write
    pack, clock, begun = HEAD.pack, time.perf_counter, 0

    def send_header(line):
        channel.send(HEADER, 0, 0, 0, line)

    while True:
        chunk = read(fd, 4096)
        if not chunk:
            return
        while len(chunk) % 4:
            more = read(fd, 4 - len(chunk) % 4)
            if not more:
                return
            chunk += more
        held, left = b"", len(chunk) // 4
        for (index,) in struct.iter_unpack("<I", chunk):
            left -= 1
            begun = begun + 1 & 0xFFFFFFFF
            page[0] = begun
            start = clock()
            failed = True
            try:
                batch = paths(index * group, (index + 1) * group)
                result = run(batch)
                if channel.fd < 0:
                    os._exit(0)  # a child of user code that came back from run()
                items, count, payload = take(result, send_header)
                if len(payload) > MAX_RESULT:
                    raise BadResult("the rows of one mini-batch have %d bytes, at most %d are taken" % (len(payload), MAX_RESULT))
                kind, failed = DONE, False
            except BadResult as bad:
                kind, items, count, payload = BAD, 0, 0, safe(clip(str(bad), MAX_MESSAGE))
            except BaseException as error:
                if channel.fd < 0:
                    os._exit(1)
                kind, items, count, payload = RAISED, 0, 0, describe(error)
            took = clock() - start
            result = batch = None
            answer = pack(kind, index, items, count, len(payload), min(int(took * 1e6), 0xFFFFFFFF)) + payload
            if failed:
                flush()
            if left and took < TINY and len(answer) < MAX_HELD:
                held += answer
                continue  # P1
            write(held + answer if held else answer)
            held = b""


def flush():
    """What the user printed, before anybody looks for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass


def main():
    channel = Channel()
    options = settings()
    # Files in the folders of all workers belong to the group of the run: another node, with a user of its own, writes them again
    # when this one is taken before their mini-batch is done.
    os.umask(0o002)
    with open(sys.argv[2], "r+b") as file:
        page = memoryview(mmap.mmap(file.fileno(), 4096)).cast("I")
    sys.argv = [options.get("script") or "mlflow", *options.get("arguments", []), "--logging_level", options["logging_level"]]
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
        except Exception:
            pass
    # The folder of this file is no place for the user's imports.
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != own]
    try:
        listing = Listing(options["listing"], options["root"])
        run, shutdown = load_script(options["script"]) if options.get("script") else (load_mlflow(options["model"]), None)
        if os.getpid() != channel.pid:
            os._exit(0)
    except BaseException as error:
        if os.getpid() != channel.pid:
            os._exit(1)
        channel.send(INIT_FAILED, 0, 0, 0, describe(error))
        flush()
        os._exit(1)
    channel.send(READY)
    try:
        serve(channel, page, run, listing, options["group"], Rows(options["azure"], options["collect"], options["header"]))
        if shutdown and options.get("shutdown"):
            shutdown()  # nothing is left to run, and what it raises goes to stderr
    except BaseException:
        if os.getpid() != channel.pid:
            os._exit(1)
        raise
    finally:
        channel.forget()  # the agent need not wait long for threads that user code has left behind


if __name__ == "__main__":
    main()
