//! `cargo xtask kube check`: a cluster of its own comes up, does what the tests of the product need from one, and goes
//! without a trace (K3).

use super::cluster::{self, Cluster};
use super::{Nodes, down, kubectl, process, tools, traces};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// What a pod may take; it takes about 3 s.
const PATIENCE: Duration = Duration::from_secs(90);

/// Pretended nodes beside the real one.
const FAKE: u32 = 3;

/// What others on the machine change too. It is compared, but while another kubelet runs it proves nothing.
const SHARED: [&str; 6] = [
    "links",
    "routes",
    "network namespaces",
    "firewall",
    "forwarding",
    "folders",
];

/// What passed and what did not.
#[derive(Default)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
}

impl Tally {
    fn step(&mut self, name: &str, work: impl FnOnce() -> Result<()>) {
        let began = Instant::now();
        match work() {
            Ok(()) => {
                self.passed += 1;
                println!("ok      {name} ({:.1} s)", began.elapsed().as_secs_f64());
            }
            Err(error) => {
                self.failed += 1;
                println!("FAILED  {name}: {error:#}");
            }
        }
    }

    fn skip(&mut self, name: &str) {
        self.skipped += 1;
        println!("skipped {name}: there is no real node");
    }
}

/// `nodes` that are real: a machine that cannot run one fails; otherwise what needs one is skipped.
pub fn check(nodes: Nodes) -> Result<()> {
    let kubectl = kubectl::path(kubectl::DEFAULT)?;
    let folder = super::folder();
    let lock = File::create(folder.join("check.lock"))?;
    lock.try_lock()
        .context("another check runs in this target folder")?;
    let state = folder.join("check");
    fs::create_dir_all(&state)?;
    let state = fs::canonicalize(state)?;
    if state.join("cluster.json").is_file() {
        eprintln!("an earlier check was not finished");
        down::down(&state)?;
    }
    let named = Cluster::named(state.clone());
    let look = || traces::everything(&state, &named.own_name(), &named.bridge());
    let before = look();
    let cluster = cluster::up(&state, nodes, FAKE)?;
    let mut tally = Tally::default();
    let check = Check {
        cluster,
        kubectl,
        before,
    };
    check.control_plane(&mut tally);
    check.real_node(&mut tally);
    let began = Instant::now();
    tally.step("down ends it", || down::down(&state));
    let took = began.elapsed();
    tally.step("nothing is left", || compare(&check.before, &look()));
    drop(lock);
    println!(
        "{} passed, {} failed, {} skipped; down took {:.1} s",
        tally.passed,
        tally.failed,
        tally.skipped,
        took.as_secs_f64()
    );
    ensure!(tally.failed == 0, "kube check: {} failed", tally.failed);
    Ok(())
}

/// K3. The difference, by the name of what differs.
fn compare(before: &Value, after: &Value) -> Result<()> {
    let mut different = Vec::new();
    let others = process::of_program("kubelet");
    for (name, value) in before.as_object().into_iter().flatten() {
        if &after[name] == value {
            continue;
        }
        let told = format!("{name}: {value} became {}", after[name]);
        if SHARED.contains(&name.as_str()) && !others.is_empty() {
            println!("note: process {} is another kubelet; {told}", others[0]);
        } else {
            different.push(told);
        }
    }
    ensure!(different.is_empty(), "{}", different.join("\n  "));
    Ok(())
}

type Step = fn(&Check) -> Result<()>;

struct Check {
    cluster: Cluster,
    kubectl: PathBuf,
    before: Value,
}

impl Check {
    fn control_plane(&self, tally: &mut Tally) {
        tally.step("the server says its version", || self.version());
        tally.step("nobody is let in without a token", || self.anonymous());
        tally.step("a user without rights is refused", || self.refused());
        tally.step("a pod runs on a pretended GPU and fails when told", || {
            self.pretended()
        });
        tally.step("a second cluster comes and goes", || self.second());
    }

    fn real_node(&self, tally: &mut Tally) {
        let steps: [(&str, Step); 6] = [
            (
                "a job of the Python image completes, with its log",
                Check::job,
            ),
            ("a pod reaches this machine", Check::reaches_host),
            ("a pod above its memory is OOMKilled", Check::out_of_memory),
            (
                "a pod waits for a label and runs when it is there",
                Check::label,
            ),
            ("a command runs inside a pod", Check::exec),
            (
                "the kernel's settings are untouched while it runs",
                Check::settings,
            ),
        ];
        for (name, step) in steps {
            if self.cluster.facts["node"].is_null() {
                tally.skip(name);
            } else {
                tally.step(name, || step(self));
            }
        }
    }

    fn command(&self, user: &str) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.env("KUBECONFIG", self.cluster.kubeconfig(user));
        // Its cache of what the server knows is the cluster's too.
        command.arg(format!(
            "--cache-dir={}/kc/cache",
            self.cluster.state.display()
        ));
        command
    }

    fn ask(&self, args: &[&str]) -> Result<String> {
        tools::output(self.command("admin").args(args))
    }

    fn apply(&self, object: &Value) -> Result<()> {
        let mut command = self.command("admin");
        tools::output_with(command.args(["apply", "-f", "-"]), &object.to_string())?;
        Ok(())
    }

    fn pod(&self, name: &str) -> Result<Value> {
        let text = self.ask(&["get", "pod", name, "-o", "json"])?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The pod, as soon as it is so.
    fn wait_for_pod(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let mut last = Value::Null;
        let found = tools::wait_for(&format!("{name} {what}"), PATIENCE, || {
            last = self.pod(name)?;
            Ok(is(&last).then(|| last.clone()))
        });
        found.with_context(|| format!("{}", last["status"]))
    }

    fn version(&self) -> Result<()> {
        let text = self.ask(&["version", "-o", "json"])?;
        let said: Value = serde_json::from_str(&text)?;
        let (is, wanted) = (
            &said["serverVersion"]["gitVersion"],
            &self.cluster.facts["version"],
        );
        ensure!(is == wanted, "{is} is not {wanted}");
        Ok(())
    }

    fn anonymous(&self) -> Result<()> {
        let status = self.cluster.api()?.status_for_anybody("/api/v1/pods")?;
        ensure!(status == 401, "the status is {status}");
        Ok(())
    }

    fn refused(&self) -> Result<()> {
        for user in ["zaffre-viewer", "zaffre-engine"] {
            let mut command = self.command(user);
            let Err(error) = tools::output(command.args(["get", "pods"])) else {
                bail!("{user} sees pods");
            };
            let text = error.to_string();
            ensure!(text.contains("Forbidden") && text.contains(user), "{text}");
        }
        Ok(())
    }

    fn pretended(&self) -> Result<()> {
        let limits = json!({"nvidia.com/gpu": "4"});
        let container = json!({"name": "c", "image": "none", "resources": {"limits": limits}});
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "gpu", "annotations": {
                "zaffre.test/runs-for": "1s", "zaffre.test/outcome": "fail",
            }},
            "spec": {
                "containers": [container], "restartPolicy": "Never",
                "nodeSelector": {"zaffre.test/node": "fake"},
                "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
            },
        }))?;
        let pod = self.wait_for_pod("gpu", "fails", |pod| pod["status"]["phase"] == "Failed")?;
        let code = &terminated(&pod)["exitCode"];
        ensure!(*code == json!(1), "exit code {code}");
        Ok(())
    }

    fn second(&self) -> Result<()> {
        let state = super::folder().join("check-second");
        let second = cluster::up(&state, Nodes::None, 0)?;
        let different = second.facts["server"] != self.cluster.facts["server"];
        let ready = second.api()?.is_ready();
        down::down(&state)?;
        fs::remove_dir_all(&state)?;
        ensure!(
            different && ready,
            "it does not answer at a place of its own"
        );
        ensure!(self.cluster.api()?.is_ready(), "the first one has suffered");
        Ok(())
    }

    fn job(&self) -> Result<()> {
        let pod = pod_spec(&["python3", "-c", "print('hi')"]);
        self.apply(&json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hi"},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        }))?;
        self.ask(&[
            "wait",
            "--for=condition=complete",
            "job/hi",
            "--timeout=90s",
        ])?;
        let log = self.ask(&["logs", "job/hi"])?;
        ensure!(log == "hi\n", "its log is {log:?}");
        Ok(())
    }

    fn reaches_host(&self) -> Result<()> {
        let address = self.cluster.facts["node"]["host_address"].as_str();
        let listener = TcpListener::bind((address.context("no address")?, 0))?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        let script = format!(
            "import socket; socket.create_connection(('{}', {})).sendall(b'from inside')",
            at.ip(),
            at.port()
        );
        self.apply(&pod("caller", pod_spec(&["python3", "-c", &script])))?;
        let mut stream =
            tools::wait_for("a call of the pod", PATIENCE, || Ok(listener.accept().ok()))?.0;
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        ensure!(text == "from inside", "it says {text:?}");
        Ok(())
    }

    fn out_of_memory(&self) -> Result<()> {
        let mut spec = pod_spec(&["python3", "-c", "b'x' * (200 << 20)"]);
        spec["containers"][0]["resources"] = json!({"limits": {"memory": "32Mi"}});
        self.apply(&pod("large", spec))?;
        let pod = self.wait_for_pod("large", "fails", |pod| pod["status"]["phase"] == "Failed")?;
        let end = terminated(&pod);
        ensure!(
            end["reason"] == "OOMKilled" && end["exitCode"] == 137,
            "{end}"
        );
        Ok(())
    }

    fn label(&self) -> Result<()> {
        let mut spec = pod_spec(&["true"]);
        spec["nodeSelector"] = json!({"zaffre.test/pool": "one"});
        self.apply(&pod("waiting", spec))?;
        self.wait_for_pod("waiting", "is told unschedulable", |pod| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let mut reasons = conditions.map(|condition| &condition["reason"]);
            reasons.any(|reason| reason == "Unschedulable")
        })?;
        let node = self.cluster.facts["node"]["name"]
            .as_str()
            .context("no node")?;
        self.ask(&["label", "node", node, "zaffre.test/pool=one"])?;
        self.wait_for_pod("waiting", "ends", |pod| {
            pod["status"]["phase"] == "Succeeded"
        })?;
        Ok(())
    }

    fn exec(&self) -> Result<()> {
        self.apply(&pod("long", pod_spec(&["sleep", "1000"])))?;
        self.wait_for_pod("long", "runs", |pod| pod["status"]["phase"] == "Running")?;
        let said = self.ask(&["exec", "long", "--", "bash", "-c", "echo $((6 * 7))"])?;
        // It is left running: down ends it.
        ensure!(said == "42\n", "it says {said:?}");
        Ok(())
    }

    fn settings(&self) -> Result<()> {
        let (now, before) = (traces::Settings::read().shown(), &self.before["settings"]);
        ensure!(now == *before, "{before} became {now}");
        Ok(())
    }
}

fn pod(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn pod_spec(command: &[&str]) -> Value {
    json!({
        "restartPolicy": "Never",
        // Nothing that a pod here does needs a farewell.
        "terminationGracePeriodSeconds": 0,
        "containers": [{
            "name": "c", "image": super::image::PYTHON, "imagePullPolicy": "IfNotPresent", "command": command,
        }],
    })
}

fn terminated(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]["state"]["terminated"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn k3_a_trace_is_named() {
        let before = json!({"mounts": [], "settings": {"kernel/panic": "0"}});
        assert!(compare(&before, &before).is_ok());
        let after = json!({"mounts": ["/s/node/run/a"], "settings": {"kernel/panic": "10"}});
        let error = compare(&before, &after).unwrap_err().to_string();
        assert!(
            error.contains(r#"mounts: [] became ["/s/node/run/a"]"#),
            "{error}"
        );
        assert!(error.contains("kernel/panic"), "{error}");
    }
}
