//! What an answer costs without a network: the router over the real loop and memory adapters (performance C1 to C4).
//!
//! `cargo bench -p api`

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::Value;
use server::*;
use std::hint::black_box;

#[expect(dead_code, reason = "the tests use all of it, this program a part")]
#[path = "../tests/api/server.rs"]
mod server;

fn routes(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let s = runtime.block_on(async {
        let s = server();
        s.batch().await;
        s.ask("PUT", &format!("{WS}/jobs/j1"), command_body("c01"))
            .await;
        for i in 0..1000 {
            let path = format!("{WS}/environments/e{i}/versions/1");
            let body = serde_json::json!({"properties": {"image": "library/python:latest"}});
            s.ask("PUT", &path, body).await;
        }
        s
    });
    let operation = runtime.block_on(async {
        let canceled = s
            .ask("POST", &format!("{WS}/jobs/j1/cancel"), Value::Null)
            .await;
        let url = canceled.header("azure-asyncoperation").to_owned();
        url.trim_start_matches("https://zaffre.test:8443")
            .to_owned()
    });
    let gets = [
        (
            "refused without a token",
            format!("{WS}/computes/c01"),
            false,
        ),
        ("get a cluster", format!("{WS}/computes/c01"), true),
        ("get a job", format!("{WS}/jobs/j1"), true),
        (
            "get a version",
            format!("{WS}/environments/e1/versions/1"),
            true,
        ),
        ("get an operation", operation, true),
        (
            "list 100 of 1000 containers",
            format!("{WS}/environments"),
            true,
        ),
    ];
    for (name, path, token) in gets {
        c.bench_function(name, |b| {
            b.iter(|| {
                runtime.block_on(async {
                    let got = if token {
                        s.get(&path).await
                    } else {
                        s.call("GET", &path, &[], String::new()).await
                    };
                    black_box(got.bytes.len())
                })
            });
        });
    }
    let path = format!("{WS}/computes/c02");
    c.bench_function("put a cluster", |b| {
        b.iter(|| runtime.block_on(async { s.ask("PUT", &path, cluster_body(0, 1)).await.status }));
    });
}

criterion_group!(benches, routes);
criterion_main!(benches);
