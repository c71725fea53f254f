//! Computes that were made elsewhere and are attached: machines and services that Zaffre knows by name and does not run work on
//! yet. Their documents are kept; work that names one is refused by name.

use super::{Invalid, field::Field, target::Target};
use serde_json::Value;

/// Checks the body of an attached compute.
pub fn attached(target: Target, body: &Value) -> Result<(), Invalid> {
    let outer = Field::root(body).get("properties").need_object()?;
    outer.get("description").text()?;
    let resource = outer.get("resourceId");
    match target {
        Target::VirtualMachine | Target::SynapseSpark => {
            resource.need_text()?;
        }
        _ => {
            resource.text()?;
        }
    }
    let p = outer.get("properties").maybe_object()?;
    match target {
        Target::VirtualMachine | Target::HdInsight => machine(&p)?,
        Target::Databricks => {
            secret(&p.get("databricksAccessToken"))?;
            p.get("workspaceUrl").text()?;
        }
        Target::DataLakeAnalytics => {
            p.get("dataLakeStoreAccountName").text()?;
        }
        Target::SynapseSpark => spark(&p)?,
        Target::Aks => {
            p.get("agentCount").whole(0..=i64::from(i32::MAX))?;
            let ssl = p.get("sslConfiguration").maybe_object()?;
            secret(&ssl.get("key"))?;
            secret(&ssl.get("cert"))?;
        }
        Target::DataFactory | Target::AmlCompute | Target::ComputeInstance | Target::Kubernetes => {
        }
    }
    Ok(())
}

fn machine(p: &Field<'_>) -> Result<(), Invalid> {
    p.get("sshPort").whole(1..=i64::from(u16::MAX))?;
    p.get("address").text()?;
    let account = p.get("administratorAccount").maybe_object()?;
    account.get("username").text()?;
    account.get("publicKeyData").text()?;
    let (password, key) = (account.get("password"), account.get("privateKeyData"));
    secret(&password)?;
    secret(&key)?;
    if password.value().is_some() && key.value().is_some() {
        return Err(key.refuse("and password exclude each other"));
    }
    Ok(())
}

fn spark(p: &Field<'_>) -> Result<(), Invalid> {
    let scale = p.get("autoScaleProperties").maybe_object()?;
    let most = scale.get("maxNodeCount").whole(0..=i64::from(i32::MAX))?;
    let least = scale.get("minNodeCount");
    if let (Some(min), Some(max)) = (least.whole(0..=i64::from(i32::MAX))?, most)
        && min > max
    {
        return Err(least.refuse(format!("{min} is above maxNodeCount {max}")));
    }
    p.get("autoPauseProperties").maybe_object()?;
    Ok(())
}

/// A secret is a text; a message never shows it. How long it may be is checked when it is sealed.
fn secret(field: &Field<'_>) -> Result<(), Invalid> {
    match field.value() {
        None | Some(Value::String(_)) => Ok(()),
        Some(_) => Err(field.refuse("is no text")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(target: Target, properties: &Value) -> Result<(), String> {
        attached(target, properties).map_err(|e| e.message)
    }

    #[test]
    fn a_machine_has_a_resource_and_one_credential() {
        let body = |account: Value| {
            json!({"properties": {"computeType": "VirtualMachine", "resourceId": "/x",
                "properties": {"sshPort": 22, "administratorAccount": account}}})
        };
        assert_eq!(
            of(Target::VirtualMachine, &body(json!({"password": "p"}))),
            Ok(())
        );
        assert_eq!(
            of(
                Target::VirtualMachine,
                &body(json!({"password": "p", "privateKeyData": "k"}))
            ),
            Err("privateKeyData and password exclude each other".into())
        );
        assert_eq!(
            of(Target::VirtualMachine, &body(json!({"password": 5}))),
            Err("password is no text".into())
        );
        let nameless = json!({"properties": {"computeType": "VirtualMachine"}});
        assert_eq!(
            of(Target::VirtualMachine, &nameless),
            Err("resourceId is required".into())
        );
    }

    #[test]
    fn every_kind_is_read_in_any_case() {
        for target in Target::ALL {
            let body = json!({"properties": {"computeType": target.word().to_ascii_uppercase()}});
            assert_eq!(Target::of(&body), Some(target));
            assert_eq!(Target::read("c", &body), Ok(target));
        }
        let body = json!({"properties": {"computeType": "Abacus"}});
        let refused = Target::read("c", &body).unwrap_err().message;
        assert!(refused.starts_with("computeType of c is `Abacus`, known are AmlCompute"));
    }
}
