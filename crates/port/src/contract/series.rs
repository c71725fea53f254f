//! Series: samples in order of time.

use model::Time;

use super::Place;
use crate::{SERIES_KEPT, Series};

pub(super) const CASES: &[fn(Place<dyn Series>)] = &[
    samples_come_back_in_order_of_time,
    the_last_sample_before_a_range_comes_with_it,
    names_are_found_by_prefix,
    old_samples_go_but_the_last_of_them,
];

fn at(samples: &[(u64, &str)]) -> Vec<(Time, String)> {
    samples
        .iter()
        .map(|(time, text)| (Time(*time), (*text).to_owned()))
        .collect()
}

fn samples_come_back_in_order_of_time(open: Place<dyn Series>) {
    {
        let series = open();
        series
            .append("nodes/低", &at(&[(10, "a"), (20, "b")]))
            .expect("appended");
        series
            .append("nodes/低", &at(&[(15, "c"), (20, "b2"), (30, "it's\n")]))
            .expect("appended");
        series.append("nodes/低", &[]).expect("nothing to do");
        let all = series
            .range("nodes/低", Time(0), Time(u64::MAX >> 1))
            .expect("read");
        assert_eq!(
            all,
            at(&[(10, "a"), (15, "c"), (20, "b"), (20, "b2"), (30, "it's\n")]),
            "equal times keep the order they came in"
        );
    }
    let all = open()
        .range("nodes/低", Time(0), Time(u64::MAX >> 1))
        .expect("read");
    assert_eq!(all.len(), 5, "samples outlive a restart in good order");
}

fn the_last_sample_before_a_range_comes_with_it(open: Place<dyn Series>) {
    let series = open();
    series
        .append("s", &at(&[(10, "a"), (20, "b"), (30, "c")]))
        .expect("appended");
    let range = |from, to| series.range("s", Time(from), Time(to)).expect("read");
    assert_eq!(range(20, 30), at(&[(10, "a"), (20, "b")]), "from <= t < to");
    assert_eq!(range(0, 11), at(&[(10, "a")]));
    assert_eq!(range(21, 22), at(&[(20, "b")]));
    assert_eq!(range(31, 99), at(&[(30, "c")]));
    assert_eq!(range(0, 10), at(&[]));
    assert_eq!(
        series.range("nobody", Time(0), Time(9)).expect("read"),
        at(&[])
    );
}

fn names_are_found_by_prefix(open: Place<dyn Series>) {
    let series = open();
    for name in ["m/b", "m/a", "m", "n/a", "m/%", "M/a"] {
        series.append(name, &at(&[(1, "x")])).expect("appended");
    }
    assert_eq!(series.names("m/").expect("listed"), ["m/%", "m/a", "m/b"]);
    assert_eq!(series.names("m/%").expect("listed"), ["m/%"]);
    assert_eq!(series.names("").expect("listed").len(), 6);
    assert!(series.names("z").expect("listed").is_empty());

    // a name that begins like a pattern is a name
    series.forget("m/%").expect("forgotten");
    assert_eq!(series.names("m/").expect("listed"), ["m/a", "m/b"]);
    series.forget("m/").expect("forgotten");
    series.forget("nobody").expect("nothing to do");
    assert!(series.names("m/").expect("listed").is_empty());
    assert_eq!(series.names("").expect("listed").len(), 3);
    let of = |name| series.range(name, Time(0), Time(9)).expect("read");
    assert!(of("m/a").is_empty());
    series.append("m/a", &at(&[(2, "y")])).expect("appended");
    assert_eq!(of("m/a"), at(&[(2, "y")]));
}

fn old_samples_go_but_the_last_of_them(open: Place<dyn Series>) {
    let series = open();
    series
        .append("s", &at(&[(10, "a"), (20, "b"), (30, "c")]))
        .expect("appended");
    series.append("other", &at(&[(10, "x")])).expect("appended");
    let all = |name| series.range(name, Time(0), Time(u64::MAX >> 1));
    let newest = 30 + SERIES_KEPT.0;
    series.append("s", &at(&[(newest, "d")])).expect("appended");
    assert_eq!(
        all("s").expect("read"),
        at(&[(20, "b"), (30, "c"), (newest, "d")]),
        "a sample at the limit is kept, and the last one before it"
    );
    series
        .append("s", &at(&[(newest + 5, "e")]))
        .expect("appended");
    assert_eq!(
        all("s").expect("read"),
        at(&[(30, "c"), (newest, "d"), (newest + 5, "e")])
    );
    assert_eq!(all("other").expect("read").len(), 1);
}
