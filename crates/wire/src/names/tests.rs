//! The rules of names and references, by example and by property.

use super::*;
use proptest::prelude::*;

#[test]
fn names_that_are_legal() {
    for name in [
        "low-pri-cluster",
        "abc",
        "A23456789012345678901234",
        "cpu-cluster-1",
    ] {
        assert_eq!(check_compute(name), Ok(()));
    }
    for name in ["heart-classifier-batch", "abc", "a1-b2"] {
        assert_eq!(check_endpoint(name), Ok(()));
    }
    for name in [
        "m",
        "heart-classifier",
        "a_b.c-1",
        "1",
        "_x",
        &"a".repeat(255),
    ] {
        assert_eq!(check_asset("model", name), Ok(()));
    }
    for version in ["1", "1.10", "010", "2022-02-03", "1e3"] {
        assert_eq!(check_version(version), Ok(()));
    }
}

#[test]
fn names_that_are_refused_say_the_rule_and_show_the_value() {
    let says = |result: Result<(), NameError>| result.unwrap_err().to_string();
    assert_eq!(
        says(check_compute("ab")),
        "compute name `ab` has 2 characters, allowed are 3 to 24"
    );
    assert_eq!(says(check_compute("")), "compute name `` is empty");
    assert_eq!(
        says(check_compute("1abc")),
        "compute name `1abc` must start with a letter"
    );
    assert_eq!(
        says(check_compute("a_b")),
        "compute name `a_b` holds `_`, allowed are letters, digits and -"
    );
    assert_eq!(
        says(check_compute("abc\ndef")),
        "compute name `abc\\ndef` holds a line break"
    );
    assert_eq!(
        says(check_compute("abc\u{7}")),
        "compute name `abc\\u{7}` holds a control character"
    );
    assert_eq!(
        says(check_compute("<compute>")),
        "compute name `<compute>` still holds a placeholder <…> of the documentation"
    );
    assert_eq!(
        says(check_endpoint("abc-")),
        "endpoint name `abc-` must not end with -"
    );
    assert_eq!(
        says(check_deployment(&"a".repeat(33))),
        "deployment name `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa` has 33 characters, allowed are 3 to 32"
    );
    assert_eq!(
        says(check_asset("model", "学習")),
        "model name `学習` must start with a letter, a digit or _"
    );
    assert_eq!(
        says(check_asset("model", "a b")),
        "model name `a b` holds ` `, allowed are letters, digits, - _ and ."
    );
    assert_eq!(
        says(check_asset("model", "a'b")),
        "model name `a'b` holds `'`, allowed are letters, digits, - _ and ."
    );
    assert!(
        says(check_asset("model", &"a".repeat(256)))
            .contains("has 256 characters, allowed are 1 to 255")
    );
    assert_eq!(
        says(check_version("1/2")),
        "version `1/2` holds `/`, allowed are letters, digits, - _ and ."
    );
    assert_eq!(compute_name_advice("cpu-cluster"), None);
    assert!(compute_name_advice("cpu-cluster-1").is_some());
}

fn parsed(text: &str) -> Reference {
    Reference::parse(text).unwrap()
}

fn short_of(name: &str, pin: Pin) -> Reference {
    Reference::Short {
        kind: None,
        name: name.into(),
        pin,
    }
}

#[test]
fn short_references() {
    assert_eq!(
        parsed("azureml:n:v"),
        short_of("n", Pin::Version("v".into()))
    );
    assert_eq!(
        parsed("azureml:n:1.10"),
        short_of("n", Pin::Version("1.10".into()))
    );
    assert_eq!(
        parsed("azureml:heart-classifier@latest"),
        short_of("heart-classifier", Pin::Label("latest".into()))
    );
    assert_eq!(
        parsed("azureml:low-pri-cluster"),
        short_of("low-pri-cluster", Pin::Open)
    );
    assert_eq!(parsed("AzureML:n"), short_of("n", Pin::Open));
}

#[test]
fn arm_ids_with_and_without_prefix() {
    let text = "/subscriptions/S/resourcegroups/G/providers/microsoft.machinelearningservices/workspaces/W/models/M/versions/1";
    for written in [
        text.to_owned(),
        format!("azureml:{text}"),
        format!("{text}/"),
    ] {
        let Reference::Arm(id) = parsed(&written) else {
            panic!("{written}")
        };
        assert_eq!(
            (
                id.subscription.as_str(),
                id.group.as_str(),
                id.workspace.as_str()
            ),
            ("S", "G", "W")
        );
        assert_eq!(
            (id.kind, id.name.as_str(), id.pin),
            (Some(Kind::Model), "M", Pin::Version("1".into()))
        );
        assert_eq!(id.text, text);
    }
    let Reference::Arm(id) = parsed(
        "/subscriptions/S/resourceGroups/G/providers/Microsoft.MachineLearningServices/workspaces/W/computes/c",
    ) else {
        panic!()
    };
    assert_eq!((id.kind, id.pin), (Some(Kind::Compute), Pin::Open));
}

#[test]
fn uris() {
    let store = |scope: Option<(&str, &str, &str)>, path: &str| Reference::Datastore {
        scope: scope.map(|(s, g, w)| (s.into(), g.into(), w.into())),
        datastore: "D".into(),
        path: path.into(),
    };
    assert_eq!(
        parsed("azureml://datastores/D/paths/a/b/"),
        store(None, "a/b/")
    );
    assert_eq!(parsed("azureml://datastores/D/paths/"), store(None, ""));
    let long = store(Some(("S", "G", "W")), "a/b/c/d");
    assert_eq!(
        parsed(
            "azureml://subscriptions/S/resourcegroups/G/workspaces/W/datastores/D/paths/a/b/c/d"
        ),
        long
    );
    assert_eq!(
        parsed(
            "azureml://subscriptions/S/resourceGroups/G/workspaces/W/datastores/D/paths/a/b/c/d"
        ),
        long
    );
    let output = |path: &str| Reference::JobOutput {
        job: "J".into(),
        output: "O".into(),
        path: path.into(),
    };
    assert_eq!(
        parsed("azureml://jobs/J/outputs/O/paths/model/x"),
        output("model/x")
    );
    assert_eq!(parsed("azureml://jobs/J/outputs/O"), output(""));
    assert_eq!(
        parsed("azureml://jobs/J/outputs/O/"),
        Reference::parse("azureml://jobs/J/outputs/O").unwrap()
    );
    let pin = |text: &str| Pin::Version(text.into());
    assert_eq!(
        parsed("azureml://models/M/versions/3"),
        Reference::Short {
            kind: Some(Kind::Model),
            name: "M".into(),
            pin: pin("3")
        }
    );
    let located = |group: Option<&str>| Reference::Located {
        group: group.map(str::to_owned),
        workspace: "W".into(),
        kind: Kind::Model,
        name: "M".into(),
        pin: pin("3"),
    };
    assert_eq!(
        parsed("azureml://locations/L/workspaces/W/models/M/versions/3"),
        located(None)
    );
    assert_eq!(
        parsed("azureml://resourceGroups/G/workspaces/W/models/M/versions/3"),
        located(Some("G"))
    );
}

#[test]
fn what_is_no_reference_says_why() {
    let says = |text: &str| Reference::parse(text).unwrap_err().to_string();
    assert_eq!(
        says("azureml://registries/azureml/models/m/versions/1"),
        "`azureml://registries/azureml/models/m/versions/1` points into the registry `azureml`: zaffre does not reach registries yet"
    );
    assert_eq!(
        says("azureml:"),
        "`azureml:` is not a reference: a short reference is azureml:NAME:VERSION or azureml:NAME@latest"
    );
    for text in [
        "azureml:n:",
        "azureml:n@",
        "azureml::1",
        "azureml:a/b:1",
        "azureml://feeds/x",
        "/subscriptions/S",
        "n:1",
        "azureml:a\nb:1",
    ] {
        assert!(Reference::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn ids_are_made_and_compared() {
    let workspace = Workspace::new("s", "g", "w");
    let id = version_id(&workspace, Kind::Model, "m", "1");
    assert_eq!(
        id,
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w/models/m/versions/1"
    );
    assert!(same_id(&id, &id.to_uppercase()));
    assert!(!same_id(&id, &compute_id(&workspace, "m")));
}

#[test]
fn near_words() {
    let keys = ["instance_type", "instance_count", "mini_batch_size"];
    assert_eq!(did_you_mean("instace_type", keys), Some("instance_type"));
    assert_eq!(did_you_mean("Instance_Count", keys), Some("instance_count"));
    assert_eq!(did_you_mean("insatnce_type", keys), Some("instance_type"));
    assert_eq!(did_you_mean("traffic", keys), None);
    assert_eq!(nearest("x", []), None);
}

proptest! {
    #[test]
    fn nothing_panics(text in "\\PC{0,60}") {
        let _ = Reference::parse(&text);
        let _ = Reference::parse(&format!("azureml:{text}"));
        let _ = Reference::parse(&format!("azureml://{text}"));
        let _ = (check_compute(&text), check_endpoint(&text), check_asset("model", &text), shown(&text));
        let _ = did_you_mean(&text, ["name", "version"]);
    }
}
