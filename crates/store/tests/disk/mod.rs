//! A small disk of a test's own, to be filled.

use std::{fs, io::Write, path::Path, process::Command};

/// Mounted until dropped.
pub struct Disk(tempfile::TempDir);

impl Disk {
    /// `None` where this user may not mount.
    pub fn of(bytes: u32) -> Option<Disk> {
        let dir = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "zaffre-test"])
            .arg(dir.path())
            .output();
        mounted
            .is_ok_and(|out| out.status.success())
            .then(|| Disk(dir))
    }
    /// Its folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
    /// Bytes that are free.
    pub fn room(&self) -> u64 {
        let disk = rustix::fs::statvfs(self.path()).unwrap();
        disk.f_bavail * disk.f_frsize
    }
    /// Takes room until only so many bytes are left, or a few less.
    pub fn leave(&self, bytes: u64) {
        let most = self.room() - bytes;
        self.ballast()
            .write_all(&vec![0; usize::try_from(most).unwrap()])
            .unwrap();
    }
    /// Takes all the room there is.
    pub fn fill(&self) {
        let mut ballast = self.ballast();
        for size in [65_536, 4_096, 1] {
            while ballast.write_all(&vec![0; size]).is_ok() {}
        }
    }
    /// Gives back what was taken.
    pub fn free(&self) {
        fs::remove_file(self.path().join("ballast")).unwrap();
    }
    fn ballast(&self) -> fs::File {
        let mut options = fs::OpenOptions::new();
        let ballast = options.create(true).append(true);
        ballast.open(self.path().join("ballast")).unwrap()
    }
}
/// Says that a test runs in the namespace that was made for it.
const INSIDE: &str = "ZAFFRE_TEST_NAMESPACE";

/// Plays this test program's test `name` again in a namespace of its own, where a user without rights may mount; whether that
/// was possible. It fails as the test does.
pub fn plays_in_a_namespace(name: &str) -> bool {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount"]);
        command
    };
    let possible = std::env::var_os(INSIDE).is_none()
        && unshare()
            .args(["mount", "-t", "tmpfs", "zaffre-test", "/tmp"])
            .output()
            .is_ok_and(|out| out.status.success());
    if possible {
        let played = unshare()
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(INSIDE, "1")
            .status()
            .unwrap();
        assert!(played.success(), "{name} failed in its namespace");
    }
    possible
}

impl Drop for Disk {
    fn drop(&mut self) {
        let left = Command::new("umount").arg(self.0.path()).status();
        assert!(
            left.is_ok_and(|s| s.success()),
            "{:?} stays mounted",
            self.0.path()
        );
    }
}
