//! What an environment is made of: from a conda file, or from the model's own files, to pip requirements.
//!
//! X1 a requirement keeps its text where pip understands it; conda's `=1.2` becomes `==1.2.*`;
//! X2 a package that pip has no name for is left out and said.

use model::{TaskSpec, engine::Packages};
use serde::Deserialize;
use std::{fs, path::Path};

/// Requirements of one environment. More means a lock file that somebody pasted; uv takes it, and we do not wait for ever.
const MAX_REQUIREMENTS: usize = 2000;

/// What to install, on which Python.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recipe {
    /// `3.10`, when one is asked for.
    pub python: Option<String>,
    /// Lines for pip.
    pub requirements: Vec<String>,
    /// What was left out, for the log.
    pub notes: Vec<String>,
}

impl Recipe {
    /// Whether nothing has to be installed.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty() && self.python.is_none()
    }
}

#[derive(Deserialize)]
struct CondaFile {
    #[serde(default)]
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Dependency {
    Conda(String),
    Pip { pip: Vec<String> },
}

#[derive(Deserialize)]
struct PythonEnv {
    #[serde(default)]
    python: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// Conda packages whose pip name differs.
const NAMES: [(&str, &str); 9] = [
    ("pytorch", "torch"),
    ("pytorch-cpu", "torch"),
    ("py-xgboost", "xgboost"),
    ("tensorflow-base", "tensorflow"),
    ("opencv", "opencv-python-headless"),
    ("pyyaml", "PyYAML"),
    ("matplotlib-base", "matplotlib"),
    ("pytables", "tables"),
    ("msgpack-python", "msgpack"),
];
/// Conda packages that are no Python packages, or belong to conda itself.
const NOT_PIP: [&str; 10] = [
    "pip",
    "cudatoolkit",
    "cudnn",
    "libgcc",
    "libgcc-ng",
    "libstdcxx-ng",
    "mkl",
    "openssl",
    "conda",
    "gcc",
];

/// The recipe of a task's environment.
pub fn of(spec: &TaskSpec, model: Option<&Path>) -> Result<Recipe, String> {
    let label = &spec.environment.label;
    match &spec.environment.packages {
        Packages::None => Ok(Recipe::default()),
        Packages::Conda(text) => {
            conda(text).map_err(|e| format!("environment {label}: conda file: {e}"))
        }
        Packages::OfModel => {
            let folder = model
                .ok_or_else(|| format!("environment {label}: there is no model to read it from"))?;
            of_model(folder).map_err(|e| format!("environment {label}: {e}"))
        }
    }
}

fn of_model(folder: &Path) -> Result<Recipe, String> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let mut recipe = match (read("requirements.txt"), read("conda.yaml")) {
        (Some(text), _) => Recipe {
            requirements: lines(&text),
            ..Recipe::default()
        },
        (None, Some(text)) => conda(&text).map_err(|e| format!("conda.yaml of the model: {e}"))?,
        (None, None) => {
            return Err(
                "the model has neither requirements.txt nor conda.yaml beside its MLmodel"
                    .to_owned(),
            );
        }
    };
    if let Some(text) = read("python_env.yaml") {
        let env: PythonEnv = serde_saphyr::from_str(&text)
            .map_err(|e| format!("python_env.yaml of the model: {e}"))?;
        recipe.python = env.python.or(recipe.python);
        // `-r requirements.txt` is what stands there; anything else is a requirement.
        let more = env
            .dependencies
            .into_iter()
            .filter(|d| !d.starts_with("-r"));
        recipe.requirements.extend(more);
    }
    limit(recipe)
}

fn lines(text: &str) -> Vec<String> {
    text.lines()
        .map(|l| l.split(" #").next().unwrap_or(l).trim())
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

fn conda(text: &str) -> Result<Recipe, String> {
    let file: CondaFile = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    let mut recipe = Recipe::default();
    for dependency in file.dependencies {
        match dependency {
            Dependency::Pip { pip } => {
                for line in pip {
                    recipe.requirements.extend(lines(&line));
                }
            }
            Dependency::Conda(text) => one(&text, &mut recipe),
        }
    }
    limit(recipe)
}

fn limit(recipe: Recipe) -> Result<Recipe, String> {
    if recipe.requirements.len() > MAX_REQUIREMENTS {
        return Err(format!(
            "{} requirements, at most {MAX_REQUIREMENTS} are taken",
            recipe.requirements.len()
        ));
    }
    Ok(recipe)
}

/// `channel::name=version=build`, `name >=1,<2`, `name 1.2.*`.
fn one(text: &str, recipe: &mut Recipe) {
    let text = text.rsplit("::").next().unwrap_or(text).trim();
    let at = text
        .find(['=', '<', '>', '!', '~', ' '])
        .unwrap_or(text.len());
    let (name, rest) = (text[..at].trim().to_ascii_lowercase(), text[at..].trim());
    if name.is_empty() {
        return;
    }
    if name == "python" {
        if rest.starts_with(['<', '>', '!', '~']) {
            return; // a range: the Python that is there is taken, and the packages say when it does not do
        }
        let digits: String = rest
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        if !digits.is_empty() {
            recipe.python = Some(digits.trim_end_matches('.').to_owned());
        }
        return;
    }
    if name == "pip" {
        return;
    }
    if NOT_PIP.contains(&name.as_str()) || name.starts_with("lib") {
        recipe.notes.push(format!(
            "conda package {text:?} is not a pip package and is left out"
        ));
        return;
    }
    let name = NAMES
        .iter()
        .find(|(conda, _)| *conda == name)
        .map_or(name.as_str(), |(_, pip)| *pip);
    recipe.requirements.push(format!("{name}{}", version(rest)));
}

fn version(rest: &str) -> String {
    if rest.is_empty() || rest == "*" {
        return String::new();
    }
    let exact = |v: &str| {
        let v = v.split('=').next().unwrap_or(v).trim(); // without the build
        v.to_owned()
    };
    if let Some(v) = rest.strip_prefix("==") {
        return format!("=={}", exact(v));
    }
    if let Some(v) = rest.strip_prefix('=') {
        let whole = v.contains('=');
        let v = exact(v);
        return if whole || v.ends_with('*') {
            format!("=={v}")
        } else {
            format!("=={v}.*")
        };
    }
    if rest.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("=={rest}");
    }
    rest.replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conda_file_becomes_pip_requirements() {
        let recipe = conda(
            "name: x\nchannels: [conda-forge]\ndependencies:\n  - python=3.8\n  - pip\n  - numpy=1.21\n  \
             - conda-forge::scikit-learn==1.0.2\n  - pandas>=1.1, <2\n  - scipy=1.7.3=py38_0\n  - cudatoolkit=11\n  \
             - pip:\n    - mlflow<3\n    - azureml-core==1.2  # comment\n",
        )
        .unwrap();
        assert_eq!(recipe.python.as_deref(), Some("3.8"));
        assert_eq!(
            recipe.requirements,
            [
                "numpy==1.21.*",
                "scikit-learn==1.0.2",
                "pandas>=1.1,<2",
                "scipy==1.7.3",
                "mlflow<3",
                "azureml-core==1.2"
            ]
        );
        assert_eq!(recipe.notes.len(), 1, "{:?}", recipe.notes);
    }

    #[test]
    fn what_is_no_conda_file_is_an_error() {
        assert!(conda("dependencies: 7").is_err());
        assert!(conda("- a").is_err());
        assert!(conda("dependencies: []").unwrap().is_empty());
        assert!(conda("dependencies: ['python>=3.8']").unwrap().is_empty());
    }
}
