//! Verbs: the World, what is decided about it, and what reality still lacks. Pure: time, randomness and ids come in as
//! arguments, events and actions go out as values.
//!
//! * `World::apply` folds events; nothing else changes facts.
//! * `decide` turns commands and what is seen into events. It applies each event as it emits it, so later decisions of a turn
//!   see earlier ones.
//! * `missing` derives from World and observation what has to be asked of the engine. It is never stored: a crash anywhere
//!   costs one turn.
//!
//! V1 deciding twice about the same observation changes nothing the second time;
//! V2 the cost of a turn follows what changed: marks, commands and timers say where to look;
//! V3 the check that refuses returns the reason (`Why`, `Refusal`), with its numbers;
//! V4 everything has a limit (`limits`).

pub mod batch;
mod command_run;
mod commands;
mod due;
mod explain;
mod family;
pub mod limits;
mod missing;
mod nodes;
mod pods;
mod pool;
mod preempt;
mod quota;
mod register;
mod requests;
mod resume;
mod runs;
mod sample;
mod scale;
mod schedule;
mod tasks;
mod terminate;
mod turn;
mod world;

pub use batch::Batch;
pub use explain::explain;
pub use missing::missing;
pub use register::{Archive, Versions};
pub use resume::{Resumable, resumable};
pub use turn::{Touched, Turn, decide};
pub use world::{FORMAT, World};
