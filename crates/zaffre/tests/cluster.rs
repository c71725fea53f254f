//! Jobs as pods of a real cluster (`cargo xtask kube up`), one after the other on its one node.
//!
//! It needs `ZAFFRE_KUBE_STATE` with a node that runs containers, and the agent without libraries, which is named by
//! `ZAFFRE_AGENT_BINARY` or lies where `RUSTFLAGS="-C target-feature=+crt-static" cargo build --target
//! x86_64-unknown-linux-gnu` puts it. What is missing is said, and then nothing is tested here.

#[path = "cluster/pool.rs"]
mod pool;
mod support;

use serde_json::Value;
use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use support::Server;

const IMAGE: &str = "docker.io/library/zaffre:test";
/// A job that says something ten times a second.
const TICKS: &str = "for i in $(seq 1 1000); do echo tick $i; sleep 0.1; done";
const LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(100);
/// Longer than a silent machine is believed in when its agents are silent too.
const SILENCE: Duration = Duration::from_secs(40);

/// What the tests have, or what is missing.
struct Cluster {
    state: PathBuf,
    host: String,
    agent: PathBuf,
}

impl Cluster {
    fn find() -> Result<Cluster, String> {
        let state = env::var_os("ZAFFRE_KUBE_STATE").ok_or("ZAFFRE_KUBE_STATE is not set")?;
        let state = PathBuf::from(state);
        let text = fs::read(state.join("cluster.json")).map_err(|e| e.to_string())?;
        let about: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        let host = about["node"]["host_address"]
            .as_str()
            .ok_or("the cluster has no node that runs containers")?;
        let target = Path::new(support::ZAFFRE).ancestors().nth(2).unwrap();
        let usual = target.join("x86_64-unknown-linux-gnu/debug/zaffre");
        let agent = env::var_os("ZAFFRE_AGENT_BINARY").map_or(usual, PathBuf::from);
        if !agent.is_file() {
            return Err(format!("{} is not built", agent.display()));
        }
        Ok(Cluster {
            state,
            host: host.to_owned(),
            agent,
        })
    }

    fn kubectl(&self, args: &[&str]) -> String {
        let done = Command::new(env::var_os("ZAFFRE_KUBECTL").unwrap_or_else(|| "kubectl".into()))
            .args(args)
            .env("KUBECONFIG", self.state.join("kc/admin.kubeconfig"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(
            done.status.success(),
            "kubectl {args:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        text
    }

    /// One of its processes.
    fn process(&self, name: &str) -> u32 {
        let record = fs::read_to_string(self.state.join("pid").join(name)).unwrap();
        record.split_once(' ').unwrap().0.parse().unwrap()
    }

    /// Ends one of its processes by force, and starts it again.
    fn restart(&self, name: &str) {
        let usual = Path::new(support::ZAFFRE).with_file_name("xtask");
        let xtask = env::var_os("ZAFFRE_XTASK").map_or(usual, PathBuf::from);
        let mut command = Command::new(xtask);
        command
            .args(["kube", "restart", "--state"])
            .arg(&self.state);
        let done = command.arg(name).output().unwrap();
        assert!(
            done.status.success(),
            "{}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    /// Gives the node an image with nothing but the agent.
    fn bring_agent(&self, folder: &Path) {
        let root = folder.join("image/bin");
        fs::create_dir_all(&root).unwrap();
        fs::copy(&self.agent, root.join("zaffre")).unwrap();
        let script = r#"
import hashlib, io, json, sys, tarfile
root, out, name = sys.argv[1:]
buf = io.BytesIO()
with tarfile.open(fileobj=buf, mode='w') as t: t.add(root, '.')
layer = buf.getvalue(); diff = hashlib.sha256(layer).hexdigest()
config = json.dumps({'architecture': 'amd64', 'os': 'linux', 'config': {'Env': ['PATH=/bin']},
    'rootfs': {'type': 'layers', 'diff_ids': ['sha256:' + diff]}}).encode()
cid = hashlib.sha256(config).hexdigest()
manifest = json.dumps([{'Config': cid + '.json', 'RepoTags': [name], 'Layers': [diff + '.tar']}]).encode()
with tarfile.open(out, 'w') as t:
    for n, b in ((cid + '.json', config), (diff + '.tar', layer), ('manifest.json', manifest)):
        i = tarfile.TarInfo(n); i.size = len(b); t.addfile(i, io.BytesIO(b))
"#;
        let (root, archive) = (folder.join("image"), folder.join("image.tar"));
        let packed = Command::new("python3")
            .arg("-c")
            .arg(script)
            .args([&root, &archive])
            .arg(IMAGE)
            .status();
        assert!(packed.unwrap().success());
        let socket = self.state.join("node/run/c.sock");
        let mut import = Command::new("ctr");
        import
            .arg("-a")
            .arg(socket)
            .args(["-n", "k8s.io", "images", "import"])
            .arg(archive);
        assert!(import.output().unwrap().status.success());
    }
}

/// A server to which the cluster is attached.
struct Rig {
    cluster: Cluster,
    server: Server,
}

impl Rig {
    fn new(cluster: Cluster) -> Rig {
        // The same port after a restart: pods know it.
        let port = std::net::TcpListener::bind("0.0.0.0:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let listen = format!("0.0.0.0:{port}");
        let server = Server::start_with(&[
            "--listen",
            &listen,
            "--host-name",
            &cluster.host,
            "--agent-image",
            IMAGE,
        ]);
        cluster.bring_agent(&server.folder);
        let types = server.folder.join("types.yml");
        fs::write(&types, TYPES).unwrap();
        let rig = Rig { cluster, server };
        // Everything here is done with the rights of `deploy/`, by a user who has no other.
        let kubeconfig = rig.cluster.state.join("kc/zaffre-engine.kubeconfig");
        rig.ok(&[
            "compute",
            "attach",
            "-t",
            "kubernetes",
            "-n",
            "k8s",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ]);
        wait("the missing right to be named", || {
            let shown = rig.ok(&["compute", "show", "-n", "k8s", "-o", "json"]);
            shown.contains("is forbidden")
        });
        let rights = support::repository().join("deploy/kubernetes/rbac.yaml");
        rig.cluster
            .kubectl(&["apply", "-f", rights.to_str().unwrap()]);
        rig.cluster.kubectl(&[
            "create",
            "clusterrolebinding",
            "zaffre-engine-installer",
            "--clusterrole=zaffre-engine-installer",
            "--user=zaffre-engine",
        ]);
        // The definition is installed by the server.
        wait("the definition", || {
            let found =
                Command::new(env::var_os("ZAFFRE_KUBECTL").unwrap_or_else(|| "kubectl".into()))
                    .args(["get", "crd", "instancetypes.amlarc.azureml.com"])
                    .env("KUBECONFIG", rig.cluster.state.join("kc/admin.kubeconfig"))
                    .output();
            found.unwrap().status.success()
        });
        rig.cluster
            .kubectl(&["apply", "-f", types.to_str().unwrap()]);
        rig
    }

    fn ok(&self, args: &[&str]) -> String {
        let done = self.server.run(args);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(
            done.status.success(),
            "{args:?}: {said}\n{}",
            self.server.log()
        );
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn submit(&self, name: &str, command: &str, more: &str) {
        let file = self.server.folder.join(format!("{name}.yml"));
        let text = format!(
            "command: {command}\nenvironment: {{image: 'docker.io/library/python:latest'}}\ncompute: azureml:k8s\n{more}\n"
        );
        fs::write(&file, text).unwrap();
        wait("the type", || {
            let done = self.server.run(&[
                "job",
                "create",
                "-f",
                file.to_str().unwrap(),
                "-n",
                name,
                "-o",
                "none",
            ]);
            done.status.success()
        });
    }

    fn show(&self, name: &str, query: &str) -> String {
        self.ok(&["job", "show", "-n", name, "--query", query, "-o", "tsv"])
            .trim()
            .to_owned()
    }

    fn until(&self, name: &str, status: &str) {
        wait(&format!("{name} to be {status}"), || {
            self.show(name, "status") == status
        });
    }

    fn log(&self, name: &str) -> String {
        let blobs = self.server.data().join("blobs");
        let folders = fs::read_dir(blobs).unwrap().flatten();
        let logs = folders.map(|f| {
            f.path()
                .join(format!("ExperimentRun/dcid.{name}/user_logs/std_log.txt"))
        });
        logs.filter_map(|log| fs::read_to_string(log).ok())
            .collect()
    }

    fn gone(&self, run: &str) {
        let label = format!("zaffre/run={run}");
        wait(&format!("the pods of {run} to be gone"), || {
            let pods = ["get", "pods", "-l", &label, "-o", "name"];
            self.cluster.kubectl(&pods).is_empty()
        });
    }
}

fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(PAUSE);
    }
}

const TYPES: &str = "
apiVersion: amlarc.azureml.com/v1alpha1
kind: InstanceType
metadata: {name: tiny}
spec: {resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: \"1\", memory: 96Mi}}}
---
apiVersion: amlarc.azureml.com/v1alpha1
kind: InstanceType
metadata: {name: labelled}
spec: {nodeSelector: {zaffre-test: here}, resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: \"1\", memory: 96Mi}}}
";

/// What a job does to find itself, as Azure's library does it.
const INSIDE: &str = "\
import json, os, ssl, urllib.error, urllib.request as r
env = os.environ
url = env['ARM_CLOUD_METADATA_URL'][:-len('/metadata/endpoints')]
trust = ssl.create_default_context(cafile=env['REQUESTS_CA_BUNDLE'])
def ask(at, method='GET', **headers):
    asked = r.Request(at, headers=headers, method=method)
    try: return 200, json.load(r.urlopen(asked, context=trust))
    except urllib.error.HTTPError as refused: return refused.code, None
_, got = ask(env['IDENTITY_ENDPOINT'] + '?api-version=2019-08-01&resource=' + url, **{'X-IDENTITY-HEADER': env['IDENTITY_HEADER']})
token = {'Authorization': 'Bearer ' + got['access_token']}
at = url + '/subscriptions/' + env['AZUREML_ARM_SUBSCRIPTION'] + '/resourceGroups/' + env['AZUREML_ARM_RESOURCEGROUP'] + '/providers/Microsoft.MachineLearningServices/workspaces/' + env['AZUREML_ARM_WORKSPACE_NAME']
print('I am', ask(at + '/jobs/' + env['AZUREML_RUN_ID'], **token)[1]['name'])
print('refused', ask(at + '/computes/c', 'DELETE', **token)[0])
";

/// One test: there is one node, and what is done to it concerns all that runs there.
#[test]
fn jobs_run_as_pods_of_a_real_cluster() {
    let cluster = match Cluster::find() {
        Ok(cluster) => cluster,
        Err(missing) => {
            // Past the capture of the test harness: what was not tested must be seen.
            let note = format!("skipped: no job ran as a pod of a real cluster: {missing}");
            drop(writeln!(std::io::stderr(), "{note}"));
            return;
        }
    };
    let mut rig = Rig::new(cluster);
    let tiny = "resources: {instance_type: tiny}";

    // Output, log, exit code, and everything removed afterwards.
    rig.submit(
        "hello",
        "echo hello world; mkdir -p outputs; echo kept > outputs/x; echo named > ${{outputs.r}}/y",
        &format!("{tiny}\noutputs: {{r: {{type: uri_folder}}}}"),
    );
    rig.until("hello", "Completed");
    assert!(
        rig.log("hello").contains("hello world"),
        "{}",
        rig.log("hello")
    );
    rig.ok(&["job", "download", "-n", "hello", "--all", "-p", "got"]);
    let find = |name: &str| {
        let found = Command::new("find")
            .arg(rig.server.folder.join("got"))
            .args(["-name", name])
            .output();
        String::from_utf8_lossy(&found.unwrap().stdout)
            .trim()
            .to_owned()
    };
    assert_eq!(fs::read_to_string(find("x")).unwrap(), "kept\n");
    assert_eq!(fs::read_to_string(find("y")).unwrap(), "named\n");
    rig.gone("hello");

    rig.submit("fails", "exit 42", tiny);
    rig.until("fails", "Failed");
    assert!(
        rig.ok(&["job", "explain", "-n", "fails"])
            .contains("status code 42")
    );

    rig.submit(
        "grows",
        "python3 -c \"x = bytearray(200 << 20); print(len(x))\"",
        tiny,
    );
    rig.until("grows", "Failed");
    let why = rig.ok(&["job", "explain", "-n", "grows"]);
    assert!(why.contains("more than its memory limit"), "{why}");

    // It is somebody: with the variables of its environment and nothing else it finds itself, and its server is trusted.
    support::write(&rig.server.folder, "inside/inside.py", INSIDE);
    let own = format!("code: ./inside\n{tiny}");
    rig.submit("itself", "python3 inside.py", &own);
    rig.until("itself", "Completed");
    let log = rig.log("itself");
    assert!(
        log.contains("I am itself") && log.contains("refused 403"),
        "{log}"
    );

    // Nobody carries the label; then somebody does.
    rig.submit("waits", "echo here", "resources: {instance_type: labelled}");
    wait("the reason", || {
        rig.ok(&["job", "explain", "-n", "waits"])
            .contains("no node carries zaffre-test=here")
    });
    let node = rig
        .cluster
        // A pretended node runs nothing.
        .kubectl(&[
            "get",
            "nodes",
            "-l",
            "!zaffre.test/node",
            "-o",
            "jsonpath={.items[0].metadata.name}",
        ]);
    rig.cluster
        .kubectl(&["label", "node", &node, "zaffre-test=here"]);
    rig.until("waits", "Completed");
    rig.cluster
        .kubectl(&["label", "node", &node, "zaffre-test-"]);

    // Taken by hand: the next attempt runs, and nobody failed.
    rig.submit("taken", TICKS, tiny);
    rig.until("taken", "Running");
    wait("its log", || rig.log("taken").contains("tick 3"));
    rig.cluster
        .kubectl(&["delete", "pod", "-l", "zaffre/run=taken", "--wait=false"]);
    wait("the next attempt", || {
        rig.show("taken", "properties.\"zaffre.attempt\"") == "2"
    });
    rig.until("taken", "Running");

    // The server dies; the pod runs on and is found again.
    wait("its log", || rig.log("taken").contains("attempt 2"));
    rig.server.kill();
    rig.server.restart();
    rig.until("taken", "Running");
    let before = rig.log("taken").len();
    wait("the log to go on", || rig.log("taken").len() > before);
    assert_eq!(rig.show("taken", "properties.\"zaffre.attempt\""), "2");
    rig.ok(&["job", "cancel", "-n", "taken"]);
    rig.until("taken", "Canceled");
    rig.gone("taken");

    bad_days(&mut rig, &node, tiny);
    worse_days(&mut rig, &node, tiny);

    // Nothing goes to a node that is cordoned, and the reason says so.
    rig.cluster.kubectl(&["cordon", &node]);
    rig.submit("cordoned", "echo here", tiny);
    wait("the reason", || {
        rig.ok(&["job", "explain", "-n", "cordoned"])
            .contains("cordoned")
    });
    rig.cluster.kubectl(&["uncordon", &node]);
    rig.until("cordoned", "Completed");

    // Two pods that start together and know the first one's address.
    rig.submit(
        "gang",
        "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR",
        "resources: {instance_type: tiny, instance_count: 2}",
    );
    rig.until("gang", "Completed");

    packages(&rig, tiny);
    the_seeds(&rig, &node);
    pool::a_batch_runs_on_pods(&mut rig);

    // Another server on the same cluster comes and goes; what is this one's stays.
    rig.submit("stays", TICKS, tiny);
    rig.until("stays", "Running");
    quickstart(&rig.cluster);
    assert_eq!(rig.show("stays", "status"), "Running");
    assert_eq!(rig.show("stays", "properties.\"zaffre.attempt\""), "1");
    rig.ok(&["job", "cancel", "-n", "stays"]);
    rig.until("stays", "Canceled");

    let id = fs::read(rig.server.data().join("server.id")).unwrap();
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    rig.ok(&["compute", "detach", "-n", "k8s", "-y"]);
    wait("everything of this server to be gone", || {
        let ours = format!("zaffre.server/{id}");
        let all = ["get", "pods,secrets,configmaps", "-l", &ours, "-o", "name"];
        rig.cluster.kubectl(&all).is_empty()
    });
    rig.server.stop();
}

/// A process that does nothing until this goes, also when a test fails in between.
struct Frozen(u32);

impl Frozen {
    fn new(pid: u32) -> Frozen {
        support::signal("STOP", pid);
        Frozen(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        support::signal("CONT", self.0);
    }
}

/// The API server hangs; the node is drained.
fn bad_days(rig: &mut Rig, node: &str, tiny: &str) {
    rig.submit("hangs", TICKS, tiny);
    rig.until("hangs", "Running");
    let server = rig.cluster.process("kube-apiserver");
    let frozen = Frozen::new(server);
    let before = rig.log("hangs").len();
    wait("the log to go on while the API server hangs", || {
        rig.log("hangs").len() > before + 50
    });
    drop(frozen);
    assert_eq!(rig.show("hangs", "properties.\"zaffre.attempt\""), "1");

    // Evicted with everything else: it waits for a node, named as cordoned, and goes on in the next attempt.
    rig.cluster.kubectl(&[
        "drain",
        node,
        "--force",
        "--delete-emptydir-data",
        "--ignore-daemonsets",
        "--grace-period=5",
    ]);
    wait("the reason", || {
        rig.ok(&["job", "explain", "-n", "hangs"])
            .contains("cordoned")
    });
    rig.cluster.kubectl(&["uncordon", node]);
    wait("the next attempt", || {
        rig.show("hangs", "properties.\"zaffre.attempt\"") == "2"
    });
    rig.until("hangs", "Running");
    rig.ok(&["job", "cancel", "-n", "hangs"]);
    rig.until("hangs", "Canceled");
    rig.gone("hangs");
}

/// The API server crashes; it forgets the node; the kubelet is gone for a while. What runs goes on, and nothing runs twice.
fn worse_days(rig: &mut Rig, node: &str, tiny: &str) {
    rig.submit("goes-on", TICKS, tiny);
    rig.until("goes-on", "Running");
    let before = rig.log("goes-on").len();
    rig.cluster.restart("kube-apiserver");
    rig.submit("after", "echo here", tiny);
    rig.until("after", "Completed");
    wait("the log to go on", || rig.log("goes-on").len() > before);
    assert_eq!(rig.show("goes-on", "properties.\"zaffre.attempt\""), "1");

    // The kubelet says nothing for longer than we wait for it; its containers run on, and so does what is in them, as long as
    // its agent is heard.
    let kubelet = Frozen::new(rig.cluster.process("kubelet"));
    let silent = r#"{"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}"#;
    let patch = [
        "patch",
        "node",
        node,
        "--subresource",
        "status",
        "-p",
        silent,
    ];
    rig.cluster.kubectl(&patch);
    std::thread::sleep(SILENCE);
    assert_eq!(rig.show("goes-on", "status"), "Running");
    assert_eq!(rig.show("goes-on", "properties.\"zaffre.attempt\""), "1");
    drop(kubelet);

    // The node object goes and comes back, with nothing in between: the pods on it are gone, and the job runs again there.
    rig.cluster.kubectl(&["delete", "node", node]);
    wait("the next attempt or its reason", || {
        rig.show("goes-on", "properties.\"zaffre.attempt\"") == "2"
            || rig
                .ok(&["job", "explain", "-n", "goes-on"])
                .contains("no node")
    });
    rig.cluster.restart("kubelet");
    wait("the node", || {
        let ready = "jsonpath={.items[*].status.conditions[?(@.type==\"Ready\")].status}";
        let all = ["get", "nodes", "-l", "!zaffre.test/node", "-o", ready];
        rig.cluster.kubectl(&all).contains("True")
    });
    wait("the next attempt", || {
        rig.show("goes-on", "properties.\"zaffre.attempt\"") == "2"
            && rig.show("goes-on", "status") == "Running"
    });
    wait("its log", || rig.log("goes-on").contains("attempt 2 "));
    let log = rig.log("goes-on");
    assert_eq!(log.matches("attempt 1 ").count(), 1, "{log}");
    assert_eq!(log.matches("attempt 2 ").count(), 1, "{log}");
    rig.ok(&["job", "cancel", "-n", "goes-on"]);
    rig.until("goes-on", "Canceled");
    rig.gone("goes-on");
}

/// Packages of a conda file are installed in the pod, from an index that the file names, where the image's Python can.
fn packages(rig: &Rig, tiny: &str) {
    let folder = rig.server.folder.join("wheels");
    fs::create_dir_all(&folder).unwrap();
    let wheel = "
import sys, zipfile
with zipfile.ZipFile(sys.argv[1] + '/greeting-1.0-py3-none-any.whl', 'w') as whl:
    whl.writestr('greeting.py', \"text = 'from a package'\\n\")
    whl.writestr('greeting-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0\\n')
    whl.writestr('greeting-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    whl.writestr('greeting-1.0.dist-info/RECORD', '')
";
    let made = Command::new("python3")
        .args(["-c", wheel])
        .arg(&folder)
        .status();
    assert!(made.unwrap().success());
    let index = Index::serve(&folder, &rig.cluster.host);
    let conda = format!(
        "name: e\ndependencies: [python, pip, pip: ['--no-index', '--find-links {}', '--trusted-host {}', greeting==1.0]]\n",
        index.url, rig.cluster.host
    );
    support::write(&rig.server.folder, "conda.yml", &conda);
    let image = "image: 'docker.io/library/python:latest'";
    let file = format!(
        "command: python -c 'import greeting; print(greeting.text)'\nenvironment: {{{image}, conda_file: ./conda.yml}}\n\
         compute: azureml:k8s\n{tiny}\n"
    );
    support::write(&rig.server.folder, "packages.yml", &file);
    rig.ok(&[
        "job",
        "create",
        "-f",
        "packages.yml",
        "-n",
        "packages",
        "-o",
        "none",
    ]);
    wait("packages to end", || {
        ["Completed", "Failed"].contains(&&*rig.show("packages", "status"))
    });
    let log = rig.log("packages");
    let why = rig.ok(&["job", "explain", "-n", "packages"]);
    // The image has this machine's Python, and Debian's brings no pip: then the job fails, and says so.
    let refused = why.contains("packages cannot be installed") && why.contains("ensurepip");
    assert!(log.contains("from a package") || refused, "{log}\n{why}");
}

/// Files over HTTP, as long as it lives.
struct Index {
    child: std::process::Child,
    url: String,
}

impl Index {
    fn serve(folder: &Path, host: &str) -> Index {
        let serve = "
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer((sys.argv[2], 0), handler)
print(server.server_port, flush=True)
server.serve_forever()
";
        let mut child = Command::new("python3")
            .args(["-c", serve])
            .arg(folder)
            .arg(host)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut said = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut said, &mut port).unwrap();
        let url = format!("http://{host}:{}/", port.trim());
        Index { child, url }
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Both manifests and both job files of the seeds, on a node that has what they ask for.
fn the_seeds(rig: &Rig, node: &str) {
    let seed = |name: &str| support::shared(&format!("fixtures/seed/{name}"));
    for manifest in ["my_instance_type.yaml", "my_instance_type_list.yaml"] {
        let path = seed(manifest).display().to_string();
        rig.cluster.kubectl(&["apply", "-f", &path]);
    }
    let names = rig.cluster.kubectl(&["get", "instancetype", "-o", "name"]);
    assert!(names.contains("/myinstancetypename"), "{names}");
    rig.cluster
        .kubectl(&["label", "node", node, "mylabel=mylabelvalue"]);
    // There is no GPU: one is counted, as for devices that no plugin knows.
    let one = r#"{"status": {"capacity": {"nvidia.com/gpu": "1"}, "allocatable": {"nvidia.com/gpu": "1"}}}"#;
    let patch = ["patch", "node", node, "--subresource", "status", "-p", one];
    rig.cluster.kubectl(&patch);
    let file = rig.server.folder.join("seed.yml");
    for (from, instance_type) in [
        ("command-job.yml", Some("cpusmall")),
        ("000/command-job.yml", Some("myinstancetypename")),
        ("command-job.yml", None),
    ] {
        let text = fs::read_to_string(seed(from)).unwrap();
        let text = text.replace("<Kubernetes-compute_target_name>", "k8s");
        let text = match instance_type {
            Some(name) => text.replace("<instance type name>", name),
            None => text[..text.find("resources:").unwrap()].to_owned(),
        };
        fs::write(&file, text).unwrap();
        let said = rig.ok(&["job", "create", "-f", file.to_str().unwrap(), "--stream"]);
        assert!(
            said.lines().any(|line| line == "Hello world!"),
            "{instance_type:?}: {said}"
        );
    }
}

/// `zaffre quickstart --engine kubernetes`, which leaves nothing of its own behind.
fn quickstart(cluster: &Cluster) {
    let folder = tempfile::tempdir().unwrap();
    let config = cluster.state.join("kc/admin.kubeconfig");
    let done = Command::new(support::ZAFFRE)
        .args(["quickstart", "--engine", "kubernetes", "--kubeconfig"])
        .arg(&config)
        .args(["--listen", &format!("{}:0", cluster.host)])
        .args(["--agent-image", IMAGE])
        .current_dir(folder.path())
        .env("ZAFFRE_HOME", folder.path().join("home"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let log = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}\n{log}");
    for part in ["Hello from a pod", "rank 0 of 2", "steps done", "step 40"] {
        assert!(said.contains(part), "{part}: {said}\n{log}");
    }
    assert!(log.contains("largest node has") || said.contains("largest node has"));
    let left = cluster.kubectl(&["get", "pods,secrets,instancetypes", "-o", "name"]);
    assert!(!left.contains("quickstart"), "{left}");
}
