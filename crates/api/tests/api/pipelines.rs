//! Pipelines, sweeps, components, and what their jobs report.

use crate::server::*;
use model::{JobId, Workspace};
use serde_json::{Value, json};

const MLFLOW: &str = "/mlflow/v2.0/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/default/providers/Microsoft.MachineLearningServices/workspaces/default/api/2.0/mlflow";

async fn ready() -> Server {
    let s = server();
    s.batch().await;
    let environment = format!("{WS}/environments/e/versions/1");
    s.ask(
        "PUT",
        &environment,
        json!({"properties": {"image": "python:3.12"}}),
    )
    .await;
    for (name, command, inputs) in [
        ("make", "make ${{outputs.d}}", json!({})),
        (
            "use",
            "use ${{inputs.d}} ${{outputs.d}}",
            json!({"d": {"type": "uri_folder"}}),
        ),
    ] {
        let spec = json!({"name": name, "version": "1", "type": "command", "command": command, "environment": "azureml:e:1",
            "inputs": inputs, "outputs": {"d": {"type": "uri_folder"}}});
        let path = format!("{WS}/components/{name}/versions/1");
        s.ask("PUT", &path, json!({"properties": {"componentSpec": spec}}))
            .await
            .is(201);
    }
    s
}

fn pipeline(rerun: bool) -> Value {
    json!({"properties": {"jobType": "Pipeline", "computeId": "azureml:c01",
        "outputs": {"result": {"jobOutputType": "uri_folder"}},
        "settings": {"force_rerun": rerun},
        "jobs": {
            "a": {"type": "command", "componentId": "azureml:make:1"},
            "b": {"type": "command", "componentId": "azureml:use:1", "inputs": {"d": {"value": "${{parent.jobs.a.outputs.d}}"}},
                "outputs": {"d": {"value": "${{parent.outputs.result}}"}}}}}})
}

fn sweep() -> Value {
    json!({"properties": {"jobType": "Sweep", "computeId": "azureml:c01",
        "searchSpace": {"x": ["choice", [[1, 2]]]}, "samplingAlgorithm": {"samplingAlgorithmType": "Grid"},
        "limits": {"maxTotalTrials": 2, "maxConcurrentTrials": 1}, "objective": {"goal": "minimize", "primaryMetric": "loss"},
        "outputs": {"o": {"jobOutputType": "uri_folder"}},
        "trial": {"command": "x ${{search_space.x}} ${{outputs.o}}", "environmentId": "azureml:e:1"}}})
}

async fn children(s: &Server, job: &str) -> Vec<Value> {
    let path = format!("/history/v1.0{WS}/runs/{job}/children");
    let body = s.get(&path).await.is(200).json();
    body["value"].as_array().unwrap().clone()
}

async fn ended(s: &Server, job: &str) -> Value {
    let path = format!("{WS}/jobs/{job}");
    s.until(&path, |j| j["properties"]["status"] == "Completed")
        .await
}

#[tokio::test]
async fn a_pipeline_runs_its_steps_in_turn_and_reuses_them_later() {
    let s = ready().await;
    let path = format!("{WS}/jobs/p");
    s.ask("PUT", &path, pipeline(false)).await.is(201);
    s.running("p_a").await;
    assert_eq!(children(&s, "p").await.len(), 1, "b waits for a");
    let refused = s.ask("DELETE", &path, Value::Null).await.is(409);
    assert!(refused.message().contains("has not ended"));
    s.engine.end("p_a", 0);
    s.running("p_b").await;
    s.engine.end("p_b", 0);
    let job = ended(&s, "p").await;
    let uri = job["properties"]["outputs"]["result"]["uri"]
        .as_str()
        .unwrap();
    assert!(uri.ends_with("/azureml/p/result/"), "{uri}");
    let steps = children(&s, "p").await;
    let shown: Vec<_> = steps
        .iter()
        .map(|c| (&c["displayName"], &c["parentRunId"], &c["status"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&json!("a"), &json!("p"), &json!("Completed")),
            (&json!("b"), &json!("p"), &json!("Completed"))
        ]
    );
    let listed = s.get(&format!("{WS}/jobs")).await.is(200).json();
    assert_eq!(
        listed["value"].as_array().unwrap().len(),
        1,
        "steps are listed by their pipeline"
    );

    // The same again runs nothing, and its output is where the first left it.
    s.ask("PUT", &format!("{WS}/jobs/q"), pipeline(false))
        .await
        .is(201);
    let job = ended(&s, "q").await;
    assert_eq!(job["properties"]["outputs"]["result"]["uri"], uri);
    let steps = children(&s, "q").await;
    assert_eq!(steps[1]["properties"]["zaffre.reused_from"], "p_b");
    // A job may take its input from there, by either name.
    let mut command = command_body("c01");
    command["properties"]["inputs"] =
        json!({"d": {"jobInputType": "uri_folder", "uri": "azureml://jobs/q/outputs/result"}});
    s.ask("PUT", &format!("{WS}/jobs/reader"), command)
        .await
        .is(201);
    let run = s.control.view().runs.get(&id("reader")).unwrap().clone();
    let input = format!("{:?}", run.spec.task.inputs["d"]);
    assert!(input.contains("/azureml/p/result"), "{input}");

    // Forced, it runs; and deleting it deletes its steps.
    s.ask("PUT", &format!("{WS}/jobs/r"), pipeline(true))
        .await
        .is(201);
    s.running("r_a").await;
    s.ask("POST", &format!("{WS}/jobs/r/cancel"), Value::Null)
        .await;
    s.until(&format!("{WS}/jobs/r"), |j| {
        j["properties"]["status"] == "Canceled"
    })
    .await;
    s.ask("DELETE", &format!("{WS}/jobs/r"), Value::Null)
        .await
        .is(200);
    s.get(&format!("{WS}/jobs/r_a")).await.is(404);
}

#[tokio::test]
async fn a_name_that_a_step_would_have_must_be_free() {
    let s = ready().await;
    s.ask("PUT", &format!("{WS}/jobs/p_a"), command_body("c01"))
        .await
        .is(201);
    let refused = s
        .ask("PUT", &format!("{WS}/jobs/p"), pipeline(false))
        .await
        .is(409);
    assert!(
        refused.message().contains("a part named"),
        "{}",
        refused.message()
    );
}

fn id(job: &str) -> JobId {
    JobId::new(&Workspace::new(SUB, "default", "default"), job)
}

fn credential(job: &str) -> String {
    format!("Bearer {}", api::RunKey::new(RUNS).credential(&id(job)))
}

#[tokio::test]
async fn a_trial_reports_with_its_own_credential_and_the_best_is_found() {
    let s = ready().await;
    s.ask("PUT", &format!("{WS}/jobs/s"), sweep()).await.is(201);
    s.running("s_0").await;
    let report = |run: &str, value: Value| {
        json!({"run_id": run, "key": "loss", "value": value, "timestamp": 5, "step": 1}).to_string()
    };
    let log = format!("{MLFLOW}/runs/log-metric");
    for (who, run, status) in [
        ("s_0", "s_0", 200),
        ("s_1", "s_0", 401),
        ("s_0", "s", 401),
        ("gone", "gone", 401),
    ] {
        let token = credential(who);
        let headers = [("authorization", token.as_str())];
        s.call("POST", &log, &headers, report(run, json!(0.5)))
            .await
            .is(status);
    }
    let own = credential("s_0");
    let own = [("authorization", own.as_str())];
    s.call("POST", &log, &own, report("s_0", json!("NaN")))
        .await
        .is(200);
    s.call("POST", &log, &own, report("s_0", json!("x")))
        .await
        .is(400);
    let batch = json!({"run_id": "s_0", "metrics": [{"key": "other", "value": 3}], "params": [{"key": "lr", "value": "0.1"}]});
    s.call(
        "POST",
        &format!("{MLFLOW}/runs/log-batch"),
        &own,
        batch.to_string(),
    )
    .await
    .is(200);
    let got = s
        .call("GET", &format!("{MLFLOW}/runs/get?run_id=s_0"), &own, "")
        .await
        .is(200)
        .json();
    let run = &got["run"];
    assert_eq!(
        run["data"]["params"],
        json!([{"key": "lr", "value": "0.1"}])
    );
    assert_eq!(run["info"]["status"], "RUNNING");
    let history = s
        .get(&format!(
            "{MLFLOW}/metrics/get-history?run_id=s_0&metric_key=loss"
        ))
        .await
        .is(200)
        .json();
    assert_eq!(history["metrics"].as_array().unwrap().len(), 2);
    // No other route, and nothing once the run has ended.
    s.call("GET", &format!("{WS}/jobs"), &own, "").await.is(401);
    s.engine.end("s_0", 0);
    s.running("s_1").await;
    s.call("POST", &log, &own, report("s_0", json!(0)))
        .await
        .is(401);
    let other = credential("s_1");
    let other = [("authorization", other.as_str())];
    s.call("POST", &log, &other, report("s_1", json!(0.25)))
        .await
        .is(200);
    s.engine.end("s_1", 0);
    let job = ended(&s, "s").await;
    assert_eq!(job["properties"]["jobType"], "Sweep");
    assert_eq!(job["properties"]["properties"]["best_child_run_id"], "s_1");
    let uri = job["properties"]["outputs"]["o"]["uri"].as_str().unwrap();
    assert!(uri.ends_with("/azureml/s_1/o/"), "the best trial's: {uri}");
    let trials = children(&s, "s").await;
    assert_eq!(trials[1]["properties"]["hyperparameters"], "{\"x\":\"2\"}");
}

#[tokio::test]
async fn a_sweep_without_its_metric_completes_and_warns() {
    let s = ready().await;
    s.ask("PUT", &format!("{WS}/jobs/s"), sweep()).await.is(201);
    for trial in ["s_0", "s_1"] {
        s.running(trial).await;
        s.engine.end(trial, 0);
    }
    let job = ended(&s, "s").await;
    assert_eq!(
        job["properties"]["properties"].get("best_child_run_id"),
        None
    );
    let details = format!("/history/v1.0{WS}/runs/s/details");
    let warnings = s.get(&details).await.is(200).json()["warnings"].to_string();
    assert!(
        warnings.contains("no trial has reported the metric loss"),
        "{warnings}"
    );
}

#[tokio::test]
async fn a_parallel_step_is_a_step_like_any_other() {
    let s = ready().await;
    let code =
        json!({"properties": {"codeUri": "azureml://datastores/workspaceblobstore/paths/code"}});
    s.ask("PUT", &format!("{WS}/codes/c/versions/1"), code)
        .await;
    let spec = json!({"name": "score", "version": "1", "type": "parallel", "input_data": "${{inputs.rows}}",
        "inputs": {"rows": {"type": "uri_folder"}}, "outputs": {"scores": {"type": "uri_file"}}, "mini_batch_size": "3",
        "task": {"type": "run_function", "code": "azureml:c:1", "entry_script": "score.py", "environment": "azureml:e:1",
            "append_row_to": "${{outputs.scores}}"}});
    let at = format!("{WS}/components/score/versions/1");
    let body = |spec: &Value| json!({"properties": {"componentSpec": spec}});
    s.ask("PUT", &at, body(&spec)).await.is(201);
    let mut wrong = spec.clone();
    wrong["version"] = json!("2");
    wrong["input_data"] = json!("${{inputs.row}}");
    let refused = s
        .ask("PUT", &at.replace("/1", "/2"), body(&wrong))
        .await
        .is(400);
    assert!(
        refused
            .message()
            .contains("names input row, and there is rows"),
        "{}",
        refused.message()
    );

    let mut job = pipeline(true);
    job["properties"]["jobs"]["b"] = json!({"type": "parallel", "componentId": "azureml:score:1",
        "inputs": {"rows": {"value": "${{parent.jobs.a.outputs.d}}"}}, "retry_settings": {"max_retries": 0}});
    s.ask("PUT", &format!("{WS}/jobs/p"), job).await.is(201);
    s.running("p_a").await;
    s.engine.end("p_a", 0);
    // `a` has written nothing here, so there is nothing to list
    let path = format!("{WS}/jobs/p_b");
    let step = s
        .until(&path, |j| j["properties"]["status"] == "Failed")
        .await;
    let p = &step["properties"];
    assert_eq!(
        (&p["jobType"], &p["parentJobName"]),
        (&json!("Command"), &json!("p"))
    );
    assert_eq!(
        p["command"],
        "parallel score.py --mini_batch_size 3 --output_file_name scores"
    );
    assert_eq!(p["parallel"]["retry_settings"], json!({"max_retries": 0}));
    assert!(
        p["outputs"]["scores"]["uri"]
            .as_str()
            .unwrap()
            .ends_with("/azureml/p_b/scores"),
        "{p}"
    );
    assert!(
        children(&s, "p_b").await.is_empty(),
        "it is no batch job, whose step has a name of its own"
    );
    s.get(&format!("{path}-batchscoring")).await.is(404);
    s.get(&format!("/history/v1.0{WS}/runs/p_b/details"))
        .await
        .is(200);
    let again = json!({"properties": p});
    let refused = s
        .ask("PUT", &format!("{WS}/jobs/other"), again)
        .await
        .is(400);
    assert!(
        refused.message().contains("which runs in a pipeline only"),
        "{}",
        refused.message()
    );
    let parent = s
        .until(&format!("{WS}/jobs/p"), |j| {
            j["properties"]["status"] == "Failed"
        })
        .await;
    let why = parent["properties"]["properties"]["zaffre.why"]
        .as_str()
        .unwrap();
    assert!(why.starts_with("step b (p_b): failed: the input "), "{why}");
}
