//! Clusters, their drill, quotas and metrics, asked as a client asks for them.

use crate::server::*;
use serde_json::{Value, json};

#[tokio::test]
async fn a_cluster_is_created_shown_changed_and_deleted() {
    let s = server();
    let path = format!("{WS}/computes/low-pri");
    let made = s.cluster("low-pri", 1, 2).await.is(201).json();
    assert_eq!(made["properties"]["provisioningState"], "Succeeded");
    assert_eq!(
        made["properties"]["properties"]["vmPriority"],
        "LowPriority"
    );
    let nodes = s
        .until(&path, |c| {
            c["properties"]["properties"]["nodeStateCounts"]["idleNodeCount"] == 1
        })
        .await;
    assert_eq!(
        nodes["properties"]["properties"]["allocationState"],
        "Steady"
    );
    let nodes = s
        .ask("POST", &format!("{path}/listNodes"), Value::Null)
        .await
        .is(200)
        .json();
    assert_eq!(nodes["nodes"][0]["nodeState"], "idle");

    let patched = s
        .ask(
            "PATCH",
            &path,
            json!({"properties": {"scaleSettings": {"maxNodeCount": 4}}, "tags": {"a": "b"}}),
        )
        .await
        .is(200)
        .json();
    assert_eq!(
        patched["properties"]["properties"]["scaleSettings"]["maxNodeCount"],
        4
    );
    assert_eq!(
        patched["properties"]["properties"]["scaleSettings"]["minNodeCount"],
        1
    );
    assert_eq!(patched["tags"]["a"], "b");
    let all = s.get(&format!("{WS}/computes")).await.is(200).json();
    assert_eq!(all["value"].as_array().unwrap().len(), 1);

    let gone = s.ask("DELETE", &path, Value::Null).await.is(202);
    assert!(gone.bytes.is_empty());
    assert!(
        gone.headers.get("retry-after").is_none(),
        "clients sleep 30 s on it"
    );
    assert_eq!(gone.header("x-ms-retry-after-ms"), "200");
    let operation = gone
        .header("azure-asyncoperation")
        .strip_prefix("https://zaffre.test:8443")
        .unwrap()
        .to_owned();
    s.until(&operation, |o| o["status"] == "Succeeded").await;
    let location = gone
        .header("location")
        .strip_prefix("https://zaffre.test:8443")
        .unwrap()
        .to_owned();
    s.get(&location).await.is(200);
    let missing = s.get(&path).await.is(404);
    assert_eq!(missing.code(), "ComputeNotFound");
    s.ask("DELETE", &path, Value::Null).await.is(204);
}

#[tokio::test]
async fn a_cluster_above_its_quota_is_refused_with_the_numbers() {
    let s = server();
    let got = s.cluster("c01", 30, 30).await.is(400);
    assert_eq!(got.code(), "ClusterMinNodesExceedCoreQuota");
    assert!(got.message().contains("100"), "{}", got.message());
    let got = s.cluster("c01", 5, 1).await.is(400);
    assert!(
        got.message().contains('5') && got.message().contains('1'),
        "{}",
        got.message()
    );
    s.get(&format!("{WS}/computes/c01")).await.is(404);
}

#[tokio::test]
async fn a_drill_takes_nodes_away() {
    let s = server();
    s.cluster("c01", 2, 2).await.is(201);
    let path = format!("{WS}/computes/c01");
    s.idle("c01", 2).await;
    let preempt = format!("{path}/preempt");
    for wrong in [
        json!({}),
        json!({"nodes": 0}),
        json!({"nodes": "some"}),
        json!({"nodes": 1, "notice": "soon"}),
        json!({"nodes": 1, "x": 1}),
        json!({"nodes": -1}),
    ] {
        s.ask("POST", &preempt, wrong).await.is(400);
    }
    let taken = s
        .ask(
            "POST",
            &preempt,
            json!({"nodes": "all", "notice": "PT0S", "holdCapacity": "PT10M"}),
        )
        .await
        .is(200)
        .json();
    assert_eq!(taken["nodes"].as_array().unwrap().len(), 2);
    s.until(&path, |c| {
        c["properties"]["properties"]["nodeStateCounts"]["preemptedNodeCount"] == 2
    })
    .await;
}

#[tokio::test]
async fn quotas_are_shown_and_changed() {
    let s = server();
    let usages = s.get(&format!("{LOC}/usages")).await.is(200).json();
    let low = |list: &Value| {
        list["value"]
            .as_array()
            .unwrap()
            .iter()
            .find(|u| {
                u["name"]["value"]
                    .as_str()
                    .unwrap_or_default()
                    .contains("LowPriority")
            })
            .cloned()
            .unwrap()
    };
    assert_eq!(
        (
            low(&usages)["limit"].clone(),
            low(&usages)["currentValue"].clone()
        ),
        (json!(100), json!(0))
    );
    let update = json!({"value": [{"id": format!("{WS}/quotas/TotalLowPriorityCores"), "limit": 8, "unit": "Count"}]});
    let done = s
        .ask("POST", &format!("{LOC}/updateQuotas"), update)
        .await
        .is(200)
        .json();
    assert_eq!(done["value"][0]["status"], "Success");
    assert_eq!(
        low(&s.get(&format!("{LOC}/usages")).await.json())["limit"],
        8
    );
    s.cluster("c01", 3, 3).await.is(400);
    let quotas = s.get(&format!("{LOC}/quotas")).await.is(200).json();
    assert!(!quotas["value"].as_array().unwrap().is_empty());
    let sizes = s.get(&format!("{LOC}/vmSizes")).await.is(200).json();
    assert!(sizes["value"].as_array().unwrap().iter().any(|v| {
        v["name"]
            .as_str()
            .unwrap()
            .eq_ignore_ascii_case("STANDARD_DS3_v2")
            && v["vCPUs"] == 4
    }));
}

#[tokio::test]
async fn metrics_answer_in_azure_monitors_shape() {
    let s = server();
    s.cluster("c01", 2, 2).await.is(201);
    let path = format!("{WS}/computes/c01");
    s.idle("c01", 2).await;
    let definitions = s
        .get(&format!(
            "{WS}/providers/Microsoft.Insights/metricDefinitions"
        ))
        .await
        .is(200)
        .json();
    assert!(
        definitions["value"]
            .as_array()
            .unwrap()
            .iter()
            .any(|d| d["name"]["value"] == "Preempted Nodes")
    );
    s.ask(
        "POST",
        &format!("{path}/preempt"),
        json!({"nodes": 1, "holdCapacity": "PT1H"}),
    )
    .await
    .is(200);
    s.until(&path, |c| {
        c["properties"]["properties"]["nodeStateCounts"]["preemptedNodeCount"] == 1
    })
    .await;
    let metrics = s
        .get(&format!("{WS}/providers/microsoft.insights/metrics?metricnames=Preempted%20Nodes,Preempted%20Cores&interval=PT1M&aggregation=Maximum"))
        .await
        .is(200)
        .json();
    let most = |i: usize| {
        metrics["value"][i]["timeseries"][0]["data"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|d| d["maximum"].as_f64())
            .fold(0.0, f64::max)
    };
    assert_eq!(most(0), 1.0);
    assert_eq!(most(1), 4.0);
    s.get(&format!(
        "{WS}/providers/Microsoft.Insights/metrics?metricnames=Nonsense"
    ))
    .await
    .is(400);
    s.get(&format!(
        "{WS}/providers/Microsoft.Insights/metrics?metricnames=Preempted%20Nodes&timespan=x"
    ))
    .await
    .is(400);
}
