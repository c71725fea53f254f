//! The server's side: reads and writes blobs for agents, as far as their plans go.

use super::{Answer, Ask, BYTES, Frame, Mode, PART, Plan, hear, say, send};
use model::{BlobPath, NodeId, TaskId};
use port::Blobs;
use rustix::fs::{OFlags, openat};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Folders below a blob that are followed at most: more is a loop of mounts, not a tree of files.
const MAX_DEPTH: u32 = 64;

/// What each node may for its tasks, at the moment (M1).
#[derive(Default)]
pub struct Grants(Mutex<BTreeMap<NodeId, BTreeMap<TaskId, Plan>>>);

impl Grants {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeId, BTreeMap<TaskId, Plan>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// A node may what this plan says, as long as it has the task.
    pub fn give(&self, node: &NodeId, task: &TaskId, plan: Plan) {
        let mut all = self.lock();
        all.entry(node.clone())
            .or_default()
            .insert(task.clone(), plan);
    }
    /// A node may nothing any more for this task.
    pub fn take_task(&self, node: &NodeId, task: &TaskId) {
        if let Some(plans) = self.lock().get_mut(node) {
            plans.remove(task);
        }
    }
    /// A node may nothing.
    pub fn take(&self, node: &NodeId) {
        self.lock().remove(node);
    }

    /// The granted blob that `path` is or lies below.
    fn root(&self, node: &NodeId, path: &str, of: Right) -> Option<String> {
        let all = self.lock();
        let covers = |root: &&String| {
            path.strip_prefix(root.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let roots = all.get(node)?.values().flat_map(|plan| match of {
            Right::Read => plan.fetch.iter().chain(&plan.later),
            Right::Write => plan.push.iter().chain(&[]),
        });
        roots.into_iter().find(covers).cloned()
    }

    /// Serves one connection of a node until it ends.
    pub fn serve(
        &self,
        stream: UnixStream,
        node: &NodeId,
        blobs: &Arc<dyn Blobs>,
    ) -> io::Result<()> {
        let mut session = Session {
            grants: self,
            node,
            blobs,
            out: BufWriter::new(stream.try_clone()?),
            put: None,
            append: None,
        };
        let mut from = BufReader::new(stream);
        while let Some(frame) = hear::<Ask>(&mut from)? {
            match frame {
                Frame::Message(ask) => session.ask(ask)?,
                Frame::Bytes(bytes) => session.bytes(&bytes)?,
            }
            session.out.flush()?;
        }
        Ok(())
    }
}

/// A file that is being received.
struct Put {
    file: File,
    beside: PathBuf,
    to: PathBuf,
    path: String,
    broken: Option<String>,
}

struct Session<'a> {
    grants: &'a Grants,
    node: &'a NodeId,
    blobs: &'a Arc<dyn Blobs>,
    out: BufWriter<UnixStream>,
    put: Option<Put>,
    append: Option<(String, u64)>,
}

/// What a node wants to do with a file.
#[derive(Clone, Copy)]
enum Right {
    Read,
    Write,
}

impl Session<'_> {
    /// The place of a blob that the node may use.
    fn place(&self, path: &str, of: Right) -> Result<PathBuf, String> {
        let refused = || format!("{path}: not a file of this task");
        let root = self.grants.root(self.node, path, of).ok_or_else(refused)?;
        let local = |path: &str| {
            let blob = BlobPath::new(path).filter(|b| b.as_str() == path)?;
            self.blobs.local(&blob)
        };
        let (root, at) = (
            local(&root).ok_or_else(refused)?,
            local(path).ok_or_else(refused)?,
        );
        // M3: the nearest folder that is there, below the granted root, is there when every link is resolved, too. What lies
        // above the root is the server's own.
        let mut above = at.ancestors().skip(1);
        let near = above.find(|p| fs::symlink_metadata(p).is_ok());
        let inside = match near {
            Some(near) if near.starts_with(&root) => {
                match (fs::canonicalize(near), fs::canonicalize(&root)) {
                    (Ok(near), Ok(root)) => near.starts_with(root),
                    _ => false,
                }
            }
            Some(_) | None => true,
        };
        if inside { Ok(at) } else { Err(refused()) }
    }

    fn ask(&mut self, ask: Ask) -> io::Result<()> {
        match ask {
            Ask::Fetch(path) => match self.place(&path, Right::Read) {
                Ok(at) => {
                    self.send_tree(&at, &path, 0)?;
                    say(&mut self.out, &Answer::End)
                }
                Err(refused) => say(&mut self.out, &Answer::Refused(refused)),
            },
            Ask::Append(path, from) => {
                self.append = Some((path, from));
                Ok(())
            }
            Ask::Put(path, mode) => {
                self.put = Some(self.begin(path, mode));
                Ok(())
            }
            Ask::Commit => {
                let done = match self.put.take() {
                    Some(put) => self.commit(put),
                    None => Err("nothing was sent".to_owned()),
                };
                say(
                    &mut self.out,
                    &done.map_or_else(Answer::Refused, |()| Answer::Done),
                )
            }
        }
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some((path, from)) = self.append.take() {
            let answer = match self.append(&path, from, bytes) {
                Ok(answer) => answer,
                Err(message) => Answer::Refused(message),
            };
            return say(&mut self.out, &answer);
        }
        if let Some(put) = &mut self.put
            && put.broken.is_none()
            && let Err(e) = put.file.write_all(bytes)
        {
            put.broken = Some(format!("{}: {e}", put.path));
        }
        Ok(())
    }

    fn send_tree(&mut self, at: &Path, path: &str, depth: u32) -> io::Result<()> {
        let Ok(meta) = fs::symlink_metadata(at) else {
            return Ok(());
        };
        if meta.is_dir() && depth < MAX_DEPTH {
            let mut names: Vec<_> = fs::read_dir(at)?.flatten().map(|e| e.file_name()).collect();
            names.sort();
            for name in names {
                let Some(name) = name.to_str() else { continue };
                self.send_tree(&at.join(name), &format!("{path}/{name}"), depth + 1)?;
            }
            return Ok(());
        }
        if !meta.is_file() {
            return Ok(()); // M3
        }
        let mut file = File::from(open(at, OFlags::RDONLY)?);
        say(
            &mut self.out,
            &Answer::File(path.to_owned(), Mode::of(&meta)),
        )?;
        let mut part = vec![0; PART];
        loop {
            match file.read(&mut part)? {
                0 => return Ok(()),
                n => send(&mut self.out, BYTES, &part[..n])?,
            }
        }
    }

    fn append(&self, path: &str, from: u64, bytes: &[u8]) -> Result<Answer, String> {
        let at = self.place(path, Right::Write)?;
        let append = || -> io::Result<Answer> {
            if let Some(parent) = at.parent() {
                fs::create_dir_all(parent)?;
            }
            let mut file = File::from(open(&at, OFlags::WRONLY | OFlags::CREATE)?);
            let len = file.metadata()?.len();
            if len < from {
                return Ok(Answer::Len(len)); // M2
            }
            file.seek(SeekFrom::Start(from))?;
            file.write_all(bytes)?;
            Ok(Answer::Done)
        };
        append().map_err(|e| format!("{path}: {e}"))
    }

    fn begin(&self, path: String, mode: Mode) -> Put {
        let begin = || -> Result<(File, PathBuf, PathBuf), String> {
            let to = self.place(&path, Right::Write)?;
            let named = |e: io::Error| format!("{path}: {e}");
            let parent = to.parent().ok_or_else(|| format!("{path}: no folder"))?;
            fs::create_dir_all(parent).map_err(named)?;
            let beside = parent.join(format!(".zaffre-{}-{}", std::process::id(), unique()));
            let file = File::options()
                .write(true)
                .create_new(true)
                .open(&beside)
                .map_err(named)?;
            file.set_permissions(fs::Permissions::from_mode(mode.bits()))
                .map_err(named)?;
            Ok((file, beside, to))
        };
        let nowhere = || File::options().write(true).open("/dev/null");
        match begin() {
            Ok((file, beside, to)) => Put {
                file,
                beside,
                to,
                path,
                broken: None,
            },
            Err(message) => Put {
                file: nowhere().expect("every Linux has it"),
                beside: PathBuf::new(),
                to: PathBuf::new(),
                path,
                broken: Some(message),
            },
        }
    }

    fn commit(&self, put: Put) -> Result<(), String> {
        let done = match put.broken {
            Some(message) => Err(message),
            // Asked again: the task may be over by now (M1).
            None => self.place(&put.path, Right::Write).and_then(|_| {
                let end = || {
                    put.file.sync_all()?;
                    fs::rename(&put.beside, &put.to)
                };
                end().map_err(|e| format!("{}: {e}", put.path))
            }),
        };
        if done.is_err() && !put.beside.as_os_str().is_empty() {
            let _ = fs::remove_file(&put.beside);
        }
        done
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(put) = self.put.take()
            && !put.beside.as_os_str().is_empty()
        {
            let _ = fs::remove_file(&put.beside);
        }
    }
}

/// Opens a file, never through a link (M3), and never waits for the other end of a FIFO.
fn open(at: &Path, flags: OFlags) -> io::Result<std::os::fd::OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    Ok(openat(
        rustix::fs::CWD,
        at,
        flags,
        rustix::fs::Mode::from_raw_mode(0o644),
    )?)
}

fn unique() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
