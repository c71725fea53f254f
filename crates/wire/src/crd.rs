//! Instance types as Kubernetes objects: manifests and requests in, the definition and views out.
//!
//! K1 what is taken here is what an API server with our definition takes, with the same words when it is not; the cases of
//!    `tests/crd` are asked of both;
//! K2 the object is kept as the user spelled it: `0.5Gi` stays `0.5Gi`, and is compared as a quantity;
//! K3 nothing that is written is dropped unseen, unless the caller says so (`Strictness`).

mod body;
mod check;
mod definition;
mod hint;
mod json;
mod metadata;
mod read;
mod scalar;
mod status;
mod view;
mod walk;

pub use body::from_yaml;
pub use check::{Checked, Strictness, check, check_bytes};
pub use definition::{definition, definition_yaml};
pub use read::{Item, objects, read, read_bytes};
pub use status::{Cause, Problem, Refused, kubectl_text};
pub use view::{arm_view, arm_view_of, object};

/// The group of the kind, which is Azure's.
pub const GROUP: &str = "amlarc.azureml.com";
/// Its only version.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of every object.
pub const API_VERSION: &str = "amlarc.azureml.com/v1alpha1";
/// The kind of one.
pub const KIND: &str = "InstanceType";
/// The kind of several.
pub const LIST_KIND: &str = "InstanceTypeList";
/// The plural in paths.
pub const PLURAL: &str = "instancetypes";
/// What `kubectl get` takes for one.
pub const SINGULAR: &str = "instancetype";
/// The name of the definition itself.
pub const NAME: &str = "instancetypes.amlarc.azureml.com";
