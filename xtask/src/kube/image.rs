//! The one image that pods run, packed from this machine's Python, bash and busybox: no registry is asked.
//!
//! It is named like the image of Python that everybody uses, so that jobs need no other text for the tests. The
//! same layer has a second name, for the container that keeps a pod's network.

use super::tools;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const PYTHON: &str = "docker.io/library/python:latest";
pub const PAUSE: &str = "localhost/zaffre-pause:1";

/// Counted up when what is packed changes, so that archives of before are not used.
const RECIPE: u32 = 1;

/// Parts of Python's library that no job needs; they are half of it.
const LEFT_OUT: [&str; 8] = [
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "site-packages",
    "dist-packages",
];

/// Where the Python is and what belongs to it.
const ABOUT: &str = "import json, os, sys, sysconfig\n\
    print(json.dumps([os.path.realpath(sys.executable), sysconfig.get_path('stdlib'), sys.version]))";

struct Python {
    executable: PathBuf,
    library: PathBuf,
    version: String,
}

/// What cannot be packed here.
pub fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    for name in ["bash", "busybox", "ldd", "tar", "sha256sum"] {
        if tools::find(name).is_none() {
            missing.push(format!("{name} is not found"));
        }
    }
    // ldd fails for a program without libraries.
    if let Some(busybox) = tools::find("busybox")
        && tools::output(tools::program("ldd").arg(busybox)).is_ok()
    {
        missing.push("busybox is not the static one".into());
    }
    if let Err(error) = python() {
        missing.push(format!("{error:#}"));
    }
    missing
}

/// The distribution's Python before any other: it is the smallest, and never a shim.
fn python() -> Result<Python> {
    let system = Path::new("/usr/bin/python3");
    let name = if system.is_file() {
        system
    } else {
        Path::new("python3")
    };
    let said = tools::output(Command::new(name).args(["-I", "-c", ABOUT]))?;
    let about: Vec<String> = serde_json::from_str(&said).context("python3 tells nothing")?;
    let [executable, library, version] = &about[..] else {
        anyhow::bail!("python3 tells {said}");
    };
    Ok(Python {
        executable: executable.into(),
        library: library.into(),
        version: version.clone(),
    })
}

/// The archive, packed now if there is none for this Python.
pub fn archive() -> Result<PathBuf> {
    let python = python()?;
    let folder = super::folder().join("image");
    let archive = folder.join("python.tar");
    let stamp = folder.join("packed-from");
    let wanted = format!(
        "{RECIPE} {} {}",
        python.executable.display(),
        python.version
    );
    fs::create_dir_all(&folder)?;
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock().context("cannot lock the folder of the image")?;
    if archive.is_file() && fs::read_to_string(&stamp).is_ok_and(|packed| packed == wanted) {
        return Ok(archive);
    }
    eprintln!("  packing the image {PYTHON} once");
    let _ = fs::remove_file(&stamp);
    let root = folder.join("root");
    let _ = fs::remove_dir_all(&root);
    lay_out(&root, &python).context("cannot lay out the image")?;
    pack(&folder, &root, &archive).context("cannot pack the image")?;
    fs::remove_dir_all(&root)?;
    fs::write(&stamp, wanted)?;
    Ok(archive)
}

/// The image's files, in the layout that distributions have today: /bin and /lib are links into /usr.
fn lay_out(root: &Path, python: &Python) -> Result<()> {
    for folder in [
        "usr/bin",
        "usr/lib",
        "usr/lib64",
        "usr/local/bin",
        "etc",
        "proc",
        "sys",
        "dev",
        "run",
    ] {
        fs::create_dir_all(root.join(folder))?;
    }
    for folder in ["root", "home", "var/log", "tmp", "var/tmp"] {
        fs::create_dir_all(root.join(folder))?;
    }
    for folder in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(0o1777))?;
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("sbin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ] {
        symlink(target, root.join(link))?;
    }
    symlink("bin", root.join("usr/sbin"))?;
    fs::write(
        root.join("etc/passwd"),
        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    )?;
    fs::write(root.join("etc/group"), "root:x:0:\nnogroup:x:65534:\n")?;

    let busybox = tools::find("busybox").context("busybox is gone")?;
    fs::copy(&busybox, root.join("usr/bin/busybox"))?;
    for applet in tools::output(Command::new(&busybox).arg("--list"))?.lines() {
        if applet != "busybox" {
            symlink("busybox", root.join("usr/bin").join(applet))?;
        }
    }
    let bash = tools::find("bash").context("bash is gone")?;
    fs::copy(&bash, root.join("usr/bin/bash"))?;
    copy_python(root, python)?;
    let mut libraries = libraries(&[bash, python.executable.clone()])?;
    let extensions = python.library.join("lib-dynload");
    if let Ok(entries) = extensions.read_dir() {
        let modules: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        libraries.extend(self::libraries(&modules)?);
    }
    for library in libraries {
        copy(&library, &within(root, &library))?;
    }
    Ok(())
}

/// At the same place as here, so that it finds its library.
fn copy_python(root: &Path, python: &Python) -> Result<()> {
    let executable = within(root, &python.executable);
    copy(&python.executable, &executable)?;
    for name in ["python3", "python"] {
        let link = root.join("usr/bin").join(name);
        if link != executable {
            symlink(&python.executable, link)?;
        }
    }
    // What is read by the one is what the other writes, so that links and times stay.
    let library = python.library.strip_prefix("/")?;
    let mut from = tools::program("tar");
    from.arg("-C").arg("/").args(["-cf", "-"]);
    for part in LEFT_OUT {
        from.arg(format!("--exclude={}/{part}", library.display()));
    }
    from.arg("--exclude=config-3*").arg(library);
    let mut from = from.stdout(std::process::Stdio::piped()).spawn()?;
    let stream = from.stdout.take().context("tar has no output")?;
    let mut into = tools::program("tar");
    into.arg("-C").arg(root).args(["-xf", "-"]).stdin(stream);
    let written = into.status()?;
    ensure!(from.wait()?.success() && written.success(), "tar failed");
    Ok(())
}

fn within(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// The shared libraries of programs and of modules, the loader among them.
fn libraries(files: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    if files.is_empty() {
        return Ok(BTreeSet::new());
    }
    let said = tools::output(tools::program("ldd").args(files))?;
    Ok(libraries_in(&said))
}

/// `libz.so.1 => /lib/libz.so.1 (0x…)` and `/lib64/ld-linux.so.2 (0x…)`. A heading per file ends with a colon.
fn libraries_in(said: &str) -> BTreeSet<PathBuf> {
    let path = |line: &str| {
        let line = line.split(" (").next()?.trim();
        let path = line.rsplit(" => ").next()?;
        (path.starts_with('/') && !path.ends_with(':')).then(|| PathBuf::from(path))
    };
    said.lines().filter_map(path).collect()
}

/// One layer and two images that use it, in the form that `docker save` writes and containerd reads.
fn pack(folder: &Path, root: &Path, archive: &Path) -> Result<()> {
    let fresh = folder.join("fresh");
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh)?;
    let mut tar = tools::program("tar");
    tar.args([
        "--sort=name",
        "--mtime=@0",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ]);
    tools::output(
        tar.arg("-C")
            .arg(root)
            .arg("-cf")
            .arg(fresh.join("layer.tar"))
            .arg("."),
    )?;
    let sum = tools::output(tools::program("sha256sum").arg(fresh.join("layer.tar")))?;
    let sum = sum.split(' ').next().unwrap_or_default();
    let images = [
        ("python.json", PYTHON, json!({"Cmd": ["python3"]})),
        (
            "pause.json",
            PAUSE,
            json!({"Entrypoint": ["/bin/sleep", "2147483647"]}),
        ),
    ];
    let mut manifest = Vec::new();
    for (file, name, mut config) in images {
        config["Env"] = json!([
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG=C.UTF-8"
        ]);
        fs::write(fresh.join(file), image(&config, sum).to_string())?;
        manifest.push(json!({"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]}));
    }
    fs::write(
        fresh.join("manifest.json"),
        Value::Array(manifest).to_string(),
    )?;
    let mut tar = tools::program("tar");
    tools::output(tar.arg("-C").arg(&fresh).arg("-cf").arg(archive).args([
        "manifest.json",
        "python.json",
        "pause.json",
        "layer.tar",
    ]))?;
    fs::remove_dir_all(&fresh)?;
    Ok(())
}

fn image(config: &Value, layer: &str) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let made = "1970-01-01T00:00:00Z";
    json!({
        "architecture": architecture, "os": "linux", "created": made, "config": config,
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        "history": [{"created": made}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_are_files() {
        let said = "/usr/bin/bash:\n\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n/usr/lib/m.so:\n\tlibc.so.6 => /lib/x/libc.so.6 (0x0)\n";
        let found: Vec<PathBuf> = libraries_in(said).into_iter().collect();
        assert_eq!(
            found,
            [
                PathBuf::from("/lib/x/libc.so.6"),
                PathBuf::from("/lib64/ld-linux-x86-64.so.2")
            ]
        );
    }

    #[test]
    fn a_path_is_laid_below_the_root() {
        assert_eq!(
            within(Path::new("/r"), Path::new("/usr/x")),
            Path::new("/r/usr/x")
        );
    }
}
