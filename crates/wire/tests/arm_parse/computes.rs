//! Computes at the door: clusters and Kubernetes computes.

use super::*;

#[test]
fn a_cluster_is_what_it_says() {
    let parsed = put(Kind::Compute, "low-pri-cluster", &cluster()).unwrap();
    let Declared::Cluster(spec) = parsed.declared else {
        panic!()
    };
    assert_eq!(
        (spec.tier, spec.min, spec.max, spec.idle),
        (Tier::LowPriority, 0, 2, Millis::secs(120))
    );
    assert_eq!(
        (spec.size.name.as_str(), spec.size.cores),
        ("Standard_DS3_v2", 4)
    );
    assert_eq!(spec.size.family.as_str(), "standardDSv2Family");
    assert_eq!(parsed.warnings, Vec::<String>::new());
    let stored = document(Kind::Compute, "low-pri-cluster", &cluster());
    assert_eq!(arm::declared(&stored).unwrap(), Declared::Cluster(spec));
    let bare = json!({"properties": {"computeType": "amlcompute", "properties": {"scaleSettings": {"maxNodeCount": 1}}}});
    let Declared::Cluster(spec) = put(Kind::Compute, "abc", &bare).unwrap().declared else {
        panic!()
    };
    assert_eq!(
        (spec.tier, spec.min, spec.idle),
        (Tier::Dedicated, 0, Millis::secs(120))
    );
}

fn kubernetes() -> Value {
    json!({"location": "local", "properties": {"computeType": "Kubernetes", "resourceId": "/subscriptions/s/x", "properties": {
    "clusterId": null, "namespace": "azureml-ns", "defaultInstanceType": "cpusmall",
    "zaffre.node_selector": {"pool": "ml"}, "zaffre.image_pull_policy": "never", "zaffre.selector_mode": "strict",
    "zaffre.run_as_user": 1000,
    "instanceTypes": {
        "cpusmall": {"nodeSelector": null, "resources": {
            "requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 0}}},
        "gpusmall": {"nodeSelector": {"mylabel": "mylabelvalue"}, "resources": {
            "requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1}}},
        "defaultinstancetype": {"nodeSelector": null, "resources": {
            "requests": {"cpu": "100m", "memory": "2Gi"}, "limits": {"cpu": "2", "memory": "2Gi", "nvidia.com/gpu": null}}}
    }}}})
}

#[test]
fn a_kubernetes_compute_is_what_it_says() {
    let parsed = put(Kind::Compute, "k8s", &kubernetes()).unwrap();
    let Declared::Kubernetes(spec) = parsed.declared else {
        panic!()
    };
    assert!(!spec.is_attached());
    assert_eq!(
        (&*spec.namespace, spec.default_type.as_deref()),
        ("azureml-ns", Some("cpusmall"))
    );
    assert_eq!(spec.pull_policy, PullPolicy::Never);
    assert_eq!(spec.selector_mode, SelectorMode::Strict);
    // the built-in type, sent back as it was shown, is none of its own
    let names: Vec<&str> = spec.types.keys().map(|name| &**name).collect();
    assert_eq!(names, ["cpusmall", "gpusmall"]);
    let gpu = &spec.types["gpusmall"];
    assert_eq!(gpu.limits().devices["nvidia.com/gpu"], 1);
    assert_eq!(&*gpu.node_selector()["mylabel"], "mylabelvalue");
    let stored = document(Kind::Compute, "k8s", &kubernetes());
    assert_eq!(arm::declared(&stored).unwrap(), Declared::Kubernetes(spec));
    let bare = json!({"properties": {"computeType": "kubernetes"}});
    let Declared::Kubernetes(spec) = put(Kind::Compute, "k8s", &bare).unwrap().declared else {
        panic!()
    };
    assert_eq!(&*spec.namespace, "default");
}

#[test]
fn a_kubernetes_compute_keeps_its_rules() {
    let at = |key: &str| format!("/properties/properties/{key}");
    refuses(
        Kind::Compute,
        "k8s",
        &kubernetes(),
        &[
            (
                &at("namespace"),
                json!("Default"),
                "is `Default`, a namespace is",
            ),
            (
                &at("zaffre.image_pull_policy"),
                json!("sometimes"),
                "sometimes",
            ),
            (
                &at("zaffre.node_selektor"),
                json!({}),
                "is not known, known are",
            ),
            (
                &at("zaffre.node_selector"),
                json!({"a b": "c"}),
                "which is no label",
            ),
            (&at("zaffre.run_as_user"), json!(0), "0"),
            (
                &at("zaffre.kubeconfig"),
                json!("apiVersion: v1"),
                "is neither a kubeconfig nor the digest",
            ),
            (
                &at("zaffre.kubeconfig"),
                json!(format!("sha256:{}", "0".repeat(64))),
                "those of an attached cluster are its own",
            ),
            (
                &at("instanceTypes/cpusmall/resources/requests/cpu"),
                json!("2"),
                "the cpu request (2) must not be above the cpu limit (1)",
            ),
            (
                &at("instanceTypes/cpusmall/limits"),
                json!({"cpu": "1"}),
                "spec.resources.limits",
            ),
        ],
    );
}

#[test]
fn a_kubeconfig_is_taken_out_of_a_body_and_one_that_reads_or_runs_is_refused() {
    let with_config = |text: &str| {
        with(
            &kubernetes(),
            "/properties/properties/zaffre.kubeconfig",
            json!(text),
        )
    };
    let good = "clusters: [{name: c, cluster: {server: https://x}}]\nusers: [{name: u, user: {token: hunter2}}]\n";
    let mut body = with_config(good);
    assert_eq!(arm::kubernetes::kubeconfig_of(&body).unwrap(), Some(good));
    arm::kubernetes::put_digest(&mut body, &"a".repeat(64));
    assert_eq!(arm::kubernetes::kubeconfig_of(&body).unwrap(), None);
    assert!(!body.to_string().contains("hunter2"));
    for (text, says) in [
        ("{", "is not YAML"),
        ("apiVersion: v1", "it is no kubeconfig"),
        (
            "clusters: [{cluster: {certificate-authority: /etc/shadow}}]\nusers: [{user: {token: hunter2}}]",
            "names a file under clusters: certificate-authority",
        ),
        (
            "clusters: [{cluster: {}}]\nusers: [{user: {exec: {command: hunter2}}}]",
            "would run a program on the server (users: exec)",
        ),
    ] {
        let refused = arm::kubernetes::kubeconfig_of(&with_config(text)).unwrap_err();
        assert!(refused.message.contains(says), "{}", refused.message);
        assert!(!refused.message.contains("hunter2"), "{}", refused.message);
    }
}

#[test]
fn a_cluster_keeps_its_rules() {
    let inner = |key: &str| format!("/properties/properties/{key}");
    let cases = [
        (
            inner("scaleSettings/minNodeCount"),
            json!(5),
            "minNodeCount 5 is above maxNodeCount 2",
        ),
        (
            inner("scaleSettings/minNodeCount"),
            json!(-1),
            "minNodeCount is -1, at least 0 is needed",
        ),
        (
            inner("scaleSettings/maxNodeCount"),
            json!(65_001),
            "at most 65000 is allowed",
        ),
        (
            inner("scaleSettings/maxNodeCount"),
            json!(1.5),
            "is 1.5, expected a whole number",
        ),
        (
            inner("scaleSettings/maxNodeCount"),
            json!("2"),
            "is the text `2`, expected a whole number",
        ),
        (
            inner("scaleSettings"),
            json!(null),
            "scaleSettings is required",
        ),
        (
            inner("scaleSettings/nodeIdleTimeBeforeScaleDown"),
            json!("120"),
            "expected a duration",
        ),
        (
            inner("vmSize"),
            json!("STANDARD_DS3"),
            "vmSize `STANDARD_DS3` is not a known size",
        ),
        (
            inner("vmPriority"),
            json!("spot"),
            "vmPriority is `spot`, known are Dedicated",
        ),
        (inner("osType"), json!("Windows"), "nodes here run Linux"),
        (
            inner("userAccountCredentials"),
            json!({"adminUserName": "a", "adminUserPassword": "p"}),
            "no ssh",
        ),
        (
            "/properties/computeType".into(),
            json!("ComputeInstance"),
            "vmPriority of a compute instance is Dedicated",
        ),
        (
            "/properties/computeType".into(),
            json!("x"),
            "known are AmlCompute, ComputeInstance, Kubernetes",
        ),
        (
            "/properties".into(),
            json!(3),
            "properties is the number 3, expected an object",
        ),
    ];
    let cases: Vec<(&str, Value, &str)> = cases
        .iter()
        .map(|(p, v, s)| (p.as_str(), v.clone(), *s))
        .collect();
    refuses(Kind::Compute, "low-pri-cluster", &cluster(), &cases);
    let refused = put(
        Kind::Compute,
        "low-pri-cluster",
        &with(
            &cluster(),
            "/properties/properties/vmSize",
            json!("STANDARD_DS3"),
        ),
    )
    .unwrap_err();
    assert_eq!(
        refused.hint.as_deref(),
        Some("the nearest is Standard_DS3_v2")
    );
    assert!(
        put(Kind::Compute, "1x", &cluster())
            .unwrap_err()
            .message
            .contains("compute name")
    );
    let retired = with(
        &cluster(),
        "/properties/properties/vmSize",
        json!("standard_nc6"),
    );
    let warnings = put(Kind::Compute, "low-pri-cluster", &retired)
        .unwrap()
        .warnings;
    assert!(warnings[0].contains("2023-08-31"), "{warnings:?}");
}

#[test]
fn tags_say_whose_pods_the_nodes_of_a_cluster_are() {
    let tagged = |tags: Value| with(&cluster(), "/tags", tags);
    let pods = |tags: Value| {
        let parsed = put(Kind::Compute, "low-pri-cluster", &tagged(tags)).unwrap();
        let Declared::Cluster(spec) = parsed.declared else {
            panic!("a cluster is declared")
        };
        let pods = spec.pods.clone();
        pods.map(|p| (p.kubernetes.to_string(), p.image.to_string()))
    };
    let given = |k: &str, i: &str| Some((k.to_owned(), i.to_owned()));
    assert_eq!(pods(json!({"team": "vision"})), None);
    assert_eq!(
        pods(json!({"zaffre.kubernetes": "k8s"})),
        given("k8s", "docker.io/library/python:3.12-slim")
    );
    assert_eq!(
        pods(json!({"zaffre.kubernetes": "k8s", "zaffre.node_image": "python:3.13"})),
        given("k8s", "python:3.13")
    );
    for (tags, says) in [
        (
            json!({"zaffre.node_image": "python:3.13"}),
            "zaffre.node_image is given, but nodes run in an image only as pods: zaffre.kubernetes is missing",
        ),
        (
            json!({"zaffre.kubernetes": "k8s", "zaffre.node_image": ""}),
            "zaffre.node_image is empty",
        ),
        (
            json!({"zaffre.kubernetes": "no name"}),
            "zaffre.kubernetes names no compute",
        ),
        (json!({"zaffre.kubernets": "k8s"}), "zaffre.kubernets"),
    ] {
        let refused = put(Kind::Compute, "low-pri-cluster", &tagged(tags.clone())).unwrap_err();
        assert!(
            refused.message.contains(says),
            "{tags}: {}",
            refused.message
        );
    }
}
