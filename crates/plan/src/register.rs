//! Outputs that become assets: when a run completes, in the turn in which it does.
//!
//! A1 the document of the asset, that it is the run's, and the end of the run are written together or not at all: an output
//!    is registered once, whatever is taken away or killed before;
//! A2 a run registers all of its outputs that are to be, or none: when one cannot be, the run fails and says which, and what
//!    it has made stays where it is. Whoever reads the version that was asked for never gets what somebody else has made;
//! A3 without a version an output gets the next one after all that there are, those of this turn too;
//! A4 a step whose result is taken from an identical one registers as that one did: the newest version is then this result.

use model::{
    Declared, DocKey, Document, Event, JobId, Kind, Name, RunEvent, Why, Work, run::Registration,
};
use std::{collections::BTreeMap, sync::Arc};

use crate::{resume::Resumable, turn::Turning};

/// What is stored and not in the World, as far as decisions need it.
#[derive(Clone, Copy)]
pub struct Archive<'a> {
    /// What runs that have left the World have to give.
    pub resumable: &'a dyn Fn(&JobId) -> Option<Resumable>,
    /// The versions of an asset, whose key names it without a version: those stored, and those that requests of this turn write.
    pub versions: &'a dyn Fn(&DocKey) -> Versions,
    /// The JSON of an asset's document.
    pub spell: &'a dyn Fn(&Registration<'_>) -> Arc<str>,
}

impl Archive<'_> {
    /// Nothing is stored.
    pub fn empty() -> Archive<'static> {
        Archive {
            resumable: &|_| None,
            versions: &|_| Versions::default(),
            spell: &|_| "{}".into(),
        }
    }
}

/// The versions of an asset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Their names.
    pub names: Vec<Box<str>>,
    /// No generation above this one was given to a document that is gone (D3).
    pub spent: u64,
}

/// `data asset`, `model`.
fn word(kind: Kind) -> &'static str {
    if kind == Kind::Model {
        "model"
    } else {
        "data asset"
    }
}

/// The version after the highest whole number among `names`; `1` when there is none.
fn next<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let highest = names.filter_map(|n| n.parse::<u64>().ok()).max();
    highest.map_or(1, |n| n.saturating_add(1)).to_string()
}

/// Names of versions compare as names of documents do.
fn is(name: &str, version: &str) -> bool {
    Name::from(name) == Name::from(version)
}

impl Turning<'_> {
    /// Makes the outputs of a run that completes the assets that they are to become (A2).
    pub fn register(&mut self, job: &JobId) -> Result<(), Box<Why>> {
        let Some(record) = self.world.run(job).cloned() else {
            return Ok(());
        };
        let mut events = Vec::new();
        let mut taken: BTreeMap<DocKey, Versions> = BTreeMap::new();
        for (output, spec) in &record.spec.task.outputs {
            let Some(register) = &spec.register else {
                continue;
            };
            let refused = |message: &str| {
                let version = register.version.as_ref();
                let version = version.map_or_else(String::new, |v| format!(":{v}"));
                Box::new(Why::NotRegistered {
                    output: output.clone(),
                    asset: format!("{} {}{version}", word(register.kind), register.name).into(),
                    message: message.into(),
                })
            };
            let nothing =
                matches!(record.spec.work, Work::Sweep(_)) && record.best_trial().is_none();
            let place = record.output(output).filter(|_| !nothing);
            let place = place.ok_or_else(|| refused("no trial has reported the primary metric"))?;
            let container = DocKey::new(job.workspace(), register.kind, register.name.clone());
            let versions = taken
                .entry(container.clone())
                .or_insert_with(|| self.versions(&container));
            let version = match &register.version {
                Some(version) if versions.names.iter().any(|n| is(n, version)) => {
                    return Err(refused("that version is there, made while the job ran"));
                }
                Some(version) => version.clone(),
                None => next(versions.names.iter().map(AsRef::as_ref)).into(), // A3
            };
            versions.names.push(version.clone());
            let asset = Name::from(format!("{}/{version}", register.name).as_str());
            let registration = Registration {
                job,
                register,
                place,
                datastore: spec.remote.as_ref().map(|r| &*r.datastore),
                file: spec.file,
            };
            let by = self.world.lives.get(job).map(|l| l.by.clone());
            let document = Document {
                key: DocKey::new(job.workspace(), register.kind, asset.clone()),
                generation: versions.spent + 1,
                json: (self.archive.spell)(&registration),
                created: self.now,
                modified: self.now,
                by: by.unwrap_or_default(),
            };
            events.push((document, output.clone(), asset));
        }
        for (document, output, asset) in events {
            self.emit_event(Event::Declared {
                document,
                declared: Declared::Other,
            });
            self.emit_run(job, RunEvent::Registered { output, asset });
        }
        Ok(())
    }

    /// What is stored, and what other runs have registered in this turn.
    fn versions(&self, container: &DocKey) -> Versions {
        let mut versions = (self.archive.versions)(container);
        let here = self.events.iter().filter_map(|event| match event {
            Event::Declared { document, .. } => Some(&document.key),
            _ => None,
        });
        for key in here.filter(|k| k.kind == container.kind && k.workspace == container.workspace) {
            if let Some((name, version)) = key.path.as_str().rsplit_once('/')
                && Name::from(name) == container.path
            {
                versions.names.push(version.into());
            }
        }
        versions
    }
}
