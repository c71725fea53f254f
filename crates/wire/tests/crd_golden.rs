//! Manifests that are right are read; of those that are wrong, exactly what both doors say.
//!
//! `crd/messages.txt` has for each file of `crd/bad` what `kubectl` would print for each object that is refused, and behind
//! `-----` what Zaffre says about the file. `ZAFFRE_BLESS=1 cargo test -p wire --test crd_golden` writes it anew.

#[path = "support/manifests.rs"]
mod manifests;

use manifests::manifests;
use std::fmt::Write as _;
use wire::crd::{Strictness, arm_view, arm_view_of, check, kubectl_text, objects, read};

#[test]
fn every_good_manifest_is_a_type_at_both_doors() {
    let files = manifests("good");
    assert!(files.len() >= 15 + 6, "{}", files.len());
    for (name, _, text) in files {
        let items = read(&text, &name).unwrap_or_else(|no| panic!("{name}: {}", no[0].render()));
        let objects = objects(&text, &name).unwrap();
        assert_eq!(items.len(), objects.len(), "{name}");
        for (item, object) in items.iter().zip(&objects) {
            let checked = check(object, Strictness::Strict).unwrap();
            assert_eq!(checked.object, item.object, "{name}");
            assert_eq!(checked.instance_type, item.instance_type, "{name}");
            assert!(checked.warnings.is_empty(), "{name}");
        }
    }
}

#[test]
fn every_bad_manifest_gets_its_messages() {
    let mut said = String::new();
    let files = manifests("bad");
    assert!(files.len() >= 40 + 16, "{}", files.len());
    for (name, _, text) in files {
        let _ = writeln!(said, "### {name}");
        for object in objects(&text, &name).unwrap_or_default() {
            if let Err(refused) = check(&object, Strictness::Strict) {
                let _ = writeln!(said, "{}", kubectl_text(&refused.server_status()));
            }
        }
        said.push_str("-----\n");
        let diagnostics = read(&text, &name).err();
        for diagnostic in diagnostics.unwrap_or_else(|| panic!("{name} is taken")) {
            let _ = writeln!(said, "{diagnostic}");
            if let Some(hint) = diagnostic.hint {
                let _ = writeln!(said, "  hint: {hint}");
            }
        }
    }
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/crd/messages.txt");
    if std::env::var_os("ZAFFRE_BLESS").is_some() {
        return std::fs::write(golden, said).unwrap();
    }
    let known = std::fs::read_to_string(golden).unwrap();
    for (was, now) in known.split("### ").zip(said.split("### ")) {
        assert_eq!(was, now);
    }
    assert_eq!(known.len(), said.len());
}

#[test]
fn the_checked_in_definition_is_the_generated_one() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../deploy/crd/instancetypes.yaml"
    );
    let file = std::fs::read_to_string(path).unwrap();
    assert_eq!(file, wire::crd::definition_yaml(), "run cargo xtask crdgen");
    // and another reader of YAML finds the same in it
    let read: serde_json::Value = serde_saphyr::from_str(&file).unwrap();
    assert_eq!(read, wire::crd::definition());
}

#[test]
fn r14_clients_see_the_users_spelling_and_the_default_without_a_gpu() {
    let text = include_str!("crd/good/list.yaml");
    let items = read(text, "list.yaml").unwrap();
    assert_eq!(
        arm_view_of(&items[0].object),
        serde_json::json!({
            "nodeSelector": null,
            "resources": {
                "requests": {"cpu": "100m", "memory": "100Mi"},
                "limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "0"},
            },
        })
    );
    assert_eq!(
        arm_view(&model::InstanceType::default_type()).to_string(),
        r#"{"nodeSelector":null,"resources":{"requests":{"cpu":"100m","memory":"2Gi"},"limits":{"cpu":"2","memory":"2Gi","nvidia.com/gpu":null}}}"#
    );
    let float = include_str!("crd/good/fraction-memory.yaml");
    let item = &read(float, "f").unwrap()[0];
    assert_eq!(
        arm_view_of(&item.object)["resources"]["requests"]["memory"],
        "0.2Gi"
    );
}

#[test]
fn field_report_1_is_refused_at_both_doors_and_says_where_the_keys_belong() {
    let text = include_str!("crd/bad/field-report-1.yaml");
    let object = &objects(text, "f.yaml").unwrap()[0];
    let refused = check(object, Strictness::Strict).unwrap_err();
    assert_eq!(refused.code(), 400);
    assert!(
        refused.to_string().contains(
            "unknown field \"spec.limits\" (did you mean \"spec.resources.limits\": indent it below resources)"
        ),
        "{refused}"
    );
    // Where a client turns the check of fields off, the type is still not taken.
    let refused = check(object, Strictness::Ignore).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("spec.resources: Required value")
    );
}

#[test]
fn a_field_that_is_not_known_is_dropped_only_when_the_client_asks_for_it() {
    let text = include_str!("crd/bad/unknown-field.yaml");
    let object = &objects(text, "f.yaml").unwrap()[0];
    let warned = check(object, Strictness::Warn).unwrap();
    assert_eq!(warned.warnings, ["unknown field \"spec.tolerations\""]);
    assert!(warned.object["spec"].get("tolerations").is_none());
    assert!(
        check(object, Strictness::Ignore)
            .unwrap()
            .warnings
            .is_empty()
    );
}

#[test]
fn a_key_given_twice_in_a_request_is_refused_with_its_path() {
    let body = br#"{"apiVersion":"amlarc.azureml.com/v1alpha1","kind":"InstanceType","metadata":{"name":"x"},
        "spec":{"resources":{"requests":{"cpu":"1","cpu":"1","memory":"1Gi"},"limits":{"cpu":"1","memory":"1Gi"}}}}"#;
    let refused = wire::crd::check_bytes(body, Strictness::Strict).unwrap_err();
    assert!(
        refused
            .to_string()
            .ends_with("strict decoding error: duplicate field \"spec.resources.requests.cpu\"")
    );
    let warned = wire::crd::check_bytes(body, Strictness::Warn).unwrap();
    assert_eq!(
        warned.warnings,
        ["duplicate field \"spec.resources.requests.cpu\""]
    );
    for junk in [&b""[..], b"{", b"[]", b"null", b"\"a\"", b"\xff"] {
        assert_eq!(
            wire::crd::check_bytes(junk, Strictness::Strict)
                .unwrap_err()
                .code(),
            400
        );
    }
}

#[test]
fn a_label_that_yaml_reads_as_a_switch_is_refused() {
    let text = include_str!("crd/good/selector.yaml").replace("zone: \"1\"", "n: \"1\"");
    let said = &read(&text, "f.yaml").unwrap_err()[0];
    assert_eq!(said.message, "the key `n` is read as `false`");
    assert!(read(&text.replace("n: \"1\"", "\"n\": \"1\""), "f.yaml").is_ok());
}

#[test]
fn r21_a_name_stands_once_in_a_file() {
    let one = include_str!("crd/good/single.yaml");
    let said = read(&format!("{one}\n---\n{one}"), "f.yaml").unwrap_err();
    assert!(
        said[0]
            .to_string()
            .contains("`myinstancetypename` is given twice, first in line 1")
    );
}

#[test]
fn the_bytes_of_a_file_are_utf8() {
    let one = include_bytes!("crd/good/single.yaml");
    let marked = [b"\xEF\xBB\xBF".as_slice(), one].concat();
    assert_eq!(wire::crd::read_bytes(&marked, "f.yaml").unwrap().len(), 1);
    let said = wire::crd::read_bytes(b"\xFF\xFEk\0i\0", "f.yaml").unwrap_err();
    assert_eq!(
        said[0].to_string(),
        "f.yaml:1:1: the file is not UTF-8: it looks like UTF-16LE"
    );
}
