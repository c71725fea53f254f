//! What `serve` declares of this machine as the node of the embedded cluster: labels, devices and a selector for all work.

use crate::failure::Failure;
use model::{
    instance_type::{DEVICES, MAX_DEVICES, label_fault},
    kubernetes::Labels,
};
use std::collections::BTreeMap;

/// Labels, each given as `KEY=VALUE`; `flag` names the flag in messages.
pub fn labels(flag: &str, given: &[String]) -> Result<Labels, Failure> {
    let mut out = Labels::new();
    for text in given {
        let (key, value) = pair(flag, text, "KEY=VALUE, such as zone=a")?;
        if let Some(fault) = label_fault(key, value) {
            return Err(Failure::wrong(format!("{flag} {text}: {fault}")));
        }
        keep(&mut out, flag, key, value.into())?;
    }
    Ok(out)
}

/// Labels of the machine itself: those of every node are its own to set.
pub fn own_labels(given: &[String]) -> Result<Labels, Failure> {
    const FLAG: &str = "--node-label";
    let out = labels(FLAG, given)?;
    match out
        .keys()
        .find(|key| engine_local::OWN_LABELS.contains(&&***key))
    {
        Some(key) => Err(Failure::wrong(format!(
            "{FLAG}: label {key} is set by this machine itself"
        ))),
        None => Ok(out),
    }
}

/// Devices, each given as `NAME=COUNT`.
pub fn devices(given: &[String]) -> Result<BTreeMap<Box<str>, u32>, Failure> {
    const FLAG: &str = "--node-device";
    let mut out = BTreeMap::new();
    for text in given {
        let (name, count) = pair(FLAG, text, "NAME=COUNT, such as nvidia.com/gpu=1")?;
        if !DEVICES.contains(&name) {
            return Err(
                Failure::wrong(format!("{FLAG} {text}: device {name} is not known"))
                    .hint(format!("known are {}", DEVICES.join(", "))),
            );
        }
        let digits = !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit());
        let number = count.parse().ok().filter(|n| digits && *n <= MAX_DEVICES);
        let Some(number) = number else {
            return Err(Failure::wrong(format!(
                "{FLAG} {text}: `{count}` is not a whole number from 0 to {MAX_DEVICES}"
            )));
        };
        keep(&mut out, FLAG, name, number)?;
    }
    Ok(out)
}

fn pair<'a>(flag: &str, text: &'a str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    text.split_once('=')
        .ok_or_else(|| Failure::wrong(format!("{flag} {text}: expected {form}")))
}

fn keep<T>(
    out: &mut BTreeMap<Box<str>, T>,
    flag: &str,
    key: &str,
    value: T,
) -> Result<(), Failure> {
    match out.insert(key.into(), value) {
        Some(_) => Err(Failure::wrong(format!("{flag}: {key} is given twice"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_declared_is_read() {
        let read = own_labels(&given(&["zone=a", "example.com/tier=", "a=b.c_d"])).unwrap();
        assert_eq!(&*read["zone"], "a");
        assert_eq!(&*read["example.com/tier"], "");
        let read = devices(&given(&["nvidia.com/gpu=2", "amd.com/gpu=0"])).unwrap();
        assert_eq!((read["nvidia.com/gpu"], read["amd.com/gpu"]), (2, 0));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_rule() {
        let label = |text: &str| own_labels(&given(&[text])).unwrap_err().message;
        assert_eq!(
            label("zone"),
            "--node-label zone: expected KEY=VALUE, such as zone=a"
        );
        assert!(label("=a").contains("key"), "{}", label("=a"));
        assert!(label("-x=a").contains("`-x`"), "{}", label("-x=a"));
        assert!(label("a/b/c=a").contains("`a/b/c`"));
        assert!(label("zone=a=b").contains("`a=b`"));
        let long = format!("zone={}", "x".repeat(64));
        assert!(label(&long).contains("63"), "{}", label(&long));
        assert_eq!(
            label("kubernetes.io/os=windows"),
            "--node-label: label kubernetes.io/os is set by this machine itself"
        );
        let twice = labels("--node-selector", &given(&["a=1", "a=2"])).unwrap_err();
        assert_eq!(twice.message, "--node-selector: a is given twice");
    }

    #[test]
    fn a_device_is_a_known_name_and_a_whole_number() {
        let device = |text: &str| devices(&given(&[text])).unwrap_err();
        for wrong in ["", "-1", "1.5", "x", "+1", "1000001", "99999999999"] {
            assert_eq!(
                device(&format!("nvidia.com/gpu={wrong}")).message,
                format!(
                    "--node-device nvidia.com/gpu={wrong}: `{wrong}` is not a whole number from 0 to 1000000"
                )
            );
        }
        let unknown = device("nvidia.com/gpus=1");
        assert!(unknown.message.contains("nvidia.com/gpus is not known"));
        assert!(unknown.hint.unwrap().contains("nvidia.com/gpu,"));
        assert!(device("gpu").message.contains("NAME=COUNT"));
    }
}
