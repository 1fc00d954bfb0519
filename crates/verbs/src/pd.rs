//! Protection domains: the walls between streams that RFC 5042 section 2.2 asks for.

use crate::usage::{Counted, Users};

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    id: u32,
    users: Users,
}

impl Pd {
    /// A protection domain named `id`, unique within its device.
    pub fn new(id: u32) -> Self {
        Self { id, users: Users::default() }
    }

    /// Its name within the device.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Counted for Pd {
    fn users(&self) -> &Users {
        &self.users
    }
}
