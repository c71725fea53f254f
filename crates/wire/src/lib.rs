//! Shapes: Azure's spelling on one side, `model` on the other. The only crate that knows how Azure writes things; pure.
//!
//! Files come in through `yaml`, which makes the document that a client PUTs; the catalogue of machine sizes, the text form
//! of quantities and the rules of names are shared by every way in and out. See ARCHITECTURE.md.

pub mod access;
pub mod arm;
pub mod crd;
pub mod metrics;
pub mod mlflow;
pub mod names;
pub mod places;
pub mod quantity;
pub mod sizes;
pub mod view;
pub mod yaml;
