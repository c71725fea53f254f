//! The engine against an API server of our own that misbehaves: it drops watches, forgets versions (410), has trouble (429,
//! 500, 409), refuses (403), and counts what it is asked.

mod support;

use model::{Exit, Phase};
use serde_json::json;
use support::{Api, Rig, task};

#[test]
fn a_cluster_is_seen_with_its_machines_pods_and_types() {
    let api = Api::start();
    api.node("n1", "4");
    api.foreign_pod("kube-system", "dns", "n1", "250m");
    api.instance_type("small", "1");
    api.instance_type("broken", "9");
    let rig = Rig::new(&api);
    let cluster = rig.wait_cluster(|c| c.trouble.is_none() && c.types.is_some());
    let n1 = &cluster.machines["n1"];
    assert_eq!(
        (n1.allocatable.cpu.0, n1.requested.cpu.0, n1.pods_there),
        (4000, 250, 1)
    );
    let types = cluster.types.unwrap();
    assert!(matches!(
        types["small"],
        model::kubernetes::TypeSeen::Usable(_)
    ));
    assert!(matches!(
        types["broken"],
        model::kubernetes::TypeSeen::Broken(_)
    ));
}

#[test]
fn watches_that_break_or_are_too_old_begin_again_and_nothing_is_seen_in_part() {
    let api = Api::start();
    for n in 0..20 {
        api.node(&format!("n{n}"), "4");
    }
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 20);
    for round in 0..5 {
        api.break_watches(if round % 2 == 0 { 410 } else { 0 });
        api.node(&format!("m{round}"), "4");
        let cluster = rig.wait_cluster(|c| c.machines.contains_key(&*format!("m{round}")));
        assert_eq!(
            cluster.machines.len(),
            21 + round,
            "complete, whatever broke"
        );
    }
}

#[test]
fn a_missing_definition_is_installed_and_a_missing_right_is_named() {
    let api = Api::start();
    api.node("n1", "4");
    api.undefine_types();
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.trouble.is_none() && c.types.is_some());
    assert_eq!(api.count("POST", "customresourcedefinitions"), 1);

    let api = Api::start();
    api.node("n1", "4");
    api.undefine_types();
    api.forbid("POST", "customresourcedefinitions");
    let rig = Rig::new(&api);
    let trouble = rig
        .wait_cluster(|c| {
            c.trouble
                .as_deref()
                .is_some_and(|t| t.contains("cannot be"))
        })
        .trouble;
    let trouble = trouble.unwrap();
    assert!(
        trouble.contains("customresourcedefinitions: the kubeconfig's user may not create them"),
        "{trouble}"
    );
    assert!(
        trouble.contains("kubectl apply -f deploy/crd/instancetypes.yaml"),
        "{trouble}"
    );

    let api = Api::start();
    api.forbid("GET", "nodes");
    let rig = Rig::new(&api);
    let trouble = rig.wait_cluster(|c| c.trouble.is_some()).trouble.unwrap();
    assert!(
        trouble.contains("nodes: the kubeconfig's user may not list them"),
        "{trouble}"
    );
}

#[test]
fn where_only_one_namespace_may_be_seen_its_pods_are() {
    let api = Api::start();
    api.node("n1", "4");
    api.forbid("GET", "all pods");
    api.foreign_pod("azureml", "other", "n1", "1");
    let rig = Rig::new(&api);
    let cluster = rig.wait_cluster(|c| c.trouble.is_none());
    assert_eq!(cluster.machines["n1"].requested.cpu.0, 1000);
}

#[test]
fn a_server_that_is_gone_is_trouble_and_what_was_seen_stays() {
    let mut api = Api::start();
    api.node("n1", "4");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    api.stop();
    let cluster = rig.wait_cluster(|c| c.trouble.is_some());
    assert!(
        cluster
            .trouble
            .as_deref()
            .unwrap()
            .contains("is not reached"),
        "{:?}",
        cluster.trouble
    );
    assert_eq!(cluster.machines.len(), 1);
}

#[test]
fn a_pod_is_made_once_whatever_the_server_answers() {
    let api = Api::start();
    api.node("n1", "4");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    // The last 500 comes after the pod was made: the answer is lost, not the pod.
    api.answer("POST", "pods", &[429, 500, 409, 503, 599]);
    let id = task("train", 1);
    rig.start(&id);
    rig.start(&id);
    rig.wait(
        &id,
        |phase| matches!(phase, Phase::Pending { why } if why.contains("scheduler")),
    );
    rig.start(&id);
    assert_eq!(api.made("train-1-0"), 1);
    assert!(
        api.fastest_ten() >= std::time::Duration::from_millis(900),
        "at most ten requests a second while it fails"
    );
}

#[test]
fn what_refuses_a_pod_is_told_until_it_does_not() {
    let api = Api::start();
    api.node("n1", "4");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    api.quota(true);
    let id = task("train", 1);
    rig.start(&id);
    rig.wait(
        &id,
        |phase| matches!(phase, Phase::Pending { why } if why.contains("exceeded quota")),
    );
    api.quota(false);
    rig.wait(
        &id,
        |phase| matches!(phase, Phase::Pending { why } if why.contains("scheduler")),
    );
    assert_eq!(api.made("train-1-0"), 1);
}

#[test]
fn a_strangers_pod_of_the_same_name_ends_the_task_and_stays() {
    let api = Api::start();
    api.node("n1", "4");
    api.foreign_pod("azureml", "train-1-0", "n1", "1");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    let id = task("train", 1);
    rig.start(&id);
    rig.wait(&id, |phase| {
        matches!(phase, Phase::Exited(Exit::NotStarted { message }) if message.contains("train-1-0") && message.contains("azureml"))
    });
    rig.forget(&id);
    assert!(
        api.has_pod("azureml", "train-1-0"),
        "only what carries our id is removed"
    );
}

/// With it the agent would be let in nowhere, and say nothing.
#[test]
fn a_strangers_secret_of_the_same_name_ends_the_task_and_stays() {
    let api = Api::start();
    api.node("n1", "4");
    api.foreign_secret("azureml", "train-1-0");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    let id = task("train", 1);
    rig.start(&id);
    rig.wait(&id, |phase| {
        matches!(phase, Phase::Exited(Exit::NotStarted { message }) if message.contains("a secret of the name train-1-0"))
    });
    rig.forget(&id);
    rig.wait_gone(&id);
    assert_eq!((api.pods_left(), api.count_objects("secrets")), (0, 1));
}

#[test]
fn pods_that_are_taken_are_lost_and_ends_of_their_own_are_kept() {
    let api = Api::start();
    api.node("n1", "4");
    api.node("n2", "4");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 2);
    let made = |run: &str| {
        let id = task(run, 1);
        rig.start(&id);
        rig.wait(
            &id,
            |phase| matches!(phase, Phase::Pending { why } if why.contains("scheduler")),
        );
        id
    };
    let lost = |id: &_, word: &str| {
        rig.wait(
            id,
            |phase| matches!(phase, Phase::Exited(Exit::Lost { why }) if why.contains(word)),
        );
    };
    let by_hand = made("by-hand");
    api.remove("pods", "azureml/by-hand-1-0");
    lost(&by_hand, "not there any more");

    let evicted = made("evicted");
    api.status(
        "evicted-1-0",
        "n1",
        json!({"phase": "Failed", "reason": "Evicted", "message": "memory"}),
    );
    lost(&evicted, "Evicted: memory");

    let preempted = made("preempted");
    api.status(
        "preempted-1-0",
        "n1",
        json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}]}),
    );
    lost(&preempted, "PreemptionByScheduler");

    // Kubernetes itself says nothing of it for a minute.
    let machine = made("machine");
    api.status(
        "machine-1-0",
        "n2",
        json!({"phase": "Running", "containerStatuses": support::running()}),
    );
    rig.wait(
        &machine,
        |phase| matches!(phase, Phase::Preparing { what } if what.contains("connects")),
    );
    api.remove("nodes", "n2");
    lost(&machine, "its machine n2 is gone");

    let grown = made("grown");
    api.status(
        "grown-1-0",
        "n1",
        json!({"phase": "Failed", "containerStatuses": support::ended("OOMKilled", 137)}),
    );
    rig.wait(&grown, |phase| {
        matches!(phase, Phase::Exited(Exit::OutOfMemory { .. }))
    });

    let image = made("image");
    api.status(
        "image-1-0",
        "n1",
        json!({"phase": "Pending", "containerStatuses": support::waiting("ImagePullBackOff")}),
    );
    rig.wait(
        &image,
        |phase| matches!(phase, Phase::Pending { why } if why.contains("ImagePullBackOff")),
    );
    api.status(
        "image-1-0",
        "n1",
        json!({"phase": "Pending", "containerStatuses": support::waiting("InvalidImageName")}),
    );
    rig.wait(&image, |phase| matches!(phase, Phase::Exited(Exit::NotStarted { message }) if message.contains("python:latest")));

    for id in [&by_hand, &evicted, &preempted, &machine, &grown, &image] {
        rig.forget(id);
        rig.wait_gone(id);
    }
    assert_eq!(api.pods_left(), 0);
    assert_eq!(api.count_objects("secrets"), 0);
}

#[test]
fn a_new_server_finds_its_pods_and_removes_what_belongs_to_nobody() {
    let api = Api::start();
    api.node("n1", "4");
    let mut rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    let (kept, taken) = (task("kept", 1), task("taken", 1));
    for id in [&kept, &taken] {
        rig.start(id);
        rig.wait(
            id,
            |phase| matches!(phase, Phase::Pending { why } if why.contains("scheduler")),
        );
    }
    rig.stop();
    api.remove("pods", "azureml/taken-1-0");
    api.copy_pod("kept-1-0", "stray-1-0");
    rig.open();
    // Shown at once, before the cluster has said anything.
    assert!(rig.phase(&kept).is_some() && rig.phase(&taken).is_some());
    rig.attach();
    rig.start(&kept);
    rig.start(&taken);
    rig.wait(&taken, |phase| {
        matches!(phase, Phase::Exited(Exit::Lost { .. }))
    });
    rig.wait(&kept, |phase| matches!(phase, Phase::Pending { .. }));
    assert_eq!(
        (api.made("kept-1-0"), api.made("taken-1-0")),
        (1, 1),
        "never twice"
    );
    api.wait(|| !api.has_pod("azureml", "stray-1-0"));
}

#[test]
fn a_compute_that_is_detached_takes_everything_of_it_along() {
    let api = Api::start();
    api.node("n1", "4");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    let id = task("train", 1);
    rig.start(&id);
    rig.wait(
        &id,
        |phase| matches!(phase, Phase::Pending { why } if why.contains("scheduler")),
    );
    assert_eq!(api.count_objects("configmaps"), 1);
    rig.detach();
    api.wait(|| api.pods_left() == 0 && api.count_objects("configmaps") == 0);
    rig.wait_gone(&id);
}
