//! Roles: Azure's built-in ones, and those that users define with the files of `az role definition`.
//!
//! Z1 what a role may is what an action of it names and no not-action does; data actions are the actions on blobs, and a
//!    not-action of either kind takes them away;
//! Z2 a role that was defined is held only at its assignable scopes and below.

use super::{check_scope, covers, plain_scope};
use crate::{
    arm::{Invalid, link::body},
    names::{did_you_mean, shown},
};
use model::Document;
use serde_json::{Map, Value, json};
use std::sync::{Arc, LazyLock};

/// Longest name of a role, as in Azure.
const MAX_NAME_CHARS: usize = 512;
/// Longest description of a role, as in Azure.
const MAX_DESCRIPTION_CHARS: usize = 2_048;
/// Actions of one list, and assignable scopes.
const MAX_ENTRIES: usize = 2_048;
/// Longest action.
const MAX_ACTION_BYTES: usize = 256;
/// What the actions on the data itself begin with.
const DATA: &str = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/";

/// What a job may do in its own workspace.
pub const DATA_SCIENTIST: &str = "AzureML Data Scientist";

/// A role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// The id of its definition.
    pub id: String,
    /// What it is for.
    pub description: String,
    /// Where it may be held, and below.
    pub scopes: Vec<String>,
    /// Whether it is one of Azure's.
    pub built_in: bool,
    actions: Vec<String>,
    not_actions: Vec<String>,
    data_actions: Vec<String>,
    not_data_actions: Vec<String>,
}

/// Name, id, actions, not-actions.
type Known = (
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// The built-in roles, with Azure's ids and actions. Ours is in addition: an AzureML Compute Operator may read the workspace,
/// without which no client finds a compute in it.
const KNOWN: &[Known] = &[
    ("Owner", "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", &["*"], &[]),
    (
        "Contributor",
        "b24988ac-6180-42a0-ab88-20f7382dd24c",
        &["*"],
        &[
            "Microsoft.Authorization/*/delete",
            "Microsoft.Authorization/*/write",
            "Microsoft.Authorization/elevateAccess/action",
        ],
    ),
    (
        "Reader",
        "acdd72a7-3385-48ef-bd42-f606fba81ae7",
        &["*/read"],
        &[],
    ),
    (
        DATA_SCIENTIST,
        "f6c7c914-8db3-469d-8ca1-694a8f32e121",
        &[
            "Microsoft.MachineLearningServices/workspaces/*/read",
            "Microsoft.MachineLearningServices/workspaces/*/action",
            "Microsoft.MachineLearningServices/workspaces/*/delete",
            "Microsoft.MachineLearningServices/workspaces/*/write",
        ],
        &[
            "Microsoft.MachineLearningServices/workspaces/delete",
            "Microsoft.MachineLearningServices/workspaces/write",
            "Microsoft.MachineLearningServices/workspaces/computes/*/write",
            "Microsoft.MachineLearningServices/workspaces/computes/*/delete",
            "Microsoft.MachineLearningServices/workspaces/computes/listKeys/action",
            "Microsoft.MachineLearningServices/workspaces/listKeys/action",
        ],
    ),
    (
        "AzureML Compute Operator",
        "e503ece1-11d0-4e8e-8e2c-7a6c3bf38815",
        &[
            "Microsoft.MachineLearningServices/workspaces/computes/*",
            "Microsoft.MachineLearningServices/workspaces/notebooks/vm/*",
            "Microsoft.MachineLearningServices/workspaces/read",
        ],
        &[],
    ),
];

static BUILT_IN: LazyLock<Vec<Arc<Role>>> = LazyLock::new(|| {
    let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect();
    let role = |(name, id, actions, not_actions): &Known| Role {
        name: (*name).to_owned(),
        id: (*id).to_owned(),
        description: String::new(),
        scopes: vec!["/".to_owned()],
        built_in: true,
        actions: texts(actions),
        not_actions: texts(not_actions),
        data_actions: vec![],
        not_data_actions: vec![],
    };
    KNOWN.iter().map(|known| Arc::new(role(known))).collect()
});

/// The built-in roles.
pub fn built_in() -> &'static [Arc<Role>] {
    &BUILT_IN
}

impl Role {
    /// The role of this name, this id, or this resource id of a definition: a built-in one, or one of `custom`.
    pub fn find(text: &str, custom: &[Arc<Role>]) -> Option<Arc<Role>> {
        let last = text.rsplit('/').next().unwrap_or(text);
        let mut all = built_in().iter().chain(custom);
        all.find(|r| r.name.eq_ignore_ascii_case(text) || r.id.eq_ignore_ascii_case(last))
            .cloned()
    }

    /// Whether it has the action (Q1, Z1).
    pub fn allows(&self, action: &str) -> bool {
        let among = |patterns: &[String]| patterns.iter().any(|p| fits(p, action));
        let data = action
            .get(..DATA.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(DATA));
        let given = among(&self.actions) || data && among(&self.data_actions);
        given && !among(&self.not_actions) && !(data && among(&self.not_data_actions))
    }

    /// Whether it may be held at `scope` (Z2).
    pub fn is_assignable(&self, scope: &str) -> bool {
        self.scopes.iter().any(|own| covers(own, scope))
    }

    /// Whether it is of interest at `scope`: it may be held there, above or below.
    pub fn is_near(&self, scope: &str) -> bool {
        let mut all = self.scopes.iter();
        all.any(|own| covers(own, scope) || covers(scope, own))
    }
}

/// Whether an action fits a pattern (Q1).
fn fits(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_ascii_lowercase(), action.to_ascii_lowercase());
    glob(&pattern, &action) || glob(&pattern.replace("/*/", "/"), &action)
}

fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn wrong(at: &str, rule: impl Into<String>) -> Invalid {
    Invalid::validation(at.to_owned(), rule.into())
}

/// Whether a text is an id of a definition: a UUID, as in Azure.
pub fn check_id(id: &str) -> Result<(), Invalid> {
    let shape = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    if id.len() == 36 && id.bytes().enumerate().all(shape) {
        return Ok(());
    }
    Err(wrong(
        "/name",
        format!("the id of a role definition is a UUID, not `{}`", shown(id)),
    ))
}

/// Reads what a client sends for the definition with this id.
pub fn definition(id: &str, body: &Value) -> Result<Role, Invalid> {
    check_id(id)?;
    let properties = &body["properties"];
    let text = |field: &str, most: usize| -> Result<String, Invalid> {
        let at = format!("/properties/{field}");
        match &properties[field] {
            Value::Null => Ok(String::new()),
            Value::String(text) if text.chars().count() <= most => Ok(text.clone()),
            Value::String(_) => Err(wrong(
                &at,
                format!("{field} is longer than {most} characters"),
            )),
            other => Err(wrong(&at, format!("{field} {other} is no text"))),
        }
    };
    let name = text("roleName", MAX_NAME_CHARS)?;
    if name.trim().is_empty() || name.chars().any(char::is_control) {
        return Err(wrong(
            "/properties/roleName",
            "roleName of a role definition is missing or not printable",
        ));
    }
    if let Some(kind) = properties["type"].as_str()
        && !kind.eq_ignore_ascii_case("CustomRole")
    {
        return Err(wrong(
            "/properties/type",
            format!(
                "type `{}` is not CustomRole: others are Azure's",
                shown(kind)
            ),
        ));
    }
    let permissions = match &properties["permissions"] {
        Value::Array(all) if all.len() == 1 => &all[0],
        Value::Null => &Value::Null,
        _ => {
            return Err(wrong(
                "/properties/permissions",
                "permissions of a role definition is a list of one",
            ));
        }
    };
    let list = |field| actions(permissions, field);
    let role = Role {
        name,
        id: id.to_ascii_lowercase(),
        description: text("description", MAX_DESCRIPTION_CHARS)?,
        scopes: scopes(&properties["assignableScopes"])?,
        built_in: false,
        actions: list("actions")?,
        not_actions: list("notActions")?,
        data_actions: list("dataActions")?,
        not_data_actions: list("notDataActions")?,
    };
    if role.actions.is_empty() && role.data_actions.is_empty() {
        return Err(wrong(
            "/properties/permissions",
            format!(
                "role `{}` has neither actions nor dataActions: it would allow nothing",
                shown(&role.name)
            ),
        ));
    }
    Ok(role)
}

fn entries(at: &str, value: &Value) -> Result<Vec<String>, Invalid> {
    let all = match value {
        Value::Null => return Ok(vec![]),
        Value::Array(all) if all.len() <= MAX_ENTRIES => all,
        Value::Array(all) => {
            return Err(wrong(
                at,
                format!("{} entries, allowed are {MAX_ENTRIES}", all.len()),
            ));
        }
        other => return Err(wrong(at, format!("{other} is no list"))),
    };
    let text = |(n, entry): (usize, &Value)| {
        let text = entry.as_str().map(str::to_owned);
        text.ok_or_else(|| wrong(&format!("{at}/{n}"), format!("{entry} is no text")))
    };
    all.iter().enumerate().map(text).collect()
}

fn actions(permissions: &Value, field: &str) -> Result<Vec<String>, Invalid> {
    let at = format!("/properties/permissions/0/{field}");
    let all = entries(&at, &permissions[field])?;
    for (n, action) in all.iter().enumerate() {
        let legal = (1..=MAX_ACTION_BYTES).contains(&action.len())
            && (action == "*" || action.contains('/'))
            && action
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"./*_-".contains(&b));
        if !legal {
            return Err(wrong(
                &format!("{at}/{n}"),
                format!(
                    "`{}` is no action: it reads Provider.Name/resource/verb, and * stands for any text",
                    shown(action)
                ),
            ));
        }
        let data = field.to_ascii_lowercase().contains("data");
        let about_data = fits(action, &format!("{DATA}read"))
            || action
                .get(..DATA.len())
                .is_some_and(|begin| begin.eq_ignore_ascii_case(DATA));
        if data && !about_data {
            return Err(wrong(
                &format!("{at}/{n}"),
                format!(
                    "`{}` is no data action: those begin with {DATA}",
                    shown(action)
                ),
            ));
        }
    }
    Ok(all)
}

fn scopes(value: &Value) -> Result<Vec<String>, Invalid> {
    const AT: &str = "/properties/assignableScopes";
    let all = entries(AT, value)?;
    if all.is_empty() {
        return Err(wrong(
            AT,
            "assignableScopes of a role definition is missing: where it may be held, as /subscriptions/S",
        ));
    }
    for (n, scope) in all.iter().enumerate() {
        let at = format!("{AT}/{n}");
        if !scope.starts_with('/') || scope.contains('*') {
            return Err(wrong(
                &at,
                format!("scope `{}` does not begin with / or has a *", shown(scope)),
            ));
        }
        check_scope(&at, scope)?;
    }
    Ok(all.iter().map(|scope| plain_scope(scope)).collect())
}

/// The document of a definition.
pub fn document(role: &Role) -> Value {
    json!({"properties": properties(role)})
}

fn properties(role: &Role) -> Value {
    json!({
        "roleName": role.name,
        "type": if role.built_in { "BuiltInRole" } else { "CustomRole" },
        "description": role.description,
        "assignableScopes": role.scopes,
        "permissions": [{
            "actions": role.actions,
            "notActions": role.not_actions,
            "dataActions": role.data_actions,
            "notDataActions": role.not_data_actions,
        }],
    })
}

/// Reads the document of a definition.
pub fn of(stored: &Document) -> Result<Role, Invalid> {
    definition(stored.key.path.as_str(), &body(stored)?)
}

/// What is shown of a role.
pub fn view(role: &Role) -> Value {
    json!({
        "id": format!("/providers/Microsoft.Authorization/roleDefinitions/{}", role.id),
        "name": role.id,
        "type": "Microsoft.Authorization/roleDefinitions",
        "properties": properties(role),
    })
}

/// Reads a file as `az role definition create` takes it, and as `list` prints it: the body that is sent, and the id if the file
/// has one. Names of fields begin in either case.
pub fn from_file(file: &Value) -> Result<(Option<String>, Value), Invalid> {
    const FIELDS: [&str; 14] = [
        "name",
        "id",
        "isCustom",
        "description",
        "actions",
        "notActions",
        "dataActions",
        "notDataActions",
        "assignableScopes",
        "permissions",
        "roleName",
        "roleType",
        "type",
        "condition",
    ];
    let Value::Object(given) = file else {
        return Err(wrong("/", "a role definition is an object"));
    };
    let mut fields = Map::new();
    for (name, value) in given {
        let mut letters = name.chars();
        let first = letters.next().map(|c| c.to_ascii_lowercase());
        let plain: String = first.into_iter().chain(letters).collect();
        if !FIELDS.contains(&plain.as_str()) {
            let refused = wrong(
                &format!("/{name}"),
                format!("a role definition has no field `{}`", shown(name)),
            );
            return Err(match did_you_mean(&plain, FIELDS) {
                Some(near) => refused.hint(format!("did you mean `{near}`?")),
                None => refused,
            });
        }
        fields.insert(plain, value.clone());
    }
    if fields.get("isCustom") == Some(&Value::Bool(false)) {
        return Err(wrong("/IsCustom", "roles that are not custom are Azure's"));
    }
    if fields
        .get("condition")
        .is_some_and(|value| !value.is_null())
    {
        return Err(wrong("/condition", "conditions of roles are not offered"));
    }
    // What `list` prints has the id for a name, and the name beside it.
    let listed = fields.contains_key("roleName");
    let name = fields.get("roleName").or(fields.get("name"));
    let id = if listed {
        fields.get("name")
    } else {
        fields.get("id")
    };
    let id = id
        .and_then(Value::as_str)
        .map(|id| id.rsplit('/').next().unwrap_or(id).to_owned());
    let permissions = match fields.get("permissions").filter(|value| !value.is_null()) {
        Some(permissions) => permissions.clone(),
        None => {
            let mut one = Map::new();
            for field in ["actions", "notActions", "dataActions", "notDataActions"] {
                let value = fields.get(field).cloned();
                one.insert(field.to_owned(), value.unwrap_or_else(|| json!([])));
            }
            json!([one])
        }
    };
    let body = json!({"properties": {
        "roleName": name,
        "type": "CustomRole",
        "description": fields.get("description"),
        "assignableScopes": fields.get("assignableScopes"),
        "permissions": permissions,
    }});
    Ok((id, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00000000-0000-4000-8000-000000000001";
    const ML: &str = "Microsoft.MachineLearningServices/workspaces";

    /// As Azure's guide has it, shortened.
    fn guide() -> Value {
        json!({
            "Name": "Data Scientist Custom",
            "IsCustom": true,
            "Description": "Can run experiment but can't create or delete compute.",
            "Actions": ["*"],
            "NotActions": [
                "Microsoft.MachineLearningServices/workspaces/*/delete",
                "Microsoft.MachineLearningServices/workspaces/write",
                "Microsoft.MachineLearningServices/workspaces/computes/*/write",
                "Microsoft.MachineLearningServices/workspaces/computes/*/delete",
                "Microsoft.Authorization/*/write"
            ],
            "AssignableScopes": ["/subscriptions/s/resourceGroups/g"]
        })
    }

    fn read(file: &Value) -> Result<Role, Invalid> {
        definition(ID, &from_file(file)?.1)
    }

    #[test]
    fn z1_the_role_of_azures_guide_allows_what_the_guide_says() {
        let role = read(&guide()).unwrap();
        for (action, may) in [
            ("jobs/write", true),
            ("jobs/cancel/action", true),
            ("jobs/delete", false),
            ("write", false),
            ("delete", false),
            ("computes/write", false),
            ("computes/read", true),
            ("computes/start/action", true),
        ] {
            assert_eq!(role.allows(&format!("{ML}/{action}")), may, "{action}");
            let loud = format!("{ML}/{action}").to_uppercase();
            assert_eq!(role.allows(&loud), may, "{action}");
        }
        assert!(!role.allows("Microsoft.Authorization/roleDefinitions/write"));
        assert!(role.is_assignable("/subscriptions/S/resourcegroups/g/providers/x/y/z"));
        assert!(!role.is_assignable("/subscriptions/s"));
    }

    #[test]
    fn z1_a_not_action_of_either_kind_takes_a_data_action_away() {
        let role = |part: Value| {
            let mut file = guide();
            for field in ["Actions", "NotActions"] {
                file.as_object_mut().unwrap().remove(field);
            }
            file.as_object_mut()
                .unwrap()
                .extend(part.as_object().unwrap().clone());
            read(&file).unwrap()
        };
        let (get, put) = (format!("{DATA}read"), format!("{DATA}write"));
        let data = role(json!({"DataActions": [format!("{DATA}*")], "NotDataActions": [put]}));
        assert!(data.allows(&get) && !data.allows(&put) && !data.allows(&format!("{ML}/read")));
        let all = role(json!({"Actions": ["*"], "NotDataActions": [format!("{DATA}*")]}));
        assert!(!all.allows(&get) && all.allows(&format!("{ML}/read")));
        let not = role(json!({"DataActions": ["*"], "NotActions": ["*/read"]}));
        assert!(not.allows(&put) && !not.allows(&get));
    }

    #[test]
    fn what_is_listed_can_be_sent_again() {
        let role = read(&guide()).unwrap();
        assert_eq!(definition(ID, &document(&role)).unwrap(), role);
        let shown = view(&role);
        let listed = json!({
            "name": shown["name"], "id": shown["id"], "roleName": role.name, "roleType": "CustomRole",
            "type": shown["type"], "description": role.description, "assignableScopes": role.scopes,
            "permissions": shown["properties"]["permissions"],
        });
        let (id, body) = from_file(&listed).unwrap();
        assert_eq!(id.as_deref(), Some(ID));
        assert_eq!(definition(ID, &body).unwrap(), role);
    }

    #[test]
    fn a_definition_names_what_is_wrong() {
        let with = |field: &str, value: Value| {
            let mut file = guide();
            file[field] = value;
            match read(&file) {
                Ok(role) => format!("taken: {role:?}"),
                Err(wrong) => wrong.message,
            }
        };
        for (field, value, says) in [
            (
                "Name",
                json!(""),
                "roleName of a role definition is missing",
            ),
            ("Name", json!("x".repeat(513)), "longer than 512"),
            ("Actions", json!([]), "would allow nothing"),
            ("Actions", json!("*"), "\"*\" is no list"),
            ("Actions", json!(["read"]), "`read` is no action"),
            ("Actions", json!(["a/b c"]), "is no action"),
            ("NotActions", json!([1]), "1 is no text"),
            (
                "DataActions",
                json!(["Microsoft.Storage/x/read"]),
                "is no data action",
            ),
            (
                "AssignableScopes",
                json!([]),
                "assignableScopes of a role definition is missing",
            ),
            (
                "AssignableScopes",
                json!(["subscriptions/s"]),
                "does not begin with /",
            ),
            ("AssignableScopes", json!(["/subscriptions/*"]), "has a *"),
            ("AssignableScopes", json!(["/groups/g"]), "neither /"),
            ("IsCustom", json!(false), "are Azure's"),
            ("Action", json!([]), "has no field `Action`"),
        ] {
            let said = with(field, value.clone());
            assert!(said.contains(says), "{field} {value}: {said}");
        }
        assert!(definition("x", &from_file(&guide()).unwrap().1).is_err());
    }
}
