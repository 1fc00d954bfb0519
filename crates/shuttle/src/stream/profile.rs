//! Scheduling profile of a stream.

use core::fmt;

use crate::cc;

/// Weight, controller and rate limit of a stream.
#[derive(Clone)]
pub struct Profile {
    /// Weight in deficit round robin, relative to the other streams.
    pub weight: u32,
    /// Constructor and parameters of a controller of its own on each path that it uses, with
    /// initial, smallest and largest rate there; `None` for the shared controllers.
    pub controller: Option<(cc::Make, cc::Params)>,
    /// Rate limit over all paths, in bits of UDP payload per second.
    pub max_rate_bps: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self { weight: 1, controller: None, max_rate_bps: u64::MAX }
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let params = self.controller.as_ref().map(|(_, params)| params);
        f.debug_struct("Profile")
            .field("weight", &self.weight)
            .field("controller", &params)
            .field("max_rate_bps", &self.max_rate_bps)
            .finish()
    }
}
