//! Stories of the rules, by the number of the sentence that they come from.

use super::*;

fn faults_of(written: Unchecked) -> Vec<String> {
    let faults = InstanceType::new(written).err().unwrap_or_default();
    faults.iter().map(ToString::to_string).collect()
}

fn cores(milli: i128) -> Option<Written> {
    Some(Written::text(
        &format!("{milli}m"),
        Some(milli * NANO_PER_MILLI),
    ))
}
fn memory(bytes: i128) -> Option<Written> {
    Some(Written::text(&bytes.to_string(), Some(bytes * NANO)))
}
/// The sample of R-18.
fn sample() -> Unchecked {
    Unchecked {
        name: "myinstancetypename".into(),
        node_selector: [("mylabel".into(), "mylabelvalue".into())].into(),
        requests: Amounts {
            cpu: cores(700),
            memory: memory(1500 << 20),
            devices: BTreeMap::new(),
        },
        limits: Amounts {
            cpu: cores(1000),
            memory: memory(2 << 30),
            devices: [(GPU.into(), Written::number(1))].into(),
        },
    }
}
fn broken(break_it: impl FnOnce(&mut Unchecked)) -> Vec<String> {
    let mut written = sample();
    break_it(&mut written);
    faults_of(written)
}

#[test]
fn t3_the_table_has_every_rule_at_its_place() {
    for (i, row) in RULES.iter().enumerate() {
        assert_eq!(row.rule as usize, i);
        assert!(!row.message.is_empty() || row.rule == Rule::Required);
    }
    for (rule, number) in [
        (Rule::SelectorSize, MAX_SELECTOR.to_string()),
        (Rule::AmountLength, MAX_AMOUNT.to_string()),
        (Rule::SelectorValueLength, MAX_LABEL_VALUE.to_string()),
        (Rule::DeviceMost, MAX_DEVICES.to_string()),
        (Rule::CpuMost, format!("{}M", MAX_CORES / 1_000_000)),
        (Rule::MemoryMost, format!("{}Ei", MAX_MEMORY >> 60)),
    ] {
        assert!(rule.message().contains(&number), "{rule:?}");
    }
}

#[test]
fn r18_the_sample_is_a_type() {
    let sample = InstanceType::new(sample()).unwrap();
    assert_eq!(sample.name(), "myinstancetypename");
    assert_eq!(sample.requests().cpu, MilliCpu(700));
    assert_eq!(sample.requests().memory, Bytes(1500 << 20));
    assert_eq!(sample.limits().devices[GPU], 1);
    let text = serde_json::to_string(&sample).unwrap();
    assert_eq!(serde_json::from_str::<InstanceType>(&text).unwrap(), sample);
}

#[test]
fn r9_the_built_in_default_has_100m_2gi_and_no_gpu() {
    let default = InstanceType::default_type();
    assert_eq!(default.name(), "defaultinstancetype");
    assert_eq!(default.requests().cpu, MilliCpu(100));
    assert_eq!(default.limits().cpu, MilliCpu(2000));
    assert_eq!(default.requests().memory, default.limits().memory);
    assert_eq!(default.limits().memory.to_string(), "2Gi");
    assert!(default.limits().devices.is_empty() && default.node_selector().is_empty());
}

#[test]
fn r21_a_name_is_a_dns_subdomain() {
    let name = |name: &str| broken(|t| t.name = name.into());
    assert_eq!(
        name(""),
        ["metadata.name: Required value: name or generateName is required"]
    );
    assert!(name("My_Instance")[0].starts_with(
        "metadata.name: Invalid value: \"My_Instance\": a lowercase RFC 1123 subdomain must consist"
    ));
    assert!(name(&"a".repeat(253)).is_empty());
    let long = "a".repeat(254);
    assert_eq!(
        name(&long),
        [format!(
            "metadata.name: Invalid value: \"{long}\": must be no more than 253 characters"
        )]
    );
    for good in ["a", "a.b-c", "0", "a--b"] {
        assert!(name(good).is_empty(), "{good}");
    }
    for bad in ["-a", "a-", "a..b", ".a", "a.", "A", "a b", "a\n", "é"] {
        assert_eq!(name(bad).len(), 1, "{bad}");
    }
}

#[test]
fn r22_to_r25_amounts_are_there_and_above_zero() {
    assert_eq!(
        broken(|t| t.requests.cpu = Some(Written::text("0", Some(0)))),
        [
            r#"spec.resources.requests.cpu: Invalid value: "0": must be a CPU quantity above zero, such as "700m" or "1""#
        ]
    );
    assert_eq!(
        broken(|t| t.limits.memory = Some(Written::text("2GB", None))),
        [
            r#"spec.resources.limits.memory: Invalid value: "2GB": must be a memory quantity above zero, such as "1500Mi" or "2Gi""#
        ]
    );
    assert_eq!(
        broken(|t| t.requests.cpu = Some(Written::number(-1))),
        [
            r#"spec.resources.requests.cpu: Invalid value: -1: must be a CPU quantity above zero, such as "700m" or "1""#
        ]
    );
    assert_eq!(
        broken(|t| t.requests.cpu = Some(Written::text("", None))),
        [r#"spec.resources.requests.cpu: Invalid value: "": must not be empty"#]
    );
    assert_eq!(
        broken(|t| t.limits = Amounts::default()),
        [
            "spec.resources.limits.cpu: Required value",
            "spec.resources.limits.memory: Required value"
        ]
    );
    assert_eq!(
        broken(|t| t.requests.cpu = Some(Written::text(&"0".repeat(65), Some(0)))),
        ["spec.resources.requests.cpu: Too long: may not be more than 64 bytes"]
    );
    assert_eq!(
        broken(|t| t.limits.cpu = Some(Written::text("2M", Some(2_000_000 * NANO)))),
        [r#"spec.resources.limits.cpu: Invalid value: "2M": must be at most 1M cores"#]
    );
    assert_eq!(
        broken(|t| t.limits.memory = Some(Written::text("2Ei", Some((2 << 60) * NANO)))),
        [r#"spec.resources.limits.memory: Invalid value: "2Ei": must be at most 1Ei"#]
    );
}

#[test]
fn r26_devices_are_whole_and_under_limits_only() {
    let gpu = |written| {
        broken(|t| {
            t.limits.devices.insert(GPU.into(), written);
        })
    };
    assert_eq!(
        gpu(Written::text("500m", Some(NANO / 2))),
        [
            r#"spec.resources.limits.nvidia.com/gpu: Invalid value: "500m": must be a whole number of GPUs"#
        ]
    );
    assert_eq!(
        gpu(Written::number(-1)),
        ["spec.resources.limits.nvidia.com/gpu: Invalid value: -1: must be a whole number of GPUs"]
    );
    assert_eq!(
        gpu(Written::number(1_000_000)),
        ["spec.resources.limits.nvidia.com/gpu: Invalid value: 1000000: must be at most 999999"]
    );
    let request = |name: &str| {
        broken(|t| {
            t.requests.devices.insert(name.into(), Written::number(1));
        })
    };
    assert_eq!(
        request(GPU),
        ["spec.resources.requests.nvidia.com/gpu: Forbidden: GPUs are given under limits only"]
    );
    assert_eq!(
        request("amd.com/gpu"),
        ["spec.resources.requests.amd.com/gpu: Forbidden: devices are given under limits only"]
    );
    assert_eq!(
        broken(|t| {
            t.limits
                .devices
                .insert("nvidia.com/gpus".into(), Written::number(1));
        }),
        ["spec.resources.limits.nvidia.com/gpus: Forbidden: not a resource of an instance type"]
    );
}

#[test]
fn c11_zero_and_absent_both_mean_no_gpu() {
    let mut zero = sample();
    zero.limits.devices.insert(GPU.into(), Written::number(0));
    let mut absent = sample();
    absent.limits.devices.clear();
    assert_eq!(InstanceType::new(zero), InstanceType::new(absent));
}

#[test]
fn a_request_above_its_limit_is_refused_with_both_values() {
    assert_eq!(
        broken(|t| t.requests.cpu = Some(Written::number(3))),
        [
            "spec.resources.requests.cpu: Invalid value: the cpu request (3) must not be above the cpu limit (1000m)"
        ]
    );
    // Below a thousandth of a core both round to the same unit; they are compared before that.
    let finer = |nano| Some(Written::text("x", Some(NANO + nano)));
    assert_eq!(
        broken(|t| (t.requests.cpu, t.limits.cpu) = (finer(2), finer(1))).len(),
        1
    );
    assert!(broken(|t| (t.requests.cpu, t.limits.cpu) = (finer(1), finer(1))).is_empty());
}

#[test]
fn r27_a_selector_has_legal_labels() {
    let with = |key: &str, value: &str| {
        broken(|t| {
            t.node_selector.insert(key.into(), value.into());
        })
    };
    for (key, value) in [
        ("kubernetes.azure.com/scalesetpriority", "spot"),
        ("a", ""),
        ("A_b.c", "V100-32.x"),
    ] {
        assert!(with(key, value).is_empty(), "{key}");
    }
    assert_eq!(
        with("-a", "b"),
        [
            r#"spec.nodeSelector: Invalid value: every key must be a label key, such as "mylabel" or "example.com/mylabel""#
        ]
    );
    assert_eq!(
        key_message("-a"),
        r#"key "-a" must be a label key, such as "mylabel" or "example.com/mylabel""#
    );
    assert_eq!(
        with("gpu", "a b"),
        [
            r#"spec.nodeSelector[gpu]: Invalid value: "a b": must be a label value: letters, digits, "-", "_" and ".", a letter or digit first and last, or empty"#
        ]
    );
    assert_eq!(
        with("gpu", &"v".repeat(64)),
        ["spec.nodeSelector.gpu: Too long: may not be more than 63 bytes"]
    );
    for key in ["", "a/", "/a", "a/b/c", "A.b/c", "a_", &"k".repeat(64)] {
        assert_eq!(with(key, "v").len(), 1, "{key}");
    }
    let many = broken(|t| {
        t.node_selector = (0..65)
            .map(|n| (format!("k{n}").into(), "v".into()))
            .collect();
    });
    assert_eq!(
        many,
        ["spec.nodeSelector: Too many: 65: must have at most 64 items"]
    );
}

#[test]
fn t2_everything_that_is_wrong_is_told_at_once() {
    let faults = broken(|t| {
        t.name = "A".into();
        t.requests.memory = None;
        t.limits.cpu = Some(Written::text("", None));
    });
    assert_eq!(faults.len(), 3);
}

#[test]
fn texts_are_quoted_as_go_does() {
    let text = "a\"\\\n\u{1}é\u{7f}\u{200b}\u{a0}\u{3000}\u{e000}\u{300}\u{1e024}😀";
    assert_eq!(
        &*quoted(text),
        "\"a\\\"\\\\\\n\\x01é\\x7f\\u200b\\u00a0\\u3000\\ue000\u{300}\u{1e024}😀\""
    );
}
