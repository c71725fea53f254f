//! `zaffre model`, `zaffre environment`, `zaffre data`: versions of assets.

use super::{Context, archive, changes, compute::expect, download};
use crate::{
    cli::{asset::*, component::Component},
    client::{locate::plain_name, operation::Wait},
    draft::{self, flag},
    failure::{Failure, Status},
    output::Columns,
    shape::{self, Shape},
};
use serde_json::Value;
use std::path::Path;
use wire::yaml::{Kind, Override};

const VERSIONS: Columns = &[
    ("Name", "/name"),
    ("Version", "/version"),
    ("Type", "/type"),
    ("Description", "/description"),
    ("Path", "/path"),
];
const CONTAINERS: Columns = &[
    ("Name", "/name"),
    ("Latest", "/latest_version"),
    ("Description", "/description"),
];

/// A kind of asset.
#[derive(Clone, Copy)]
struct Noun {
    word: &'static str,
    collection: &'static str,
    shape: Shape,
    kind: Kind,
}

const MODEL: Noun = Noun {
    word: "model",
    collection: "models",
    shape: Shape::Model,
    kind: Kind::Model,
};
const ENVIRONMENT: Noun = Noun {
    word: "environment",
    collection: "environments",
    shape: Shape::Environment,
    kind: Kind::Environment,
};
const DATA: Noun = Noun {
    word: "data",
    collection: "data",
    shape: Shape::Data,
    kind: Kind::Data,
};

const COMPONENT: Noun = Noun {
    word: "component",
    collection: "components",
    shape: Shape::Component,
    kind: Kind::Component,
};

/// Runs `zaffre model`.
pub async fn model(context: &Context, command: Model) -> Result<(), Failure> {
    match command {
        Model::Create(args) => {
            let mut list = draft::sets(&args.file.set)?;
            for (name, keys, value) in [
                ("--path", &["path"][..], &args.path),
                ("--type", &["type"], &args.r#type),
                ("--stage", &["stage"], &args.stage),
                ("--datastore", &["datastore"], &args.datastore),
            ] {
                flag(&mut list, name, keys, value.as_deref());
            }
            common(
                &mut list,
                args.name.as_ref(),
                args.version.as_ref(),
                args.description.as_ref(),
                &args.tags,
            )?;
            create(
                context,
                MODEL,
                args.file.file.as_deref(),
                &list,
                args.no_wait,
            )
            .await
        }
        Model::Show(args) => show(context, MODEL, &args).await,
        Model::List(args) => list(context, MODEL, args.list, args.stage.as_deref()).await,
        Model::Update(args) => {
            let mut extra = vec![];
            flag(&mut extra, "--stage", &["stage"], args.stage.as_deref());
            update(context, MODEL, args.update, extra).await
        }
        Model::Download(args) => download::model(context, args).await,
        Model::Archive(args) => hide(context, MODEL, &args, true).await,
        Model::Restore(args) => hide(context, MODEL, &args, false).await,
    }
}

/// Runs `zaffre environment`.
pub async fn environment(context: &Context, command: Environment) -> Result<(), Failure> {
    match command {
        Environment::Create(args) => {
            let mut list = draft::sets(&args.file.set)?;
            for (name, keys, value) in [
                ("--conda-file", &["conda_file"][..], &args.conda_file),
                ("--image", &["image"], &args.image),
                ("--build-context", &["build", "path"], &args.build_context),
                (
                    "--dockerfile-path",
                    &["build", "dockerfile_path"],
                    &args.dockerfile_path,
                ),
                ("--os-type", &["os_type"], &args.os_type),
                ("--datastore", &["datastore"], &args.datastore),
            ] {
                flag(&mut list, name, keys, value.as_deref());
            }
            common(
                &mut list,
                args.name.as_ref(),
                args.version.as_ref(),
                args.description.as_ref(),
                &args.tags,
            )?;
            create(
                context,
                ENVIRONMENT,
                args.file.file.as_deref(),
                &list,
                args.no_wait,
            )
            .await
        }
        Environment::Show(args) => show(context, ENVIRONMENT, &args).await,
        Environment::List(args) => list(context, ENVIRONMENT, args, None).await,
        Environment::Update(args) => update(context, ENVIRONMENT, args, vec![]).await,
        Environment::Archive(args) => hide(context, ENVIRONMENT, &args, true).await,
        Environment::Restore(args) => hide(context, ENVIRONMENT, &args, false).await,
    }
}

/// Runs `zaffre data`.
pub async fn data(context: &Context, command: Data) -> Result<(), Failure> {
    match command {
        Data::Create(args) => {
            let mut list = draft::sets(&args.file.set)?;
            for (name, keys, value) in [
                ("--path", &["path"][..], &args.path),
                ("--type", &["type"], &args.r#type),
                ("--datastore", &["datastore"], &args.datastore),
            ] {
                flag(&mut list, name, keys, value.as_deref());
            }
            common(
                &mut list,
                args.name.as_ref(),
                args.version.as_ref(),
                args.description.as_ref(),
                &[],
            )?;
            create(
                context,
                DATA,
                args.file.file.as_deref(),
                &list,
                args.no_wait,
            )
            .await
        }
        Data::Show(args) => show(context, DATA, &args).await,
        Data::List(args) => list(context, DATA, args, None).await,
        Data::Update(args) => update(context, DATA, args, vec![]).await,
        Data::Archive(args) => hide(context, DATA, &args, true).await,
        Data::Restore(args) => hide(context, DATA, &args, false).await,
    }
}

/// Runs `zaffre component`.
pub async fn component(context: &Context, command: Component) -> Result<(), Failure> {
    match command {
        Component::Create(args) => {
            let mut list = draft::sets(&args.file.set)?;
            let (name, version) = (args.name.as_ref(), args.version.as_ref());
            common(&mut list, name, version, None, &[])?;
            let file = args.file.file.as_deref();
            create(context, COMPONENT, file, &list, args.no_wait).await
        }
        Component::Show(args) => show(context, COMPONENT, &args).await,
        Component::List(args) => list(context, COMPONENT, args, None).await,
        Component::Update(args) => update(context, COMPONENT, args, vec![]).await,
        Component::Archive(args) => hide(context, COMPONENT, &args, true).await,
        Component::Restore(args) => hide(context, COMPONENT, &args, false).await,
    }
}

fn common(
    list: &mut Vec<Override>,
    name: Option<&String>,
    version: Option<&String>,
    description: Option<&String>,
    tags: &[String],
) -> Result<(), Failure> {
    flag(list, "--name", &["name"], name.map(String::as_str));
    flag(list, "--version", &["version"], version.map(String::as_str));
    flag(
        list,
        "--description",
        &["description"],
        description.map(String::as_str),
    );
    draft::tags(list, tags)
}

async fn create(
    context: &Context,
    noun: Noun,
    file: Option<&Path>,
    list: &[Override],
    no_wait: bool,
) -> Result<(), Failure> {
    let mut found = draft::read(file, list, noun.kind)?;
    expect(&found.draft, noun.kind)?;
    found.warn();
    let Some(name) = found.draft.name.clone() else {
        return Err(Failure::wrong(format!("the {} has no name", noun.word))
            .hint("add `name:` to the file, or --name"));
    };
    found.settle(&context.client).await?;
    let version = match found.draft.version.clone() {
        Some(version) => version,
        None => draft::next_version(&context.client, noun.collection, &name).await?,
    };
    let at = context
        .client
        .at(&format!("{}/{name}/versions/{version}", noun.collection));
    // a component says its name and version inside too
    if let Some(Value::Object(spec)) = found.draft.body.pointer_mut("/properties/componentSpec") {
        spec.insert("name".into(), name.as_str().into());
        spec.insert("version".into(), version.as_str().into());
    }
    let document = context
        .client
        .put(&at, &found.draft.body, Wait::unless(no_wait))
        .await?;
    context
        .output
        .show(&shape::shown(noun.shape, &document), VERSIONS)
}

/// The document of the version that was named, the newest without one.
async fn find(context: &Context, noun: Noun, which: &Version) -> Result<Value, Failure> {
    plain_name(noun.word, &which.name)?;
    let missing = |what: &str| {
        Failure::not_found(format!("{} {}{what} does not exist", noun.word, which.name))
            .hint(format!("`zaffre {} list` shows what there is", noun.word))
    };
    if let Some(version) = &which.version {
        plain_name("version", version)?;
        let at = context.client.at(&format!(
            "{}/{}/versions/{version}",
            noun.collection, which.name
        ));
        return context
            .client
            .find(&at)
            .await?
            .ok_or_else(|| missing(&format!(":{version}")));
    }
    match which.label.as_deref() {
        None | Some("latest") => draft::latest(&context.client, noun.collection, &which.name)
            .await?
            .ok_or_else(|| missing("")),
        Some(label) => Err(missing(&format!("@{label}"))),
    }
}

async fn show(context: &Context, noun: Noun, which: &Version) -> Result<(), Failure> {
    let document = find(context, noun, which).await?;
    context
        .output
        .show(&shape::shown(noun.shape, &document), VERSIONS)
}

async fn list(
    context: &Context,
    noun: Noun,
    args: List,
    stage: Option<&str>,
) -> Result<(), Failure> {
    let view = match (args.archived_only, args.include_archived) {
        (true, _) => "ArchivedOnly",
        (_, true) => "All",
        _ => "ActiveOnly",
    };
    let client = &context.client;
    if let Some(name) = &args.name {
        plain_name(noun.word, name)?;
        let at = client.at(&format!(
            "{}/{name}/versions?listViewType={view}",
            noun.collection
        ));
        let items = client.list(&at, args.max_results).await?;
        return context.output.show(
            &items
                .iter()
                .map(|arm| shape::shown(noun.shape, arm))
                .filter(|item| stage.is_none_or(|stage| item["stage"] == stage))
                .collect(),
            VERSIONS,
        );
    }
    if let Some(stage) = stage {
        return Err(Failure::wrong(format!(
            "--stage {stage}: versions have a stage, a {} has not",
            noun.word
        ))
        .hint("add --name"));
    }
    let items = client
        .list(
            &client.at(&format!("{}?listViewType={view}", noun.collection)),
            args.max_results,
        )
        .await?;
    let shown = items.iter().map(|arm| {
        let p = &arm["properties"];
        serde_json::json!({"name": arm["name"], "latest_version": p["latestVersion"], "description": p["description"], "tags": p["tags"], "id": arm["id"]})
    });
    context.output.show(&shown.collect(), CONTAINERS)
}

async fn update(
    context: &Context,
    noun: Noun,
    args: Update,
    extra: Vec<Override>,
) -> Result<(), Failure> {
    let mut document = find(context, noun, &args.which).await?;
    let id = document["id"].as_str().unwrap_or_default().to_owned();
    let before = shape::editable(noun.shape, &document);
    let mut after = before.clone();
    let mut overrides = changes(&mut after, &args.change)?;
    overrides.extend(extra);
    let changed = draft::change(&after, &overrides, noun.kind)?
        .draft
        .effective;
    for (key, value) in &changed {
        let same = before.get(key) == Some(value);
        if !same
            && !["tags", "description", "properties", "stage"].contains(&key.as_str())
            && before.get(key).is_some()
        {
            return Err(
                Failure::wrong(format!("{key} of a {} version never changes", noun.word))
                    .hint("create a new version"),
            );
        }
    }
    for key in ["tags", "description", "properties", "stage"] {
        document["properties"][key] = changed.get(key).cloned().unwrap_or_default();
    }
    let document = context.client.put(&id, &document, Wait::ForEnd).await?;
    context
        .output
        .show(&shape::shown(noun.shape, &document), VERSIONS)
}

/// Without a version or label the asset itself is hidden, with all its versions.
async fn hide(context: &Context, noun: Noun, which: &Version, hidden: bool) -> Result<(), Failure> {
    let at = if which.version.is_none() && which.label.is_none() {
        plain_name(noun.word, &which.name)?;
        context
            .client
            .at(&format!("{}/{}", noun.collection, which.name))
    } else {
        let document = find(context, noun, which).await?;
        document["id"].as_str().unwrap_or_default().to_owned()
    };
    match archive(&context.client, &at, hidden).await {
        Err(failure) if failure.status == Status::NotFound => Err(Failure::not_found(format!(
            "{} {} does not exist",
            noun.word, which.name
        ))),
        other => other,
    }
}
