//! One file → one draft.

use super::{
    assets, compute, datastore, deployment,
    diagnostic::Diagnostic,
    draft::{Draft, Kind},
    endpoint,
    fields::Fields,
    job, kind, kubernetes, machine, online, pipeline,
    report::{At, Files, Report, Source},
    set::{self, Override},
    sweep, text,
    tree::{self, Node, Value},
    workspace,
};
use serde_json::{Map, Value as Json};
use std::fmt;

/// Location of a workspace of Zaffre, and so of everything in it that does not name another.
pub const DEFAULT_LOCATION: &str = "local";

/// How a file is read.
pub struct LoadOptions<'a> {
    /// Kind that the command takes, for files that do not say their kind themselves.
    pub hint: Option<Kind>,
    /// Flags and `--set`, in the order in which they were given.
    pub overrides: Vec<Override>,
    /// Reads a file that the YAML names (`conda_file`), by the path written there.
    pub files: Files<'a>,
}

/// Why there is no draft.
#[derive(Clone, Debug, PartialEq)]
pub enum Refused {
    /// The file is wrong. In the order of the file, at least one.
    Invalid(Vec<Diagnostic>),
    /// The file is of a kind that Azure has and Zaffre does not run yet.
    Unsupported {
        /// The kind in words, `online deployments`.
        what: String,
        /// The place that says so.
        diagnostic: Box<Diagnostic>,
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unsupported { diagnostic, .. } => f.write_str(&diagnostic.render()),
            Refused::Invalid(diagnostics) => {
                for (i, diagnostic) in diagnostics.iter().enumerate() {
                    let gap = if i > 0 { "\n" } else { "" };
                    write!(f, "{gap}{}", diagnostic.render())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Refused {}

/// What the reader of one kind gives back.
pub(super) struct Built {
    pub name: Option<String>,
    pub version: Option<String>,
    pub parent: Option<String>,
    pub body: Json,
    pub effective: Map<String, Json>,
}

/// Reads a file. `file_name` is what messages call it.
pub fn load(bytes: &[u8], file_name: &str, options: &LoadOptions<'_>) -> Result<Draft, Refused> {
    let report = Report::new(options.files);
    let decoded = text::decode(bytes);
    let shown = match &decoded {
        Ok(text) => (*text).to_owned(),
        Err(_) => String::new(),
    };
    let source = report.source(Source::File {
        name: file_name.to_owned(),
        text: shown,
    });
    let text = match decoded {
        Ok(text) => text,
        Err(no) => {
            let at = At {
                source,
                line: no.line,
                column: no.column,
            };
            report.error_with(at, "", no.message, no.hint);
            return Err(Refused::Invalid(report.take_errors()));
        }
    };
    match tree::parse(text, source) {
        Ok(root) => read(&report, root, options),
        Err(malformed) => {
            report.error_with(malformed.at, "", malformed.message, malformed.hint);
            Err(Refused::Invalid(report.take_errors()))
        }
    }
}

/// The same without a file: everything comes from flags. Needs `hint`, or a flag that says the kind.
pub fn load_flags(options: &LoadOptions<'_>) -> Result<Draft, Refused> {
    let report = Report::new(options.files);
    let source = report.source(Source::Flag("the flags".into()));
    let root = Node {
        at: At {
            source,
            line: 1,
            column: 1,
        },
        value: Value::Map(Vec::new()),
    };
    read(&report, root, options)
}

fn read(report: &Report<'_>, mut root: Node, options: &LoadOptions<'_>) -> Result<Draft, Refused> {
    if !matches!(root.value, Value::Map(_)) {
        let message = format!(
            "the file is a map of keys, not {}",
            super::fields::described(&root)
        );
        report.error(root.at, "", message);
        return Err(Refused::Invalid(report.take_errors()));
    }
    set::apply(&mut root, &options.overrides, report);
    let kind = match kind::find(report, &root, options.hint) {
        kind::Found::Known(kind) => kind,
        kind::Found::Unclear => return Err(Refused::Invalid(report.take_errors())),
        kind::Found::Foreign { what, at, hint } => {
            let message = match hint {
                Some(_) => format!("this file is {what}"),
                None => format!("zaffre does not run {what} yet"),
            };
            let hint = hint.map(str::to_owned);
            let diagnostic = Box::new(report.diagnostic(at, "type", message, hint));
            return Err(Refused::Unsupported {
                what: what.to_owned(),
                diagnostic,
            });
        }
    };
    if let Kind::PipelineJob | Kind::Component = kind {
        pipeline::inline_components(&mut root, report);
        if report.failed() {
            return Err(Refused::Invalid(report.take_errors()));
        }
    }
    let fields = Fields::root(report, &root, &kind.one());
    let built = match kind {
        Kind::AmlCompute => compute::cluster(report, fields),
        Kind::Kubernetes => kubernetes::compute(report, fields),
        Kind::ComputeInstance => machine::instance(report, fields),
        Kind::VirtualMachine => machine::virtual_machine(report, fields),
        Kind::SynapseSpark => machine::spark(report, fields),
        Kind::OnlineEndpoint => online::endpoint(report, fields),
        Kind::OnlineDeployment => online::deployment(fields, kind::serves_on(&root)),
        Kind::Datastore => datastore::datastore(fields),
        Kind::Workspace => workspace::workspace(report, fields),
        Kind::Model => assets::model(report, fields),
        Kind::Environment => assets::environment(report, fields),
        Kind::Data => assets::data(report, fields),
        Kind::BatchEndpoint => endpoint::batch(report, fields),
        Kind::BatchDeployment => deployment::batch(report, fields),
        Kind::CommandJob => job::command(report, fields),
        Kind::SweepJob => sweep::job(report, fields),
        Kind::PipelineJob => pipeline::job(report, fields),
        Kind::Component => pipeline::component(report, fields),
    };
    if report.failed() {
        return Err(Refused::Invalid(report.take_errors()));
    }
    Ok(Draft {
        kind,
        name: built.name,
        version: built.version,
        parent: built.parent,
        body: built.body,
        locals: report.locals.take(),
        labels: report.labels.take(),
        refs: report.refs.take(),
        defaults: report.defaults.take(),
        warnings: report.take_warnings(),
        unsupported: report.unsupported.take(),
        effective: built.effective,
    })
}
