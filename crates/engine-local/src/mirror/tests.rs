//! Files that come and go through a socket, and what is refused on the way.

use super::*;
use model::{BlobPath, ComputeId, NodeId, TaskId, Workspace};
use port::{BlobError, BlobInfo, BlobWriter, Blobs};
use std::{
    collections::BTreeMap,
    fs,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::Arc,
};

/// Blobs as plain files; all that is asked of them is where they lie.
struct Folder(PathBuf);

fn none<T>(path: &BlobPath) -> Result<T, BlobError> {
    Err(BlobError::NotFound(path.clone()))
}

impl Blobs for Folder {
    fn write(&self, path: &BlobPath) -> Result<Box<dyn BlobWriter>, BlobError> {
        none(path)
    }
    fn info(&self, path: &BlobPath) -> Result<BlobInfo, BlobError> {
        none(path)
    }
    fn read_at(&self, path: &BlobPath, _: u64, _: &mut [u8]) -> Result<usize, BlobError> {
        none(path)
    }
    fn set_metadata(
        &self,
        path: &BlobPath,
        _: BTreeMap<String, String>,
    ) -> Result<BlobInfo, BlobError> {
        none(path)
    }
    fn delete(&self, path: &BlobPath) -> Result<(), BlobError> {
        none(path)
    }
    fn delete_folder(&self, path: &BlobPath) -> Result<(), BlobError> {
        none(path)
    }
    fn list(
        &self,
        path: &BlobPath,
        _: Option<&BlobPath>,
        _: usize,
    ) -> Result<Vec<(BlobPath, BlobInfo)>, BlobError> {
        none(path)
    }
    fn walk(&self, path: &BlobPath, _: &mut dyn FnMut(BlobPath)) -> Result<(), BlobError> {
        none(path)
    }
    fn append(&self, path: &BlobPath, _: &[Arc<[u8]>]) -> Result<u64, BlobError> {
        none(path)
    }
    fn local(&self, path: &BlobPath) -> Option<PathBuf> {
        Some(self.0.join(path.as_str()))
    }
}

struct Rig {
    folder: PathBuf,
    grants: Arc<Grants>,
    node: NodeId,
}

fn node() -> NodeId {
    NodeId {
        compute: ComputeId::new(&Workspace::new("s", "g", "w"), "k"),
        ordinal: 0,
        incarnation: 1,
    }
}

/// A server with blobs in `blobs/`, and an agent's folder whose socket leads to it.
fn rig(name: &str) -> Rig {
    let folder = std::env::temp_dir().join(format!("zaffre-mirror-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("agent")).unwrap();
    let blobs: Arc<dyn Blobs> = Arc::new(Folder(folder.join("blobs")));
    let grants: Arc<Grants> = Arc::default();
    let listener = UnixListener::bind(folder.join("agent").join(SOCKET)).unwrap();
    let (theirs, node) = (grants.clone(), node());
    let own = node.clone();
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (theirs, own, blobs) = (theirs.clone(), own.clone(), blobs.clone());
            std::thread::spawn(move || theirs.serve(stream, &own, &blobs));
        }
    });
    Rig {
        folder,
        grants,
        node,
    }
}

impl Rig {
    fn blob(&self, path: &str) -> PathBuf {
        self.folder.join("blobs").join(path)
    }
    fn write(&self, path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fn mirror(&self, fetch: &[&str], push: &[&str]) -> (Mirror, PathBuf) {
        let list = |of: &[&str]| of.iter().map(ToString::to_string).collect();
        let plan = Plan {
            root: self.folder.join("agent/mirror"),
            fetch: list(fetch),
            later: list(&["in"]),
            push: list(push),
            requirements: Vec::new(),
        };
        self.grants.give(&self.node, &task(), plan.clone());
        let root = plan.root.clone();
        (Mirror::new(plan, &self.folder.join("agent")), root)
    }
}

fn task() -> TaskId {
    TaskId {
        job: model::Id::new(&Workspace::new("s", "g", "w"), "j"),
        index: 0,
        attempt: model::Attempt(1),
    }
}

#[test]
fn input_comes_while_the_task_runs_and_only_from_where_the_plan_says() {
    let rig = rig("later");
    for n in 0..40 {
        rig.write(&rig.blob(&format!("in/a/{n}.csv")), &n.to_string());
    }
    rig.write(&rig.blob("other/secret"), "s");
    let (mut mirror, root) = rig.mirror(&[], &[]);
    mirror.fetch(&|_| ()).unwrap();
    assert!(!root.join("in").exists(), "nothing of it comes before");
    let plan = Plan {
        root: root.clone(),
        ..Plan::default()
    };
    let mut fetcher = Fetcher::new(&plan, &rig.folder.join("agent"));
    let mut paths: Vec<String> = (0..40).map(|n| format!("in/a/{n}.csv")).collect();
    paths.extend(["in/a/absent.csv", "other/secret", "in/../other/secret"].map(str::to_owned));
    fetcher.bring(&paths, &|| false).unwrap();
    for n in 0..40 {
        let text = fs::read_to_string(root.join(format!("in/a/{n}.csv"))).unwrap();
        assert_eq!(text, n.to_string());
    }
    assert!(!root.join("in/a/absent.csv").exists());
    assert!(!root.join("other").exists(), "it is no input of this task");

    // What is here is not asked for again; of a task that is over nothing comes.
    rig.write(&rig.blob("in/a/0.csv"), "changed");
    rig.write(&rig.blob("in/a/new.csv"), "new");
    rig.grants.take_task(&rig.node, &task());
    let more = ["in/a/0.csv", "in/a/new.csv"].map(str::to_owned);
    fetcher.bring(&more, &|| false).unwrap();
    assert_eq!(fs::read_to_string(root.join("in/a/0.csv")).unwrap(), "0");
    assert!(!root.join("in/a/new.csv").exists());
}

#[test]
fn files_come_before_the_start_and_what_is_written_goes_back() {
    let rig = rig("both");
    rig.write(&rig.blob("code/a/main.py"), "print()");
    rig.write(&rig.blob("code/a/sub/x"), &"x".repeat(PART + 3));
    rig.write(&rig.blob("ws/run/user_logs/std_log.txt"), "first attempt\n");
    let (mut mirror, root) = rig.mirror(
        &["code/a", "ws/run/outputs", "ws/run/user_logs/std_log.txt"],
        &["ws/run"],
    );
    mirror.fetch(&|_| {}).unwrap();
    assert_eq!(fs::read(root.join("code/a/sub/x")).unwrap().len(), PART + 3);
    let pusher = Pusher::start(mirror).unwrap();
    let log = root.join("ws/run/user_logs/std_log.txt");
    let mut text = fs::read_to_string(&log).unwrap();
    text.push_str("second attempt\n");
    fs::write(&log, &text).unwrap();
    rig.write(&root.join("ws/run/outputs/model.bin"), "model");
    rig.write(&root.join("code/a/stray"), "not of the plan");
    pusher.finish();
    assert_eq!(
        fs::read_to_string(rig.blob("ws/run/user_logs/std_log.txt")).unwrap(),
        text
    );
    assert_eq!(
        fs::read_to_string(rig.blob("ws/run/outputs/model.bin")).unwrap(),
        "model"
    );
    assert!(!rig.blob("code/a/stray").exists());
    fs::remove_dir_all(&rig.folder).unwrap();
}

#[test]
fn m1_a_node_reaches_what_its_plan_names_and_nothing_else() {
    let rig = rig("closed");
    rig.write(&rig.blob("ws/other/secret"), "secret");
    rig.write(&rig.blob("ws/run/in"), "mine");
    rig.write(&rig.blob("ws/run2/in"), "like mine");
    std::os::unix::fs::symlink(rig.blob("ws/other"), rig.blob("ws/run/link")).unwrap();
    let _ = rig.mirror(&["ws/run"], &["ws/run"]);
    let mut stream = UnixStream::connect(rig.folder.join("agent").join(SOCKET)).unwrap();
    let mut fetch = |path: &str| {
        say(&mut stream, &Ask::Fetch(path.into())).unwrap();
        let mut files = Vec::new();
        loop {
            match hear::<Answer>(&mut stream).unwrap().unwrap() {
                Frame::Message(Answer::File(path, _)) => files.push(path),
                Frame::Message(Answer::End) => return Ok(files),
                Frame::Message(Answer::Refused(message)) => return Err(message),
                Frame::Message(_) => panic!(),
                Frame::Bytes(_) => {}
            }
        }
    };
    assert_eq!(
        fetch("ws/run").unwrap(),
        ["ws/run/in"],
        "links are not followed (M3)"
    );
    for path in [
        "ws/other",
        "ws/run2",
        "ws",
        "ws/run/../other/secret",
        "ws/run/link/secret",
        "ws/run//in",
        "/etc/passwd",
        "",
    ] {
        assert!(fetch(path).is_err(), "{path}");
    }
    for path in ["ws/other/x", "ws/run/link/x", "ws/run/../x", "../x"] {
        say(&mut stream, &Ask::Put(path.into(), Mode::Plain)).unwrap();
        send(&mut stream, BYTES, b"x").unwrap();
        say(&mut stream, &Ask::Commit).unwrap();
        let answer = hear::<Answer>(&mut stream).unwrap().unwrap();
        assert!(
            matches!(answer, Frame::Message(Answer::Refused(_))),
            "{path}"
        );
        say(&mut stream, &Ask::Append(path.into(), 0)).unwrap();
        send(&mut stream, BYTES, b"x").unwrap();
        let answer = hear::<Answer>(&mut stream).unwrap().unwrap();
        assert!(
            matches!(answer, Frame::Message(Answer::Refused(_))),
            "{path}"
        );
    }
    // The task is over while a file is on its way.
    say(&mut stream, &Ask::Put("ws/run/late".into(), Mode::Plain)).unwrap();
    send(&mut stream, BYTES, b"x").unwrap();
    rig.grants.take(&rig.node);
    say(&mut stream, &Ask::Commit).unwrap();
    let answer = hear::<Answer>(&mut stream).unwrap().unwrap();
    assert!(matches!(answer, Frame::Message(Answer::Refused(_))));
    let left: Vec<_> = fs::read_dir(rig.blob("ws/run"))
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
    fs::remove_dir_all(&rig.folder).unwrap();
}

#[test]
fn m2_a_log_has_no_hole_and_nothing_twice() {
    let rig = rig("log");
    let _ = rig.mirror(&[], &["ws/run"]);
    let mut stream = UnixStream::connect(rig.folder.join("agent").join(SOCKET)).unwrap();
    let mut append = |from: u64, text: &str| {
        say(&mut stream, &Ask::Append("ws/run/log".into(), from)).unwrap();
        send(&mut stream, BYTES, text.as_bytes()).unwrap();
        match hear::<Answer>(&mut stream).unwrap().unwrap() {
            Frame::Message(answer) => answer,
            Frame::Bytes(_) => panic!(),
        }
    };
    assert!(matches!(append(0, "abc"), Answer::Done));
    assert!(matches!(append(0, "abc"), Answer::Done), "sent twice");
    assert!(matches!(append(9, "x"), Answer::Len(3)), "a hole");
    assert!(matches!(append(3, "def"), Answer::Done));
    assert_eq!(
        fs::read_to_string(rig.blob("ws/run/log")).unwrap(),
        "abcdef"
    );
    fs::remove_dir_all(&rig.folder).unwrap();
}

#[test]
fn whoever_waits_for_files_is_told_when_they_are_there() {
    let rig = rig("settle");
    let (mut mirror, root) = rig.mirror(&[], &["out"]);
    mirror.fetch(&|_| ()).unwrap();
    let pusher = Pusher::start(mirror).unwrap();
    for n in 0..5 {
        let text = n.to_string();
        rig.write(&root.join(format!("out/sub/{n}")), &text);
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        pusher.settle(move || tell.send(()).unwrap());
        told.recv_timeout(std::time::Duration::from_secs(60))
            .unwrap();
        assert_eq!(
            fs::read_to_string(rig.blob(&format!("out/sub/{n}"))).unwrap(),
            text
        );
    }
    pusher.finish();
}
