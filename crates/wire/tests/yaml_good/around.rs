//! What stands around a file: flags and overrides, its encoding, and how its errors are shown.

use super::*;

#[test]
fn flags_alone_make_a_file() {
    let flags = [
        ("--name", "name", "low-pri"),
        ("--type", "type", "AmlCompute"),
        ("--min-instances", "min_instances", "0"),
        ("--max-instances", "max_instances", "2"),
    ];
    let overrides = flags
        .iter()
        .map(|(flag, key, value)| Override::flag(flag, &[key], value))
        .collect();
    let draft = load_flags(&LoadOptions {
        overrides,
        ..options(Some(Kind::AmlCompute))
    })
    .unwrap();
    assert_eq!(
        (draft.kind, draft.name.as_deref()),
        (Kind::AmlCompute, Some("low-pri"))
    );
    let overrides = vec![
        Override::flag("--max-instances", &["max_instances"], "none"),
        Override::flag("--name", &["name"], "abc"),
    ];
    let Err(Refused::Invalid(errors)) = load_flags(&LoadOptions {
        overrides,
        ..options(Some(Kind::AmlCompute))
    }) else {
        panic!()
    };
    assert_eq!(errors[0].place, Place::Flag("--max-instances none".into()));
    assert_eq!(
        errors[0].to_string(),
        "--max-instances none: max_instances is a whole number, not `none`"
    );
}

#[test]
fn overrides_make_maps_lists_and_json() {
    let with = |sets: &[&str]| {
        let overrides = sets.iter().map(|set| Override::set(set).unwrap()).collect();
        load(
            JOB.as_bytes(),
            "f.yml",
            &LoadOptions {
                overrides,
                ..options(None)
            },
        )
        .unwrap()
        .body
    };
    let body = with(&[
        "inputs.lr=0.10",
        "inputs.data={\"type\": \"uri_file\", \"path\": \"azureml://datastores/d/paths/x\"}",
        "resources.docker_args[0]=--ipc",
        "resources.docker_args[1]=host",
        "environment_variables.A=010",
        "tags.a=\"b c\"",
    ]);
    let properties = &body["properties"];
    assert_eq!(properties["inputs"]["lr"]["value"], "0.10");
    assert_eq!(properties["inputs"]["data"]["jobInputType"], "uri_file");
    assert_eq!(
        properties["resources"]["dockerArgsList"],
        json!(["--ipc", "host"])
    );
    assert_eq!(properties["environmentVariables"]["A"], "010");
    assert_eq!(properties["tags"]["a"], "b c");
    assert_eq!(
        with(&["command=a", "command=b"])["properties"]["command"],
        "b"
    );
}

#[test]
fn bytes_that_are_not_utf8_name_their_encoding() {
    let utf16: Vec<u8> = "\u{FEFF}name: a\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let cases: [(&[u8], &str); 3] = [
        (
            &utf16,
            "f.yml:1:1: the file is not UTF-8: it looks like UTF-16LE",
        ),
        (
            b"name: a\ndescription: \x8aw\x8fK\n",
            "f.yml:2:14: the file is not UTF-8 (byte 0x8A here): it looks like CP932 (Shift_JIS)",
        ),
        (
            b"name: a\0b\n",
            "f.yml:1:8: the control character U+0000 is not allowed in YAML",
        ),
    ];
    for (bytes, message) in cases {
        let Err(Refused::Invalid(errors)) = load(bytes, "f.yml", &options(None)) else {
            panic!()
        };
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [message]
        );
    }
    let Err(Refused::Invalid(errors)) = load(&vec![b'a'; (1 << 20) + 1], "f.yml", &options(None))
    else {
        panic!()
    };
    assert_eq!(
        errors[0].message,
        "the file has 1048577 bytes, allowed are 1048576"
    );
}

#[test]
fn an_error_shows_its_line_with_a_mark() {
    let Err(refused) = load(
        "name: 学習\ntags: {説明: [a]}\ntype: amlcompute\nmax: 1\n".as_bytes(),
        "f.yml",
        &options(None),
    ) else {
        panic!()
    };
    assert_eq!(
        refused.to_string(),
        "f.yml:1:7: compute name `学習` has 2 characters, allowed are 3 to 24
  |
1 | name: 学習
  |       ^
f.yml:2:12: tags.説明 is a text, not a list
  |
2 | tags: {説明: [a]}
  |        \u{3000}\u{3000}  ^
f.yml:4:1: `max` is not a key of a compute cluster
  |
4 | max: 1
  | ^"
    );
}
