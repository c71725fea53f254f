//! Gangs: tasks that begin together and find each other, on nodes and as pods.

mod support;

use model::{
    Action, BlobPath, Exit, Phase, Place, TaskId, TaskSpec,
    engine::{DISTRIBUTION_VARIABLE, PROCESSES_VARIABLE, Placement},
};
use port::Engine;
use std::{collections::BTreeSet, fs, sync::Arc};
use support::{Rig, alive, pod, task};

const GIB: u64 = 1 << 30;

fn members(n: u32) -> Vec<TaskId> {
    (0..n).map(|index| TaskId { index, ..task(1) }).collect()
}

fn asked(gang: &[TaskId], member: &TaskId, place: Place, spec: &TaskSpec) -> Action {
    let gang = gang.to_vec();
    let placement = Placement { place, gang };
    Action::Start(member.clone(), placement, Arc::new(spec.clone()))
}

fn a_pod() -> Place {
    Place::Matching(Box::new(pod("k", 500, GIB, 0)))
}

/// Starts a gang of pods.
fn start(rig: &Rig, n: u32, spec: &TaskSpec) -> Vec<TaskId> {
    let gang = members(n);
    let all = gang.iter().map(|m| asked(&gang, m, a_pod(), spec));
    rig.local().apply(all.collect());
    gang
}

fn distributed(rig: &Rig, kind: &str, processes: u32, line: &str) -> TaskSpec {
    let mut spec = rig.command(line);
    let variables = [
        (DISTRIBUTION_VARIABLE, kind.to_owned()),
        (PROCESSES_VARIABLE, processes.to_string()),
    ];
    for (name, value) in variables {
        spec.variables.insert(name.into(), value.into());
    }
    spec
}

/// What a process said last.
fn said(rig: &Rig, rank: u32) -> String {
    let log = rig.text(&format!("runs/job/user_logs/std_log_process_{rank:02}.txt"));
    log.lines().last().unwrap_or_default().to_owned()
}

fn preparing(rig: &Rig, task: &TaskId, what: &str) {
    rig.wait(&format!("{task} prepares: {what}"), |seen| {
        match &seen.tasks.get(task)?.phase {
            Phase::Preparing { what: now } if &**now == what => Some(()),
            Phase::Exited(exit) => panic!("{task} ended: {exit:?}"),
            Phase::Running => panic!("{task} runs before its gang is complete"),
            Phase::Preparing { .. } | Phase::Pending { .. } => None,
        }
    });
}

const OTHERS: &str = "the other tasks of its gang";

#[test]
fn j1_none_begins_before_all_are_prepared() {
    let rig = Rig::new("barrier");
    let gang = members(3);
    let spec = rig.command("sleep 600");
    for member in &gang[..2] {
        rig.apply(asked(&gang, member, a_pod(), &spec));
    }
    for member in &gang[..2] {
        preparing(&rig, member, OTHERS);
    }
    rig.apply(asked(&gang, &gang[2], a_pod(), &spec));
    for member in &gang {
        rig.running(member);
    }
}

#[test]
fn j1_a_member_that_cannot_be_prepared_keeps_the_others_from_beginning() {
    let rig = Rig::new("refused");
    let gang = members(3);
    let good = rig.command("sleep 600");
    let bad = TaskSpec {
        code: BlobPath::new("no/such"),
        ..rig.command("sleep 600")
    };
    let all = gang.iter().zip([&good, &bad, &good]);
    let all = all.map(|(member, spec)| asked(&gang, member, a_pod(), spec));
    rig.local().apply(all.collect());
    let message = "code: blob no/such does not exist".into();
    assert_eq!(rig.exit(&gang[1]), Exit::NotStarted { message });
    for member in [&gang[0], &gang[2]] {
        preparing(&rig, member, OTHERS);
        rig.apply(Action::Stop(member.clone()));
        assert_eq!(rig.exit(member), Exit::Stopped);
        let log = format!("runs/job/user_logs/std_log_process_{:02}.txt", member.index);
        assert!(!rig.blobs.join(log).exists(), "it never began");
    }
}

#[test]
fn j2_a_new_server_lets_a_gang_begin_that_waited_and_tells_the_same_addresses() {
    let mut rig = Rig::new("again");
    let gang = members(2);
    let line = "echo $MASTER_ADDR:$MASTER_PORT $TF_CONFIG; sleep 600";
    let spec = distributed(&rig, "tensorflow", 1, line);
    rig.apply(asked(&gang, &gang[0], a_pod(), &spec));
    preparing(&rig, &gang[0], OTHERS);
    rig.wait("the agent can be found by a new server", |_| {
        rig.pod_agent(&gang[0]).filter(|(pid, _)| *pid > 0)
    });
    rig.close();
    rig.open();
    preparing(&rig, &gang[0], OTHERS);
    rig.apply(asked(&gang, &gang[1], a_pod(), &spec));
    let mut told = BTreeSet::new();
    for (rank, member) in (0..).zip(&gang) {
        rig.running(member);
        let line = rig.wait("it says where", |_| {
            let log = format!("runs/job/user_logs/std_log_process_{rank:02}.txt");
            let text = fs::read_to_string(rig.blobs.join(log)).ok()?;
            text.lines()
                .find(|l| l.contains("TF_") || l.starts_with("127"))
                .map(str::to_owned)
        });
        told.insert(line.replace(&format!("\"index\":{rank}"), "\"index\":N"));
    }
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn a_gang_of_three_has_one_world() {
    let rig = Rig::new("world");
    let line = "echo $RANK $NODE_RANK $LOCAL_RANK $WORLD_SIZE $AZUREML_PROCESS_NAME $AZ_BATCH_HOST_LIST \
                $AZ_BATCHAI_MPI_MASTER_NODE $AZ_BATCHAI_GPU_COUNT_FOUND $MASTER_ADDR:$MASTER_PORT $TF_CONFIG";
    let gang = start(&rig, 3, &distributed(&rig, "tensorflow", 1, line));
    let mut configs = Vec::new();
    for (rank, member) in (0..).zip(&gang) {
        assert_eq!(rig.exit(member), Exit::Code(0));
        let said = said(&rig, rank);
        let words: Vec<&str> = said.splitn(10, ' ').collect();
        let hosts = "127.0.0.1,127.0.0.1,127.0.0.1";
        assert_eq!(
            words[..8],
            [
                &rank.to_string(),
                &rank.to_string(),
                "0",
                "3",
                &format!("rank_{rank}"),
                hosts,
                "127.0.0.1",
                "0"
            ]
        );
        let config: serde_json::Value = serde_json::from_str(words[9]).unwrap();
        assert_eq!(config["task"]["index"], rank);
        let workers = config["cluster"]["worker"].clone();
        assert_eq!(workers[0], words[8], "the master is the first worker");
        configs.push(workers);
    }
    assert!(configs.iter().all(|c| *c == configs[0]), "{configs:?}");
    let ports: BTreeSet<_> = configs[0]
        .as_array()
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(ports.len(), 3, "a port for each rank: {ports:?}");
}

#[test]
fn several_processes_of_each_node_are_ranks_of_one_world() {
    let rig = Rig::new("processes");
    let line = "echo $RANK $NODE_RANK $LOCAL_RANK $WORLD_SIZE $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK";
    let gang = start(&rig, 2, &distributed(&rig, "mpi", 3, line));
    for member in &gang {
        assert_eq!(rig.exit(member), Exit::Code(0));
    }
    for rank in 0..6 {
        let (node, local) = (rank / 3, rank % 3);
        assert_eq!(
            said(&rig, rank),
            format!("{rank} {node} {local} 6 {rank} 6 {local}")
        );
    }
    let log = rig.text("runs/job/user_logs/std_log_process_00.txt");
    assert!(
        log.contains("3 of 6 processes are started here, by Zaffre and not by mpirun"),
        "{log}"
    );
}

#[test]
fn d1_the_first_process_that_fails_ends_its_task() {
    let rig = Rig::new("fails");
    let line = "echo $$ > outputs/pid$LOCAL_RANK\n\
                if [ $LOCAL_RANK = 1 ]; then while [ ! -s outputs/pid0 ]; do sleep 0.01; done; exit 9; fi; sleep 600";
    let spec = distributed(&rig, "pytorch", 2, line);
    rig.start_pod(&task(1), pod("k", 500, GIB, 0), spec);
    assert_eq!(rig.exit(&task(1)), Exit::Code(9));
    let pid = support::read_number(&rig.blobs.join("runs/job/outputs/pid0")).unwrap();
    assert!(!alive(pid), "{pid} outlived its task");
}

/// What `torch.distributed` does first, without torch: rank 0 listens at the master's port, the others come to it.
const RENDEZVOUS: &str = r#"
import os, socket
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    server = socket.create_server(master)
    peers = [server.accept()[0] for _ in range(world - 1)]
    ranks = sorted(int(p.makefile("r").readline()) for p in peers)
    for p in peers:
        p.sendall(("%s\n" % ranks).encode())
    print("met", ranks)
else:
    while True:
        try:
            peer = socket.create_connection(master)
            break
        except ConnectionRefusedError:
            pass
    peer.sendall(("%d\n" % rank).encode())
    print("met", peer.makefile("r").readline().strip())
"#;

#[test]
fn ranks_meet_at_the_masters_address() {
    let rig = Rig::new("meet");
    rig.blob("code/meet.py", RENDEZVOUS);
    let mut spec = distributed(&rig, "pytorch", 2, "python3 meet.py");
    spec.code = BlobPath::new("code");
    let gang = start(&rig, 2, &spec);
    for member in &gang {
        assert_eq!(rig.exit(member), Exit::Code(0));
    }
    for rank in 0..4 {
        assert_eq!(said(&rig, rank), "met [1, 2, 3]");
    }
}

#[test]
fn two_gangs_of_one_machine_have_different_ports() {
    let rig = Rig::new("apart");
    let gangs: Vec<Vec<TaskId>> = (1..=2)
        .map(|attempt| {
            (0..2)
                .map(|index| TaskId {
                    index,
                    ..task(attempt)
                })
                .collect()
        })
        .collect();
    let spec = rig.command("echo $MASTER_PORT > outputs/port$AZUREML_ATTEMPT-$RANK; sleep 600");
    for gang in &gangs {
        let all = gang.iter().map(|m| asked(gang, m, a_pod(), &spec));
        rig.local().apply(all.collect());
    }
    let mut ports = Vec::new();
    for (attempt, gang) in (1..).zip(&gangs) {
        for (rank, member) in (0..).zip(gang) {
            rig.running(member);
            let name = format!("port{attempt}-{rank}");
            ports.push(rig.wait("the port is said", |_| {
                let (_, dir) = rig.pod_agent(member)?;
                let tasks = fs::read_dir(dir.join("tasks")).ok()?.flatten();
                tasks
                    .map(|t| t.path().join("work/outputs").join(&name))
                    .find_map(|f| support::read_number(&f))
            }));
        }
    }
    assert_eq!((ports[0], ports[2]), (ports[1], ports[3]));
    assert_ne!(ports[0], ports[2]);
}

#[test]
fn what_is_no_distribution_does_not_start() {
    let rig = Rig::new("unknown");
    rig.start_pod(
        &task(1),
        pod("k", 500, GIB, 0),
        distributed(&rig, "ray", 1, "true"),
    );
    let message = "ZAFFRE_DISTRIBUTION is `ray`, known are pytorch, mpi and tensorflow".into();
    assert_eq!(rig.exit(&task(1)), Exit::NotStarted { message });
}
