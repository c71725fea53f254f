//! Who there is and who has which role: the documents of both, held in memory and read anew after each write.
//!
//! Y1 what is written is in force when its writer is answered: a removed identity opens nothing from then on;
//! Y2 a document that cannot be read opens nothing.

use control::{Control, Page, StoreError};
use model::{DocKey, Document, Kind};
use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};
use wire::access::{Assignment, Identity, Role};

/// Identities, role definitions, and role assignments, that one server has at most: all are held in memory.
pub(crate) const MAX_ENTRIES: usize = 4_096;
/// Documents that are read at once.
const PAGE: usize = 1_000;

/// All of them at one time.
#[derive(Default)]
pub(crate) struct Entries {
    identities: HashMap<String, (Document, Arc<Identity>)>,
    definitions: Vec<(Document, Arc<Role>)>,
    assignments: Vec<(Document, Assignment)>,
}

impl Entries {
    /// An identity by name, whatever its case.
    pub fn identity(&self, name: &str) -> Option<&(Document, Arc<Identity>)> {
        self.identities.get(&name.to_ascii_lowercase())
    }
    /// All identities by name.
    pub fn identities(&self) -> Vec<&(Document, Arc<Identity>)> {
        let mut all: Vec<_> = self.identities.values().collect();
        all.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        all
    }
    /// The roles that users have defined.
    pub fn definitions(&self) -> &[(Document, Arc<Role>)] {
        &self.definitions
    }
    /// The same without their documents.
    pub fn roles(&self) -> impl Iterator<Item = &Arc<Role>> {
        self.definitions.iter().map(|(_, role)| role)
    }
    /// All assignments by name.
    pub fn assignments(&self) -> &[(Document, Assignment)] {
        &self.assignments
    }
    /// Whether some role lets `principal` do `action` at `resource`.
    pub fn lets(&self, principal: &str, action: &str, resource: &str) -> bool {
        let mut all = self.assignments.iter();
        all.any(|(_, assignment)| assignment.lets(principal, action, resource))
    }
    /// Whether `principal` has any role at, above or below `resource`.
    pub fn is_at_home(&self, principal: &str, resource: &str) -> bool {
        let near = |a: &Assignment| {
            wire::access::covers(&a.scope, resource) || wire::access::covers(resource, &a.scope)
        };
        let mut all = self.assignments.iter();
        all.any(|(_, a)| a.principal.eq_ignore_ascii_case(principal) && near(a))
    }
}

/// The present entries.
#[derive(Default)]
pub(crate) struct Directory {
    present: RwLock<Arc<Entries>>,
    /// One writer at a time: what was read later is never replaced by what was read before it.
    pub writing: tokio::sync::Mutex<()>,
}

impl Directory {
    /// The entries of now.
    pub fn look(&self) -> Arc<Entries> {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        present.clone()
    }

    /// Reads everything anew. Blocks.
    pub fn read(&self, control: &Control) -> Result<(), StoreError> {
        let mut entries = Entries::default();
        for document in all(control, Kind::Identity)? {
            match wire::access::identity(&document) {
                Ok(identity) => {
                    let key = identity.name.to_ascii_lowercase();
                    let entry = (document, Arc::new(identity));
                    entries.identities.insert(key, entry);
                }
                Err(error) => tracing::error!(%error, "an identity is left out"), // Y2
            }
        }
        for document in all(control, Kind::RoleDefinition)? {
            match wire::access::role::of(&document) {
                Ok(role) => entries.definitions.push((document, Arc::new(role))),
                Err(error) => tracing::error!(%error, "a role definition is left out"), // Y2
            }
        }
        let roles: Vec<Arc<Role>> = entries.roles().cloned().collect();
        for document in all(control, Kind::RoleAssignment)? {
            match wire::access::assignment_of(&document, &roles) {
                Ok(assignment) => entries.assignments.push((document, assignment)),
                Err(error) => tracing::error!(%error, "a role assignment is left out"), // Y2
            }
        }
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        *present = Arc::new(entries);
        Ok(())
    }
}

fn all(control: &Control, kind: Kind) -> Result<Vec<Document>, StoreError> {
    let mut page = Page {
        workspace: DocKey::of_server(kind, "").workspace,
        kind,
        parent: None,
        newest_first: false,
        after: None,
        limit: PAGE,
    };
    let mut found = vec![];
    loop {
        let (documents, next) = control.page(&page)?;
        found.extend(documents);
        page.after = next;
        if page.after.is_none() || found.len() >= 2 * MAX_ENTRIES {
            return Ok(found);
        }
    }
}
