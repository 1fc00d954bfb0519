//! Protection domains: the walls between streams that RFC 5042 section 2.2 asks for.

use weft_sync::{RwLock, RwLockWriteGuard};

use crate::usage::{Counted, Users};

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    id: u32,
    users: Users,
    /// Domains that reach memory of this one too, each once for each reason that it has.
    guests: RwLock<Vec<u32>>,
}

impl Pd {
    /// A protection domain named `id`, unique within its device.
    pub fn new(id: u32) -> Self {
        Self { id, users: Users::default(), guests: RwLock::default() }
    }

    /// Its name within the device.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether who belongs to the domain named `id` may reach memory of this one.
    pub fn admits(&self, id: u32) -> bool {
        self.id == id || self.guests.read().contains(&id)
    }

    /// Lets the domain named `id` reach memory of this one, until [`Pd::dismiss`].
    pub(crate) fn invite(&self, id: u32) {
        self.guests().push(id);
    }

    /// Ends one invitation of the domain named `id`.
    pub(crate) fn dismiss(&self, id: u32) {
        let mut guests = self.guests();
        if let Some(at) = guests.iter().position(|guest| *guest == id) {
            guests.swap_remove(at);
        }
    }

    fn guests(&self) -> RwLockWriteGuard<'_, Vec<u32>> {
        self.guests.write()
    }
}

impl Counted for Pd {
    fn users(&self) -> &Users {
        &self.users
    }
}
