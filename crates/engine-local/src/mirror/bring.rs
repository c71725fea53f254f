//! The agent's side: brings files before the start, pushes what the task writes while it runs, and all of it at the end.
//!
//! B1 while the server is away nothing is lost and nothing is given up: it is tried again until it works;
//! B2 logs are pushed within a second, everything else twice a minute, when somebody waits for it, and at the end; looking
//!    for what has changed takes at most half of the time, however many files there are.

use super::{Answer, Ask, BYTES, Frame, Mode, PART, Plan, SOCKET, hear, say, send};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufReader, Read, Seek, SeekFrom},
    os::unix::{fs::MetadataExt, fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How often logs are looked at.
const LOGS: Duration = Duration::from_millis(400);
/// How often everything else is.
const FILES: Duration = Duration::from_secs(30);
/// What is waited for is looked at again at the latest after this.
const LONGEST_REST: Duration = Duration::from_secs(1);
/// Pause before something that failed is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// Files that are asked for before the first answer is read: their names fit the buffers of a socket.
const ASKED_AT_ONCE: usize = 16;
/// Folders below a root that are followed at most.
const MAX_DEPTH: u32 = 64;

/// How a file looked when it was brought or pushed.
type Look = (u64, i64, i64);

fn look(meta: &fs::Metadata) -> Look {
    (meta.len(), meta.mtime(), meta.mtime_nsec())
}

/// The mirror of one task.
pub struct Mirror {
    plan: Plan,
    socket: PathBuf,
    stream: Option<BufReader<UnixStream>>,
    known: BTreeMap<PathBuf, Look>,
    /// How much of each log the server has.
    logged: BTreeMap<PathBuf, u64>,
    /// What the server refused, told once each.
    refused: BTreeMap<PathBuf, Look>,
}

impl Mirror {
    /// A mirror whose server is reached through the socket in `folder`.
    pub fn new(plan: Plan, folder: &Path) -> Mirror {
        Mirror {
            plan,
            socket: folder.join(SOCKET),
            stream: None,
            known: BTreeMap::new(),
            logged: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.plan.root.join(path)
    }

    /// Does something with the connection; makes one first when there is none.
    fn with<T>(
        &mut self,
        act: impl FnOnce(&mut BufReader<UnixStream>) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(UnixStream::connect(&self.socket)?),
        };
        let done = act(&mut stream)?;
        self.stream = Some(stream); // an error has broken it
        Ok(done)
    }

    /// Brings everything that the plan names. Tries until the server has answered (B1).
    pub fn fetch(&mut self, tell: &dyn Fn(&str)) -> Result<(), String> {
        for path in self.plan.fetch.clone() {
            tell(&format!("bringing {path}"));
            loop {
                match self.fetch_one(&path) {
                    Ok(Ok(())) => break,
                    Ok(Err(refused)) => return Err(refused),
                    Err(e) if e.kind() == io::ErrorKind::StorageFull => {
                        return Err(format!("{path}: {e}"));
                    }
                    Err(e) => {
                        tracing::warn!("{path}: {e}; trying again");
                        std::thread::sleep(AGAIN);
                    }
                }
            }
        }
        for path in self.plan.push.clone() {
            self.remember(&self.at(&path), 0);
        }
        Ok(())
    }

    fn fetch_one(&mut self, path: &str) -> io::Result<Result<(), String>> {
        let root = self.plan.root.clone();
        self.with(|stream| {
            say(stream.get_mut(), &Ask::Fetch(path.to_owned()))?;
            receive(stream, &root)
        })
    }

    /// What is there already is the server's: it is not sent back.
    fn remember(&mut self, at: &Path, depth: u32) {
        let Ok(meta) = fs::symlink_metadata(at) else {
            return;
        };
        if meta.is_dir() && depth < MAX_DEPTH {
            for entry in fs::read_dir(at).into_iter().flatten().flatten() {
                self.remember(&entry.path(), depth + 1);
            }
        } else if meta.is_file() {
            self.known.insert(at.to_owned(), look(&meta));
            self.logged.insert(at.to_owned(), meta.len());
        }
    }

    /// Pushes what is new: the ends of logs, and other files when `files` says so.
    fn push(&mut self, files: bool) -> io::Result<()> {
        for path in self.plan.push.clone() {
            let at = self.at(&path);
            self.push_tree(&at, &path, files, 0)?;
        }
        Ok(())
    }

    fn push_tree(&mut self, at: &Path, path: &str, files: bool, depth: u32) -> io::Result<()> {
        let Ok(meta) = fs::symlink_metadata(at) else {
            return Ok(());
        };
        if meta.is_dir() && depth < MAX_DEPTH {
            let names = fs::read_dir(at)?.flatten().map(|e| e.file_name());
            for name in names.collect::<Vec<_>>() {
                if let Some(name) = name.to_str() {
                    self.push_tree(&at.join(name), &format!("{path}/{name}"), files, depth + 1)?;
                }
            }
            return Ok(());
        }
        let look = look(&meta);
        if !meta.is_file()
            || self.known.get(at) == Some(&look)
            || self.refused.get(at) == Some(&look)
        {
            return Ok(());
        }
        let done = if is_log(path) {
            self.push_log(at, path)?
        } else if files {
            self.push_file(at, path, Mode::of(&meta))?
        } else {
            return Ok(());
        };
        match done {
            Ok(()) => {
                self.known.insert(at.to_owned(), look);
            }
            Err(refused) => {
                tracing::warn!("not kept: {refused}");
                self.refused.insert(at.to_owned(), look);
            }
        }
        Ok(())
    }

    fn push_log(&mut self, at: &Path, path: &str) -> io::Result<Result<(), String>> {
        let mut from = self.logged.get(at).copied().unwrap_or(0);
        let mut file = File::open(at)?;
        let mut part = vec![0; PART];
        loop {
            file.seek(SeekFrom::Start(from))?;
            let n = file.read(&mut part)?;
            if n == 0 {
                break;
            }
            let answer = self.with(|stream| {
                say(stream.get_mut(), &Ask::Append(path.to_owned(), from))?;
                send(stream.get_mut(), BYTES, &part[..n])?;
                answer(stream)
            })?;
            match answer {
                Answer::Done => from += n as u64,
                Answer::Len(len) if len < from => from = len,
                Answer::Refused(message) => return Ok(Err(message)),
                Answer::Len(_) | Answer::End | Answer::File(..) => {
                    return Err(io::Error::other("an answer to nothing"));
                }
            }
            self.logged.insert(at.to_owned(), from);
        }
        Ok(Ok(()))
    }

    fn push_file(&mut self, at: &Path, path: &str, mode: Mode) -> io::Result<Result<(), String>> {
        let mut file = File::open(at)?;
        let answer = self.with(|stream| {
            say(stream.get_mut(), &Ask::Put(path.to_owned(), mode))?;
            let mut part = vec![0; PART];
            loop {
                match file.read(&mut part)? {
                    0 => break,
                    n => send(stream.get_mut(), BYTES, &part[..n])?,
                }
            }
            say(stream.get_mut(), &Ask::Commit)?;
            answer(stream)
        })?;
        match answer {
            Answer::Done => Ok(Ok(())),
            Answer::Refused(message) => Ok(Err(message)),
            Answer::Len(_) | Answer::End | Answer::File(..) => {
                Err(io::Error::other("an answer to nothing"))
            }
        }
    }
}

/// Writes one answer's files below `root`.
fn receive(stream: &mut BufReader<UnixStream>, root: &Path) -> io::Result<Result<(), String>> {
    let mut file: Option<File> = None;
    loop {
        match hear::<Answer>(stream)?.ok_or(io::ErrorKind::UnexpectedEof)? {
            Frame::Message(Answer::File(path, mode)) => file = Some(create(root, &path, mode)?),
            Frame::Bytes(bytes) => {
                let file = file
                    .as_mut()
                    .ok_or_else(|| io::Error::other("bytes of no file"))?;
                io::Write::write_all(file, &bytes)?;
            }
            Frame::Message(Answer::End) => return Ok(Ok(())),
            Frame::Message(Answer::Refused(message)) => return Ok(Err(message)),
            Frame::Message(Answer::Done | Answer::Len(_)) => {
                return Err(io::Error::other("an answer to nothing"));
            }
        }
    }
}

/// Brings single files while a task runs, over a connection of its own.
pub struct Fetcher {
    root: PathBuf,
    socket: PathBuf,
    stream: Option<BufReader<UnixStream>>,
}

impl Fetcher {
    /// Files of this plan, through the socket in `folder`.
    pub fn new(plan: &Plan, folder: &Path) -> Fetcher {
        Fetcher {
            root: plan.root.clone(),
            socket: folder.join(SOCKET),
            stream: None,
        }
    }

    /// Brings these blobs; those that are here already are not asked for. A file that the server has not, or does not give, is
    /// missing here as it would be there. Tries until the server has answered, or `given_up` says that nobody waits (B1).
    pub fn bring(&mut self, paths: &[String], given_up: &dyn Fn() -> bool) -> io::Result<()> {
        let root = self.root.clone();
        let missing: Vec<&String> = paths.iter().filter(|p| !root.join(p).exists()).collect();
        for some in missing.chunks(ASKED_AT_ONCE) {
            let mut done = 0;
            while done < some.len() {
                match self.bring_some(some, &mut done) {
                    Ok(()) => {}
                    Err(e) if e.kind() == io::ErrorKind::StorageFull => return Err(e),
                    Err(_) if given_up() => return Ok(()),
                    Err(e) => {
                        self.stream = None;
                        tracing::warn!("input files: {e}; trying again");
                        std::thread::sleep(AGAIN);
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks for all, then reads the answers: the way to the server is paid once.
    fn bring_some(&mut self, paths: &[&String], done: &mut usize) -> io::Result<()> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(BufReader::new(UnixStream::connect(&self.socket)?)),
        };
        for path in &paths[*done..] {
            say(stream.get_mut(), &Ask::Fetch((*path).clone()))?;
        }
        while *done < paths.len() {
            if let Err(refused) = receive(stream, &self.root)? {
                tracing::warn!("not brought: {refused}");
            }
            *done += 1;
        }
        Ok(())
    }
}

fn answer(stream: &mut BufReader<UnixStream>) -> io::Result<Answer> {
    match hear(stream)?.ok_or(io::ErrorKind::UnexpectedEof)? {
        Frame::Message(answer) => Ok(answer),
        Frame::Bytes(_) => Err(io::Error::other("bytes of no file")),
    }
}

/// Logs grow at their end and are read while they do.
fn is_log(path: &str) -> bool {
    const LOGS: [&str; 5] = [
        "/user_logs/",
        "/logs/sys/",
        "/logs/user/stdout/",
        "/logs/user/stderr/",
        "/logs/user/error/",
    ];
    LOGS.iter().any(|folder| path.contains(folder))
}

fn create(root: &Path, path: &str, mode: Mode) -> io::Result<File> {
    let legal = model::BlobPath::new(path).is_some_and(|b| b.as_str() == path);
    if !legal {
        return Err(io::Error::other(format!("{path:?} is no path of a file")));
    }
    let at = root.join(path);
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    let file = File::create(&at)?;
    file.set_permissions(fs::Permissions::from_mode(mode.bits()))?;
    Ok(file)
}

/// Told once everything that was there when it was asked for is with the server.
type Teller = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Wish {
    finish: bool,
    sync: bool,
    settle: Vec<Teller>,
}

/// Pushes what a task writes, on a thread of its own.
pub struct Pusher {
    wish: Arc<(Mutex<Wish>, Condvar)>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Pusher {
    /// Begins to push.
    pub fn start(mut mirror: Mirror) -> io::Result<Pusher> {
        let wish: Arc<(Mutex<Wish>, Condvar)> = Arc::default();
        let theirs = wish.clone();
        let work = move || {
            let (wish, changed) = &*theirs;
            let mut files_at = Instant::now() + FILES;
            let mut failed = false;
            let mut rest_until = Instant::now();
            let mut settling: Vec<Teller> = Vec::new();
            loop {
                let wished = wish.lock().unwrap_or_else(PoisonError::into_inner);
                let pause = if failed { AGAIN } else { LOGS };
                let idle = |w: &mut Wish| {
                    let settle = !w.settle.is_empty() && rest_until <= Instant::now();
                    !failed && !w.finish && !w.sync && !settle
                };
                // Whoever waits for files while we rest is heard when the rest is over.
                let rest = rest_until.saturating_duration_since(Instant::now());
                let pause = if rest.is_zero() {
                    pause
                } else {
                    pause.min(rest)
                };
                let (mut wished, _) = changed
                    .wait_timeout_while(wished, pause, idle)
                    .unwrap_or_else(PoisonError::into_inner);
                let began = Instant::now();
                let finish = wished.finish;
                if finish || rest_until <= began {
                    settling.append(&mut wished.settle);
                }
                let files = finish
                    || std::mem::take(&mut wished.sync)
                    || !settling.is_empty()
                    || began >= files_at;
                drop(wished);
                let pushed = mirror.push(files);
                if files && pushed.is_ok() {
                    rest_until = Instant::now() + began.elapsed().min(LONGEST_REST);
                    settling.drain(..).for_each(|tell| tell());
                }
                match pushed {
                    Ok(()) if finish => return,
                    Ok(()) => failed = false,
                    Err(e) => {
                        if !failed {
                            tracing::warn!("files cannot be brought back: {e}; trying again");
                        }
                        failed = true;
                    }
                }
                if files && !failed {
                    files_at = Instant::now() + FILES;
                }
                if failed {
                    std::thread::sleep(AGAIN);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("mirror".into())
            .spawn(work)?;
        Ok(Pusher {
            wish,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Pushes everything soon.
    pub fn sync(&self) {
        let (wish, changed) = &*self.wish;
        wish.lock().unwrap_or_else(PoisonError::into_inner).sync = true;
        changed.notify_all();
    }

    /// Calls this when everything that is there now is with the server; never, when `finish` comes first.
    pub fn settle(&self, tell: impl FnOnce() + Send + 'static) {
        let (wish, changed) = &*self.wish;
        let mut wished = wish.lock().unwrap_or_else(PoisonError::into_inner);
        wished.settle.push(Box::new(tell));
        drop(wished);
        changed.notify_all();
    }

    /// Waits until everything is with the server.
    pub fn finish(&self) {
        let (wish, changed) = &*self.wish;
        wish.lock().unwrap_or_else(PoisonError::into_inner).finish = true;
        changed.notify_all();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
