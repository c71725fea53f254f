//! Where a task's named outputs lie while it works: in its own folder, or where all workers of a run write (S4 of `site`).
//!
//! U1 what is opened up for the workers of a run is what was named, never what a link at its place points to: earlier runs
//!    could write there.

use super::site::own_folder;
use crate::protocol::{Order, Output, Pool, Work};
use rustix::{
    fs::{Mode, OFlags, fchmod, fchown, open},
    process::Gid,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Whether the outputs are those of all nodes together (S4).
pub(super) fn shares_outputs(order: &Order) -> bool {
    matches!(order.work, Work::Pool(_))
}

/// The place of an output that all nodes write to.
pub(super) fn shared_output(
    pool: &Pool,
    output: &Output,
    user: Option<(u32, u32)>,
) -> io::Result<PathBuf> {
    let path = output.target.clone();
    if !output.file {
        shared(&path, user)?;
        return Ok(path);
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // The folder may hold files of others and stays closed; so a user that may not make the file finds it made.
    if let Some((_, gid)) = user
        && pool.rows.as_deref() != Some(&output.name)
    {
        let new = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = open(&path, new, Mode::from_raw_mode(0o664))?;
        fchown(&file, None, Some(Gid::from_raw(gid)))?;
        fchmod(&file, Mode::from_raw_mode(0o664))?; // whatever the umask is
    }
    Ok(path)
}

/// The place of an output of this task alone.
pub(super) fn own_output(
    folder: &Path,
    output: &Output,
    user: Option<(u32, u32)>,
) -> io::Result<PathBuf> {
    let path = output_path(folder, output);
    let parent = match path.parent() {
        Some(parent) if output.file => parent,
        Some(_) | None => &path,
    };
    own_folder(parent, user)?;
    Ok(path)
}

pub(super) fn output_path(folder: &Path, output: &Output) -> PathBuf {
    let own = folder.join("out").join(&output.name);
    if output.file {
        own.join(output.target.file_name().unwrap_or("output".as_ref()))
    } else {
        own
    }
}

/// The folder that all workers of the run may write, whichever node they are on: its group is the run's.
pub(super) fn shared(path: &Path, user: Option<(u32, u32)>) -> io::Result<()> {
    fs::create_dir_all(path)?;
    if let Some((_, gid)) = user {
        let there = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = open(path, there, Mode::empty())?;
        fchown(&folder, None, Some(Gid::from_raw(gid)))?;
        fchmod(&folder, Mode::from_raw_mode(0o2775))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn u1_a_link_at_the_place_of_an_output_is_not_followed() {
        let name = format!("zaffre-outputs-{}", std::process::id());
        let at = std::env::temp_dir().join(name);
        fs::create_dir(&at).unwrap();
        let (secret, outside) = (at.join("secret"), at.join("outside"));
        fs::write(&secret, "s").unwrap();
        fs::create_dir(&outside).unwrap();
        let (file, dir) = (at.join("out.txt"), at.join("out"));
        symlink(&secret, &file).unwrap();
        symlink(&outside, &dir).unwrap();
        let user = Some((
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        ));
        let pool = Pool {
            workers: 1,
            script: None,
            arguments: Vec::new(),
            rows: Some("rows".into()),
            shutdown: true,
            runtime: PathBuf::new(),
            listing: PathBuf::new(),
            root: PathBuf::new(),
            group: 1,
            timeout_ms: 1,
            azure: false,
            collect: true,
            header: false,
            shared_output: PathBuf::new(),
            logging_level: "info".into(),
        };
        let output = |name: &str, target: &Path, file| Output {
            name: name.into(),
            target: target.into(),
            file,
            address: None,
        };
        assert!(shared_output(&pool, &output("log", &file, true), user).is_err());
        assert!(shared_output(&pool, &output("files", &dir, false), user).is_err());
        // that of the rows is not touched at all, a new file is made, and a new folder
        let (rows, new) = (at.join("a/rows"), at.join("b/new"));
        assert_eq!(
            shared_output(&pool, &output("rows", &rows, true), user).unwrap(),
            rows
        );
        assert!(!rows.exists() && rows.parent().unwrap().is_dir());
        shared_output(&pool, &output("log", &new, true), user).unwrap();
        assert_eq!(fs::read(&new).unwrap(), b"");
        fs::remove_dir_all(&at).unwrap();
    }
}
