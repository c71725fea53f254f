//! C7: a blob of 1 GB in and out, beside azurite. Ours is synced before it is acknowledged, azurite's is not.

use super::peer::Peer;
use super::server::{Server, arm};
use super::{Bench, ratio_of, say};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const MIB: &str = "1024";
const BYTES: f64 = 1024.0 * 1024.0 * 1024.0;
const ROUNDS: usize = 3;
const CLIENT: &str = include_str!("blobs.py");

/// Seconds of one upload and one download, CPU seconds of the server for both.
#[derive(Clone, Copy)]
struct Took {
    put: f64,
    get: f64,
    cpu: f64,
}

pub fn blobs(bench: &Bench) -> Result<()> {
    let folder = bench.folder.join("blobs");
    fs::create_dir_all(&folder)?;
    let mut server = Server::start(&bench.exe, &folder.join("server"))?;
    let kind = json!({"pendingUploadType": "TemporaryBlobReference"});
    let begun = server.ask(
        "POST",
        &arm("data/big/versions/1/startPendingUpload"),
        &kind,
    )?;
    let url = begun.pointer("/blobReferenceForConsumption/credential/sasUri");
    let url = url.and_then(Value::as_str).context("a signature")?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let mut most = 0.0_f64;
    for _ in 0..ROUNDS {
        let azurite = Peer::azurite(&folder)?;
        let port = azurite.port.to_string();
        let arguments = ["azurite", &port, MIB];
        theirs.push(transfer(&bench.peers.python, &arguments, || azurite.cpu())?);
        drop(azurite);
        // It keeps what was replaced for a while; a full page cache would make everybody slow. Ours replaces its blob.
        fs::remove_dir_all(folder.join("azurite"))?;
        let cpu = || {
            most = most.max(server.rss());
            server.cpu()
        };
        ours.push(transfer(&bench.peers.python, &[url, MIB], cpu)?);
    }
    let [ours, theirs] = [ours, theirs].map(|all| {
        let median = |of: fn(&Took) -> f64| {
            let mut all: Vec<f64> = all.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        Took {
            put: median(|took| took.put),
            get: median(|took| took.get),
            cpu: median(|took| took.cpu),
        }
    });
    for (name, of) in [
        ("PUT", (|took| took.put) as fn(&Took) -> f64),
        ("GET", |took| took.get),
    ] {
        let rate = |took: &Took| BYTES / 1e6 / of(took);
        say(
            "C7",
            &format!(
                "{name} of 1 GB: {:.2} s, {:.0} MB/s",
                of(&ours),
                rate(&ours)
            ),
        );
        ratio_of("C7", "of azurite", rate(&ours), rate(&theirs), " MB/s", 3.0);
    }
    say(
        "C7",
        &format!(
            "{:.2} s of CPU for both, azurite {:.2} s; server at {most:.0} MB",
            ours.cpu, theirs.cpu
        ),
    );
    Ok(())
}

/// What the other one has not written yet would be written in this one's time, and with a full page cache the kernel would look
/// for pages most of the time. Only root may empty it; without, the figures say less.
fn settle() -> Result<()> {
    super::peer::done(&mut Command::new("sync"))?;
    if let Err(error) = fs::write("/proc/sys/vm/drop_caches", "3") {
        println!("      the page cache is not emptied: {error}");
    }
    Ok(())
}

fn transfer(
    python: &Path,
    arguments: &[&str],
    mut cpu: impl FnMut() -> Result<f64>,
) -> Result<Took> {
    settle()?;
    let before = cpu()?;
    let mut client = Command::new(python);
    let said = super::peer::done(client.args(["-c", CLIENT]).args(arguments))?;
    let said: Value = serde_json::from_str(&said)?;
    let seconds = |name: &str| said[name].as_f64().with_context(|| format!("no {name}"));
    Ok(Took {
        put: seconds("put_s")?,
        get: seconds("get_s")?,
        cpu: cpu()? - before,
    })
}
