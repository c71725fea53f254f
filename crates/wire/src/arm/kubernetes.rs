//! Kubernetes computes: the body of `PUT computes/NAME` with `computeType: Kubernetes` ⇄ `KubernetesSpec`.
//!
//! Azure's own fields are `namespace`, `defaultInstanceType` and `instanceTypes`; fields whose name begins with `zaffre.` are
//! ours; everything else is kept as it was sent (wire §4).

use super::{Invalid, field::Field};
use crate::{crd, names::shown};
use model::{
    KubernetesSpec, Labels, SelectorMode,
    instance_type::{InstanceType, is_label_key, is_label_value},
    kubernetes::PullPolicy,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Namespace when nothing is said (behaviour §2.1.4).
pub const DEFAULT_NAMESPACE: &str = "default";
/// The kubeconfig of the cluster: its text in a PUT, its digest in what is stored and shown.
pub const KUBECONFIG: &str = "zaffre.kubeconfig";
/// How the digest of a kubeconfig begins.
pub const DIGEST: &str = "sha256:";
/// What the names of our fields begin with.
const OURS: &str = "zaffre.";
const SELECTOR: &str = "zaffre.node_selector";
const MODE: &str = "zaffre.selector_mode";
const PULL_POLICY: &str = "zaffre.image_pull_policy";
const AGENT_IMAGE: &str = "zaffre.agent_image";
const RUN_AS_USER: &str = "zaffre.run_as_user";
/// Types of one compute: a page of them is read at once, and each costs a few hundred bytes in every view.
const MAX_TYPES: usize = 1000;
/// Longest name of a namespace, and of anything that is a DNS label.
const MAX_DNS_LABEL: usize = 63;
/// Hex digits of a SHA-256.
const DIGEST_DIGITS: usize = 64;

const MODES: [(&str, SelectorMode); 2] = [
    ("merge", SelectorMode::Merge),
    ("strict", SelectorMode::Strict),
];
const POLICIES: [(&str, PullPolicy); 3] = [
    ("IfNotPresent", PullPolicy::IfNotPresent),
    ("Always", PullPolicy::Always),
    ("Never", PullPolicy::Never),
];

/// A Kubernetes compute as declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Kubernetes {
    /// What decisions need.
    pub spec: KubernetesSpec,
    /// What will have no effect here.
    pub warnings: Vec<String>,
}

/// Whether the body of a compute says that it is one of Kubernetes.
pub fn is_kubernetes(body: &Value) -> bool {
    let kind = body.pointer("/properties/computeType");
    kind.and_then(Value::as_str)
        .is_some_and(|kind| kind.eq_ignore_ascii_case("Kubernetes"))
}

/// Takes from a body what its sender was shown and did not make: types that are the cluster's (`shown`), so that a document
/// that is read and sent back makes no type the compute's own.
pub fn without_shown_types(body: &mut Value, shown: &BTreeMap<Box<str>, InstanceType>) {
    let types = body.pointer_mut("/properties/properties/instanceTypes");
    let Some(types) = types.and_then(Value::as_object_mut) else {
        return;
    };
    types.retain(|name, value| {
        let Some(known) = shown.get(name.as_str()) else {
            return true;
        };
        instance_type(name, &Field::root(value)).map_or(true, |sent| sent != *known)
    });
}

/// Reads the body of a Kubernetes compute.
pub fn kubernetes(body: &Value) -> Result<Kubernetes, Invalid> {
    let outer = Field::root(body).get("properties").need_object()?;
    outer.get("resourceId").text()?;
    let p = outer.get("properties").maybe_object()?;
    p.known_only(
        OURS,
        &[
            KUBECONFIG,
            SELECTOR,
            MODE,
            PULL_POLICY,
            AGENT_IMAGE,
            RUN_AS_USER,
        ],
    )?;
    let mut warnings = Vec::new();
    for key in ["identity", "disableLocalAuth"] {
        if outer.get(key).value().is_some_and(|v| *v != json!(false)) {
            warnings.push(format!("{key} has no effect here"));
        }
    }
    let default_type = p.get("defaultInstanceType").text()?;
    let run_as_user = p.get(RUN_AS_USER).whole(1..=i64::from(u32::MAX))?;
    let spec = KubernetesSpec {
        kubeconfig: kubeconfig(&p.get(KUBECONFIG))?,
        namespace: namespace(&p.get("namespace"))?,
        node_selector: labels(&p.get(SELECTOR))?,
        selector_mode: p.get(MODE).choice(&MODES)?.unwrap_or_default(),
        default_type: default_type.filter(|t| !t.is_empty()).map(Into::into),
        types: types(&p.get("instanceTypes"))?,
        pull_policy: p.get(PULL_POLICY).choice(&POLICIES)?.unwrap_or_default(),
        agent_image: p.get(AGENT_IMAGE).text()?.map(Into::into),
        run_as_user: run_as_user.and_then(|uid| u32::try_from(uid).ok()),
    };
    if spec.is_attached() && !spec.types.is_empty() {
        return Err(p.get("instanceTypes").refuse(
            "names instance types, and those of an attached cluster are its own: kubectl apply -f FILE",
        ));
    }
    Ok(Kubernetes { spec, warnings })
}

fn kubeconfig(field: &Field<'_>) -> Result<Option<Box<str>>, Invalid> {
    let Some(text) = field.text()? else {
        return Ok(None);
    };
    let digest = text.strip_prefix(DIGEST).filter(|digest| {
        digest.len() == DIGEST_DIGITS && digest.bytes().all(|b| b.is_ascii_hexdigit())
    });
    match digest {
        Some(digest) => Ok(Some(digest.into())),
        // never with its value: it is a secret
        None => Err(field.refuse("is neither a kubeconfig nor the digest of one that is kept")),
    }
}

fn namespace(field: &Field<'_>) -> Result<Box<str>, Invalid> {
    let text = field.text()?.unwrap_or(DEFAULT_NAMESPACE);
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = text.as_bytes();
    let legal = (1..=MAX_DNS_LABEL).contains(&bytes.len())
        && bytes.iter().all(|&c| inner(c) || c == b'-')
        && bytes.first().copied().is_some_and(inner)
        && bytes.last().copied().is_some_and(inner);
    if legal {
        Ok(text.into())
    } else {
        Err(field.refuse(format!(
            "is `{}`, a namespace is 1 to {MAX_DNS_LABEL} lower case letters, digits and -, the first and the last no -",
            shown(text)
        )))
    }
}

fn labels(field: &Field<'_>) -> Result<Labels, Invalid> {
    let mut labels = Labels::new();
    for (key, value) in field.entries()? {
        let text = value.need_text()?;
        if !is_label_key(key) {
            return Err(value.refuse(format!("has the key `{}`, which is no label", shown(key))));
        }
        if !is_label_value(text) {
            return Err(value.refuse(format!("is `{}`, which no label can be", shown(text))));
        }
        labels.insert(key.into(), text.into());
    }
    Ok(labels)
}

fn types(field: &Field<'_>) -> Result<BTreeMap<Box<str>, InstanceType>, Invalid> {
    let entries = field.entries()?;
    if entries.len() > MAX_TYPES {
        return Err(field.refuse(format!(
            "has {} entries, allowed are {MAX_TYPES}",
            entries.len()
        )));
    }
    let built_in = InstanceType::default_type();
    let mut types = BTreeMap::new();
    for (name, entry) in entries {
        let read = instance_type(name, &entry)?;
        // Who sends back what was shown sends the built-in one too; that is no type of this compute.
        if read != built_in {
            types.insert(name.into(), read);
        }
    }
    Ok(types)
}

/// One entry of `instanceTypes`: the same rules as a Kubernetes object of that name, whose `spec` it is.
fn instance_type(name: &str, field: &Field<'_>) -> Result<InstanceType, Invalid> {
    let mut spec = field.value().cloned().unwrap_or_default();
    if let Some(map) = spec.as_object_mut()
        && map.get("nodeSelector").is_some_and(Value::is_null)
    {
        map.remove("nodeSelector");
    }
    let object = json!({
        "apiVersion": crd::API_VERSION,
        "kind": crd::KIND,
        "metadata": {"name": name},
        "spec": spec,
    });
    match crd::check(&object, crd::Strictness::Strict) {
        Ok(checked) => Ok(checked.instance_type),
        Err(refused) => Err(field.refuse(format!("is no instance type: {}", refused))),
    }
}

/// Largest kubeconfig: those of people with a hundred clusters have some hundred kilobytes.
const MAX_KUBECONFIG: usize = 1 << 20;

/// The kubeconfig that the body of a PUT brings, if it brings one: a secret, to be kept apart. In its place stands its digest
/// from then on (`put_digest`). A file that could not be used, or that would make the server read files or run programs of its
/// own, is refused; no part of it is ever repeated in a message.
pub fn kubeconfig_of(body: &Value) -> Result<Option<&str>, Invalid> {
    if !is_kubernetes(body) {
        return Ok(None);
    }
    let outer = Field::root(body).get("properties").need_object()?;
    let field = outer.get("properties").maybe_object()?.get(KUBECONFIG);
    let Some(text) = field.text()?.filter(|text| !text.starts_with(DIGEST)) else {
        return Ok(None);
    };
    if text.len() > MAX_KUBECONFIG {
        return Err(field.refuse(format!(
            "has {} bytes, allowed are {MAX_KUBECONFIG}",
            text.len()
        )));
    }
    let Ok(config) = serde_saphyr::from_str::<Value>(text) else {
        return Err(field.refuse("is not YAML"));
    };
    whole_by_itself(&field, &config)?;
    Ok(Some(text))
}

/// Puts the digest where the kubeconfig was.
pub fn put_digest(body: &mut Value, digest: &str) {
    body["properties"]["properties"][KUBECONFIG] = json!(format!("{DIGEST}{digest}"));
}

fn whole_by_itself(field: &Field<'_>, config: &Value) -> Result<(), Invalid> {
    let lists = |key: &str| config[key].as_array().map_or(&[][..], Vec::as_slice);
    if lists("clusters").is_empty() || lists("users").is_empty() {
        return Err(field.refuse("has no clusters or no users: it is no kubeconfig"));
    }
    let files = [
        ("clusters", "cluster", "certificate-authority"),
        ("users", "user", "client-certificate"),
        ("users", "user", "client-key"),
        ("users", "user", "tokenFile"),
    ];
    for (list, entry, key) in files {
        if lists(list).iter().any(|e| !e[entry][key].is_null()) {
            return Err(field
                .refuse(format!("names a file under {list}: {key}"))
                .hint("`kubectl config view --minify --flatten` writes one without"));
        }
    }
    for key in ["exec", "auth-provider"] {
        if lists("users").iter().any(|e| !e["user"][key].is_null()) {
            return Err(field
                .refuse(format!("would run a program on the server (users: {key})"))
                .hint("use a token or a client certificate, such as a service account's"));
        }
    }
    Ok(())
}
