//! Python environments: made once, cached by content, shared by all nodes.
//!
//! Y1 an environment is in the cache only when it is whole: built beside and renamed;
//! Y2 two builds of one environment never run at a time, on whatever servers: a lock file per key;
//! Y3 what could not be given as asked (an interpreter, a conda package without a pip name, an image) is said in the log.

pub mod recipe;

use model::{TaskSpec, engine::Packages};
use recipe::Recipe;
use rustix::fs::FlockOperation;
use sha2::{Digest, Sha256};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

use crate::{tree::MAX_FILES, uid};

/// Lines of a resolver's output that a failed task quotes.
const QUOTE: usize = 12;
/// Version of how environments are made; part of the key.
const FORMAT: u32 = 1;

/// A ready environment.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Its Python.
    pub python: PathBuf,
    /// Lines for the log.
    pub notes: Vec<String>,
}

/// The cache.
pub struct Environments {
    home: PathBuf,
    shims: PathBuf,
    /// Environments and interpreters must be readable by other users.
    shared: bool,
    system: OnceLock<Result<PathBuf, String>>,
}

impl Environments {
    /// A cache below `home`; `runtime` holds the shims.
    pub fn new(home: PathBuf, runtime: PathBuf, shared: bool) -> Environments {
        Environments {
            home,
            shims: runtime.join("bin"),
            shared,
            system: OnceLock::new(),
        }
    }

    /// Folder with `python` and `python3`, for the end of `PATH`.
    pub fn shims(&self) -> &Path {
        &self.shims
    }

    /// The environment, when nothing has to be built or searched for it.
    pub fn ready(&self, spec: &TaskSpec, model: Option<&Path>) -> Option<Result<Prepared, String>> {
        let recipe = match recipe::of(spec, model) {
            Ok(recipe) => recipe,
            Err(e) => return Some(Err(e)),
        };
        let notes = notes(spec, &recipe);
        if recipe.is_empty() {
            // Finding it may need to run it (a shim of pyenv); then that is done beside the loop.
            let system = self.system.get().cloned().or_else(|| {
                let found = self.find_binary()?;
                Some(self.system.get_or_init(|| Ok(found)).clone())
            })?;
            return Some(system.map(|python| self.with_shims(Prepared { python, notes })));
        }
        let python = self.system.get()?.clone().ok()?;
        let interpreter = self.interpreter(&recipe, &python);
        let folder = self.folder(&recipe, &interpreter.0);
        folder.is_dir().then(|| {
            Ok(Prepared {
                python: folder.join("bin/python"),
                notes: notes.into_iter().chain(interpreter.1).collect(),
            })
        })
    }

    /// The environment, built when it is not there. Blocks.
    pub fn build(
        &self,
        spec: &TaskSpec,
        model: Option<&Path>,
        tell: &dyn Fn(&str),
    ) -> Result<Prepared, String> {
        let recipe = recipe::of(spec, model)?;
        let mut notes = notes(spec, &recipe);
        let system = self.system.get_or_init(|| self.find()).clone();
        if recipe.is_empty() {
            return system.map(|python| self.with_shims(Prepared { python, notes }));
        }
        let (python, note) = self.interpreter(&recipe, &system?);
        notes.extend(note);
        let folder = self.folder(&recipe, &python);
        let label = &spec.environment.label;
        let fail = |e: io::Error| format!("environment {label}: {e}");
        if !folder.is_dir() {
            tell(&format!("environment {label}: waiting for its turn"));
            let _turn = self.turn(&folder).map_err(fail)?;
            if !folder.is_dir() {
                tell(&format!("environment {label}: building"));
                self.make(&folder, &recipe, &python, label, tell)?;
            }
        }
        Ok(Prepared {
            python: folder.join("bin/python"),
            notes,
        })
    }

    fn folder(&self, recipe: &Recipe, python: &Path) -> PathBuf {
        let mut hash = Sha256::new();
        hash.update(format!("{FORMAT}\n{}\n", python.display()));
        for requirement in &recipe.requirements {
            hash.update(requirement);
            hash.update("\n");
        }
        let hex: String = hash
            .finalize()
            .iter()
            .take(16)
            .map(|b| format!("{b:02x}"))
            .collect();
        self.home.join("envs").join(hex)
    }

    /// Y2.
    fn turn(&self, folder: &Path) -> io::Result<File> {
        let envs = self.home.join("envs");
        fs::create_dir_all(&envs)?;
        let lock = File::create(folder.with_extension("lock"))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
        Ok(lock)
    }

    /// Y1.
    fn make(
        &self,
        folder: &Path,
        recipe: &Recipe,
        python: &Path,
        label: &str,
        tell: &dyn Fn(&str),
    ) -> Result<(), String> {
        let fail = |e: io::Error| format!("environment {label}: {e}");
        // What an interrupted build left; nobody else builds this one now.
        let beside = folder.with_extension("new");
        match fs::remove_dir_all(&beside) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fail(e)),
            _ => {}
        }
        let list = folder.with_extension("txt");
        fs::write(&list, recipe.requirements.join("\n") + "\n").map_err(fail)?;
        let say = |line: &str| tell(&format!("environment {label}: {line}"));
        let uv = self
            .uv(&say)
            .map_err(|e| format!("environment {label}: uv: {e}"))?;
        let words = |w: &[&str]| w.iter().map(OsString::from).collect::<Vec<_>>();
        let mut venv = words(&[
            "venv",
            "--quiet",
            "--relocatable",
            "--no-project",
            "--python",
        ]);
        venv.push(python.into());
        venv.push(beside.clone().into());
        run(&uv, &venv, &say).map_err(|e| format!("environment {label}: {e}"))?;
        let mut install = words(&["pip", "install", "--python"]);
        install.push(beside.join("bin/python").into());
        install.extend(words(&["--requirement"]));
        install.push(list.into());
        run(&uv, &install, &say).map_err(|e| format!("environment {label}: {e}"))?;
        if self.shared {
            open_to_all(&beside).map_err(fail)?;
        }
        fs::rename(&beside, folder).map_err(fail)
    }

    /// uv, from `PATH` or installed once with pip.
    fn uv(&self, say: &dyn Fn(&str)) -> Result<PathBuf, String> {
        if let Some(uv) = search("uv") {
            return Ok(uv);
        }
        let tools = self.home.join("tools");
        let uv = tools.join("uv/bin/uv");
        if uv.is_file() {
            return Ok(uv);
        }
        let io = |e: io::Error| e.to_string();
        fs::create_dir_all(&tools).map_err(io)?;
        let lock = File::create(tools.join("uv.lock")).map_err(io)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|e| e.to_string())?;
        if uv.is_file() {
            return Ok(uv);
        }
        say("installing uv");
        let beside = tools.join("uv.new");
        let mut last = "there is no python3 in PATH".to_owned();
        // Some interpreters of distributions cannot make an environment with pip in it; the next one may.
        for python in candidates("python3") {
            let _ = fs::remove_dir_all(&beside);
            let venv: Vec<OsString> = vec!["-m".into(), "venv".into(), beside.clone().into()];
            let pip: Vec<OsString> = ["-m", "pip", "install", "--quiet", "uv"]
                .iter()
                .map(OsString::from)
                .collect();
            let made =
                run(&python, &venv, say).and_then(|()| run(&beside.join("bin/python"), &pip, say));
            match made {
                Ok(()) => {
                    let _ = fs::remove_dir_all(tools.join("uv"));
                    fs::rename(&beside, tools.join("uv")).map_err(io)?;
                    return Ok(uv);
                }
                Err(e) => last = e,
            }
        }
        Err(last)
    }

    /// The interpreter that the recipe asks for, or the system's with a line that says so.
    fn interpreter(&self, recipe: &Recipe, system: &Path) -> (PathBuf, Option<String>) {
        let Some(wanted) = &recipe.python else {
            return (system.to_path_buf(), None);
        };
        let minor: Vec<&str> = wanted.split('.').take(2).collect();
        let name = format!("python{}", minor.join("."));
        let real = |p: &Path| fs::canonicalize(p).unwrap_or_else(|_| p.to_path_buf());
        if real(system).file_name().is_some_and(|f| *f == *name) {
            return (system.to_path_buf(), None);
        }
        let mut all = candidates(&name);
        all.extend(pyenv(&minor.join(".")));
        let found = all
            .into_iter()
            .find(|p| binary(p) && (!self.shared || uid::open_to_others(p)));
        match found {
            Some(python) => (python, None),
            None => (
                system.to_path_buf(),
                Some(format!(
                    "python {wanted} is asked for and not on this machine; {} is used",
                    real(system).display()
                )),
            ),
        }
    }

    /// The first `python3` of `PATH` that is a program (not a script that chooses one) and that jobs may run.
    fn find_binary(&self) -> Option<PathBuf> {
        let usable = |p: &PathBuf| !self.shared || uid::open_to_others(p);
        let first = candidates("python3").into_iter().find(usable)?;
        binary(&first).then_some(first)
    }

    fn find(&self) -> Result<PathBuf, String> {
        for python in candidates("python3") {
            let told = Command::new(&python)
                .args(["-I", "-c", "import sys; print(sys.executable)"])
                .stdin(Stdio::null())
                .output();
            let Ok(told) = told else { continue };
            let text = String::from_utf8_lossy(&told.stdout);
            let real = PathBuf::from(text.trim());
            if real.is_file() && (!self.shared || uid::open_to_others(&real)) {
                return Ok(real);
            }
        }
        let hint = if self.shared {
            " that other users may run"
        } else {
            ""
        };
        Err(format!("there is no python3 in PATH{hint}"))
    }

    /// `python` for those who write it, where only `python3` is there.
    fn with_shims(&self, prepared: Prepared) -> Prepared {
        let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", prepared.python.display());
        for name in ["python", "python3"] {
            let path = self.shims.join(name);
            if fs::read(&path).is_ok_and(|old| old == script.as_bytes()) {
                continue;
            }
            let put = || -> io::Result<()> {
                fs::create_dir_all(&self.shims)?;
                fs::set_permissions(&self.shims, fs::Permissions::from_mode(0o755))?;
                let beside = self.shims.join(format!(".{name}"));
                fs::write(&beside, &script)?;
                fs::set_permissions(&beside, fs::Permissions::from_mode(0o755))?;
                fs::rename(&beside, &path)
            };
            if let Err(e) = put() {
                tracing::warn!("{}: {e}", path.display());
            }
        }
        prepared
    }
}

fn notes(spec: &TaskSpec, recipe: &Recipe) -> Vec<String> {
    let mut notes = recipe.notes.clone();
    if let Some(image) = &spec.environment.image {
        let instead = match spec.environment.packages {
            Packages::None => "the Python of this machine",
            Packages::Conda(_) | Packages::OfModel => "a Python environment made from its packages",
        };
        notes.push(format!(
            "image {image} is not run by this engine: the task uses {instead}"
        ));
    }
    notes
}

/// Every program of this name in `PATH`.
fn candidates(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .filter(|p| {
            fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
        .collect()
}

fn search(name: &str) -> Option<PathBuf> {
    candidates(name).into_iter().next()
}

/// Interpreters that pyenv keeps.
fn pyenv(minor: &str) -> Vec<PathBuf> {
    let Some(root) = std::env::var_os("PYENV_ROOT").map(PathBuf::from) else {
        return Vec::new();
    };
    let Ok(entries) = fs::read_dir(root.join("versions")) else {
        return Vec::new();
    };
    let mut out: Vec<PathBuf> = entries
        .flatten()
        .filter(|e| {
            let name = e.file_name();
            let name = name.to_string_lossy();
            name == minor || name.starts_with(&format!("{minor}."))
        })
        .map(|e| e.path().join(format!("bin/python{minor}")))
        .collect();
    out.sort();
    out
}

/// Whether it is a program and not a script that chooses one.
fn binary(path: &Path) -> bool {
    let mut four = [0; 4];
    File::open(path)
        .and_then(|mut f| io::Read::read_exact(&mut f, &mut four))
        .is_ok_and(|()| four == *b"\x7fELF")
}

/// Runs a tool; its lines are progress, its last ones the error.
fn run(program: &Path, args: &[OsString], say: &dyn Fn(&str)) -> Result<(), String> {
    let named = |e: io::Error| format!("{}: {e}", program.display());
    let (reader, writer) = io::pipe().map_err(named)?;
    let mut command = Command::new(program);
    command
        .args(args)
        .env("UV_PYTHON_DOWNLOADS", "never")
        .env("UV_NO_PROGRESS", "1")
        .env("NO_COLOR", "1")
        .env_remove("VIRTUAL_ENV")
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(named)?)
        .stderr(writer);
    let mut child = command.spawn().map_err(named)?;
    drop(command); // it holds the writing end
    let mut last: Vec<String> = Vec::new();
    for line in BufReader::new(reader).split(b'\n') {
        let line = line.map_err(named)?;
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line.is_empty() {
            continue;
        }
        say(&line);
        if last.len() == QUOTE {
            last.remove(0);
        }
        last.push(line);
    }
    let status = child.wait().map_err(named)?;
    if status.success() {
        return Ok(());
    }
    let tool = program.file_name().unwrap_or_default().to_string_lossy();
    Err(format!("{tool} failed ({status}):\n{}", last.join("\n")))
}

/// Lets every user read what was made under a strict umask.
fn open_to_all(top: &Path) -> io::Result<()> {
    let mut rest = vec![top.to_path_buf()];
    let mut seen = 0;
    while let Some(path) = rest.pop() {
        let meta = fs::symlink_metadata(&path)?;
        seen += 1;
        if seen > MAX_FILES {
            return Err(io::Error::other(format!("more than {MAX_FILES} files")));
        }
        if meta.is_symlink() {
            continue;
        }
        let mode = meta.permissions().mode();
        let need = if meta.is_dir() || mode & 0o100 != 0 {
            0o055
        } else {
            0o044
        };
        if mode & need != need {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode | need))?;
        }
        if meta.is_dir() {
            for entry in fs::read_dir(&path)? {
                rest.push(entry?.path());
            }
        }
    }
    Ok(())
}
