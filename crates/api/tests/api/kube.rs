//! Instance types over their Kubernetes paths: what clients other than kubectl see too.

use crate::server::*;
use axum::body::Body;
use http_body_util::BodyExt;
use model::{Bytes, ClusterKey, ClusterSeen, Labels, Machine, MilliCpu, Resources};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use tower::ServiceExt;

const R: &str = "/kube/apis/amlarc.azureml.com/v1alpha1/instancetypes";

fn object(name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "amlarc.azureml.com/v1alpha1", "kind": "InstanceType", "metadata": {"name": name},
        "spec": {"resources": {
            "requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"cpu": cpu, "memory": "1Gi"}}},
    })
}

async fn make(s: &Server, name: &str) -> Value {
    s.ask("POST", R, object(name, "1")).await.is(201).json()
}

async fn merge(s: &Server, name: &str, patch: Value) -> Got {
    let kind = [("content-type", "application/merge-patch+json")];
    s.ask_with("PATCH", &format!("{R}/{name}"), &kind, patch)
        .await
}

async fn apply(s: &Server, name: &str, query: &str, object: Value) -> Got {
    let kind = [("content-type", "application/apply-patch+yaml")];
    s.ask_with("PATCH", &format!("{R}/{name}?{query}"), &kind, object)
        .await
}

fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap();
    text.parse().unwrap()
}

#[tokio::test]
async fn generation_follows_the_spec_and_a_write_of_nothing_writes_nothing() {
    let s = server();
    let made = make(&s, "a").await;
    assert_eq!(made["metadata"]["generation"], 1);
    let labelled = merge(&s, "a", json!({"metadata": {"labels": {"x": "y"}}}))
        .await
        .is(200)
        .json();
    assert_eq!(labelled["metadata"]["generation"], 1);
    assert_eq!(labelled["metadata"]["uid"], made["metadata"]["uid"]);
    assert!(revision(&labelled) > revision(&made));
    let same = merge(&s, "a", json!({"metadata": {"labels": {"x": "y"}}}))
        .await
        .is(200)
        .json();
    assert_eq!(same, labelled);
    let limits = json!({"spec": {"resources": {"limits": {"cpu": "2"}}}});
    let dry = s
        .ask_with(
            "PATCH",
            &format!("{R}/a?dryRun=All"),
            &[("content-type", "application/merge-patch+json")],
            limits.clone(),
        )
        .await
        .is(200)
        .json();
    assert_eq!(dry["metadata"]["generation"], 2);
    assert_eq!(
        s.get(&format!("{R}/a")).await.json(),
        labelled,
        "a dry run leaves nothing"
    );
    assert_eq!(
        merge(&s, "a", limits).await.json()["metadata"]["generation"],
        2
    );
    s.get(&format!("{R}/A")).await.is(404);
}

#[tokio::test]
async fn who_writes_what_was_read_before_is_told_so() {
    let s = server();
    let mut old = make(&s, "a").await;
    merge(&s, "a", json!({"metadata": {"labels": {"x": "y"}}}))
        .await
        .is(200);
    old["spec"]["resources"]["limits"]["cpu"] = "3".into();
    let got = s
        .ask("PUT", &format!("{R}/a"), old.clone())
        .await
        .is(409)
        .json();
    assert_eq!(
        (&got["reason"], &got["details"]["kind"]),
        (&json!("Conflict"), &json!("instancetypes"))
    );
    old["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    s.ask("PUT", &format!("{R}/a"), old).await.is(422);
    let got = s.ask("POST", R, object("a", "1")).await.is(409).json();
    assert_eq!(got["reason"], "AlreadyExists");
    let wrong = json!({"preconditions": {"resourceVersion": "1"}});
    s.ask("DELETE", &format!("{R}/a"), wrong).await.is(409);
    let got = s
        .ask("DELETE", &format!("{R}/a"), Value::Null)
        .await
        .is(200)
        .json();
    assert_eq!(got["status"], "Success");
    s.ask("DELETE", &format!("{R}/a"), Value::Null)
        .await
        .is(404);
}

/// Planted: with `Condition::Any` in `settle` labels are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn writers_at_once_all_succeed_and_none_is_lost() {
    let s = Arc::new(server());
    make(&s, "a").await;
    let writer = |w: usize| {
        let s = s.clone();
        tokio::spawn(async move {
            for n in 0..40 {
                let label = json!({"metadata": {"labels": {format!("w{w}-{n}"): "x"}}});
                merge(&s, "a", label).await.is(200);
            }
        })
    };
    for done in futures_util::future::join_all((0..4).map(writer)).await {
        done.unwrap();
    }
    let labels = s.get(&format!("{R}/a")).await.json()["metadata"]["labels"].clone();
    assert_eq!(labels.as_object().unwrap().len(), 160, "{labels}");
}

#[tokio::test]
async fn unknown_fields_are_refused_told_or_dropped_as_asked() {
    let s = server();
    let mut odd = object("a", "1");
    odd["spec"]["tolerations"] = json!([]);
    let got = s
        .ask("POST", &format!("{R}?fieldValidation=Strict"), odd.clone())
        .await
        .is(400)
        .json();
    assert!(
        got["message"]
            .as_str()
            .unwrap()
            .contains("unknown field \"spec.tolerations\""),
        "{got}"
    );
    let got = s
        .ask("POST", &format!("{R}?dryRun=All"), odd.clone())
        .await
        .is(201);
    assert!(
        got.header("warning").starts_with("299 "),
        "{:?}",
        got.headers
    );
    let got = s
        .ask("POST", &format!("{R}?fieldValidation=Ignore"), odd)
        .await
        .is(201);
    assert_eq!(got.header("warning"), "");
    assert_eq!(got.json()["spec"].get("tolerations"), None);
    let twice = r#"{"apiVersion":"amlarc.azureml.com/v1alpha1","kind":"InstanceType","metadata":{"name":"b","name":"b"},"spec":{}}"#;
    let token = format!("Bearer {TOKEN}");
    let got = s
        .call(
            "POST",
            &format!("{R}?fieldValidation=Strict"),
            &[("authorization", &token)],
            twice,
        )
        .await
        .is(400)
        .json();
    assert!(
        got["message"]
            .as_str()
            .unwrap()
            .contains("duplicate field \"metadata.name\""),
        "{got}"
    );
    let finalizers = json!({"metadata": {"finalizers": ["x/y"]}});
    merge(&s, "a", finalizers).await.is(422);
}

#[tokio::test]
async fn managers_conflict_until_forced_and_yaml_is_taken() {
    let s = server();
    apply(&s, "a", "fieldManager=one", object("a", "1"))
        .await
        .is(201);
    let got = apply(&s, "a", "fieldManager=two", object("a", "2"))
        .await
        .is(409)
        .json();
    let causes = got["details"]["causes"].as_array().unwrap();
    assert_eq!(causes.len(), 2, "{got}");
    assert_eq!(causes[0]["reason"], "FieldManagerConflict");
    let forced = apply(&s, "a", "fieldManager=two&force=true", object("a", "2"))
        .await
        .is(200)
        .json();
    let again = apply(&s, "a", "fieldManager=two", object("a", "2"))
        .await
        .is(200)
        .json();
    assert_eq!(forced, again);
    apply(&s, "a", "", object("a", "2")).await.is(422);
    let token = format!("Bearer {TOKEN}");
    let yaml = "apiVersion: amlarc.azureml.com/v1alpha1\nkind: InstanceType\nmetadata: {name: b}\nspec:\n  resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, memory: 1Gi}}\n";
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/apply-patch+yaml"),
    ];
    let got = s
        .call("PATCH", &format!("{R}/b?fieldManager=m"), &headers, yaml)
        .await
        .is(201)
        .json();
    assert_eq!(got["spec"]["resources"]["limits"]["cpu"], 1);
    let strategic = [("content-type", "application/strategic-merge-patch+json")];
    s.ask_with("PATCH", &format!("{R}/b"), &strategic, json!({}))
        .await
        .is(415);
}

#[tokio::test]
async fn a_name_is_made_when_a_beginning_is_given() {
    let s = server();
    let mut nameless = object("x", "1");
    nameless["metadata"] = json!({"generateName": "big-"});
    let made = s.ask("POST", R, nameless).await.is(201).json();
    let name = made["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("big-") && name.len() == 9, "{name}");
    s.get(&format!("{R}/{name}")).await.is(200);
}

#[tokio::test]
async fn pages_of_a_list_are_of_one_moment() {
    let s = server();
    for name in ["a", "b", "c"] {
        make(&s, name).await;
    }
    let first = s.get(&format!("{R}?limit=1")).await.is(200).json();
    assert_eq!(first["metadata"]["remainingItemCount"], 2);
    make(&s, "bb").await;
    let token = first["metadata"]["continue"]
        .as_str()
        .unwrap()
        .replace('=', "%3D");
    let second = s
        .get(&format!("{R}?limit=5&continue={token}"))
        .await
        .is(200)
        .json();
    let names: Vec<&Value> = second["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| &i["metadata"]["name"])
        .collect();
    assert_eq!(names, ["b", "c"], "bb came later");
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let old = "eyJydiI6MSwiYWZ0ZXIiOiJhIn0%3D"; // {"rv":1,"after":"a"}
    let gone = s.get(&format!("{R}?continue={old}")).await.is(410).json();
    assert_eq!(gone["reason"], "Expired");
    let rest = gone["metadata"]["continue"]
        .as_str()
        .unwrap()
        .replace('=', "%3D");
    let rest = s.get(&format!("{R}?continue={rest}")).await.is(200).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 3);
    s.get(&format!("{R}?continue=x")).await.is(400);
    s.get(&format!("{R}?limit=x")).await.is(400);
    let now = rest["metadata"]["resourceVersion"].as_str().unwrap();
    s.get(&format!(
        "{R}?resourceVersion={now}&resourceVersionMatch=Exact"
    ))
    .await
    .is(200);
    s.get(&format!("{R}?resourceVersion=1&resourceVersionMatch=Exact"))
        .await
        .is(410);
    s.get(&format!(
        "{R}?resourceVersion=99&resourceVersionMatch=NotOlderThan"
    ))
    .await
    .is(504);
    s.get(&format!("{R}?resourceVersionMatch=Exact"))
        .await
        .is(422);
}

/// A watch, read line by line.
struct Watch {
    body: Body,
    read: Vec<u8>,
}

impl Watch {
    async fn of(s: &Server, query: &str) -> Watch {
        let request = axum::http::Request::get(format!("{R}?watch=true&{query}"))
            .header("host", "zaffre.test")
            .header("authorization", format!("Bearer {TOKEN}"))
            .body(Body::empty())
            .unwrap();
        let response = s.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        Watch {
            body: response.into_body(),
            read: Vec::new(),
        }
    }

    /// Type, name and labels of the next event; none when the watch is over.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let wait = std::time::Duration::from_secs(30);
            let frame = tokio::time::timeout(wait, self.body.frame())
                .await
                .expect("no event came");
            self.read.extend(frame?.unwrap().into_data().unwrap());
        }
    }

    async fn kind(&mut self) -> String {
        let event = self.next().await.expect("the watch is over");
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        format!(
            "{} {}",
            text(&event["type"]),
            text(&event["object"]["metadata"]["name"])
        )
    }
}

#[tokio::test]
async fn a_watch_tells_what_there_is_its_end_and_then_every_change() {
    let s = server();
    make(&s, "a").await;
    let mut watch = Watch::of(
        &s,
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    )
    .await;
    assert_eq!(watch.kind().await, "ADDED a");
    let end = watch.next().await.unwrap();
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    make(&s, "b").await;
    assert_eq!(watch.kind().await, "ADDED b");
    let written = merge(&s, "a", json!({"metadata": {"labels": {"x": "y"}}}))
        .await
        .json();
    let event = watch.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]),
        (&json!("MODIFIED"), &written)
    );
    s.ask("DELETE", &format!("{R}/a"), Value::Null)
        .await
        .is(200);
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert!(revision(&event["object"]) > revision(&written));
    s.control.stop();
    assert_eq!(
        watch.next().await,
        None,
        "a server that stops ends its watches"
    );
}

#[tokio::test]
async fn a_watch_goes_on_where_a_list_ended_and_follows_its_selector() {
    let s = server();
    make(&s, "a").await;
    let list = s.get(R).await.json();
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    make(&s, "b").await;
    let mut labelled = Watch::of(&s, &format!("resourceVersion={from}&labelSelector=x%3Dy")).await;
    let mut named = Watch::of(
        &s,
        &format!("resourceVersion={from}&fieldSelector=metadata.name%3Da"),
    )
    .await;
    for value in [json!("y"), json!("z"), json!("y")] {
        merge(&s, "a", json!({"metadata": {"labels": {"x": value}}}))
            .await
            .is(200);
    }
    s.ask("DELETE", &format!("{R}/a"), Value::Null)
        .await
        .is(200);
    for expected in ["ADDED a", "DELETED a", "ADDED a", "DELETED a"] {
        assert_eq!(labelled.kind().await, expected);
    }
    for expected in ["MODIFIED a", "MODIFIED a", "MODIFIED a", "DELETED a"] {
        assert_eq!(named.kind().await, expected);
    }
    s.get(&format!("{R}?watch=true&resourceVersion=99"))
        .await
        .is(504);
    s.get(&format!("{R}?watch=true&sendInitialEvents=true"))
        .await
        .is(422);
    s.get(&format!("{R}?watch=true&timeoutSeconds=x"))
        .await
        .is(400);
}

#[tokio::test]
async fn a_watch_from_before_what_is_remembered_has_to_list_again() {
    let s = server();
    make(&s, "a").await;
    for n in 0..1030 {
        merge(
            &s,
            "a",
            json!({"metadata": {"labels": {"n": n.to_string()}}}),
        )
        .await
        .is(200);
    }
    let got = s
        .get(&format!("{R}?watch=true&resourceVersion=1"))
        .await
        .is(410)
        .json();
    assert_eq!(got["reason"], "Expired");
}

#[tokio::test]
async fn watches_are_bounded() {
    let s = server();
    let mut open = Vec::new();
    for _ in 0..128 {
        open.push(Watch::of(&s, "").await);
    }
    let got = s.get(&format!("{R}?watch=true")).await.is(429);
    assert_eq!(got.header("retry-after"), "1");
    open.pop();
    Watch::of(&s, "").await;
}

#[tokio::test]
async fn a_type_that_no_machine_can_hold_is_taken_with_a_warning() {
    let s = server();
    let machine = Machine {
        labels: Labels::new(),
        taints: Vec::new(),
        cordoned: false,
        not_ready: None,
        allocatable: Resources {
            cpu: MilliCpu(2000),
            memory: Bytes(4 << 30),
            devices: BTreeMap::new(),
        },
        pods: 110,
        requested: Resources::default(),
        pods_there: 0,
    };
    let cluster = ClusterSeen {
        placed_here: true,
        machines: BTreeMap::from([("local".into(), machine)]),
        ..ClusterSeen::default()
    };
    s.engine.show(ClusterKey::Embedded, cluster);
    let mut turns = s.control.turns();
    let seen = |_: &u64| {
        s.control
            .view()
            .clusters_seen
            .contains_key(&ClusterKey::Embedded)
    };
    turns.wait_for(seen).await.unwrap();
    let got = s.ask("POST", R, object("small", "2")).await.is(201);
    assert_eq!(got.header("warning"), "");
    let got = s.ask("POST", R, object("big", "64")).await.is(201);
    assert_eq!(
        got.header("warning"),
        "299 zaffre \"instance type big runs nowhere yet: largest node has 2 cpu, the type needs 64 (local: cpu: needs 64, 2 allocatable, 0 requested by pods there)\""
    );
}

#[tokio::test]
async fn forms_and_paths_that_are_not_served_are_refused_as_kubernetes_does() {
    let s = server();
    make(&s, "a").await;
    let table = [(
        "accept",
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    )];
    let got = s
        .ask_with("GET", R, &table, Value::Null)
        .await
        .is(200)
        .json();
    assert_eq!(
        (&got["kind"], &got["rows"][0]["cells"][0]),
        (&json!("Table"), &json!("a"))
    );
    let proto = [("accept", "application/vnd.kubernetes.protobuf")];
    s.ask_with("GET", R, &proto, Value::Null).await.is(406);
    for (method, path, status) in [
        ("GET", "/kube", 404),
        ("GET", "/kube/api/v1/pods", 404),
        ("DELETE", R, 405),
        ("GET", "/kubernetes", 404),
    ] {
        let got = s.ask(method, path, Value::Null).await.is(status).json();
        assert_eq!(
            got.get("kind").is_some(),
            path.starts_with("/kube/") || path == "/kube",
            "{got}"
        );
    }
    s.call("GET", "/kube/api/v1/pods", &[], "").await.is(401);
    let crd = "/kube/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let got = s
        .get(&format!("{crd}/instancetypes.amlarc.azureml.com"))
        .await
        .is(200)
        .json();
    assert_eq!(got["status"]["conditions"][1]["type"], "Established");
    s.get(&format!("{crd}/other")).await.is(404);
    s.ask("PUT", &format!("{R}/a"), json!([])).await.is(400);
    s.ask("POST", R, json!("x")).await.is(400);
    let big = json!({"metadata": {"annotations": {"a": "x".repeat(300_000)}}});
    merge(&s, "a", big).await.is(422);
}

#[tokio::test]
async fn what_is_stored_has_no_resource_version() {
    let s = server();
    let made = make(&s, "a").await;
    let key = model::DocKey::instance_type("a");
    let stored = s.control.get(&key).unwrap().unwrap();
    assert!(!stored.json.contains("resourceVersion"));
    assert!(made["metadata"]["resourceVersion"].is_string());
    let Ok(model::Declared::InstanceType(read)) = wire::arm::declared(&stored) else {
        panic!("a restart reads {stored:?} as something else");
    };
    assert_eq!(
        read,
        Arc::clone(
            &s.control
                .view()
                .types
                .records
                .get(&"a".into())
                .unwrap()
                .declared
        )
    );
}
