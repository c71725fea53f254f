//! Batch runs (B1-B5 of `model::batch`): listed once, lent in ranges, taken parcel by parcel, published whole.

mod bits;
mod finish;
mod lend;
mod state;
mod take;

pub use bits::Bits;
pub use state::{Batch, Host};
