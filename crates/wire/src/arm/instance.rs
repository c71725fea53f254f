//! Compute instances: the body of `PUT computes/NAME` with `computeType: ComputeInstance`.
//!
//! An instance is a cluster of exactly one node that is there while the instance is on and gone while it is off: what starts,
//! counts against quotas and runs jobs is the same as for clusters.
//!
//! P1 whether it is on is part of its document (`POWER`), which clients neither see nor set: only `start` and `stop` do.

use super::{Invalid, compute::DEFAULT_SIZE, compute::node_size, field::Field};
use crate::{names::shown, sizes};
use model::{ClusterSpec, Millis, Tier};
use serde_json::{Map, Value, json};
use std::ops::RangeInclusive;

/// Where the document says whether the instance is on, inside `properties.properties` (P1).
pub const POWER: &str = "zaffre.power";
/// Azure's limit of the schedules of an instance.
const MAX_SCHEDULES: usize = 4;
/// Idle time before an instance shuts down: Azure's limits (§2.1.3).
const IDLE: RangeInclusive<Millis> = Millis::secs(15 * 60)..=Millis::secs(3 * 86_400);

/// What was asked of an instance last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It was made, which starts it.
    Create,
    /// It was started.
    Start,
    /// It was stopped.
    Stop,
    /// It was stopped and started.
    Restart,
}

impl Asked {
    /// Azure's name of the operation.
    pub fn word(self) -> &'static str {
        match self {
            Asked::Create => "Create",
            Asked::Start => "Start",
            Asked::Stop => "Stop",
            Asked::Restart => "Restart",
        }
    }
    /// Whether the instance is on after it.
    pub fn is_on(self) -> bool {
        self != Asked::Stop
    }
    /// What a stored body says.
    pub fn of(body: &Value) -> Asked {
        let power = &body["properties"]["properties"][POWER];
        [Asked::Start, Asked::Stop, Asked::Restart]
            .into_iter()
            .find(|asked| *power == asked.word())
            .unwrap_or(Asked::Create)
    }
    /// Writes it into a body.
    pub fn put(self, body: &mut Value) {
        if let Some(inner) = inner_mut(body) {
            inner.insert(POWER.into(), json!(self.word()));
        }
    }
    /// Takes it out of a body: what a client sends of it means nothing.
    pub fn remove(body: &mut Value) {
        if let Some(inner) = inner_mut(body) {
            inner.remove(POWER);
        }
    }
}

fn inner_mut(body: &mut Value) -> Option<&mut Map<String, Value>> {
    body.pointer_mut("/properties/properties")?.as_object_mut()
}

/// An instance as declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// What decisions need.
    pub spec: ClusterSpec,
    /// `properties.properties` with every default filled in, without `POWER`.
    pub properties: Map<String, Value>,
    /// What will have no effect here.
    pub warnings: Vec<String>,
}

/// Reads the body of an instance.
pub fn instance(body: &Value) -> Result<Instance, Invalid> {
    let outer = Field::root(body).get("properties").need_object()?;
    outer.get("description").text()?;
    let p = outer.get("properties").need_object()?;
    let mut warnings = Vec::new();
    let size = p.get("vmSize");
    let sent = size.text()?.unwrap_or(DEFAULT_SIZE);
    let found = sizes::find(sent).ok_or_else(|| {
        size.refuse(format!("`{}` is not a known size", shown(sent)))
            .hint(format!("the nearest is {}", sizes::nearest_to(sent).name))
    })?;
    if !found.instance {
        return Err(size.refuse(format!(
            "{} cannot be the size of a compute instance",
            found.name
        )));
    }
    warnings.extend(found.retired_on());
    let priority = p.get("vmPriority");
    if priority
        .text()?
        .is_some_and(|p| !p.eq_ignore_ascii_case("Dedicated"))
    {
        return Err(priority.refuse("of a compute instance is Dedicated, nothing else"));
    }
    let idle = p.get("idleTimeBeforeShutdown");
    if let Some(after) = idle.duration()? {
        if !IDLE.contains(&after) {
            return Err(idle.refuse("is outside PT15M to P3D"));
        }
        warnings
            .push("idleTimeBeforeShutdown is kept, but an idle instance is not stopped yet".into());
    }
    schedules(&p.get("schedules").maybe_object()?, &mut warnings)?;
    for (key, what) in [
        ("setupScripts", "setup scripts are kept, but not run yet"),
        (
            "customServices",
            "custom applications are kept, but not started yet",
        ),
    ] {
        if p.get(key).value().is_some() {
            warnings.push(what.into());
        }
    }
    let ssh = p.get("sshSettings").maybe_object()?;
    if ssh
        .get("sshPublicAccess")
        .text()?
        .is_some_and(|access| access.eq_ignore_ascii_case("Enabled"))
    {
        warnings.push("nodes here have no ssh: sshSettings has no effect".into());
    }
    let mut properties = p.object()?.cloned().unwrap_or_default();
    properties.remove(POWER);
    // shown as the user spelled it: scripts compare it with their own file
    properties.insert("vmSize".into(), json!(sent));
    for (key, value) in [
        ("enableNodePublicIp", json!(true)),
        ("enableSSO", json!(true)),
        ("enableRootAccess", json!(true)),
        ("releaseQuotaOnStop", json!(false)),
        ("enableOSPatching", json!(false)),
        ("applicationSharingPolicy", json!("Shared")),
        ("computeInstanceAuthorizationType", json!("personal")),
    ] {
        crate::view::envelope::fill(&mut properties, key, value);
    }
    let nodes = u32::from(Asked::of(body).is_on());
    Ok(Instance {
        spec: ClusterSpec {
            size: node_size(found),
            tier: Tier::Dedicated,
            min: nodes,
            max: nodes,
            // off means off at once
            idle: Millis(0),
            pods: None,
        },
        properties,
        warnings,
    })
}

fn schedules(field: &Field<'_>, warnings: &mut Vec<String>) -> Result<(), Invalid> {
    let list = field.get("computeStartStop");
    let items = list.items()?;
    if items.len() > MAX_SCHEDULES {
        return Err(list.refuse(format!(
            "has {} entries, allowed are {MAX_SCHEDULES}",
            items.len()
        )));
    }
    const ACTIONS: [(&str, ()); 2] = [("start", ()), ("stop", ())];
    const STATES: [(&str, ()); 2] = [("enabled", ()), ("disabled", ())];
    const TRIGGERS: [(&str, bool); 2] = [("Cron", true), ("Recurrence", false)];
    for item in &items {
        let action = item.get("action");
        if action.choice(&ACTIONS)?.is_none() {
            return Err(action.missing());
        }
        item.get("status").choice(&STATES)?;
        // a schedule of the first API says all of it in `schedule`
        match item.get("triggerType").choice(&TRIGGERS)? {
            Some(true) => {
                item.get("cron")
                    .need_object()?
                    .get("expression")
                    .need_text()?;
            }
            Some(false) => {
                let recurrence = item.get("recurrence").need_object()?;
                recurrence.get("frequency").need_text()?;
                recurrence.get("interval").whole(1..=i64::from(i32::MAX))?;
            }
            None => {}
        }
    }
    if !items.is_empty() {
        warnings.push("schedules are kept, but not carried out yet".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(properties: Value) -> Value {
        json!({"properties": {"computeType": "ComputeInstance", "properties": properties}})
    }

    #[test]
    fn an_instance_is_one_node_while_it_is_on() {
        let mut on = body(json!({"vmSize": "STANDARD_DS3_v2"}));
        let read = instance(&on).unwrap();
        assert_eq!((read.spec.min, read.spec.max), (1, 1));
        assert_eq!(read.properties["vmSize"], "STANDARD_DS3_v2");
        assert_eq!(read.properties["enableSSO"], true);
        Asked::Stop.put(&mut on);
        let off = instance(&on).unwrap();
        assert_eq!((off.spec.min, off.spec.max), (0, 0));
        assert!(!off.properties.contains_key(POWER), "P1");
        Asked::Restart.put(&mut on);
        assert_eq!(Asked::of(&on), Asked::Restart);
        Asked::remove(&mut on);
        assert_eq!(Asked::of(&on), Asked::Create);
    }

    #[test]
    fn what_breaks_a_rule_is_named() {
        for (properties, message) in [
            (
                json!({"vmSize": "huge"}),
                "vmSize `huge` is not a known size",
            ),
            (
                json!({"vmPriority": "LowPriority"}),
                "vmPriority of a compute instance is Dedicated, nothing else",
            ),
            (
                json!({"idleTimeBeforeShutdown": "PT5M"}),
                "idleTimeBeforeShutdown is outside PT15M to P3D",
            ),
            (
                json!({"schedules": {"computeStartStop": [{"action": "hop"}]}}),
                "action is `hop`, known are start, stop",
            ),
            (
                json!({"schedules": {"computeStartStop": [{"action": "stop", "triggerType": "Cron"}]}}),
                "cron is required",
            ),
        ] {
            assert_eq!(instance(&body(properties)).unwrap_err().message, message);
        }
        let five: Vec<Value> = (0..5).map(|_| json!({"action": "stop"})).collect();
        let refused = instance(&body(json!({"schedules": {"computeStartStop": five}})));
        assert_eq!(
            refused.unwrap_err().message,
            "computeStartStop has 5 entries, allowed are 4"
        );
    }
}
