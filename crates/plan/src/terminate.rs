//! Early termination: whether a trial is so much worse than the others that it is given up (behaviour §2.1.7).
//!
//! A report of the primary metric is one interval. A trial is compared with what others had reported by the same number of
//! reports; its own best until then counts.

use model::{
    Child, Real, Why,
    family::{Goal, Policy, Termination},
};

use crate::pool::count;

/// The reason to give a trial up after its last report, if there is one.
pub(crate) fn ask(rule: Termination, goal: Goal, trial: &Child, all: &[&Child]) -> Option<Why> {
    let reports = count(trial.reports.len());
    let interval = rule.interval.max(1);
    if reports == 0 || reports < rule.delay || !reports.is_multiple_of(interval) {
        return None;
    }
    let n = trial.reports.len();
    let own = best(&trial.reports[..n], goal)?;
    let there = || {
        all.iter()
            .filter(|c| c.reports.len() >= n)
            .map(|c| &c.reports[..n])
    };
    let limit = match rule.policy {
        Policy::BanditFactor(slack) => {
            let top = there()
                .filter_map(|r| best(r, goal))
                .max_by(|a, b| goal.compare(*a, *b))?;
            slackened(top, slack, goal)?
        }
        Policy::BanditAmount(slack) => {
            let top = there()
                .filter_map(|r| best(r, goal))
                .max_by(|a, b| goal.compare(*a, *b))?;
            match goal {
                Goal::Maximize => Real::new(top.get() - slack.get())?,
                Goal::Minimize => Real::new(top.get() + slack.get())?,
            }
        }
        Policy::Median => median(there().filter_map(average).collect())?,
        Policy::Truncation(percent) => {
            let mut bests: Vec<Real> = there().filter_map(|r| best(r, goal)).collect();
            bests.sort_by(|a, b| goal.compare(*a, *b));
            let cut = bests.len() * percent as usize / 100;
            *bests.get(cut)? // the worst that stays
        }
    };
    goal.compare(own, limit)
        .is_lt()
        .then(|| Why::TerminatedEarly {
            policy: rule.policy.word().into(),
            reports,
            best: own,
            limit,
        })
}

fn best(reports: &[Real], goal: Goal) -> Option<Real> {
    reports.iter().copied().max_by(|a, b| goal.compare(*a, *b))
}

/// The best, worsened by the factor; also where the metric is negative, worse is worse.
fn slackened(top: Real, slack: Real, goal: Goal) -> Option<Real> {
    let factor = 1.0 + slack.get();
    let lower = match goal {
        Goal::Maximize => top.get() >= 0.0,
        Goal::Minimize => top.get() < 0.0,
    };
    Real::new(if lower {
        top.get() / factor
    } else {
        top.get() * factor
    })
}

fn average(reports: &[Real]) -> Option<Real> {
    let sum: f64 = reports.iter().map(|r| r.get()).sum();
    let n = u32::try_from(reports.len()).ok().filter(|&n| n > 0)?;
    Real::new(sum / f64::from(n))
}

fn median(mut values: Vec<Real>) -> Option<Real> {
    values.sort();
    let n = values.len();
    let upper = values.get(n / 2)?;
    if n % 2 == 1 {
        return Some(*upper);
    }
    Real::new((values.get(n / 2 - 1)?.get() + upper.get()) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{JobId, Workspace};
    use std::collections::BTreeMap;

    fn trial(number: u32, reports: &[f64]) -> Child {
        let w = Workspace::new("s", "g", "w");
        Child {
            key: number.to_string().into(),
            job: JobId::new(&w, format!("s_{number}").as_str()),
            outcome: None,
            outputs: BTreeMap::new(),
            reused_from: None,
            parameters: BTreeMap::new(),
            reports: reports.iter().map(|&r| Real::new(r).unwrap()).collect(),
            best: None,
        }
    }
    fn rule(policy: Policy, interval: u32, delay: u32) -> Termination {
        Termination {
            policy,
            interval,
            delay,
        }
    }
    fn asked(rule: Termination, goal: Goal, all: &[Child]) -> Vec<bool> {
        let refs: Vec<&Child> = all.iter().collect();
        all.iter()
            .map(|c| ask(rule, goal, c, &refs).is_some())
            .collect()
    }

    #[test]
    fn bandit_ends_what_is_outside_the_slack_of_the_best() {
        let all = [trial(0, &[0.8]), trial(1, &[0.67]), trial(2, &[0.66])];
        let factor = rule(Policy::BanditFactor(Real::new(0.2).unwrap()), 1, 0);
        // 0.8 / 1.2 = 0.666…, the example of Azure's documentation
        assert_eq!(asked(factor, Goal::Maximize, &all), [false, false, true]);
        let amount = rule(Policy::BanditAmount(Real::new(0.005).unwrap()), 1, 0);
        assert_eq!(asked(amount, Goal::Minimize, &all), [true, true, false]);
    }

    #[test]
    fn a_rule_rests_before_its_delay_and_between_its_intervals() {
        let bandit = |interval, delay| rule(Policy::BanditAmount(Real::default()), interval, delay);
        let all = [
            trial(0, &[9.0; 6]),
            trial(1, &[1.0; 5]),
            trial(2, &[1.0; 6]),
        ];
        assert_eq!(
            asked(bandit(3, 0), Goal::Maximize, &all),
            [false, false, true]
        );
        assert_eq!(
            asked(bandit(1, 6), Goal::Maximize, &all),
            [false, false, true]
        );
        assert_eq!(
            asked(bandit(1, 0), Goal::Maximize, &all),
            [false, true, true]
        );
    }

    #[test]
    fn median_compares_the_best_with_the_averages() {
        let all = [
            trial(0, &[1.0, 3.0]),
            trial(1, &[4.0, 4.0]),
            trial(2, &[0.0, 1.0]),
        ];
        // averages 2, 4 and 0.5: the median is 2
        let median = rule(Policy::Median, 1, 0);
        assert_eq!(asked(median, Goal::Maximize, &all), [false, false, true]);
    }

    #[test]
    fn truncation_ends_the_worst_percentage() {
        let all: Vec<Child> = (0..5).map(|n| trial(n, &[f64::from(n)])).collect();
        let cut = |percent| rule(Policy::Truncation(percent), 1, 0);
        assert_eq!(
            asked(cut(40), Goal::Maximize, &all),
            [true, true, false, false, false]
        );
        assert_eq!(asked(cut(10), Goal::Maximize, &all), [false; 5]);
    }
}
