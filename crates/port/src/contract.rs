//! Tests that every adapter must pass: call them from the adapter's own tests. They panic where a promise is broken.
//!
//! A case gets a `Place`: an opener of one fresh spot. Opening it again after everything of before was dropped is what a
//! restart is; what had been acknowledged must be there (P1).

use std::sync::Arc;

use crate::{Blobs, Series, Store};

mod files;
mod log;
mod pages;
mod sample;
mod series;

/// Opens one spot, again and again.
pub type Place<T> = Box<dyn Fn() -> Arc<T>>;

/// Runs every case of the store (T1–T3), each in a place of its own.
pub fn store(fresh: &dyn Fn() -> Place<dyn Store>) {
    for case in log::CASES.iter().chain(pages::CASES) {
        case(fresh());
    }
}

/// Runs every case of the series.
pub fn series(fresh: &dyn Fn() -> Place<dyn Series>) {
    for case in series::CASES {
        case(fresh());
    }
}

/// Runs every case of the blobs (O1, O2).
pub fn blobs(fresh: &dyn Fn() -> Place<dyn Blobs>) {
    for case in files::CASES {
        case(fresh());
    }
}
