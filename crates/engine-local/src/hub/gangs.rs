//! The hub's gangs: where their tasks are reached, and that none begins before all can.
//!
//! J1 no task of a gang is told to begin before all of them are prepared and their agents wait for it; one that cannot be
//!    prepared ends as `NotStarted`, and the others wait until the control plane ends them;
//! J2 addresses are chosen once for a gang attempt. They lie with every agent that has heard of the task, so that a server
//!    after us, which may find one that has begun and one that waits, tells the same.

use super::Hub;
use crate::{
    gang::{self, Address},
    protocol::Held,
};
use model::TaskId;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

/// A gang is asked for in one turn of the control plane. One of it that is not asked for within this time will not be: it
/// has ended already, and was forgotten before the others began, because a server died in between.
const ASKED: Duration = Duration::from_secs(10);

impl Hub {
    /// Where the tasks of a gang are reached. This is the only place where addresses are chosen.
    pub fn addresses_of(&self, gang: &[TaskId]) -> Vec<Address> {
        if let Some(known) = gang.first().and_then(|first| self.addresses.get(first)) {
            return known.clone();
        }
        let taken: BTreeSet<u16> = self.addresses.values().flatten().map(|a| a.port).collect();
        gang::on_this_machine(gang, &taken)
    }

    /// Keeps the addresses that a task was told, by us or by a server before us (J2).
    pub fn know_addresses(&mut self, held: &Held) {
        if let Some(first) = held.placement.gang.first() {
            let known = self.addresses.entry(first.clone());
            known.or_insert_with(|| held.addresses.clone());
        }
    }

    /// Lets every gang begin that can (J1).
    pub fn begin_gangs(&mut self, now: Instant) {
        if self.gathering.is_empty() {
            return;
        }
        let gangs: BTreeMap<TaskId, Arc<Held>> = self
            .gathering
            .iter()
            .filter_map(|task| self.tasks.get(task)?.gang())
            .filter_map(|held| Some((held.placement.gang.first()?.clone(), held)))
            .collect();
        for held in gangs.into_values() {
            let gang = &held.placement.gang;
            if self.can_begin(gang, now) {
                for task in gang {
                    self.gathering.remove(task);
                    if let Some(entry) = self.tasks.get_mut(task) {
                        entry.may_begin = true;
                        self.hand_over(task);
                    }
                }
            }
        }
    }

    fn can_begin(&self, gang: &[TaskId], now: Instant) -> bool {
        let here = || gang.iter().filter_map(|task| self.tasks.get(task));
        let latest = here().map(|entry| entry.asked).max();
        let all_asked = gang.iter().all(|task| self.tasks.contains_key(task))
            || latest.is_some_and(|asked| now.duration_since(asked) > ASKED);
        all_asked && here().all(super::Entry::is_prepared)
    }
}
