//! Where a task's named outputs lie while it works: in its own folder, or where all workers of a run write (S4 of `site`).
//!
//! U1 what is opened up for the workers of a run is what was named, never what a link at its place points to: earlier runs
//!    could write there.

use super::site::own_folder;
use crate::protocol::{Order, Output, Pool, Work};
use rustix::{
    fs::{Dir, FileType, Mode, OFlags, fchmod, fchown, fstat, open, openat},
    process::Gid,
};
use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Folders inside each other that are looked into; a descriptor is open for each.
const MAX_DEPTH: u32 = 64;

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

/// Lets the steps behind read what workers have left for themselves: libraries that write beside and rename leave files that
/// only their user may read. Other workers of the run may still be at work there, so nothing is reached by a path (U1).
pub(super) fn open_up(folder: &Path) -> io::Result<()> {
    let there = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = open(folder, there, Mode::empty())?;
    open_up_below(&folder, MAX_DEPTH)
}

fn open_up_below(folder: &OwnedFd, depth: u32) -> io::Result<()> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let Ok(inner) = openat(folder, name, flags, Mode::empty()) else {
            continue; // a link, or gone meanwhile
        };
        let stat = fstat(&inner)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let wanted = match kind {
            FileType::RegularFile if stat.st_nlink == 1 => 0o044,
            FileType::Directory => 0o055,
            _ => continue,
        };
        if stat.st_mode & wanted != wanted {
            fchmod(&inner, Mode::from_raw_mode(stat.st_mode & 0o7777 | wanted))?;
        }
        if kind == FileType::Directory && depth > 0 {
            open_up_below(&inner, depth - 1)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn u1_what_workers_have_left_is_readable_and_what_links_point_to_stays_as_it_is() {
        let name = format!("zaffre-open-up-{}", std::process::id());
        let at = std::env::temp_dir().join(name);
        let folder = at.join("files");
        fs::create_dir_all(folder.join("below")).unwrap();
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap()
        };
        let files = [folder.join("a"), folder.join("below/b"), at.join("secret")];
        for file in &files {
            fs::write(file, "x").unwrap();
            mode(file, 0o600);
        }
        mode(&folder.join("below"), 0o700);
        symlink(at.join("secret"), folder.join("link")).unwrap();
        open_up(&folder).unwrap();
        let modes = [&files[0], &files[1], &folder.join("below"), &files[2]];
        let modes = modes.map(|f| fs::metadata(f).unwrap().permissions().mode() & 0o777);
        assert_eq!(modes, [0o644, 0o644, 0o755, 0o600]);
        assert!(open_up(&folder.join("link")).is_err());
        fs::remove_dir_all(&at).unwrap();
    }

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
