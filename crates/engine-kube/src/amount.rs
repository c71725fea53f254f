//! What pods request and what nodes have, in our units.
//!
//! Q1 a pod requests what the scheduler counts for it: its containers together with its sidecars, or its largest step of
//!    initialisation when that is more, and the overhead of its runtime on top.

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec},
    apimachinery::pkg::api::resource::Quantity,
};
use model::{Bytes, MilliCpu, Resources};
use std::collections::BTreeMap;

/// Amounts by name, in our units. What is neither cores, memory nor a device (`domain/name`) is left out.
pub fn resources(amounts: Option<&BTreeMap<String, Quantity>>) -> Resources {
    let mut out = Resources::default();
    for (name, quantity) in amounts.into_iter().flatten() {
        let Ok(exact) = quantity.0.parse::<wire::quantity::Quantity>() else {
            tracing::debug!(%name, quantity = %quantity.0, "a quantity is not understood");
            continue;
        };
        match name.as_str() {
            "cpu" => out.cpu = exact.milli_cpu().unwrap_or(MilliCpu(u64::MAX)),
            "memory" => out.memory = exact.bytes().unwrap_or(Bytes(u64::MAX)),
            device if device.contains('/') => {
                let count = exact.count().ok().and_then(|n| u32::try_from(n).ok());
                out.devices.insert(device.into(), count.unwrap_or(u32::MAX));
            }
            _ => {}
        }
    }
    out.devices.retain(|_, count| *count > 0);
    out
}

fn larger(a: &Resources, b: &Resources) -> Resources {
    let mut out = Resources {
        cpu: a.cpu.max(b.cpu),
        memory: a.memory.max(b.memory),
        devices: a.devices.clone(),
    };
    for (name, &count) in &b.devices {
        let have = out.devices.entry(name.clone()).or_default();
        *have = count.max(*have);
    }
    out
}

fn of(container: &Container) -> Resources {
    let named = container.resources.as_ref();
    // A limit without a request is one: the API server has filled it in, except for devices of old objects.
    let mut out = resources(named.and_then(|r| r.requests.as_ref()));
    let limits = resources(named.and_then(|r| r.limits.as_ref()));
    for (name, count) in limits.devices {
        out.devices.entry(name).or_insert(count);
    }
    out
}

/// What a pod requests (Q1).
pub fn requested(spec: &PodSpec) -> Resources {
    let mut running = Resources::default();
    for container in &spec.containers {
        running.add(&of(container));
    }
    let (mut sidecars, mut first) = (Resources::default(), Resources::default());
    for init in spec.init_containers.iter().flatten() {
        let mut step = of(init);
        step.add(&sidecars);
        if init.restart_policy.as_deref() == Some("Always") {
            sidecars = step.clone();
        }
        first = larger(&first, &step);
    }
    running.add(&sidecars);
    let mut all = larger(&running, &first);
    if let Some(whole) = spec.resources.as_ref().and_then(|r| r.requests.as_ref()) {
        let whole = resources(Some(whole));
        if whole.cpu.0 > 0 {
            all.cpu = whole.cpu;
        }
        if whole.memory.0 > 0 {
            all.memory = whole.memory;
        }
    }
    all.add(&resources(spec.overhead.as_ref()));
    all
}

/// What a pod takes of the machine that it is on; `None` when it is on none, or has ended.
pub fn held(pod: &Pod) -> Option<(Box<str>, Resources)> {
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.as_deref()?;
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return None;
    }
    Some((node.into(), requested(spec)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: serde_json::Value) -> PodSpec {
        serde_json::from_value(spec).unwrap()
    }

    fn shown(spec: serde_json::Value) -> String {
        let all = requested(&pod(spec));
        format!("{} {} {:?}", all.cpu, all.memory, all.devices)
    }

    #[test]
    fn q1_requests_are_what_the_scheduler_counts() {
        let c = |cpu: &str, memory: &str| serde_json::json!({"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}});
        let always = |cpu: &str, memory: &str| {
            let mut sidecar = c(cpu, memory);
            sidecar["restartPolicy"] = "Always".into();
            sidecar
        };
        // containers add up
        assert_eq!(
            shown(serde_json::json!({"containers": [c("100m", "1Gi"), c("0.2", "512Mi")]})),
            "300m 1536Mi {}"
        );
        // an initialisation counts where it is more, each resource by itself
        assert_eq!(
            shown(
                serde_json::json!({"containers": [c("1", "1Gi")], "initContainers": [c("2", "1Mi"), c("500m", "3Gi")]})
            ),
            "2 3Gi {}"
        );
        // a sidecar stays: it counts beside the containers and beside the steps after it
        assert_eq!(
            shown(
                serde_json::json!({"containers": [c("1", "1Gi")], "initContainers": [always("500m", "1Gi"), c("2", "1Gi")]})
            ),
            "2500m 2Gi {}"
        );
        // the runtime's overhead is on top
        assert_eq!(
            shown(
                serde_json::json!({"containers": [c("1", "1Gi")], "overhead": {"cpu": "250m", "memory": "1Gi"}})
            ),
            "1250m 2Gi {}"
        );
        // devices are given as limits
        assert_eq!(
            shown(
                serde_json::json!({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]})
            ),
            "0 0 {\"nvidia.com/gpu\": 2}"
        );
    }

    #[test]
    fn what_has_ended_or_is_nowhere_takes_nothing() {
        let pod = |node: Option<&str>, phase: &str| -> Pod {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "p"},
                "spec": {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": phase},
            }))
            .unwrap()
        };
        assert!(held(&pod(Some("n"), "Running")).is_some());
        assert!(
            held(&pod(Some("n"), "Pending")).is_some(),
            "placed, not started"
        );
        assert!(held(&pod(None, "Pending")).is_none());
        assert!(held(&pod(Some("n"), "Succeeded")).is_none());
        assert!(held(&pod(Some("n"), "Failed")).is_none());
    }
}
