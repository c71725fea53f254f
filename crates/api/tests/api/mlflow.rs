//! MLflow's contract: runs, experiments, artifacts and the registry, and the credential that a job has.

use crate::server::*;
use serde_json::{Value, json};

fn flow(rest: &str) -> String {
    format!("/mlflow/v2.0{WS}/api/2.0/mlflow/{rest}")
}

fn artifact(path: &str) -> String {
    format!("/mlflow/v2.0{WS}/api/2.0/mlflow-artifacts/artifacts/{path}")
}

impl Server {
    /// As a job asks, with its credential.
    async fn as_job(&self, job: &str, method: &str, path: &str, body: Value) -> Got {
        let credential = format!("Bearer {}", runs().credential(&crate::server::job(job)));
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.call(method, path, &[("authorization", &credential)], body)
            .await
    }

    async fn running_job(&self, name: &str, experiment: &str) {
        let mut body = command_body("c01");
        body["properties"]["experimentName"] = json!(experiment);
        self.ask("PUT", &format!("{WS}/jobs/{name}"), body)
            .await
            .is(201);
        self.running(name).await;
    }

    async fn run(&self, id: &str) -> Value {
        self.get(&flow(&format!("runs/get?run_id={id}")))
            .await
            .is(200)
            .json()["run"]
            .clone()
    }
}

fn pair(pairs: &Value, key: &str) -> Value {
    let mut all = pairs.as_array().unwrap().iter();
    all.find(|p| p["key"] == key)
        .map_or(Value::Null, |p| p["value"].clone())
}

#[tokio::test]
async fn a_job_logs_with_its_own_credential_while_it_goes_on() {
    let s = server();
    s.batch().await;
    s.running_job("j1", "heart").await;
    let batch = json!({
        "run_id": "j1",
        "metrics": [
            {"key": "acc", "value": 0.5, "timestamp": 1000, "step": 0},
            {"key": "acc", "value": 0.75, "timestamp": 2000, "step": 1},
            {"key": "val/loss", "value": "NaN", "timestamp": 2000, "step": 1},
        ],
        "params": [{"key": "lr", "value": "0.1"}],
        "tags": [{"key": "team", "value": "赤"}, {"key": "mlflow.source.name", "value": "train.py"}],
    });
    s.as_job("j1", "POST", &flow("runs/log-batch"), batch.clone())
        .await
        .is(200);
    // A client that lost the answer sends it again.
    s.as_job("j1", "POST", &flow("runs/log-batch"), batch)
        .await
        .is(200);

    let run = s.run("j1").await;
    assert_eq!(run["info"]["status"], "RUNNING");
    assert_eq!(run["info"]["artifact_uri"], "mlflow-artifacts:/runs/j1");
    let data = &run["data"];
    assert_eq!(
        data["metrics"],
        json!([
            {"key": "acc", "value": 0.75, "timestamp": 2000, "step": 1},
            {"key": "val/loss", "value": "NaN", "timestamp": 2000, "step": 1},
        ])
    );
    assert_eq!(pair(&data["params"], "lr"), "0.1");
    assert_eq!(pair(&data["tags"], "team"), "赤");
    let job = s.get(&format!("{WS}/jobs/j1")).await.is(200).json();
    assert_eq!(
        job["properties"]["tags"],
        json!({"k": "v", "team": "赤"}),
        "the user's tags are the job's"
    );

    let changed = json!({"run_id": "j1", "key": "lr", "value": "0.2"});
    let refused = s
        .as_job("j1", "POST", &flow("runs/log-parameter"), changed)
        .await
        .is(400)
        .json();
    assert_eq!(refused["error_code"], "INVALID_PARAMETER_VALUE");
    assert!(
        refused["message"].as_str().unwrap().contains("'0.1'"),
        "{refused}"
    );

    let history = flow("metrics/get-history?run_id=j1&metric_key=acc&max_results=1");
    let page = s.get(&history).await.is(200).json();
    assert_eq!(page["metrics"][0]["value"], 0.5);
    let next = page["next_page_token"].as_str().unwrap();
    let page = s
        .get(&format!("{history}&page_token={next}"))
        .await
        .is(200)
        .json();
    assert_eq!(
        page["metrics"].as_array().unwrap().len(),
        1,
        "what was sent twice is one value"
    );
    assert_eq!(
        (&page["metrics"][0]["value"], &page["next_page_token"]),
        (&json!(0.75), &json!(""))
    );

    // The status of a job is the job's.
    let ended = json!({"run_id": "j1", "status": "FAILED", "end_time": 5});
    s.as_job("j1", "POST", &flow("runs/update"), ended)
        .await
        .is(200);
    assert_eq!(s.run("j1").await["info"]["status"], "RUNNING");
    s.engine.end("j1", 0);
    s.until(&format!("{WS}/jobs/j1"), |j| {
        j["properties"]["status"] == "Completed"
    })
    .await;
    assert_eq!(s.run("j1").await["info"]["status"], "FINISHED");
    let late = json!({"run_id": "j1", "key": "acc", "value": 1.0});
    s.as_job("j1", "POST", &flow("runs/log-metric"), late.clone())
        .await
        .is(401);
    s.ask("POST", &flow("runs/log-metric"), late).await.is(200);

    s.ask("DELETE", &format!("{WS}/jobs/j1"), Value::Null)
        .await
        .is(200);
    let gone = s.get(&flow("runs/get?run_id=j1")).await.is(404).json();
    assert_eq!(gone["error_code"], "RESOURCE_DOES_NOT_EXIST");

    // The name is free at once, and a job of it begins with nothing.
    s.ask("PUT", &format!("{WS}/jobs/j1"), command_body("c01"))
        .await
        .is(201);
    s.running("j1").await;
    let run = s.run("j1").await;
    assert_eq!(run["info"]["status"], "RUNNING");
    assert_eq!(run["data"]["metrics"], json!([]));
    assert_eq!(run["data"]["params"], json!([]));
}

#[tokio::test]
async fn the_credential_of_a_run_opens_nothing_else() {
    let s = server();
    s.batch().await;
    s.running_job("j1", "heart").await;
    s.ask(
        "PUT",
        &WS.replace("workspaces/default", "workspaces/other"),
        json!({"location": "local", "properties": {}}),
    )
    .await
    .is(201);
    let search = json!({"max_results": 1});
    let there = flow("experiments/search").replace("workspaces/default", "workspaces/other");
    s.as_job("j1", "POST", &flow("experiments/search"), search.clone())
        .await
        .is(200);
    s.as_job("j1", "POST", &there, search.clone()).await.is(401);
    s.as_job("none", "POST", &flow("experiments/search"), search)
        .await
        .is(401);
    for path in [
        format!("{WS}/jobs/j1"),
        WS.to_owned(),
        format!("{WS}/datastores"),
    ] {
        s.as_job("j1", "GET", &path, Value::Null).await.is(401);
    }
    let unknown = s
        .ask("POST", &flow("traces/none"), json!({}))
        .await
        .is(404)
        .json();
    assert_eq!(unknown["error_code"], "ENDPOINT_NOT_FOUND");
    let said = unknown["message"].as_str().unwrap();
    assert!(
        said.ends_with("not offered here: api/2.0/mlflow/traces/none"),
        "{said}"
    );
    // What a prompt is made with leaves nothing behind.
    let prompt =
        json!({"name": "p", "tags": [{"key": "mlflow.prompt.is_prompt", "value": "true"}]});
    let refused = s
        .ask("POST", &flow("registered-models/create"), prompt)
        .await
        .is(404)
        .json();
    assert_eq!(refused["error_code"], "ENDPOINT_NOT_FOUND");
    s.get(&flow("registered-models/get?name=p")).await.is(404);
    // MLflow 3 says in every search that it wants models and no prompts, or the other way.
    for (sign, some) in [("!=", true), ("=", false)] {
        let filter = format!("tag.`mlflow.prompt.is_prompt` {sign} 'true'");
        let filter = filter
            .replace(' ', "%20")
            .replace('`', "%60")
            .replace('=', "%3D");
        let path = flow(&format!("registered-models/search?filter={filter}"));
        let list = s.get(&path).await.is(200).json();
        let all = list["registered_models"].as_array().map_or(0, Vec::len);
        assert_eq!(all > 0, some, "{sign}: {list}");
    }
    let old = flow("runs/get?run_id=j1").replace("/v2.0/", "/v7.0/");
    assert_eq!(
        s.get(&old).await.is(404).json()["error_code"],
        "ENDPOINT_NOT_FOUND"
    );
}

#[tokio::test]
async fn experiments_are_those_made_and_those_of_jobs() {
    let s = server();
    s.batch().await;
    s.running_job("j1", "心臓").await;
    let made = s
        .ask("POST", &flow("experiments/create"), json!({"name": "Made"}))
        .await
        .is(200)
        .json();
    let again = s
        .ask("POST", &flow("experiments/create"), json!({"name": "made"}))
        .await
        .is(409)
        .json();
    assert_eq!(again["error_code"], "RESOURCE_ALREADY_EXISTS");
    let id = made["experiment_id"].as_str().unwrap();
    let run = |name: &str, start: u64| json!({"experiment_id": id, "run_name": name, "start_time": start, "user_id": "me"});
    let first = s
        .ask("POST", &flow("runs/create"), run("first", 1))
        .await
        .is(200)
        .json()["run"]
        .clone();
    let second = s
        .ask("POST", &flow("runs/create"), run("second", 2))
        .await
        .is(200)
        .json()["run"]
        .clone();
    let id_of = |run: &Value| run["info"]["run_id"].as_str().unwrap().to_owned();
    for (run, value) in [(&first, 0.9), (&second, 0.1)] {
        let body = json!({"run_id": id_of(run), "key": "acc", "value": value});
        s.ask("POST", &flow("runs/log-metric"), body).await.is(200);
    }
    let of_job = s.run("j1").await["info"]["experiment_id"].clone();
    let named = s
        .get(&flow(
            "experiments/get-by-name?experiment_name=%E5%BF%83%E8%87%93",
        ))
        .await
        .is(200)
        .json();
    assert_eq!(named["experiment"]["experiment_id"], of_job);
    let listed = s
        .ask(
            "POST",
            &flow("experiments/search"),
            json!({"filter": "name ILIKE 'm%'"}),
        )
        .await
        .is(200)
        .json();
    assert_eq!(listed["experiments"].as_array().unwrap().len(), 1);

    let search = async |filter: &str, order: &[&str]| {
        let body = json!({"experiment_ids": [id, of_job], "filter": filter, "order_by": order, "max_results": 10});
        let found = s
            .ask("POST", &flow("runs/search"), body)
            .await
            .is(200)
            .json();
        let runs = found["runs"].as_array().unwrap().clone();
        runs.iter()
            .map(|r| r["info"]["run_name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        search("", &["metrics.acc ASC"]).await,
        ["second", "first", "j1"]
    );
    assert_eq!(search("metrics.acc > 0.5", &[]).await, ["first"]);
    assert_eq!(search("attributes.run_name = 'j1'", &[]).await, ["j1"]);
    s.ask(
        "POST",
        &flow("runs/delete"),
        json!({"run_id": id_of(&first)}),
    )
    .await
    .is(200);
    assert_eq!(search("", &["start_time ASC"]).await, ["second", "j1"]);
    let closed = json!({"run_id": id_of(&first), "key": "a", "value": 1});
    s.ask("POST", &flow("runs/log-metric"), closed)
        .await
        .is(400);

    let wrong = json!({"experiment_ids": [id], "filter": "colour = 'red'"});
    s.ask("POST", &flow("runs/search"), wrong).await.is(400);
    let renamed = json!({"experiment_id": id, "new_name": "other"});
    s.ask("POST", &flow("experiments/update"), renamed)
        .await
        .is(400);
}

#[tokio::test]
async fn a_model_of_a_run_becomes_a_model_asset() {
    let s = server();
    s.batch().await;
    s.running_job("j1", "heart").await;
    let credential = format!("Bearer {}", runs().credential(&job("j1")));
    for (name, text) in [
        ("MLmodel", "flavors: {}\n"),
        ("data/模型.pkl", "x"),
        ("empty", ""),
    ] {
        let path = artifact(&format!(
            "runs/j1/model/{}",
            name.replace("模型", "%E6%A8%A1%E5%9E%8B")
        ));
        s.call("PUT", &path, &[("authorization", &credential)], text)
            .await
            .is(200);
    }
    s.call(
        "PUT",
        &artifact("runs/j1/user_logs/std_log.txt"),
        &[("authorization", &credential)],
        "x",
    )
    .await
    .is(400);
    s.call(
        "PUT",
        &artifact("runs/none/x"),
        &[("authorization", &credential)],
        "x",
    )
    .await
    .is(404);
    s.call(
        "PUT",
        &artifact("runs/j1/%2e%2e/x"),
        &[("authorization", &credential)],
        "x",
    )
    .await
    .is(400);
    let list = format!("/mlflow/v2.0{WS}/api/2.0/mlflow-artifacts/artifacts?path=runs/j1/model");
    assert_eq!(
        s.get(&list).await.is(200).json()["files"],
        json!([
            {"path": "MLmodel", "is_dir": false, "file_size": 12},
            {"path": "data", "is_dir": true},
            {"path": "empty", "is_dir": false, "file_size": 0},
        ])
    );
    let below = s
        .get(&flow("artifacts/list?run_id=j1&path=model/data"))
        .await
        .is(200)
        .json();
    assert_eq!(below["files"][0]["path"], "model/data/模型.pkl");

    s.as_job(
        "j1",
        "POST",
        &flow("registered-models/create"),
        json!({"name": "heart"}),
    )
    .await
    .is(200);
    let again = s
        .ask(
            "POST",
            &flow("registered-models/create"),
            json!({"name": "heart"}),
        )
        .await
        .is(409)
        .json();
    assert_eq!(again["error_code"], "RESOURCE_ALREADY_EXISTS");
    let body = json!({"name": "heart", "source": "mlflow-artifacts:/runs/j1/model", "run_id": "j1", "tags": [{"key": "a", "value": "b"}]});
    let made = s
        .as_job("j1", "POST", &flow("model-versions/create"), body)
        .await
        .is(200)
        .json();
    assert_eq!(
        (
            &made["model_version"]["version"],
            &made["model_version"]["status"]
        ),
        (&json!("1"), &json!("READY"))
    );
    let asset = s
        .get(&format!("{WS}/models/heart/versions/1"))
        .await
        .is(200)
        .json();
    let p = &asset["properties"];
    assert_eq!(
        (&p["modelType"], &p["jobName"], &p["tags"]["a"]),
        (&json!("mlflow_model"), &json!("j1"), &json!("b"))
    );
    let uri = p["modelUri"].as_str().unwrap();
    assert!(
        uri.ends_with("/datastores/workspaceartifactstore/paths/ExperimentRun/dcid.j1/model/"),
        "{uri}"
    );

    let got = s
        .get(&flow(
            "model-versions/get-download-uri?name=heart&version=1",
        ))
        .await
        .is(200)
        .json();
    assert_eq!(got["artifact_uri"], "mlflow-artifacts:/models/heart/1");
    assert_eq!(
        s.get(&artifact("models/heart/1/MLmodel"))
            .await
            .is(200)
            .text(),
        "flavors: {}\n"
    );
    s.ask("PUT", &artifact("models/heart/1/MLmodel"), json!({}))
        .await
        .is(400);
    s.ask("DELETE", &artifact("runs/j1"), Value::Null)
        .await
        .is(400);

    let alias = json!({"name": "heart", "alias": "champion", "version": "1"});
    s.ask("POST", &flow("registered-models/alias"), alias)
        .await
        .is(200);
    let champion = s
        .get(&flow("registered-models/alias?name=heart&alias=champion"))
        .await
        .is(200)
        .json();
    assert_eq!(champion["model_version"]["aliases"], json!(["champion"]));
    let found = s
        .get(&flow(
            "model-versions/search?filter=name%3D%27heart%27%20and%20tags.a%3D%27b%27",
        ))
        .await
        .is(200)
        .json();
    assert_eq!(found["model_versions"].as_array().unwrap().len(), 1);
    for (source, says) in [
        ("runs:/j1/none", "has no files"),
        ("/etc/passwd", "is none of"),
        ("models:/other/1", "does not exist"),
    ] {
        let body = json!({"name": "heart", "source": source});
        let refused = s.ask("POST", &flow("model-versions/create"), body).await;
        assert!(
            refused.status >= 400 && refused.text().contains(says),
            "{source}: {}",
            refused.text()
        );
    }
    let gone = json!({"name": "heart"});
    s.ask("DELETE", &flow("registered-models/delete"), gone)
        .await
        .is(200);
    s.get(&format!("{WS}/models/heart/versions/1"))
        .await
        .is(404);
}

#[tokio::test]
async fn a_logged_model_is_registered_from_where_it_lies() {
    let s = server();
    s.batch().await;
    s.running_job("j1", "heart").await;
    let run = s.run("j1").await;
    let body =
        json!({"experiment_id": run["info"]["experiment_id"], "name": "m", "source_run_id": "j1"});
    let made = s
        .as_job("j1", "POST", &flow("logged-models"), body)
        .await
        .is(200)
        .json();
    let id = made["model"]["info"]["model_id"]
        .as_str()
        .unwrap()
        .to_owned();
    s.ask("PUT", &artifact(&format!("logged/{id}/MLmodel")), json!({}))
        .await
        .is(200);
    s.ask("PUT", &artifact("logged/m-none/MLmodel"), json!({}))
        .await
        .is(404);
    let ready = json!({"model_id": id, "status": "LOGGED_MODEL_READY"});
    s.ask("PATCH", &flow(&format!("logged-models/{id}")), ready)
        .await
        .is(200);
    let outputs = json!({"run_id": "j1", "models": [{"model_id": id, "step": 0}]});
    s.ask("POST", &flow("runs/outputs"), outputs).await.is(200);
    assert_eq!(
        s.run("j1").await["outputs"]["model_outputs"][0]["model_id"],
        id.as_str()
    );
    s.ask(
        "POST",
        &flow("registered-models/create"),
        json!({"name": "heart"}),
    )
    .await
    .is(200);
    let body = json!({"name": "heart", "source": format!("models:/{id}"), "model_id": id});
    s.ask("POST", &flow("model-versions/create"), body)
        .await
        .is(200);
    let asset = s
        .get(&format!("{WS}/models/heart/versions/1"))
        .await
        .is(200)
        .json();
    assert_eq!(asset["properties"]["modelType"], "mlflow_model");
}
