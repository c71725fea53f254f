//! Commands: how they end, what they find, what stays of them.

mod support;

use model::{
    Action, BlobPath, Bytes, Exit, Millis, NodeSeen, Phase, Time,
    engine::{InputSpec, OutputSpec},
};
use port::Engine;
use std::fs;
use support::{Rig, alive, now, read_number, task};

#[test]
fn exit_codes_and_signals_are_told_apart() {
    let rig = Rig::new("codes");
    assert_eq!(rig.run(rig.command("exit 42")), Exit::Code(42));
    let rig = Rig::new("signal");
    assert_eq!(rig.run(rig.command("kill -SEGV $$")), Exit::Signal(11));
    let rig = Rig::new("true");
    assert_eq!(rig.run(rig.command("/bin/true")), Exit::Code(0));
}

#[test]
fn both_streams_are_kept_with_the_attempt_and_the_node() {
    let rig = Rig::new("log");
    rig.run(rig.command("echo out; echo err >&2; printf 'no end'"));
    assert_eq!(
        rig.text("runs/job/user_logs/std_log.txt"),
        "[zaffre] attempt 1 on node low-pri-0.0\nout\nerr\nno end"
    );
}

#[test]
fn inputs_outputs_and_variables_are_where_they_are_said_to_be() {
    let rig = Rig::new("files");
    rig.blob("data/in/a b.csv", "1\n");
    rig.blob("code/sub/.hidden", "h");
    rig.blob("models/m/model.txt", "weights");
    let mut spec = rig.command(
        "set -e; cat '${{inputs.original}}/a b.csv'; cat '${{inputs.copy}}/a b.csv'; echo x >> '${{inputs.copy}}/a b.csv'\n\
         cat sub/.hidden; echo ${{inputs.word}} $AZURE_ML_INPUT_word; ls $AZUREML_MODEL_DIR; cat $AZUREML_MODEL_DIR/m/model.txt\n\
         echo made > ${{outputs.result}}/r.txt; echo one > ${{outputs.single}}; mkdir -p outputs/deep; echo kept > outputs/deep/k\n\
         echo; echo $AZUREML_RUN_ID $RANK $WORLD_SIZE $AZUREML_PROCESS_NAME $MY $AZUREML_ARM_WORKSPACE_NAME",
    );
    let path = |source: &str, copy| InputSpec::Path {
        source: BlobPath::new(source).unwrap(),
        copy,
    };
    spec.inputs
        .insert("original".into(), path("data/in", false));
    spec.inputs.insert("copy".into(), path("data/in", true));
    spec.inputs
        .insert("word".into(), InputSpec::Literal("hello".into()));
    let target = |t: &str, file| OutputSpec {
        target: BlobPath::new(t).unwrap(),
        file,
        register: None,
        address: None,
        remote: None,
    };
    spec.outputs
        .insert("result".into(), target("out/result", false));
    spec.outputs
        .insert("single".into(), target("out/one.txt", true));
    spec.code = BlobPath::new("code");
    spec.model = Some(model::engine::ModelSpec {
        source: BlobPath::new("models/m").unwrap(),
        mlflow: false,
    });
    spec.variables.insert("MY".into(), "own".into());
    let exit = rig.run(spec);
    let log = rig.text("runs/job/user_logs/std_log.txt");
    assert_eq!(exit, Exit::Code(0), "{log}");
    assert!(
        log.ends_with("1\n1\nhhello hello\nm\nweights\njob 0 1 rank_0 own w\n"),
        "{log}"
    );
    assert_eq!(
        rig.text("data/in/a b.csv"),
        "1\n",
        "the original is not touched"
    );
    assert_eq!(rig.text("out/result/r.txt"), "made\n");
    assert_eq!(rig.text("out/one.txt"), "one\n");
    assert_eq!(rig.text("runs/job/outputs/deep/k"), "kept\n");
}

#[test]
fn what_names_nothing_does_not_start() {
    let rig = Rig::new("unknown");
    let exit = rig.run(rig.command("echo ${{inputs.nope}}"));
    let Exit::NotStarted { message } = exit else {
        panic!("{exit:?}")
    };
    assert_eq!(
        &*message,
        "command: ${{inputs.nope}} names no input or output of this job"
    );
    let mut spec = rig.command("true");
    spec.code = BlobPath::new("no/such");
    let node = support::node(0);
    rig.start(&task(2), &node, spec);
    assert_eq!(
        rig.exit(&task(2)),
        Exit::NotStarted {
            message: "code: blob no/such does not exist".into()
        }
    );
}

#[test]
fn the_environment_is_clean_and_nothing_is_inherited() {
    let rig = Rig::new("clean");
    let exit = rig.run(rig.command("env | cut -d= -f1 | sort; ls /proc/self/fd | tr '\\n' ' '; id -u; cat /proc/self/status | grep NoNewPrivs; pwd; echo $HOME $TMPDIR; touch $HOME/a $TMPDIR/b"));
    assert_eq!(exit, Exit::Code(0));
    let log = rig.text("runs/job/user_logs/std_log.txt");
    assert!(!log.contains("CARGO"), "{log}");
    // 3 is the folder that ls reads.
    assert!(log.contains("0 1 2 3 "), "{log}");
    assert!(log.contains("NoNewPrivs:\t1"), "{log}");
    if rustix_is_root()
        && rig
            .local()
            .report()
            .iter()
            .any(|l| l.contains("uid of their own"))
    {
        assert!(!log.contains("3 0\n"), "the job is not root: {log}");
    }
}

fn rustix_is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

#[test]
fn another_users_job_cannot_look_into_this_one_nor_into_the_server() {
    let rig = Rig::new("closed");
    if !rig
        .local()
        .report()
        .iter()
        .any(|l| l.contains("uid of their own"))
    {
        assert!(
            !rustix_is_root(),
            "root isolates: {:?}",
            rig.local().report()
        );
        return;
    }
    fs::write(rig.dir.join("data/secret"), "s").unwrap();
    fs::set_permissions(
        rig.dir.join("data/secret"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    let (a, b) = (rig.node(0), rig.node(1));
    rig.start(
        &task(1),
        &a,
        rig.command("pwd > outputs/where; echo s > mine; sleep 600"),
    );
    rig.running(&task(1));
    let work = rig.wait("the folder is there", |_| {
        let nodes = fs::read_dir(rig.dir.join("data/nodes")).ok()?;
        nodes
            .flatten()
            .filter_map(|n| fs::read_dir(n.path().join("tasks")).ok()?.next()?.ok())
            .map(|t| t.path().join("work"))
            .find(|w| w.join("mine").is_file())
    });
    let mut spec = rig.command(&format!(
        "ls {}; ls {}; cat {}; cat {}",
        work.display(),
        rig.dir.join("data").display(),
        rig.dir.join("data/secret").display(),
        work.join("mine").display()
    ));
    spec.artifacts = BlobPath::new("runs/spy").unwrap();
    let spy = model::TaskId {
        index: 1,
        ..task(1)
    };
    rig.start(&spy, &b, spec);
    assert_ne!(rig.exit(&spy), Exit::Code(0));
    let log = rig.text("runs/spy/user_logs/std_log.txt");
    assert_eq!(log.matches("Permission denied").count(), 4, "{log}");
}

#[test]
fn a_stopped_command_is_asked_first() {
    let rig = Rig::new("stop");
    let node = rig.node(0);
    rig.start(
        &task(1),
        &node,
        rig.command("trap 'echo bye; exit 3' TERM; echo ready > outputs/ready; while true; do sleep 0.05; done"),
    );
    wait_for_file(&rig, "ready");
    rig.apply(Action::Stop(task(1)));
    rig.apply(Action::Stop(task(1)));
    assert_eq!(rig.exit(&task(1)), Exit::Stopped);
    assert!(
        rig.text("runs/job/user_logs/std_log.txt")
            .ends_with("bye\n")
    );
}

/// The working folder of the only task holds `outputs/<name>`.
fn wait_for_file(rig: &Rig, name: &str) -> std::path::PathBuf {
    rig.wait(&format!("outputs/{name} is written"), |_| {
        let nodes = fs::read_dir(rig.dir.join("data/nodes")).ok()?;
        nodes
            .flatten()
            .filter_map(|n| fs::read_dir(n.path().join("tasks")).ok())
            .flatten()
            .flatten()
            .map(|t| t.path().join("work/outputs").join(name))
            .find(|f| fs::read(f).is_ok_and(|b| !b.is_empty()))
    })
}

#[test]
fn a_daemon_dies_with_its_task() {
    for kind in kinds() {
        let rig = Rig::with("daemon", kind, None);
        let node = rig.node(0);
        let script = "(setsid bash -c 'trap \"\" TERM HUP INT; echo $BASHPID > outputs/pid; while true; do sleep 0.1; done' &) ; \
                      while [ ! -s outputs/pid ]; do sleep 0.01; done; echo here > outputs/here; exit 0";
        rig.start(&task(1), &node, rig.command(script));
        assert_eq!(rig.exit(&task(1)), Exit::Code(0));
        let pid = read_number(&rig.blobs.join("runs/job/outputs/pid")).unwrap();
        assert!(!alive(pid), "the daemon {pid} outlived its task");
    }
}

fn kinds() -> Vec<Option<engine_local::confine::Kind>> {
    vec![None, Some(engine_local::confine::Kind::Rlimits)]
}

#[test]
fn memory_above_the_limit_is_named_as_such() {
    for kind in kinds() {
        let rig = Rig::with("oom", kind, None);
        let mut spec = rig
            .command("python3 -c 'x = bytearray(400 << 20); import time; time.sleep(60)'; exit 5");
        spec.limits.memory = Bytes(128 << 20);
        assert_eq!(
            rig.run(spec),
            Exit::OutOfMemory {
                limit: Bytes(128 << 20)
            },
            "{:?}",
            rig.local().report()
        );
    }
}

#[test]
fn a_flood_is_cut_and_does_not_block() {
    let rig = Rig::new("flood");
    assert_eq!(
        rig.run(rig.command("head -c 100000000 /dev/zero; echo done >&2")),
        Exit::Code(0)
    );
    let log = fs::read(rig.blobs.join("runs/job/user_logs/std_log.txt")).unwrap();
    assert!(log.len() < 65 << 20, "{}", log.len());
    assert!(log.ends_with(b"the rest is dropped\n"));
}

#[test]
fn outputs_of_a_preempted_attempt_are_there_in_the_next() {
    let rig = Rig::new("again");
    let (a, b) = (rig.node(0), rig.node(1));
    let line = "if [ -f outputs/state ]; then cat outputs/state; exit 0; fi; echo first > outputs/state; echo x > outputs/ready; sleep 600";
    rig.start(&task(1), &a, rig.command(line));
    wait_for_file(&rig, "ready");
    // A notice: outputs are kept, the command's end by it is not reported, and the node goes at the time told.
    rig.apply(Action::Evict(a.clone(), now() + Millis(1500)));
    rig.wait("the node is evicting", |seen| {
        matches!(seen.nodes.get(&a), Some(NodeSeen::Evicting { .. })).then_some(())
    });
    rig.wait("the node goes", |seen| {
        assert!(
            !seen
                .tasks
                .get(&task(1))
                .is_some_and(|t| matches!(t.phase, Phase::Exited(_))),
            "an end by eviction is no end of its own"
        );
        (!seen.nodes.contains_key(&a) && !seen.tasks.contains_key(&task(1))).then_some(())
    });
    rig.start(&task(2), &b, rig.command(line));
    assert_eq!(rig.exit(&task(2)), Exit::Code(0));
    let log = rig.text("runs/job/user_logs/std_log.txt");
    assert!(
        log.ends_with("[zaffre] attempt 2 on node low-pri-1.0\nfirst\n"),
        "{log}"
    );
}

#[test]
fn a_node_taken_without_notice_is_gone_with_all_it_ran() {
    let rig = Rig::new("evict");
    let node = rig.node(0);
    rig.start(
        &task(1),
        &node,
        rig.command("echo $$ > outputs/pid; setsid sleep 600 & echo $! > outputs/child; wait"),
    );
    let pid = read_number(&wait_for_file(&rig, "pid")).unwrap();
    let child = read_number(&wait_for_file(&rig, "child")).unwrap();
    let agent = rig.agent_pid(&node);
    rig.apply(Action::Evict(node.clone(), Time(0)));
    rig.wait("the node is gone", |seen| {
        (!seen.nodes.contains_key(&node) && !seen.tasks.contains_key(&task(1))).then_some(())
    });
    for pid in [pid, child, agent] {
        assert!(!alive(pid), "{pid} is still there");
    }
}

#[test]
fn an_agent_that_dies_takes_its_node_and_nothing_else() {
    for kind in kinds() {
        let rig = Rig::with("agent", kind, None);
        let (a, b) = (rig.node(0), rig.node(1));
        let other = model::TaskId {
            index: 1,
            ..task(1)
        };
        rig.start(&other, &b, rig.command("sleep 600"));
        rig.start(
            &task(1),
            &a,
            rig.command("echo $$ > outputs/pid; sleep 600"),
        );
        let pid = read_number(&wait_for_file(&rig, "pid")).unwrap();
        rig.running(&other);
        let agent = rig.agent_pid(&a);
        std::process::Command::new("kill")
            .args(["-9", &agent.to_string()])
            .status()
            .unwrap();
        rig.wait("the node is gone", |seen| {
            (!seen.nodes.contains_key(&a) && !seen.tasks.contains_key(&task(1))).then_some(())
        });
        assert!(!alive(pid), "its command is dead");
        let seen = rig.local().observe();
        assert_eq!(seen.nodes.get(&b), Some(&NodeSeen::Up));
        assert_eq!(seen.tasks.get(&other).unwrap().phase, Phase::Running);
    }
}

#[test]
fn a_hanging_agent_is_killed_and_absent() {
    let rig = Rig::new("hang");
    let node = rig.node(0);
    let agent = rig.agent_pid(&node);
    std::process::Command::new("kill")
        .args(["-STOP", &agent.to_string()])
        .status()
        .unwrap();
    rig.wait("the node is gone", |seen| {
        (!seen.nodes.contains_key(&node)).then_some(())
    });
    assert!(!alive(agent));
}

#[test]
fn a_new_server_adopts_what_runs() {
    let mut rig = Rig::new("adopt");
    let (a, b) = (rig.node(0), rig.node(1));
    rig.start(
        &task(1),
        &a,
        rig.command("echo x >> outputs/starts; echo go > outputs/go; while [ ! -f /tmp/zaffre-never ] && [ ! -f outputs/end ]; do sleep 0.02; done; cat outputs/starts"),
    );
    let go = wait_for_file(&rig, "go");
    let agent = rig.agent_pid(&a);
    rig.close();
    // One of the agents dies while no server is there.
    let dead = rig.agent_pid(&b);
    std::process::Command::new("kill")
        .args(["-9", &dead.to_string()])
        .status()
        .unwrap();
    rig.open();
    let seen = rig.local().observe();
    assert!(seen.marks.all, "a new engine has to be looked at whole");
    assert_eq!(
        seen.tasks.get(&task(1)).map(|t| &t.phase),
        Some(&Phase::Running),
        "the first look is complete"
    );
    assert_eq!(seen.nodes.get(&a), Some(&NodeSeen::Up));
    assert!(!seen.nodes.contains_key(&b), "{:?}", seen.nodes.get(&b));
    assert_eq!(rig.agent_pid(&a), agent);
    rig.start(&task(1), &a, rig.command("echo second"));
    fs::write(go.with_file_name("end"), "").unwrap();
    assert_eq!(rig.exit(&task(1)), Exit::Code(0));
    assert!(
        rig.text("runs/job/user_logs/std_log.txt")
            .ends_with("\nx\n"),
        "started once"
    );
}

#[test]
fn a_node_that_died_with_its_server_is_buried_by_the_next() {
    for kind in kinds() {
        let mut rig = Rig::with("both", kind, None);
        let node = rig.node(0);
        rig.start(
            &task(1),
            &node,
            rig.command("echo $$ > outputs/pid; setsid sleep 600 & echo $! > outputs/child; wait"),
        );
        let pid = read_number(&wait_for_file(&rig, "pid")).unwrap();
        let child = read_number(&wait_for_file(&rig, "child")).unwrap();
        let agent = rig.agent_pid(&node);
        rig.close();
        std::process::Command::new("kill")
            .args(["-9", &agent.to_string()])
            .status()
            .unwrap();
        rig.open();
        let seen = rig.local().observe();
        assert!(
            seen.nodes.is_empty() && seen.tasks.is_empty(),
            "{:?}",
            seen.nodes
        );
        for pid in [pid, child, agent] {
            assert!(!alive(pid), "{pid} is still there");
        }
    }
}

#[test]
fn an_empty_node_is_let_go() {
    let rig = Rig::new("leave");
    let node = rig.node(0);
    let agent = rig.agent_pid(&node);
    rig.apply(Action::RemoveNode(node.clone()));
    rig.apply(Action::RemoveNode(node.clone()));
    rig.wait("the node is gone", |seen| {
        (!seen.nodes.contains_key(&node)).then_some(())
    });
    assert!(!alive(agent));
    assert!(rig.dir.join("data/nodes").read_dir().unwrap().all(|e| {
        let name = e.unwrap().file_name();
        name == "lock" || name.to_string_lossy().starts_with(".dead-")
    }));
}

#[test]
fn ranks_of_a_gang_know_each_other_and_log_apart() {
    let rig = Rig::new("gang");
    let gang: Vec<_> = (0..2)
        .map(|index| model::TaskId { index, ..task(1) })
        .collect();
    for index in 0..2 {
        let placement = model::engine::Placement {
            place: model::Place::On(rig.node(index)),
            gang: gang.clone(),
        };
        let spec = rig.command(
            "echo $RANK/$WORLD_SIZE $NODE_RANK $MASTER_ADDR:$MASTER_PORT $AZUREML_PROCESS_NAME",
        );
        let id = model::TaskId { index, ..task(1) };
        rig.apply(Action::Start(id, placement, std::sync::Arc::new(spec)));
    }
    let mut ports = Vec::new();
    for index in 0..2 {
        let id = model::TaskId { index, ..task(1) };
        assert_eq!(rig.exit(&id), Exit::Code(0));
        let log = rig.text(&format!(
            "runs/job/user_logs/std_log_process_{index:02}.txt"
        ));
        let said = log.lines().last().unwrap().to_owned();
        assert!(
            said.starts_with(&format!("{index}/2 {index} 127.0.0.1:")),
            "{said}"
        );
        assert!(said.ends_with(&format!("rank_{index}")), "{said}");
        ports.push(said.split(' ').nth(2).unwrap().to_owned());
    }
    assert_eq!(ports[0], ports[1]);
}

#[test]
fn descriptors_that_were_left_open_do_not_reach_a_job() {
    let rig = Rig::new("leak");
    // As in a server that somebody started with a descriptor left open.
    let careless = fs::File::open("/etc/passwd").unwrap();
    rustix::io::fcntl_setfd(&careless, rustix::io::FdFlags::empty()).unwrap();
    let exit = rig.run(rig.command("ls -l /proc/self/fd; ls -l /proc/$PPID/fd; exit 0"));
    assert_eq!(exit, Exit::Code(0));
    let log = rig.text("runs/job/user_logs/std_log.txt");
    assert!(!log.contains("/etc/passwd"), "{log}");
    let agent = rig.agent_pid(&support::node(0));
    let open = fs::read_dir(format!("/proc/{agent}/fd")).unwrap();
    for fd in open.flatten() {
        let to = fs::read_link(fd.path()).unwrap_or_default();
        assert_ne!(
            to,
            std::path::Path::new("/etc/passwd"),
            "the agent holds it"
        );
    }
}

#[test]
fn a_second_server_on_the_folder_is_refused() {
    let rig = Rig::new("second");
    let config = engine_local::LocalConfig {
        data: rig.dir.join("data"),
        blobs: std::sync::Arc::new(support::Folder(rig.blobs.clone())),
        exe: "/bin/true".into(),
        home: rig.dir.join("home"),
        variables: Default::default(),
        confinement: None,
        own_uid: None,
        labels: Default::default(),
        devices: Default::default(),
        node_selector: Default::default(),
    };
    let refused = engine_local::Local::new(config, port::Bell::new());
    assert!(matches!(refused, Err(engine_local::LocalError::InUse(_))));
}

#[test]
fn a_node_whose_agent_cannot_start_is_broken_and_can_be_removed() {
    let mut rig = Rig::new("broken");
    rig.close();
    let config = engine_local::LocalConfig {
        data: rig.dir.join("data"),
        blobs: std::sync::Arc::new(support::Folder(rig.blobs.clone())),
        exe: "/bin/false".into(),
        home: rig.dir.join("home"),
        variables: Default::default(),
        confinement: None,
        own_uid: None,
        labels: Default::default(),
        devices: Default::default(),
        node_selector: Default::default(),
    };
    rig.local = Some(engine_local::Local::new(config, rig.bell.clone()).unwrap());
    let id = support::node(0);
    rig.apply(Action::AddNode(id.clone(), support::node_spec()));
    rig.wait("the node is broken", |seen| {
        matches!(seen.nodes.get(&id), Some(NodeSeen::Broken { .. })).then_some(())
    });
    rig.apply(Action::RemoveNode(id.clone()));
    rig.wait("the node is gone", |seen| {
        (!seen.nodes.contains_key(&id)).then_some(())
    });
}
