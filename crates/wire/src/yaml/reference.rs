//! Values that point at something: a registered asset, an address, or a path beside the file.

use super::{
    draft::{AssetKind, LabelRef, LocalAsset, ShortRef},
    fields::{Fields, Text},
    report::Report,
};
use crate::names::{
    self, Kind, NameError, Pin, Reference, check_asset, check_compute, check_version, shown,
};
use serde_json::Value as Json;

/// Longest path of a file or a folder, as Linux has it.
const MAX_PATH: usize = 4096;

/// Where a value points.
#[derive(Debug, PartialEq)]
pub(super) enum Spot {
    /// `azureml:…` or an id.
    Reference,
    /// An address that is passed on: `https://…`, `wasbs://…`, `runs:/…`.
    Uri,
    /// A path beside the file, with `/` between its parts and without `file:`.
    Local(String),
}

/// Addresses that Azure's own client passes on.
const SCHEMES: &[&str] = &["http", "https", "wasb", "wasbs", "abfs", "abfss", "adl"];

/// Tells references, addresses and paths apart. Windows' separators and drive letters are paths.
pub(super) fn locate(text: &str) -> Result<Spot, String> {
    if text.trim().is_empty() {
        return Err("a path is empty".into());
    }
    if text.chars().any(char::is_control) {
        return Err(format!(
            "the path `{}` holds a control character",
            shown(text)
        ));
    }
    if names::is_reference(text) {
        return Ok(Spot::Reference);
    }
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("file:") {
        let rest = &text["file:".len()..];
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        return local(rest);
    }
    if lower.starts_with("runs:/") {
        return Ok(Spot::Uri);
    }
    if let Some((scheme, _)) = lower.split_once("://") {
        if SCHEMES.contains(&scheme) {
            return Ok(Spot::Uri);
        }
        if scheme.len() > 1
            && scheme
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        {
            return Err(format!("zaffre does not read {scheme}:// addresses"));
        }
    }
    local(text)
}

fn local(path: &str) -> Result<Spot, String> {
    if path.is_empty() {
        return Err("a path is empty".into());
    }
    if path.len() > MAX_PATH {
        return Err(format!(
            "the path has {} bytes, allowed are {MAX_PATH}",
            path.len()
        ));
    }
    Ok(Spot::Local(path.replace('\\', "/")))
}

/// Reads a reference to a `want`; gives the value for the document, to be expanded later. `None` when it was reported.
pub(super) fn refer(
    report: &Report<'_>,
    text: Text<'_>,
    path: &str,
    want: Kind,
    pointer: &str,
) -> Option<Json> {
    let refuse = |message: String, hint: Option<String>| {
        report.error_with(text.at, path, message, hint);
        None
    };
    let wrong_kind =
        |found: &str| format!("{path} is a reference to {}, not to {found}", want.one());
    match Reference::parse(text.text) {
        Err(error @ NameError::Registry { .. }) => {
            report.unsupported(error.to_string());
            Some(Json::from(text.text))
        }
        Err(error) => refuse(error.to_string(), None),
        Ok(Reference::Datastore { .. }) => refuse(wrong_kind("a datastore"), None),
        Ok(Reference::JobOutput { .. }) => refuse(wrong_kind("the output of a job"), None),
        Ok(Reference::Arm(id)) => {
            match id.kind {
                Some(kind) if kind == want => {}
                Some(kind) => return refuse(wrong_kind(&kind.one()), None),
                None => return refuse(wrong_kind("something else"), None),
            }
            match (want, &id.pin) {
                (Kind::Compute, Pin::Version(_) | Pin::Label(_)) => {
                    refuse("a compute has no version".into(), None)
                }
                (Kind::Compute, Pin::Open) | (_, Pin::Version(_) | Pin::Label(_)) => {
                    Some(Json::from(id.text))
                }
                (_, Pin::Open) => refuse(
                    format!("the id of {} ends with /versions/VERSION", want.one()),
                    None,
                ),
            }
        }
        // The server knows whether the workspace is its own.
        Ok(Reference::Located { kind, .. }) if kind == want => Some(Json::from(text.text)),
        Ok(Reference::Located { kind, .. }) => refuse(wrong_kind(&kind.one()), None),
        Ok(Reference::Short { kind, name, pin }) => {
            if let Some(kind) = kind.filter(|kind| *kind != want) {
                return refuse(wrong_kind(&kind.one()), None);
            }
            let rule = if want == Kind::Compute {
                check_compute(&name)
            } else {
                check_asset(want.word(), &name)
            };
            if let Err(error) = rule {
                return refuse(error.to_string(), None);
            }
            let tail = match pin {
                Pin::Version(_) | Pin::Label(_) if want == Kind::Compute => {
                    return refuse(
                        format!("a compute has no version: {}", shown(text.text)),
                        Some(format!("write azureml:{name}")),
                    );
                }
                Pin::Open if want == Kind::Compute => format!("{}/{name}", want.collection()),
                Pin::Version(version) => {
                    if let Err(error) = check_version(&version) {
                        return refuse(error.to_string(), None);
                    }
                    format!("{}/{name}/versions/{version}", want.collection())
                }
                Pin::Label(_) | Pin::Open => {
                    let label = if let Pin::Label(label) = pin {
                        label
                    } else {
                        "latest".to_owned()
                    };
                    report.labels.borrow_mut().push(LabelRef {
                        pointer: pointer.to_owned(),
                        kind: want,
                        name,
                        label,
                    });
                    return Some(Json::from(text.text));
                }
            };
            report.refs.borrow_mut().push(ShortRef {
                pointer: pointer.to_owned(),
                kind: want,
                tail,
            });
            Some(Json::from(text.text))
        }
    }
}

/// What a `compute:` key asks for.
pub(super) struct Compute {
    /// Value for the document; absent for `local` and serverless.
    pub id: Option<Json>,
    /// `instance_count`, `instance_type` and the like of the nested form.
    pub binding: Option<Json>,
}

/// Reads `compute:` as a reference, a bare name, `local`, `serverless`, or the older nested form `{target: …}`.
pub(super) fn compute(fields: &Fields<'_>, pointer: &str, owner: &str) -> Compute {
    let none = Compute {
        id: None,
        binding: None,
    };
    let Some(entry) = fields.entry("compute") else {
        fields
            .report
            .unsupported(format!("a {owner} without compute (serverless compute)"));
        fields.show_default(
            "compute",
            "serverless",
            "Azure ML: without compute, serverless compute is used",
        );
        return none;
    };
    if entry.node.text().is_some() {
        let Some(text) = fields.words("compute") else {
            return none;
        };
        return Compute {
            id: target(fields, text, pointer),
            binding: None,
        };
    }
    let Some(nested) = fields.section("compute") else {
        return none;
    };
    let id = match nested.words("target") {
        Some(text) => target(&nested, text, pointer),
        None => {
            nested.missing("target", "write compute: azureml:NAME");
            None
        }
    };
    let count = nested.int("instance_count", super::limits::INSTANCES);
    let kind = nested
        .words("instance_type")
        .map(|text| text.text.to_owned());
    let mut binding = serde_json::Map::new();
    if let Some(count) = count {
        binding.insert("instanceCount".into(), count.into());
    }
    if let Some(kind) = kind {
        binding.insert("instanceType".into(), kind.into());
    }
    fields.show("compute", nested.done(&[]));
    Compute {
        id,
        binding: (!binding.is_empty()).then_some(Json::Object(binding)),
    }
}

fn target(fields: &Fields<'_>, text: Text<'_>, pointer: &str) -> Option<Json> {
    let path = fields.path_of("compute");
    match text.text {
        word if word.eq_ignore_ascii_case("local") => {
            fields.report.unsupported("compute: local");
            None
        }
        word if word.eq_ignore_ascii_case("serverless") => {
            fields.report.unsupported("compute: serverless");
            None
        }
        written if names::is_reference(written) => {
            refer(fields.report, text, &path, Kind::Compute, pointer)
        }
        bare => {
            if let Err(error) = check_compute(bare) {
                fields.report.error(text.at, &path, error.to_string());
                return None;
            }
            let reference = ShortRef {
                pointer: pointer.to_owned(),
                kind: Kind::Compute,
                tail: format!("computes/{bare}"),
            };
            fields.report.refs.borrow_mut().push(reference);
            Some(Json::from(bare))
        }
    }
}

/// Reads `code:`: a folder beside the file, a code asset, or a git address (not run yet).
pub(super) fn code(fields: &Fields<'_>, pointer: &str) -> Option<Json> {
    let text = fields.words("code")?;
    let path = fields.path_of("code");
    let lower = text.text.to_ascii_lowercase();
    if lower.starts_with("git+")
        || lower.starts_with("git@")
        || lower.starts_with("git:")
        || lower.ends_with(".git")
    {
        fields.report.unsupported(format!("{path} from git"));
        return Some(Json::from(text.text));
    }
    match locate(text.text) {
        Err(message) => {
            fields.report.error(text.at, &path, message);
            None
        }
        Ok(Spot::Reference) => {
            if let Ok(Reference::Datastore { .. } | Reference::JobOutput { .. }) =
                Reference::parse(text.text)
            {
                let message = format!(
                    "{path} is a folder beside the file or a code asset, not the address {}",
                    shown(text.text)
                );
                fields.report.error(text.at, &path, message);
                return None;
            }
            refer(fields.report, text, &path, Kind::Code, pointer)
        }
        Ok(Spot::Uri) => {
            let message = format!(
                "{path} is a folder beside the file or a code asset, not the address {}",
                shown(text.text)
            );
            fields.report.error(text.at, &path, message);
            None
        }
        Ok(Spot::Local(folder)) => {
            fields.report.local(pointer, AssetKind::Code, Some(folder));
            None
        }
    }
}

/// The path of an asset: what goes into the document now, or what has to be uploaded.
pub(super) enum AssetPath {
    /// An address for the document.
    Uri(String),
    /// A path to upload.
    Upload(String),
    /// A reference to a registered asset.
    Registered(String),
}

/// Reads a `path:`.
pub(super) fn asset_path<'r>(
    fields: &Fields<'r>,
    key: &'static str,
) -> Option<(AssetPath, Text<'r>)> {
    let text = fields.words(key)?;
    let path = fields.path_of(key);
    let found = match locate(text.text) {
        Err(message) => Err(message),
        Ok(Spot::Local(path)) => Ok(AssetPath::Upload(path)),
        Ok(Spot::Uri) => Ok(AssetPath::Uri(text.text.to_owned())),
        Ok(Spot::Reference) => match Reference::parse(text.text) {
            Ok(Reference::Datastore { .. } | Reference::JobOutput { .. }) => {
                Ok(AssetPath::Uri(text.text.to_owned()))
            }
            Ok(Reference::Short { .. } | Reference::Located { .. } | Reference::Arm(_)) => {
                Ok(AssetPath::Registered(text.text.to_owned()))
            }
            Err(error @ NameError::Registry { .. }) => {
                fields.report.unsupported(error.to_string());
                Ok(AssetPath::Uri(text.text.to_owned()))
            }
            Err(error) => Err(error.to_string()),
        },
    };
    match found {
        Ok(found) => Some((found, text)),
        Err(message) => {
            fields.report.error(text.at, &path, message);
            None
        }
    }
}

/// Notes an asset that is written inside the file.
pub(super) fn inline_asset(report: &Report<'_>, asset: LocalAsset) {
    report.locals.borrow_mut().push(asset);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_references_and_addresses_are_told_apart() {
        let here = |path: &str| Ok(Spot::Local(path.into()));
        assert_eq!(locate("./src"), here("./src"));
        assert_eq!(locate(".\\src\\a"), here("./src/a"));
        assert_eq!(locate("file:./model/conda.yml"), here("./model/conda.yml"));
        assert_eq!(locate("file:///opt/x"), here("/opt/x"));
        assert_eq!(locate("FILE:a"), here("a"));
        assert_eq!(locate("C:\\models\\a"), here("C:/models/a"));
        assert_eq!(locate("C:/models"), here("C:/models"));
        assert_eq!(locate("学習/モデル"), here("学習/モデル"));
        assert_eq!(locate("azureml:name:1"), Ok(Spot::Reference));
        assert_eq!(
            locate("azureml://datastores/x/paths/y"),
            Ok(Spot::Reference)
        );
        assert_eq!(locate("https://a/b"), Ok(Spot::Uri));
        assert_eq!(locate("runs:/abc/model"), Ok(Spot::Uri));
        assert_eq!(
            locate("s3://bucket/x"),
            Err("zaffre does not read s3:// addresses".into())
        );
        assert_eq!(locate(" "), Err("a path is empty".into()));
        assert_eq!(locate("file:"), Err("a path is empty".into()));
        assert_eq!(
            locate("a\nb"),
            Err("the path `a\\nb` holds a control character".into())
        );
    }
}
