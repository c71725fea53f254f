//! Batch runs on a real server: files with any name, scorers that misbehave, workers that are killed.

mod support;

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, process::Output};
use support::{
    Server, signal,
    site::{GATED, LONG, Meeting, deploy, fill, invoke, predictions, stored},
};

/// One row per file, its name and its text, and a file of its own under the same name.
const NAMES: &str = "\
import os
def init():
    pass
def run(mini_batch):
    rows = []
    for path in mini_batch:
        name, text = os.path.basename(path), open(path).read()
        open(os.path.join(os.environ['AZUREML_BI_OUTPUT_PATH'], name), 'w').write(text)
        rows.append((name, text, len(text)))
    return rows
";

#[test]
fn files_of_any_name_are_scored_once_in_order_and_come_back() {
    let long = "n".repeat(255);
    // In the order of their bytes, with the row that each becomes (RFC 4180).
    let files: &[(&str, &str, &str)] = &[
        (" in front", "1", " in front,1,1\n"),
        ("#hash?query&a=b%20%2F", "2", "#hash?query&a=b%20%2F,2,1\n"),
        ("%41 &amp;<x>\u{1}", "12", "%41 &amp;<x>\u{1},12,2\n"),
        ("-dash", "3", "-dash,3,1\n"),
        (".hidden", "4", ".hidden,4,1\n"),
        ("a,comma", "5", "\"a,comma\",5,1\n"),
        ("back\\slash", "6", "back\\slash,6,1\n"),
        ("empty", "", "empty,,0\n"),
        ("end ", "two\nlines", "end ,\"two\nlines\",9\n"),
        ("n", "n", "n,n,1\n"),
        (
            "n.part",
            "a name that a download of `n` might use",
            "n.part,a name that a download of `n` might use,39\n",
        ),
        ("new\nline", "8", "\"new\nline\",8,1\n"),
        (&long, "7", &format!("{long},7,1\n")),
        (
            "quotes\"and'",
            "say \"hi\"",
            "\"quotes\"\"and'\",\"say \"\"hi\"\"\",8\n",
        ),
        ("sub/deep", "9", "deep,9,1\n"),
        ("tab\there;colon:", "10", "tab\there;colon:,10,2\n"),
        ("日本語.csv", "東京", "日本語.csv,東京,2\n"),
        ("🦀", "11", "🦀,11,2\n"),
    ];
    let server = Server::start();
    deploy(&server, NAMES, "mini_batch_size: 2\n");
    fill(&server.folder.join("in"), files.iter().map(|f| (f.0, f.1)));
    server.ok(&invoke("names", "in", &["--stream"]));
    assert_eq!(server.count("names", "files"), files.len() as u64);
    assert_eq!(
        server.count("names", "mini_batches_total"),
        files.len() as u64 / 2
    );
    assert_eq!(server.count("names", "rows"), files.len() as u64);

    let expected: String = files.iter().map(|f| f.2).collect();
    let got = String::from_utf8(predictions(&server, "names")).unwrap();
    assert_eq!(got, expected);
    let came = server.folder.join("got-names");
    for (name, text, _) in files {
        let at = came.join(name.rsplit('/').next().unwrap());
        assert_eq!(fs::read_to_string(&at).unwrap(), *text, "{name:?}");
    }
    assert_eq!(
        fs::read_dir(came).unwrap().count(),
        files.len() + 1,
        "and nothing else"
    );
    server.stop();
}

#[test]
fn a_name_that_is_not_utf8_is_refused_before_anything_is_sent() {
    let server = Server::start();
    deploy(&server, NAMES, "");
    let before = stored(&server);
    fill(&server.folder.join("in"), [("a", "1")]);
    fs::write(
        server.folder.join("in").join(OsStr::from_bytes(b"b\xff")),
        "2",
    )
    .unwrap();
    let output = server.run(&invoke("bytes", "in", &[]));
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(
        said.contains("b\u{fffd}: the name is not UTF-8\nhint: "),
        "{said}"
    );
    assert_eq!(stored(&server), before);
    assert_eq!(
        server.run(&["job", "show", "-n", "bytes"]).status.code(),
        Some(3)
    );
    server.stop();
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Does what the text of a file says. `memory` takes more than the 3.5 GiB of the node's size, all of it at once.
const POISON: &str = "\
import mmap, os, time
def init():
    pass
def run(mini_batch):
    rows = []
    for path in mini_batch:
        text = open(path).read()
        if text == 'raise':
            raise ValueError('the file is poisoned')
        if text == 'exit':
            os._exit(9)
        if text == 'memory':
            eaten = mmap.mmap(-1, 4 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
            time.sleep(600)
        rows.append(text)
    return rows
";
const POISON_SETTINGS: &str = "mini_batch_size: 1\nmax_concurrency_per_instance: 2\nretry_settings: {max_retries: 1, timeout: 60}\n";

/// Twelve files, of which the given ones are poisoned; answers the lines that the others become.
fn poisoned(server: &Server, input: &str, poison: &[(usize, &str)]) -> String {
    let text = |i: usize| {
        let given = poison.iter().find(|(at, _)| *at == i);
        given.map_or_else(|| i.to_string(), |(_, kind)| (*kind).to_owned())
    };
    let files: Vec<_> = (0..12).map(|i| (format!("f{i:02}"), text(i))).collect();
    fill(
        &server.folder.join(input),
        files.iter().map(|(n, t)| (n.as_str(), t.as_str())),
    );
    let clean = |i: &usize| poison.iter().all(|(at, _)| at != i);
    (0..12).filter(clean).map(|i| format!("{i}\n")).collect()
}

#[test]
fn poisoned_files_within_the_threshold_are_counted_and_all_others_finish() {
    let server = Server::start();
    deploy(&server, POISON, POISON_SETTINGS);
    let poison = [(3, "memory"), (5, "exit"), (7, "raise")];
    let expected = poisoned(&server, "in", &poison);
    server.ok(&invoke(
        "within",
        "in",
        &["--set", "error_threshold=3", "--stream"],
    ));
    assert_eq!(
        server.value(&["job", "show", "-n", "within"], "status"),
        "Completed"
    );
    let count = |name: &str| server.count("within", name);
    assert_eq!(
        (count("mini_batches_done"), count("mini_batches_failed")),
        (9, 3)
    );
    assert_eq!((count("failed_items"), count("rows")), (3, 9));
    assert_eq!(count("retries"), 3, "each was tried once more");
    assert_eq!(count("preemptions"), 0, "no node went with its worker");
    assert_eq!(
        String::from_utf8(predictions(&server, "within")).unwrap(),
        expected
    );
    server.stop();
}

#[test]
fn a_poisoned_file_above_the_threshold_fails_the_run_and_names_the_first_error() {
    let server = Server::start();
    deploy(&server, POISON, POISON_SETTINGS);
    for (kind, error, retries) in [
        ("raise", "ValueError: the file is poisoned", 1),
        ("exit", "the worker died: exit code 9", 1),
        // Taking gigabytes needs seconds, so once is enough here.
        (
            "memory",
            "the worker used more than its memory limit of ",
            0,
        ),
    ] {
        poisoned(&server, kind, &[(4, kind)]);
        let retried = format!("retry_settings.max_retries={retries}");
        let output = server.run(&invoke(
            kind,
            kind,
            &["--set", "error_threshold=0", "--set", &retried, "--stream"],
        ));
        assert_eq!(output.status.code(), Some(1), "{kind}");
        let said = stderr(&output);
        let last = said
            .lines()
            .find(|line| line.starts_with("error: "))
            .unwrap();
        assert!(
            last.contains("1 items failed, error_threshold is 0"),
            "{last}"
        );
        assert!(
            last.contains("first error, mini-batch 4: ") && last.contains(error),
            "{last}"
        );
        assert_eq!(
            server.value(&["job", "show", "-n", kind], "status"),
            "Failed"
        );
        assert_eq!(server.count(kind, "retries"), retries);
    }
    server.stop();
}

#[test]
fn every_worker_killed_once_changes_no_byte_of_the_output() {
    let server = Server::start();
    let meeting = Meeting::new(&server);
    let settings = format!(
        "mini_batch_size: 2\nmax_concurrency_per_instance: 2\n{}",
        meeting.variable()
    );
    deploy(&server, GATED, &settings);
    let names: Vec<_> = (0..101).map(|i| format!("f{i:03}")).collect();
    fill(
        &server.folder.join("in"),
        names.iter().map(|n| (n.as_str(), n.as_str())),
    );

    meeting.open();
    server.ok(&invoke("undisturbed", "in", &["--stream"]));
    assert_eq!(server.count("undisturbed", "retries"), 0);
    let expected = predictions(&server, "undisturbed");
    assert_eq!(
        expected.iter().filter(|b| **b == b'\n').count(),
        names.len()
    );

    meeting.close();
    server.ok(&invoke("killed", "in", &[]));
    server.wait("all four workers are within a mini-batch", LONG, |_| {
        meeting.names().len() == 4
    });
    for pid in meeting.names() {
        signal("KILL", pid.parse().unwrap());
    }
    meeting.open();
    server.ok(&["job", "stream", "-n", "killed"]);
    assert_eq!(
        server.count("killed", "retries"),
        4,
        "one mini-batch of each was tried again"
    );
    assert_eq!(server.count("killed", "mini_batches_failed"), 0);
    assert!(
        predictions(&server, "killed") == expected,
        "the outputs differ"
    );
    server.stop();
}

/// As many rows as the text of the first file says; a table when it says so (of a `pandas` of the test's own).
const COUNTED: &str = "\
import pandas
def init():
    pass
def run(mini_batch):
    text = open(mini_batch[0]).read()
    if text == 'none':
        return None
    if text == 'table':
        return pandas.DataFrame()
    return ['row of ' + text] * int(text)
";
/// What the worker needs of a table.
const PANDAS: &str = "\
class DataFrame:
    columns = ['name', 'two words']
    def __len__(self):
        return 2
    def to_csv(self, index, header, sep):
        assert (index, header, sep) == (False, False, ',')
        return 'a,1\\nb,2\\n'
";

#[test]
fn fewer_rows_than_files_are_failed_items_and_more_are_shown_beside_them() {
    let server = Server::start();
    fill(&server.folder, [("code/pandas.py", PANDAS)]);
    deploy(
        &server,
        COUNTED,
        "mini_batch_size: 2\nretry_settings: {max_retries: 0}\n",
    );
    // Two files each: n - 1, n, n + 1 and no rows, none at all (field report 18).
    let says = ["1", "2", "3", "0", "none"];
    let names: Vec<_> = (0..10).map(|i| format!("f{i}")).collect();
    let files = names
        .iter()
        .enumerate()
        .map(|(i, name)| (name.as_str(), says[i / 2]));
    fill(&server.folder.join("in"), files);
    server.ok(&invoke("counted", "in", &["--stream"]));
    let count = |name: &str| server.count("counted", name);
    assert_eq!((count("files"), count("rows")), (10, 6));
    assert_eq!(
        (count("mini_batches_done"), count("mini_batches_failed")),
        (4, 1)
    );
    assert_eq!(count("failed_items"), 1 + 2 + 2);
    let expected = "row of 1\nrow of 2\nrow of 2\nrow of 3\nrow of 3\nrow of 3\n";
    assert_eq!(
        String::from_utf8(predictions(&server, "counted")).unwrap(),
        expected
    );
    server.stop();
}

#[test]
fn a_header_is_written_once_and_only_where_it_is_asked_for() {
    let server = Server::start();
    fill(&server.folder, [("code/pandas.py", PANDAS)]);
    let files: Vec<_> = (0..3).map(|i| format!("f{i}")).collect();
    fill(
        &server.folder.join("in"),
        files.iter().map(|n| (n.as_str(), "table")),
    );
    let rows = "a,1\nb,2\n".repeat(3);
    let property = "mini_batch_size: 1\nproperties: {zaffre.append_row_header: \"true\"}\n";
    for (job, settings, expected) in [
        ("plain", "mini_batch_size: 1\n", rows.clone()),
        ("headed", property, format!("name,two words\n{rows}")),
    ] {
        deploy(&server, COUNTED, settings);
        server.ok(&invoke(job, "in", &["--stream"]));
        assert_eq!(
            String::from_utf8(predictions(&server, job)).unwrap(),
            expected
        );
    }
    server.stop();
}

#[test]
fn an_output_is_named_before_the_end_and_is_the_same_under_every_name() {
    let server = Server::start();
    let meeting = Meeting::new(&server);
    deploy(&server, GATED, &meeting.variable());
    fill(&server.folder.join("in"), [("f020", "評価")]);
    server.ok(&invoke("named", "in", &[]));
    server.wait("it runs", LONG, |_| !meeting.names().is_empty());
    let shown = server.value(
        &["job", "show", "-n", "named"],
        "properties.\"zaffre.output_file\"",
    );
    assert!(shown.ends_with("/predictions.csv"), "{shown}");
    meeting.open();
    server.ok(&["job", "stream", "-n", "named"]);
    assert_eq!(
        server.value(
            &["job", "show", "-n", "named"],
            "properties.\"zaffre.output_file\""
        ),
        shown,
        "what was said before the end"
    );
    let step = server.value(&["job", "list", "-p", "named"], "[0].name");
    assert!(!step.is_empty() && step != "named", "{step}");
    for (job, output, folder, file) in [
        ("named", None, "a", "predictions.csv"),
        ("named", Some("score"), "b", "predictions.csv"),
        (
            step.as_str(),
            Some("score"),
            "c",
            "named-outputs/score/predictions.csv",
        ),
    ] {
        let mut args = vec!["job", "download", "-n", job, "-p", folder];
        args.extend(output.into_iter().flat_map(|name| ["--output-name", name]));
        server.ok(&args);
        let got = fs::read_to_string(server.folder.join(folder).join(file));
        assert_eq!(got.unwrap(), "f020 評価\n", "{args:?}");
    }
    server.stop();
}

#[test]
fn an_init_that_raises_fails_the_run_with_what_it_raised() {
    let server = Server::start();
    let script = "import sys\ndef init():\n    sys.exit(42)\ndef run(mini_batch):\n    return []\n";
    deploy(&server, script, "");
    fill(&server.folder.join("in"), [("a", "1")]);
    let output = server.run(&invoke("init", "in", &["--stream"]));
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("error: job init ended Failed: the scoring script did not start: SystemExit: 42\nhint: `zaffre job download -n init --all` brings"),
        "{said}"
    );
    server.stop();
}
