//! Protection domains: isolation between streams (RFC 5042, section 2.2).

use weft_sync::{RwLock, RwLockWriteGuard};

use crate::usage::{Counted, Users};

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    id: u32,
    users: Users,
    /// Other domains with access to memory of this one, once for each reason.
    guests: RwLock<Vec<u32>>,
}

impl Pd {
    /// A protection domain with `id`, unique within its device.
    pub fn new(id: u32) -> Self {
        Self { id, users: Users::default(), guests: RwLock::default() }
    }

    /// Id, unique within the device.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Whether members of domain `id` may access memory of this one.
    pub fn admits(&self, id: u32) -> bool {
        self.id == id || self.guests.read().contains(&id)
    }

    /// Grants domain `id` access to memory of this one, until [`Pd::dismiss`].
    pub(crate) fn invite(&self, id: u32) {
        self.guests().push(id);
    }

    /// Revokes one grant of domain `id`.
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
