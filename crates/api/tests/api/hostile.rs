//! Whatever a client sends, no route answers 500 or above, and nothing panics.

use crate::server::*;
use axum::{body::Body, http::Request};
use serde_json::{Value, json};

/// A small generator; its seed is printed when a case fails.
pub struct Draw(pub u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }
    pub fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

const NAMES: &[&str] = &[
    "default",
    "c01",
    "end",
    "dep",
    "j1",
    "m",
    "1",
    "latest",
    "%00",
    "%0A",
    "..",
    "%2e%2e",
    "a%2Fb",
    "%ff",
    "x%20y",
    "%E5%AD%A6",
    "-",
    "CON",
    "a.b",
    "j1-batchscoring",
    "-batchscoring",
    "zaffre",
    "models",
    "codes",
    "data",
    "components",
    "workspaceblobstore",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "%",
    "~",
    "'\"<>",
];
const QUERIES: &[&str] = &[
    "fieldManager=x&force=true&fieldValidation=Strict",
    "dryRun=All&fieldManager=%00&fieldValidation=Warn",
    "limit=1&continue=e30%3D&labelSelector=((",
    "watch=true&resourceVersion=-1&fieldSelector=metadata.name%3D%3D%3D",
    "",
    "api-version=2024-01-01",
    "$top=1",
    "$top=-1",
    "$top=99999999999999999999",
    "$skipToken=x",
    "$skipToken=0:a",
    "$skip=%F0%9F",
    "listViewType=All",
    "listViewType=",
    "tag==",
    "tag=a=b",
    "hash=%00",
    "hash=a",
    "$orderBy=",
    "count=0",
    "maxresults=0",
    "restype=container&comp=list",
    "restype=container&comp=list&marker=AAAA",
    "restype=container&comp=list&prefix=..%2F&delimiter=",
    "restype=container&comp=list&delimiter=%00&prefix=a",
    "comp=block&blockid=",
    "comp=block&blockid=YQ==",
    "comp=blocklist",
    "comp=metadata",
    "comp=x",
    "restype=x",
    "metricnames=Preempted%20Nodes&timespan=0/0",
    "metricnames=,,,&interval=P0D",
    "metricnames=Preempted%20Nodes&interval=PT1M&timespan=0001-01-01/9999-12-31",
    "metricnames=Idle%20Nodes&aggregation=%00&$filter=x",
    "metricnames=Idle%20Nodes&timespan=PT999999999H",
    "sig=x",
    "sv=2024-11-04&se=2099-01-01&sr=c&sp=r&sig=AA==",
    "path=%00&continuationToken=..",
    "run_id=j1&metric_key=a&path=runs%2Fj1&name=m&version=1&alias=a",
    "experiment_id=0&experiment_name=Default&filter=name%3D%27m%27&order_by=name%20DESC&max_results=-1",
    "run_id=%00&path=..&filter=a%3D&page_token=x&name=..",
    "&&&=&=&",
    "%",
];
const VALUES: &[&str] = &[
    "null",
    "true",
    "-1",
    "0",
    "1e308",
    "99999999999999999999999",
    "\"\"",
    "\"x\"",
    "\"\\u0000\"",
    "[]",
    "{}",
    "[[]]",
    "{\"a\":{}}",
    "\"azureml:m:1\"",
    "\"azureml://datastores/workspaceblobstore/paths/..\"",
    "\"${{inputs.x}}\"",
    "\"PT0S\"",
    "\"P99999999999D\"",
    "\"../../etc/passwd\"",
    "1.5",
    "\"all\"",
    "4294967296",
];

/// Bodies that are right, to be broken.
fn bodies() -> Vec<Value> {
    vec![
        cluster_body(0, 1),
        deployment_body("c01"),
        command_body("c01"),
        invoke_body("azureml://datastores/workspaceblobstore/paths/in/"),
        json!({"properties": {"modelUri": "azureml://datastores/workspaceblobstore/paths/a", "tags": {"a": "b"}}}),
        json!({"properties": {"image": "x", "condaFile": "dependencies: []"}}),
        json!({"properties": {"authMode": "aadToken", "defaults": {"deploymentName": "dep"}}}),
        json!({"value": [{"id": format!("{WS}/quotas/TotalLowPriorityCores"), "limit": 8}]}),
        json!({"nodes": 1, "notice": "PT1S", "holdCapacity": "PT1S"}),
        json!({"runId": "j1", "selectRunMetadata": true}),
        json!({"values": ["azureml://locations/local/workspaces/default/data/azureml_j1_output_data_score/versions/1"]}),
        json!({"displayName": "x", "tags": {"a": "b"}, "hidden": true, "properties": {"a": "b"}}),
        json!({"tags": {}, "location": "local"}),
        json!({"run_id": "j1", "metrics": [{"key": "a", "value": 0.5, "timestamp": 1, "step": 1}], "params": [{"key": "p", "value": "1"}], "tags": [{"key": "t", "value": "v"}]}),
        json!({"run_id": "j1", "key": "a", "value": 0.5, "timestamp": 1, "step": 1, "status": "FINISHED", "model_json": "{}"}),
        json!({"experiment_id": "0", "name": "m", "new_name": "n", "experiment_ids": ["0"], "filter": "metrics.a > 0 and tags.t LIKE '%'", "order_by": ["metrics.a DESC"], "max_results": 5, "page_token": "1"}),
        json!({"name": "m", "version": "1", "source": "mlflow-artifacts:/runs/j1/x", "alias": "a", "stage": "Production", "archive_existing_versions": true}),
        json!({"run_id": "j1", "datasets": [{"dataset": {}}], "models": [{"model_id": "m-1"}]}),
    ]
}

/// Replaces one value somewhere inside.
pub fn broken(value: &Value, draw: &mut Draw) -> Value {
    match value {
        Value::Object(map) if !map.is_empty() && draw.below(5) > 0 => {
            let at = draw.below(map.len());
            map.iter()
                .enumerate()
                .map(|(i, (k, v))| (k.clone(), if i == at { broken(v, draw) } else { v.clone() }))
                .collect::<serde_json::Map<_, _>>()
                .into()
        }
        Value::Array(list) if !list.is_empty() && draw.below(5) > 0 => {
            let at = draw.below(list.len());
            list.iter()
                .enumerate()
                .map(|(i, v)| if i == at { broken(v, draw) } else { v.clone() })
                .collect()
        }
        _ => serde_json::from_str(draw.of(VALUES)).unwrap_or(Value::Null),
    }
}

fn body(draw: &mut Draw, good: &[Value]) -> Vec<u8> {
    match draw.below(8) {
        0 => Vec::new(),
        1 => (0..draw.below(64))
            .map(|_| u8::try_from(draw.below(256)).unwrap())
            .collect(),
        2 => "[".repeat(100_000).into_bytes(),
        3 => draw.of(VALUES).as_bytes().to_vec(),
        4 => {
            let text = draw.of(good).to_string();
            let end = draw.below(text.len());
            text.as_bytes()[..end].to_vec()
        }
        5 => draw.of(good).to_string().into_bytes(),
        _ => {
            let once = broken(&draw.of(good), draw);
            broken(&once, draw).to_string().into_bytes()
        }
    }
}

fn path(template: &str, draw: &mut Draw) -> String {
    template
        .split('/')
        .map(|part| match part {
            "{s}" if draw.below(4) > 0 => SUB.to_owned(),
            "{g}" | "{w}" if draw.below(4) > 0 => "default".to_owned(),
            "{account}" if draw.below(4) > 0 => "zaffre".to_owned(),
            "{v}" if draw.below(4) > 0 => "v2.0".to_owned(),
            "{*path}" if draw.below(4) > 0 => {
                let owner = draw.of(&["runs/j1", "logged/m-1", "models/m/1"]);
                format!("{owner}/{}", draw.of(NAMES))
            }
            "{*rest}" => {
                let container = wire::places::Places::of(job("j").workspace())
                    .blobs()
                    .to_string();
                let first = if draw.below(3) > 0 {
                    container
                } else {
                    draw.of(NAMES).to_owned()
                };
                format!("{first}/{}/{}", draw.of(NAMES), draw.of(NAMES))
            }
            part if part.starts_with('{') => draw.of(NAMES).to_owned(),
            part => part.to_owned(),
        })
        .collect::<Vec<_>>()
        .join("/")
}

const HEADERS: &[(&str, &str)] = &[
    ("if-match", "*"),
    ("if-match", "\"1\""),
    ("if-match", "x"),
    ("if-none-match", "*"),
    ("if-none-match", "\"1\""),
    ("range", "bytes=5-1"),
    ("range", "bytes=-"),
    ("x-ms-range", "bytes=0-18446744073709551616"),
    ("content-md5", "x"),
    ("x-ms-meta-", "x"),
    ("x-ms-meta-a", "b"),
    ("azureml-model-deployment", "\u{1}x"),
    ("azureml-model-deployment", "nope"),
    ("repeatability_request-id", "r1"),
    ("repeatability_request-id", ""),
    ("content-type", "nonsense"),
    ("content-type", "application/merge-patch+json"),
    ("content-type", "application/json-patch+json"),
    ("content-type", "application/apply-patch+yaml"),
    ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io"),
    ("accept", "nonsense"),
    ("x-ms-blob-type", "AppendBlob"),
];

#[tokio::test]
async fn no_input_is_answered_with_a_server_error() {
    let s = server();
    s.batch().await;
    s.ask("PUT", &format!("{WS}/jobs/j1"), command_body("c01"))
        .await
        .is(201);
    let good = bodies();
    let rounds = 60;
    for (n, route) in api::ROUTES.iter().enumerate() {
        for round in 0..rounds {
            let seed = (n as u64 + 1) * 1_000_003 + round + 1;
            let mut draw = Draw(seed);
            let mut uri = path(route.template, &mut draw);
            uri.push('?');
            uri.push_str(draw.of(QUERIES));
            let mut request = Request::builder()
                .method(route.method.clone())
                .uri(&uri)
                .header("authorization", format!("Bearer {TOKEN}"));
            for _ in 0..draw.below(3) {
                let (name, value) = draw.of(HEADERS);
                request = request.header(name, value);
            }
            let bytes = body(&mut draw, &good);
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
            // Not every text is a URI or a header; a client cannot send those over HTTP either.
            let Ok(request) = request.body(Body::from(bytes)) else {
                continue;
            };
            let got = s.send(request).await;
            assert!(
                got.status < 500,
                "seed {seed}: {} {uri}\n{shown}\n→ {} {}",
                route.method,
                got.status,
                got.text()
            );
            if got.status >= 400 && route.guard == api::Guard::Kube {
                assert_eq!(
                    got.json()["kind"],
                    "Status",
                    "seed {seed}: {} {uri}",
                    route.method
                );
            } else if got.status >= 400 && route.guard == api::Guard::Run {
                // A path that no route has is answered as a route of ARM is.
                let told = got.json();
                assert!(
                    told["error_code"].is_string() || told["error"]["code"].is_string(),
                    "seed {seed}: {} {uri} → {told}",
                    route.method
                );
            } else if got.status >= 400
                && !matches!(route.guard, api::Guard::Blob | api::Guard::Own)
            {
                assert!(
                    !got.code().is_empty(),
                    "seed {seed}: {} {uri} → {}",
                    route.method,
                    got.text()
                );
            }
        }
    }
    // and it still works
    s.cluster("after", 0, 1).await.is(201);
}
