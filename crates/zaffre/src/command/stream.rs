//! Following a job to its end: its log on stdout as it is written, progress on stderr, the verdict as exit status.
//!
//! W1 every byte of the log is printed once, in order, also what was written before the following began;
//! W2 the command ends with 1 when the work failed or was canceled, and says why and what to do.

use super::Context;
use crate::{
    client::{Client, locate::plain_name},
    failure::Failure,
    output,
    progress::Progress,
    shape::{self, Shape},
};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// First pause between two looks; it grows while nothing happens.
const SHORTEST: Duration = Duration::from_millis(50);
/// Longest pause: a person notices a delay above this.
const LONGEST: Duration = Duration::from_millis(800);

/// How a job is followed.
#[derive(Clone, Copy, Debug)]
pub struct Follow {
    /// Show no progress.
    pub quiet: bool,
}

/// A job that has ended.
pub struct Ended {
    /// As shown.
    pub document: Value,
    status: String,
    why: Option<String>,
    hint: Option<String>,
}

impl Ended {
    /// Success, or the failure that the work ended with (W2).
    pub fn verdict(self) -> Result<(), Failure> {
        if self.status == "Completed" {
            return Ok(());
        }
        let name = self.document["name"].as_str().unwrap_or_default();
        let why = self.why.map_or_else(String::new, |why| format!(": {why}"));
        let mut failure = Failure::failed(format!("job {name} ended {}{why}", self.status));
        failure.hint = self.hint.map(|hint| hint.replace("JOB", name));
        Err(failure)
    }
}

/// `job stream`.
pub async fn run(context: &Context, name: &str) -> Result<(), Failure> {
    let ended = follow(
        &context.client,
        name,
        Follow {
            quiet: context.globals.only_show_errors,
        },
    )
    .await?;
    if !context.globals.only_show_errors {
        output::say(&format!("job {name} {}", ended.status));
    }
    ended.verdict()
}

/// Follows a job until it has ended.
pub async fn follow(client: &Client, name: &str, how: Follow) -> Result<Ended, Failure> {
    plain_name("job", name)?;
    let job_at = client.at(&format!("jobs/{name}"));
    let details_at = format!(
        "/history/v1.0/{}/runs/{name}/details",
        client.scope().data_plane()
    );
    let first = client.get(&job_at).await?;
    let progress = (!how.quiet).then(|| Progress::spinner(&format!("{name} {}", status(&first))));
    let mut printed: BTreeMap<String, u64> = BTreeMap::new();
    let mut pause = SHORTEST;
    let mut seen = String::new();
    loop {
        let job = client.get(&job_at).await?;
        let over = is_over(status(&job));
        let details = client.get(&details_at).await?;
        let news = print_logs(client, &details, &mut printed, progress.as_ref()).await?;
        let text = describe(&job);
        if let Some(progress) = &progress {
            if let Some((done, total)) = mini_batches(&job) {
                progress.total(total);
                progress.at(done);
            }
            progress.text(&text);
        }
        if over {
            if let Some(progress) = progress {
                progress.clear();
            }
            return ended(client, &job).await;
        }
        pause = if news || text != seen {
            SHORTEST
        } else {
            (pause * 3 / 2).min(LONGEST)
        };
        seen = text;
        tokio::time::sleep(pause).await;
    }
}

fn status(job: &Value) -> &str {
    job.pointer("/properties/status")
        .and_then(Value::as_str)
        .unwrap_or("Unknown")
}

/// The states that a job does not leave.
pub fn is_over(status: &str) -> bool {
    matches!(
        status,
        "Completed" | "Failed" | "Canceled" | "NotResponding" | "Paused"
    )
}

/// Prints what is new in the logs people are shown: the standard log of the leading process, for batch runs the log of the run.
async fn print_logs(
    client: &Client,
    details: &Value,
    printed: &mut BTreeMap<String, u64>,
    progress: Option<&Progress>,
) -> Result<bool, Failure> {
    let mut news = false;
    for (name, url) in shown_logs(details) {
        let at = printed.entry(name.to_owned()).or_default();
        let bytes = client.tail(url, *at).await?;
        if bytes.is_empty() {
            continue;
        }
        *at += bytes.len() as u64;
        news = true;
        match progress {
            Some(progress) => progress.aside(|| output::write_bytes(&bytes))?,
            None => output::write_bytes(&bytes)?,
        }
    }
    Ok(news)
}

/// What the shown logs of a job hold at this moment.
pub async fn log_of(client: &Client, name: &str) -> Result<String, Failure> {
    let at = format!(
        "/history/v1.0/{}/runs/{name}/details",
        client.scope().data_plane()
    );
    let details = client.get(&at).await?;
    let mut log = Vec::new();
    for (_, url) in shown_logs(&details) {
        log.extend(client.tail(url, 0).await?);
    }
    Ok(String::from_utf8_lossy(&log).into_owned())
}

/// The log of a run that is made of others.
const EXECUTION: &str = "logs/azureml/executionlogs.txt";
/// How far a batch run is; of a parallel step it is all there is to show.
const OVERVIEW: &str = "logs/job_progress_overview.txt";

/// Names and addresses of the logs that people are shown.
fn shown_logs(details: &Value) -> impl Iterator<Item = (&str, &str)> {
    let all = details["logFiles"].as_object();
    let has_own = all.is_some_and(|logs| logs.contains_key(EXECUTION));
    let named = all.into_iter().flatten();
    named.filter_map(move |(name, url)| {
        let shown = shown_log(name) || (name == OVERVIEW && !has_own);
        Some((name.as_str(), url.as_str().filter(|_| shown)?))
    })
}

/// `user_logs/std_log.txt`, `user_logs/std_log_process_0.txt` and `logs/azureml/executionlogs.txt`, as the SDK chooses.
fn shown_log(name: &str) -> bool {
    if name == EXECUTION {
        return true;
    }
    let Some(rest) = name
        .strip_prefix("user_logs/std_log")
        .and_then(|rest| rest.strip_suffix(".txt"))
    else {
        return false;
    };
    let rest = rest.strip_suffix("_ps").unwrap_or(rest);
    let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.bytes().all(|digit| digit == b'0')
}

/// The counts of a batch run in its job's document.
fn count(job: &Value, name: &str) -> Option<u64> {
    let value = job.pointer(&format!("/properties/properties/zaffre.{name}"))?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// Mini-batches done and in total, once the input is listed.
pub fn mini_batches(job: &Value) -> Option<(u64, u64)> {
    let total = count(job, "mini_batches_total")?;
    Some((count(job, "mini_batches_done").unwrap_or(0), total)).filter(|_| total > 0)
}

/// One line of how a job stands.
pub fn describe(job: &Value) -> String {
    let mut parts = vec![status(job).to_owned()];
    for (name, word) in [
        ("nodes", "nodes"),
        ("preemptions", "preemptions"),
        ("retries", "retries"),
        ("rerun", "run again"),
        ("rows", "rows"),
    ] {
        if let Some(n) = count(job, name) {
            parts.push(format!("{n} {word}"));
        }
    }
    if let Some(why) = job
        .pointer("/properties/properties/zaffre.why")
        .and_then(Value::as_str)
    {
        parts.push(why.to_owned());
    }
    parts.join(", ")
}

async fn ended(client: &Client, job: &Value) -> Result<Ended, Failure> {
    let name = job["name"].as_str().unwrap_or_default();
    let mut document = super::job::shown(job);
    let status = status(job).to_owned();
    let (mut why, mut hint) = (None, None);
    if status != "Completed" {
        let explained = client
            .get(&client.at(&format!("jobs/{name}/explain")))
            .await?;
        let text = |key: &str| {
            explained[key]
                .as_str()
                .filter(|text| !text.is_empty())
                .map(str::to_owned)
        };
        (why, hint) = (text("text"), text("hint"));
        if let Some(why) = &why {
            document["reason"] = why.clone().into();
        }
    }
    Ok(Ended {
        document,
        status,
        why,
        hint,
    })
}

/// What the job's document says of its output, for tables.
pub fn output_of(job: &Value) -> Option<String> {
    let p = &job["properties"];
    let file = p.pointer("/properties/zaffre.output_file");
    file.or_else(|| p.pointer("/outputs/score/uri"))
        .and_then(Value::as_str)
        .map(str::to_owned)
}

/// A job as `shape` shows it, with the output's full path beside it.
pub fn with_output(job: &Value) -> Value {
    let mut shown = shape::shown(Shape::Job, job);
    if let Some(path) = output_of(job) {
        shown["output"] = path.into();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_logs_shown_are_those_of_the_leading_process() {
        for (name, shown) in [
            ("user_logs/std_log.txt", true),
            ("user_logs/std_log_process_0.txt", true),
            ("user_logs/std_log_process_00.txt", true),
            ("user_logs/std_log_process_1.txt", false),
            ("user_logs/std_log_0_ps.txt", true),
            ("logs/azureml/executionlogs.txt", true),
            ("logs/user/error.txt", false),
        ] {
            assert_eq!(shown_log(name), shown, "{name}");
        }
    }

    #[test]
    fn a_verdict_names_job_reason_and_hint() {
        let ended = Ended {
            document: json!({"name": "j1"}),
            status: "Canceled".into(),
            why: Some("every node was preempted".into()),
            hint: Some("--resume-from JOB".into()),
        };
        let failure = ended.verdict().unwrap_err();
        assert_eq!(
            failure.message,
            "job j1 ended Canceled: every node was preempted"
        );
        assert_eq!(failure.hint.as_deref(), Some("--resume-from j1"));
    }
}
