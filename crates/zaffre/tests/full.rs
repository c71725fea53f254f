//! A full disk under a real server: what is asked is refused with the reason, nothing of it is half there, and what runs goes
//! on when there is room again (S4, I1, I2, I3). The disk is a small tmpfs; where the user may not mount one, the test of
//! uploads plays in a namespace of its own, and that of runs, which needs users of its own, says that it did nothing; the points
//! of failure of `store` show the parts of it.

#[path = "../../store/tests/disk/mod.rs"]
mod disk;
mod support;

use disk::Disk;
use std::process::Output;
use support::{
    Server,
    plain::{Plain, WS},
    site::{GATED, LONG, Meeting, deploy, fill, invoke, predictions, stored},
};

const DISK: u32 = 192 << 20;
/// Less than the reserve of the server, which is 64 MiB, and enough for what runs.
const SHORT: u64 = 32 << 20;

fn refused(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("bytes free, 67108864 are kept in reserve"),
        "{said}"
    );
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that does nothing must say so")]
fn a_full_disk_refuses_what_is_new_and_a_run_ends_right_when_there_is_room() {
    let Some(disk) = Disk::of(DISK) else {
        eprintln!("skipped: this user may not mount a tmpfs");
        return;
    };
    let mut server = Server::start_at(|_| disk.path().join("data"));
    let meeting = Meeting::new(&server);
    let settings = format!(
        "max_concurrency_per_instance: 2\nmini_batch_size: 1\n{}",
        meeting.variable()
    );
    deploy(&server, GATED, &settings);
    let names: Vec<_> = (0..60).map(|i| format!("f{i:03}")).collect();
    fill(
        &server.folder.join("in"),
        names.iter().map(|n| (n.as_str(), n.as_str())),
    );
    fill(&server.folder.join("other"), [("f000", "later")]);
    let expected: String = names.iter().map(|n| format!("{n} {n}\n")).collect();
    server.ok(&invoke("going", "in", &[]));
    server.wait("four workers are within a mini-batch", LONG, |_| {
        meeting.names().len() == 4
    });

    let cluster = [
        "compute",
        "create",
        "-n",
        "late",
        "--type",
        "amlcompute",
        "-o",
        "none",
    ];
    let data = [
        "data",
        "create",
        "-n",
        "late",
        "--type",
        "uri_folder",
        "--path",
        "other",
        "-o",
        "none",
    ];
    let run = invoke("late", "other", &[]);
    let kept = stored(&server);
    let all_refused = || {
        for args in [&cluster[..], &data, &run] {
            refused(&server.run(args));
        }
        assert_eq!(stored(&server), kept, "nothing of it is there");
        for show in [
            ["compute", "show", "-n", "late"],
            ["job", "show", "-n", "late"],
        ] {
            assert_eq!(server.run(&show).status.code(), Some(3), "reads go on");
        }
    };
    disk.leave(SHORT);
    all_refused();
    disk.fill();
    all_refused();

    meeting.open();
    server.wait("rows find no room", LONG, |s| {
        s.log().contains("could not be written")
    });
    assert_eq!(
        server.value(&["job", "show", "-n", "going"], "status"),
        "Running"
    );
    disk.free();
    server.ok(&["job", "stream", "-n", "going"]);
    assert_eq!(
        String::from_utf8(predictions(&server, "going")).unwrap(),
        expected
    );
    assert_eq!(server.count("going", "mini_batches_done"), 60);
    assert_eq!(server.count("going", "retries"), 0);

    for args in [&cluster[..], &data, &run] {
        server.ok(args);
    }
    server.ok(&["job", "stream", "-n", "late"]);
    server.terminate_for_restart();
    server.restart();
    assert_eq!(predictions(&server, "late"), b"f000 later\n");
    assert_eq!(
        String::from_utf8(predictions(&server, "going")).unwrap(),
        expected
    );
    server.stop();
}

/// The disk has room when the upload begins and none before it ends: the client is told so, and no byte of it stays.
#[test]
#[expect(clippy::print_stderr, reason = "a test that does nothing must say so")]
fn a_disk_that_fills_during_an_upload_keeps_nothing_of_it() {
    /// More than the disk, by less than the server reads for politeness.
    const UPLOAD: usize = 224 << 20;
    let Some(disk) = Disk::of(DISK) else {
        if !disk::plays_in_a_namespace("a_disk_that_fills_during_an_upload_keeps_nothing_of_it") {
            eprintln!("skipped: this user may mount a tmpfs nowhere");
        }
        return;
    };
    let mut server = Server::start_at(|_| disk.path().join("data"));
    let client = Plain::of(&server.url, &server.token());
    let path = format!("{WS}/codes/c/versions/1/startPendingUpload");
    let pending = client.ask("POST", &path, &[], "").unwrap().json();
    let sas = pending["blobReferenceForConsumption"]["credential"]["sasUri"].as_str();
    let (url, query) = sas.unwrap().split_once('?').unwrap();
    let container = &url[url.find("/storage/").unwrap()..];
    let block = [
        ("x-ms-blob-type", "BlockBlob"),
        ("content-type", "text/plain"),
    ];
    let at = |name: &str| format!("{container}/{name}?{query}");
    let put = |name: &str, text: &str| client.ask("PUT", &at(name), &block, text).unwrap();
    assert_eq!(put("small", "kept").status, 201);
    let (kept, room) = (stored(&server), disk.room());

    let large = "x".repeat(UPLOAD);
    for name in ["large", "small"] {
        let refused = put(name, &large);
        assert_eq!(refused.status, 507, "{}", refused.text());
        assert!(
            refused.header("retry-after").is_some(),
            "{}",
            refused.text()
        );
        assert_eq!(stored(&server), kept, "nothing of {name} is there");
        assert!(disk.room() + (1 << 20) > room, "its room is given back");
    }
    let read = |client: &Plain, name: &str| client.ask("GET", &at(name), &[], "").unwrap();
    assert_eq!(read(&client, "large").status, 404);
    assert_eq!(
        read(&client, "small").body,
        b"kept",
        "what it would have replaced"
    );
    assert_eq!(put("small", "new").status, 201);
    server.terminate_for_restart();
    server.restart();
    let client = Plain::of(&server.url, &server.token());
    assert_eq!(read(&client, "small").body, b"new");
    server.stop();
}
