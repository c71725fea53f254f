//! A batch endpoint with a scorer of a test's own, on a server of its own.

use super::Server;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// How long anything may take before a test says where it hangs.
pub const LONG: Duration = Duration::from_secs(120);

const CLUSTER: &str =
    "name: pool\ntype: amlcompute\nsize: Standard_D1_v2\nmax_instances: 2\ntier: low_priority\n";
const DEPLOYMENT: &str = "\
name: blue
endpoint_name: scores
model: {path: ./model}
code_configuration: {code: ./code, scoring_script: score.py}
environment: {image: library/python:latest}
compute: azureml:pool
resources: {instance_count: 2}
";

/// From the fifth file on, nobody goes on before the test opens; whoever waits leaves its process id. So few are free that no
/// node can be lent all of them before the other is there.
pub const GATED: &str = "\
import os, time
MEETING = os.environ['MEETING']
def init():
    pass
def run(mini_batch):
    rows = []
    for path in mini_batch:
        name = os.path.basename(path)
        if name >= 'f004' and not os.path.exists(MEETING + '/open'):
            open(f'{MEETING}/{os.getpid()}', 'w').close()
            while not os.path.exists(MEETING + '/open'):
                time.sleep(0.005)
        rows.append(name + ' ' + open(path).read())
    return rows
";

/// Makes cluster, endpoint and deployment of `script`; `settings` are further lines of the deployment.
pub fn deploy(server: &Server, script: &str, settings: &str) {
    super::write(&server.folder, "cluster.yml", CLUSTER);
    deploy_on(server, script, settings);
}

/// The same on the cluster of a `cluster.yml` that is there.
pub fn deploy_on(server: &Server, script: &str, settings: &str) {
    let write = |name: &str, text: &str| super::write(&server.folder, name, text);
    write("deployment.yml", &format!("{DEPLOYMENT}{settings}"));
    write("model/m.txt", "m");
    write("code/score.py", script);
    server.ok(&["compute", "create", "-f", "cluster.yml", "-o", "none"]);
    server.ok(&[
        "batch-endpoint",
        "create",
        "-f",
        "deployment.yml",
        "-o",
        "none",
    ]);
}

/// Arguments that start a run over a folder.
pub fn invoke<'a>(job: &'a str, input: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["batch-endpoint", "invoke", "-n", "scores", "--input", input];
    args.extend(["--job-name", job, "-o", "none"]);
    args.extend(more);
    args
}

/// `predictions.csv` of a run that is over.
pub fn predictions(server: &Server, job: &str) -> Vec<u8> {
    let to = format!("got-{job}");
    server.ok(&["job", "download", "-n", job, "-p", &to]);
    fs::read(server.folder.join(to).join("predictions.csv")).unwrap()
}

/// A folder that scorers, which run as users of their own under root, may write to: how they and a test meet.
pub struct Meeting(PathBuf);

impl Meeting {
    /// A new one. Scorers find it as `MEETING` when `variable` is among the settings of their deployment.
    pub fn new(server: &Server) -> Meeting {
        let folder = server.folder.join("meeting");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        Meeting(folder)
    }

    /// The line of a deployment that names it.
    pub fn variable(&self) -> String {
        format!(
            "environment_variables: {{MEETING: \"{}\"}}\n",
            self.0.display()
        )
    }

    /// Lets whoever waits for `open` go on.
    pub fn open(&self) {
        fs::write(self.0.join("open"), "").unwrap();
    }

    /// Makes them wait again.
    pub fn close(&self) {
        let gone = fs::remove_file(self.0.join("open"));
        assert!(gone.is_ok(), "it was not open");
        for entry in fs::read_dir(&self.0).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }

    /// Names that scorers left.
    pub fn names(&self) -> Vec<String> {
        let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
        fs::read_dir(&self.0).unwrap().flatten().map(name).collect()
    }
}

/// A folder of files with the text that each holds.
pub fn fill<'a>(folder: &Path, files: impl IntoIterator<Item = (&'a str, &'a str)>) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Files below the blobs of a server.
pub fn stored(server: &Server) -> usize {
    fn count(folder: &Path) -> usize {
        let entries = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries
            .map(|path| if path.is_dir() { count(&path) } else { 1 })
            .sum()
    }
    count(&server.data().join("blobs"))
}
