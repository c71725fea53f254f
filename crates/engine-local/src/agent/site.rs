//! Where a task works: its folders, its variables, its cage, and how its processes are started.
//!
//! Everything here blocks on the disk and runs on helper threads, never in the agent's loop.
//!
//! S1 the folder of a task lies below its node's and is closed to the users of other nodes;
//! S2 `${{…}}` that names nothing is an error that names it, never an empty text;
//! S3 what the user's program left in `outputs/` is kept under the artifacts, and is there again in the next attempt;
//! S4 a command's named outputs are put to their targets when it ends; the workers of a pool share them with those of other
//!    nodes, before and after, and so write to the targets themselves.

use super::outputs::{open_up, output_path, own_output, shared, shared_output, shares_outputs};
use crate::{
    confine::{Cage, Plan},
    proc,
    protocol::{Input, NodeConfig, Order, Pool, Role, Work},
    tree::{Copy, Seen},
};
use model::TaskId;
use rustix::fs::chown;
use rustix::process::{Gid, Uid};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, PipeReader, PipeWriter, Read},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink},
        net::UnixStream,
    },
    path::{Component, Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

/// What a job finds beside its environment: the folders of every Linux.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A started process.
#[derive(Debug)]
pub struct Launched {
    /// The process.
    pub child: Child,
    /// A worker's channel.
    pub channel: Option<UnixStream>,
    /// Where a worker counts what it has begun.
    pub progress: Option<File>,
    /// Its standard output (a command: both streams).
    pub out: PipeReader,
    /// Its standard error, where it has a file of its own.
    pub err: Option<PipeReader>,
}

/// A task's place, ready to start processes.
#[derive(Debug)]
pub struct Site {
    /// What to do.
    pub order: Arc<Order>,
    /// Its cage.
    pub cage: Cage,
    folder: PathBuf,
    user: Option<(u32, u32)>,
    variables: Vec<(OsString, OsString)>,
    line: String,
    settings: String,
}

/// What is needed to make a site.
pub struct Ground<'a> {
    /// The node's folder.
    pub node_folder: &'a Path,
    /// Its configuration.
    pub config: &'a NodeConfig,
    /// Our own binary.
    pub exe: &'a Path,
    /// The node's user, when it has one.
    pub uid: Option<u32>,
}

/// The name of a task's folder: readable, and different for every task.
pub fn folder_name(task: &TaskId) -> String {
    let readable: String = task
        .job
        .name()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(40)
        .collect();
    let whole = serde_json::to_string(task).expect("ids can be written");
    format!(
        "{readable}-{}.{}-{:08x}",
        task.index,
        task.attempt.0,
        crc32fast::hash(whole.as_bytes())
    )
}

/// The group shared by all tasks of a run, so that they may write its shared output together.
fn group_of(task: &TaskId) -> u32 {
    let job = serde_json::to_string(&task.job).expect("ids can be written");
    crate::uid::FIRST + crc32fast::hash(job.as_bytes()) % crate::uid::COUNT
}

impl Site {
    /// Brings code, inputs and earlier outputs, and makes the cage. `tell` says what is being done.
    pub fn prepare(
        ground: &Ground<'_>,
        task: &TaskId,
        order: Arc<Order>,
        tell: &dyn Fn(&str),
    ) -> Result<Site, String> {
        let name = folder_name(task);
        let folder = ground.node_folder.join("tasks").join(&name);
        let user = ground.uid.map(|uid| (uid, group_of(task)));
        let fail = |what: &str, e: io::Error| format!("{what}: {e}");

        let copies = order
            .inputs
            .iter()
            .any(|(_, i)| matches!(i, Input::Copy(_)));
        let inputs = order.inputs.iter().map(|(name, _)| name);
        let outputs = order.outputs.iter().map(|o| &o.name);
        if let Some(name) = inputs.chain(outputs).find(|n| !is_name(n)) {
            return Err(format!("{name:?} cannot be the name of an input or output"));
        }

        let make = || -> io::Result<()> {
            match fs::remove_dir_all(&folder) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            // The agent's umask is 022; what is the user's alone is closed one level below (S1).
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o711)
                .create(&folder)?;
            for own in ["work", "home", "tmp"] {
                own_folder(&folder.join(own), user)?;
            }
            for (ours, needed) in [
                ("out", !order.outputs.is_empty() && !shares_outputs(&order)),
                ("in", copies),
                ("model", order.model.is_some()),
                ("progress", matches!(order.work, Work::Pool(_))),
            ] {
                if needed {
                    let mode = if ours == "model" { 0o755 } else { 0o711 };
                    fs::DirBuilder::new().mode(mode).create(folder.join(ours))?;
                }
            }
            Ok(())
        };
        make().map_err(|e| fail("the task's folder cannot be made", e))?;

        let work = folder.join("work");
        if let Some(code) = &order.code {
            tell("copying code");
            mine(user)
                .folder(code, &work)
                .map_err(|e| fail("code", e))?;
        }
        let mut paths = Vec::new();
        for (name, input) in &order.inputs {
            let path = bring(name, input, &folder, user, tell)?;
            paths.push((name.clone(), path));
        }
        if matches!(order.work, Work::Command { .. }) {
            // What is there before the first attempt was left by a job of this name that was removed: it is none of this one's.
            let again = task.attempt.0 > 1;
            if again {
                tell("bringing earlier outputs");
            }
            for kept in ["outputs", "logs"] {
                let (from, to) = (order.artifacts.join(kept), work.join(kept));
                own_folder(&to, user).map_err(|e| fail(kept, e))?;
                if again {
                    mine(user).folder(&from, &to).map_err(|e| fail(kept, e))?; // S3
                }
            }
        }
        let mut outputs: Vec<(String, OsString)> = Vec::new();
        for output in &order.outputs {
            if let Some(address) = &output.address {
                outputs.push((output.name.clone(), address.into()));
                continue;
            }
            let path = match &order.work {
                Work::Pool(pool) => shared_output(pool, output, user),
                Work::Command { .. } => own_output(&folder, output, user),
            };
            let path = path.map_err(|e| fail(&format!("output {}", output.name), e))?;
            outputs.push((output.name.clone(), path.into()));
        }
        let shown = order
            .model
            .as_ref()
            .map(|(source, base)| {
                let shown = folder.join("model").join(base);
                symlink(source, &shown).map(|()| shown)
            })
            .transpose()
            .map_err(|e| fail("model", e))?;

        let line = match &order.work {
            Work::Command { line } => substitute(line, &paths, &outputs)?,
            Work::Pool(_) => String::new(),
        };
        let settings = match &order.work {
            Work::Command { .. } => String::new(),
            Work::Pool(pool) => {
                let words = pool.arguments.iter();
                let words: Result<Vec<String>, String> = words
                    .map(|word| substitute(word, &paths, &outputs))
                    .collect();
                pool_settings(pool, &words?, &work, shown.as_deref(), user)?
            }
        };
        let variables = variables(task, &order, &folder, &paths, &outputs, ground.config);
        let cage = Cage::make(Plan {
            kind: ground.config.confinement.clone(),
            name: format!("{}/{name}", ground.config.group),
            memory: order.memory,
            cpu: order.cpu,
            user,
            exe: ground.exe.to_path_buf(),
        })
        .map_err(|e| fail("limits cannot be set", e))?;
        Ok(Site {
            order,
            cage,
            folder,
            user,
            variables,
            line,
            settings,
        })
    }

    /// Starts all processes of the command.
    pub fn launch_command(&self) -> io::Result<Vec<Launched>> {
        let all = (0..self.order.gang.processes).map(|local| self.launch_process(local));
        let all: io::Result<Vec<Launched>> = all.collect();
        if all.is_err() {
            self.cage.kill(); // those that were started before the one that was not
        }
        all
    }

    fn launch_process(&self, local: u32) -> io::Result<Launched> {
        let (out, writer) = io::pipe()?;
        let err = writer.try_clone()?;
        let users = self.order.variables.iter().find(|(k, _)| k == "PATH");
        let ours = self.variables.iter().rev().find(|(k, _)| k == "PATH");
        let path = users.map(|(_, v)| OsStr::new(v));
        let path = path
            .or(ours.map(|(_, v)| v.as_os_str()))
            .unwrap_or_default();
        let (program, args) = match plain(&self.line, &self.folder.join("work"), path) {
            Some(plain) => plain,
            None => {
                let shell = ["/bin/bash", "/usr/bin/bash", "/bin/sh"]
                    .into_iter()
                    .map(PathBuf::from)
                    .find(|p| p.exists())
                    .ok_or_else(|| io::Error::other("there is neither bash nor sh"))?;
                (shell, vec!["-c".to_owned(), self.line.clone()])
            }
        };
        let child = self.launch(
            ("main", local),
            &program,
            &args,
            Stdio::null(),
            writer,
            err,
            &[],
        )?;
        Ok(Launched {
            child,
            channel: None,
            progress: None,
            out,
            err: None,
        })
    }

    /// Starts a worker of the pool.
    pub fn launch_worker(&self, number: u32, part: &str) -> io::Result<Launched> {
        let Work::Pool(pool) = &self.order.work else {
            return Err(io::Error::other("a command has no workers"));
        };
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (out, out_writer) = io::pipe()?;
        let (err, err_writer) = io::pipe()?;
        let (path, progress) = self.progress(part)?;
        let args = [
            pool.runtime.to_string_lossy().into_owned(),
            self.settings.clone(),
            path.to_string_lossy().into_owned(),
        ];
        // Workers take the node's GPUs in turn.
        let gpus = self.order.gpus.as_deref().unwrap_or_default();
        let gpu = (!gpus.is_empty()).then(|| gpus[number as usize % gpus.len()].to_string());
        let extra: Vec<_> = gpu
            .iter()
            .map(|g| ("CUDA_VISIBLE_DEVICES", g.as_str()))
            .collect();
        let stdin = Stdio::from(std::os::fd::OwnedFd::from(theirs));
        let child = self.launch(
            (part, 0),
            &self.order.python,
            &args,
            stdin,
            out_writer,
            err_writer,
            &extra,
        )?;
        Ok(Launched {
            child,
            channel: Some(ours),
            progress: Some(progress),
            out,
            err: Some(err),
        })
    }

    /// The page on which a worker counts: a file of its own that the agent holds open.
    fn progress(&self, part: &str) -> io::Result<(PathBuf, File)> {
        let path = self.folder.join("progress").join(part);
        let file = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)?;
        file.set_len(4096)?;
        if let Some((uid, gid)) = self.user {
            rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        Ok((path, file))
    }

    #[expect(clippy::too_many_arguments, reason = "they are one call of spawn")]
    fn launch(
        &self,
        (part, local): (&str, u32),
        program: &Path,
        args: &[String],
        stdin: Stdio,
        out: PipeWriter,
        err: PipeWriter,
        extra: &[(&str, &str)],
    ) -> io::Result<Child> {
        self.cage
            .spawn(part, program, args, |command: &mut Command| {
                command
                    .env_clear()
                    .envs(self.variables.iter().map(|(k, v)| (k, v)))
                    .envs(self.order.gang.variables(local))
                    .envs(self.order.variables.iter().map(|(k, v)| (k, v)))
                    .envs(extra.iter().copied())
                    .current_dir(self.folder.join("work"))
                    .stdin(stdin)
                    .stdout(Stdio::from(out))
                    .stderr(Stdio::from(err));
            })
    }

    /// Copies what changed in `outputs/` and `logs/` to the artifacts (S3).
    pub fn sync(&self, scratch: &Path, seen: &mut Seen) -> io::Result<u64> {
        if !matches!(self.order.work, Work::Command { .. }) {
            return Ok(0); // a pool's logs are the agent's, its outputs are rows
        }
        let mut skipped = 0;
        for kept in ["outputs", "logs"] {
            let from = self.folder.join("work").join(kept);
            if fs::read_dir(&from).is_ok_and(|mut entries| entries.next().is_none()) {
                continue; // most commands write nothing there, and an artifact is a file
            }
            skipped += Copy {
                owner: None,
                scratch: Some(scratch),
                seen: Some(seen),
                private: false,
            }
            .folder(&from, &self.order.artifacts.join(kept))?
            .skipped;
        }
        Ok(skipped)
    }

    /// Puts every named output to its target. Returns lines for the log.
    pub fn deliver(&self, scratch: &Path) -> Vec<String> {
        let mut notes = Vec::new();
        if shares_outputs(&self.order) {
            // they are there (S4)
            let folders = self.order.outputs.iter().filter(|o| !o.file);
            for output in folders.filter(|_| self.user.is_some()) {
                if let Err(e) = open_up(&output.target) {
                    tracing::warn!("output {} may not be readable: {e}", output.name);
                }
            }
            return notes;
        }
        for output in &self.order.outputs {
            if output.address.is_some() {
                continue;
            }
            let from = output_path(&self.folder, output);
            let mut copy = Copy {
                owner: None,
                scratch: Some(scratch),
                seen: None,
                private: false,
            };
            let done = if output.file {
                copy.file(&from, &output.target)
            } else {
                copy.folder(&from, &output.target)
            };
            match done {
                Ok(done) if done.skipped > 0 => notes.push(format!(
                    "output {}: {} entries are neither files nor folders and were left out",
                    output.name, done.skipped
                )),
                Ok(_) => {}
                Err(e) => notes.push(format!("output {} could not be kept: {e}", output.name)),
            }
        }
        notes
    }
}

/// Whether a name can be one folder: it becomes part of a path.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// The program and the words of a line that no shell has to read: plain words, the first one a program. Starting a shell
/// costs more than starting most programs; whatever looks like more than words is left to it.
fn plain(line: &str, work: &Path, path: &OsStr) -> Option<(PathBuf, Vec<String>)> {
    /// Words that bash takes for its own before it looks for a program.
    const SHELLS_OWN: &str = "alias bg bind break builtin caller case cd command compgen complete compopt continue \
        coproc declare dirs disown do done echo elif else enable esac eval exec exit export false fc fg fi for function \
        getopts hash help history if in jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly \
        return select set shift shopt source suspend test then time times trap true type typeset ulimit umask unalias \
        unset until wait while";
    let safe = |c: char| c.is_ascii_alphanumeric() || " _./:@%+,-=".contains(c);
    if !line.chars().all(safe) {
        return None;
    }
    let mut words = line.split(' ').filter(|w| !w.is_empty());
    let first = words.next()?;
    if first.contains('=')
        || SHELLS_OWN.split_ascii_whitespace().any(|w| w == first)
        || first == "."
    {
        return None;
    }
    let program = if first.contains('/') {
        work.join(first)
    } else {
        let mut found = std::env::split_paths(path).map(|folder| folder.join(first));
        found.find(|p| p.is_file())?
    };
    // What the kernel runs by itself; for anything else, and for every error, the shell has the words.
    let meta = fs::metadata(&program).ok()?;
    let mut head = [0; 4];
    File::open(&program).ok()?.read_exact(&mut head).ok()?;
    let runs = meta.permissions().mode() & 0o111 == 0o111
        && (head == *b"\x7fELF" || head.starts_with(b"#!/"));
    runs.then(|| (program, words.map(str::to_owned).collect()))
}

fn mine(user: Option<(u32, u32)>) -> Copy<'static> {
    Copy {
        owner: user.map(|(uid, _)| uid),
        scratch: None,
        seen: None,
        private: true,
    }
}

pub(super) fn own_folder(path: &Path, user: Option<(u32, u32)>) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    if let Some((uid, gid)) = user {
        chown(path, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

/// Whether a shell takes a path for one word and nothing else. What a user called the folder of an input is not part of its
/// path in Azure, and a command that names the input without quotes must find it whatever it is called.
fn is_one_word(path: &Path) -> bool {
    const TAKEN: &[u8] = b" \t\n\r\"'\\$`*?[](){};&|<>#~!";
    !path
        .as_os_str()
        .as_bytes()
        .iter()
        .any(|byte| TAKEN.contains(byte))
}

fn bring(
    name: &str,
    input: &Input,
    folder: &Path,
    user: Option<(u32, u32)>,
    tell: &dyn Fn(&str),
) -> Result<OsString, String> {
    match input {
        Input::Literal(text) => Ok(text.into()),
        Input::Original(path) => {
            let failed = |e: io::Error| format!("input {name}: {}: {e}", path.display());
            let meta = fs::symlink_metadata(path).map_err(failed)?;
            if !meta.is_dir() || is_one_word(path) {
                return Ok(path.clone().into());
            }
            let beside = folder.join("in");
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o711)
                .create(&beside)
                .map_err(failed)?;
            let shown = beside.join(name);
            symlink(path, &shown).map_err(failed)?;
            Ok(shown.into())
        }
        Input::Copy(from) => {
            tell(&format!("copying input {name}"));
            let meta = fs::symlink_metadata(from)
                .map_err(|e| format!("input {name}: {}: {e}", from.display()))?;
            let base = from.file_name().unwrap_or("input".as_ref());
            let base = match meta.is_dir() && !is_one_word(Path::new(base)) {
                true => "input".as_ref(),
                false => base,
            };
            let to = folder.join("in").join(name);
            own_folder(&to, user).map_err(|e| format!("input {name}: {e}"))?;
            let to = to.join(base);
            let done = if meta.is_dir() {
                mine(user).folder(from, &to)
            } else {
                mine(user).file(from, &to)
            };
            done.map_err(|e| format!("input {name}: {e}"))?;
            Ok(to.into())
        }
    }
}

/// Replaces `${{inputs.NAME}}` and `${{outputs.NAME}}` (S2).
fn substitute(
    line: &str,
    inputs: &[(String, OsString)],
    outputs: &[(String, OsString)],
) -> Result<String, String> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("${{") {
        out.push_str(&rest[..at]);
        let after = &rest[at + 3..];
        let end = after
            .find("}}")
            .ok_or_else(|| format!("command: {:?} has no closing }}}}", &rest[at..]))?;
        let name = after[..end].trim();
        let value = match name.split_once('.') {
            Some(("inputs", name)) => inputs
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.to_string_lossy().into_owned()),
            Some(("outputs", name)) => outputs
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.to_string_lossy().into_owned()),
            _ => None,
        };
        let Some(value) = value else {
            return Err(format!(
                "command: ${{{{{name}}}}} names no input or output of this job"
            ));
        };
        out.push_str(&value);
        rest = &after[end + 2..];
    }
    out.push_str(rest);
    Ok(out)
}

/// What tells numeric libraries how many threads to keep. Left to themselves they take every core in every worker, and spin:
/// four scikit-learn workers on two cores spent twenty times the processor time of single-threaded ones. A user's own value wins.
const THREADS: [&str; 3] = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];

fn variables(
    task: &TaskId,
    order: &Order,
    folder: &Path,
    inputs: &[(String, OsString)],
    outputs: &[(String, OsString)],
    config: &NodeConfig,
) -> Vec<(OsString, OsString)> {
    let mut out: Vec<(OsString, OsString)> = Vec::new();
    let mut set = |k: &str, v: OsString| out.push((k.into(), v));
    for (k, v) in &order.server_variables {
        set(k, v.into());
    }
    let mut path = OsString::new();
    if let Some(bin) = order.python.parent() {
        path.push(bin);
        path.push(":");
    }
    match &config.role {
        // The environment is the image.
        Role::Elsewhere(pod) if !pod.path.is_empty() => path.push(&pod.path),
        Role::Elsewhere(_) => path.push(SYSTEM_PATH),
        Role::Node(_) | Role::Pod(_) => {
            path.push(SYSTEM_PATH);
            path.push(":");
            path.push(&order.shims);
        }
    }
    set("PATH", path);
    set("PWD", folder.join("work").into());
    set("HOME", folder.join("home").into());
    set("TMPDIR", folder.join("tmp").into());
    set("LANG", "C.UTF-8".into());
    // There is no entry in the password file for the task's user; getpass and others ask these first.
    set("USER", "zaffre".into());
    set("LOGNAME", "zaffre".into());
    set("AZUREML_RUN_ID", task.job.name().into());
    set("AZUREML_ATTEMPT", task.attempt.0.to_string().into());
    set("AZUREML_NODE_ID", config.node.to_string().into());
    if order.model.is_some() {
        set("AZUREML_MODEL_DIR", folder.join("model").into());
    }
    if let Work::Pool(pool) = &order.work {
        set("AZUREML_BI_OUTPUT_PATH", pool.shared_output.clone().into());
        let cores = proc::machine().map_or(1, |(cores, _)| cores);
        let threads = (cores / (pool.workers.max(1) as usize)).max(1);
        for library in THREADS {
            set(library, threads.to_string().into());
        }
    }
    let gpus = order.granted_gpus.to_string();
    set("AZ_BATCHAI_GPU_COUNT_FOUND", gpus.into());
    if let Some(gpus) = visible(order.gpus.as_deref()) {
        set("CUDA_VISIBLE_DEVICES", gpus.into());
    }
    for (name, value) in inputs {
        set(&format!("AZURE_ML_INPUT_{name}"), value.clone());
    }
    for (name, value) in outputs {
        set(&format!("AZURE_ML_OUTPUT_{name}"), value.clone());
    }
    out
}

/// Which of the machine's GPUs are to be found: those of the task, and none where it has none. Nominal ones have no number.
fn visible(gpus: Option<&[u32]>) -> Option<String> {
    let all: Vec<String> = gpus?.iter().map(u32::to_string).collect();
    Some(all.join(","))
}

/// The worker's settings (`runtime/batch.py`).
fn pool_settings(
    pool: &Pool,
    arguments: &[String],
    work: &Path,
    model: Option<&Path>,
    user: Option<(u32, u32)>,
) -> Result<String, String> {
    let root = std::str::from_utf8(pool.root.as_os_str().as_bytes())
        .map_err(|_| format!("input {}: its folder is not UTF-8", pool.root.display()))?;
    let parts = pool.script.iter().flat_map(|s| Path::new(s).components());
    if parts
        .into_iter()
        .any(|c| !matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return Err(format!(
            "scoring script {:?} does not lie in the code folder",
            pool.script.as_deref().unwrap_or_default()
        ));
    }
    let script = pool.script.as_ref().map(|s| work.join(s));
    if let Some(script) = &script
        && !script.is_file()
    {
        return Err(format!(
            "scoring script {:?} is not in the code folder",
            pool.script.as_deref().unwrap_or_default()
        ));
    }
    if script.is_none() && model.is_none() {
        return Err("a deployment without a scoring script needs an MLflow model".to_owned());
    }
    shared(&pool.shared_output, user)
        .map_err(|e| format!("output folder {}: {e}", pool.shared_output.display()))?;
    Ok(serde_json::json!({
        "script": script,
        "arguments": arguments,
        "shutdown": pool.shutdown,
        "model": model,
        "listing": pool.listing,
        "root": root,
        "group": pool.group,
        "azure": pool.azure,
        "collect": pool.collect,
        "header": pool.header,
        "logging_level": pool.logging_level,
    })
    .to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_words_are_run_without_a_shell() {
        let (work, path) = (Path::new("/"), OsStr::new("/nowhere:/bin:/usr/bin"));
        let run = |line: &str| plain(line, work, path).map(|(p, w)| (p.display().to_string(), w));
        assert_eq!(run("/bin/true"), Some(("/bin/true".into(), vec![])));
        let ls = run("  ls -l  a=b ./x ").unwrap();
        assert!(ls.0.ends_with("/ls"), "{ls:?}");
        assert_eq!(ls.1, ["-l", "a=b", "./x"]);
        for shell in [
            "true",
            "echo x",
            "ls *",
            "ls $HOME",
            "ls ~",
            "A=b ls",
            "ls; ls",
            "ls > x",
            "ls\nls",
            "ls 'a'",
            "nothing-here",
            "/etc/passwd",
            "",
            "ls {a,b}",
            "!ls",
            "ls #x",
            ". x",
            "exec ls",
            "ls & ls",
            "ls \\x",
        ] {
            assert_eq!(run(shell), None, "{shell}");
        }
    }

    #[test]
    fn a_task_finds_the_gpus_that_it_was_granted_and_no_others() {
        assert_eq!(visible(Some(&[1, 3])).as_deref(), Some("1,3"));
        assert_eq!(visible(Some(&[])).as_deref(), Some(""), "others have them");
        assert_eq!(visible(None), None, "the machine has none");
    }

    #[test]
    fn expressions_become_paths_and_unknown_ones_are_named() {
        let inputs = [("data".to_owned(), OsString::from("/d"))];
        let outputs = [("model".to_owned(), OsString::from("/m"))];
        let line = "cp ${{inputs.data}}/x ${{ outputs.model }} $HOME ${X}";
        assert_eq!(
            substitute(line, &inputs, &outputs).unwrap(),
            "cp /d/x /m $HOME ${X}"
        );
        let wrong = substitute("echo ${{inputs.dat}}", &inputs, &outputs).unwrap_err();
        assert_eq!(
            wrong,
            "command: ${{inputs.dat}} names no input or output of this job"
        );
        assert!(substitute("echo ${{inputs.data", &inputs, &outputs).is_err());
    }
}
