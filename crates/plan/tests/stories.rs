//! Stories: the scripted life of clusters and runs, and what was decided, in words.
//!
//! A file in `stories/` holds a script, a line `---`, and the transcript that the script gives. `ZAFFRE_BLESS=1` (or
//! `cargo xtask stories`) writes the transcripts anew; read the diff before you commit it. The verbs are those of
//! `Story::line`; a line is done at the time that the last `at` or `after` said.

#[path = "stories/blockers.rs"]
mod blockers;
#[expect(dead_code, reason = "the simulation hurts the engine in more ways")]
mod fake;
#[path = "stories/families.rs"]
mod families;

use fake::{
    Behaviour,
    drive::Server,
    make::{self, BatchOf},
};
use model::{
    Action, Answer, BatchEvent, Bytes, ClusterKey, Command, ComputeId, Declared, DocKey, Event,
    Exit, InstanceType, JobId, Kind, KubernetesSpec, Labels, Machine, MilliCpu, Millis, NodeEvent,
    NodeId, NodePods, NodeState, Phase, Ranges, Refusal, Resources, RunEvent, TaskId, Tier, Time,
    instance_type::{Amounts, GPU, Unchecked, Written},
    kubernetes::{Taint, TaintEffect, TypeSeen},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
    sync::Arc,
};

/// Turns without time passing that a story may take: more is a loop.
const TURNS_AT_ONCE: u32 = 100;

struct Story {
    server: Server,
    asked: BTreeSet<String>,
    out: String,
    /// Steps of pipelines that are not submitted yet.
    steps: BTreeMap<String, BTreeMap<Box<str>, model::StepSpec>>,
}

/// `name=value` words of a line.
struct Options<'a>(BTreeMap<&'a str, &'a str>);

impl Options<'_> {
    fn number<T: std::str::FromStr>(&self, key: &str, default: T) -> T {
        match self.0.get(key) {
            Some(text) => text.parse().unwrap_or_else(|_| panic!("{key}={text}")),
            None => default,
        }
    }
    fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }
    /// `key=a:b,c:d`
    fn labels(&self, key: &str) -> Labels {
        let text = self.0.get(key).copied().unwrap_or("");
        let pairs = text.split(',').filter_map(|pair| pair.split_once(':'));
        pairs.map(|(k, v)| (k.into(), v.into())).collect()
    }
    /// `cpu` in thousandths, `memory` in GiB, `gpu` in pieces.
    fn amounts(&self, cpu: u64, memory: u64) -> Resources {
        Resources {
            cpu: MilliCpu(self.number("cpu", cpu)),
            memory: Bytes(self.number("memory", memory) << 30),
            devices: self.devices("gpu"),
        }
    }
    fn devices(&self, key: &str) -> BTreeMap<Box<str>, u32> {
        let n = self.number(key, 0);
        let name = self.number("device", GPU.to_owned());
        (n > 0).then(|| (name.into(), n)).into_iter().collect()
    }
    fn numbers(&self, key: &str) -> Vec<u32> {
        let text = self.0.get(key).copied().unwrap_or("");
        let parts = text.split(',').filter(|t| !t.is_empty());
        parts.map(|t| t.parse().unwrap()).collect()
    }
}

impl Story {
    fn new() -> Self {
        Story {
            server: Server::new(1000),
            asked: BTreeSet::new(),
            out: String::new(),
            steps: BTreeMap::new(),
        }
    }
    fn job(&self, name: &str) -> JobId {
        JobId::new(&self.server.workspace, name)
    }
    fn compute(&self, name: &str) -> ComputeId {
        ComputeId::new(&self.server.workspace, name)
    }
    fn now(&self) -> Time {
        self.server.fake.now
    }
    fn say(&mut self, text: &str) {
        let at = self.now().0;
        let stamp = format!("{:>4}.{:03}", at / 1000, at % 1000);
        writeln!(self.out, "{stamp}  {text}").unwrap();
    }

    fn line(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap();
        let (mut names, mut options) = (Vec::new(), BTreeMap::new());
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => {
                    options.insert(key, value);
                }
                None if names.len() == 3 || ["attached", "stop", "rerun"].contains(&word) => {
                    options.insert(word, ""); // a flag, after `NAME on COMPUTE`
                }
                None => names.push(word),
            }
        }
        let options = Options(options);
        if verb != "at" && verb != "after" {
            self.say(&format!("> {line}"));
        }
        match (verb, &names[..]) {
            ("at", [time]) => self.run_until(Time(time.parse::<u64>().unwrap() * 1000)),
            ("after", [ms]) => {
                self.run_until(self.now() + Millis(ms.parse().unwrap()));
            }
            ("quota", []) => {
                let declared = make::quotas(
                    options.number("dedicated", 100),
                    options.number("family", 24),
                    options.number("low", 100),
                );
                self.put(Kind::Quota, "here", declared);
            }
            ("cluster", [name, tier]) => self.cluster(name, tier, &options),
            ("command", [name, "on", compute]) => self.submit_command(name, compute, &options),
            ("batch", [name, "on", compute]) => self.submit_batch(name, compute, &options),
            ("step", [name, "of", pipeline]) => self.step(name, pipeline, &options),
            ("pipeline", [name]) => self.pipeline(name, &options),
            ("sweep", [name, "on", compute]) => self.sweep(name, compute, &options),
            ("report", [trial, value]) => self.report(trial, value),
            ("behave", [name]) => self.behave(&self.job(name), &options),
            ("family", [name]) => self.family(name),
            ("inputs", [name]) => self.inputs(name),
            ("cancel", [name]) => {
                let job = self.job(name);
                self.turn(vec![Command::Cancel { job }]);
            }
            ("delete", [name]) => {
                let key = DocKey::compute(&self.compute(name));
                self.turn(vec![Command::Remove { key }]);
            }
            ("preempt", [name, nodes]) => {
                let command = Command::Preempt {
                    compute: self.compute(name),
                    nodes: nodes.parse().ok(),
                    notice: Millis::secs(options.number("notice", 0)),
                    hold: options
                        .has("hold")
                        .then(|| Millis::secs(options.number("hold", 0))),
                };
                self.turn(vec![command]);
            }
            ("lose", [node]) => {
                let node = self.node(node);
                self.server.fake.lose(&node);
                self.turn(Vec::new());
            }
            ("break", [node, why]) => {
                let node = self.node(node);
                self.server.fake.break_node(&node, why);
                self.turn(Vec::new());
            }
            ("node-waits", [node, why]) => {
                let node = self.node(node);
                let why = why.replace('_', " ");
                let why = (why != "none").then_some(&*why);
                self.server.fake.hold_node(&node, why);
                self.turn(Vec::new());
            }
            ("exit", [task, code]) => {
                let task = self.task(task);
                let exit = Exit::Code(code.parse().unwrap());
                self.server.fake.exit_task(&task, exit);
                self.turn(Vec::new());
            }
            ("kubernetes", [name]) => self.kubernetes(name, &options),
            ("machine", [cluster, name]) => self.machine(cluster, name, &options),
            ("no-machine", [cluster, name]) => {
                let key = self.cluster_key(cluster);
                let seen = self.server.fake.clusters.entry(key.clone()).or_default();
                seen.machines.remove(*name);
                self.cluster_changed(&key);
            }
            ("trouble", [cluster, message]) => {
                let key = self.cluster_key(cluster);
                let seen = self.server.fake.clusters.entry(key.clone()).or_default();
                seen.trouble = (*message != "none").then(|| message.replace('_', " ").into());
                self.cluster_changed(&key);
            }
            ("type", [cluster, name]) => self.instance_type(cluster, name, &options),
            ("no-type", [cluster, name]) => {
                let key = self.cluster_key(cluster);
                if key == ClusterKey::Embedded {
                    let key = DocKey::instance_type(name);
                    return self.turn(vec![Command::Remove { key }]);
                }
                let seen = self.server.fake.clusters.entry(key.clone()).or_default();
                seen.types.get_or_insert_default().remove(*name);
                self.cluster_changed(&key);
            }
            ("broken-type", [cluster, name]) => {
                let key = self.cluster_key(cluster);
                let seen = self.server.fake.clusters.entry(key.clone()).or_default();
                let broken = TypeSeen::Broken(
                    "the cpu request (2) must not be above the cpu limit (1)".into(),
                );
                seen.types
                    .get_or_insert_default()
                    .insert((*name).into(), broken);
                self.cluster_changed(&key);
            }
            ("refuse", [cluster, why]) => {
                self.server.fake.refusing = (*why != "none").then(|| why.replace('_', " ").into());
                let key = self.cluster_key(cluster);
                self.cluster_changed(&key);
            }
            ("pod-lost", [task, why]) => {
                let task = self.task(task);
                let why = why.replace('_', " ").into();
                self.server.fake.exit_task(&task, Exit::Lost { why });
                self.turn(Vec::new());
            }
            ("vanish", [task]) => {
                let task = self.task(task);
                self.server.fake.vanish_task(&task);
                self.turn(Vec::new());
            }
            ("restart", []) => self.server.restart(),
            ("explain", [name]) => self.explain(name),
            ("nodes", [name]) => self.nodes(name),
            ("show", [name]) => self.show(name),
            _ => panic!("{line:?} is not understood"),
        }
    }

    fn node(&self, text: &str) -> NodeId {
        let mut all = self.server.world.view.nodes.keys();
        let found = all.find(|n| n.to_string() == text).cloned();
        found.unwrap_or_else(|| panic!("no node {text}"))
    }
    fn task(&self, text: &str) -> TaskId {
        let mut all = self.server.fake.tasks.keys();
        let found = all.find(|t| t.to_string() == text).cloned();
        found.unwrap_or_else(|| panic!("no task {text}"))
    }

    fn put(&mut self, kind: Kind, name: &str, declared: Declared) {
        let document = make::document(&self.server.workspace, kind, name, self.now());
        self.turn(vec![Command::Put { document, declared }]);
    }
    fn cluster(&mut self, name: &str, tier: &str, options: &Options<'_>) {
        let tier = match tier {
            "low-priority" => Tier::LowPriority,
            "dedicated" => Tier::Dedicated,
            other => panic!("tier {other}"),
        };
        let mut spec = make::cluster(
            tier,
            options.number("cores", 4),
            options.number("min", 0),
            options.number("max", 2),
            Millis::secs(options.number("idle", 120)),
        );
        spec.pods = options.0.get("pods").map(|kubernetes| NodePods {
            kubernetes: (*kubernetes).into(),
            image: "python".into(),
        });
        self.put(Kind::Compute, name, Declared::Cluster(Arc::new(spec)));
    }

    /// The embedded cluster is called `here`.
    fn cluster_key(&self, name: &str) -> ClusterKey {
        match name {
            "here" => ClusterKey::Embedded,
            other => ClusterKey::Attached(self.compute(other)),
        }
    }
    fn cluster_changed(&mut self, key: &ClusterKey) {
        let seen = self.server.fake.clusters.entry(key.clone()).or_default();
        seen.placed_here = *key == ClusterKey::Embedded;
        self.server.fake.show_cluster(key);
        self.server.fake.schedule();
        self.turn(Vec::new());
    }
    fn kubernetes(&mut self, name: &str, options: &Options<'_>) {
        let spec = KubernetesSpec {
            kubeconfig: options.has("attached").then(|| "digest".into()),
            namespace: "default".into(),
            node_selector: options.labels("selector"),
            selector_mode: Default::default(),
            default_type: options.0.get("default").map(|&d| d.into()),
            types: BTreeMap::new(),
            pull_policy: Default::default(),
            agent_image: None,
            run_as_user: None,
        };
        if spec.is_attached() {
            let key = self.cluster_key(name);
            let seen = self.server.fake.clusters.entry(key.clone()).or_default();
            seen.types.get_or_insert_default();
            self.server.fake.show_cluster(&key);
        }
        self.put(Kind::Compute, name, Declared::Kubernetes(Arc::new(spec)));
    }
    fn machine(&mut self, cluster: &str, name: &str, options: &Options<'_>) {
        let machine = Machine {
            labels: options.labels("label"),
            taints: options
                .labels("taint")
                .into_iter()
                .map(|(key, value)| Taint {
                    key,
                    value,
                    effect: if options.has("evicts") {
                        TaintEffect::NoExecute
                    } else {
                        TaintEffect::NoSchedule
                    },
                })
                .collect(),
            cordoned: options.number("cordoned", false),
            not_ready: options.0.get("broken").map(|&why| why.into()),
            allocatable: options.amounts(4000, 16),
            pods: options.number("pods", 110),
            requested: Resources {
                cpu: MilliCpu(options.number("taken", 0)),
                memory: Bytes(options.number("taken_memory", 0) << 30),
                devices: options.devices("taken_gpu"),
            },
            pods_there: options.number("there", 0),
        };
        let key = self.cluster_key(cluster);
        let seen = self.server.fake.clusters.entry(key.clone()).or_default();
        seen.machines.insert(name.into(), machine);
        self.cluster_changed(&key);
    }
    fn instance_type(&mut self, cluster: &str, name: &str, options: &Options<'_>) {
        let have = options.amounts(1000, 1);
        let cpu = i128::from(have.cpu.0) * 1_000_000;
        let memory = i128::from(have.memory.0) * 1_000_000_000;
        let amounts = |devices: &BTreeMap<Box<str>, u32>| Amounts {
            cpu: Some(Written::text("cpu", Some(cpu))),
            memory: Some(Written::text("memory", Some(memory))),
            devices: devices
                .iter()
                .map(|(name, &n)| (name.clone(), Written::number(n.into())))
                .collect(),
        };
        let made = InstanceType::new(Unchecked {
            name: name.into(),
            node_selector: options.labels("label"),
            requests: amounts(&BTreeMap::new()),
            limits: amounts(&have.devices),
        })
        .unwrap();
        let key = self.cluster_key(cluster);
        if key == ClusterKey::Embedded {
            let mut document =
                make::document(&self.server.workspace, Kind::InstanceType, name, self.now());
            document.key = DocKey::instance_type(name);
            let declared = Declared::InstanceType(Arc::new(made));
            return self.turn(vec![Command::Put { document, declared }]);
        }
        let seen = self.server.fake.clusters.entry(key.clone()).or_default();
        let types = seen.types.get_or_insert_default();
        types.insert(name.into(), TypeSeen::Usable(made));
        self.cluster_changed(&key);
    }

    fn behave(&mut self, job: &JobId, options: &Options<'_>) {
        let exit = match options.0.get("fails") {
            Some(&"prepare") => Exit::NotStarted {
                message: "no package of that name".into(),
            },
            Some(&"init") => Exit::Init {
                message: "ImportError: no module".into(),
            },
            _ => Exit::Code(options.number("exit", 0)),
        };
        let behaviour = Behaviour {
            prepare: options.number("prepare", 500),
            run: options.number("run", 1000),
            skew: options.number("skew", 0),
            exit,
            poison: options.numbers("poison").into_iter().collect(),
            flaky: options
                .numbers("flaky")
                .into_iter()
                .map(|i| (i, 1))
                .collect(),
            short: options.numbers("short").into_iter().collect(),
            echo: false,
            crash_after: options
                .has("crash_after")
                .then(|| (options.number("crash_after", 1), Exit::Code(0))),
        };
        self.server.fake.behaviours.insert(job.clone(), behaviour);
    }
    fn submit(&mut self, job: &JobId, spec: model::RunSpec, options: &Options<'_>) {
        self.behave(job, options);
        let document = make::document(&self.server.workspace, Kind::Job, job.name(), self.now());
        self.turn(vec![Command::Submit {
            id: job.clone(),
            document,
            spec: Arc::new(spec),
            request: options.0.get("request").map(|&r| r.into()),
        }]);
    }
    fn submit_command(&mut self, name: &str, compute: &str, options: &Options<'_>) {
        let timeout = options
            .has("timeout")
            .then(|| Millis::secs(options.number("timeout", 0)));
        let instances = options.number("instances", 1);
        let mut spec = make::command(&self.compute(compute), instances, timeout);
        spec.instance_type = options.0.get("type").map(|&t| t.into());
        self.submit(&self.job(name), spec, options);
    }
    fn submit_batch(&mut self, name: &str, compute: &str, options: &Options<'_>) {
        let job = self.job(name);
        let spec = self.batch_spec(&job, compute, options);
        self.submit(&job, spec, options);
    }
    fn batch_spec(&mut self, job: &JobId, compute: &str, options: &Options<'_>) -> model::RunSpec {
        if let Some(files) = options.0.get("files").and_then(|f| f.parse().ok()) {
            self.server.fake.inputs.insert(job.clone(), files);
        }
        let of = BatchOf {
            group: options.number("group", 1),
            workers: options.number("workers", 2),
            retries: options.number("retries", 3),
            threshold: options.number("threshold", -1),
            mini_batch_threshold: options.number("mini_batch_threshold", -1),
            percent: options.number("percent", 100),
            wait: options.has("wait"),
            summary: options.has("summary"),
            max_preemptions: options.0.get("max_preemptions").map(|n| n.parse().unwrap()),
            resume_from: options.0.get("resume").map(|j| self.job(j)),
            fingerprint: options.number("fingerprint", "f".to_owned()),
            input_from: options.0.get("lists").map(|&l| l.into()),
        };
        make::batch(&self.compute(compute), options.number("instances", 2), &of)
    }

    fn explain(&mut self, name: &str) {
        let why = plan::explain(&self.server.world, &self.job(name), self.now());
        match why {
            None => self.say(&format!("{name} waits for nothing")),
            Some(why) => {
                self.say(&format!("{name}: {why}"));
                if let Some(hint) = why.hint() {
                    self.say(&format!("hint: {hint}"));
                }
            }
        }
    }
    fn nodes(&mut self, name: &str) {
        let compute = self.compute(name);
        let view = self.server.world.view.clone();
        for n in view.nodes_of(&compute) {
            let text = match &n.state {
                NodeState::Unusable { why } => format!("{} unusable: {why}", n.id),
                other => format!("{} {}", n.id, other.name()),
            };
            self.say(&text);
        }
        if let Some(c) = view.clusters.get(&compute) {
            let why = c.why.as_ref().map(|w| format!(": {w}")).unwrap_or_default();
            self.say(&format!("{name} wants {} nodes{why}", c.target));
        }
    }
    fn show(&mut self, name: &str) {
        let Some(record) = self.server.world.view.runs.get(&self.job(name)).cloned() else {
            return self.say(&format!("{name} is not in memory"));
        };
        let mut text = format!(
            "{name} is {}, attempt {}, {} preemptions",
            record.state.name(),
            record.attempt.0,
            record.preemptions
        );
        if let Some(p) = &record.progress {
            write!(
                text,
                "; {}/{} done, {} failed, {} lent, {} started, {} rows, {} failed items, {} retries, {} rerun, {} discarded, {} resumed",
                p.done, p.total, p.failed, p.lent, p.started, p.rows, p.failed_items, p.retries, p.rerun, p.discarded, p.resumed
            )
            .unwrap();
            if p.short > 0 {
                write!(text, ", {} short", p.short).unwrap();
            }
        }
        if let Some(e) = &record.first_error {
            write!(text, "; first error: {}", e.message).unwrap();
        }
        self.say(&text);
    }

    /// One turn and those that follow without time passing.
    fn turn(&mut self, commands: Vec<Command>) {
        let mut commands = Some(commands);
        for _ in 0..TURNS_AT_ONCE {
            let first = commands.is_some();
            let done = self.server.turn(commands.take().unwrap_or_default(), false);
            for answer in &done.turn.answers {
                if let Some(text) = answer_text(answer) {
                    self.say(&text);
                }
            }
            for event in &done.turn.events {
                if let Some(text) = event_text(event) {
                    self.say(&text);
                }
            }
            let quiet = done.turn.events.is_empty() && done.actions.is_empty();
            for action in &done.actions {
                if let Some(text) = action_text(action)
                    && self.asked.insert(text.clone())
                {
                    self.say(&format!("    -> {text}")); // repeats are harmless (M1) and not told
                }
                self.server.fake.apply(action);
            }
            if done.actions.is_empty() {
                let mut all = self.server.fake.peek();
                all.marks.all = true;
                self.server.check_stable(&all, &done.turn.events);
            }
            self.server.check_derived();
            if quiet && !first {
                return;
            }
        }
        panic!("{TURNS_AT_ONCE} turns and no end:\n{}", self.out);
    }

    /// Lets time pass, turn by turn, as the clock and the engine want it.
    fn run_until(&mut self, end: Time) {
        loop {
            let next = [self.server.wake, self.server.fake.next()];
            let next = next.into_iter().flatten().min();
            let Some(at) = next.filter(|&at| at <= end) else {
                break;
            };
            self.server.fake.advance(at.max(self.now()));
            self.turn(Vec::new());
        }
        self.server.fake.advance(end);
    }
}

fn answer_text(answer: &Result<Answer, Refusal>) -> Option<String> {
    Some(match answer {
        Ok(Answer::Stored | Answer::Canceling | Answer::Run { repeat: false, .. }) => return None,
        Ok(Answer::Run { id, .. }) => format!("= it is run {id} already"),
        Ok(Answer::Preempted { nodes }) => format!("= {nodes:?} are taken"),
        Err(Refusal::NotFound { message }) => format!("= not found: {message}"),
        Err(Refusal::Conflict { message }) => format!("= conflict: {message}"),
        Err(Refusal::Invalid { code, message }) => format!("= {code}: {message}"),
    })
}

fn list(ranges: &Ranges) -> String {
    let span = |&(a, b): &(u32, u32)| {
        if b == a + 1 {
            a.to_string()
        } else {
            format!("{a}-{}", b - 1)
        }
    };
    let spans: Vec<String> = ranges.spans().iter().map(span).collect();
    if spans.is_empty() {
        "none".into()
    } else {
        spans.join(",")
    }
}

fn event_text(event: &Event) -> Option<String> {
    Some(match event {
        Event::Declared { document, .. } => format!("{} is declared", document.key.path),
        Event::Withdrawn { key, .. } => format!("{} is withdrawn", key.path),
        Event::ComputeGone { compute } => format!("{compute} is gone"),
        Event::CapacityHeld { compute, until } => {
            format!("{compute}: no capacity until {} s", until.0 / 1000)
        }
        Event::Node { node, event, .. } => match event {
            NodeEvent::Placed { .. } => return None, // the run says it
            NodeEvent::Evicting { by } => format!("{node} evicting, gone by {} s", by.0 / 1000),
            NodeEvent::Broke { why } => format!("{node} broken: {why}"),
            other => format!("{node} {}", other.name()),
        },
        Event::Run { run, event, .. } => return run_text(run, event),
        Event::Batch { run, event, .. } => batch_text(run, event),
    })
}

fn run_text(run: &JobId, event: &RunEvent) -> Option<String> {
    Some(match event {
        RunEvent::Submitted { .. } => format!("{run} submitted"),
        RunEvent::Explained { why: Some(why) } => format!("{run} waits: {why}"),
        RunEvent::Explained { why: None } => format!("{run} waits for its turn"),
        RunEvent::Placed { task, place } => format!("{task} placed on {place}"),
        RunEvent::Started { task } => format!("{task} runs"),
        RunEvent::Stopping { task } => format!("{task} is stopped"),
        RunEvent::TaskEnded { task } => format!("{task} ended"),
        RunEvent::TaskLost { task } => format!("{task} lost"),
        RunEvent::TaskRecalled { task } => format!("{task} is recalled"),
        RunEvent::Erred { error } => format!("{run} erred: {}", error.message),
        RunEvent::Canceling { outcome } => format!("{run} is given up: {outcome}"),
        RunEvent::Finished { outcome } => format!("{run} {outcome}"),
        RunEvent::ChildRefused { job, why, .. } => format!("{job} cannot be: {why}"),
        RunEvent::Registered { output, asset } => format!("{run}: output {output} is {asset}"),
        RunEvent::Measured { value } => format!("{run} reports {value}"),
        RunEvent::Retired { .. } => format!("{run} retired"),
    })
}

fn batch_text(run: &JobId, event: &BatchEvent) -> String {
    match event {
        BatchEvent::Listed { files, total, .. } => {
            format!("{run} has {files} files, {total} mini-batches")
        }
        BatchEvent::Resumed { from, done, .. } => {
            format!("{run} takes {} over from {from}", list(done))
        }
        BatchEvent::Lent { task, indices, .. } => format!("{task} is lent {}", list(indices)),
        BatchEvent::Taken {
            task,
            done,
            returned,
            discarded,
            ..
        } => {
            let mut text = format!("{task} did {}", list(done));
            if !returned.is_empty() {
                write!(text, ", returned {}", list(returned)).unwrap();
            }
            if *discarded > 0 {
                write!(text, ", {discarded} discarded").unwrap();
            }
            text
        }
        BatchEvent::Failed {
            task,
            index,
            cause,
            last,
        } => {
            let end = if *last { ", for good" } else { "" };
            format!("{task} failed {index}: {cause}{end}")
        }
        BatchEvent::Lost {
            task,
            rerun,
            returned,
        } => format!(
            "{task} gives back {}, of these begun {}",
            list(returned),
            list(rerun)
        ),
        BatchEvent::Published { .. } => format!("{run} is published"),
    }
}

fn action_text(action: &Action) -> Option<String> {
    Some(match action {
        Action::AddNode(node, _) => format!("add {node}"),
        Action::RemoveNode(node) => format!("remove {node}"),
        Action::Evict(node, _) => format!("evict {node}"),
        Action::Start(task, placement, _) => format!("start {task} with {:?}", placement.gang),
        Action::Stop(task) => format!("stop {task}"),
        Action::Do(errand) => format!("do {errand:?}"),
        Action::Lend(..) | Action::Ack(..) | Action::Forget(..) => return None,
    })
}

fn transcript(script: &str) -> String {
    let mut story = Story::new();
    for line in script.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        if !line.is_empty() {
            story.line(line);
        }
    }
    story.out
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "reads the story files, and writes them when asked to"
)]
fn stories() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let bless = std::env::var_os("ZAFFRE_BLESS").is_some();
    let mut wrong = Vec::new();
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|f| f.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no story in {}", folder.display());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let (script, want) = text.split_once("---\n").unwrap_or((&text, ""));
        let got = transcript(script);
        if got == want {
            continue;
        }
        if bless {
            fs::write(&file, format!("{}\n---\n{got}", script.trim_end())).unwrap();
        } else {
            let line = got.lines().zip(want.lines()).position(|(a, b)| a != b);
            let at = line.unwrap_or(got.lines().count().min(want.lines().count()));
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            wrong.push(format!(
                "{name}, line {} of the transcript:\n  want {}\n  got  {}",
                at + 1,
                want.lines().nth(at).unwrap_or("(end)"),
                got.lines().nth(at).unwrap_or("(end)")
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "stories differ; `cargo xtask stories` writes them anew\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_phase_is_shown_as_it_is() {
    // The fake engine keeps G3: an exited task stays until it is forgotten.
    let mut story = Story::new();
    story.line("cluster c dedicated");
    story.line("command j on c run=1000");
    story.run_until(Time(2_000));
    let task = story.task("j-0.1");
    let seen = story.server.fake.peek();
    assert_eq!(seen.tasks.get(&task).unwrap().phase, Phase::Running);
    story.run_until(Time(10_000));
    assert!(story.server.fake.tasks.is_empty(), "forgotten once taken");
}
