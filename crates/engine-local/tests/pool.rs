//! Pools: rows complete and once, whatever happens to workers, agent and server.

mod support;

use model::{
    Action, BlobPath, Bytes, Exit, Millis, NodeSeen, Phase, Ranges, TaskSpec, Time,
    engine::{Cause, InputSpec, OutputSpec, Program, RowFormat},
};
use port::Engine;
use std::{
    fs,
    os::unix::ffi::OsStrExt,
    process::Command,
    time::{Duration, Instant},
};
use support::{Collected, LIMIT, Rig, alive, now, task};

const BASE: &str = "import os\ndef init():\n    pass\n";

fn names(n: u32) -> Vec<String> {
    (0..n).map(|i| format!("f{i:05}")).collect()
}

fn spec(rig: &Rig, run: &str, n: u32, workers: u32) -> TaskSpec {
    let names = names(n);
    let paths: Vec<&[u8]> = names.iter().map(|n| n.as_bytes()).collect();
    rig.pool(&format!("{BASE}{run}"), &paths, workers)
}

fn adjust(spec: &mut TaskSpec, change: impl FnOnce(&mut model::engine::PoolSpec)) {
    if let Program::Pool(pool) = &mut spec.program {
        change(pool);
    }
}

fn kill(signal: &str, pid: u32) {
    Command::new("kill")
        .args([signal, &pid.to_string()])
        .status()
        .unwrap();
}

/// Worker processes below an agent.
fn workers(agent: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| {
                s.rsplit(')')
                    .next()
                    .and_then(|r| r.split_ascii_whitespace().nth(1)?.parse().ok())
                    == Some(agent)
            }) && alive(*pid)
        })
        .collect()
}

fn message(cause: &Cause) -> String {
    cause.to_string()
}

const NAME: &str = "def run(batch):\n    return [os.path.basename(p) for p in batch]\n";

#[test]
fn a_thousand_indices_come_back_whole_and_once() {
    let rig = Rig::new("thousand");
    let node = rig.node(0);
    let spec = spec(&rig, NAME, 1000, 2);
    rig.start(&task(1), &node, spec);
    let got = rig.collect(&task(1), 1, Ranges::span(0, 1000), 1000);
    assert!(got.failed.is_empty(), "{:?}", got.failed);
    assert!(got.doubled.is_empty());
    for (index, text) in &got.rows {
        assert_eq!(text, &format!("f{index:05}\n"));
    }
    let seen = rig.local().observe();
    assert!(seen.tasks.get(&task(1)).unwrap().mailbox.started.is_empty());
    rig.apply(Action::Stop(task(1)));
    assert_eq!(rig.exit(&task(1)), Exit::Stopped);
}

#[test]
fn a_lend_counts_once_and_groups_are_cut_at_the_end() {
    let rig = Rig::new("groups");
    let node = rig.node(0);
    let mut spec = spec(
        &rig,
        "def run(batch):\n    return [str(len(batch))]\n",
        25,
        1,
    );
    adjust(&mut spec, |p| p.group = 10);
    rig.start(&task(1), &node, spec);
    for _ in 0..3 {
        rig.apply(Action::Lend(task(1), 1, Ranges::span(0, 3)));
    }
    let got = rig.collect(&task(1), 2, Ranges::new(), 3);
    let rows: Vec<_> = got.rows.values().map(String::as_str).collect();
    assert_eq!(rows, ["10\n", "10\n", "5\n"]);
    assert!(got.doubled.is_empty());
}

#[test]
fn results_become_rows_by_the_rules() {
    let rig = Rig::new("results");
    let node = rig.node(0);
    let run = "import sys\nclass Odd:\n    def __str__(self): raise ValueError('no text')\n\
        CASES = [['plain, \"text\"'], [('a,b', 'c\"d', 1.5, None), (1, 2)], [], None, 'text', ['two\\nlines'], [Odd()],\n\
        [('with\\nbreak',)], [['']], ({'k': 1},), 7, ['\\ud800']]\n\
        def run(batch):\n    return CASES[int(batch[0][-5:])]\n";
    let spec = spec(&rig, run, 12, 1);
    rig.start(&task(1), &node, spec);
    let mut got = rig.collect(&task(1), 1, Ranges::span(0, 12), 12);
    got.failed.sort_by_key(|f| f.0);
    let rows = |i: u32| got.rows.get(&i).map(String::as_str);
    assert_eq!(rows(0), Some("plain, \"text\"\n"), "a str is verbatim");
    assert_eq!(rows(1), Some("\"a,b\",\"c\"\"d\",1.5,\n1,2\n"));
    assert_eq!((rows(2), got.items[&2]), (Some(""), 0));
    assert_eq!(rows(7), Some("\"with\nbreak\"\n"));
    assert_eq!(rows(8), Some("\"\"\n"));
    assert_eq!(rows(9), Some("{'k': 1}\n"));
    let failed: Vec<_> = got.failed.iter().map(|(i, c)| (*i, message(c))).collect();
    assert_eq!(failed[0], (3, "run() returned None".to_owned()));
    assert_eq!(
        failed[1],
        (
            4,
            "run() returned a str, not a DataFrame, list or tuple".to_owned()
        )
    );
    assert_eq!(
        failed[2],
        (
            5,
            "element 0 of the result has a line break inside: 'two\\nlines'".to_owned()
        )
    );
    assert!(failed[3].1.contains("no text"), "{failed:?}");
    assert_eq!(
        failed[4],
        (
            10,
            "run() returned a int, not a DataFrame, list or tuple".to_owned()
        )
    );
    assert_eq!(failed[5].0, 11);
    assert!(
        got.failed
            .iter()
            .take(3)
            .all(|(_, c)| matches!(c, Cause::BadResult { .. }))
    );
}

#[test]
fn azures_form_and_summaries_are_there_when_asked_for() {
    let rig = Rig::new("azure");
    let node = rig.node(0);
    let run = "def run(batch):\n    return [('a', 1, 'b c')]\n";
    let mut azure = spec(&rig, run, 1, 1);
    adjust(&mut azure, |p| p.format = RowFormat::Azure);
    rig.start(&task(1), &node, azure.clone());
    assert_eq!(
        rig.collect(&task(1), 1, Ranges::span(0, 1), 1).rows[&0],
        "a 1 b c\n"
    );
    rig.apply(Action::Stop(task(1)));
    rig.exit(&task(1));
    adjust(&mut azure, |p| p.collect = false);
    rig.start(&task(2), &node, azure);
    let got = rig.collect(&task(2), 1, Ranges::span(0, 1), 1);
    assert_eq!((got.rows[&0].as_str(), got.items[&0]), ("", 1));
}

#[test]
fn whatever_user_code_raises_is_one_failed_attempt() {
    let rig = Rig::new("raises");
    let node = rig.node(0);
    let run = "import sys\ndef run(batch):\n    i = int(batch[0][-5:])\n    if i == 0: raise ValueError('bad\\nvalue')\n    \
        if i == 1: sys.exit(42)\n    if i == 2: raise KeyboardInterrupt\n    return ['fine']\n";
    let spec = spec(&rig, run, 4, 1);
    rig.start(&task(1), &node, spec);
    let mut got = rig.collect(&task(1), 1, Ranges::span(0, 4), 4);
    got.failed.sort_by_key(|f| f.0);
    let texts: Vec<_> = got.failed.iter().map(|(_, c)| message(c)).collect();
    assert_eq!(
        texts,
        [
            "ValueError: bad value",
            "SystemExit: 42",
            "KeyboardInterrupt"
        ]
    );
    assert_eq!(got.rows[&3], "fine\n");
    let log = rig.text("runs/job/logs/user/error/low-pri-0.0/process000.txt");
    assert!(
        log.starts_with("mini-batch 0: ValueError: bad value\nTraceback"),
        "{log}"
    );
}

#[test]
fn a_worker_that_is_killed_costs_one_attempt_and_is_replaced() {
    let rig = Rig::new("killed");
    let node = rig.node(0);
    let run = "import time\ndef run(batch):\n    time.sleep(0.01)\n    return [os.path.basename(p) for p in batch]\n";
    let spec = spec(&rig, run, 100, 2);
    rig.start(&task(1), &node, spec);
    rig.running(&task(1));
    let agent = rig.agent_pid(&node);
    rig.apply(Action::Lend(task(1), 1, Ranges::span(0, 100)));
    let mut got = Collected::default();
    rig.collect_more(&task(1), &mut got, 5);
    let before = workers(agent);
    assert_eq!(before.len(), 2);
    for pid in &before {
        kill("-9", *pid);
    }
    rig.collect_more(&task(1), &mut got, 100);
    assert!(got.doubled.is_empty());
    assert!(got.failed.len() <= 2, "{:?}", got.failed);
    for (index, cause) in &got.failed {
        assert!(!got.rows.contains_key(index));
        assert_eq!(message(cause), "the worker died: killed by signal 9");
    }
    let after = workers(agent);
    assert!(
        after.iter().all(|p| !before.contains(p)),
        "{before:?} {after:?}"
    );
}

#[test]
fn misbehaving_workers_fail_one_index_each_and_leave_nothing() {
    let rig = Rig::new("misbehave");
    let node = rig.node(0);
    let run = "import sys, time, subprocess\ndef run(batch):\n    i = int(batch[0][-5:])\n    \
        if i == 0: os._exit(0)\n    \
        if i == 1:\n        time.sleep(600)\n    \
        if i == 11:\n        for fd in range(3): os.close(fd)\n    \
        if i == 3:\n        if os.fork() == 0:\n            os.setsid()\n            if os.fork() == 0:\n                time.sleep(600)\n            os._exit(0)\n    \
        if i == 4:\n        if os.fork() == 0:\n            return ['from the child']\n    \
        if i == 5:\n        sys.stdout.write('x' * 100000000)\n    \
        if i == 6:\n        os.kill(os.getpid(), 11)\n    \
        if i == 7:\n        import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)\n    \
        if i == 8:\n        os.closerange(3, 4096); return ['gone']\n    \
        return [str(i)]\n";
    let mut spec = spec(&rig, run, 12, 2);
    adjust(&mut spec, |p| p.timeout = Millis(1000));
    rig.start(&task(1), &node, spec);
    rig.running(&task(1));
    let begun = Instant::now();
    let mut got = rig.collect(&task(1), 1, Ranges::span(0, 12), 12);
    assert!(begun.elapsed() < Duration::from_secs(30));
    got.failed.sort_by_key(|f| f.0);
    let failed: Vec<_> = got.failed.iter().map(|(i, c)| (*i, message(c))).collect();
    assert_eq!(failed[0], (0, "the worker died: exit code 0".into()));
    assert_eq!(failed[1], (1, "run() took longer than 1000 ms".into()));
    assert_eq!(
        failed[2],
        (6, "the worker died: killed by signal 11".into())
    );
    assert_eq!(failed[3], (7, "run() took longer than 1000 ms".into()));
    assert_eq!(failed[4].0, 8);
    assert_eq!(failed.len(), 5, "{failed:?}");
    for i in [2, 3, 4, 5, 9, 10, 11] {
        assert_eq!(got.rows[&i], format!("{i}\n"));
    }
    assert!(got.doubled.is_empty());
    rig.apply(Action::Stop(task(1)));
    rig.exit(&task(1));
    let agent = rig.agent_pid(&node);
    assert_eq!(
        workers(agent),
        Vec::<u32>::new(),
        "the daemon of index 3 is dead too"
    );
    let logs = rig.blobs.join("runs/job/logs/user/stdout/low-pri-0.0");
    let largest = fs::read_dir(logs)
        .unwrap()
        .map(|e| e.unwrap().metadata().unwrap().len())
        .max();
    assert!(largest.unwrap() < 65 << 20);
}

#[test]
fn a_poison_index_that_eats_memory_fails_every_time_and_others_finish() {
    for kind in [None, Some(engine_local::confine::Kind::Rlimits)] {
        let rig = Rig::with("poison", kind, None);
        let node = rig.node(0);
        let run = "import time\ndef run(batch):\n    i = int(batch[0][-5:])\n    if i == 3:\n        x = bytearray(400 << 20); time.sleep(600)\n    return [str(i)]\n";
        let mut spec = spec(&rig, run, 20, 2);
        spec.limits.memory = Bytes(150 << 20);
        rig.start(&task(1), &node, spec);
        let mut got = rig.collect(&task(1), 1, Ranges::span(0, 20), 20);
        for lend in 2..4 {
            rig.apply(Action::Lend(task(1), lend, Ranges::span(3, 4)));
            let n = got.total() + 1;
            rig.collect_more(&task(1), &mut got, n);
        }
        assert_eq!(got.rows.len(), 19);
        assert_eq!(got.failed.len(), 3);
        for (index, cause) in &got.failed {
            assert_eq!(*index, 3);
            assert_eq!(
                *cause,
                Cause::OutOfMemory {
                    limit: Bytes(150 << 20)
                },
                "{:?}",
                rig.local().report()
            );
        }
    }
}

#[test]
fn init_that_fails_ends_the_pool_with_the_first_message() {
    let rig = Rig::new("init");
    let node = rig.node(0);
    let paths: [&[u8]; 1] = [b"a"];
    let script =
        "def init():\n    raise RuntimeError('no model here')\ndef run(b):\n    return b\n";
    rig.start(&task(1), &node, rig.pool(script, &paths, 2));
    assert_eq!(
        rig.exit(&task(1)),
        Exit::Init {
            message: "RuntimeError: no model here".into()
        }
    );
    let script = "import os\ndef init():\n    os._exit(7)\ndef run(b):\n    return b\n";
    rig.start(&task(2), &node, rig.pool(script, &paths, 1));
    assert_eq!(
        rig.exit(&task(2)),
        Exit::Init {
            message: "the worker died in init(): exit code 7".into()
        }
    );
    rig.start(&task(3), &node, rig.pool("def run(:\n", &paths, 1));
    let Exit::Init { message } = rig.exit(&task(3)) else {
        panic!()
    };
    assert!(message.starts_with("SyntaxError"), "{message}");
}

#[test]
fn any_file_name_reaches_the_script_and_the_rows() {
    let rig = Rig::new("names");
    let node = rig.node(0);
    let long = [b'n'; 255];
    let odd: [&[u8]; 6] = [
        b"new\nline",
        b"quote\"and'",
        &long,
        "下/日本語.csv".as_bytes(),
        b"\xff\xfe not utf-8",
        b" $(touch x) ; `id`",
    ];
    let run = "import os\ndef run(batch):\n    p = batch[0]\n    assert open(p, 'rb').read() == b'here', p\n    return [(os.path.basename(p),)]\n";
    let spec = rig.pool(run, &odd, 1);
    for name in odd {
        let at = rig
            .blobs
            .join("input")
            .join(std::ffi::OsStr::from_bytes(name));
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, "here").unwrap();
    }
    rig.start(&task(1), &node, spec);
    let got = rig.collect(&task(1), 1, Ranges::span(0, 6), 6);
    assert!(got.failed.is_empty(), "{:?}", got.failed);
    assert_eq!(got.rows[&0], "\"new\nline\"\n");
    assert_eq!(got.rows[&1], "\"quote\"\"and'\"\n");
    assert_eq!(got.rows[&3], "日本語.csv\n");
}

#[test]
fn a_notice_returns_what_was_not_begun_and_finishes_what_runs() {
    let rig = Rig::new("notice");
    let node = rig.node(0);
    let run = "import time\ndef run(batch):\n    time.sleep(0.1)\n    return ['done']\n";
    let spec = spec(&rig, run, 1000, 2);
    rig.start(&task(1), &node, spec);
    rig.running(&task(1));
    rig.apply(Action::Lend(task(1), 1, Ranges::span(0, 1000)));
    rig.wait("two have begun", |seen| {
        (seen.tasks.get(&task(1))?.mailbox.started.len() == 2).then_some(())
    });
    rig.apply(Action::Evict(node.clone(), now() + Millis(5000)));
    let mut got = Collected::default();
    rig.collect_more(&task(1), &mut got, 1000);
    assert!(got.failed.is_empty());
    assert!(got.rows.len() <= 8, "{}", got.rows.len());
    assert!(got.returned.len() >= 992);
    // What is lent now comes back at once.
    rig.apply(Action::Lend(task(1), 2, Ranges::span(1000, 1010)));
    rig.collect_more(&task(1), &mut got, 1010);
    assert!(got.returned.contains(1005));
    rig.wait("nothing runs", |seen| {
        seen.tasks
            .get(&task(1))?
            .mailbox
            .started
            .is_empty()
            .then_some(())
    });
    rig.apply(Action::Evict(node.clone(), Time(0)));
    rig.wait("the node is gone", |seen| {
        (!seen.nodes.contains_key(&node)).then_some(())
    });
}

#[test]
fn what_runs_when_its_task_is_told_to_stop_has_not_failed() {
    let rig = Rig::new("stopped");
    let node = rig.node(0);
    let run = "import time\ndef run(batch):\n    time.sleep(600)\n";
    let spec = spec(&rig, run, 8, 2);
    rig.start(&task(1), &node, spec);
    rig.running(&task(1));
    rig.apply(Action::Lend(task(1), 1, Ranges::span(0, 8)));
    rig.wait("two have begun", |seen| {
        (seen.tasks.get(&task(1))?.mailbox.started.len() == 2).then_some(())
    });
    rig.apply(Action::Stop(task(1)));
    assert_eq!(rig.exit(&task(1)), Exit::Stopped);
    let seen = rig.local().observe();
    let parcels = &seen.tasks.get(&task(1)).unwrap().mailbox.parcels;
    assert!(
        parcels.iter().all(|parcel| parcel.failed.is_empty()),
        "{parcels:?}"
    );
    assert!(!rig.blobs.join("runs/job/logs/user/error").exists());
}

#[test]
fn a_new_server_gets_every_parcel_and_starts_nothing_twice() {
    let mut rig = Rig::new("adopt-pool");
    let node = rig.node(0);
    let run = "import time\nopen('outputs_of_init', 'a').write('i')\ndef run(batch):\n    time.sleep(0.002)\n    return [os.path.basename(p) for p in batch]\n";
    let spec = spec(&rig, run, 600, 2);
    rig.start(&task(1), &node, spec.clone());
    rig.running(&task(1));
    rig.apply(Action::Lend(task(1), 1, Ranges::span(0, 600)));
    let mut got = Collected::default();
    rig.collect_more(&task(1), &mut got, 50);
    rig.close();
    let agent = rig.agent_pid(&node);
    let before = workers(agent);
    // Work goes on without a server: the folder's own evidence is the worker's processes.
    rig.open();
    let seen = rig.local().observe();
    let adopted = seen
        .tasks
        .get(&task(1))
        .expect("it is there at the first look");
    assert_eq!(adopted.phase, Phase::Running);
    assert_eq!(adopted.mailbox.lent, 1);
    assert!(
        adopted
            .mailbox
            .parcels
            .first()
            .is_none_or(|p| p.seq <= got.seq + 1),
        "no parcel is lost"
    );
    rig.start(&task(1), &node, spec);
    rig.apply(Action::Lend(task(1), 1, Ranges::span(0, 600)));
    rig.collect_more(&task(1), &mut got, 600);
    assert!(got.doubled.is_empty() && got.failed.is_empty());
    assert_eq!(workers(agent), before);
}

#[test]
fn a_killed_agent_leaves_no_worker_behind() {
    let rig = Rig::new("agent-pool");
    let node = rig.node(0);
    let spec = spec(
        &rig,
        "import time\ndef run(batch):\n    time.sleep(600)\n",
        4,
        2,
    );
    rig.start(&task(1), &node, spec);
    rig.running(&task(1));
    rig.apply(Action::Lend(task(1), 1, Ranges::span(0, 4)));
    rig.wait("two have begun", |seen| {
        (seen.tasks.get(&task(1))?.mailbox.started.len() == 2).then_some(())
    });
    let agent = rig.agent_pid(&node);
    let all = workers(agent);
    assert_eq!(all.len(), 2);
    kill("-9", agent);
    rig.wait("the node is gone", |seen| {
        (!seen.nodes.contains_key(&node) && !seen.tasks.contains_key(&task(1))).then_some(())
    });
    for pid in all {
        assert!(!alive(pid), "worker {pid} outlived its node");
    }
}

#[test]
fn workers_pause_when_nobody_acknowledges() {
    let rig = Rig::new("crowded");
    let node = rig.node(0);
    let spec = spec(
        &rig,
        "def run(batch):\n    return ['x' * (4 << 20)]\n",
        100,
        2,
    );
    rig.start(&task(1), &node, spec);
    rig.running(&task(1));
    rig.apply(Action::Lend(task(1), 1, Ranges::span(0, 100)));
    let held = |seen: &model::Observed| -> Option<usize> {
        let mailbox = &seen.tasks.get(&task(1))?.mailbox;
        Some(mailbox.parcels.iter().map(|p| p.rows.len()).sum())
    };
    rig.wait("the outbox is full and nothing runs", |seen| {
        let mailbox = &seen.tasks.get(&task(1))?.mailbox;
        (held(seen)? >= 64 << 20 && mailbox.started.is_empty()).then_some(())
    });
    let full = held(&rig.local().observe()).unwrap();
    assert!(full < 90 << 20, "{full}");
    let mut got = Collected::default();
    rig.collect_more(&task(1), &mut got, 100);
    assert_eq!(got.rows.len(), 100);
}

#[test]
fn the_script_finds_its_folder_its_arguments_and_its_model() {
    let rig = Rig::new("context");
    let node = rig.node(0);
    rig.blob("code/src/helper.py", "WORD = 'helped'\n");
    rig.blob("models/m.pkl", "w");
    let script = "import argparse, os, sys\nimport helper\n\
        p = argparse.ArgumentParser(); p.add_argument('--logging_level'); args, _ = p.parse_known_args()\n\
        def run(batch):\n    print('printed'); print('cried', file=sys.stderr)\n    \
        open(os.path.join(os.environ['AZUREML_BI_OUTPUT_PATH'], 'own.txt'), 'w').write('x')\n    \
        return [helper.WORD, args.logging_level, str(os.path.exists(os.environ['AZUREML_MODEL_DIR'] + '/m.pkl')), os.path.basename(os.getcwd()), os.environ['MY']]\n";
    let paths: [&[u8]; 1] = [b"a"];
    let mut spec = rig.pool("", &paths, 1);
    rig.blob("code/src/score.py", script);
    adjust(&mut spec, |p| p.script = Some("src/score.py".into()));
    spec.model = Some(model::engine::ModelSpec {
        source: BlobPath::new("models/m.pkl").unwrap(),
        mlflow: false,
    });
    spec.variables.insert("MY".into(), "own".into());
    rig.start(&task(1), &node, spec);
    let got = rig.collect(&task(1), 1, Ranges::span(0, 1), 1);
    assert!(got.failed.is_empty(), "{:?}", got.failed);
    assert_eq!(got.rows[&0], "helped\ninfo\nTrue\nwork\nown\n");
    assert_eq!(rig.text("runs/score/own.txt"), "x");
    let end = Instant::now() + LIMIT;
    let logs = ["stdout", "stderr"].map(|s| {
        rig.blobs.join(format!(
            "runs/job/logs/user/{s}/low-pri-0.0/process000.{s}.txt"
        ))
    });
    while !logs
        .iter()
        .all(|l| fs::read(l).is_ok_and(|b| b.ends_with(b"\n")))
    {
        assert!(Instant::now() < end);
        rig.bell.wait(Duration::from_millis(20));
    }
    assert_eq!(fs::read_to_string(&logs[0]).unwrap(), "printed\n");
    assert_eq!(fs::read_to_string(&logs[1]).unwrap(), "cried\n");
}

#[test]
fn a_pool_without_limits_of_the_kernel_works_the_same() {
    let rig = Rig::with(
        "plain",
        Some(engine_local::confine::Kind::Rlimits),
        Some(false),
    );
    let node = rig.node(0);
    let spec = spec(&rig, NAME, 50, 2);
    rig.start(&task(1), &node, spec);
    let got = rig.collect(&task(1), 1, Ranges::span(0, 50), 50);
    assert_eq!(got.rows.len(), 50);
    assert_eq!(rig.local().observe().nodes.get(&node), Some(&NodeSeen::Up));
}

#[test]
fn workers_share_the_cores_unless_the_user_says_otherwise() {
    let rig = Rig::new("threads");
    let node = rig.node(0);
    let run = "def run(batch):\n    return [os.environ[n] for n in ('OMP_NUM_THREADS', 'MKL_NUM_THREADS')]\n";
    let cores = std::thread::available_parallelism().unwrap().get();
    let workers = u32::try_from(cores).unwrap() * 2;
    let mut spec = spec(&rig, run, 1, workers);
    spec.variables.insert("MKL_NUM_THREADS".into(), "7".into());
    rig.start(&task(1), &node, spec);
    let got = rig.collect(&task(1), 1, Ranges::span(0, 1), 1);
    assert!(got.failed.is_empty(), "{:?}", got.failed);
    assert_eq!(got.rows[&0], "1\n7\n");
}

/// Says what it was given, writes a file to an output for each index, a line to a file of all, and a file when it ends. Nobody
/// goes on before both workers are at work.
const ARGUED: &str = "import sys, time\ndef init():\n    global args\n    args = sys.argv[1:]\n\
    def run(batch):\n    open('met-%d' % os.getpid(), 'w').close()\n    while sum(n.startswith('met') for n in os.listdir('.')) < 2:\n        time.sleep(0.005)\n    name = os.path.basename(batch[0])\n    open(os.path.join(args[1], name), 'w').write(args[3])\n    open(args[5], 'a').write('x')\n    return [' '.join(args)]\n\
    def shutdown():\n    time.sleep(2.5)\n    open(os.path.join(args[1], 'end-%d' % os.getpid()), 'w').close()\n";

#[test]
fn a_script_gets_its_arguments_shares_its_outputs_and_says_good_bye() {
    let rig = Rig::new("arguments");
    let node = rig.node(0);
    let mut spec = spec(&rig, ARGUED, 6, 2);
    let words = [
        "--to",
        "${{outputs.files}}",
        "--label",
        "${{inputs.label}}",
        "--log",
        "${{outputs.log}}",
        "--in=${{inputs.data}}",
    ];
    adjust(&mut spec, |p| {
        p.shutdown = true;
        p.rows = Some("rows".into());
        p.arguments = words.map(Into::into).into();
    });
    let label = InputSpec::Literal("two words".into());
    spec.inputs.insert("label".into(), label);
    for (name, target, file) in [
        ("files", "out/files", false),
        ("log", "out/log.txt", true),
        ("rows", "out/rows.csv", true),
    ] {
        let target = BlobPath::new(target).unwrap();
        spec.outputs.insert(
            name.into(),
            OutputSpec {
                target,
                file,
                address: None,
                register: None,
                remote: None,
            },
        );
    }
    rig.start(&task(1), &node, spec);
    let got = rig.collect(&task(1), 1, Ranges::span(0, 6), 6);
    let at = |path: &str| rig.blobs.join(path).display().to_string();
    let expected = format!(
        "--to {} --label two words --log {} --in={} --logging_level info\n",
        at("out/files"),
        at("out/log.txt"),
        at("input")
    );
    assert_eq!(got.rows.len(), 6);
    for text in got.rows.values() {
        assert_eq!(*text, expected);
    }
    // They are where they belong before the task has ended: another node may be taken, and nobody writes them again.
    let files = rig.blobs.join("out/files");
    let there = || -> (usize, usize) {
        let names = fs::read_dir(&files)
            .unwrap()
            .flatten()
            .map(|e| e.file_name().into_string().unwrap());
        let (ends, others): (Vec<_>, Vec<_>) = names.partition(|name| name.starts_with("end-"));
        (others.len(), ends.len())
    };
    assert_eq!(there(), (6, 0));
    assert_eq!(
        fs::read_to_string(files.join("f00003")).unwrap(),
        "two words"
    );
    assert_eq!(
        fs::read_to_string(rig.blobs.join("out/log.txt")).unwrap(),
        "xxxxxx"
    );
    rig.apply(Action::Stop(task(1)));
    assert_eq!(rig.exit(&task(1)), Exit::Stopped);
    assert_eq!(
        there(),
        (6, 2),
        "shutdown() of each took longer than workers without one may"
    );
    assert!(
        !rig.blobs.join("out/rows.csv").exists(),
        "the run's publication writes that"
    );
}

#[test]
fn an_argument_that_names_nothing_is_an_error_that_names_it() {
    let rig = Rig::new("unknown-argument");
    let node = rig.node(0);
    let mut spec = spec(&rig, NAME, 1, 1);
    adjust(&mut spec, |p| p.arguments = vec!["${{inputs.dat}}".into()]);
    rig.start(&task(1), &node, spec);
    let Exit::NotStarted { message } = rig.exit(&task(1)) else {
        panic!("it has started");
    };
    assert!(
        message.contains("${{inputs.dat}} names no input or output"),
        "{message}"
    );
}

#[test]
fn a_thread_that_lives_on_does_not_keep_a_node() {
    let rig = Rig::new("thread");
    let node = rig.node(0);
    let run = "def run(batch):\n    import threading, time\n    threading.Thread(target=time.sleep, args=(60,)).start()\n    return ['x']\n\
        def shutdown():\n    pass\n";
    let mut spec = spec(&rig, run, 1, 1);
    adjust(&mut spec, |p| p.shutdown = true);
    rig.start(&task(1), &node, spec);
    rig.collect(&task(1), 1, Ranges::span(0, 1), 1);
    let begun = Instant::now();
    rig.apply(Action::Stop(task(1)));
    assert_eq!(rig.exit(&task(1)), Exit::Stopped);
    let took = begun.elapsed();
    assert!(
        took < Duration::from_secs(20),
        "{took:?}, a script with a shutdown() has 30 s"
    );
}
