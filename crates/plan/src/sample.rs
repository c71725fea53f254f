//! What a sweep tries next (behaviour §2.1.7). A pure function of the seed, the number of the trial and the results so far.
//!
//! P1 the same seed gives the same trials, on every machine and at every replay: draws are hashes, not a generator's state;
//! P2 a grid tries each combination once, the last parameter changing fastest;
//! P3 a Sobol sequence fills each parameter evenly: any first 2^k trials have one in each 2^k-th of it;
//! P4 bayesian sampling (a tree of Parzen estimators) draws near the better results of the trials that have ended, and
//!    differs from random only once there are enough of them.

use model::{
    Child, Real, SweepSpec,
    family::{Domain, Sampling},
};
use std::collections::BTreeMap;

/// Results that bayesian sampling has before it looks at them.
const BAYES_START: usize = 5;
/// Places that it compares for each trial.
const BAYES_CANDIDATES: u64 = 24;
/// The part of the results that counts as good.
const BAYES_GOOD: f64 = 0.25;
/// Digits of a number that is handed to a command: enough to tell any two, few enough to hide how it was computed.
const DIGITS: usize = 15;

/// Trials in all.
pub(crate) fn total(spec: &SweepSpec) -> u32 {
    match spec.sampling {
        Sampling::Grid => {
            let sizes = spec.space.values().map(|d| match d {
                Domain::Choice(values) => values.len(),
                _ => 1,
            });
            let all = sizes.fold(1_usize, usize::saturating_mul);
            spec.total.min(u32::try_from(all).unwrap_or(u32::MAX))
        }
        Sampling::Random { .. } | Sampling::Sobol { .. } | Sampling::Bayesian { .. } => spec.total,
    }
}

/// The parameters of trial `number`, after what `children` have reported.
pub(crate) fn choose<'a>(
    spec: &SweepSpec,
    number: u32,
    children: impl Iterator<Item = &'a Child>,
) -> BTreeMap<Box<str>, Box<str>> {
    match spec.sampling {
        Sampling::Grid => grid(spec, number),
        Sampling::Random { seed } => at(spec, |i| unit(seed, u64::from(number), i)),
        Sampling::Sobol { seed } => at(spec, |i| sobol(seed, number, i)),
        Sampling::Bayesian { seed } => bayesian(spec, seed, number, children),
    }
}

fn grid(spec: &SweepSpec, number: u32) -> BTreeMap<Box<str>, Box<str>> {
    let mut rest = number as usize;
    let mut out = BTreeMap::new();
    for (name, domain) in spec.space.iter().rev() {
        if let Domain::Choice(values) = domain
            && !values.is_empty()
        {
            out.insert(name.clone(), values[rest % values.len()].clone());
            rest /= values.len();
        }
    }
    out
}

/// The parameters at a point of the unit cube, one coordinate per parameter in the order of their names.
fn at(spec: &SweepSpec, point: impl Fn(u64) -> f64) -> BTreeMap<Box<str>, Box<str>> {
    let all = spec.space.iter().zip(0..);
    all.map(|((name, domain), i)| (name.clone(), value(domain, point(i))))
        .collect()
}

/// The value of a parameter at a place between 0 and 1.
fn value(domain: &Domain, u: f64) -> Box<str> {
    let number = match domain {
        Domain::Choice(values) => {
            let i = place(u, values.len() as u64);
            let found = usize::try_from(i).ok().and_then(|i| values.get(i));
            return found.cloned().unwrap_or_default();
        }
        Domain::RandInt(upper) => return place(u, *upper).to_string().into(),
        Domain::Uniform { min, max, step } => {
            rounded(min.get() + u * (max.get() - min.get()), *step)
        }
        Domain::LogUniform { min, max, step } => {
            rounded((min.get() + u * (max.get() - min.get())).exp(), *step)
        }
        Domain::Normal { mu, sigma, step } => rounded(mu.get() + sigma.get() * quantile(u), *step),
        Domain::LogNormal { mu, sigma, step } => {
            rounded((mu.get() + sigma.get() * quantile(u)).exp(), *step)
        }
    };
    shown(number)
}

/// A whole number below `n`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "u is in 0..1, so the product is in 0..n"
)]
fn place(u: f64, n: u64) -> u64 {
    ((u * n as f64) as u64).min(n.saturating_sub(1))
}

fn rounded(number: f64, step: Option<Real>) -> f64 {
    match step {
        Some(q) if q.get() > 0.0 => (number / q.get()).round() * q.get(),
        _ => number,
    }
}

fn shown(number: f64) -> Box<str> {
    let short = format!("{number:.*e}", DIGITS - 1);
    let number: f64 = short.parse().unwrap_or(number);
    format!("{number}").into()
}

/// The place below which a part `u` of a standard normal distribution lies (Acklam's rational approximation, error below
/// 1.2e-9, far finer than what a parameter needs).
fn quantile(u: f64) -> f64 {
    const A: [f64; 6] = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
    ];
    const C: [f64; 6] = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] = [
        7.784_695_709_041_462e-3,
        3.224_671_290_700_398e-1,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
    ];
    const LOW: f64 = 0.02425;
    let horner = |c: &[f64], x: f64| c.iter().fold(0.0, |sum, c| sum * x + c);
    let u = u.clamp(1e-12, 1.0 - 1e-12);
    if u < LOW {
        let q = (-2.0 * u.ln()).sqrt();
        return horner(&C, q) / (horner(&D, q) * q + 1.0);
    }
    if u > 1.0 - LOW {
        return -quantile(1.0 - u);
    }
    let q = u - 0.5;
    let r = q * q;
    horner(&A, r) * q / (horner(&B, r) * r + 1.0)
}

/// A hash of three numbers (SplitMix64 over each): the draw.
fn hash(seed: u64, number: u64, i: u64) -> u64 {
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    mix(mix(mix(seed) ^ number) ^ i)
}

/// A number in 0..1 of 53 bits.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

fn unit(seed: u64, number: u64, i: u64) -> f64 {
    fraction(hash(seed, number, i))
}

/// Primitive polynomial (degree, coefficients) and first direction numbers of each dimension after the first, as tabulated by
/// Joe and Kuo.
const DIRECTIONS: [(u32, u32, &[u32]); 15] = [
    (1, 0, &[1]),
    (2, 1, &[1, 3]),
    (3, 1, &[1, 3, 1]),
    (3, 2, &[1, 1, 1]),
    (4, 1, &[1, 1, 3, 3]),
    (4, 4, &[1, 3, 5, 13]),
    (5, 2, &[1, 1, 5, 5, 17]),
    (5, 4, &[1, 1, 5, 5, 5]),
    (5, 7, &[1, 1, 7, 11, 19]),
    (5, 11, &[1, 1, 5, 1, 1]),
    (5, 13, &[1, 1, 1, 3, 11]),
    (5, 14, &[1, 3, 5, 5, 31]),
    (6, 1, &[1, 3, 3, 9, 7, 49]),
    (6, 13, &[1, 1, 1, 15, 21, 21]),
    (6, 16, &[1, 3, 1, 13, 27, 49]),
];
const BITS: u32 = 32;

fn directions(dimension: u64) -> [u32; BITS as usize] {
    let mut v = [0_u32; BITS as usize];
    let table = usize::try_from(dimension)
        .ok()
        .and_then(|d| d.checked_sub(1))
        .and_then(|d| DIRECTIONS.get(d % DIRECTIONS.len()));
    let Some(&(degree, a, first)) = table else {
        for (i, v) in (1..).zip(v.iter_mut()) {
            *v = 1 << (BITS - i);
        }
        return v;
    };
    let s = degree as usize;
    for i in 0..BITS as usize {
        let shift = BITS - 1 - u32::try_from(i).unwrap_or(0);
        if i < s {
            v[i] = first[i] << shift;
            continue;
        }
        v[i] = v[i - s] ^ (v[i - s] >> degree);
        for k in 1..s {
            if (a >> (s - 1 - k)) & 1 == 1 {
                v[i] ^= v[i - k];
            }
        }
    }
    v
}

/// Coordinate `i` of point `number` of the sequence, shifted by the seed. `wire` allows as many parameters as there are
/// dimensions.
fn sobol(seed: u64, number: u32, i: u64) -> f64 {
    let v = directions(i);
    let gray = number ^ (number >> 1);
    let point = (0..BITS as usize)
        .filter(|bit| (gray >> bit) & 1 == 1)
        .fold(0, |x, bit| x ^ v[bit]);
    let shift = hash(seed, u64::MAX, i) >> 32;
    let bits = u64::from(point) ^ shift;
    // the middle of its cell, so that no value lies on an edge
    fraction((bits << 32) | (1 << 31))
}

/// Dimensions of the sequence.
#[cfg(test)]
const SOBOL_DIMENSIONS: u64 = 16;

fn bayesian<'a>(
    spec: &SweepSpec,
    seed: u64,
    number: u32,
    children: impl Iterator<Item = &'a Child>,
) -> BTreeMap<Box<str>, Box<str>> {
    let mut results: Vec<(Real, &Child)> = children
        .filter(|c| c.outcome.is_some())
        .filter_map(|c| Some((c.best?, c)))
        .collect();
    if results.len() < BAYES_START {
        return at(spec, |i| unit(seed, u64::from(number), i));
    }
    let goal = spec.goal;
    results.sort_by(|a, b| goal.compare(b.0, a.0)); // stable: equals stay in the order of their numbers
    let good = share(results.len());
    let mut out = BTreeMap::new();
    for ((name, domain), i) in spec.space.iter().zip(0..) {
        let places: Vec<f64> = results
            .iter()
            .map(|(_, c)| c.parameters.get(name).map_or(0.5, |v| place_of(domain, v)))
            .collect();
        let (near, far) = places.split_at(good.min(places.len()));
        let width = width(domain, places.len());
        let mut best = (f64::NEG_INFINITY, 0.5);
        for candidate in 0..BAYES_CANDIDATES {
            let draw = |k: u64| unit(seed ^ 0xBA, u64::from(number) << 8 | candidate, i * 4 + k);
            // one candidate in four from anywhere, so that no part of the space is given up
            let u = if draw(0) < 0.25 || near.is_empty() {
                draw(1)
            } else {
                let centre = near[usize::try_from(place(draw(2), near.len() as u64)).unwrap_or(0)];
                (centre + width * quantile(draw(3))).clamp(0.0, 1.0 - 1e-9)
            };
            let gain = density(near, u, width).ln() - density(far, u, width).ln();
            if gain > best.0 {
                best = (gain, u);
            }
        }
        out.insert(name.clone(), value(domain, best.1));
    }
    out
}

/// How many of `n` results are good.
fn share(n: usize) -> usize {
    let n = u32::try_from(n).unwrap_or(u32::MAX);
    let good = (f64::from(n) * BAYES_GOOD).ceil();
    (1..=n as usize).find(|&k| k as f64 >= good).unwrap_or(1)
}

/// How far a result speaks for its neighbourhood: less, the more there are; for choices, not to the next one.
fn width(domain: &Domain, results: usize) -> f64 {
    let n = f64::from(u32::try_from(results).unwrap_or(u32::MAX));
    let smooth = 0.5 / n.sqrt();
    match domain {
        Domain::Choice(values) => {
            let n = u32::try_from(values.len().max(1)).unwrap_or(u32::MAX);
            smooth.min(0.3 / f64::from(n))
        }
        _ => smooth,
    }
}

/// A mixture of normal distributions around the places, over an even floor.
fn density(places: &[f64], u: f64, width: f64) -> f64 {
    let sum: f64 = places
        .iter()
        .map(|p| (-0.5 * ((u - p) / width).powi(2)).exp() / (width * 2.506_628_274_631))
        .sum();
    let n = f64::from(u32::try_from(places.len()).unwrap_or(u32::MAX));
    (1.0 + sum) / (1.0 + n)
}

/// The place between 0 and 1 that gives this value.
fn place_of(domain: &Domain, text: &str) -> f64 {
    let number = text.parse::<f64>().unwrap_or_default();
    let between = |x: f64, min: Real, max: Real| {
        let span = max.get() - min.get();
        if span > 0.0 {
            ((x - min.get()) / span).clamp(0.0, 1.0)
        } else {
            0.5
        }
    };
    match domain {
        Domain::Choice(values) => {
            let i = values.iter().position(|v| **v == *text).unwrap_or(0);
            (i as f64 + 0.5) / values.len().max(1) as f64
        }
        Domain::RandInt(upper) => (number + 0.5) / (*upper).max(1) as f64,
        Domain::Uniform { min, max, .. } => between(number, *min, *max),
        Domain::LogUniform { min, max, .. } => {
            between(number.max(f64::MIN_POSITIVE).ln(), *min, *max)
        }
        // bayesian sampling has none of these (`wire` refuses them); the middle says nothing
        Domain::Normal { .. } | Domain::LogNormal { .. } => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{JobId, Outcome, RunSpec, Work, Workspace, family::Goal};
    use std::sync::Arc;

    fn real(x: f64) -> Real {
        Real::new(x).unwrap()
    }
    fn choice(values: &[&str]) -> Domain {
        Domain::Choice(values.iter().map(|&v| v.into()).collect())
    }
    fn uniform(min: f64, max: f64, step: Option<f64>) -> Domain {
        Domain::Uniform {
            min: real(min),
            max: real(max),
            step: step.map(real),
        }
    }
    fn sweep(sampling: Sampling, total: u32, space: &[(&str, Domain)]) -> SweepSpec {
        let w = Workspace::new("s", "g", "w");
        let task = serde_json::json!({
            "program": {"Command": {"line": "x"}},
            "environment": {"label": "e:1", "image": null, "packages": "None"},
            "code": null, "inputs": {}, "outputs": {}, "model": null, "variables": {},
            "limits": {"cpu": 0, "memory": 0}, "artifacts": "a/b",
        });
        SweepSpec {
            space: space
                .iter()
                .map(|(n, d)| ((*n).into(), d.clone()))
                .collect(),
            sampling,
            metric: "m".into(),
            goal: Goal::Maximize,
            termination: None,
            total,
            at_once: 1,
            trial: Arc::new(RunSpec {
                compute: model::ComputeId::new(&w, "c"),
                instances: 1,
                task: Arc::new(serde_json::from_value(task).unwrap()),
                work: Work::Command,
                timeout: None,
                instance_type: None,
                part: None,
            }),
            document: "{}".into(),
        }
    }
    fn child(number: u32, parameters: BTreeMap<Box<str>, Box<str>>, result: f64) -> Child {
        let w = Workspace::new("s", "g", "w");
        Child {
            key: number.to_string().into(),
            job: JobId::new(&w, format!("s_{number}").as_str()),
            outcome: Some(Outcome::Completed),
            outputs: BTreeMap::new(),
            reused_from: None,
            parameters,
            reports: vec![real(result)],
            best: Some(real(result)),
        }
    }

    #[test]
    fn p2_a_grid_tries_each_combination_once() {
        let spec = sweep(
            Sampling::Grid,
            100,
            &[("a", choice(&["1", "2"])), ("b", choice(&["x", "y", "z"]))],
        );
        assert_eq!(total(&spec), 6);
        let tried: Vec<String> = (0..6)
            .map(|n| {
                let p = grid(&spec, n);
                format!("{}{}", p["a"], p["b"])
            })
            .collect();
        assert_eq!(tried, ["1x", "1y", "1z", "2x", "2y", "2z"]);
    }

    #[test]
    fn p1_the_same_seed_gives_the_same_trials_within_their_bounds() {
        let space = [
            ("c", choice(&["16", "32"])),
            ("i", Domain::RandInt(7)),
            ("u", uniform(-1.0, 1.0, None)),
            ("q", uniform(0.0, 1.0, Some(0.1))),
            (
                "l",
                Domain::LogUniform {
                    min: real(-6.0),
                    max: real(-1.0),
                    step: None,
                },
            ),
        ];
        let spec = sweep(Sampling::Random { seed: 1 }, 100, &space);
        let other = sweep(Sampling::Random { seed: 2 }, 100, &space);
        let none = || std::iter::empty::<&Child>();
        let mut differ = 0;
        for n in 0..100 {
            let p = choose(&spec, n, none());
            assert_eq!(p, choose(&spec, n, none()));
            differ += u32::from(p != choose(&other, n, none()));
            let number = |name: &str| p[name].parse::<f64>().unwrap();
            assert!(["16", "32"].contains(&&*p["c"]));
            assert!(p["i"].parse::<u64>().unwrap() < 7);
            assert!((-1.0..1.0).contains(&number("u")));
            assert!(p["q"].len() <= 3, "{} is a multiple of 0.1", p["q"]);
            assert!(((-6.0_f64).exp()..(-1.0_f64).exp()).contains(&number("l")));
        }
        assert!(differ > 90);
    }

    #[test]
    fn p3_the_first_powers_of_two_of_a_sobol_sequence_have_one_trial_in_each_cell() {
        for dimension in 0..SOBOL_DIMENSIONS {
            for k in [2_u64, 4, 6] {
                let cells = 1_u64 << k;
                let mut seen: Vec<u64> = (0..cells)
                    .map(|n| place(sobol(9, u32::try_from(n).unwrap(), dimension), cells))
                    .collect();
                seen.sort_unstable();
                let all: Vec<u64> = (0..cells).collect();
                assert_eq!(seen, all, "dimension {dimension}, {cells} cells");
            }
        }
    }

    #[test]
    fn quantiles_are_those_of_the_normal_distribution() {
        for (u, z) in [
            (0.5, 0.0),
            (0.975, 1.959_964),
            (0.01, -2.326_348),
            (0.999, 3.090_232),
        ] {
            assert!((quantile(u) - z).abs() < 1e-5, "{u}");
        }
    }

    #[test]
    fn p4_bayesian_sampling_comes_closer_than_random_sampling() {
        let space = [
            ("x", uniform(0.0, 1.0, None)),
            ("y", choice(&["a", "b", "c"])),
        ];
        let result = |p: &BTreeMap<Box<str>, Box<str>>| {
            let x = p["x"].parse::<f64>().unwrap();
            let y = if &*p["y"] == "b" { 0.0 } else { -0.2 };
            -(x - 0.7).powi(2) + y
        };
        let best = |sampling: Sampling| {
            let spec = sweep(sampling, 40, &space);
            let mut children: Vec<Child> = Vec::new();
            for n in 0..40 {
                let p = choose(&spec, n, children.iter());
                let r = result(&p);
                children.push(child(n, p, r));
            }
            // the mean of the later half: how well it looks where it is good
            children[20..]
                .iter()
                .map(|c| c.best.unwrap().get())
                .sum::<f64>()
                / 20.0
        };
        let (mut bayesian, mut random) = (0.0, 0.0);
        for seed in 0..10 {
            bayesian += best(Sampling::Bayesian { seed });
            random += best(Sampling::Random { seed });
        }
        assert!(bayesian > random / 2.0, "{bayesian} and {random}"); // both below 0
    }
}
