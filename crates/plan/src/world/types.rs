//! Instance types of the embedded cluster, and Kubernetes computes, as the World keeps them.

use model::{
    ComputeId, DocKey, Document, InstanceType, KubernetesRecord, KubernetesSpec, Name, Time,
    view::{TypeChange, TypeRecord},
};
use std::sync::Arc;

use super::World;
use crate::limits::TYPE_CHANGES;

impl World {
    pub(super) fn kubernetes_declared(
        &mut self,
        key: &DocKey,
        spec: &Arc<KubernetesSpec>,
        at: Time,
    ) {
        let id = ComputeId::new(&key.workspace, key.path.clone());
        let record = KubernetesRecord {
            id: id.clone(),
            spec: spec.clone(),
            deleting: false,
            changed: at,
        };
        self.view
            .kubernetes
            .insert_mut(id.clone(), Arc::new(record));
        self.pods.entry(id.clone()).or_default();
        self.reseat_waiting(&id);
        self.dirty.insert(id);
    }

    pub(super) fn type_written(&mut self, document: &Document, declared: &Arc<InstanceType>) {
        let types = &mut self.view.types;
        types.revision += 1;
        let record = Arc::new(TypeRecord {
            json: document.json.clone(),
            declared: declared.clone(),
            generation: document.generation,
            revision: types.revision,
        });
        let name = document.key.path.clone();
        let change = if types.records.contains_key(&name) {
            TypeChange::Modified
        } else {
            TypeChange::Added
        };
        types.records.insert_mut(name, record.clone());
        self.type_changed(change, record);
    }

    pub(super) fn type_removed(&mut self, name: &Name) {
        let types = &mut self.view.types;
        let Some(record) = types.records.get(name).cloned() else {
            return;
        };
        types.records.remove_mut(name);
        types.revision += 1;
        self.type_changed(TypeChange::Deleted, record);
    }

    fn type_changed(&mut self, change: TypeChange, record: Arc<TypeRecord>) {
        let types = &mut self.view.types;
        if types.recent.is_empty() {
            types.since = types.revision - 1;
        }
        types.recent.enqueue_mut((types.revision, change, record));
        if types.recent.len() > TYPE_CHANGES {
            if let Some((revision, ..)) = types.recent.peek() {
                types.since = *revision;
            }
            types.recent.dequeue_mut();
        }
        self.embedded_changed = true; // who waits on the embedded cluster is looked at again
    }
}
