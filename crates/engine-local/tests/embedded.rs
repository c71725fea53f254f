//! The embedded cluster: what is shown of this machine, and tasks that are pods of it.

mod support;

use engine_local::confine::Kind;
use model::{Action, Bytes, ClusterKey, Exit, Phase, TaskId, kubernetes::Labels};
use port::Engine;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};
use support::{Rig, alive, pod, read_number, task};

fn declared(name: &str) -> Rig {
    let mut rig = Rig::new(name);
    rig.close();
    rig.labels.insert("zone".into(), "a".into());
    rig.devices.insert("nvidia.com/gpu".into(), 2);
    rig.node_selector.insert("pool".into(), "ml".into());
    rig.open();
    rig
}

#[test]
fn this_machine_is_a_cluster_of_one_node() {
    let rig = declared("seen");
    let seen = rig.local().observe();
    let cluster = seen.clusters.get(&ClusterKey::Embedded).unwrap();
    assert!(cluster.placed_here && cluster.types.is_none() && cluster.trouble.is_none());
    assert_eq!(
        cluster.node_selector,
        Labels::from([("pool".into(), "ml".into())])
    );
    let (name, machine) = cluster.machines.first_key_value().unwrap();
    assert_eq!(machine.labels["kubernetes.io/hostname"], *name);
    assert_eq!(&*machine.labels["zone"], "a");
    assert_eq!(machine.allocatable.devices["nvidia.com/gpu"], 2);
    let cores = std::thread::available_parallelism().unwrap().get() as u64;
    assert_eq!(machine.allocatable.cpu.0, cores * 1000);
    assert!(machine.allocatable.memory.0 > 1 << 28, "{machine:?}");
    let said = rig.local().report().join("\n");
    assert!(said.contains("2 nvidia.com/gpu, "), "{said}");
}

/// A file that the task writes into its `outputs/`, when it has something in it.
fn wrote(rig: &Rig, task: &TaskId, name: &str) -> PathBuf {
    rig.wait(&format!("outputs/{name} is written"), |_| {
        let (_, dir) = rig.pod_agent(task)?;
        let tasks = fs::read_dir(dir.join("tasks")).ok()?.flatten();
        tasks
            .map(|t| t.path().join("work/outputs").join(name))
            .find(|f| fs::read(f).is_ok_and(|b| !b.is_empty()))
    })
}

fn kill(signal: &str, pid: u32) {
    let done = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(done.unwrap().success());
}

/// Nothing of any node or pod is left on the disk, and none of `pids` lives.
fn nothing_left(rig: &Rig, pids: &[u32]) {
    rig.wait("the folders are gone", |_| {
        let mut entries = fs::read_dir(rig.dir.join("data/nodes")).unwrap();
        entries
            .all(|e| e.unwrap().file_name() == "lock")
            .then_some(())
    });
    for pid in pids {
        assert!(!alive(*pid), "{pid} is still there");
    }
}

const GIB: u64 = 1 << 30;
const TALK: &str = "echo $$ > outputs/pid; setsid sleep 600 & echo $! > outputs/child; wait";

#[test]
fn a_pod_runs_with_the_limits_of_its_type() {
    for kind in [None, Some(Kind::Rlimits)] {
        let rig = Rig::with("limits", kind, None);
        // What the task's own specification says does not count for pods.
        let mut spec = rig
            .command("python3 -c 'x = bytearray(400 << 20); import time; time.sleep(60)'; exit 5");
        spec.limits.memory = Bytes(8 * GIB);
        rig.start_pod(&task(1), pod("k", 500, 128 << 20, 0), spec);
        let limit = Bytes(128 << 20);
        assert_eq!(rig.exit(&task(1)), Exit::OutOfMemory { limit });
        let log = rig.text("runs/job/user_logs/std_log.txt");
        assert!(
            log.starts_with("[zaffre] attempt 1 in a pod of small on here\n"),
            "{log}"
        );
        assert!(rig.local().observe().nodes.is_empty(), "no node is shown");
        rig.forget(&task(1));
        nothing_left(&rig, &[]);
    }
}

#[test]
fn a_pod_has_its_cores_and_no_more() {
    let rig = Rig::new("cores");
    let (base, name, want) = match Kind::probe() {
        Kind::V1 {
            cpu: Some(base), ..
        } => (base, "cpu.cfs_quota_us", "50000"),
        Kind::V2 { base } => (base, "cpu.max", "50000 100000"),
        Kind::V1 { .. } | Kind::Rlimits => return, // cores are not limited here, which the report says
    };
    rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command("sleep 600"));
    rig.running(&task(1));
    let (_, dir) = rig.pod_agent(&task(1)).unwrap();
    let own = dir.file_name().unwrap();
    let quotas: Vec<String> = find(&base, name)
        .into_iter()
        .filter(|f| f.iter().any(|part| part == own))
        .map(|f| fs::read_to_string(f).unwrap().trim().to_owned())
        .collect();
    assert!(
        quotas.iter().any(|q| q == want),
        "half a core of each period: {quotas:?}"
    );
}

fn find(top: &Path, name: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(top) else {
        return Vec::new();
    };
    let mut out = Vec::new();
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            out.extend(find(&path, name));
        } else if path.file_name().is_some_and(|n| n == name) {
            out.push(path);
        }
    }
    out
}

#[test]
fn g1_a_pod_starts_once_and_pods_of_two_computes_at_once() {
    let rig = Rig::new("two");
    let other = TaskId {
        job: model::Id::new(task(1).job.workspace(), "job2"),
        ..task(1)
    };
    let mut second = rig.command("echo x >> outputs/starts; sleep 600");
    second.artifacts = model::BlobPath::new("runs/job2").unwrap();
    for _ in 0..2 {
        let line = "echo x >> outputs/starts; sleep 600";
        rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command(line));
        rig.start_pod(&other, pod("other", 500, GIB, 0), second.clone());
    }
    for id in [task(1), other.clone()] {
        rig.running(&id);
        assert_eq!(
            fs::read_to_string(wrote(&rig, &id, "starts")).unwrap(),
            "x\n"
        );
    }
    let (a, b) = (
        rig.pod_agent(&task(1)).unwrap(),
        rig.pod_agent(&other).unwrap(),
    );
    assert_ne!(a, b);
    for id in [&task(1), &other] {
        rig.apply(Action::Stop(id.clone()));
        assert_eq!(rig.exit(id), Exit::Stopped);
        rig.forget(id);
    }
    nothing_left(&rig, &[a.0, b.0]);
}

#[test]
fn o1_a_pod_whose_agent_dies_is_lost_and_shown_until_it_is_forgotten() {
    for kind in [None, Some(Kind::Rlimits)] {
        let rig = Rig::with("lost", kind, None);
        rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command(TALK));
        let own = read_number(&wrote(&rig, &task(1), "pid")).unwrap();
        let child = read_number(&wrote(&rig, &task(1), "child")).unwrap();
        let agent = rig.pod_agent(&task(1)).unwrap().0;
        kill("-9", agent);
        let why = "its agent was killed by signal 9".into();
        assert_eq!(rig.exit(&task(1)), Exit::Lost { why });
        for pid in [own, child, agent] {
            assert!(!alive(pid), "{pid} outlived the end that was shown (O2)");
        }
        rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command("true"));
        assert!(matches!(rig.exit(&task(1)), Exit::Lost { .. }));
        rig.forget(&task(1));
        nothing_left(&rig, &[]);
    }
}

#[test]
fn a_pod_whose_agent_hangs_is_lost() {
    let rig = Rig::new("silent");
    rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command("sleep 600"));
    rig.running(&task(1));
    let agent = rig.pod_agent(&task(1)).unwrap().0;
    kill("-STOP", agent);
    let why = "its agent said nothing for 2 s and was killed".into();
    assert_eq!(rig.exit(&task(1)), Exit::Lost { why });
    assert!(!alive(agent));
}

#[test]
fn an_exit_that_was_told_is_kept_when_the_agent_dies() {
    let rig = Rig::new("told");
    rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command("exit 7"));
    assert_eq!(rig.exit(&task(1)), Exit::Code(7));
    let (agent, dir) = rig.pod_agent(&task(1)).unwrap();
    kill("-9", agent);
    rig.wait("its folder is gone", |_| (!dir.exists()).then_some(()));
    assert_eq!(rig.exit(&task(1)), Exit::Code(7));
    rig.forget(&task(1));
    nothing_left(&rig, &[agent]);
}

#[test]
fn a_running_pod_is_adopted_by_a_new_server() {
    let mut rig = Rig::new("adopted");
    let line = "echo x >> outputs/starts; while [ ! -f outputs/end ]; do sleep 0.02; done; cat outputs/starts";
    rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command(line));
    let starts = wrote(&rig, &task(1), "starts");
    let agent = rig.pod_agent(&task(1)).unwrap();
    rig.close();
    rig.open();
    let seen = rig.local().observe();
    assert_eq!(
        seen.tasks.get(&task(1)).map(|t| &t.phase),
        Some(&Phase::Running),
        "the first look is complete"
    );
    assert!(seen.nodes.is_empty());
    rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command("echo second"));
    assert_eq!(rig.pod_agent(&task(1)), Some(agent.clone()));
    fs::write(starts.with_file_name("end"), "").unwrap();
    assert_eq!(rig.exit(&task(1)), Exit::Code(0));
    let log = rig.text("runs/job/user_logs/std_log.txt");
    assert!(log.ends_with("\nx\n"), "started once: {log}");
    rig.forget(&task(1));
    nothing_left(&rig, &[agent.0]);
}

#[test]
fn a_pod_that_died_with_its_server_is_shown_as_lost_by_the_next() {
    for kind in [None, Some(Kind::Rlimits)] {
        let mut rig = Rig::with("both", kind, None);
        rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command(TALK));
        let own = read_number(&wrote(&rig, &task(1), "pid")).unwrap();
        let child = read_number(&wrote(&rig, &task(1), "child")).unwrap();
        let agent = rig.pod_agent(&task(1)).unwrap().0;
        rig.close();
        kill("-9", agent);
        let begun = Instant::now();
        while alive(agent) {
            assert!(begun.elapsed() < support::LIMIT, "it dies");
            std::thread::yield_now();
        }
        rig.open();
        let seen = rig.local().observe();
        let why = "its agent was not there any more when the server started".into();
        assert_eq!(
            seen.tasks.get(&task(1)).map(|t| &t.phase),
            Some(&Phase::Exited(Exit::Lost { why }))
        );
        rig.forget(&task(1));
        nothing_left(&rig, &[own, child, agent]);
    }
}

#[test]
fn o3_a_pod_whose_agent_had_not_heard_of_its_task_goes_on_with_the_next_server() {
    let mut rig = Rig::new("unheard");
    rig.start_pod(
        &task(1),
        pod("k", 500, GIB, 0),
        rig.command("echo $$ > outputs/pid; sleep 600"),
    );
    let first = read_number(&wrote(&rig, &task(1), "pid")).unwrap();
    let (agent, dir) = rig.pod_agent(&task(1)).unwrap();
    rig.close();
    // As if the server had died between starting the agent and its first word: the folder is there, the agent knows nothing.
    kill("-9", agent);
    kill("-9", first);
    let fresh = Command::new(support::exe())
        .args(["agent".as_ref(), "--dir".as_ref(), dir.as_os_str()])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    let mut fresh = Reaped(fresh.unwrap());
    let begun = Instant::now();
    while rig.pod_agent(&task(1)).map(|(pid, _)| pid) != Some(fresh.0.id()) {
        assert!(begun.elapsed() < support::LIMIT, "it writes its record");
        std::thread::yield_now();
    }
    rig.open();
    assert!(
        rig.local().observe().tasks.contains_key(&task(1)),
        "it is shown at once"
    );
    rig.running(&task(1));
    rig.apply(Action::Stop(task(1)));
    assert_eq!(rig.exit(&task(1)), Exit::Stopped);
    rig.forget(&task(1));
    let _ = fresh.0.wait();
    nothing_left(&rig, &[]);
}

struct Reaped(std::process::Child);
impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_pod_that_is_stopped_before_its_agent_is_up_leaves_nothing() {
    let rig = Rig::new("early");
    let (mut starts, mut ids) = (Vec::new(), Vec::new());
    for attempt in 1..=8 {
        let id = task(attempt);
        let placement = model::engine::Placement {
            place: model::Place::Matching(Box::new(pod("k", 500, GIB, 0))),
            gang: vec![id.clone()],
        };
        let spec = std::sync::Arc::new(rig.command("sleep 600"));
        starts.push(Action::Start(id.clone(), placement, spec));
        starts.push(Action::Stop(id.clone()));
        ids.push(id);
    }
    rig.local().apply(starts);
    for id in &ids {
        assert_eq!(rig.exit(id), Exit::Stopped);
        rig.forget(id);
    }
    nothing_left(&rig, &[]);
    let needle = rig.dir.join("data/nodes").display().to_string();
    support::none_left(&needle);
}

#[test]
fn a_pod_whose_agent_cannot_start_says_so() {
    let mut rig = Rig::new("broken");
    rig.exe = Some("/bin/false".into());
    rig.close();
    rig.open();
    rig.start_pod(&task(1), pod("k", 500, GIB, 0), rig.command("true"));
    let message = "its agent ended with exit code 1 before it was ready".into();
    assert_eq!(rig.exit(&task(1)), Exit::NotStarted { message });
    rig.forget(&task(1));
    rig.exe = Some("/no/such/program".into());
    rig.close();
    rig.open();
    rig.start_pod(&task(2), pod("k", 500, GIB, 0), rig.command("true"));
    let Exit::NotStarted { message } = rig.exit(&task(2)) else {
        panic!("it cannot be started");
    };
    assert!(
        message.starts_with("its agent cannot be started: "),
        "{message}"
    );
    rig.forget(&task(2));
    nothing_left(&rig, &[]);
}

#[test]
fn nominal_devices_are_granted_and_said_to_be_nominal() {
    let rig = declared("nominal");
    let line = "echo $AZ_BATCHAI_GPU_COUNT_FOUND ${CUDA_VISIBLE_DEVICES-none}";
    rig.start_pod(&task(1), pod("k", 500, GIB, 2), rig.command(line));
    assert_eq!(rig.exit(&task(1)), Exit::Code(0));
    let log = rig.text("runs/job/user_logs/std_log.txt");
    let real = fs::read_dir("/dev").unwrap().flatten().filter(|e| {
        let name = e.file_name();
        let name = name.to_str().and_then(|n| n.strip_prefix("nvidia"));
        name.is_some_and(|n| n.parse::<u32>().is_ok())
    });
    if real.count() == 0 {
        assert!(
            log.contains(
                "2 nvidia.com/gpu granted, 2 of them nominal: no hardware stands behind them"
            ),
            "{log}"
        );
        assert!(log.ends_with("\n2 none\n"), "{log}");
    }
    rig.forget(&task(1));
}

#[test]
fn the_variables_of_a_pod_are_the_owners_alone() {
    let rig = Rig::new("secret");
    let mut spec = rig.command("sleep 600");
    spec.variables.insert("TOKEN".into(), "s3cret".into());
    rig.start_pod(&task(1), pod("k", 500, GIB, 0), spec);
    rig.running(&task(1));
    let (_, dir) = rig.pod_agent(&task(1)).unwrap();
    let file = dir.join("node.json");
    assert!(fs::read_to_string(&file).unwrap().contains("s3cret"));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o777,
        0o600
    );
}
