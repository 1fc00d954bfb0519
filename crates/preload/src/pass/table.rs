//! What is known of objects of other providers, by the addresses of their C structures.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_sync::RwLock;

/// Objects of one kind.
pub struct ObjectTable<T>(RwLock<BTreeMap<usize, Arc<T>>>);

impl<T> ObjectTable<T> {
    /// A table of none.
    pub const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// What is known of the object at `address`.
    pub fn find<P>(&self, address: *mut P) -> Option<Arc<T>> {
        self.0.read().get(&(address as usize)).map(Arc::clone)
    }

    /// Notes an object.
    pub fn add<P>(&self, address: *mut P, object: Arc<T>) {
        self.0.write().insert(address as usize, object);
    }

    /// Forgets an object.
    pub fn remove<P>(&self, address: *mut P) -> Option<Arc<T>> {
        self.0.write().remove(&(address as usize))
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.0.read().values().map(Arc::clone).collect()
    }
}
