//! What a quickstart shows at its end: predictions, what happened to nodes and mini-batches, where the files are.

use super::Scored;
use crate::{
    failure::{Failure, about},
    output::table::draw,
};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};

/// Rows of predictions that are shown.
const SHOWN: usize = 5;

/// Checks that every row has its prediction exactly once, and tells the rest.
pub fn render(folder: &Path, rows: &Path, seen: &Scored) -> Result<String, Failure> {
    let path = folder.join("scored/predictions.csv");
    let text = fs::read_to_string(&path).map_err(about(&path))?;
    let predictions: Vec<Vec<String>> = text
        .lines()
        .map(|line| line.split(',').map(str::to_owned).collect())
        .collect();
    once(rows, &predictions)?;
    let mut out = draw(
        vec!["Row".into(), "Prediction".into(), "File".into()],
        predictions.iter().take(SHOWN).cloned().collect(),
    );
    out.push_str(&format!(
        "... {} rows, each exactly once, in the order of the input\n\n",
        predictions.len()
    ));
    out.push_str(&draw(
        vec!["Node".into(), "States".into()],
        seen.nodes
            .iter()
            .map(|(id, states)| vec![id.clone(), states.join(" > ")])
            .collect(),
    ));
    out.push('\n');
    let count = |name: &str| {
        let value = seen
            .job
            .pointer(&format!("/properties/properties/zaffre.{name}"));
        value.and_then(Value::as_str).unwrap_or("0").to_owned()
    };
    out.push_str(&draw(
        vec![
            "Mini-batches".into(),
            "Preemptions".into(),
            "At".into(),
            "Run again".into(),
            "Retries spent".into(),
            "Rows".into(),
        ],
        vec![vec![
            count("mini_batches_total"),
            count("preemptions"),
            format!("{} done", seen.at),
            count("rerun"),
            count("retries"),
            count("rows"),
        ]],
    ));
    out.push_str(&format!(
        "\npredictions  {}\nrows scored  {}\neverything   {}\n",
        path.display(),
        rows.display(),
        folder.display()
    ));
    Ok(out)
}

/// Every row of every file exactly once, files in order.
fn once(rows: &Path, predictions: &[Vec<String>]) -> Result<(), Failure> {
    let mut wanted = BTreeMap::new();
    for entry in fs::read_dir(rows).map_err(about(rows))? {
        let path = entry.map_err(about(rows))?.path();
        let lines = fs::read_to_string(&path)
            .map_err(about(&path))?
            .lines()
            .count();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        wanted.insert(name, lines.saturating_sub(1));
    }
    let expected = wanted
        .iter()
        .flat_map(|(name, count)| (0..*count).map(move |_| name.as_str()));
    let found = predictions
        .iter()
        .map(|row| row.last().map_or("", String::as_str));
    if expected.clone().eq(found) {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "predictions.csv has {} rows, {} were to be scored, or their order differs",
        predictions.len(),
        expected.count()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_and_a_repeated_row_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.csv"), "x\n1\n2\n").unwrap();
        fs::write(folder.path().join("b.csv"), "x\n3\n").unwrap();
        let row = |file: &str| vec!["0".to_owned(), "1".to_owned(), file.to_owned()];
        once(folder.path(), &[row("a.csv"), row("a.csv"), row("b.csv")]).unwrap();
        assert!(once(folder.path(), &[row("a.csv"), row("b.csv")]).is_err());
        assert!(
            once(
                folder.path(),
                &[row("a.csv"), row("a.csv"), row("b.csv"), row("b.csv")]
            )
            .is_err()
        );
    }
}
