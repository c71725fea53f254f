//! Every kind of thing that keeps a job of a Kubernetes compute from running: what is said of it, and that doing exactly what
//! is printed, and nothing else, makes the job run.

use super::Story;
use model::{
    Bytes, ClusterKey, Fix, InstanceType, Machine, MilliCpu, Outcome, Resources, RunState, Time,
    Why,
    instance_type::{Amounts, Unchecked, Written},
    kubernetes::TypeSeen,
};

struct Blocker {
    what: &'static str,
    script: &'static [&'static str],
    says: &'static str,
    fix: Remedy,
}

enum Remedy {
    /// Exactly what is printed.
    Printed,
    /// These lines: what the text asks for in its own words.
    Lines(&'static [&'static str]),
}
use Remedy::{Lines, Printed};

/// A type of one core and one GiB on the attached cluster `k`.
const PLAIN: &str = "type k t cpu=1000 memory=1";
const JOB: &str = "command j on k type=t";

/// Job `j` is the one that waits.
const BLOCKERS: &[Blocker] = &[
    Blocker {
        what: "cores are taken",
        script: &["machine k n1 cpu=4000 taken=3500", PLAIN, JOB],
        says: "n1: cpu: needs 1, 4 allocatable, 3500m requested by pods there",
        fix: Printed,
    },
    Blocker {
        what: "no machine has so many cores",
        script: &["machine k n1 cpu=4000", "type k t cpu=64000 memory=1", JOB],
        says: "largest node has 4 cpu, the type needs 64",
        fix: Printed,
    },
    Blocker {
        what: "memory is taken",
        script: &[
            "machine k n1 memory=16 taken_memory=15",
            "type k t memory=2",
            JOB,
        ],
        says: "n1: memory: needs 2Gi, 16Gi allocatable, 15Gi requested by pods there",
        fix: Printed,
    },
    Blocker {
        what: "no machine has so much memory",
        script: &["machine k n1 memory=16", "type k t memory=64", JOB],
        says: "largest node has 16Gi memory, the type needs 64Gi",
        fix: Printed,
    },
    Blocker {
        what: "GPUs are taken",
        script: &["machine k n1 gpu=4 taken_gpu=3", "type k t gpu=2", JOB],
        says: "n1: nvidia.com/gpu: needs 2, 4 allocatable, 3 requested by pods there",
        fix: Printed,
    },
    Blocker {
        what: "no machine has so many GPUs",
        script: &["machine k n1 gpu=1", "type k t gpu=8", JOB],
        says: "largest node has 1 nvidia.com/gpu, the type needs 8",
        fix: Printed,
    },
    Blocker {
        what: "no machine has a GPU",
        script: &["machine k n1", "type k t gpu=1", JOB],
        says: "largest node has 0 nvidia.com/gpu, the type needs 1",
        fix: Printed,
    },
    Blocker {
        what: "devices of another vendor are taken",
        script: &[
            "machine k n1 gpu=2 taken_gpu=2 device=amd.com/gpu",
            "type k t gpu=1 device=amd.com/gpu",
            JOB,
        ],
        says: "n1: amd.com/gpu: needs 1, 2 allocatable, 2 requested by pods there",
        fix: Printed,
    },
    Blocker {
        what: "a machine holds as many pods as it may",
        script: &["machine k n1 pods=3 there=3", PLAIN, JOB],
        says: "n1: all 3 pods that it may hold are there",
        fix: Printed,
    },
    Blocker {
        what: "no machine carries a label",
        script: &["machine k n1", "type k t label=mylabel:mylabelvalue", JOB],
        says: "no node carries mylabel=mylabelvalue",
        fix: Printed,
    },
    Blocker {
        what: "machines carry another value",
        script: &[
            "machine k n1 label=mylabel:other",
            "machine k n2 label=mylabel:other",
            "type k t label=mylabel:mylabelvalue",
            JOB,
        ],
        says: "no node carries mylabel=mylabelvalue; 2 nodes carry mylabel=other",
        fix: Printed,
    },
    Blocker {
        what: "each of two machines carries one of two labels",
        script: &[
            "machine k n1 label=a:1",
            "machine k n2 label=b:2",
            "type k t label=a:1,b:2",
            JOB,
        ],
        says: "n1: no label b=2; n2: no label a=1",
        fix: Printed,
    },
    Blocker {
        what: "a machine is tainted",
        script: &["machine k n1 taint=dedicated:gpu", PLAIN, JOB],
        says: "n1: taint dedicated=gpu:NoSchedule",
        fix: Printed,
    },
    Blocker {
        what: "a machine is being emptied by a taint",
        script: &["machine k n1 taint=maintenance:now evicts=yes", PLAIN, JOB],
        says: "n1: taint maintenance=now:NoExecute",
        fix: Printed,
    },
    Blocker {
        what: "a machine is cordoned",
        script: &["machine k n1 cordoned=true", PLAIN, JOB],
        says: "n1: cordoned",
        fix: Printed,
    },
    Blocker {
        what: "a machine does not work",
        script: &["machine k n1 broken=KubeletNotReady", PLAIN, JOB],
        says: "n1: not ready: KubeletNotReady",
        fix: Printed,
    },
    Blocker {
        what: "several things at one machine",
        script: &[
            "machine k n1 cordoned=true taint=a:b taken=3500",
            "type k t label=x:y",
            JOB,
        ],
        says: "no node carries x=y",
        fix: Printed,
    },
    Blocker {
        what: "there is no machine",
        script: &["type k t cpu=2000 memory=4 gpu=1 label=a:b", JOB],
        says: "the cluster has no node",
        fix: Printed,
    },
    Blocker {
        what: "the type was deleted while the job waited",
        script: &[
            "machine k n1",
            PLAIN,
            "trouble k away",
            JOB,
            "no-type k t",
            "trouble k none",
        ],
        says: "instance type t not found on compute k; known: defaultinstancetype",
        fix: Lines(&[PLAIN]),
    },
    Blocker {
        what: "the type breaks a rule",
        script: &[
            "machine k n1",
            PLAIN,
            "trouble k away",
            JOB,
            "broken-type k t",
            "trouble k none",
        ],
        says: "instance type t cannot be used: the cpu request (2) must not be above the cpu limit (1)",
        fix: Lines(&[PLAIN]),
    },
    Blocker {
        what: "the type contradicts the compute's selector",
        script: &[
            "machine k n1 label=zone:a",
            PLAIN,
            "trouble k away",
            JOB,
            "kubernetes k attached selector=zone:a",
            "type k t label=zone:b",
            "trouble k none",
        ],
        says: "node selector zone=b of the instance type contradicts zone=a of the extension",
        fix: Lines(&["type k t label=zone:a"]),
    },
    Blocker {
        what: "a right is missing",
        script: &[
            "machine k n1",
            PLAIN,
            "trouble k pods_is_forbidden:_create",
            JOB,
        ],
        says: "the cluster of compute k cannot be used: pods is forbidden: create",
        fix: Lines(&["trouble k none"]),
    },
    Blocker {
        what: "a quota of the namespace is used up",
        script: &["machine k n1", PLAIN, "refuse k exceeded_quota:_team", JOB],
        says: "exceeded quota: team",
        fix: Lines(&["refuse k none"]),
    },
    Blocker {
        what: "the image does not come",
        script: &[
            "machine k n1",
            PLAIN,
            "refuse k ErrImagePull:_no_such_image",
            JOB,
        ],
        says: "ErrImagePull: no such image",
        fix: Lines(&["refuse k none"]),
    },
    Blocker {
        what: "a gang finds room for a part of it only",
        script: &[
            "machine k n1 cpu=4000",
            "type k t cpu=2000",
            "command j on k instances=3 type=t",
        ],
        says: "1 of 3 pods of instance type t",
        fix: Lines(&["machine k n2 cpu=4000"]),
    },
    Blocker {
        what: "another gang is first",
        script: &[
            "machine k n1 cpu=4000",
            "type k t cpu=3000",
            "command first on k instances=2 type=t",
            "command j on k instances=2 type=t",
        ],
        says: "the pods of first wait for nodes, and one gang waits at a time",
        fix: Lines(&["machine k n2 cpu=4000"]),
    },
    Blocker {
        what: "our own pods fill this machine",
        script: &[
            "machine here me cpu=2000",
            "kubernetes h",
            "type here t cpu=1500",
            "command first on h type=t run=600000",
            "command j on h type=t",
        ],
        says: "me: cpu: needs 1500m, 2 allocatable, 1500m requested by pods there",
        fix: Lines(&["cancel first"]),
    },
    Blocker {
        what: "a label that this machine does not declare",
        script: &[
            "machine here me",
            "kubernetes h",
            "type here t label=mylabel:mylabelvalue",
            "command j on h type=t",
        ],
        says: "no node carries mylabel=mylabelvalue",
        fix: Printed,
    },
];

impl Story {
    /// Does what a printed fix says, and nothing more.
    fn remedy(&mut self, key: &ClusterKey, fix: &Fix) {
        let seen = self.server.fake.clusters.get_mut(key).unwrap();
        match fix {
            Fix::Uncordon { machine } => seen.machines.get_mut(machine).unwrap().cordoned = false,
            Fix::Label {
                machine,
                key,
                value,
            } => {
                let labels = &mut seen.machines.get_mut(machine).unwrap().labels;
                labels.insert(key.clone(), value.clone());
            }
            Fix::Untaint { machine, taint } => {
                let taints = &mut seen.machines.get_mut(machine).unwrap().taints;
                taints.retain(|t| t != taint);
            }
            Fix::Repair { machine } => seen.machines.get_mut(machine).unwrap().not_ready = None,
            Fix::Free { machine, what } => {
                let machine = seen.machines.get_mut(machine).unwrap();
                let (amount, what) = what.split_once(' ').unwrap();
                if what.starts_with("pod") {
                    machine.pods_there -= amount.parse::<u32>().unwrap();
                } else {
                    machine.requested.remove(&amount_of(amount, what));
                }
            }
            Fix::Lower {
                instance_type,
                path,
                to,
            } => {
                let types = seen.types.as_mut().unwrap();
                let Some(TypeSeen::Usable(before)) = types.get(instance_type) else {
                    panic!("{instance_type} is no type of the cluster");
                };
                let what = path.trim_start_matches("spec.resources.");
                let (_, what) = what.split_once('.').unwrap();
                let lowered = lowered(before, what, &amount_of(to, what));
                types.insert(instance_type.clone(), TypeSeen::Usable(lowered));
            }
            Fix::AddMachine { with } => {
                seen.machines.insert("new".into(), machine_with(with));
            }
        }
    }
}

/// `2 cpu, 4Gi memory, 1 nvidia.com/gpu, label a=b`
fn machine_with(text: &str) -> Machine {
    let mut machine = Machine {
        pods: 10,
        ..Machine::default()
    };
    for part in text.split(", ") {
        if let Some((key, value)) = part.strip_prefix("label ").and_then(|l| l.split_once('=')) {
            machine.labels.insert(key.into(), value.into());
        } else {
            let (amount, what) = part.split_once(' ').unwrap();
            machine.allocatable.add(&amount_of(amount, what));
        }
    }
    machine
}

/// `500m` of `cpu`, `2Gi` of `memory`, `1` of a device.
fn amount_of(amount: &str, what: &str) -> Resources {
    let whole = |text: &str| text.parse::<u64>().unwrap();
    let mut of = Resources::default();
    match what {
        "cpu" => {
            of.cpu = MilliCpu(match amount.strip_suffix('m') {
                Some(milli) => whole(milli),
                None => whole(amount) * 1000,
            });
        }
        "memory" => {
            let units = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)];
            let scaled = units
                .iter()
                .find_map(|(suffix, shift)| Some(whole(amount.strip_suffix(suffix)?) << shift));
            of.memory = Bytes(scaled.unwrap_or_else(|| whole(amount)));
        }
        device => {
            of.devices.insert(device.into(), amount.parse().unwrap());
        }
    }
    of
}

/// The type with one amount lowered, in requests and limits.
fn lowered(before: &InstanceType, what: &str, to: &Resources) -> InstanceType {
    let of = |have: &Resources| {
        let mut have = have.clone();
        match what {
            "cpu" => have.cpu = to.cpu,
            "memory" => have.memory = to.memory,
            device => {
                if let Some(n) = have.devices.get_mut(device) {
                    *n = to.devices[device];
                }
            }
        }
        let amount = |nano: i128| Some(Written::text("lowered", Some(nano)));
        let devices = have.devices.iter();
        Amounts {
            cpu: amount(i128::from(have.cpu.0) * 1_000_000),
            memory: amount(i128::from(have.memory.0) * 1_000_000_000),
            devices: devices
                .map(|(name, &n)| (name.clone(), Written::number(n.into())))
                .collect(),
        }
    };
    InstanceType::new(Unchecked {
        name: before.name().into(),
        node_selector: before.node_selector().clone(),
        requests: of(before.requests()),
        limits: of(before.limits()),
    })
    .unwrap()
}

#[test]
fn what_is_printed_about_a_waiting_job_makes_it_run() {
    assert!(BLOCKERS.len() >= 20);
    for blocker in BLOCKERS {
        let what = blocker.what;
        let mut story = Story::new();
        story.line("kubernetes k attached");
        for line in blocker.script {
            story.line(line);
        }
        story.run_until(Time(5_000));
        let job = story.job("j");
        let run = |story: &Story| story.server.world.view.runs.get(&job).unwrap().clone();
        assert!(
            matches!(run(&story).state, RunState::Queued | RunState::Preparing),
            "{what}: it does not wait:\n{}",
            story.out
        );
        let why = plan::explain(&story.server.world, &job, story.now());
        let why = why.unwrap_or_else(|| panic!("{what}: it waits for nothing:\n{}", story.out));
        let said = why.to_string();
        assert!(said.contains(blocker.says), "{what}: {said}");
        match &blocker.fix {
            Lines(lines) => lines.iter().for_each(|line| story.line(line)),
            Printed => {
                let Why::Unschedulable { unfit, .. } = &why else {
                    panic!("{what}: no fix is printed for {said}");
                };
                let compute = run(&story).spec.compute.clone();
                let key = story.server.world.view.kubernetes[&compute].cluster();
                unfit.fixes.iter().for_each(|fix| story.remedy(&key, fix));
                story.cluster_changed(&key);
            }
        }
        story.run_until(Time(60_000));
        assert!(
            run(&story).state == RunState::Done(Outcome::Completed),
            "{what}: {said}\n{}",
            story.out
        );
    }
}
