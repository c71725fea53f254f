//! What holds for any instance type and any text.

use model::instance_type::{Amounts, DEVICES, InstanceType, Unchecked, Written};
use proptest::prelude::*;
use std::collections::BTreeMap;
use wire::crd::{Strictness, arm_view, check, check_bytes, object, read};

const NANO: i128 = 1_000_000_000;

fn written(nano: impl Strategy<Value = i128>) -> impl Strategy<Value = Option<Written>> {
    nano.prop_map(|nano| Some(Written::text("as written", Some(nano))))
}

fn any_type() -> impl Strategy<Value = InstanceType> {
    let amounts = |devices: bool| {
        let device = (prop::sample::select(DEVICES.to_vec()), 0i64..1_000_000);
        (
            written(1..1_000_000 * NANO),
            written(1..(1i128 << 60) * NANO),
            prop::collection::vec(device, 0..if devices { 3 } else { 1 }),
        )
            .prop_map(move |(cpu, memory, found)| Amounts {
                cpu,
                memory,
                devices: found
                    .into_iter()
                    .filter(|_| devices)
                    .map(|(name, count)| (name.into(), Written::number(count)))
                    .collect(),
            })
    };
    let labels =
        prop::collection::btree_map("[a-z]{1,9}(/[A-Za-z0-9]{1,9})?", "[A-Za-z0-9]{0,9}", 0..4);
    (
        "[a-z0-9]{1,9}(\\.[a-z0-9]{1,9}){0,2}",
        labels,
        amounts(false),
        amounts(true),
    )
        .prop_filter_map(
            "a request above its limit",
            |(name, labels, requests, limits)| {
                let node_selector: BTreeMap<Box<str>, Box<str>> = labels
                    .into_iter()
                    .map(|(key, value)| (key.into(), value.into()))
                    .collect();
                InstanceType::new(Unchecked {
                    name: name.into(),
                    node_selector,
                    requests,
                    limits,
                })
                .ok()
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_type_survives_its_object(instance_type in any_type()) {
        let object = object(&instance_type);
        let checked = check(&object, Strictness::Strict).unwrap();
        prop_assert_eq!(&checked.instance_type, &instance_type);
        prop_assert_eq!(&checked.object, &object);
        // the view has the same amounts
        let view = arm_view(&instance_type);
        prop_assert_eq!(&view["resources"]["requests"], &object["spec"]["resources"]["requests"]);
        // and the stored form too
        let stored = serde_json::to_string(&instance_type).unwrap();
        prop_assert_eq!(serde_json::from_str::<InstanceType>(&stored).unwrap(), instance_type);
    }

    #[test]
    fn a_checked_object_is_taken_again_unchanged(instance_type in any_type()) {
        let once = check(&object(&instance_type), Strictness::Strict).unwrap();
        let twice = check(&once.object, Strictness::Strict).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn no_file_and_no_body_makes_it_panic(text in "(\\PC|\n|  |kind: InstanceType\n|apiVersion: amlarc.azureml.com/v1alpha1\n|spec:\n|metadata: |\\{|\\}|: ){0,30}") {
        let _ = read(&text, "f.yaml");
        let _ = check_bytes(text.as_bytes(), Strictness::Warn);
    }
}
