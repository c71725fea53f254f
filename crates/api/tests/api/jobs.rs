//! Jobs: shown, listed, canceled, explained, and their logs.

use crate::server::*;
use axum::body::Body;
use serde_json::{Value, json};

#[tokio::test]
async fn a_command_job_runs_and_is_shown() {
    let s = server();
    s.batch().await;
    let path = format!("{WS}/jobs/j1");
    let made = s
        .ask("PUT", &path, command_body("c01"))
        .await
        .is(201)
        .json();
    assert_eq!(made["properties"]["jobType"], "Command");
    assert!(made["properties"]["services"]["Studio"]["endpoint"].is_string());
    s.running("j1").await;
    let details = format!("/history/v1.0{WS}/runs/j1/details");
    assert_eq!(s.get(&details).await.is(200).json()["status"], "Running");

    let mut again = command_body("c01");
    again["properties"]["tags"] = json!({"x": "y"});
    assert_eq!(
        s.ask("PUT", &path, again).await.is(200).json()["properties"]["tags"]["x"],
        "y"
    );
    let patched = s
        .ask(
            "PATCH",
            &format!("/history/v1.0{WS}/experiments/x/runs/j1"),
            json!({"displayName": "shown"}),
        )
        .await
        .is(200)
        .json();
    assert_eq!(patched["displayName"], "shown");
    s.ask("DELETE", &path, Value::Null).await.is(409);

    s.engine.end("j1", 0);
    let done = s
        .until(&path, |j| j["properties"]["status"] == "Completed")
        .await;
    assert_eq!(done["properties"]["displayName"], "shown");
    let explained = s.get(&format!("{path}/explain")).await.is(200).json();
    assert_eq!(explained["why"], Value::Null);
    s.ask("POST", &format!("{path}/cancel"), Value::Null)
        .await
        .is(200);
    s.ask("DELETE", &path, Value::Null).await.is(200);
    s.get(&path).await.is(404);
}

#[tokio::test]
async fn a_job_is_canceled_and_explained() {
    let s = server();
    s.batch().await;
    let path = format!("{WS}/jobs/j1");
    s.ask("PUT", &path, command_body("c01")).await.is(201);
    s.running("j1").await;
    let canceled = s
        .ask("POST", &format!("{path}/cancel"), Value::Null)
        .await
        .is(202);
    let operation = canceled
        .header("azure-asyncoperation")
        .strip_prefix("https://zaffre.test:8443")
        .unwrap()
        .to_owned();
    s.until(&operation, |o| o["status"] == "Succeeded").await;
    s.until(&path, |j| j["properties"]["status"] == "Canceled")
        .await;
    let explained = s.get(&format!("{path}/explain")).await.is(200).json();
    assert_eq!(explained["text"], "cancel was asked for");

    assert_eq!(
        s.ask("PUT", &format!("{WS}/jobs/j2"), command_body("nope"))
            .await
            .is(404)
            .code(),
        "ComputeNotFound"
    );
    s.ask("POST", &format!("{WS}/jobs/nope/cancel"), Value::Null)
        .await
        .is(404);
    s.get(&format!("{WS}/jobs/nope")).await.is(404);
}

#[tokio::test]
async fn logs_are_read_through_links_and_a_stream_of_an_ended_run_sees_them() {
    let s = server();
    s.batch().await;
    let path = format!("{WS}/jobs/j1");
    s.ask("PUT", &path, command_body("c01")).await.is(201);
    s.running("j1").await;
    let places = wire::places::Places::of(job("j1").workspace());
    let log = places
        .artifacts_of("j1")
        .unwrap()
        .join("user_logs/std_log.txt")
        .unwrap();
    s.control.blobs().put(&log, b"line 1\nline 2\n").unwrap();
    s.engine.end("j1", 0);
    s.until(&path, |j| j["properties"]["status"] == "Completed")
        .await;
    let details = format!("/history/v1.0{WS}/runs/j1/details");
    let first = s.get(&details).await.is(200).json();
    assert_eq!(first["status"], "Finalizing");
    let link = first["logFiles"]["user_logs/std_log.txt"].as_str().unwrap();
    assert_eq!(
        s.call("GET", link, &[], Body::empty()).await.is(200).text(),
        "line 1\nline 2\n"
    );
    let part = s
        .call("GET", link, &[("range", "bytes=7-")], Body::empty())
        .await
        .is(206);
    assert_eq!(
        (part.text().as_str(), part.header("content-range")),
        ("line 2\n", "bytes 7-13/14")
    );
    s.call(
        "GET",
        &link.replace("std_log.txt", "other.txt"),
        &[],
        Body::empty(),
    )
    .await
    .is(403);
    s.call("PUT", link, &[("x-ms-blob-type", "BlockBlob")], "x")
        .await
        .is(403);
    assert_eq!(s.get(&details).await.json()["status"], "Completed");
    assert_eq!(
        s.get(&details).await.json()["status"],
        "Finalizing",
        "another stream begins"
    );
    let artifacts = s
        .get(&format!("/history/v1.0{WS}/runs/j1/artifacts"))
        .await
        .is(200)
        .json();
    assert_eq!(artifacts["value"][0]["path"], "user_logs/std_log.txt");
}

#[tokio::test]
async fn jobs_are_listed_newest_first_in_pages_that_hold_still() {
    let s = server();
    s.batch().await;
    for i in 0..5 {
        let mut body = command_body("c01");
        body["properties"]["tags"] = json!({"n": i.to_string()});
        s.ask("PUT", &format!("{WS}/jobs/j{i}"), body).await.is(201);
    }
    let token = format!("Bearer {TOKEN}");
    let mut seen = Vec::new();
    let mut next = format!("{WS}/jobs?$maxpagesize=2&listViewType=ActiveOnly");
    while !next.is_empty() {
        let page = s
            .call(
                "GET",
                &next,
                &[("authorization", token.as_str())],
                Body::empty(),
            )
            .await
            .is(200)
            .json();
        seen.extend(
            page["value"]
                .as_array()
                .unwrap()
                .iter()
                .map(|j| j["name"].as_str().unwrap().to_owned()),
        );
        next = page["nextLink"].as_str().unwrap_or_default().to_owned();
        assert!(
            next.is_empty() || next.starts_with("https://zaffre.test:8443/subscriptions/"),
            "{next}"
        );
        s.ask(
            "PUT",
            &format!("{WS}/jobs/later-{}", seen.len()),
            command_body("c01"),
        )
        .await
        .is(201);
    }
    seen.sort();
    assert_eq!(
        seen,
        ["j0", "j1", "j2", "j3", "j4"],
        "what was made in between changes no page"
    );
    let tagged = s.get(&format!("{WS}/jobs?tag=n=3")).await.is(200).json();
    assert_eq!(tagged["value"].as_array().unwrap().len(), 1);
    let none = s
        .get(&format!("{WS}/jobs?jobType=Sweep"))
        .await
        .is(200)
        .json();
    assert_eq!(none["value"], json!([]));
    s.get(&format!("{WS}/jobs?$skipToken=%F0nonsense"))
        .await
        .is(400);
    s.get(&format!("{WS}/jobs?$top=0")).await.is(400);
}
