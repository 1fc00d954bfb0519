//! How a stream is served.

use core::fmt;

use crate::cc;

/// How a stream is served beside the others of its connection.
#[derive(Clone)]
pub struct Profile {
    /// Its share of a path's controller, against those of the other streams.
    pub weight: u32,
    /// Makes a controller of its own for each path that it uses, from these parameters, which hold
    /// its initial, smallest and largest rate there; `None` for the paths' controllers.
    pub controller: Option<(cc::Make, cc::Params)>,
    /// Never faster than this over all paths, in bits of UDP payload per second.
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
