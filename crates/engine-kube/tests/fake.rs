//! The engine against an API server of our own that misbehaves: it drops watches, forgets versions (410), has trouble (429,
//! 500, 409), refuses (403), and counts what it is asked.

mod support;

use model::{Action, Exit, NodeSeen, Phase, Time};
use serde_json::json;
use support::{Api, Rig, node, pod_of, task};

/// The engine on a cluster of one machine, which it has seen.
fn attached() -> (Api, Rig) {
    let api = Api::start();
    api.node("n1", "4");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    (api, rig)
}

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
    let (api, rig) = attached();
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
    assert_eq!(api.made(&pod_of(&id)), 1);
    assert!(
        api.fastest_ten() >= std::time::Duration::from_millis(900),
        "at most ten requests a second while it fails"
    );
}

#[test]
fn what_refuses_a_pod_is_told_until_it_does_not() {
    let (api, rig) = attached();
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
    assert_eq!(api.made(&pod_of(&id)), 1);
}

#[test]
fn a_strangers_pod_of_the_same_name_ends_the_task_and_stays() {
    let api = Api::start();
    api.node("n1", "4");
    let id = task("train", 1);
    api.foreign_pod("azureml", &pod_of(&id), "n1", "1");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    rig.start(&id);
    rig.wait(&id, |phase| {
        matches!(phase, Phase::Exited(Exit::NotStarted { message }) if message.contains(&pod_of(&id)) && message.contains("azureml"))
    });
    rig.forget(&id);
    assert!(
        api.has_pod("azureml", &pod_of(&id)),
        "only what carries our id is removed"
    );
}

/// With it the agent would be let in nowhere, and say nothing.
#[test]
fn a_strangers_secret_of_the_same_name_ends_the_task_and_stays() {
    let api = Api::start();
    api.node("n1", "4");
    let id = task("train", 1);
    api.foreign_secret("azureml", &pod_of(&id));
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    rig.start(&id);
    rig.wait(&id, |phase| {
        matches!(phase, Phase::Exited(Exit::NotStarted { message }) if message.contains(&format!("a secret of the name {}", pod_of(&id))))
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
    api.remove("pods", &format!("azureml/{}", pod_of(&by_hand)));
    lost(&by_hand, "not there any more");

    let evicted = made("evicted");
    api.status(
        &pod_of(&evicted),
        "n1",
        json!({"phase": "Failed", "reason": "Evicted", "message": "memory"}),
    );
    lost(&evicted, "Evicted: memory");

    let preempted = made("preempted");
    api.status(
        &pod_of(&preempted),
        "n1",
        json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "m"}]}),
    );
    lost(&preempted, "PreemptionByScheduler");

    // Kubernetes itself says nothing of it for a minute.
    let machine = made("machine");
    api.status(
        &pod_of(&machine),
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
        &pod_of(&grown),
        "n1",
        json!({"phase": "Failed", "containerStatuses": support::ended("OOMKilled", 137)}),
    );
    rig.wait(&grown, |phase| {
        matches!(phase, Phase::Exited(Exit::OutOfMemory { .. }))
    });

    let image = made("image");
    api.status(
        &pod_of(&image),
        "n1",
        json!({"phase": "Pending", "containerStatuses": support::waiting("ImagePullBackOff")}),
    );
    rig.wait(
        &image,
        |phase| matches!(phase, Phase::Pending { why } if why.contains("ImagePullBackOff")),
    );
    api.status(
        &pod_of(&image),
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
    let (api, mut rig) = attached();
    let (kept, taken) = (task("kept", 1), task("taken", 1));
    for id in [&kept, &taken] {
        rig.start(id);
        rig.wait(
            id,
            |phase| matches!(phase, Phase::Pending { why } if why.contains("scheduler")),
        );
    }
    rig.stop();
    api.remove("pods", &format!("azureml/{}", pod_of(&taken)));
    api.copy_pod(&pod_of(&kept), "stray-1-0");
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
        (api.made(&pod_of(&kept)), api.made(&pod_of(&taken))),
        (1, 1),
        "never twice"
    );
    api.wait(|| !api.has_pod("azureml", "stray-1-0"));
}

#[test]
fn a_compute_that_is_detached_takes_everything_of_it_along() {
    let (api, rig) = attached();
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

/// The only pod there is.
fn only_pod(api: &Api) -> String {
    api.wait(|| api.pods_left() == 1);
    api.pods().remove(0)
}

fn is_waiting(seen: Option<&NodeSeen>) -> bool {
    matches!(seen, Some(NodeSeen::Booting { why: Some(why) }) if why.contains("scheduler"))
}

#[test]
fn a_node_is_one_pod_also_for_the_next_server_and_goes_with_everything() {
    let (api, mut rig) = attached();
    api.answer("POST", "pods", &[500, 599]);
    let first = node(0);
    rig.add(&first);
    rig.add(&first);
    rig.wait_node(&first, is_waiting);
    let pod = only_pod(&api);
    assert_eq!(api.made(&pod), 1, "whatever the server answered");
    rig.stop();
    rig.open();
    assert!(
        rig.seen(&first).is_some(),
        "shown before its cluster is seen"
    );
    rig.attach();
    rig.add(&first);
    rig.wait_node(&first, is_waiting);
    assert_eq!((api.made(&pod), api.pods_left()), (1, 1));
    rig.act(Action::RemoveNode(first.clone()));
    rig.wait_node(&first, |seen| seen.is_none());
    assert_eq!((api.pods_left(), api.count_objects("secrets")), (0, 0));
    api.wait(|| rig.records() == 0);
}

#[test]
fn a_node_whose_pod_is_taken_is_under_notice_and_then_gone() {
    let (api, rig) = attached();
    let by_hand = node(0);
    rig.add(&by_hand);
    rig.wait_node(&by_hand, is_waiting);
    let pod = only_pod(&api);
    api.status(
        &pod,
        "n1",
        json!({"phase": "Running", "containerStatuses": support::running()}),
    );
    api.deleting(&pod, 20);
    rig.wait_node(&by_hand, |seen| {
        matches!(seen, Some(NodeSeen::Evicting { .. }))
    });
    api.remove("pods", &format!("azureml/{pod}"));
    rig.wait_node(&by_hand, |seen| seen.is_none());
    api.wait(|| api.count_objects("secrets") == 0);

    // The machine under it goes: nobody says anything of the pod for minutes.
    let with_machine = node(1);
    rig.add(&with_machine);
    rig.wait_node(&with_machine, is_waiting);
    let pod = only_pod(&api);
    api.status(
        &pod,
        "n1",
        json!({"phase": "Running", "containerStatuses": support::running()}),
    );
    rig.wait_node(&with_machine, |seen| {
        matches!(seen, Some(NodeSeen::Booting { why: None }))
    });
    api.remove("nodes", "n1");
    rig.wait_node(&with_machine, |seen| seen.is_none());
    api.wait(|| api.pods_left() == 0 && api.count_objects("secrets") == 0);
}

/// Its times are eleven months away from ours, and more: only spans count.
#[test]
fn the_clock_of_the_cluster_may_say_anything() {
    let (api, rig) = attached();
    let first = node(0);
    rig.add(&first);
    rig.wait_node(&first, is_waiting);
    let pod = only_pod(&api);
    let now = || port::Clock::now(&port::Machine);
    for (began, seconds) in [("2099-12-31T23:59:59Z", 600), ("1999-01-01T00:00:00Z", 20)] {
        api.status(
            &pod,
            "n1",
            json!({"phase": "Running", "startTime": began, "containerStatuses": support::running()}),
        );
        let before = now();
        api.deleting(&pod, seconds);
        let due = move |by: Time| {
            let grace = model::Millis::secs(seconds);
            before + grace <= by && by <= now() + grace
        };
        rig.wait_node(
            &first,
            |seen| matches!(seen, Some(NodeSeen::Evicting { by }) if due(*by)),
        );
    }
}

#[test]
fn a_node_is_taken_away_with_the_time_that_it_has_and_never_without() {
    let (api, rig) = attached();
    let (long, none) = (node(0), node(1));
    for (node, by) in [
        (
            &long,
            port::Clock::now(&port::Machine) + model::Millis::secs(20),
        ),
        (&none, Time(0)),
    ] {
        rig.add(node);
        rig.wait_node(node, is_waiting);
        let pod = only_pod(&api);
        rig.act(Action::Evict(node.clone(), by));
        rig.wait_node(node, |seen| seen.is_none());
        let grace = api.grace(&pod).unwrap();
        if by == Time(0) {
            assert_eq!(
                grace, 1,
                "its processes are dead before the API server forgets it"
            );
        } else {
            assert!((15..=20).contains(&grace), "{grace}");
        }
    }
}

#[test]
fn a_node_whose_image_is_no_image_is_broken_and_says_so() {
    let (api, rig) = attached();
    let first = node(0);
    rig.add(&first);
    rig.wait_node(&first, is_waiting);
    let pod = only_pod(&api);
    api.status(
        &pod,
        "n1",
        json!({"phase": "Pending", "containerStatuses": support::waiting("InvalidImageName")}),
    );
    rig.wait_node(
        &first,
        |seen| matches!(seen, Some(NodeSeen::Broken { why }) if why.contains("python:latest")),
    );
    rig.act(Action::RemoveNode(first.clone()));
    rig.wait_node(&first, |seen| seen.is_none());
    api.wait(|| (api.pods_left(), rig.records()) == (0, 0));
}

#[test]
fn a_task_on_a_node_ends_with_the_node_and_is_found_by_the_next_server() {
    let (api, mut rig) = attached();
    let first = node(0);
    rig.add(&first);
    rig.wait_node(&first, is_waiting);
    let pod = only_pod(&api);
    let id = task("train", 1);
    rig.start_on(&first, &id);
    rig.wait(&id, |_| true);
    assert_eq!(rig.records(), 2);
    rig.stop();
    rig.open();
    rig.attach();
    rig.wait(&id, |_| true);
    api.remove("pods", &format!("azureml/{pod}"));
    rig.wait_node(&first, |seen| seen.is_none());
    rig.wait_gone(&id);
    api.wait(|| rig.records() == 0);
}

/// Long enough for several tries; more time asks for little more.
const A_WHILE: std::time::Duration = std::time::Duration::from_secs(3);

#[test]
fn who_may_list_and_not_watch_does_not_list_for_ever() {
    let api = Api::start();
    api.node("n1", "4");
    api.forbid("WATCH", "nodes");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| {
        let trouble = c.trouble.as_deref().unwrap_or_default();
        trouble.contains("nodes: the kubeconfig's user may not watch them")
    });
    std::thread::sleep(A_WHILE);
    let asked = api.count("GET", "nodes");
    assert!(asked <= 14, "{asked} requests");
    api.allow_everything();
    rig.wait_cluster(|c| c.trouble.is_none());
}

#[test]
fn while_no_pod_may_be_made_one_tries_for_all() {
    let api = Api::start();
    api.node("n1", "4");
    api.forbid("POST", "pods");
    let rig = Rig::new(&api);
    rig.wait_cluster(|c| c.machines.len() == 1);
    let ids: Vec<_> = (0..30).map(|n| task(&format!("job{n}"), 1)).collect();
    for id in &ids {
        rig.start(id);
    }
    for id in &ids {
        rig.wait(
            id,
            |phase| matches!(phase, Phase::Pending { why } if why.contains("may not create them")),
        );
    }
    std::thread::sleep(A_WHILE);
    let asked = api.count("POST", "pods");
    assert!(asked <= 10, "{asked} requests");
    rig.wait_cluster(|c| c.trouble.is_some());
    api.allow_everything();
    for id in &ids {
        rig.wait(
            id,
            |phase| matches!(phase, Phase::Pending { why } if why.contains("scheduler")),
        );
        assert_eq!(api.made(&pod_of(id)), 1);
    }
    rig.wait_cluster(|c| c.trouble.is_none());
}

#[test]
fn pods_of_all_namespaces_are_seen_once_they_may_be() {
    let api = Api::start();
    api.node("n1", "4");
    api.forbid("GET", "all pods");
    api.foreign_pod("azureml", "ours", "n1", "1");
    api.foreign_pod("kube-system", "theirs", "n1", "500m");
    let rig = Rig::new(&api);
    let requested = |cpu| move |c: &model::ClusterSeen| c.machines["n1"].requested.cpu.0 == cpu;
    rig.wait_cluster(|c| c.trouble.is_none() && requested(1000)(c));
    api.allow_everything();
    rig.wait_cluster(requested(1500));
}
