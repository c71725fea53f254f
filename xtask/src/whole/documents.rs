//! C1 to C6 of the performance document: documents beside databases, one durable write or read of 1 KiB by key out of 1,000.

use super::peer::{Peer, done, postgres_programs};
use super::server::{Server, arm};
use super::{Bench, Peers, median, ms, ratio_of, say};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Connections of the goals.
const MANY: u32 = 16;
/// Rounds, each with every program once, and the seconds of one of them.
const ROUNDS: usize = 5;
const SECONDS: u32 = 3;
/// Documents that a list is measured beside, and all that the server holds at the end.
const LISTED: u64 = 10_000;
const HELD: u64 = 100_000;
/// Pages read.
const PAGES: u32 = 300;
const STARTS: usize = 5;
/// Upserts of the floor, one commit each.
const FLOOR: &str = "400";

/// Writes and reads versions of environments: documents that are checked and kept as they were sent.
const OURS: &str = r#"
local base = os.getenv('BASE')
local pad = string.rep('x', 940)
local fill, get = os.getenv('MODE') == 'fill', os.getenv('MODE') == 'get'
local at, number = tonumber(os.getenv('START') or 0), math.random(1e9)
wrk.headers['Authorization'] = 'Bearer ' .. os.getenv('TOKEN')
wrk.headers['Content-Type'] = 'application/json'
request = function()
  number = number + 1
  local key = math.random(0, 999)
  if fill then key = at; at = at + 1 end
  local path = base .. 'environments/e' .. key .. '/versions/1?api-version=2024-10-01'
  if get then return wrk.format('GET', path) end
  return wrk.format('PUT', path, nil, '{"properties":{"image":"library/python:latest","description":"' .. number .. pad .. '"}}')
end
"#;

/// What one run of a load generator found.
#[derive(Clone, Copy, Default)]
struct Load {
    per_second: f64,
    /// Of the server; microseconds per request.
    cpu: f64,
    requests: u64,
}

#[derive(Default)]
struct Series(Vec<Load>);
impl Series {
    fn median(&self, of: impl Fn(&Load) -> f64) -> f64 {
        let mut all: Vec<f64> = self.0.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or_default()
    }
    fn rate(&self) -> f64 {
        self.median(|load| load.per_second)
    }
    fn cpu(&self) -> f64 {
        self.median(|load| load.cpu)
    }
}

#[derive(Default)]
struct Found {
    ours: Series,
    postgres: Series,
    etcd: Series,
}

pub fn documents(bench: &Bench) -> Result<()> {
    let folder = bench.folder.join("documents");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("ours.lua"), OURS)?;
    let mut server = Server::start(&bench.exe, &folder.join("server"))?;
    let etcd = Peer::etcd(&folder)?;
    let postgres = Peer::postgres(&folder)?;
    let nginx = Peer::nginx(&folder)?;
    let programs = postgres_programs()?;
    let sql = |name: &str, args: &[&str]| {
        let mut command = Command::new(programs.join(name));
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p"]);
        command.arg(postgres.port.to_string()).args(args);
        command
    };
    let table = "create table r(k text primary key, v text, etag int default 1)";
    done(&mut sql("psql", &["-q", "-c", table]))?;
    fill(&server, &folder, 0, 1_000)?;

    let scripts = bench.peers.bench.join("controlplane");
    let ask_etcd = |mode: &str, connections: u32| {
        let mut wrk = wrk(connections, etcd.port, Some(&scripts.join("etcd_put.lua")));
        measured(wrk.env("MODE", mode), || etcd.cpu())
    };
    let ask_postgres = |script: &str, connections: u32| -> Result<Load> {
        let script = scripts.join(script).to_string_lossy().into_owned();
        let (connections, seconds) = (connections.to_string(), SECONDS.to_string());
        let arguments = ["-n", "-M", "prepared", "-j", "1"];
        let mut run = sql("pgbench", &arguments);
        run.args([
            "-f",
            &script,
            "-c",
            &connections,
            "-T",
            &seconds,
            "postgres",
        ]);
        pgbench(&done(&mut run)?)
    };
    let (mut put, mut put_alone, mut get) = (Found::default(), Found::default(), Found::default());
    let (mut bare, mut floor) = (Series::default(), Series::default());
    for _ in 0..ROUNDS {
        for (found, connections) in [(&mut put, MANY), (&mut put_alone, 1)] {
            let postgres = ask_postgres("upsert.sql", connections)?;
            found.postgres.0.push(postgres);
            found
                .ours
                .0
                .push(ask(&server, &folder, "put", connections)?);
            found.etcd.0.push(ask_etcd("put", connections)?);
        }
        get.postgres.0.push(ask_postgres("get.sql", MANY)?);
        get.ours.0.push(ask(&server, &folder, "get", MANY)?);
        get.etcd.0.push(ask_etcd("get", MANY)?);
        let mut returns = wrk(MANY, nginx.port, None);
        bare.0.push(measured(&mut returns, || nginx.cpu())?);
        floor.0.push(upserts(&bench.peers)?);
    }
    report(&put, &put_alone, &get, &bare, &floor);
    drop((etcd, postgres, nginx));
    held(&mut server, &folder)
}

fn report(put: &Found, put_alone: &Found, get: &Found, bare: &Series, floor: &Series) {
    let cpu = put.ours.cpu();
    say(
        "C1",
        &format!(
            "{:.0} durable PUTs of 1 KiB per second over {MANY} connections, {cpu:.1} us of CPU each (goal 90)",
            put.ours.rate()
        ),
    );
    let per_second = |goal: &str, of: &str, ours: &Series, theirs: &Series, least: f64| {
        ratio_of(goal, of, ours.rate(), theirs.rate(), "/s", least);
    };
    per_second(
        "C1",
        "of PostgreSQL's upserts",
        &put.ours,
        &put.postgres,
        1.5,
    );
    per_second("C1", "of etcd's JSON gateway", &put.ours, &put.etcd, 3.5);
    per_second(
        "C1",
        "of etcd's JSON gateway over one connection",
        &put_alone.ours,
        &put_alone.etcd,
        1.0,
    );
    per_second(
        "C1",
        "of bare SQLite over one connection, one commit per upsert",
        &put_alone.ours,
        floor,
        0.9,
    );
    say(
        "C2",
        &format!(
            "{:.0} GETs per second over {MANY} connections, {:.1} us of CPU each",
            get.ours.rate(),
            get.ours.cpu()
        ),
    );
    per_second(
        "C2",
        "of PostgreSQL's selects",
        &get.ours,
        &get.postgres,
        1.2,
    );
    per_second("C2", "of etcd's JSON gateway", &get.ours, &get.etcd, 10.0);
    say(
        "C2",
        &format!(
            "{:.2} of the CPU of nginx's `return 200` ({:.1} us; at most 2 wanted)",
            get.ours.cpu() / bare.cpu(),
            bare.cpu()
        ),
    );
}

/// C3, C6 and a restart: what very many documents cost.
fn held(server: &mut Server, folder: &Path) -> Result<()> {
    fill(server, folder, 1_000, LISTED)?;
    let before = server.cpu()?;
    for _ in 0..PAGES {
        let page = server.ask("GET", &arm("environments"), &Value::Null)?;
        let items = page["value"].as_array().context("a list")?.len();
        ensure!(items == 100 && page["nextLink"].is_string(), "{items}");
    }
    let each = (server.cpu()? - before) * 1e3 / f64::from(PAGES);
    say(
        "C3",
        &format!("{each:.2} ms of CPU for a page of 100 of {LISTED} environments (goal 2)"),
    );
    fill(server, folder, LISTED, HELD)?;
    say(
        "C6",
        &format!("{:.1} MB with {HELD} documents (goal 60)", server.rss()),
    );
    let mut took = Vec::new();
    for _ in 0..STARTS {
        took.push(server.kill_and_start()?);
    }
    let last = format!("environments/e{}/versions/1", HELD - 1);
    server.ask("GET", &arm(&last), &json!(null))?;
    say(
        "C6",
        &format!(
            "ready {:.1} ms after kill -9 with {HELD} documents (goal 300), {:.1} MB then",
            ms(median(&mut took)),
            server.rss()
        ),
    );
    Ok(())
}

/// Writes the documents from `from` up to `to`.
fn fill(server: &Server, folder: &Path, mut from: u64, to: u64) -> Result<()> {
    while from < to {
        let mut wrk = ours(server, folder, MANY);
        wrk.env("MODE", "fill").env("START", from.to_string());
        let load = measured(&mut wrk, || server.cpu())?;
        ensure!(load.requests > 0, "nothing was written");
        // Requests under way at the end may not have been counted, never the other way about.
        from += load.requests;
    }
    Ok(())
}

fn ask(server: &Server, folder: &Path, mode: &str, connections: u32) -> Result<Load> {
    let mut wrk = ours(server, folder, connections);
    measured(wrk.env("MODE", mode), || server.cpu())
}

fn ours(server: &Server, folder: &Path, connections: u32) -> Command {
    let mut wrk = wrk(connections, server.port, Some(&folder.join("ours.lua")));
    wrk.env("BASE", arm("")).env("TOKEN", &server.token);
    wrk
}

fn wrk(connections: u32, port: u16, script: Option<&Path>) -> Command {
    let mut wrk = Command::new("wrk");
    wrk.args(["-t1", &format!("-c{connections}"), &format!("-d{SECONDS}s")]);
    if let Some(script) = script {
        wrk.arg("-s").arg(script);
    }
    wrk.arg(format!("http://127.0.0.1:{port}"));
    wrk
}

fn measured(wrk: &mut Command, cpu: impl Fn() -> Result<f64>) -> Result<Load> {
    let before = cpu()?;
    let text = done(wrk)?;
    let spent = cpu()? - before;
    ensure!(!text.contains("Non-2xx"), "{wrk:?}: {text}");
    let line = |of: &str| text.lines().find(|line| line.contains(of));
    let words = |of: &str| line(of).map(|line| line.split_whitespace());
    let requests = words(" requests in ").and_then(|mut w| w.next()?.parse().ok());
    let rate = words("Requests/sec:").and_then(|w| w.last()?.parse().ok());
    let (Some(requests), Some(per_second)) = (requests, rate) else {
        anyhow::bail!("wrk says nothing of its requests: {text}");
    };
    Ok(Load {
        per_second,
        cpu: spent * 1e6 / requests as f64,
        requests,
    })
}

fn pgbench(text: &str) -> Result<Load> {
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = rate.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    Ok(Load {
        per_second: rate.with_context(|| format!("pgbench says no tps: {text}"))?,
        ..Load::default()
    })
}

fn upserts(peers: &Peers) -> Result<Load> {
    let said = peers.floor("floors", &["sqlite", FLOOR])?;
    Ok(Load {
        per_second: said["per_s"].as_f64().context("per_s")?,
        ..Load::default()
    })
}
